//! A program that was started with all that it starts in turn, and how that ends: by itself, at a limit, or when
//! somebody wants to stop.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linux::procfs::{Process, tree_with, with_variable};
use linux::{Root, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// In the environment of a program and so of what it starts: who has lost its parent is found by it.
const MARK: &str = "COPLACE_MEASURED";
/// What is asked to end has so long to do it.
pub const GRACE: Duration = Duration::from_secs(5);
/// Who cannot be killed is given up: the kernel holds it.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// When a run is ended from outside.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Wall-clock time from the start; without one, the run may last for ever.
    pub limit: Option<Duration>,
    /// Somebody wants to stop.
    pub stopped: Option<Arc<AtomicBool>>,
}

impl From<Option<Duration>> for Until {
    fn from(limit: Option<Duration>) -> Until {
        Until { limit, stopped: None }
    }
}

impl Until {
    /// Whether somebody wants to stop by now.
    pub fn is_stopped(&self) -> bool {
        self.stopped.as_ref().is_some_and(|stopped| stopped.load(Relaxed))
    }
}

/// How it came to its end.
pub struct Finished {
    pub status: ExitStatus,
    pub seconds: f64,
    /// The limit was reached.
    pub at_limit: bool,
    /// Somebody wanted to stop.
    pub stopped: bool,
}

pub struct Started {
    child: Child,
    began: Instant,
    mark: String,
    /// All that were ever found.
    members: BTreeSet<Process>,
}

impl Started {
    pub fn new(command: &mut Command) -> io::Result<Started> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed), clock::now_ns());
        let began = Instant::now();
        let child = command.env(MARK, &mark).spawn()?;
        let members = Process::of(child.id(), &Root::live()).into_iter().collect();
        Ok(Started { child, began, mark, members })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// To its end, or until it was ended. At the limit it may end itself for as long as `grace`, and then nothing of
    /// what it started stays.
    pub fn finish(mut self, until: &Until, grace: Duration) -> io::Result<Finished> {
        let ended = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok();
        let is_over = |time: Duration| until.limit.is_some_and(|limit| time >= limit);
        let poll_interval = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.as_nanos() as i64 };
        let (status, seconds) = loop {
            if let Some(status) = self.child.try_wait()? {
                break (status, self.began.elapsed().as_secs_f64());
            }
            if until.is_stopped() || is_over(self.began.elapsed().saturating_sub(grace)) {
                self.end();
                let status = self.child.wait()?;
                break (status, self.began.elapsed().as_secs_f64());
            }
            match &ended {
                Some(ended) => drop(poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&poll_interval))),
                None => sleep(Duration::from_millis(1)),
            }
        };
        let (at_limit, stopped) = (is_over(Duration::from_secs_f64(seconds)), until.is_stopped());
        if at_limit || stopped {
            // It may have gone before those that it started.
            self.end();
        }
        Ok(Finished { status, seconds, at_limit, stopped })
    }

    /// All that live.
    fn living(&mut self) -> Vec<Process> {
        let root = Root::live();
        let known: Vec<Process> = self.members.iter().copied().collect();
        self.members.extend(tree_with(&known, &root).unwrap_or_default());
        self.members.extend(with_variable(MARK, &self.mark, &root).unwrap_or_default());
        self.members.iter().filter(|process| process.is_alive(&root)).copied().collect()
    }

    /// Asks all to end, and kills those that still live after a while.
    fn end(&mut self) {
        let began = Instant::now();
        let mut asked = BTreeSet::new();
        loop {
            let living = self.living();
            if living.is_empty() || began.elapsed() > KILL_PATIENCE {
                return;
            }
            for process in living {
                let late = began.elapsed() > GRACE;
                let pid = Pid::from_raw(process.pid as i32).expect("no process has the pid 0");
                // Whoever is asked twice may take the second time for an order to leave all as it is.
                if late || asked.insert(process) {
                    let _ = kill_process(pid, if late { Signal::KILL } else { Signal::TERM });
                }
            }
            sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever sleeps for so many seconds, by which the child of a test is known.
    fn sleeper(seconds: &str) -> Option<u32> {
        let sleeps = |process: &linux::procfs::Stat| {
            let line = std::fs::read_to_string(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            line.split('\0').any(|word| word == seconds)
        };
        let all = linux::procfs::all(&Root::live()).unwrap();
        all.iter().find(|process| !process.has_ended() && sleeps(process)).map(|process| process.pid)
    }

    fn nobody_sleeps(seconds: &str) -> bool {
        sleeper(seconds).is_none()
    }

    fn run(script: &str, until: &Until) -> Finished {
        let mut command = Command::new("sh");
        Started::new(command.args(["-c", script])).unwrap().finish(until, Duration::ZERO).unwrap()
    }

    #[test]
    fn nothing_outlives_the_limit_whatever_its_parent_or_signals() {
        // A child, one of another session whose parent has gone, and one without the mark that ignores being asked.
        let script = "sleep 86311 & (setsid sleep 86312 &) ; \
            (trap '' TERM; exec env -i PATH=\"$PATH\" sleep 86313) & wait";
        let limit = Duration::from_millis(500);
        let found = run(script, &Until::from(Some(limit)));
        assert!(found.at_limit && !found.stopped && !found.status.success());
        assert!(found.seconds >= 0.5, "{}", found.seconds);
        for seconds in ["86311", "86312", "86313"] {
            assert!(nobody_sleeps(seconds), "{seconds}");
        }
    }

    #[test]
    fn a_program_that_ends_before_the_limit_may_leave_children() {
        let found = run("setsid sleep 86315 & exit 3", &Until::from(Some(Duration::from_secs(60))));
        assert_eq!((found.status.code(), found.at_limit), (Some(3), false));
        assert!(found.seconds < 60.0);
        // It may still be on its way to become the sleeper.
        let began = Instant::now();
        let left = loop {
            match sleeper("86315") {
                Some(pid) => break pid,
                None => assert!(began.elapsed() < Duration::from_secs(60), "it was ended, too"),
            }
            sleep(POLL_INTERVAL);
        };
        kill_process(Pid::from_raw(left as i32).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn an_interrupt_does_not_wait_for_a_program() {
        let stopped = Arc::new(AtomicBool::new(false));
        let until = Until { limit: None, stopped: Some(Arc::clone(&stopped)) };
        let later = std::thread::spawn(move || {
            sleep(Duration::from_millis(100));
            stopped.store(true, Relaxed);
        });
        let found = run("sleep 86314 & wait", &until);
        later.join().unwrap();
        assert!(found.stopped && !found.at_limit && nobody_sleeps("86314"));
    }
}
