//! How a scheduler is to be, and why it cannot.

use std::io;
use std::path::PathBuf;

use plan::TurnMode;
use policy::Settings;
use topology::CpuSet;

use crate::adopt::Rule;
use crate::lease::LeaseError;
use crate::mechanism::{Mechanisms, PlacementChoice, TurnsChoice};

/// How a scheduler is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Letters or words of the policy.
    pub policy: String,
    /// What the policy goes by; slices that are too short for the mechanism at hand are lengthened.
    pub settings: Settings,
    /// How programs are kept on their places.
    pub placement: PlacementChoice,
    /// How programs take turns; `Idle` sets `turn_mode` of the settings to filling, too.
    pub turns: TurnsChoice,
    /// Whether CPUs that unmanaged programs keep busy are left to them.
    pub leave_unmanaged: bool,
    /// Only these CPUs.
    pub cpus: Option<CpuSet>,
    /// Where events and plans are recorded, a JSON line each.
    pub trace: Option<PathBuf>,
    /// Which programs are taken in that start without `coplace run`.
    pub adopt: Vec<Rule>,
    /// In the system's home, only this group's members (a gid) may connect; without it, all users.
    pub group: Option<u32>,
    /// Where it is written what programs turned out to be, and beside it what their neighbours cost them, if
    /// not in the home.
    pub remembered: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            policy: "TA".into(),
            settings: Settings::default(),
            placement: PlacementChoice::Auto,
            turns: TurnsChoice::Auto,
            leave_unmanaged: true,
            cpus: None,
            trace: None,
            adopt: Vec::new(),
            group: None,
            remembered: None,
        }
    }
}

/// Why a scheduler did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such policy, or it cannot be made with these settings.
    #[error(transparent)]
    Policy(#[from] policy::UnknownPolicy),
    /// A mechanism that was asked for does not work here.
    #[error(transparent)]
    Mechanism(#[from] crate::mechanism::Unavailable),
    /// The CPUs could not be read, or a thread or the socket could not be made.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file of [`Options::trace`] could not be made.
    #[error("cannot record to {}: {error}", path.display())]
    Trace {
        /// That file.
        path: PathBuf,
        /// What the file system said.
        error: io::Error,
    },
    /// The lease could not be taken.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// There is none, and none can be started.
    #[error(transparent)]
    Guard(io::Error),
    /// The thread that was to host the scheduler panicked before that listened.
    #[error("the scheduler's thread has died")]
    Died,
}

/// The settings as the mechanism at hand can keep them.
pub(super) fn settings_for(options: &Options, mechanisms: Option<&Mechanisms>) -> Settings {
    let mut settings = options.settings.clone();
    if options.turns == TurnsChoice::Idle {
        settings.turn_mode = TurnMode::Filling;
    }
    if let Some(mechanisms) = mechanisms {
        settings.min_slice_ns = settings.min_slice_ns.max(mechanisms.shortest_slice_ns(settings.turn_mode));
        settings.slice_ns = settings.slice_ns.max(settings.min_slice_ns);
    }
    settings
}
