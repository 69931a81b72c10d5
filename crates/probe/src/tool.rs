//! Unmodified programs under the reuse tool (`reuse-tool/`), and natively beside it.
//!
//! The tool is a program of its own that Valgrind loads; it is found beside this binary or where
//! [`TOOL_VARIABLE`] says.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use reuse::{Ended, Rate, Report, ReportError};
use thiserror::Error;

pub use crate::started::Until;
use crate::started::{Finished, GRACE, Started};

/// Names the folder that holds the tool.
pub const TOOL_VARIABLE: &str = "COPLACE_REUSE_TOOL";
/// Threads that wait by spinning would be measured spinning, for as long as Valgrind runs another.
const WAITING: (&str, &str) = ("OMP_WAIT_POLICY", "passive");
/// Word size and machine of an ELF file.
const ELF32: u8 = 1;
const ELF64: u8 = 2;
#[cfg(target_arch = "x86_64")]
const MACHINE: (&str, u16) = ("amd64", 62);
#[cfg(target_arch = "aarch64")]
const MACHINE: (&str, u16) = ("arm64", 183);

/// Why the tool cannot be used here.
#[derive(Debug, Error)]
pub enum Missing {
    /// No executable file `valgrind` is in `PATH`.
    #[error("there is no valgrind in PATH: install it (apt-get install valgrind)")]
    Valgrind,
    /// No folder has the tool's file, which is `reuse-amd64-linux` or `reuse-arm64-linux`.
    #[error(
        "the reuse tool is not built: make -C reuse-tool OUT=build/reuse-tool (needs the package valgrind), or set {TOOL_VARIABLE} to its folder; looked in {}",
        tried.join(", ")
    )]
    Tool {
        /// Folders that were looked in: the one that [`TOOL_VARIABLE`] names, or those beside this binary.
        tried: Vec<String>,
    },
}

/// Why a program was not measured.
#[derive(Debug, Error)]
pub enum RunError {
    /// The program's file is not there, is no regular file, or cannot be read.
    #[error("{program}: {why}")]
    NotFound {
        /// As it was given, with or without a path.
        program: String,
        /// What the kernel answered, or what stands for it.
        why: io::Error,
    },
    /// The program is no 64-bit one.
    #[error("{program} is {}; the reuse tool is for {} only", width(*class), MACHINE.0)]
    Narrow {
        /// As it was given, with or without a path.
        program: String,
        /// `EI_CLASS` in its ELF header: 1 for 32 bits, anything else in a file that is damaged.
        class: u8,
    },
    /// The program is for another processor than this binary.
    #[error("{program} is for another processor (ELF machine {machine}); the reuse tool is for {} only", MACHINE.0)]
    Foreign {
        /// As it was given, with or without a path.
        program: String,
        /// `e_machine` in its ELF header.
        machine: u16,
    },
    /// A process could not be started or waited for.
    #[error("cannot run {what}: {why}")]
    Start {
        /// Its command: the program, or the path of Valgrind.
        what: String,
        /// What the kernel answered.
        why: io::Error,
    },
    /// The tool wrote a report that is cut off or wrong.
    #[error("{0}")]
    Report(#[from] ReportError),
    /// The tool wrote nothing.
    #[error(
        "the tool left no report: it was ended before it could write one ({status}); stderr above says more"
    )]
    NoReport {
        /// How the process under Valgrind ended.
        status: ExitStatus,
    },
    /// The temporary directory for reports cannot be made or read, or a report in it cannot be read.
    #[error("cannot use {path}: {why}", path = path.display())]
    Files {
        /// The report or the directory; where that cannot be made, the one above it.
        path: PathBuf,
        /// What the kernel answered.
        why: io::Error,
    },
    /// Somebody wanted to stop ([`Until::stopped`]), or a native run was ended by SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A native run that was to end well ([`alone`]) did not.
    #[error("{program}: {status}")]
    Failed {
        /// As it was given, with or without a path.
        program: String,
        /// An exit status other than 0, or a signal.
        status: ExitStatus,
    },
    /// A native run that was to end well ([`alone`]) took longer than its limit.
    #[error("{program} did not end within {} s, the limit", limit.as_secs_f64())]
    TooLong {
        /// As it was given, with or without a path.
        program: String,
        /// The limit, in wall-clock time.
        limit: Duration,
    },
}

