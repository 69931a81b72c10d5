//! `coplace daemon`: one scheduler for all of a machine's (or a user's) programs.

use std::path::PathBuf;
use std::process::ExitCode;

use node::home::Home;
use node::join::take_over;
use node::scheduler::{Ended, Scheduler};
use protocol::Role;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::choices::{Choices, join_failure, start_failure};
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::probing;

/// Schedules for every `coplace run` of this machine, until it is stopped
#[derive(clap::Args)]
#[command(
    long_about = "Schedules for every `coplace run` from now on, until it gets SIGTERM or SIGINT: run by root for
all users of the machine, run by a user for this user. It takes over from a `coplace run` that leads;
when it ends, or is killed, programs run on, free, and the next `coplace run` leads.

With --probe, CPUs that nobody uses are probed beside the programs that run: short bursts of accesses, in idle
time only and within one percent of the machine's time, tell what each program loses to a neighbour and
takes from it (`coplace profile show`).

With --observe it plans and logs and never acts: `coplace status` and `coplace explain` tell what it
would do.

Exit status: 0 stopped by a signal, 1 another daemon runs here or a mechanism is
not available, 2 bad configuration, 125 own failure.

Example:
  coplace daemon --observe --trace /var/log/coplace.jsonl"
)]
pub struct Args {
    /// Plan and log, but never act
    #[arg(long)]
    observe: bool,
    /// Record events and plans into this file, a JSON line each
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Learn what programs lose to neighbours, by short bursts on idle CPUs
    #[arg(long, conflicts_with = "observe")]
    probe: bool,
    #[command(flatten)]
    choices: Choices,
}

pub fn main(args: Args) -> Outcome {
    let mut options = args.choices.options()?;
    options.trace = args.trace;
    let home = Home::find().map_err(Failure::ours)?;
    let role = if args.observe { Role::Observer } else { Role::Daemon };
    let probes = !args.observe && (args.probe || Config::load().map_err(Failure::bad_input)?.probe);
    // Before anything is taken over: what the probe lacks is told while nobody depends on us.
    let probe = if probes { probing::start()? } else { None };
    let lock = take_over(&home, role).map_err(join_failure)?;
    let mut scheduler = Scheduler::start(home.clone(), lock, role, options).map_err(start_failure)?;
    if let Some(probe) = probe {
        scheduler = scheduler.with_service(Box::new(probe));
    }
    let stopper = scheduler.stopper();
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::ours)?;
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
