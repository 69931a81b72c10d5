//! `coplace record FILE`: what the scheduler that runs sees and decides, from now on.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::{ClientError, FromScheduler, ToScheduler};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Failure, Outcome};
use crate::scheduler;

/// How often a signal is looked for while nothing is recorded.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Records what the running scheduler sees and decides
#[derive(clap::Args)]
#[command(
    long_about = "Records what the running scheduler sees and decides.

Every event and every plan is recorded, from now until the scheduler (a daemon, a leading `coplace run`, a \
mix) ends or this command is interrupted. `coplace replay` plays the record again, on any machine; \
`coplace simulate` plays its programs as a workload. To record from the beginning, use `coplace daemon \
--trace` or `coplace mix --trace`.",
    after_long_help = "Exit status: 0; 1 no scheduler runs; 2 this user may not record.

Example:
  coplace record monday.jsonl
  coplace replay monday.jsonl"
)]
pub struct Args {
    /// The record to write, one line of JSON for each event and plan
    file: PathBuf,
    /// Do not print how many plans were recorded
    #[arg(short, long)]
    quiet: bool,
}

pub fn main(args: &Args) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::ours)?;
    }
    let mut client = scheduler::connect()?;
    client.send(&ToScheduler::Record).map_err(Failure::ours)?;
    let first = client.receive().map_err(|error| match error {
        ClientError::Ended => Failure::ours("the scheduler ended before anything was recorded"),
        other => Failure::ours(other),
    })?;
    // The file is made when there is something to write: a refusal leaves none.
    let (mut file, mut plans) = match first {
        FromScheduler::Refused { why } => return Err(Failure::bad_input(why)),
        first => {
            let file = File::create(&args.file).map_err(|error| Failure::unwritable(&args.file, error))?;
            let mut file = BufWriter::new(file);
            let plans = write(&mut file, [first]).map_err(|error| Failure::unwritable(&args.file, error))?;
            (file, plans)
        }
    };
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<_> =
            client.poll_fd().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted poll only means looking a little earlier.
        if poll(&mut fds, Some(&POLL_INTERVAL)) == Ok(0) {
            continue;
        }
        match client.drain() {
            Ok(messages) => {
                let written = write(&mut file, messages);
                plans += written.map_err(|error| Failure::unwritable(&args.file, error))?;
            }
            Err(ClientError::Ended) => break,
            Err(error) => return Err(Failure::ours(error)),
        }
    }
    if !args.quiet {
        eprintln!("coplace: {plans} plans recorded in {}", args.file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// How many of the lines are plans.
fn write(file: &mut impl Write, messages: impl IntoIterator<Item = FromScheduler>) -> std::io::Result<usize> {
    let mut plans = 0;
    for message in messages {
        if let FromScheduler::Recorded { line } = message {
            writeln!(file, "{line}")?;
            plans += usize::from(line.starts_with("{\"plan\""));
        }
    }
    file.flush()?;
    Ok(plans)
}