fn width(class: u8) -> String {
    match class {
        ELF32 => "a 32-bit program".into(),
        _ => format!("neither a 32-bit nor a 64-bit program (its ELF class is {class})"),
    }
}

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// All lines, without.
    pub sample: Option<Rate>,
    /// Leave out what is in the stack.
    pub without_stack: bool,
    /// Count instruction fetches, too.
    pub fetches: bool,
    /// Only the whole program's histogram.
    pub without_threads: bool,
    /// Programs that it starts, too.
    pub children: bool,
    /// Wall-clock time after which the program is ended, with a report of what was seen; without, never.
    pub limit: Option<Duration>,
    /// What it prints goes nowhere.
    pub quiet: bool,
    /// OpenMP threads; as the environment says, without.
    pub omp_threads: Option<u32>,
    /// Where every access is written.
    pub trace: Option<PathBuf>,
}

/// A run under the tool.
#[derive(Clone, Debug)]
pub struct Run {
    /// Of every program that was counted, the one that was started first.
    pub reports: Vec<Report>,
    /// Of the process under Valgrind: as the program ended; at the limit 124 or the signal that ended it.
    pub status: ExitStatus,
    /// Under the tool, which is many times that of a native run.
    pub cost: Cost,
}

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Wall-clock time from start to end.
    pub seconds: f64,
    /// CPU time in user mode, of all threads and of children that were waited for.
    pub user_seconds: f64,
}

/// Valgrind and our tool for it.
#[derive(Clone, Debug)]
pub struct Tool {
    valgrind: PathBuf,
    folder: PathBuf,
    stopped: Option<Arc<AtomicBool>>,
}

impl Tool {
    /// Valgrind from `PATH`, and the tool from the folder that [`TOOL_VARIABLE`] names; where it names none,
    /// from `../lib/coplace/reuse-tool` or `../../build/reuse-tool` as seen from this binary's directory.
    pub fn find() -> Result<Tool, Missing> {
        let valgrind = in_path("valgrind").ok_or(Missing::Valgrind)?;
        let mut folders: Vec<PathBuf> = Vec::new();
        match std::env::var_os(TOOL_VARIABLE).filter(|folder| !folder.is_empty()) {
            Some(folder) => folders.push(folder.into()),
            None => {
                let beside = std::env::current_exe().ok();
                let beside = beside.as_deref().and_then(Path::parent).into_iter();
                let places = ["../lib/coplace/reuse-tool", "../../build/reuse-tool"];
                folders.extend(beside.flat_map(|directory| places.map(|place| directory.join(place))));
            }
        }
        let is_there = |folder: &&PathBuf| folder.join(format!("reuse-{}-linux", MACHINE.0)).is_file();
        match folders.iter().find(is_there).and_then(|folder| folder.canonicalize().ok()) {
            Some(folder) => Ok(Tool { valgrind, folder, stopped: None }),
            None => Err(Missing::Tool { tried: folders.iter().map(|f| f.display().to_string()).collect() }),
        }
    }

    /// Somebody may want to stop: a run ends then, with [`RunError::Interrupted`].
    pub fn stopping(self, stopped: Arc<AtomicBool>) -> Tool {
        Tool { stopped: Some(stopped), ..self }
    }

