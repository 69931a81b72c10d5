//! The groups of one program.
//!
//! They are made below the groups in which the program stands, never below those of the scheduler: whatever
//! limits its own group (CPU time, weight, cpuset, and what else a version 2 group holds) limits those below
//! it, too. In the v1 hierarchy of CPU time nothing is gained by a group unless turns are taken by `cpu.idle`,
//! and a group there would make `nice` count within the program only; so there it stays where it is until such
//! a turn comes. Where no group can be made, the program is placed by affinity and takes turns by signals.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use linux::cgroup::{self, Membership};
use linux::host;
use linux::{Process, Root, Switch, cgroup1, cgroup2};

use super::{Harness, Mechanisms, Placement, Strict, Version, other};
use crate::registry::Traces;

/// What one program has of the scheduler's mechanisms, empty as yet.
pub(super) struct Groups {
    pub v1: Option<cgroup1::Group>,
    pub v2: Option<cgroup2::Group>,
    pub placement: Placement,
    pub strict: Strict,
    pub filling: Option<Version>,
    /// How a group for `cpu.idle` is made, once it is needed.
    pub later: Option<Later>,
}

pub(super) struct Later {
    hierarchy: cgroup1::Hierarchy,
    scheduler: String,
    app: String,
}

/// Where these processes stand; who has ended stands nowhere.
fn memberships(processes: &[Process], root: &Root) -> Vec<Membership> {
    processes.iter().filter_map(|process| cgroup::membership(process.pid, root).ok()).collect()
}

impl Groups {
    pub fn make(mechanisms: &Mechanisms, app: &str, processes: &[Process]) -> io::Result<Groups> {
        let root = &mechanisms.root;
        let own = memberships(processes, root);
        let v1 = mechanisms.v1.as_ref().map(|hierarchy| hierarchy.below_own(&own).of_cpu_time(false));
        let v1 = v1.map(|hierarchy| hierarchy.group(&mechanisms.name, app)).transpose().map_err(other)?;
        let v2 = mechanisms.v2.as_ref().and_then(|hierarchy| hierarchy.below_own(&own));
        // A group of a kind that takes none below it is no reason not to manage the program at all.
        let v2 = v2.and_then(|hierarchy| hierarchy.group(&mechanisms.name, app, root).ok());
        let later = mechanisms.v1.clone().filter(|_| mechanisms.filling == Some(Version::V1));
        let later = later.map(|hierarchy| Later {
            hierarchy: hierarchy.of_cpu_time(true),
            scheduler: mechanisms.name.clone(),
            app: app.to_owned(),
        });
        let mut groups = Groups {
            v1,
            v2,
            placement: mechanisms.placement,
            strict: mechanisms.strict,
            filling: mechanisms.filling,
            later,
        };
        groups.settle_for_what_there_is();
        Ok(groups)
    }

    /// What a program's groups cannot do is done by the means that need none.
    fn settle_for_what_there_is(&mut self) {
        let has_cpus = match self.placement {
            Placement::Cpuset(Version::V1) => self.v1.as_ref().is_some_and(|group| group.cpus().is_ok()),
            Placement::Cpuset(Version::V2) => self.v2.as_ref().is_some_and(|group| group.cpus().is_ok()),
            Placement::Affinity => false,
        };
        let freezes = match self.strict {
            Strict::Freeze(Version::V1) => self.v1.as_ref().is_some_and(|g| g.freeze_switch().is_ok()),
            Strict::Freeze(Version::V2) => self.v2.as_ref().is_some_and(|g| g.freeze_switch().is_ok()),
            Strict::Stop => false,
        };
        if !has_cpus {
            self.placement = Placement::Affinity;
        }
        if !freezes {
            self.strict = Strict::Stop;
        }
    }

    /// Takes them away again, empty as they are.
    pub fn remove(self, root: &Root) {
        // What cannot be removed is in nobody's way.
        let _ = self.v1.map(|group| group.remove(root));
        let _ = self.v2.map(|group| group.remove(root));
    }

    /// Moves the program in, but for launchers (`outside`). A hierarchy that does not take all of it is left again.
    pub fn fill(
        &mut self,
        processes: &[Process],
        outside: &BTreeSet<Process>,
        root: &Root,
    ) -> io::Result<()> {
        let refused = |moved: &cgroup::Moved| moved.failed.iter().any(|(process, _)| process.is_alive(root));
        if let Some(group) = &mut self.v1
            && refused(&group.add_but(processes, outside, root).map_err(other)?)
        {
            self.v1.take().map(|group| group.remove(root)).transpose().map_err(other)?;
        }
        if let Some(group) = &mut self.v2
            && refused(&group.add_but(processes, outside, root).map_err(other)?)
        {
            self.v2.take().map(|group| group.remove(root)).transpose().map_err(other)?;
        }
        self.settle_for_what_there_is();
        Ok(())
    }
}

impl Harness {
    /// The group among whose members `cpu.idle` would make this program the last; `None` where it has none. Of
    /// programs that have different ones none yields to another by it.
    pub fn idles_within(&self) -> Option<PathBuf> {
        match self.filling? {
            Version::V1 => {
                let own = memberships(&self.processes(), &self.root);
                let hierarchy = self.later.as_ref()?.hierarchy.below_own(&own);
                hierarchy.base("cpu").map(PathBuf::from)
            }
            Version::V2 => {
                let group = self.v2.as_ref().filter(|group| group.idle_switch().is_ok())?;
                group.dir().ancestors().nth(3).map(PathBuf::from)
            }
        }
    }

    /// The switch of `cpu.idle`, where it is to be had; in version 1 a group is made for it now.
    pub(super) fn idle_switch(
        &mut self,
        keep: impl Fn(&Traces) -> io::Result<()>,
    ) -> io::Result<Option<Switch>> {
        match self.filling {
            None => return Ok(None),
            Some(Version::V2) => return Ok(self.v2.as_ref().and_then(|group| group.idle_switch().ok())),
            Some(Version::V1) => {}
        }
        if self.v1.as_ref().is_none_or(|group| group.dir("cpu").is_none()) {
            let (Some(later), processes) = (&self.later, self.processes()) else { return Ok(None) };
            let hierarchy = later.hierarchy.below_own(&memberships(&processes, &self.root));
            if !hierarchy.has("cpu") {
                return Ok(None);
            }
            let made = hierarchy.group(&later.scheduler, &later.app).map_err(other)?;
            let dir = made.dir("cpu").map(PathBuf::from);
            if let Err(error) = self.note(&keep, |traces| traces.groups.extend(dir)) {
                let _ = made.remove(&self.root);
                return Err(error);
            }
            let group = match &mut self.v1 {
                Some(group) => {
                    group.join(made);
                    group
                }
                none => none.insert(made),
            };
            group.add_but(&processes, &self.outside, &self.root).map_err(other)?;
        }
        self.v1.as_ref().map(|group| group.idle_switch().map_err(other)).transpose()
    }

    fn processes(&self) -> Vec<Process> {
        host::lock(&self.targets).processes()
    }
}
