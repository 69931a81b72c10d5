//! Running programs on halves of the CPUs, alone and together, and telling how long they took.

use std::ffi::OsString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use probe::timed::Fault;
use probe::timed::{Place, once};

/// A program that is run again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    pub command: Vec<OsString>,
}

/// Runs programs on one half each.
pub struct Halves {
    pub cpus: [Vec<u32>; 2],
    pub longest: Duration,
    /// Set from outside when all is to end.
    pub interrupted: std::sync::Arc<AtomicBool>,
}

impl Halves {
    /// Seconds that a program takes on a half while the other one is idle.
    pub fn time_alone(&self, program: &Program, half: usize) -> Result<f64, Fault> {
        self.run_once(program, half, &AtomicBool::new(false))
    }

    /// Seconds that each of two takes beside the other, the mean of its whole runs: each is started again when it
    /// ends, until both have ended once.
    pub fn time_together(&self, programs: [&Program; 2], first_half: usize) -> Result<[f64; 2], Fault> {
        let stop = AtomicBool::new(false);
        let times = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
        let ended = |at: usize| !times[at].lock().expect("no runner panics").is_empty();
        let runner = |at: usize| -> Result<(), Fault> {
            let half = (first_half + at) % 2;
            loop {
                match self.run_once(programs[at], half, &stop) {
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

    fn run_once(&self, program: &Program, half: usize, stop: &AtomicBool) -> Result<f64, Fault> {
        let stopped = || stop.load(Ordering::Relaxed) || self.interrupted.load(Ordering::Relaxed);
        let cpus = &self.cpus[half];
        let place = Place { cpus, threads: cpus.len() as u32, longest: self.longest };
        once(&program.name, &program.command, place, &stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

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
    fn a_program_alone_is_timed() {
        let seconds = halves().time_alone(&sleeps("0.1"), 0).unwrap();
        assert!((0.1..60.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_shorter_of_two_is_run_again_until_the_longer_has_ended() {
        // Held up in its first run, the shorter one may have only that.
        let once = || halves().time_together([&sleeps("0.05"), &sleeps("0.5")], 1).unwrap();
        let again = (0..20).map(|_| once()).inspect(|[short, long]| {
            assert!(*short >= 0.05 && *long >= 0.5, "{short} {long}");
        });
        assert!({ again }.any(|[short, _]| short < 0.4));
    }

    #[test]
    fn programs_that_fail_or_never_end_are_reported() {
        let program = |arguments: &[&str]| Program {
            name: "p".into(),
            command: arguments.iter().map(OsString::from).collect(),
        };
        let fault = |halves: &Halves, arguments: &[&str]| match halves.time_alone(&program(arguments), 0) {
            Err(Fault::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        let halves = halves();
        assert!(fault(&halves, &["false"]).contains("exit status 1"));
        assert!(fault(&halves, &["/nowhere"]).contains("cannot be started"));
        let impatient = Halves { longest: Duration::from_millis(50), ..halves };
        assert!(fault(&impatient, &["sleep", "5"]).contains("did not end within"));
        let together = impatient.time_together([&sleeps("0.01"), &sleeps("5")], 0);
        assert!(matches!(together, Err(Fault::Failed(_))), "{together:?}");
    }

    #[test]
    fn an_interrupt_ends_everything() {
        let halves = halves();
        halves.interrupted.store(true, Ordering::Relaxed);
        assert_eq!(halves.time_alone(&sleeps("5"), 0), Err(Fault::Stopped));
        assert_eq!(halves.time_together([&sleeps("5"), &sleeps("5")], 0), Err(Fault::Stopped));
    }
}
