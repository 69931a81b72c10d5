//! `--measure-alone`: each program by itself on the whole machine, for the slowdowns.

use std::sync::atomic::{AtomicUsize, Ordering};

use linux::clock::now_ns;
use node::launch::{Ended, Held, Running};
use workload::{Mix, Program};

use super::foreign::{self, DISTURBED};
use super::output::{self, Output};
use super::{drive, entry};
use crate::exit::{DOES_NOT_HOLD, Failure};
use crate::units;

/// How often a program runs alone at most, where others take part of the machine meanwhile.
const TRIES: usize = 3;

/// One run alone.
#[derive(Clone, Copy)]
struct Lone {
    took_ns: u64,
    /// Share of the CPUs' time that others took; `None` where that cannot be known.
    foreign_share: Option<f64>,
}

impl Lone {
    fn is_disturbed(&self) -> bool {
        self.foreign_share.is_some_and(|share| share >= DISTURBED)
    }
}

/// Programs with the same command run once; one that the file gives a time is measured all the same. What others took
/// of the CPUs during the run that counts, by the order of the programs.
pub fn measure(mix: &mut Mix, quiet: bool) -> Result<Vec<Option<f64>>, Failure> {
    let interrupts = drive::interrupts()?;
    let mut foreign_shares: Vec<Option<f64>> = Vec::new();
    for index in 0..mix.programs.len() {
        let program = &mix.programs[index];
        let same = |other: &&Program| {
            (&other.command, &other.directory, &other.environment, &other.stdin)
                == (&program.command, &program.directory, &program.environment, &program.stdin)
        };
        let measured = mix.programs[..index].iter().position(|other| same(&other));
        if let Some(other) = measured {
            foreign_shares.push(foreign_shares[other]);
            mix.programs[index].alone_ns = mix.programs[other].alone_ns;
            continue;
        }
        let lone = choose_least_disturbed(
            || run(program, &interrupts),
            |lone| {
                if !quiet {
                    eprintln!(
                        "coplace: others took {:.0}% of the CPUs while {} ran alone; it runs again",
                        100.0 * lone.foreign_share.unwrap_or_default(),
                        program.name
                    );
                }
            },
        )?;
        if !quiet {
            eprintln!("coplace: {} alone takes {}", program.name, units::format_ns(lone.took_ns));
        }
        foreign_shares.push(lone.foreign_share);
        mix.programs[index].alone_ns = Some(lone.took_ns);
    }
    Ok(foreign_shares)
}

/// Runs until one is not disturbed, [`TRIES`] times at most; the least disturbed one counts.
fn choose_least_disturbed<E>(
    mut run: impl FnMut() -> Result<Lone, E>,
    mut disturbed: impl FnMut(&Lone),
) -> Result<Lone, E> {
    let mut best = run()?;
    for _ in 1..TRIES {
        if !best.is_disturbed() {
            break;
        }
        disturbed(&best);
        let next = run()?;
        if next.foreign_share < best.foreign_share {
            best = next;
        }
    }
    Ok(best)
}

fn run(program: &Program, interrupts: &AtomicUsize) -> Result<Lone, Failure> {
    // Not into the files that the mix's own run is to write.
    let mut unnamed = program.clone();
    (unnamed.stdout, unnamed.stderr) = (None, None);
    let (files, mut output) = output::open(&unnamed, &program.name, None, false)?;
    let failed =
        |error: node::launch::LaunchError| Failure::new(DOES_NOT_HOLD, format!("{}: {error}", program.name));
    let held = Held::spawn(entry::launch(&unnamed, files).map_err(failed)?).map_err(failed)?;
    let cpus = linux::affinity::get(std::process::id()).map_err(Failure::ours)?;
    let (before, began_ns) = (foreign::sample(&cpus), now_ns());
    let mut running = held.let_go(&Default::default()).map_err(failed)?;
    let ended = wait(&mut running, &mut output, interrupts)?;
    let took_ns = (now_ns() - began_ns).max(1);
    let foreign_share = before.and_then(|before| foreign::sample_share(&before, &cpus));
    output.pump(true, |_| {});
    if ended != Ended::Status(0) || output.verified() == Some(false) {
        let how = match ended {
            Ended::Status(status) => format!("exit {status}"),
            Ended::Signal(signal) => format!("killed by signal {signal}"),
        };
        let why = format!("{} failed alone ({how}); its slowdown cannot be computed", program.name);
        return Err(Failure::new(DOES_NOT_HOLD, why));
    }
    Ok(Lone { took_ns, foreign_share })
}

fn wait(running: &mut Running, output: &mut Output, interrupts: &AtomicUsize) -> Result<Ended, Failure> {
    let mut signalled = 0;
    loop {
        if let Some(ended) = running.try_wait().map_err(Failure::ours)? {
            return match interrupts.load(Ordering::Relaxed) {
                0 => Ok(ended),
                _ => Err(Failure::new(DOES_NOT_HOLD, "interrupted")),
            };
        }
        output.pump(false, |_| {});
        let now = interrupts.load(Ordering::Relaxed);
        if now > signalled {
            signalled = now;
            running.signal(if now == 1 { libc::SIGTERM } else { libc::SIGKILL });
        }
        let end = running.end_fd();
        let announced = end.is_some();
        let mut fds: Vec<_> = end
            .into_iter()
            .chain(output.pipes())
            .map(|fd| rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN))
            .collect();
        // Often enough for those kernels, too, that announce no ends.
        let tick =
            rustix::event::Timespec { tv_sec: 0, tv_nsec: if !announced { 5_000_000 } else { 100_000_000 } };
        let _ = rustix::event::poll(&mut fds, Some(&tick));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The run that counts of these, and how many there were.
    fn chosen(shares: &[f64]) -> (u64, usize) {
        let mut count = 0;
        let run = || {
            count += 1;
            Ok::<_, ()>(Lone { took_ns: count as u64, foreign_share: Some(shares[count - 1]) })
        };
        let lone = choose_least_disturbed(run, |_| ()).unwrap();
        (lone.took_ns, count)
    }

    #[test]
    fn an_undisturbed_lone_run_counts_at_once() {
        assert_eq!(chosen(&[0.01]), (1, 1));
    }

    #[test]
    fn a_disturbed_lone_run_is_repeated_until_one_is_not() {
        assert_eq!(chosen(&[0.5, 0.0]), (2, 2));
    }

    #[test]
    fn of_disturbed_lone_runs_the_least_disturbed_counts() {
        assert_eq!(chosen(&[0.5, 0.3, 0.4]), (2, 3));
    }
}
