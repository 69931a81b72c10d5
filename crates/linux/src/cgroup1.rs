//! Control groups, version 1: the hierarchies `cpuset`, `cpu` and `freezer`.
//!
//! Kernel documentation: admin-guide/cgroup-v1. What to know: a new cpuset has neither CPUs nor
//! memory nodes and takes no process until both are written; a frozen process obeys nothing, not
//! even SIGKILL, until thawed, and nobody thaws it if we die; leaving idle resets the weight.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use topology::CpuSet;

use crate::cgroup::{
    self, CpuMax, FreezeState, Members, Membership, Mount, Moved, Origins, Place, TOP, group_path, make_dir,
    make_levels, membership, mounts, subgroups, wait_until,
};
use crate::error::{Absent, Error, Result};
use crate::host;
use crate::procfs::{self, Process};
use crate::root::{Root, number, read, write};
use crate::signals::{self, Sent};
use crate::switch::Switch;

const CONTROLLERS: [&str; 3] = ["cpuset", "cpu", "freezer"];

/// The v1 hierarchies that are mounted and in which this user may make groups.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// Per hierarchy: a controller of it, its mount, and the group in it below which groups are made.
    bases: Vec<(&'static str, Mount, PathBuf)>,
}

impl Hierarchy {
    /// Finds the hierarchies in which groups can be made below our own; absent if there is none.
    pub fn discover(root: &Root) -> Result<Hierarchy> {
        let mounts = mounts(root)?;
        let own = membership(procfs::own_pid(root)?, root)?;
        let mut bases: Vec<(&'static str, Mount, PathBuf)> = Vec::new();
        for controller in CONTROLLERS {
            let Some(mount) = mounts.v1.get(controller) else { continue };
            let base = mount.dir(own.v1.get(controller).map_or("/", String::as_str));
            let writable = host::with(|host| host.may_write(&base));
            if writable && !bases.iter().any(|(_, _, other)| *other == base) {
                bases.push((controller, mount.clone(), base));
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
        let base = |controller: &'static str, mount: &Mount| {
            let base = cgroup::common(memberships, |own| Some(mount.dir(own.v1.get(controller)?)))?;
            let writable = host::with(|host| host.may_write(&base));
            writable.then(|| (controller, mount.clone(), base))
        };
        let bases = self.bases.iter().filter_map(|(controller, mount, _)| base(controller, mount));
        Hierarchy { bases: bases.collect() }
    }

    /// Those of its hierarchies whose controller is (or is not) `cpu`: weights and idleness.
    pub fn of_cpu_time(mut self, wanted: bool) -> Hierarchy {
        self.bases.retain(|(controller, ..)| (*controller == "cpu") == wanted);
        self
    }

    /// The group below which a controller's groups are made.
    pub fn base(&self, controller: &str) -> Option<&Path> {
        self.bases.iter().find(|(name, ..)| *name == controller).map(|(.., base)| base.as_path())
    }

    /// Whether a controller (`cpuset`, `cpu` or `freezer`) is usable.
    pub fn has(&self, controller: &str) -> bool {
        self.bases.iter().any(|(name, ..)| *name == controller)
    }

    /// The same without cpusets, for who places by other means: a group of them confines whoever is moved
    /// in to what its parent has, and before Linux 6.2 forgets masks.
    pub fn without_cpusets(mut self) -> Option<Hierarchy> {
        self.bases.retain(|(controller, ..)| *controller != "cpuset");
        (!self.bases.is_empty()).then_some(self)
    }

    /// Makes the group of an application (or takes the existing one), empty and unconfined.
    pub fn group(&self, scheduler: &str, app: &str) -> Result<Group> {
        let path = group_path(scheduler, app)?;
        let mut places = Vec::new();
        for (controller, mount, base) in &self.bases {
            let dir = make_levels(|| {
                let mut dir = base.clone();
                for part in path.iter() {
                    let parent = dir.clone();
                    dir.push(part);
                    make_dir(&dir)?;
                    if *controller == "cpuset" {
                        inherit(&parent, &dir, "cpuset.cpus")?;
                        inherit(&parent, &dir, "cpuset.mems")?;
                    }
                }
                Ok(dir)
            })?;
            places.push(Place {
                controller: Some(controller),
                mount: mount.clone(),
                base: base.clone(),
                dir,
            });
        }
        Ok(Group { members: Members { places, origins: Origins::default() } })
    }

    /// The groups of a scheduler that exist, ours or left by one that died.
    pub fn groups(&self, scheduler: &str) -> Result<Vec<String>> {
        cgroup::check_name("a scheduler", scheduler)?;
        let mut apps = Vec::new();
        for (_, _, base) in &self.bases {
            apps.extend(subgroups(&base.join(TOP).join(scheduler))?);
        }
        apps.sort();
        apps.dedup();
        Ok(apps)
    }

    /// The schedulers that have groups here.
    pub fn schedulers(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (_, _, base) in &self.bases {
            names.extend(subgroups(&base.join(TOP))?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Sets the weight of all of a scheduler's groups together against the rest of the machine;
    /// unlike a group's own it survives their idleness. Its groups must exist.
    pub fn set_weight(&self, scheduler: &str, weight: u32) -> Result<()> {
        cgroup::check_name("a scheduler", scheduler)?;
        let (_, _, base) = self
            .bases
            .iter()
            .find(|(name, ..)| *name == "cpu")
            .ok_or_else(|| missing("cpu weights", "cpu"))?;
        write(&base.join(TOP).join(scheduler).join("cpu.shares"), &shares(weight).to_string())
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

/// v2 weights (1 … 10,000, default 100) in v1's unit (2 … 262,144, default 1,024).
fn shares(weight: u32) -> u64 {
    (u64::from(weight) * 1024 / 100).clamp(2, 262_144)
}

fn missing(what: &str, controller: &str) -> Error {
    let why = format!("the v1 hierarchy '{controller}' is not mounted or not writable");
    Absent::new(what, why, "run as root on a kernel with that controller").into()
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

/// One application's directories in the v1 hierarchies.
#[derive(Clone, Debug)]
pub struct Group {
    members: Members,
}

impl Group {
    /// The directory in a controller's hierarchy.
    pub fn dir(&self, controller: &str) -> Option<&Path> {
        let place = self.members.places.iter().find(|place| place.controller == Some(controller));
        place.map(|place| place.dir.as_path())
    }

    fn file(&self, what: &str, controller: &str, file: &str) -> Result<PathBuf> {
        let path = self.dir(controller).ok_or_else(|| missing(what, controller))?.join(file);
        if !host::exists(&path) {
            let why = format!("{} does not exist", path.display());
            return Err(Absent::new(what, why, "a newer kernel is needed").into());
        }
        Ok(path)
    }

    /// Moves these processes and their descendants in, until two scans agree. Moving into a cpuset
    /// forgets affinity masks before Linux 6.2: `Masks::remember` them first.
    pub fn add(&mut self, processes: &[Process], root: &Root) -> Result<Moved> {
        self.add_but(processes, &BTreeSet::new(), root)
    }

    /// The same, but those of `outside` among the descendants stay where they are.
    pub fn add_but(
        &mut self,
        processes: &[Process],
        outside: &BTreeSet<Process>,
        root: &Root,
    ) -> Result<Moved> {
        self.members.add(processes, outside, root)
    }

    /// Takes another group of the same application in: what is moved into this one from now on comes into both.
    pub fn join(&mut self, other: Group) {
        self.members.places.extend(other.members.places);
    }

    /// Moves processes back to the groups they came from. Thaw first.
    pub fn release(&mut self, processes: &[Process], root: &Root) -> Moved {
        self.members.release(processes, root)
    }

    pub fn processes(&self, root: &Root) -> Result<Vec<Process>> {
        self.members.processes(root)
    }

    pub fn origins(&self) -> &Origins {
        &self.members.origins
    }

    /// Takes over what an earlier owner of the group remembered.
    pub fn set_origins(&mut self, origins: Origins) {
        self.members.origins = origins;
    }

    pub fn set_cpus(&self, cpus: &CpuSet) -> Result<()> {
        write(&self.file("a cpuset", "cpuset", "cpuset.cpus")?, &cpus.to_string())
    }

    /// The CPUs that members may really use.
    pub fn cpus(&self) -> Result<CpuSet> {
        let path = self.file("a cpuset", "cpuset", "cpuset.effective_cpus")?;
        number(&path, &read(&path)?)
    }

    /// The weight among its siblings, in v2's unit (1 … 10,000, default 100). Refused (EINVAL) to
    /// a group that idles.
    pub fn set_weight(&self, weight: u32) -> Result<()> {
        write(&self.file("cpu weights", "cpu", "cpu.shares")?, &shares(weight).to_string())
    }

    /// `cpu.idle`, on: the group runs only where nothing else wants to. Turning it off resets the
    /// group's weight.
    pub fn idle_switch(&self) -> Result<Switch> {
        Switch::open(self.file("cpu.idle", "cpu", "cpu.idle")?, "1", "0")
    }

    /// `freezer.state`, on: frozen. See [`Group::freeze`] for waiting.
    pub fn freeze_switch(&self) -> Result<Switch> {
        Switch::open(self.file("the freezer", "freezer", "freezer.state")?, "FROZEN", "THAWED")
    }

    pub fn freeze_state(&self) -> Result<FreezeState> {
        let path = self.file("the freezer", "freezer", "freezer.state")?;
        // Reading is also what makes the kernel look whether FREEZING has become FROZEN.
        match read(&path)?.trim() {
            "THAWED" => Ok(FreezeState::Thawed),
            "FREEZING" => Ok(FreezeState::Freezing),
            "FROZEN" => Ok(FreezeState::Frozen),
            other => Err(Error::parse(path, other, "expected THAWED, FREEZING or FROZEN")),
        }
    }

    /// Freezes and waits until every thread stands still; returns the nanoseconds that it took.
    /// On a timeout the group is still freezing: thaw it or wait on.
    pub fn freeze(&self, timeout_ns: u64) -> Result<u64> {
        self.reach(FreezeState::Frozen, "FROZEN", timeout_ns)
    }

    pub fn thaw(&self, timeout_ns: u64) -> Result<u64> {
        self.reach(FreezeState::Thawed, "THAWED", timeout_ns)
    }

    fn reach(&self, state: FreezeState, text: &str, timeout_ns: u64) -> Result<u64> {
        let path = self.file("the freezer", "freezer", "freezer.state")?;
        write(&path, text)?;
        wait_until(&format!("becoming {text}"), &path, timeout_ns, || Ok(self.freeze_state()? == state))
    }

    /// Sends a signal to every member, then thaws, so that it is acted on.
    pub fn signal(&self, signal: Signal, root: &Root) -> Result<Sent> {
        let sent = signals::send(&self.processes(root)?, signal, root);
        if self.dir("freezer").is_some() {
            self.thaw(1_000_000_000)?;
        }
        Ok(sent)
    }

    /// Thaws, moves every member back and removes the directories.
    pub fn remove(mut self, root: &Root) -> Result<()> {
        if self.dir("freezer").is_some_and(host::exists) {
            self.thaw(1_000_000_000)?;
        }
        self.members.remove(root)
    }
}
