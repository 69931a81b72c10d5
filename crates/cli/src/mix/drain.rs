//! `coplace drain`: takes over what a program prints when nobody reads it any more.
//!
//! What the programs of a mix print goes through pipes, of which nothing is kept, so that no file system can be
//! filled by it. But whoever kills a mix must not kill its programs by SIGPIPE, and what a program has left
//! behind may print when the mix has long looked away. So beside each program that has such a pipe there is a
//! small process that holds it, too, and begins to read when the mix lets go of it, in whatever way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::exit::Outcome;

/// Reads what is left on stdout and stderr once stdin is closed; started by mixes
#[derive(clap::Args)]
pub struct Args {}

/// Lets the drain begin when it is dropped, or when this process ends.
pub struct Drain {
    _life: OwnedFd,
}

/// Drains that may have ended, to be waited for.
static STARTED: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Starts the process that holds the reading ends of these pipes.
pub fn start(stdout: Option<BorrowedFd<'_>>, stderr: Option<BorrowedFd<'_>>) -> io::Result<Option<Drain>> {
    let Some(program) = node::guard::program() else { return Ok(None) };
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    let end = |fd: Option<BorrowedFd<'_>>| -> io::Result<Stdio> {
        fd.map_or(Ok(Stdio::null()), |fd| Ok(fd.try_clone_to_owned()?.into()))
    };
    let mut command = Command::new(program);
    command.arg("drain").stdin(theirs).stdout(end(stdout)?).stderr(end(stderr)?);
    // What is typed for the programs is not for it.
    let child = command.process_group(0).spawn()?;
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    started.push(child);
    Ok(Some(Drain { _life: ours }))
}

pub fn main(_: &Args) -> Outcome {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: to ignore a signal involves no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // It may outlive what it was started from, and keeps no terminal and no directory.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    drain([rustix::stdio::stdin()]);
    drain([rustix::stdio::stdout(), rustix::stdio::stderr()]);
    Ok(ExitCode::SUCCESS)
}

/// Reads until nobody has any of these open for writing any more.
fn drain<const N: usize>(fds: [BorrowedFd<'_>; N]) {
    let mut open: Vec<BorrowedFd<'_>> = fds.to_vec();
    let mut buffer = vec![0; 64 << 10];
    while !open.is_empty() {
        let mut waits: Vec<PollFd> =
            open.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        // An interrupted poll only means looking again.
        let _ = poll(&mut waits, None);
        open.retain(|fd| match rustix::io::read(fd.as_fd(), &mut buffer) {
            Ok(count) => count > 0,
            Err(error) => matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        });
    }
}
