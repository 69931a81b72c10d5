//! Control groups, version 1: the hierarchies `cpuset`, `cpu` and `freezer`.
//!
//! Kernel documentation: admin-guide/cgroup-v1. What to know: a new cpuset has neither CPUs nor
//! memory nodes and takes no process until both are written; a frozen process obeys nothing, not
//! even SIGKILL, until thawed, and nobody thaws it if we die; leaving idle resets the weight.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cgroup::{
    self, CpuMax, Group, Membership, Mount, Place, TOP, Version, create_dir, create_levels, group_path,
    membership, missing, mounts, subgroups, weight_text,
};
use crate::error::{Absent, Result};
use crate::host;
use crate::procfs;
use crate::root::{Root, number, read, write};

const CONTROLLERS: [&str; 3] = ["cpuset", "cpu", "freezer"];

/// The v1 hierarchies that are mounted and in which this user may make groups.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    bases: Vec<Base>,
}

/// One mounted hierarchy.
#[derive(Clone, Debug)]
struct Base {
    /// Those of [`CONTROLLERS`] that it has, one at least.
    controllers: Vec<&'static str>,
    mount: Mount,
    /// The group below which groups are made.
    dir: PathBuf,
}

impl Base {
    fn has(&self, controller: &str) -> bool {
        self.controllers.contains(&controller)
    }
}

impl Hierarchy {
    /// Finds the hierarchies in which groups can be made below our own; absent if there is none.
    pub fn discover(root: &Root) -> Result<Hierarchy> {
        let mounts = mounts(root)?;
        let own = membership(procfs::own_pid(root)?, root)?;
        let mut bases: Vec<Base> = Vec::new();
        for controller in CONTROLLERS {
            let Some(mount) = mounts.v1.get(controller) else { continue };
            let dir = mount.dir(own.v1.get(controller).map_or("/", String::as_str));
            let writable = host::with(|host| host.may_write(&dir));
            if !writable {
                continue;
            }
            match bases.iter_mut().find(|base| base.dir == dir) {
                Some(base) => base.controllers.push(controller),
                None => bases.push(Base { controllers: vec![controller], mount: mount.clone(), dir }),
            }
        }
        if bases.is_empty() {
            let (why, remedy) = if CONTROLLERS.iter().any(|controller| mounts.v1.contains_key(*controller)) {
                ("this user may not make groups in the mounted hierarchies", "run as root")
            } else {
                ("none of cpuset, cpu and freezer is mounted as version 1", "use version 2 instead")
            };
            return Err(Absent::new("cgroup v1", why, remedy).into());
        }
        Ok(Hierarchy { bases })
    }

    /// The same hierarchies with the groups in which all of these processes stand as bases, so that groups made
    /// there take no limit away from them; without those in which they stand apart, or in which this user may
    /// make no group there.
    pub fn below_own(&self, memberships: &[Membership]) -> Hierarchy {
        let below = |base: &Base| {
            let controller = *base.controllers.first()?;
            let dir = cgroup::common(memberships, |own| Some(base.mount.dir(own.v1.get(controller)?)))?;
            let writable = host::with(|host| host.may_write(&dir));
            writable.then(|| Base { dir, ..base.clone() })
        };
        Hierarchy { bases: self.bases.iter().filter_map(below).collect() }
    }

    /// Those of its hierarchies that have the controller `cpu` (weights and idleness), or those that have another one:
    /// who wants a cpuset or a freezer where `cpu` is mounted together with it cannot have the one without the other.
    pub fn of_cpu_time(mut self, wanted: bool) -> Hierarchy {
        self.bases.retain(|base| base.controllers.iter().any(|controller| (*controller == "cpu") == wanted));
        self
    }

    /// The group below which a controller's groups are made.
    pub fn base(&self, controller: &str) -> Option<&Path> {
        self.bases.iter().find(|base| base.has(controller)).map(|base| base.dir.as_path())
    }

    /// Whether a controller (`cpuset`, `cpu` or `freezer`) is usable.
    pub fn has(&self, controller: &str) -> bool {
        self.bases.iter().any(|base| base.has(controller))
    }

    /// The same without cpusets, for who places by other means: a group of them confines whoever is moved
    /// in to what its parent has, and before Linux 6.2 forgets masks.
    pub fn without_cpusets(mut self) -> Option<Hierarchy> {
        self.bases.retain(|base| !base.has("cpuset"));
        (!self.bases.is_empty()).then_some(self)
    }

