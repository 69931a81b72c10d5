//! By which kernel interfaces programs are placed and take turns here, and one program's harness
//! of them.
//!
//! **Programs are placed by the affinity of their threads, and by a cpuset only on request.** A cpuset makes
//! the kernel refuse whatever lies outside of it: a program that binds its threads to CPUs which it saw
//! earlier, a runtime that makes each thread on a place of its own, `taskset` in a script would fail, or not,
//! as their neighbours come and go. A mask forbids nothing. What threads choose is seen at the next look and
//! honoured from then on (`linux::affinity::Masks`): a program that binds its threads one by one keeps them
//! where they are and takes turns; one that restricts itself is placed within that. That costs a system call
//! a thread and change, and a new thread that chooses more than its place has it until the next look.
//!
//! Which mechanism is taken is decided once, at the scheduler's start, by what the machine and our
//! rights allow ([`Mechanisms::choose`]); each has one small place in [`Harness`].

mod bound;
mod chosen;
mod harness;
mod members;
mod turns;

use std::fmt;

use linux::cgroup::Version;
use linux::groups::{Hierarchies, Prepared, Uses};
use linux::{Process, Root};
use serde::{Deserialize, Serialize};

use crate::registry::{RegistryError, Traces};

pub use harness::{Harness, Joining};

/// Writes down what is about to be done to a program, where whoever sets it free finds it.
pub trait Keep: Fn(&Traces) -> Result<(), RegistryError> {}

impl<F: Fn(&Traces) -> Result<(), RegistryError>> Keep for F {}

/// What the user asked for; `Auto` takes what no program can fail by: affinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementChoice {
    /// The same as `Affinity`.
    #[default]
    Auto,
    /// A control group's cpuset, which refuses a program all other CPUs; an error where none can be had.
    Cpuset,
    /// The mask of each thread (sched_setaffinity(2)).
    Affinity,
}

/// How the user wants turns to be taken. Filling ones use `cpu.idle` where it is there, except with `Stop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnsChoice {
    /// By the freezer where it is there, else by SIGSTOP.
    #[default]
    Auto,
    /// By the freezer; an error where it is not there.
    Freeze,
    /// Turns are filling (`turn_mode`), by `cpu.idle`; an error where it is not there.
    Idle,
    /// By SIGSTOP, whatever control groups could do.
    Stop,
}

/// The mechanisms of this scheduler. Without a group for it a program is placed by the affinity of its threads, stopped
/// by SIGSTOP, and takes no filling turns.
pub struct Mechanisms {
    /// What is done by groups, and by which version.
    pub uses: Uses,
    /// Why better ones were not taken, for `doctor`.
    pub reasons: Vec<Reason>,
    hierarchies: Hierarchies,
    /// Name of the scheduler's groups.
    name: String,
    root: Root,
}

/// Why a version of groups is not used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Reason {
    /// Its hierarchies are not mounted, or this user may make no groups in them.
    #[error(transparent)]
    NotThere(linux::Error),
    /// A group could not be made there to find out what it can do.
    #[error("{version}: {error}")]
    Refused {
        /// The version of that group.
        version: Version,
        /// Why it could not be made.
        error: linux::Error,
    },
}

/// A mechanism that was asked for does not work here.
#[derive(Clone, Debug)]
pub struct Unavailable {
    /// What was asked for: `placement by cpuset`, `turns by freezing` or `turns by cpu.idle`.
    pub asked: &'static str,
    /// Why versions of groups are not used; empty where all are there but lack what was asked for.
    pub reasons: Vec<Reason>,
}

impl std::error::Error for Unavailable {}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was asked for, but ", self.asked)?;
        for (at, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if at == 0 { "" } else { "; " })?;
        }
        match self.reasons.is_empty() {
            true => f.write_str("no cgroup of ours offers it here; see coplace doctor"),
            false => Ok(()),
        }
    }
}

