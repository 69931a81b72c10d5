//! Gives the shared library the name under which programs look for it at run time, and tells the runtime
//! which sanitizer it is built for, if any.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number changes with what would break programs that are linked already.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcoplace_bubbles.so.0");
    println!("cargo:rustc-check-cfg=cfg(sanitizer, values(\"address\", \"thread\"))");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    for sanitizer in ["address", "thread"] {
        if flags.contains(&format!("sanitizer={sanitizer}")) {
            println!("cargo:rustc-cfg=sanitizer=\"{sanitizer}\"");
        }
    }
}
