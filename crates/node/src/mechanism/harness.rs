//! One program's groups, masks and handles.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use linux::affinity::{self, Masks};
use linux::groups::Groups;
use linux::host;
use linux::job::launchers;
use linux::signals::Targets;
use linux::{Process, Root, Switch, cgroup};
use topology::CpuSet;

use super::bound::Bound;
use super::turns::{Freeze, Idle, Stop, StoppedByUser};
use super::{Keep, Mechanisms};
use crate::acts::Act;
use crate::clock::Turn;
use crate::error::{Error, Result};
use crate::registry::Traces;

/// One program's groups, masks and handles.
pub struct Harness {
    pub(super) groups: Groups,
    pub(super) masks: Masks,
    pub(super) targets: Arc<Mutex<Targets>>,
    pub(super) traces: Traces,
    /// Processes of the program that are left alone.
    pub(super) outside: BTreeSet<Process>,
    pub(super) bound: Bound,
    pub(super) root: Root,
}

/// A program that is taken in.
pub struct Joining<'a> {
    /// What its group is named.
    pub group: &'a str,
    /// Those that live of it.
    pub processes: &'a [Process],
    /// Which of them is about to execute a launcher.
    pub launcher: Option<Process>,
    /// The CPUs that it could use when it came.
    pub original: &'a CpuSet,
}

impl Harness {
    /// Takes a program in: its groups are made and its processes moved into them, running as
    /// before. `known`: what was done to it already, or by others. The traces are handed out before
    /// anything is done, to be kept where a guard finds them.
    pub fn attach(
        mechanisms: &Mechanisms,
        program: &Joining<'_>,
        known: Traces,
        keep: impl Keep,
    ) -> Result<Harness> {
        let Joining { group, processes, launcher, original } = *program;
        let root = &mechanisms.root;
        let prepared = mechanisms.prepare(group, processes);
        let mut traces = Traces::begin(known);
        prepared.dirs()?.into_iter().for_each(|group| traces.note(Act::Grouped(group)));
        if let Some(first) = processes.first() {
            origins(first.pid, &mut traces, root);
        }
        if !broken!(GroupsNotedLate) {
            keep(&traces)?;
        }
        // What a hierarchy refuses, signals will do.
        let mut groups = prepared.create(root)?;
        let outside: BTreeSet<Process> = match broken!(LaunchersStopped) {
            true => BTreeSet::new(),
            false => launchers(processes, root).into_iter().chain(launcher).collect(),
        };
        let inside: Vec<Process> =
            processes.iter().copied().filter(|process| !outside.contains(process)).collect();
        groups.fill(&inside, &outside, root)?;
        // Where none could be made, nobody is to look for the program in one.
        traces.groups = groups.dirs();
        // Until it takes turns nobody has stopped it.
        traces.stops_by_signal = Some(false);
        keep(&traces)?;
        Ok(Harness {
            groups,
            masks: Masks::of(original.clone()),
            targets: Arc::new(Mutex::new(Targets::open(&inside, root))),
            traces,
            outside,
            bound: Bound::default(),
            root: root.clone(),
        })
    }

    /// Confines the program to `cpus`; `keep` writes down the traces first where that matters.
    pub fn place(&mut self, processes: &[Process], cpus: &CpuSet, keep: impl Keep) -> Result<()> {
        if !broken!(PlacesNotedLate) {
            self.note(&keep, [Act::Placed(cpus.clone())])?;
        }
        if self.groups.confine() {
            self.note_own(processes);
            self.groups.set_cpus(cpus)?;
            self.note_place(processes, cpus);
            return Ok(());
        }
        // A thread that is being moved has another mask for a moment, which is not its own.
        let unmoved = host::lock(&self.targets);
        let outcome = affinity::set_all(processes, cpus, &mut self.masks, &self.root)?;
        drop(unmoved);
        self.keep_own(&keep)?;
        match outcome.failed.into_iter().next() {
            Some((tid, error)) => Err(Error::Thread { tid, error }),
            None => Ok(()),
        }
    }

