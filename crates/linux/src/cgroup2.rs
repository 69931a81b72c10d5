//! Control groups, version 2: the one hierarchy with `cpuset`, `cpu` and `cgroup.freeze`.
//!
//! Kernel documentation: admin-guide/cgroup-v2. What to know: a controller reaches a group only
//! through `cgroup.subtree_control` of every group above it; a group other than the root that
//! hands controllers down must hold no processes itself; freezing needs no controller, and SIGKILL
//! reaches frozen processes; leaving idle resets the weight.

mod delegation;
pub mod scope;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::cgroup::{
    self, CpuMax, Group, Members, Membership, Mount, Origins, Place, TOP, Version, create_dir, create_levels,
    group_path, membership, mounts, require_file, subgroups, weight_text,
};
use crate::error::{Absent, Error, Result};
use crate::root::{Root, number, read, write};

pub use crate::cgroup::DELEGATE;
pub use delegation::find_base;

/// Where this user may make groups, and with which controllers.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    mount: Mount,
    base: PathBuf,
    controllers: BTreeSet<String>,
}

impl Hierarchy {
    /// Finds the base: as root the whole hierarchy, else a subtree delegated to this user.
    pub fn discover(root: &Root) -> Result<Hierarchy> {
        let mount = mounts(root)?.v2.ok_or_else(|| {
            Absent::new("cgroup v2", "no cgroup2 file system is mounted", "mount one, or use version 1")
        })?;
        let base = find_base(&mount, root)?;
        Hierarchy::below(mount, base)
    }

    /// A hierarchy whose groups are made below the given directory.
    pub fn below(mount: Mount, base: PathBuf) -> Result<Hierarchy> {
        let controllers = read(&base.join("cgroup.controllers"))?;
        let controllers = controllers.split_ascii_whitespace().map(str::to_owned).collect();
        Ok(Hierarchy { mount, base, controllers })
    }

    /// The directory below which groups are made, at `coplace/<scheduler>/<application>`.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Whether a controller (`cpuset`, `cpu`) is usable. `freezer` always is.
    pub fn has(&self, controller: &str) -> bool {
        controller == "freezer" || self.controllers.contains(controller)
    }

    /// The same without cpusets, for who places by other means: before Linux 6.2 a change of cpuset forgets the
    /// masks of threads.
    pub fn without_cpusets(mut self) -> Hierarchy {
        self.controllers.remove("cpuset");
        self
    }

    /// The directory that the group of an application has, made or not.
    pub fn dir(&self, scheduler: &str, app: &str) -> Result<PathBuf> {
        Ok(self.base.join(group_path(scheduler, app)?))
    }

    /// Makes the group of an application (or takes the existing one), empty and unconfined.
    pub fn group(&self, scheduler: &str, app: &str, root: &Root) -> Result<Group> {
        let path = group_path(scheduler, app)?;
        let dir = create_levels(|| {
            let mut dir = self.base.clone();
            for part in path.iter() {
                self.enable_controllers(&dir, root)?;
                dir.push(part);
                create_dir(&dir)?;
            }
            Ok(dir)
        })?;
        let (mount, base) = (self.mount.clone(), self.base.clone());
        let places = vec![Place { controllers: Vec::new(), mount, base, dir }];
        Ok(Group::of(Version::V2, places))
    }

    /// The same hierarchy with the group in which all of these processes stand as its base, so that groups
    /// made there take no limit away from them; with the controllers that are handed down there already: the
    /// kernel hands none down from a group with processes. `None` where they stand apart, or where no group can be made.
    pub fn below_own(&self, memberships: &[Membership]) -> Option<Hierarchy> {
        let base = cgroup::common(memberships, |own| Some(self.mount.dir(own.v2.as_ref()?)))?;
        if base == self.base {
            return Some(self.clone());
        }
        if !delegation::is_ours(&base) {
            return None;
        }
        let mut own = Hierarchy::below(self.mount.clone(), base).ok()?;
        if scope::is_one(&own.base) {
            // Nobody but us and our programs is in there: what stands in it itself gives way.
            own.controllers.retain(|controller| self.has(controller));
            return Some(own);
        }
        let enabled = read(&own.base.join("cgroup.subtree_control")).unwrap_or_default();
        let enabled: BTreeSet<&str> = enabled.split_ascii_whitespace().collect();
        own.controllers.retain(|controller| enabled.contains(controller.as_str()) && self.has(controller));
        Some(own)
    }

