//! What the whole-system tests share: the real binary, the real programs, and a home of its own for
//! each test, with nothing of it left behind.

pub mod guest;
mod home;
pub mod machine;
pub mod processes;
pub mod teams;
pub mod tokens;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

pub use coplace_skipped::{skipped, skipped_here, skipped_part};
pub use home::{Child, Home, Mix};

/// The top of the checkout.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the checkout").to_owned()
}

/// A directory with the tests' programs, on a machine that has no checkout to build them in.
const PROGRAMS_VARIABLE: &str = "COPLACE_TEST_PROGRAMS";

fn programs() -> Option<PathBuf> {
    std::env::var_os(PROGRAMS_VARIABLE).map(PathBuf::from)
}

/// How many times slower this machine is than those for which the tests' programs are sized: an emulated one is.
const SLOWER_VARIABLE: &str = "COPLACE_SLOWER";

fn slower() -> f64 {
    std::env::var(SLOWER_VARIABLE)
        .map_or(1.0, |text| text.parse().unwrap_or_else(|_| panic!("{SLOWER_VARIABLE}={text}: a number")))
}

/// The `--scale` of an app, such that it takes as long here as this one does elsewhere.
pub fn scaled(scale: f64) -> String {
    format!("{:.4}", scale / slower())
}

/// How long to wait here for what comes within this time elsewhere.
pub fn patience(time: Duration) -> Duration {
    time.mul_f64(slower())
}

/// Builds, once in this process, what the tests start; cheap where it is built already.
fn built() -> &'static Path {
    static TOP: OnceLock<PathBuf> = OnceLock::new();
    TOP.get_or_init(|| {
        let run = |command: &mut Command| {
            let output =
                command.current_dir(top()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        if std::env::var_os(BINARY_VARIABLE).is_none() {
            run(Command::new(env!("CARGO")).args(["build", "--release", "--quiet", "-p", "coplace-cli"]));
        }
        run(Command::new("make").args(["--quiet", "apps"]));
        top()
    })
}

/// Every Rust file below a directory; none where there is no such directory.
pub fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        match path.is_dir() {
            true => found.extend(rust_files(&path)),
            false if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
            false => {}
        }
    }
    found
}

/// Names a binary to be tested instead of the one of this checkout.
const BINARY_VARIABLE: &str = "COPLACE_BINARY";

/// The `coplace` binary.
pub fn coplace() -> PathBuf {
    std::env::var_os(BINARY_VARIABLE).map_or_else(|| built().join("target/release/coplace"), PathBuf::from)
}

/// One of the programs in `apps/`.
pub fn app(name: &str) -> String {
    let directory = programs().unwrap_or_else(|| built().join("build/apps"));
    directory.join(name).to_str().expect("the checkout's path is text").to_owned()
}

/// A C program of the tests' own, from `tests/programs`.
pub fn helper(name: &str, home: &Home) -> String {
    compiled(name, "-pthread", home.path())
}

/// One of them that uses OpenMP.
pub fn openmp_helper(name: &str, home: &Home) -> String {
    compiled(name, "-fopenmp", home.path())
}

/// One of them, compiled into this directory, or as it was brought here.
pub fn compiled(name: &str, threads: &str, directory: &Path) -> String {
    if let Some(programs) = programs() {
        return programs.join(name).to_str().expect("the directory's path is text").to_owned();
    }
    let source = top().join("tests/programs").join(format!("{name}.c"));
    let binary = directory.join(name);
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-O2", "-std=gnu11", "-Wall", threads, "-o"]).args([&binary, &source]);
    let output = cc.output().unwrap_or_else(|error| panic!("{cc:?}: {error}"));
    assert!(output.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&output.stderr));
    binary.to_str().expect("the directory's path is text").to_owned()
}
