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

/// Whether what takes minutes is done as well.
fn all() -> bool {
    std::env::var("COPLACE_PACKAGES").is_ok_and(|which| which == "all")
}

/// Makes a wheel for this kind of machine and the static binary in it: their paths. `None` where that cannot be done; the
/// calling test counts as skipped then.
fn make_wheel(test: &str, machine: &str) -> Option<(PathBuf, PathBuf)> {
    let mut made = Command::new(top().join("scripts/wheel"));
    let made = made.arg(machine).env("PROFILE", "plain").output().unwrap();
    let text = String::from_utf8_lossy(&made.stderr).into_owned();
    match made.status.code() {
        Some(0) => {}
        Some(3) => {
            skipped(test, text.trim());
            return None;
        }
        _ => panic!("{text}"),
    }
    let wheel = top().join(String::from_utf8_lossy(&made.stdout).trim());
    let command = top().join(format!("build/wheel/coplace-{machine}"));
    let linked = output_of(Command::new("readelf").arg("-d").arg(&command)).unwrap();
    assert!(!linked.contains("NEEDED"), "{linked}");
    Some((wheel, command))
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
    // Up to glibc 2.29 a program ends at its start if the loader's functions are asked for in another library.
    let files = output_of(Command::new("readelf").arg("-V").arg(&library)).unwrap();
    assert!(files.contains("File: libdl.so.2"), "{files}");
}

/// The wheel in an environment that has nothing else, on this machine's Python.
#[test]
fn a_wheel_brings_a_static_command_and_a_module() {
    const NAME: &str = "a_wheel_brings_a_static_command_and_a_module";
    let Some((wheel, _)) = make_wheel(NAME, "x86_64") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let python = scratch.path().join("bin/python");
    output_of(Command::new("python3").args(["-m", "venv"]).arg(scratch.path())).unwrap();
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"];
    output_of(Command::new(&python).args(install).arg(&wheel)).unwrap();
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
    let checked = output_of(Command::new(twine).args(["check", "--strict"]).arg(&wheel));
    assert!(checked.is_ok_and(|text| text.contains("PASSED")));
}

#[test]
fn the_aarch64_binary_simulates_as_the_native_one() {
    const NAME: &str = "the_aarch64_binary_simulates_as_the_native_one";
    const SIMULATE: [&str; 5] = ["simulate", "set:B", "--machine", "pack:2 core:4", "--json"];
    if !all() {
        return skipped(NAME, "COPLACE_PACKAGES=all builds that binary, which takes minutes");
    }
    if !is_there("qemu-aarch64-static") {
        return skipped(NAME, "apt-get install qemu-user-static");
    }
    let Some((_, command)) = make_wheel(NAME, "aarch64") else { return };
    let emulated = output_of(Command::new("qemu-aarch64-static").arg(&command).args(SIMULATE)).unwrap();
    assert_eq!(emulated, output_of(Command::new(coplace_tests::coplace()).args(SIMULATE)).unwrap());
    // Its preload library is one of that machine, too.
    let carried = fs::read(&command).unwrap();
    let name = b"libcoplace_preload.so\0";
    assert!(carried.windows(name.len()).any(|at| at == name), "the binary carries no preload library");
}

/// A Python of this system's that the module works with, 3.8 or later.
fn python_of(system: &Path) -> Option<String> {
    let programs = fs::read_dir(system.join("usr/bin")).into_iter().flatten().flatten();
    let names = programs.filter_map(|entry| entry.file_name().into_string().ok());
    let minor = |name: &str| name.strip_prefix("python3.")?.parse::<u32>().ok();
    let fit = names.filter_map(|name| Some((minor(&name).filter(|minor| *minor >= 8)?, name)));
    fit.max().map(|(_, name)| name)
}

#[test]
fn the_wheel_works_on_an_old_distribution() {
    const NAME: &str = "the_wheel_works_on_an_old_distribution";
    const SYSTEM: &str = "COPLACE_OLD_SYSTEM";
    let Some(system) = std::env::var_os(SYSTEM).map(PathBuf::from) else {
        return skipped(
            NAME,
            format!("{SYSTEM}=DIRECTORY names the files of one, with a Python from 3.8 on"),
        );
    };
    let python = python_of(&system).unwrap_or_else(|| panic!("{SYSTEM}: it has no Python from 3.8 on"));
    // Wheels of this kind need a later pip than that distribution has; it is one that its users get by `pip install -U pip`.
    let pip = fs::read_dir(top().join(".tools")).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(pip) = pip.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "whl"))
    else {
        return skipped(NAME, "pip is not in .tools: scripts/prepare test");
    };
    let Some((wheel, _)) = make_wheel(NAME, "x86_64") else { return };
    let bring = |path: &Path, to: &str| fs::copy(path, system.join("opt").join(to)).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    bring(&wheel, &name(&wheel));
    bring(&pip, &name(&pip));
    bring(&top().join("packaging/python/try.py"), "try.py");
    bring(Path::new(&app("static/burn")), "burn");
    let script = format!(
        "{python} -m venv --clear --without-pip /opt/venv && cd /opt && PYTHONPATH=/opt/{} venv/bin/python -m pip install \
         --quiet --no-index --disable-pip-version-check /opt/{} && venv/bin/python try.py /opt/burn",
        name(&pip),
        name(&wheel)
    );
    let mut tried = Command::new("unshare");
    tried.args(["--mount", "--pid", "--fork"]).args([
        "sh",
        "-c",
        "mount -t proc proc \"$1/proc\" && exec chroot \"$1\" sh -c \"$2\"",
        "sh",
    ]);
    tried
        .arg(&system)
        .arg(script)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root");
    assert_eq!(output_of(&mut tried).as_deref().map(str::trim), Ok("VERIFIED"));
}
