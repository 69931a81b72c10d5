//! Compiles the preload library, which is embedded into the one binary so that a copied `coplace`
//! works by itself. Without a C compiler the binary is made without it and says so at run time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("libcoplace_preload.so");
    let preload = manifest.join("../../preload");
    let include = manifest.join("../../include");
    println!("cargo::rerun-if-changed={}", preload.display());
    println!("cargo::rerun-if-changed={}", include.display());
    if let Err(why) = compile(&preload, &include, &out) {
        println!("cargo::warning=coplace is built without its preload library: {why}");
        fs::write(&out, "").expect("OUT_DIR can be written");
    }
}

fn compile(preload: &Path, include: &Path, out: &Path) -> Result<(), String> {
    let mut sources: Vec<PathBuf> = fs::read_dir(preload)
        .map_err(|error| format!("{}: {error}", preload.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .collect();
    sources.sort();
    if sources.is_empty() {
        return Err(format!("there is no C file in {}", preload.display()));
    }
    // The compiler that cargo would take for this target; the flags are those of preload/Makefile. A static binary (musl)
    // runs beside programs of the GNU C library all the same, and the library is for them.
    let target = env::var("TARGET").expect("set by cargo").replace("-musl", "-gnu");
    let compiler = cc::Build::new().cargo_metadata(false).target(&target).opt_level(2).try_get_compiler();
    let compiler = compiler.map_err(|error| error.to_string())?;
    let build = |arguments: &[&str], sources: &[PathBuf], to: &Path| {
        let mut command = Command::new(compiler.path());
        command.args(["-O2", "-g1", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fno-plt", "-shared"]);
        command.arg("-I").arg(include).arg("-I").arg(preload).args(arguments).args(sources);
        let made = command.arg("-o").arg(to).output();
        let made = made.map_err(|error| format!("{}: {error}", compiler.path().display()))?;
        match made.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    };
    let link = preload.join("link");
    let stub = out.with_file_name("libdl.so.2");
    let map = format!("-Wl,--version-script={}", link.join("libdl.map").display());
    build(&["-nostdlib", "-Wl,-soname,libdl.so.2", &map], &[link.join("libdl.c")], &stub)?;
    sources.push(stub);
    let flags = [
        "-fno-semantic-interposition",
        "-Wl,-soname,libcoplace_preload.so",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
        "-Wl,--no-undefined",
        "-Wl,--no-as-needed",
    ];
    build(&flags, &sources, out)
}