impl Mechanisms {
    /// Tries what there is with a group of its own, which is removed again.
    pub fn choose(
        placement: PlacementChoice,
        turns: TurnsChoice,
        name: &str,
        root: &Root,
    ) -> Result<Mechanisms, Unavailable> {
        let (hierarchies, absent) = Hierarchies::discover(root);
        // Groups of a cpuset are made for who asks for them only.
        let hierarchies = match placement {
            PlacementChoice::Cpuset => hierarchies,
            PlacementChoice::Auto | PlacementChoice::Affinity => hierarchies.without_cpusets(),
        };
        let mut mechanisms = Mechanisms {
            uses: Uses::default(),
            reasons: absent.into_iter().map(Reason::NotThere).collect(),
            hierarchies,
            name: name.to_owned(),
            root: root.clone(),
        };
        mechanisms.try_groups(placement == PlacementChoice::Cpuset);
        mechanisms.prefer(placement, turns)?;
        Ok(mechanisms)
    }

    /// Finds out what groups of ours can really do; `confine`: whether they are to confine as well.
    fn try_groups(&mut self, confine: bool) {
        const PROBE: &str = "probe";
        for version in Version::BOTH {
            match self.hierarchies.group(version, &self.name, PROBE, &self.root) {
                None => {}
                Some(Ok(group)) => {
                    if confine && group.cpus().is_ok() {
                        self.uses.cpus = Some(version);
                    }
                    // Where both are there, one hierarchy less to move programs in is worth more.
                    if group.freeze_switch().is_ok()
                        && (self.uses.freezing.is_none() || self.uses.cpus == Some(version))
                    {
                        self.uses.freezing = Some(version);
                    }
                    if group.idle_switch().is_ok() {
                        self.uses.idling = Some(version);
                    }
                    let _ = group.remove(&self.root);
                }
                Some(Err(error)) => {
                    self.reasons.push(Reason::Refused { version, error });
                    self.hierarchies.retain(|other| other != version);
                }
            }
        }
    }

    fn prefer(&mut self, placement: PlacementChoice, turns: TurnsChoice) -> Result<(), Unavailable> {
        let unavailable = |asked| Unavailable { asked, reasons: self.reasons.clone() };
        if placement == PlacementChoice::Cpuset && self.uses.cpus.is_none() {
            return Err(unavailable("placement by cpuset"));
        }
        match turns {
            TurnsChoice::Freeze if self.uses.freezing.is_none() => {
                return Err(unavailable("turns by freezing"));
            }
            TurnsChoice::Idle if self.uses.idling.is_none() => {
                return Err(unavailable("turns by cpu.idle"));
            }
            TurnsChoice::Stop => self.uses = Uses { cpus: self.uses.cpus, ..Uses::default() },
            _ => {}
        }
        // A hierarchy that is not used is not touched.
        self.hierarchies.retain(|version| self.uses.has(version));
        Ok(())
    }

    /// The groups of a program, to be made.
    fn prepare(&self, app: &str, processes: &[Process]) -> Prepared {
        self.hierarchies.prepare(&self.name, app, self.uses, processes, &self.root)
    }

    /// How programs are placed, in words: `cpuset (cgroup v2)` or `affinity of each thread`.
    pub fn describe_placement(&self) -> String {
        match self.uses.cpus {
            Some(version) => format!("cpuset ({version})"),
            None => "affinity of each thread".to_owned(),
        }
    }

    /// How programs take turns: `SIGSTOP`, `freezing (cgroup v2); filling: cpu.idle (cgroup v2)` …
    pub fn describe_turns(&self) -> String {
        let strict = match self.uses.freezing {
            Some(version) => format!("freezing ({version})"),
            None => "SIGSTOP".to_owned(),
        };
        match self.uses.idling {
            Some(version) => format!("{strict}; filling: cpu.idle ({version})"),
            None => strict,
        }
    }

    /// The shortest slice for which the mechanism is used: at these both CPUs of a pair run one gang for
    /// at least 97% of the time, all that coplace takes counted (experiments/overhead). A switch by the
    /// freezer takes 70 to 200 µs, as busy as a virtual machine's host is. Writing `cpu.idle` forces no
    /// reschedule, and a switch lasts a tick or two.
    pub fn shortest_slice_ns(&self, mode: plan::TurnMode) -> u64 {
        match (mode, self.uses.freezing, self.uses.idling) {
            (plan::TurnMode::Filling, _, Some(_)) => 200_000_000,
            (_, Some(_), _) => 20_000_000,
            (_, None, _) => 50_000_000,
        }
    }
}