    /// Runs a program to its end, or to the limit.
    pub fn run(&self, words: &[OsString], options: &Options) -> Result<Run, RunError> {
        check(&words[0])?;
        let directory = tempfile::Builder::new().prefix("coplace-reuse-").tempdir();
        let directory = directory.map_err(|why| RunError::Files { path: std::env::temp_dir(), why })?;
        let mut command = Command::new(&self.valgrind);
        command.env("VALGRIND_LIB", &self.folder).args(["-q", "--tool=reuse"]);
        command.args(self.arguments(options, directory.path())).arg("--").args(words);
        if options.quiet {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let until = Until { limit: options.limit, stopped: self.stopped.clone() };
        // It looks at the clock only while it runs; one that sleeps is woken, and reports as it ends.
        let (Finished { status, at_limit, .. }, cost, pid) =
            finish(&mut command, &until, GRACE, options.omp_threads)?;
        let mut reports = read(directory.path())?;
        reports.sort_by_key(|(own_pid, number, _)| (*own_pid != pid, *own_pid, *number));
        if reports.is_empty() {
            return Err(RunError::NoReport { status });
        }
        // The tool ends itself by the signal that ended the program, and does not know it before.
        if let Some(signal) = status.signal()
            && let Some((_, _, report)) = reports.iter_mut().rfind(|(own_pid, _, _)| *own_pid == pid)
        {
            report.ended = if at_limit { Ended::TimeLimit } else { Ended::Signal(Some(signal)) };
        }
        Ok(Run { reports: reports.into_iter().map(|(_, _, report)| report).collect(), status, cost })
    }

    fn arguments(&self, options: &Options, directory: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: OsString| {
            let mut argument = OsString::from(format!("--{name}="));
            argument.push(value);
            arguments.push(argument);
        };
        // Valgrind's highest: what a block does at its beginning is done once for eight steps of a short loop, not
        // for two.
        add("vex-iropt-unroll-thresh", "400".into());
        add("out", directory.join("report").into());
        match options.sample {
            Some(Rate::Fixed(share)) => {
                add("sample-threshold", ((share * 2f64.powi(64)) as u64).max(1).to_string().into());
            }
            Some(Rate::Size(lines)) => add("sample-size", lines.to_string().into()),
            None => {}
        }
        for (name, wanted, value) in [
            ("stack", options.without_stack, "no"),
            ("fetches", options.fetches, "yes"),
            ("threads", options.without_threads, "no"),
            ("children", options.children, "yes"),
            ("trace-children", options.children, "yes"),
        ] {
            if wanted {
                add(name, value.into());
            }
        }
        if let Some(limit) = options.limit {
            add("limit-ms", limit.as_millis().clamp(1, i32::MAX as u128).to_string().into());
        }
        if let Some(trace) = &options.trace {
            add("trace", trace.into());
        }
        arguments
    }
}

/// Runs a program natively, without anything to read and with nobody to listen to it; to its end, or until it is
/// ended at the limit. Whoever is ended by a Ctrl-C is not to be run again under the tool.
pub fn native(
    words: &[OsString],
    until: impl Into<Until>,
    omp_threads: Option<u32>,
) -> Result<(ExitStatus, Cost), RunError> {
    let (finished, cost) = natively(words, &until.into(), omp_threads)?;
    Ok((finished.status, cost))
}

/// The same, to its own good end.
pub fn alone(words: &[OsString], until: &Until, omp_threads: Option<u32>) -> Result<Cost, RunError> {
    let program = || words[0].to_string_lossy().into_owned();
    match natively(words, until, omp_threads)? {
        (Finished { at_limit: true, .. }, _) => {
            let limit = until.limit.unwrap_or_default();
            Err(RunError::TooLong { program: program(), limit })
        }
        (Finished { status, .. }, _) if !status.success() => {
            Err(RunError::Failed { program: program(), status })
        }
        (_, cost) => Ok(cost),
    }
}

fn natively(
    words: &[OsString],
    until: &Until,
    omp_threads: Option<u32>,
) -> Result<(Finished, Cost), RunError> {
    exists(&words[0])?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (finished, cost, _) = finish(&mut command, until, Duration::ZERO, omp_threads)?;
    // A terminal tells all in the foreground.
    let asked = [libc::SIGINT, libc::SIGTERM].map(Some).contains(&finished.status.signal());
    if asked && !finished.at_limit {
        return Err(RunError::Interrupted);
    }
    Ok((finished, cost))
}

/// To its end, or somewhat beyond its limit; what it cost, and its pid.
fn finish(
    command: &mut Command,
    until: &Until,
    grace: Duration,
    omp_threads: Option<u32>,
) -> Result<(Finished, Cost, u32), RunError> {
    if let Some(threads) = omp_threads {
        command.env("OMP_NUM_THREADS", threads.to_string());
    }
    if std::env::var_os(WAITING.0).is_none() {
        command.env(WAITING.0, WAITING.1);
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why| RunError::Start { what: name.clone(), why };
    let before = children_user_s();
    let started = Started::new(command).map_err(failed)?;
    let pid = started.pid();
    let finished = started.finish(until, grace).map_err(failed)?;
    if finished.stopped {
        return Err(RunError::Interrupted);
    }
    let cost = Cost { seconds: finished.seconds, user_seconds: children_user_s() - before };
    Ok((finished, cost, pid))
}

/// CPU time of all children that were waited for.
fn children_user_s() -> f64 {
    // SAFETY: all zeros is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a place of the right type that lives until the call returns.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(result, 0, "getrusage fails only for wrong arguments");
    usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 / 1e6
}

/// Reports as (process, number among its programs, what it says).
fn read(directory: &Path) -> Result<Vec<(u32, u32, Report)>, RunError> {
    let failed = |why| RunError::Files { path: directory.to_owned(), why };
    let mut reports = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let text = fs::read_to_string(&path).map_err(|why| RunError::Files { path: path.clone(), why })?;
        let number = path.extension().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(0);
        let report = Report::parse(&text)?;
        reports.push((report.pid, number, report));
    }
    Ok(reports)
}

/// The file of a program: as it stands with a slash, found in `PATH` without.
pub fn exists(program: &OsString) -> Result<PathBuf, RunError> {
    let name = program.to_string_lossy().into_owned();
    let path = if name.contains('/') { Some(PathBuf::from(program)) } else { in_path(program) };
    let found =
        path.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(|path| match path.metadata()? {
            meta if meta.is_file() => Ok(path),
            meta if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            _ => Err(io::Error::other("it is a device, a pipe or a socket")),
        });
    found.map_err(|why| RunError::NotFound { program: name, why })
}

/// Whether the tool can run this program, before Valgrind says so in its own words; its file.
pub fn check(program: &OsString) -> Result<PathBuf, RunError> {
    let name = program.to_string_lossy().into_owned();
    let path = exists(program)?;
    let mut head = [0; 20];
    let read = File::open(&path).and_then(|mut file| file.read(&mut head));
    let length = read.map_err(|why| RunError::NotFound { program: name.clone(), why })?;
    // A script is its interpreter's business.
    if length < head.len() || !head.starts_with(b"\x7fELF") {
        return Ok(path);
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    match (head[4], machine) {
        (ELF64, machine) if machine == MACHINE.1 => Ok(path),
        (ELF64, machine) => Err(RunError::Foreign { program: name, machine }),
        (class, _) => Err(RunError::Narrow { program: name, class }),
    }
}

fn in_path(program: impl AsRef<Path>) -> Option<PathBuf> {
    let executable =
        |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program.as_ref())).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[4] = class;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn programs_unfit_for_the_tool_are_named_before_it_starts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("program");
        let check_bytes = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            check(&file.clone().into_os_string())
        };
        assert!(check_bytes(&elf(ELF64, MACHINE.1)).is_ok());
        assert!(check_bytes(b"#!/bin/sh\n").is_ok());
        let narrow = |class: u8| check_bytes(&elf(class, 3)).unwrap_err().to_string();
        assert!(narrow(1).contains("is a 32-bit program"), "{}", narrow(1));
        assert!(narrow(7).contains("its ELF class is 7"), "{}", narrow(7));
        assert!(matches!(check_bytes(&elf(ELF64, 8)), Err(RunError::Foreign { machine: 8, .. })));
        assert!(matches!(check(&"/nowhere/at/all".into()), Err(RunError::NotFound { .. })));
        assert!(matches!(check(&"no-such-program-anywhere".into()), Err(RunError::NotFound { .. })));
        for (path, what) in [("/", "is a directory"), ("/dev/null", "it is a device")] {
            let error = check(&path.into()).unwrap_err();
            assert!(
                matches!(&error, RunError::NotFound { .. }) && error.to_string().contains(what),
                "{error}"
            );
        }
    }

    #[test]
    fn a_native_run_takes_time() {
        let (status, cost) = native(&["sleep".into(), "0.05".into()], None, None).unwrap();
        assert!(status.success());
        assert!((0.05..5.0).contains(&cost.seconds) && cost.user_seconds < 1.0, "{cost:?}");
    }

    #[test]
    fn only_a_run_that_ended_well_counts() {
        let shell = |script: &str, limit: Option<Duration>| {
            alone(&["sh".into(), "-c".into(), script.into()], &limit.into(), None)
        };
        assert!(shell("exit 0", None).is_ok());
        let failed = shell("exit 3", None).unwrap_err();
        assert_eq!(failed.to_string(), "sh: exit status: 3");
        assert!(matches!(shell("kill -ILL $$", None), Err(RunError::Failed { .. })));
        // Even if it takes the end for a success.
        let limit = Some(Duration::from_millis(200));
        let late = shell("trap 'exit 0' TERM; while :; do sleep 0.01; done", limit).unwrap_err();
        assert_eq!(late.to_string(), "sh did not end within 0.2 s, the limit");
        assert!(matches!(shell("kill -INT $$", None), Err(RunError::Interrupted)));
        let words = ["sh".into(), "-c".into(), "kill -INT $$".into()];
        assert!(matches!(native(&words, None, None), Err(RunError::Interrupted)));
    }
}
