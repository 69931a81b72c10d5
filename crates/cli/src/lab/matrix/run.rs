//! Running programs on halves of the CPUs, alone and together, and telling how long they took.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::thread::{CpuSet, sched_setaffinity};

/// How often is looked whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A program that is run again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    pub command: Vec<String>,
}

/// Why a program has no time.
#[derive(Debug, PartialEq)]
pub enum Fault {
    /// Somebody wants to stop.
    Stopped,
    /// It could not be started, failed, or took too long.
    Failed(String),
}

/// Runs programs on one half each.
pub struct Halves {
    pub cpus: [Vec<u32>; 2],
    pub longest: Duration,
    /// Set from outside when all is to end.
    pub interrupted: std::sync::Arc<AtomicBool>,
}

/// A child and all that it started; they do not outlive this.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Halves {
    /// Seconds that a program takes on a half while the other one is idle.
    pub fn alone(&self, program: &Program, half: usize) -> Result<f64, Fault> {
        let never = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let run = || self.once(program, half, &never);
            scope.spawn(run).join().expect("running a program does not panic")
        })
    }

    /// Seconds that each of two takes beside the other, the mean of its whole runs: each is started again when it
    /// ends, until both have ended once.
    pub fn together(&self, programs: [&Program; 2], first_half: usize) -> Result<[f64; 2], Fault> {
        let stop = AtomicBool::new(false);
        let times = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
        let ended = |at: usize| !times[at].lock().expect("no runner panics").is_empty();
        let runner = |at: usize| -> Result<(), Fault> {
            let half = (first_half + at) % 2;
            loop {
                match self.once(programs[at], half, &stop) {
                    Ok(seconds) => times[at].lock().expect("no runner panics").push(seconds),
                    Err(Fault::Stopped) => return Ok(()),
                    Err(fault) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(fault);
                    }
                }
                if ended(1 - at) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        };
        let results = std::thread::scope(|scope| {
            let runner = &runner;
            let handles = [0, 1].map(|at| scope.spawn(move || runner(at)));
            handles.map(|handle| handle.join().expect("running a program does not panic"))
        });
        for result in results {
            result?;
        }
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Fault::Stopped);
        }
        Ok(times.map(|times| {
            let times = times.into_inner().expect("no runner panics");
            times.iter().sum::<f64>() / times.len() as f64
        }))
    }

    /// Runs a program once, from a thread of its own: that thread's CPUs are the program's.
    fn once(&self, program: &Program, half: usize, stop: &AtomicBool) -> Result<f64, Fault> {
        let stopped = || stop.load(Ordering::Relaxed) || self.interrupted.load(Ordering::Relaxed);
        if stopped() {
            return Err(Fault::Stopped);
        }
        let failed = |why: String| Fault::Failed(format!("{}: {why}", program.name));
        let mut cpus = CpuSet::new();
        self.cpus[half].iter().for_each(|&cpu| cpus.set(cpu as usize));
        sched_setaffinity(None, &cpus)
            .map_err(|error| failed(format!("may not run on CPUs {:?}: {error}", self.cpus[half])))?;
        let began = Instant::now();
        let mut command = Command::new(&program.command[0]);
        command.args(&program.command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("OMP_NUM_THREADS", self.cpus[half].len().to_string()).process_group(0);
        let child = command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
        let mut group = Group(child);
        let ended = pidfd_open(Pid::from_child(&group.0), PidfdFlags::empty()).ok();
        loop {
            match group.0.try_wait() {
                Ok(Some(status)) => return judged(status, began).map_err(failed),
                Ok(None) => {}
                Err(error) => return Err(failed(format!("cannot be waited for: {error}"))),
            }
            if stopped() {
                return Err(Fault::Stopped);
            }
            if began.elapsed() > self.longest {
                return Err(failed(format!("did not end within {} s (--longest)", self.longest.as_secs())));
            }
            match &ended {
                Some(ended) => {
                    let _ = poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&LOOK));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn halves() -> Halves {
        // Both on one CPU: tests must run anywhere.
        let cpus: Vec<u32> = vec![
            rustix::thread::sched_getaffinity(None)
                .map(|set| (0..1024).find(|&cpu| set.is_set(cpu)).unwrap_or(0) as u32)
                .unwrap(),
        ];
        let interrupted = Arc::new(AtomicBool::new(false));
        Halves { cpus: [cpus.clone(), cpus], longest: Duration::from_secs(20), interrupted }
    }

    fn sleeps(seconds: &str) -> Program {
        Program { name: format!("sleep {seconds}"), command: vec!["sleep".into(), seconds.into()] }
    }

    #[test]
    fn a_program_alone_takes_its_time() {
        let seconds = halves().alone(&sleeps("0.1"), 0).unwrap();
        assert!((0.1..2.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_shorter_of_two_is_run_again_until_the_longer_has_ended() {
        let began = Instant::now();
        let [short, long] = halves().together([&sleeps("0.05"), &sleeps("0.5")], 1).unwrap();
        assert!((0.05..0.4).contains(&short) && (0.5..5.0).contains(&long), "{short} {long}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn programs_that_fail_or_never_end_are_told() {
        let program = |words: &[&str]| Program {
            name: "p".into(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        let fault = |halves: &Halves, words: &[&str]| match halves.alone(&program(words), 0) {
            Err(Fault::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        let halves = halves();
        assert!(fault(&halves, &["false"]).contains("exit status 1"));
        assert!(fault(&halves, &["/nowhere"]).contains("cannot be started"));
        let impatient = Halves { longest: Duration::from_millis(50), ..halves };
        assert!(fault(&impatient, &["sleep", "5"]).contains("did not end within"));
        let together = impatient.together([&sleeps("0.01"), &sleeps("5")], 0);
        assert!(matches!(together, Err(Fault::Failed(_))), "{together:?}");
    }

    #[test]
    fn an_interrupt_ends_everything() {
        let halves = halves();
        halves.interrupted.store(true, Ordering::Relaxed);
        assert_eq!(halves.alone(&sleeps("5"), 0), Err(Fault::Stopped));
        assert_eq!(halves.together([&sleeps("5"), &sleeps("5")], 0), Err(Fault::Stopped));
    }
}
