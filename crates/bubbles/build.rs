//! Gives the shared library the name under which programs look for it at run time.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number changes with what would break programs that are linked already.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcoplace_bubbles.so.0");
}
