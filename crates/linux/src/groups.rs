//! One program's control groups, as one thing: whatever versions of the interface there are, and whichever does what.
//!
//! They are made below the groups in which the program stands, never below those of the scheduler: whatever
//! limits its own group (CPU time, weight, cpuset, and what else a version 2 group holds) limits those below
//! it, too. In the v1 hierarchy of CPU time nothing is gained by a group unless turns are taken by `cpu.idle`,
//! and a group there would make `nice` count within the program only; so there it stays where it is until such
//! a turn comes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use topology::CpuSet;

use crate::cgroup::{self, Group, Membership, Moved, Version};
use crate::error::{Error, Result};
use crate::procfs::Process;
use crate::root::Root;
use crate::switch::Switch;
use crate::{cgroup1, cgroup2};

/// By which version a group does what it is for; `None`: that is not done by groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Confining to CPUs, by a cpuset; done by affinity otherwise.
    pub cpus: Option<Version>,
    /// Strict turns, by the freezer; taken by SIGSTOP otherwise.
    pub freezing: Option<Version>,
    /// `cpu.idle`.
    pub idling: Option<Version>,
}

impl Uses {
    /// Whether a version is used for anything.
    pub fn has(&self, version: Version) -> bool {
        [self.cpus, self.freezing, self.idling].contains(&Some(version))
    }
}

/// Where groups can be made.
#[derive(Clone, Debug, Default)]
pub struct Hierarchies {
    v1: Option<cgroup1::Hierarchy>,
    v2: Option<cgroup2::Hierarchy>,
}

impl Hierarchies {
    /// Those that are here, and why others are not.
    pub fn discover(root: &Root) -> (Hierarchies, Vec<Error>) {
        let (v2, v1) = (cgroup2::Hierarchy::discover(root), cgroup1::Hierarchy::discover(root));
        let mut absent = Vec::new();
        let v2 = v2.map_err(|error| absent.push(error)).ok();
        let v1 = v1.map_err(|error| absent.push(error)).ok();
        (Hierarchies { v1, v2 }, absent)
    }

    /// The same without cpusets, for who places by other means.
    pub fn without_cpusets(self) -> Hierarchies {
        Hierarchies {
            v1: self.v1.and_then(cgroup1::Hierarchy::without_cpusets),
            v2: self.v2.map(cgroup2::Hierarchy::without_cpusets),
        }
    }

    /// Those of the versions that are used: another one is not touched.
    pub fn retain(&mut self, is_used: impl Fn(Version) -> bool) {
        self.v1.take_if(|_| !is_used(Version::V1));
        self.v2.take_if(|_| !is_used(Version::V2));
    }

    /// A group in one version's hierarchies, to find out what it can do; `None` where there are none.
    pub fn group(&self, version: Version, scheduler: &str, app: &str, root: &Root) -> Option<Result<Group>> {
        match version {
            Version::V1 => self.v1.as_ref().map(|hierarchy| hierarchy.group(scheduler, app)),
            Version::V2 => self.v2.as_ref().map(|hierarchy| hierarchy.group(scheduler, app, root)),
        }
    }

    /// The groups of a program, to be made below those in which it stands.
    pub fn prepare(
        &self,
        scheduler: &str,
        app: &str,
        uses: Uses,
        processes: &[Process],
        root: &Root,
    ) -> Prepared {
        let own = memberships(processes, root);
        let v1 = self.v1.as_ref().map(|hierarchy| hierarchy.below_own(&own).of_cpu_time(false));
        let v2 = self.v2.as_ref().and_then(|hierarchy| hierarchy.below_own(&own));
        let later = self.v1.clone().filter(|_| uses.idling == Some(Version::V1));
        Prepared {
            v1: v1.map(|hierarchy| Planned::new(hierarchy, scheduler, app)),
            v2: v2.map(|hierarchy| Planned::new(hierarchy, scheduler, app)),
            uses,
            later: later.map(|hierarchy| Planned::new(hierarchy.of_cpu_time(true), scheduler, app)),
        }
    }
}

/// Where these processes stand; who has ended stands nowhere.
fn memberships(processes: &[Process], root: &Root) -> Vec<Membership> {
    processes.iter().filter_map(|process| cgroup::membership(process.pid, root).ok()).collect()
}

