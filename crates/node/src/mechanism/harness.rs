//! One program's groups, masks and handles.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use linux::affinity::{self, Masks};
use linux::host;
use linux::job::launchers;
use linux::signals::Targets;
use linux::{Process, Root, cgroup, cgroup1, cgroup2};
use topology::CpuSet;

use super::bound::Bound;
use super::groups::{Groups, Later};
use super::turns::{Freeze, Idle, Stays, Stop};
use super::{Mechanisms, Placement, Strict, Version, other};
use crate::clock::Turn;
use crate::registry::Traces;

/// One program's groups, masks and handles.
pub struct Harness {
    pub(super) v1: Option<cgroup1::Group>,
    pub(super) v2: Option<cgroup2::Group>,
    /// How it gets a group for `cpu.idle`.
    pub(super) later: Option<Later>,
    pub(super) placement: Placement,
    pub(super) strict: Strict,
    pub(super) filling: Option<Version>,
    pub(super) masks: Masks,
    pub(super) targets: Arc<Mutex<Targets>>,
    pub(super) traces: Traces,
    /// Processes of the program that are left alone.
    pub(super) outside: BTreeSet<Process>,
    pub(super) bound: Bound,
    pub(super) root: Root,
}

impl Harness {
    /// Takes a program in: its groups are made and its processes moved into them, running as
    /// before. `known`: what was done to it already, or by others. The traces are handed out before
    /// anything is done, to be kept where a guard finds them.
    pub fn take(
        mechanisms: &Mechanisms,
        group: &str,
        processes: &[Process],
        known: Traces,
        original: &CpuSet,
        keep: impl Fn(&Traces) -> io::Result<()>,
    ) -> io::Result<Harness> {
        let root = &mechanisms.root;
        let mut groups = Groups::make(mechanisms, group, processes)?;
        let mut traces = Traces {
            // What a hierarchy refuses, signals will do.
            stops_by_signal: None,
            places: Some(BTreeSet::new()),
            ..known
        };
        traces.groups.extend(groups.v1.iter().flat_map(group_dirs));
        traces.groups.extend(groups.v2.iter().map(|group| group.dir().to_owned()));
        if let Some(first) = processes.first() {
            origins(first.pid, &mut traces, root);
        }
        if !broken!(GroupsNotedLate)
            && let Err(error) = keep(&traces)
        {
            // Nobody would find them again.
            groups.remove(root);
            return Err(error);
        }
        let outside: BTreeSet<Process> = match broken!(LaunchersStopped) {
            true => BTreeSet::new(),
            false => launchers(processes, root).into_iter().collect(),
        };
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
        if self.traces.places.as_ref().is_none_or(|places| !places.contains(cpus))
            && !broken!(PlacesNotedLate)
        {
            self.note(&keep, |traces| traces.places.get_or_insert_default().extend([cpus.clone()]))?;
        }
        if self.placement != Placement::Affinity {
            self.note_own(processes);
        }
        match (self.placement, &self.v1, &self.v2) {
            (Placement::Cpuset(Version::V1), Some(group), _) => group.set_cpus(cpus).map_err(other)?,
            (Placement::Cpuset(Version::V2), _, Some(group)) => group.set_cpus(cpus).map_err(other)?,
            _ => {
                // A thread that is being moved has another mask for a moment, which is not its own.
                let unmoved = host::lock(&self.targets);
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
        stays: Stays,
    ) -> io::Result<Box<dyn Turn>> {
        if mode == plan::TurnMode::Filling
            && let Some(switch) = self.idle_switch(&keep)?
        {
            if !self.traces.spreads {
                self.note(&keep, |traces| traces.spreads = true)?;
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
                if self.traces.stops_by_signal != Some(true) && !broken!(StopsNotNoted) {
                    self.note(&keep, |traces| traces.stops_by_signal = Some(true))?;
                }
                let (targets, root) = (Arc::clone(&self.targets), self.root.clone());
                Ok(Box::new(Stop { targets, root, stays }))
            }
        }
    }

    /// Writes down what is about to be done. Where that fails it counts as not noted, and nothing may be done.
    pub(super) fn note(
        &mut self,
        keep: impl Fn(&Traces) -> io::Result<()>,
        change: impl FnOnce(&mut Traces),
    ) -> io::Result<()> {
        let mut traces = self.traces.clone();
        change(&mut traces);
        keep(&traces)?;
        self.traces = traces;
        Ok(())
    }

    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    pub fn traces_mut(&mut self) -> &mut Traces {
        &mut self.traces
    }
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
