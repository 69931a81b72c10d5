//! What the live tests share: programs that end with the test, groups that are removed even when
//! an assertion fails, and loud skipping.

#![allow(dead_code)] // each test file uses its part

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use coplace_linux::{Process, Root, procfs};

pub const SECOND_NS: u64 = 1_000_000_000;

/// A child that is continued, killed and reaped when dropped.
pub struct Program {
    pub child: Child,
    pub process: Process,
}

impl Program {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        let process = Process::of(child.id(), &Root::live()).unwrap();
        Program { child, process }
    }

    pub fn sleep() -> Self {
        Program::start("sleep", &["1000"])
    }

    /// A shell that never rests.
    pub fn busy() -> Self {
        let mut program = Program::start("sh", &["-c", "echo up; while :; do :; done"]);
        program.line();
        program
    }

    /// Python, ready as soon as it printed a line.
    pub fn python(script: &str) -> Option<Self> {
        if Command::new("python3").arg("-c").arg("0").stdin(Stdio::null()).status().is_err() {
            coplace_skipped::skipped_here("python3 cannot be executed");
            return None;
        }
        let mut program = Program::start("python3", &["-u", "-c", script]);
        program.line();
        Some(program)
    }

    /// The next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let root = Root::live();
        for process in procfs::tree_with(&[self.process], &root).unwrap_or_default() {
            coplace_linux::signals::kill(&[process], rustix::process::Signal::KILL, &root);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scheduler's name that no other test of this run uses.
pub fn scheduler() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A group that is thawed, emptied and removed when dropped.
pub struct Guarded(Option<coplace_linux::cgroup::Group>);

impl Guarded {
    pub fn new(group: coplace_linux::cgroup::Group) -> Guarded {
        Guarded(Some(group))
    }

    pub fn group(&mut self) -> &mut coplace_linux::cgroup::Group {
        self.0.as_mut().expect("it is taken at the end only")
    }

    pub fn remove(mut self) -> coplace_linux::Result<()> {
        self.take()
    }

    fn take(&mut self) -> coplace_linux::Result<()> {
        self.0.take().map_or(Ok(()), |group| group.remove(&Root::live()))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Err(error) = self.take() {
            eprintln!("a test group stays behind: {error}");
        }
    }
}

/// Says loudly why a live test cannot run here.
pub fn need<T>(what: coplace_linux::Result<T>) -> Option<T> {
    match what {
        Ok(value) => Some(value),
        Err(error) => {
            coplace_skipped::skipped_here(error);
            None
        }
    }
}

/// Waits at most five seconds for something to become true.
pub fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..5_000 {
        if reached() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{what} did not happen within 5 s");
}