    /// The directories that the group of an application has, made or not.
    pub fn dirs(&self, scheduler: &str, app: &str) -> Result<Vec<PathBuf>> {
        let path = group_path(scheduler, app)?;
        Ok(self.bases.iter().map(|base| base.dir.join(&path)).collect())
    }

    /// Makes the group of an application (or takes the existing one), empty and unconfined.
    pub fn group(&self, scheduler: &str, app: &str) -> Result<Group> {
        let path = group_path(scheduler, app)?;
        let mut places = Vec::new();
        for base in &self.bases {
            let dir = create_levels(|| {
                let mut dir = base.dir.clone();
                for part in path.iter() {
                    let parent = dir.clone();
                    dir.push(part);
                    create_dir(&dir)?;
                    if base.has("cpuset") {
                        inherit(&parent, &dir, "cpuset.cpus")?;
                        inherit(&parent, &dir, "cpuset.mems")?;
                    }
                }
                Ok(dir)
            })?;
            let Base { controllers, mount, dir: base } = base.clone();
            places.push(Place { controllers, mount, base, dir });
        }
        Ok(Group::of(Version::V1, places))
    }

    /// The groups of a scheduler that exist, ours or left by one that died.
    pub fn groups(&self, scheduler: &str) -> Result<Vec<String>> {
        cgroup::check_name("a scheduler", scheduler)?;
        let mut apps = Vec::new();
        for base in &self.bases {
            apps.extend(subgroups(&base.dir.join(TOP).join(scheduler))?);
        }
        apps.sort();
        apps.dedup();
        Ok(apps)
    }

    /// The schedulers that have groups here.
    pub fn schedulers(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for base in &self.bases {
            names.extend(subgroups(&base.dir.join(TOP))?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Sets the weight of all of a scheduler's groups together against the rest of the machine;
    /// unlike a group's own it survives their idleness. Its groups must exist.
    pub fn set_weight(&self, scheduler: &str, weight: u32) -> Result<()> {
        cgroup::check_name("a scheduler", scheduler)?;
        let base = self.base("cpu").ok_or_else(|| missing("cpu weights", "cpu"))?;
        write(&base.join(TOP).join(scheduler).join("cpu.shares"), &weight_text(weight, Version::V1))
    }
}

/// Copies what a cpuset must have from its parent, which may have been widened since the levels were made.
fn inherit(parent: &Path, dir: &Path, file: &str) -> Result<()> {
    let target = dir.join(file);
    let (now, wanted) = (read(&target)?, read(&parent.join(file))?);
    if now.trim() == wanted.trim() {
        return Ok(());
    }
    match write(&target, wanted.trim()) {
        // Groups below may still have what the parent lost.
        Err(_) if !now.trim().is_empty() => Ok(()),
        written => written,
    }
}

/// The tightest `cpu.cfs_quota_us` on a process, its group's ancestors included; `None` = no limit.
pub fn cpu_max(pid: u32, root: &Root) -> Result<Option<CpuMax>> {
    let limits = cpu_limits(pid, root)?.into_values();
    Ok(limits.fold(None, |tightest, limit| CpuMax::tighter(tightest, Some(limit))))
}

/// Every `cpu.cfs_quota_us` on a process, by the group (its own or one above) whose members share it.
pub fn cpu_limits(pid: u32, root: &Root) -> Result<BTreeMap<PathBuf, CpuMax>> {
    let mut limits = BTreeMap::new();
    let mounts = mounts(root)?;
    let Some(mount) = mounts.v1.get("cpu") else { return Ok(limits) };
    let dir = mount.dir(membership(pid, root)?.v1.get("cpu").map_or("/", String::as_str));
    for level in dir.ancestors().take_while(|level| level.starts_with(&mount.point)) {
        let path = level.join("cpu.cfs_quota_us");
        let Ok(text) = read(&path) else { continue };
        let quota_us: i64 = number(&path, &text)?;
        if let Ok(quota_us) = u64::try_from(quota_us) {
            let path = level.join("cpu.cfs_period_us");
            let period_us = number(&path, &read(&path)?)?;
            limits.insert(level.to_owned(), CpuMax { quota_us, period_us });
        }
    }
    Ok(limits)
}