    /// Enables the controllers for the groups below `dir`.
    fn enable_controllers(&self, dir: &Path, root: &Root) -> Result<()> {
        let path = dir.join("cgroup.subtree_control");
        for controller in ["cpuset", "cpu"].into_iter().filter(|controller| self.has(controller)) {
            if read(&path)?.split_ascii_whitespace().any(|enabled| enabled == controller) {
                continue;
            }
            let enable = || write(&path, &format!("+{controller}"));
            match enable() {
                Err(Error::Io { source, .. })
                    if source.raw_os_error() == Some(libc::EBUSY) && dir == self.base =>
                {
                    self.vacate_base(root)?;
                    enable()?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Moves the processes that stand in a delegated base itself (we and our parents in the same
    /// scope) into a leaf beside our groups: the kernel wants processes in leaves only.
    fn vacate_base(&self, root: &Root) -> Result<()> {
        let leaf = cgroup::dir_outside(&self.base);
        create_dir(&leaf)?;
        let place = Place {
            controllers: Vec::new(),
            mount: self.mount.clone(),
            base: self.base.clone(),
            dir: self.base.clone(),
        };
        let inside = Members { places: vec![place], origins: Origins::default() };
        for process in inside.processes(root)? {
            match cgroup::move_process(process.pid, &leaf, root) {
                Err(_) if !process.is_alive(root) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// The groups of a scheduler that exist, ours or left by one that died.
    pub fn groups(&self, scheduler: &str) -> Result<Vec<String>> {
        cgroup::check_name("a scheduler", scheduler)?;
        subgroups(&self.base.join(TOP).join(scheduler))
    }

    /// The schedulers that have groups here.
    pub fn schedulers(&self) -> Result<Vec<String>> {
        subgroups(&self.base.join(TOP))
    }

    /// Sets the weight of all of a scheduler's groups together against the rest of the machine
    /// (1 … 10,000, default 100); unlike a group's own it survives their idleness. Its groups must
    /// exist.
    pub fn set_weight(&self, scheduler: &str, weight: u32) -> Result<()> {
        cgroup::check_name("a scheduler", scheduler)?;
        let dir = self.base.join(TOP).join(scheduler);
        let file = require_file(&dir, "cpu weights", "cpu.weight", Version::V2)?;
        write(&file, &weight_text(weight, Version::V2))
    }
}

/// The tightest `cpu.max` on a process, its group's ancestors included; `None` = no limit.
pub fn cpu_max(pid: u32, root: &Root) -> Result<Option<CpuMax>> {
    let limits = cpu_limits(pid, root)?.into_values();
    Ok(limits.fold(None, |tightest, limit| CpuMax::tighter(tightest, Some(limit))))
}

/// Every `cpu.max` on a process, by the group (its own or one above) whose members share it.
pub fn cpu_limits(pid: u32, root: &Root) -> Result<BTreeMap<PathBuf, CpuMax>> {
    let mut limits = BTreeMap::new();
    let Some(mount) = mounts(root)?.v2 else { return Ok(limits) };
    let dir = mount.dir(membership(pid, root)?.v2.as_deref().unwrap_or("/"));
    for level in dir.ancestors().take_while(|level| level.starts_with(&mount.point)) {
        let path = level.join("cpu.max");
        // The root group has no such file, nor has a group without the controller.
        let Ok(text) = read(&path) else { continue };
        let mut fields = text.split_ascii_whitespace();
        let (quota, period) = (fields.next().unwrap_or(""), fields.next().unwrap_or("100000"));
        if quota != "max" {
            let limit = CpuMax { quota_us: number(&path, quota)?, period_us: number(&path, period)? };
            limits.insert(level.to_owned(), limit);
        }
    }
    Ok(limits)
}
