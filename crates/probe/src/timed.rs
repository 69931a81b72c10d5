//! Running a program once on given CPUs, and telling how long it took.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::thread::{CpuSet, sched_setaffinity};

/// How often it is looked whether to stop.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Why a program has no time.
#[derive(Debug, PartialEq)]
pub enum Fault {
    /// Somebody wants to stop.
    Stopped,
    /// It could not be started, failed, or took too long.
    Failed(String),
}

/// Where and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The program's affinity mask, by `os_index`.
    pub cpus: &'a [u32],
    /// `OMP_NUM_THREADS` of the program.
    pub threads: u32,
    /// After so long the program is killed and has failed.
    pub longest: Duration,
}

/// A child and all that it started; they do not outlive this.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Seconds that a program takes, with nothing to read and nobody to listen to it.
pub fn once(
    name: &str,
    command: &[OsString],
    place: Place<'_>,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<f64, Fault> {
    // In a thread of its own: that thread's CPUs are the program's.
    std::thread::scope(|scope| {
        let run = || here(command, place, stopped);
        scope.spawn(run).join().expect("running a program does not panic")
    })
    .map_err(|fault| match fault {
        Fault::Failed(why) => Fault::Failed(format!("{name}: {why}")),
        stopped => stopped,
    })
}

fn here(command: &[OsString], place: Place<'_>, stopped: &dyn Fn() -> bool) -> Result<f64, Fault> {
    if stopped() {
        return Err(Fault::Stopped);
    }
    let mut cpus = CpuSet::new();
    place.cpus.iter().for_each(|&cpu| cpus.set(cpu as usize));
    sched_setaffinity(None, &cpus)
        .map_err(|error| Fault::Failed(format!("may not run on CPUs {:?}: {error}", place.cpus)))?;
    let began = Instant::now();
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    program.env("OMP_NUM_THREADS", place.threads.to_string()).process_group(0);
    let child = program.spawn().map_err(|error| Fault::Failed(format!("cannot be started: {error}")))?;
    let mut group = Group(child);
    let ended = pidfd_open(Pid::from_child(&group.0), PidfdFlags::empty()).ok();
    loop {
        match group.0.try_wait() {
            Ok(Some(status)) => return judged(status, began).map_err(Fault::Failed),
            Ok(None) => {}
            Err(error) => return Err(Fault::Failed(format!("cannot be waited for: {error}"))),
        }
        if stopped() {
            return Err(Fault::Stopped);
        }
        if began.elapsed() > place.longest {
            return Err(Fault::Failed(format!(
                "did not end within {} s, the limit",
                place.longest.as_secs_f64()
            )));
        }
        match &ended {
            Some(ended) => {
                let _ = poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&POLL_INTERVAL));
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn judged(status: ExitStatus, began: Instant) -> Result<f64, String> {
    let seconds = began.elapsed().as_secs_f64();
    match (status.success(), status.signal()) {
        (true, _) => Ok(seconds),
        (false, Some(signal)) => Err(format!("was ended by signal {signal}")),
        (false, None) => Err(format!("failed with exit status {}", status.code().unwrap_or(-1))),
    }
}
