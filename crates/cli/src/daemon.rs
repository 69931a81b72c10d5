//! `coplace daemon`: one scheduler for all of a machine's (or a user's) programs.

use std::path::PathBuf;
use std::process::ExitCode;

use linux::Root;
use linux::cgroup2::scope;
use node::home::Home;
use node::join::take_over;
use node::scheduler::{Ended, Scheduler};
use protocol::Role;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::choices::{Choices, join_failure, start_failure};
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::probing;

/// Schedules for every `coplace run` until it is stopped
#[derive(clap::Args)]
#[command(
    long_about = "Schedules for every `coplace run` until it is stopped.

Started by root, it serves all users of the machine; started by another user, it serves that user. \
SIGTERM, SIGINT and SIGHUP stop it. It takes over from a `coplace run` that leads. When it ends or is \
killed, its programs are free and run on, and the next `coplace run` leads.

With --probe, it learns what each program loses to a neighbour and takes from it (`coplace profile show`): \
short bursts of memory accesses run beside the programs on CPUs that nobody uses, in idle time only and \
within one percent of the machine's time.

With --observe, it plans and logs, but never acts: `coplace status` and `coplace explain` show what it \
would do.

The scheduling options override the configuration.",
    after_long_help = "Exit status: 0 a signal stopped it; 1 another daemon schedules here, or a mechanism \
that was asked for is not available; 2 bad configuration; 125 coplace failed.

Example:
  coplace daemon --observe --trace /var/log/coplace.jsonl"
)]
pub struct Args {
    /// Plan and log, but never act
    #[arg(long)]
    observe: bool,
    /// Record events and plans in FILE, one line of JSON each
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Learn what programs lose to neighbours, by short bursts on idle CPUs; not with --observe
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
    // Where it is not possible `doctor` says why.
    let _ = scope::enter(std::process::id(), &Root::live());
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
    // In a unit of `Type=notify`, `systemctl start` waits for this; elsewhere it does nothing.
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        eprintln!("coplace: cannot notify systemd that the daemon is ready ($NOTIFY_SOCKET): {error}");
    }
    match scheduler.run() {
        Ended::Stopped | Ended::Yielded => Ok(ExitCode::SUCCESS),
    }
}