/// A program's group in the hierarchies of one version, to be made.
#[derive(Clone, Debug)]
struct Planned<H> {
    hierarchy: H,
    scheduler: String,
    app: String,
}

impl<H> Planned<H> {
    fn new(hierarchy: H, scheduler: &str, app: &str) -> Planned<H> {
        Planned { hierarchy, scheduler: scheduler.to_owned(), app: app.to_owned() }
    }
}

impl Planned<cgroup1::Hierarchy> {
    fn dirs(&self) -> Result<Vec<PathBuf>> {
        self.hierarchy.dirs(&self.scheduler, &self.app)
    }

    fn create(&self) -> Result<Group> {
        self.hierarchy.group(&self.scheduler, &self.app)
    }
}

impl Planned<cgroup2::Hierarchy> {
    fn dir(&self) -> Result<PathBuf> {
        self.hierarchy.dir(&self.scheduler, &self.app)
    }

    fn create(&self, root: &Root) -> Result<Group> {
        self.hierarchy.group(&self.scheduler, &self.app, root)
    }
}

/// A program's groups before they are made: whoever makes them is to write down first where they will be, or
/// nobody finds them again should he be killed in between.
#[derive(Clone, Debug)]
pub struct Prepared {
    v1: Option<Planned<cgroup1::Hierarchy>>,
    v2: Option<Planned<cgroup2::Hierarchy>>,
    uses: Uses,
    later: Option<Planned<cgroup1::Hierarchy>>,
}

impl Prepared {
    /// The directories that [`Prepared::create`] will make. [`Error::Parse`] if the name of the scheduler or
    /// of the program cannot be that of a directory.
    pub fn dirs(&self) -> Result<Vec<PathBuf>> {
        let mut dirs = self.v1.as_ref().map_or(Ok(Vec::new()), Planned::dirs)?;
        if let Some(v2) = &self.v2 {
            dirs.push(v2.dir()?);
        }
        Ok(dirs)
    }

    /// The groups, empty as yet. What they cannot do is left out of their uses.
    pub fn create(self, root: &Root) -> Result<Groups> {
        let mut each = BTreeMap::new();
        if let Some(v1) = &self.v1 {
            each.insert(Version::V1, v1.create()?);
        }
        if let Some(v2) = &self.v2
            // A group of a kind that takes none below it is no reason not to manage the program at all.
            && let Ok(group) = v2.create(root)
        {
            each.insert(Version::V2, group);
        }
        let mut groups = Groups { each, uses: self.uses, later: self.later };
        groups.drop_missing_uses();
        Ok(groups)
    }
}

/// A group that a program gets while it runs, to be made.
#[derive(Debug)]
pub struct Further {
    group: Planned<cgroup1::Hierarchy>,
    processes: Vec<Process>,
}

impl Further {
    /// The directories that [`Groups::create`] will make; errors as of [`Prepared::dirs`].
    pub fn dirs(&self) -> Result<Vec<PathBuf>> {
        self.group.dirs()
    }
}

/// One program's groups. There may be none: then it is placed and takes its turns by other means.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    each: BTreeMap<Version, Group>,
    uses: Uses,
    later: Option<Planned<cgroup1::Hierarchy>>,
}

impl Groups {
    /// Whether they confine the program to CPUs.
    pub fn confine(&self) -> bool {
        self.uses.cpus.is_some()
    }

    /// Whether they freeze it.
    pub fn freeze(&self) -> bool {
        self.uses.freezing.is_some()
    }

    /// Whether even a SIGKILL waits until it is thawed.
    pub fn delays_kills(&self) -> bool {
        self.uses.freezing == Some(Version::V1)
    }

    fn group_for(&self, version: Option<Version>) -> Option<&Group> {
        self.each.get(&version?)
    }

    fn drop_missing_uses(&mut self) {
        let has_cpus = self.group_for(self.uses.cpus).is_some_and(|group| group.cpus().is_ok());
        let freezes = self.group_for(self.uses.freezing).is_some_and(|group| group.freeze_switch().is_ok());
        self.uses.cpus.take_if(|_| !has_cpus);
        self.uses.freezing.take_if(|_| !freezes);
    }

    /// All their directories.
    pub fn dirs(&self) -> Vec<PathBuf> {
        self.each.values().flat_map(Group::dirs).map(PathBuf::from).collect()
    }

