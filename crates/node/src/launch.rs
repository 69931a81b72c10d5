//! Starting a program that is held before its first instruction.
//!
//! The process exists (so that it can be registered and placed) but executes the program only when
//! it is let go. It gets what this process got from its shell: terminal, process group, descriptors,
//! signal dispositions and mask; what the Rust runtime or coplace changed is undone.
//!
//! Should this process die before it lets the program go, the program starts by itself: whoever
//! kills coplace gets his programs uncoordinated, not lost.

mod child;
mod inherited;

pub use inherited::was_ignored;

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux::protection;
use protocol::{ProcessId, ProgramKey};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::{identity, remember};
use child::{Failure, Stage};

/// What to start.
#[derive(Debug, Default)]
pub struct Launch {
    /// The program (looked for in PATH if it has no slash) and its arguments.
    pub command: Vec<OsString>,
    /// Where; `None`: here.
    pub directory: Option<PathBuf>,
    /// Added to this process's environment; replaces what has the same name.
    pub environment: BTreeMap<OsString, OsString>,
    /// Instead of this process's own.
    pub stdin: Option<OwnedFd>,
    /// Instead of this process's own standard output.
    pub stdout: Option<OwnedFd>,
    /// Instead of this process's own standard error.
    pub stderr: Option<OwnedFd>,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// [`Launch::command`] is empty.
    #[error("there is no program to run")]
    Empty,
    /// There is no file of that name.
    #[error("cannot run {}: not found{}", program.display(), describe_searched(tried))]
    NotFound {
        /// The first word of the command.
        program: OsString,
        /// The paths that were tried: the word itself if it has a slash, else one for each directory of PATH.
        tried: Vec<PathBuf>,
    },
    /// There is such a file, but it cannot be executed.
    #[error("cannot run {path}: {why}", path = path.display())]
    NotExecutable {
        /// The file, as it was tried; a relative path counts from [`Launch::directory`].
        path: PathBuf,
        /// The reason in words: no permission, a directory, a missing interpreter …
        why: String,
    },
    /// [`Launch::directory`] cannot be entered.
    #[error("cannot enter the directory {path}: {error}", path = path.display())]
    Directory {
        /// That directory.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The program's path, an argument or the directory contains a zero byte.
    #[error("'{}' holds a zero byte, which no program can be given", text.to_string_lossy())]
    ZeroByte {
        /// All of that string.
        text: OsString,
    },
    /// A pipe, memory or the process itself could not be made, or a standard descriptor not be replaced.
    #[error("cannot start a process: {0}")]
    System(#[from] io::Error),
}

fn describe_searched(tried: &[PathBuf]) -> String {
    match tried {
        [only] => format!(" ({})", only.display()),
        _ => {
            let directories =
                tried.iter().filter_map(|path| path.parent()).map(|dir| dir.display().to_string());
            format!(" in PATH ({})", directories.collect::<Vec<_>>().join(":"))
        }
    }
}

impl LaunchError {
    /// The exit status that shells give for this: 127 not found, 126 not executable, 125 ours.
    pub fn exit_status(&self) -> u8 {
        match self {
            LaunchError::NotFound { .. } => 127,
            LaunchError::NotExecutable { .. } => 126,
            _ => 125,
        }
    }
}

/// A process that will execute its program when it is let go; dropped before, it is killed.
#[derive(Debug)]
pub struct Held {
    running: Running,
    go: OwnedFd,
    failure: OwnedFd,
    environment: child::Environment,
    variables: BTreeMap<OsString, OsString>,
    candidates: Vec<PathBuf>,
    program: OsString,
    directory: Option<PathBuf>,
}

impl Held {
    /// Forks the program's process and holds it; fails here where the program is missing or not executable.
    pub fn spawn(launch: Launch) -> Result<Held, LaunchError> {
        let program = launch.command.first().ok_or(LaunchError::Empty)?;
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        variables.extend(launch.environment);
        let candidates = candidates(program, variables.get(OsStr::new("PATH")));
        // The usual mistakes are found before anything is started.
        check(program, &candidates, launch.directory.as_deref())?;

        let c_candidates =
            candidates.iter().map(|path| c_string(path.as_os_str())).collect::<Result<Vec<_>, _>>()?;
        let arguments = launch.command.iter().map(|text| c_string(text)).collect::<Result<Vec<_>, _>>()?;
        let directory = launch.directory.as_ref().map(|path| c_string(path.as_os_str())).transpose()?;
        let mut environment = child::Environment::new(&variables)?;
        environment.fill(&variables)?;

        let (go_read, go) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (failure, failure_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let standard =
            [&launch.stdin, &launch.stdout, &launch.stderr].map(|fd| fd.as_ref().map(AsRawFd::as_raw_fd));
        let pid = child::Plan {
            candidates: &c_candidates,
            arguments: &arguments,
            directory: directory.as_deref(),
            environment: &environment,
            standard,
            cpus: &child::own_cpus(),
            go: go_read.as_raw_fd(),
            failure: failure_write.as_raw_fd(),
        }
        .fork()?;
        drop((go_read, failure_write));
        let process = identity::of_pid(pid.as_raw_nonzero().get() as u32)
            .unwrap_or(ProcessId { pid: pid.as_raw_nonzero().get() as u32, start_time_ticks: 0 });
        // Before Linux 5.3 there are no such descriptors; then ends are noticed by asking.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        let running = Running { process, pid, pidfd, ended: None, killed_by_drop: true };
        let (program, directory) = (program.clone(), launch.directory);
        Ok(Held { running, go, failure, environment, variables, candidates, program, directory })
    }

    /// The process, which stays the same when it executes. Its start time is 0 where /proc does not tell it.
    pub fn process(&self) -> ProcessId {
        self.running.process
    }

    /// Its end (Ctrl-C while it waits) is seen here.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// The file that will be executed, if it can be told.
    pub fn file(&self) -> Option<PathBuf> {
        self.candidates.iter().map(|path| self.resolve(path)).find(|path| path.is_file())
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        resolve(path, self.directory.as_deref())
    }

    /// The environment that it will get, without what `let_go` adds.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Whether the file is a launcher of parallel programs.
    pub fn is_launcher(&self) -> bool {
        self.file().is_some_and(|file| protection::is_launcher_file(&file))
    }

    /// By what the program is known again at its next start.
    pub fn key(&self, command: &[OsString]) -> ProgramKey {
        self.file().map(|file| remember::key_of(&file, command)).unwrap_or_default()
    }

    /// Executes the program, with these variables besides, and tells whether that succeeded.
    pub fn let_go(mut self, additions: &BTreeMap<OsString, OsString>) -> Result<Running, LaunchError> {
        self.variables.extend(additions.iter().map(|(name, value)| (name.clone(), value.clone())));
        // Too large an addition is no reason not to run the program.
        let _ = self.environment.fill(&self.variables);
        let mut go = std::fs::File::from(self.go.try_clone()?);
        // A broken pipe: the program was killed while it was held, which its status will tell.
        let _ = go.write_all(&[1]);
        let mut text = Vec::new();
        std::fs::File::from(self.failure.try_clone()?).read_to_end(&mut text)?;
        match Failure::parse(&text) {
            Some(failure) => {
                // Its drop collects what is left of it.
                Err(self.explain(failure))
            }
            None => {
                self.running.killed_by_drop = false;
                Ok(self.running)
            }
        }
    }

    fn explain(&self, failure: Failure) -> LaunchError {
        let error = io::Error::from_raw_os_error(failure.errno);
        let path = match failure.errno {
            // All were missing, or one is there and its interpreter is not.
            libc::ENOENT => self.candidates.iter().find(|path| self.resolve(path).exists()),
            _ => self.candidates.get(failure.candidate as usize),
        };
        match (failure.stage, path) {
            (Stage::Directory, _) => {
                LaunchError::Directory { path: self.directory.clone().unwrap_or_default(), error }
            }
            (Stage::Descriptors, _) => LaunchError::System(error),
            (Stage::Execute, Some(path)) => {
                let why = describe_exec_error(&self.resolve(path), &error);
                LaunchError::NotExecutable { path: path.clone(), why }
            }
            (Stage::Execute, None) => {
                LaunchError::NotFound { program: self.program.clone(), tried: self.candidates.clone() }
            }
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status, 0 to 255.
    Status(i32),
    /// The signal of this number killed it.
    Signal(i32),
}

/// A child of ours. Dropped, it runs on, unless it is still held.
#[derive(Debug)]
pub struct Running {
    process: ProcessId,
    pid: Pid,
    pidfd: Option<OwnedFd>,
    ended: Option<Ended>,
    killed_by_drop: bool,
}

impl Running {
    /// The child; its start time is 0 where /proc did not tell it.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Readable when it has ended; `None` on kernels without such descriptors.
    pub fn end_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        self.wait_with(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    /// Waits until it has ended and tells how; asked again, it answers at once. Fails as waitid(2) does.
    pub fn wait(&mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.wait_with(WaitIdOptions::EXITED)? {
                return Ok(ended);
            }
        }
    }

    fn wait_with(&mut self, options: WaitIdOptions) -> io::Result<Option<Ended>> {
        if self.ended.is_none() {
            let status = match rustix::process::waitid(WaitId::Pid(self.pid), options) {
                Err(rustix::io::Errno::INTR) => None,
                other => other?,
            };
            self.ended = status.and_then(|status| match status.exit_status() {
                Some(status) => Some(Ended::Status(status)),
                None => status.terminating_signal().map(Ended::Signal),
            });
        }
        Ok(self.ended)
    }

    /// The signal by which it stands stopped, if it does.
    pub fn stop_signal(&self) -> Option<i32> {
        if self.ended.is_some() {
            return None;
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(self.pid), options).ok()??.stopping_signal()
    }

    /// Sends a signal by its number; one that has ended gets none.
    pub fn signal(&self, number: i32) {
        if self.ended.is_none() {
            // SAFETY: no memory is involved; the pid is a child that was not reaped yet.
            unsafe { libc::kill(self.pid.as_raw_nonzero().get(), number) };
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.killed_by_drop && self.ended.is_none() {
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            let _ = self.wait();
        }
    }
}

fn c_string(text: &OsStr) -> Result<CString, LaunchError> {
    CString::new(text.as_bytes()).map_err(|_| LaunchError::ZeroByte { text: text.to_owned() })
}

/// The paths that execvp(3) would try.
fn candidates(program: &OsStr, path: Option<&OsString>) -> Vec<PathBuf> {
    if program.as_bytes().contains(&b'/') || program.is_empty() {
        return vec![program.into()];
    }
    let default = OsString::from("/bin:/usr/bin");
    let directories = std::env::split_paths(path.unwrap_or(&default));
    directories.map(|dir| if dir.as_os_str().is_empty() { ".".into() } else { dir }.join(program)).collect()
}

/// Finds out beforehand what executing would say.
fn check(program: &OsStr, candidates: &[PathBuf], directory: Option<&Path>) -> Result<(), LaunchError> {
    if let Some(path) = directory {
        let checked = std::fs::metadata(path).and_then(|meta| match meta.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        checked.map_err(|error| LaunchError::Directory { path: path.to_owned(), error })?;
    }
    let mut denied = None;
    for path in candidates {
        let full = resolve(path, directory);
        let Ok(meta) = std::fs::metadata(&full) else { continue };
        let executable = rustix::fs::access(&full, rustix::fs::Access::EXEC_OK);
        match executable {
            Ok(()) if meta.is_file() => return Ok(()),
            // A directory of that name in PATH hides nothing.
            _ if meta.is_dir() && candidates.len() > 1 => {}
            Err(error) => drop(denied.get_or_insert((path, full, io::Error::from(error)))),
            Ok(()) => drop(denied.get_or_insert((path, full, io::ErrorKind::PermissionDenied.into()))),
        }
    }
    match denied {
        Some((path, full, error)) => {
            let why = describe_exec_error(&full, &error);
            Err(LaunchError::NotExecutable { path: path.clone(), why })
        }
        None => Err(LaunchError::NotFound { program: program.to_owned(), tried: candidates.to_vec() }),
    }
}

/// The path as this process finds it: the program's own counts from the directory that it is started in.
fn resolve(path: &Path, directory: Option<&Path>) -> PathBuf {
    directory.map_or_else(|| path.to_owned(), |directory| directory.join(path))
}

/// `path` as this process finds it.
fn describe_exec_error(path: &Path, error: &io::Error) -> String {
    if path.is_dir() {
        return "it is a directory".into();
    }
    match error.raw_os_error() {
        Some(libc::ENOENT) => "the interpreter or loader that it names does not exist".into(),
        Some(libc::ENOEXEC) => "it is not a program for this machine".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
