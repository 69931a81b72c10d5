//! `coplace daemon`: one scheduler for all of a machine's (or a user's) programs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use node::home::{Home, LockError, SchedulerLock};
use node::scheduler::{Ended, Scheduler};
use protocol::{Client, FromScheduler, Role, ToScheduler};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::choices::{Choices, start_failure};
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};

/// Schedules for every `coplace run` of this machine, until it is stopped
#[derive(clap::Args)]
#[command(long_about = "Schedules for every `coplace run` from now on, until it gets SIGTERM or SIGINT: run by root for
all users of the machine, run by a user for this user. It takes over from a `coplace run` that leads;
when it ends, or is killed, programs run on, free, and the next `coplace run` leads.

With --observe it plans and logs and never acts: `coplace status` and `coplace explain` tell what it
would do.

Exit status: 0 stopped by a signal, 1 another daemon runs here, 2 bad configuration, 125 own failure.

Example:
  coplace daemon --observe --trace /var/log/coplace.jsonl")]
pub struct Args {
    /// Plan and log, but never act
    #[arg(long)]
    observe: bool,
    /// Record events and plans into this file, a JSON line each
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    choices: Choices,
}

/// How long a `coplace run` that leads may take to let everything go.
const YIELD_WITHIN: Duration = Duration::from_secs(3);

pub fn main(args: Args) -> Outcome {
    let mut options = args.choices.options()?;
    options.trace = args.trace;
    let home = Home::find().map_err(Failure::ours)?;
    let role = if args.observe { Role::Observer } else { Role::Daemon };
    let lock = take_over(&home, role)?;
    let scheduler = Scheduler::start(home.clone(), lock, role, options).map_err(start_failure)?;
    let stopper = scheduler.stopper();
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::ours)?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    });
    eprintln!(
        "coplace: {} at {}",
        if args.observe { "observing, never acting," } else { "scheduling" },
        home.socket().display()
    );
    match scheduler.run() {
        Ended::Stopped | Ended::Yielded => Ok(ExitCode::SUCCESS),
    }
}

/// The lock, with nobody else scheduling: a leading `coplace run` is asked to yield.
fn take_over(home: &Home, role: Role) -> Result<SchedulerLock, Failure> {
    let second = |error: &LockError| Failure::new(DOES_NOT_HOLD, format!("{error}; stop it first (kill its process)"));
    let Some(_claim) = home.claim_for_daemon().map_err(Failure::ours)? else {
        let why = format!("another coplace daemon is just starting in {}", home.path().display());
        return Err(Failure::new(DOES_NOT_HOLD, why));
    };
    let until = Instant::now() + YIELD_WITHIN;
    loop {
        match home.lock_scheduler(role) {
            Ok(lock) => return Ok(lock),
            Err(error @ LockError::Held { role: Some(Role::Daemon | Role::Observer), .. }) => {
                return Err(second(&error));
            }
            Err(error @ LockError::Held { .. }) if Instant::now() >= until => return Err(second(&error)),
            Err(LockError::Held { .. }) => {
                // Whoever has only just taken the lock may not listen yet: asked again in a moment.
                if let Ok(mut client) = Client::connect(&home.socket()) {
                    let done = |message: &FromScheduler| matches!(message, FromScheduler::Done);
                    let _ = client.ask(&ToScheduler::Yield, &mut Vec::new(), done);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(Failure::ours(error)),
        }
    }
}