    /// Moves the program in, but for those of `outside`. A version that does not take all of it is left again.
    pub fn fill(&mut self, processes: &[Process], outside: &BTreeSet<Process>, root: &Root) -> Result<()> {
        let refused = |moved: &Moved| moved.failed.iter().any(|(process, _)| process.is_alive(root));
        for version in Version::BOTH {
            if let Some(group) = self.each.get_mut(&version)
                && refused(&group.add_except(processes, outside, root)?)
                && let Some(group) = self.each.remove(&version)
            {
                group.remove(root)?;
            }
        }
        self.drop_missing_uses();
        Ok(())
    }

    /// Brings in who belongs to the program and was not born inside.
    pub fn move_in(&mut self, processes: &[Process], outside: &BTreeSet<Process>, root: &Root) -> Result<()> {
        for group in self.each.values_mut() {
            group.add_except(processes, outside, root)?;
        }
        Ok(())
    }

    /// Moves processes back to where they came from.
    pub fn move_out(&mut self, leaving: &[Process], root: &Root) {
        for group in self.each.values_mut() {
            group.release(leaving, root);
        }
    }

    /// Confines the members to these CPUs; to be asked of groups that do.
    pub fn set_cpus(&self, cpus: &CpuSet) -> Result<()> {
        self.group_for(self.uses.cpus).map_or(Ok(()), |group| group.set_cpus(cpus))
    }

    /// `None` where it is not frozen by groups.
    pub fn freeze_switch(&self) -> Result<Option<Switch>> {
        self.group_for(self.uses.freezing).map(Group::freeze_switch).transpose()
    }

    /// The group among whose members `cpu.idle` would make this program the last; `None` where it has none. Of
    /// programs that have different ones none yields to another by it.
    pub fn idle_scope(&self, processes: impl FnOnce() -> Vec<Process>, root: &Root) -> Option<PathBuf> {
        match self.uses.idling? {
            Version::V1 => {
                let own = memberships(&processes(), root);
                let hierarchy = self.later.as_ref()?.hierarchy.below_own(&own);
                hierarchy.base("cpu").map(PathBuf::from)
            }
            Version::V2 => {
                let group = self.group_for(self.uses.idling).filter(|group| group.idle_switch().is_ok())?;
                group.dir("cpu")?.ancestors().nth(3).map(PathBuf::from)
            }
        }
    }

    /// What is to be made before `cpu.idle` can be written: to be noted, and given to [`Groups::create`] then. `None`
    /// where nothing is missing, or nothing can be made.
    pub fn plan_idle_group(
        &self,
        processes: impl FnOnce() -> Vec<Process>,
        root: &Root,
    ) -> Result<Option<Further>> {
        if self.uses.idling != Some(Version::V1) || self.idle_group_v1().is_some() {
            return Ok(None);
        }
        let (Some(later), processes) = (&self.later, processes()) else { return Ok(None) };
        let hierarchy = later.hierarchy.below_own(&memberships(&processes, root));
        if !hierarchy.has("cpu") {
            return Ok(None);
        }
        Ok(Some(Further { group: Planned::new(hierarchy, &later.scheduler, &later.app), processes }))
    }

    /// In version 1 that takes a group of its own.
    fn idle_group_v1(&self) -> Option<&Group> {
        self.each.get(&Version::V1).filter(|group| group.dir("cpu").is_some())
    }

    /// Makes a further group and moves the program into it as well.
    pub fn create(&mut self, further: Further, outside: &BTreeSet<Process>, root: &Root) -> Result<()> {
        let (made, processes) = (further.group.create()?, further.processes);
        let group = match self.each.remove(&Version::V1) {
            Some(mut group) => {
                group.join(made);
                group
            }
            None => made,
        };
        self.each.entry(Version::V1).or_insert(group).add_except(&processes, outside, root).map(drop)
    }

    /// The switch of `cpu.idle`; `None` where it is not to be had.
    pub fn idle_switch(&self) -> Result<Option<Switch>> {
        match self.uses.idling {
            None => Ok(None),
            Some(Version::V1) => self.idle_group_v1().map(Group::idle_switch).transpose(),
            Some(Version::V2) => {
                Ok(self.group_for(self.uses.idling).and_then(|group| group.idle_switch().ok()))
            }
        }
    }
}
