//! `--measure-alone`: each program by itself on the whole machine, for the slowdowns.

use std::sync::atomic::{AtomicUsize, Ordering};

use linux::clock::now_ns;
use node::launch::{Ended, Held, Running};
use workload::{Mix, Program};

use super::output::{self, Output};
use super::{drive, entry};
use crate::exit::{DOES_NOT_HOLD, Failure};
use crate::units;

/// Programs with the same command run once; one that the file gives a time is measured all the same.
pub fn measure(mix: &mut Mix, quiet: bool) -> Result<(), Failure> {
    let interrupts = drive::interrupts()?;
    for index in 0..mix.programs.len() {
        let program = &mix.programs[index];
        let same = |other: &&Program| {
            (&other.command, &other.directory, &other.environment, &other.stdin)
                == (&program.command, &program.directory, &program.environment, &program.stdin)
        };
        let measured = mix.programs[..index].iter().find(same).and_then(|other| other.alone_ns);
        let alone_ns = match measured {
            Some(alone_ns) => alone_ns,
            None => run(program, &interrupts)?,
        };
        if !quiet && measured.is_none() {
            eprintln!("coplace: {} alone takes {}", program.name, units::format_ns(alone_ns));
        }
        mix.programs[index].alone_ns = Some(alone_ns);
    }
    Ok(())
}

fn run(program: &Program, interrupts: &AtomicUsize) -> Result<u64, Failure> {
    // Not into the files that the mix's own run is to write.
    let mut unnamed = program.clone();
    (unnamed.stdout, unnamed.stderr) = (None, None);
    let (files, mut output) = output::open(&unnamed, &program.name, None, false)?;
    let failed =
        |error: node::launch::LaunchError| Failure::new(DOES_NOT_HOLD, format!("{}: {error}", program.name));
    let held = Held::spawn(entry::launch(&unnamed, files).map_err(failed)?).map_err(failed)?;
    let began_ns = now_ns();
    let mut running = held.let_go(&Default::default()).map_err(failed)?;
    let ended = wait(&mut running, &mut output, interrupts)?;
    let alone_ns = now_ns() - began_ns;
    output.pump(true, |_| {});
    if ended != Ended::Status(0) || output.verified() == Some(false) {
        let how = match ended {
            Ended::Status(status) => format!("exit {status}"),
            Ended::Signal(signal) => format!("killed by signal {signal}"),
        };
        let why = format!("{} failed alone ({how}); its slowdown cannot be told", program.name);
        return Err(Failure::new(DOES_NOT_HOLD, why));
    }
    Ok(alone_ns.max(1))
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
