//! What people install: the Debian package and the wheel. How the package fares on a stock Debian is in `stock`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use coplace_tests::{app, skipped, top};

/// What a command prints, if it succeeds.
fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn is_there(tool: &str) -> bool {
    std::env::var("PATH").is_ok_and(|path| path.split(':').any(|dir| Path::new(dir).join(tool).exists()))
}

/// Makes the Debian package in this directory.
fn make_deb(to: &Path) -> PathBuf {
    let made = output_of(Command::new(top().join("scripts/deb")).arg(to).current_dir(top()));
    PathBuf::from(made.unwrap_or_else(|error| panic!("{error}")).trim())
}

#[test]
fn the_debian_package_is_sound_and_reproducible() {
    const NAME: &str = "the_debian_package_is_sound_and_reproducible";
    if !is_there("dpkg-shlibdeps") {
        return skipped(NAME, "apt-get install dpkg-dev");
    }
    coplace_tests::coplace();
    let scratch = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| make_deb(&scratch.path().join(name)));
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "made again it is another one");
    if !is_there("lintian") {
        return coplace_tests::skipped_part(NAME, "lintian is not installed");
    }
    let found =
        output_of(Command::new("lintian").args(["--allow-root", "--fail-on", "error,warning"]).arg(&first));
    assert_eq!(found.as_deref().map(str::trim), Ok(""));
}

#[test]
fn the_preload_library_needs_an_old_glibc_only() {
    let library = top().join("build/preload/libcoplace_preload.so");
    let symbols = output_of(Command::new("objdump").arg("-T").arg(&library)).unwrap();
    let versions = symbols.split("GLIBC_").skip(1).map(|rest| {
        let version = rest.split(')').next().unwrap();
        version.split('.').map(|number| number.parse().unwrap()).collect::<Vec<u32>>()
    });
    // What scripts/wheel names its wheels by.
    assert!(versions.max().unwrap() <= vec![2, 17], "{symbols}");
}

/// The wheel in an environment that has nothing else, on this machine's Python.
#[test]
fn a_wheel_brings_a_static_command_and_a_module() {
    const NAME: &str = "a_wheel_brings_a_static_command_and_a_module";
    let built = Command::new(top().join("scripts/wheel")).env("PROFILE", "dev").output().unwrap();
    let text = String::from_utf8_lossy(&built.stderr).into_owned();
    match built.status.code() {
        Some(0) => {}
        Some(3) => return skipped(NAME, text.trim()),
        _ => panic!("{text}"),
    }
    let wheel = PathBuf::from(String::from_utf8_lossy(&built.stdout).trim());
    let command = top().join("build/wheel/coplace-x86_64");
    let linked = output_of(Command::new("readelf").arg("-d").arg(&command)).unwrap();
    assert!(!linked.contains("NEEDED"), "{linked}");
    let scratch = tempfile::tempdir().unwrap();
    let python = scratch.path().join("bin/python");
    output_of(Command::new("python3").args(["-m", "venv"]).arg(scratch.path())).unwrap();
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"];
    output_of(Command::new(&python).args(install).arg(top().join(&wheel))).unwrap();
    let script = top().join("packaging/python/try.py");
    let tried = output_of(
        Command::new(&python)
            .arg(script)
            .arg(app("burn"))
            .env("COPLACE_RUNTIME_DIR", scratch.path().join("home"))
            .env("XDG_CACHE_HOME", scratch.path().join("cache")),
    );
    assert_eq!(tried.as_deref().map(str::trim), Ok("VERIFIED"));
    let twine = top().join(".tools/wheels/bin/twine");
    if !twine.exists() {
        return coplace_tests::skipped_part(NAME, "twine is not in .tools/wheels: scripts/prepare test");
    }
    let checked = output_of(Command::new(twine).args(["check", "--strict"]).arg(top().join(&wheel)));
    assert!(checked.is_ok_and(|text| text.contains("PASSED")));
}
