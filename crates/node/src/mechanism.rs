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
mod members;
mod turns;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use linux::affinity::{self, Masks};
use linux::job::launchers;
use linux::signals::Targets;
use linux::{Process, Root, cgroup, cgroup1, cgroup2};
use serde::{Deserialize, Serialize};
use topology::CpuSet;

use crate::before::Before;
use crate::clock::Turn;
use crate::registry::Traces;
use bound::Bound;
use groups::{Groups, Later};
use turns::{Freeze, Idle, Stop};

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

/// One program's groups, masks and handles.
pub struct Harness {
    v1: Option<cgroup1::Group>,
    v2: Option<cgroup2::Group>,
    /// How it gets a group for `cpu.idle`.
    later: Option<Later>,
    placement: Placement,
    strict: Strict,
    filling: Option<Version>,
    masks: Masks,
    targets: Arc<Mutex<Targets>>,
    traces: Traces,
    /// Processes of the program that are left alone.
    outside: BTreeSet<Process>,
    bound: Bound,
    root: Root,
}

impl Harness {
    /// Takes a program in: its groups are made and its processes moved into them, running as
    /// before. `traces` are handed out before anything is done, to be kept where a guard finds
    /// them.
    pub fn take(
        mechanisms: &Mechanisms,
        group: &str,
        processes: &[Process],
        before: Option<Before>,
        original: &CpuSet,
        keep: impl Fn(&Traces) -> io::Result<()>,
    ) -> io::Result<Harness> {
        let root = &mechanisms.root;
        let mut groups = Groups::make(mechanisms, group, processes)?;
        let mut traces = Traces {
            // What a hierarchy refuses, signals will do.
            stops_by_signal: None,
            places: Some(BTreeSet::new()),
            before,
            ..Traces::default()
        };
        traces.groups.extend(groups.v1.iter().flat_map(group_dirs));
        traces.groups.extend(groups.v2.iter().map(|group| group.dir().to_owned()));
        if let Some(first) = processes.first() {
            origins(first.pid, &mut traces, root);
        }
        keep(&traces)?;
        let outside: BTreeSet<Process> = launchers(processes, root).into_iter().collect();
        let inside: Vec<Process> =
            processes.iter().copied().filter(|process| !outside.contains(process)).collect();
        groups.fill(&inside, &outside, root)?;
        let Groups { v1, v2, placement, strict, filling, later } = groups;
        // Until it takes turns nobody has stopped it.
        traces.stops_by_signal = Some(false);
        keep(&traces)?;
        Ok(Harness {
            v1,
            v2,
            later,
            placement,
            strict,
            filling,
            masks: Masks::of(original.clone()),
            targets: Arc::new(Mutex::new(Targets::open(&inside, root))),
            traces,
            outside,
            bound: Bound::default(),
            root: root.clone(),
        })
    }

    /// Confines the program to `cpus`; `keep` writes down the traces first where that matters.
    pub fn place(
        &mut self,
        processes: &[Process],
        cpus: &CpuSet,
        keep: impl Fn(&Traces) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.traces.places.get_or_insert_default().insert(cpus.clone()) {
            keep(&self.traces)?;
        }
        if self.placement != Placement::Affinity {
            self.note_own(processes);
        }
        match (self.placement, &self.v1, &self.v2) {
            (Placement::Cpuset(Version::V1), Some(group), _) => group.set_cpus(cpus).map_err(other)?,
            (Placement::Cpuset(Version::V2), _, Some(group)) => group.set_cpus(cpus).map_err(other)?,
            _ => {
                // A thread that is being moved has another mask for a moment, which is not its own.
                let unmoved = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
                let outcome =
                    affinity::set_all(processes, cpus, &mut self.masks, &self.root).map_err(other)?;
                drop(unmoved);
                self.keep_own(&keep)?;
                return match outcome.failed.first() {
                    Some((tid, why)) => Err(io::Error::other(format!("thread {tid}: {why}"))),
                    None => Ok(()),
                };
            }
        }
        self.now_has(processes, cpus);
        Ok(())
    }

    /// Whether taking turns means signals, which parents and terminals see.
    pub fn stops_by_signal(&self) -> bool {
        self.strict == Strict::Stop
    }

    /// Whether new threads and processes have to be looked for and confined one by one.
    pub fn places_by_thread(&self) -> bool {
        self.placement == Placement::Affinity
    }

    /// A handle for the gang clock. `filling` is granted where `cpu.idle` is there.
    pub fn turn(
        &mut self,
        mode: plan::TurnMode,
        keep: impl Fn(&Traces) -> io::Result<()>,
    ) -> io::Result<Box<dyn Turn>> {
        if mode == plan::TurnMode::Filling
            && let Some(switch) = self.idle_switch(&keep)?
        {
            if !self.traces.spreads {
                self.traces.spreads = true;
                keep(&self.traces)?;
            }
            return Ok(Box::new(Idle {
                switch,
                targets: Arc::clone(&self.targets),
                root: self.root.clone(),
            }));
        }
        let switch = match self.strict {
            Strict::Freeze(Version::V1) => self.v1.as_ref().map(cgroup1::Group::freeze_switch),
            Strict::Freeze(Version::V2) => self.v2.as_ref().map(cgroup2::Group::freeze_switch),
            Strict::Stop => None,
        };
        match switch {
            Some(switch) => Ok(Box::new(Freeze { switch: switch.map_err(other)? })),
            None => {
                if self.traces.stops_by_signal != Some(true) {
                    self.traces.stops_by_signal = Some(true);
                    keep(&self.traces)?;
                }
                Ok(Box::new(Stop { targets: Arc::clone(&self.targets), root: self.root.clone() }))
            }
        }
    }

    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    pub fn traces_mut(&mut self) -> &mut Traces {
        &mut self.traces
    }
}

fn other(error: linux::Error) -> io::Error {
    io::Error::other(error.to_string())
}

fn group_dirs(group: &cgroup1::Group) -> Vec<PathBuf> {
    let dirs = ["cpuset", "cpu", "freezer"].into_iter().filter_map(|controller| group.dir(controller));
    dirs.map(PathBuf::from).collect()
}

/// Notes from which groups a process comes.
fn origins(pid: u32, traces: &mut Traces, root: &Root) {
    let (Ok(mounts), Ok(membership)) = (cgroup::mounts(root), cgroup::membership(pid, root)) else { return };
    if let (Some(mount), Some(path)) = (&mounts.v2, &membership.v2) {
        traces.origins.insert(mount.point.clone(), mount.dir(path));
    }
    for (controller, mount) in &mounts.v1 {
        if let Some(path) = membership.v1.get(controller) {
            traces.origins.insert(mount.point.clone(), mount.dir(path));
        }
    }
}
