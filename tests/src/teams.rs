//! The small programs of `tests/programs/teams`: which there are, built as their heads say, and what is found of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::top;

/// What a program must be found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Any team gives the same result, and coplace finds that out.
    Resizable,
    /// Another team may give another result, or coplace cannot tell: it keeps its threads.
    Rigid,
}

/// One program as one compiler built it with one list of flags.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is built, or will be, such as `build/teams/stencil-gcc-O2`.
    pub path: PathBuf,
    /// Its source's file name without the ending.
    pub name: String,
    /// `gcc` or `clang`; C++ is built by its `g++` or `clang++`.
    pub compiler: String,
    /// One list of its head, separated by blanks; `-O2` where the head has none.
    pub flags: String,
    /// What its head expects for this compiler (`expect:`).
    pub mark: Mark,
}

impl Program {
    /// What its file is called: program, compiler and flags.
    pub fn file(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).expect("build names it in ASCII")
    }

    /// The library that it opens.
    pub fn library(&self) -> Option<PathBuf> {
        let path = PathBuf::from(format!("{}.so", self.path.display()));
        path.exists().then_some(path)
    }
}

fn directory() -> PathBuf {
    top().join("build/teams")
}

fn build() -> Command {
    let mut command = Command::new(top().join("tests/programs/teams/build"));
    command.stdin(Stdio::null());
    command
}

/// Every program by every compiler that is there, with all lists of flags. None is built yet.
pub fn listed() -> Vec<Program> {
    let output = build().arg("--list").arg(directory()).output().expect("build needs bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(program).collect()
}

fn program(line: &str) -> Program {
    let columns: Vec<&str> = line.split('\t').collect();
    let [path, name, compiler, flags, mark] = columns[..] else { panic!("build lists {line:?}") };
    let mark = match mark {
        "resizable" => Mark::Resizable,
        "rigid" => Mark::Rigid,
        other => panic!("{name} is to be {other:?} by {compiler}; see tests/programs/teams/README.md"),
    };
    Program { path: path.into(), name: name.into(), compiler: compiler.into(), flags: flags.into(), mark }
}

/// Builds these, two at a time; cheap where they are built already.
pub fn built(programs: &[Program]) {
    let halves: Vec<Vec<&str>> =
        (0..2).map(|half| programs.iter().skip(half).step_by(2).map(Program::file).collect()).collect();
    let children: Vec<_> = halves
        .iter()
        .filter(|files| !files.is_empty())
        .map(|files| {
            let mut command = build();
            command.arg(directory()).args(files).stdout(Stdio::null());
            command.spawn().expect("build needs bash")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("it is our child").success(), "see above what the compiler says");
    }
}

/// A program that runs beside them for as many milliseconds as it is told: `resizable` or `rigid`.
pub fn neighbour(kind: &str) -> PathBuf {
    let path = directory().join(format!("neighbour-{kind}"));
    let source = top().join(format!("tests/programs/teams/neighbours/{kind}.c"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-fopenmp", "-o"]).args([&path, &source]);
    let output = gcc.output().unwrap_or_else(|error| panic!("{gcc:?}: {error}"));
    assert!(output.status.success(), "{gcc:?}: {}", String::from_utf8_lossy(&output.stderr));
    path
}

/// What `status --json` says that a program is, and why; `None` while nothing was found yet. The one place that
/// knows how it says so.
pub fn verdict(app: &Value) -> Option<(Mark, String)> {
    match (app["rigid"].as_str(), app["resizing"]["resizing"].as_str()) {
        (Some(why), _) => Some((Mark::Rigid, why.to_owned())),
        (None, Some("resizable")) => Some((Mark::Resizable, String::new())),
        _ => None,
    }
}

/// Every program's source.
pub fn sources() -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(top().join("tests/programs/teams")).expect("it is in the checkout").flatten();
    let is_program = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name.ends_with(".c") && !name.ends_with(".part.c")) || name.ends_with(".cpp")
    };
    let mut sources: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_program).collect();
    sources.sort();
    sources
}

/// The same program's line of its head, such as `Seen in`.
pub fn comment_value(source: &Path, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(source).ok()?;
    let prefix = format!("// {key}: ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}
