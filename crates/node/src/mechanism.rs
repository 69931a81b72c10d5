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
mod groups;
mod harness;
mod members;
mod turns;

use std::fmt;
use std::io;

use linux::{Root, cgroup1, cgroup2};
use serde::{Deserialize, Serialize};

pub use harness::Harness;

/// What the user asked for; `Auto` takes what no program can fail by: affinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementChoice {
    #[default]
    Auto,
    Cpuset,
    Affinity,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnsChoice {
    #[default]
    Auto,
    Freeze,
    Idle,
    Stop,
}

/// Version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    Cpuset(Version),
    Affinity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    Freeze(Version),
    Stop,
}

/// The mechanisms of this scheduler.
pub struct Mechanisms {
    pub placement: Placement,
    pub strict: Strict,
    /// `cpu.idle`, where it is to be had.
    pub filling: Option<Version>,
    /// Why each was taken, and why better ones were not, for `doctor` and `status`.
    pub reasons: Vec<String>,
    v1: Option<cgroup1::Hierarchy>,
    v2: Option<cgroup2::Hierarchy>,
    /// Name of the scheduler's groups.
    name: String,
    root: Root,
}

#[derive(Debug, thiserror::Error)]
#[error("{asked} was asked for, but {why}")]
pub struct NotToBeHad {
    pub asked: &'static str,
    pub why: String,
}

impl Mechanisms {
    /// Tries what there is with a group of its own, which is removed again.
    pub fn choose(
        placement: PlacementChoice,
        turns: TurnsChoice,
        name: &str,
        root: &Root,
    ) -> Result<Mechanisms, NotToBeHad> {
        let mut reasons = Vec::new();
        let v2 = match cgroup2::Hierarchy::discover(root) {
            Ok(hierarchy) => Some(hierarchy),
            Err(error) => {
                reasons.push(error.to_string());
                None
            }
        };
        let v1 = match cgroup1::Hierarchy::discover(root) {
            Ok(hierarchy) => Some(hierarchy),
            Err(error) => {
                reasons.push(error.to_string());
                None
            }
        };
        // Groups of a cpuset are made for who asks for them only.
        let (v1, v2) = match placement {
            PlacementChoice::Cpuset => (v1, v2),
            PlacementChoice::Auto | PlacementChoice::Affinity => {
                (v1.and_then(|v1| v1.without_cpusets()), v2.map(cgroup2::Hierarchy::without_cpusets))
            }
        };
        let mut mechanisms = Mechanisms {
            placement: Placement::Affinity,
            strict: Strict::Stop,
            filling: None,
            reasons,
            v1,
            v2,
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
        if let Some(hierarchy) = &self.v1 {
            match hierarchy.group(&self.name, PROBE) {
                Ok(group) => {
                    if confine && group.cpus().is_ok() {
                        self.placement = Placement::Cpuset(Version::V1);
                    }
                    if group.freeze_switch().is_ok() {
                        self.strict = Strict::Freeze(Version::V1);
                    }
                    if group.idle_switch().is_ok() {
                        self.filling = Some(Version::V1);
                    }
                    let _ = group.remove(&self.root);
                }
                Err(error) => {
                    self.reasons.push(format!("cgroup v1: {error}"));
                    self.v1 = None;
                }
            }
        }
        if let Some(hierarchy) = &self.v2 {
            match hierarchy.group(&self.name, PROBE, &self.root) {
                Ok(group) => {
                    if confine && group.cpus().is_ok() {
                        self.placement = Placement::Cpuset(Version::V2);
                    }
                    // Where both are there, one hierarchy less to move programs in is worth more.
                    let v1_freezes = self.strict == Strict::Freeze(Version::V1);
                    if group.freeze_switch().is_ok()
                        && (!v1_freezes || self.placement == Placement::Cpuset(Version::V2))
                    {
                        self.strict = Strict::Freeze(Version::V2);
                    }
                    if group.idle_switch().is_ok() {
                        self.filling = Some(Version::V2);
                    }
                    let _ = group.remove(&self.root);
                }
                Err(error) => {
                    self.reasons.push(format!("cgroup v2: {error}"));
                    self.v2 = None;
                }
            }
        }
    }

    fn prefer(&mut self, placement: PlacementChoice, turns: TurnsChoice) -> Result<(), NotToBeHad> {
        let why = || match self.reasons.is_empty() {
            true => "no cgroup of ours offers it here; see coplace doctor".to_owned(),
            false => self.reasons.join("; "),
        };
        if placement == PlacementChoice::Cpuset && self.placement == Placement::Affinity {
            return Err(NotToBeHad { asked: "placement by cpuset", why: why() });
        }
        match turns {
            TurnsChoice::Freeze if self.strict == Strict::Stop => {
                return Err(NotToBeHad { asked: "turns by freezing", why: why() });
            }
            TurnsChoice::Idle if self.filling.is_none() => {
                return Err(NotToBeHad { asked: "turns by cpu.idle", why: why() });
            }
            TurnsChoice::Stop => {
                self.strict = Strict::Stop;
                self.filling = None;
            }
            _ => {}
        }
        let used = |version| {
            self.placement == Placement::Cpuset(version)
                || self.strict == Strict::Freeze(version)
                || self.filling == Some(version)
        };
        let (v1, v2) = (used(Version::V1), used(Version::V2));
        // A hierarchy that is not used is not touched.
        self.v1 = self.v1.take().filter(|_| v1);
        self.v2 = self.v2.take().filter(|_| v2);
        Ok(())
    }

    pub fn placement_words(&self) -> String {
        match self.placement {
            Placement::Cpuset(version) => format!("cpuset ({version})"),
            Placement::Affinity => "affinity of each thread".to_owned(),
        }
    }

    pub fn turns_words(&self) -> String {
        let strict = match self.strict {
            Strict::Freeze(version) => format!("freezing ({version})"),
            Strict::Stop => "SIGSTOP".to_owned(),
        };
        match self.filling {
            Some(version) => format!("{strict}; filling: cpu.idle ({version})"),
            None => strict,
        }
    }

    /// The shortest slice for which the mechanism is used: at these both CPUs of a pair run one gang for
    /// at least 97% of the time, all that coplace takes counted (experiments/overhead). A switch by the
    /// freezer takes 70 to 200 µs, as busy as a virtual machine's host is. Writing `cpu.idle` forces no
    /// reschedule, and a switch lasts a tick or two.
    pub fn shortest_slice_ns(&self, mode: plan::TurnMode) -> u64 {
        match (mode, self.strict, self.filling) {
            (plan::TurnMode::Filling, _, Some(_)) => 200_000_000,
            (_, Strict::Freeze(_), _) => 20_000_000,
            (_, Strict::Stop, _) => 50_000_000,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1 => "cgroup v1",
            Version::V2 => "cgroup v2",
        })
    }
}

fn other(error: linux::Error) -> io::Error {
    io::Error::other(error)
}