    /// Whether taking turns means signals, which parents and terminals see.
    pub fn stops_by_signal(&self) -> bool {
        !self.groups.freeze()
    }

    /// Whether its turns have stopped one of its processes that they have not continued since.
    pub fn has_stopped_any(&self) -> bool {
        host::lock(&self.targets).has_stopped_any()
    }

    /// Whether new threads and processes have to be looked for and confined one by one.
    pub fn places_by_thread(&self) -> bool {
        !self.groups.confine()
    }

    /// A handle for the gang clock. `filling` is granted where `cpu.idle` is there.
    pub fn turn(
        &mut self,
        mode: plan::TurnMode,
        keep: impl Keep,
        stopped_by_user: StoppedByUser,
    ) -> Result<Box<dyn Turn>> {
        if mode == plan::TurnMode::Filling
            && let Some(switch) = self.idle_switch(&keep)?
        {
            self.note(&keep, [Act::Spread])?;
            return Ok(Box::new(Idle {
                switch,
                targets: Arc::clone(&self.targets),
                root: self.root.clone(),
            }));
        }
        match self.groups.freeze_switch()? {
            Some(switch) => Ok(Box::new(Freeze { switch })),
            None => {
                if !broken!(StopsNotNoted) {
                    self.note(&keep, [Act::Stopped])?;
                }
                let (targets, root) = (Arc::clone(&self.targets), self.root.clone());
                Ok(Box::new(Stop { targets, root, stopped_by_user }))
            }
        }
    }

    /// The switch of `cpu.idle`, where it is to be had; in version 1 a group is made for it now.
    fn idle_switch(&mut self, keep: impl Keep) -> Result<Option<Switch>> {
        if let Some(further) = self.groups.plan_idle_group(|| self.processes(), &self.root)? {
            self.note(&keep, further.dirs()?.into_iter().map(Act::Grouped))?;
            self.groups.create(further, &self.outside, &self.root)?;
        }
        Ok(self.groups.idle_switch()?)
    }

    /// The group among whose members `cpu.idle` would make this program the last; `None` where it has none.
    pub fn idle_scope(&self) -> Option<PathBuf> {
        self.groups.idle_scope(|| self.processes(), &self.root)
    }

    /// Whether even a SIGKILL waits until it is in turn.
    pub fn delays_kills(&self) -> bool {
        self.groups.delays_kills()
    }

    /// Whether a group is gone. Only one in which nobody stands can be removed, and only launchers stand outside.
    pub fn has_lost_groups(&self) -> bool {
        !self.outside.is_empty() && self.groups.dirs().iter().any(|group| !host::is_directory(group))
    }

    fn processes(&self) -> Vec<Process> {
        host::lock(&self.targets).processes()
    }

    /// Writes down what is about to be done, where that is not on record yet.
    fn note(&mut self, keep: impl Keep, acts: impl IntoIterator<Item = Act>) -> Result<()> {
        let new: Vec<Act> = acts.into_iter().filter(|act| !self.traces.has(act)).collect();
        match new.is_empty() {
            true => Ok(()),
            false => self.record(keep, |traces| new.into_iter().for_each(|act| traces.note(act))),
        }
    }

    /// Changes what is on record. Where that fails it counts as not noted, and nothing may be done.
    pub fn record(&mut self, keep: impl Keep, change: impl FnOnce(&mut Traces)) -> Result<()> {
        let mut traces = self.traces.clone();
        change(&mut traces);
        keep(&traces)?;
        self.traces = traces;
        Ok(())
    }

    /// What was done to the program, or is about to be, as it was last put on record.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }
}

/// Notes from which groups a process comes.
fn origins(pid: u32, traces: &mut Traces, root: &Root) {
    if let (Ok(mounts), Ok(membership)) = (cgroup::mounts(root), cgroup::membership(pid, root)) {
        traces.origins.extend(mounts.dirs(&membership));
    }
}
