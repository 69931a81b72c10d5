//! One application's group in one version of the interface: the same acts, whatever the files are called.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use topology::CpuSet;

use super::{FreezeState, Members, Moved, Origins, Place, wait_until};
use crate::error::{Absent, Error, Result};
use crate::host;
use crate::procfs::Process;
use crate::root::{Root, number, read, write};
use crate::signals::{self, Sent};
use crate::switch::Switch;

/// Version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Several hierarchies, each with one or more controllers.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

impl Version {
    /// Both versions, the older one first.
    pub const BOTH: [Version; 2] = [Version::V1, Version::V2];
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1 => "cgroup v1",
            Version::V2 => "cgroup v2",
        })
    }
}

/// How long a group may take to thaw whose members are to be moved away or told something.
const THAW_NS: u64 = 1_000_000_000;

/// What a group is good for, each by a file of its version.
#[derive(Clone, Copy)]
enum Feature {
    Confine,
    ShowCpus,
    Weigh,
    Idle,
    Freeze,
}

impl Feature {
    /// For messages.
    fn describe(self) -> &'static str {
        match self {
            Feature::Confine | Feature::ShowCpus => "a cpuset",
            Feature::Weigh => "cpu weights",
            Feature::Idle => "cpu.idle",
            Feature::Freeze => "the freezer",
        }
    }

    /// Whose hierarchy it is in version 1.
    fn controller(self) -> &'static str {
        match self {
            Feature::Confine | Feature::ShowCpus => "cpuset",
            Feature::Weigh | Feature::Idle => "cpu",
            Feature::Freeze => "freezer",
        }
    }

    fn file(self, version: Version) -> &'static str {
        match (self, version) {
            (Feature::Confine, _) => "cpuset.cpus",
            (Feature::ShowCpus, Version::V1) => "cpuset.effective_cpus",
            (Feature::ShowCpus, Version::V2) => "cpuset.cpus.effective",
            (Feature::Weigh, Version::V1) => "cpu.shares",
            (Feature::Weigh, Version::V2) => "cpu.weight",
            (Feature::Idle, _) => "cpu.idle",
            (Feature::Freeze, Version::V1) => "freezer.state",
            (Feature::Freeze, Version::V2) => "cgroup.freeze",
        }
    }
}

/// One application's directories in the hierarchies of one version: several in version 1, one in version 2.
#[derive(Clone, Debug)]
pub struct Group {
    version: Version,
    members: Members,
}

impl Group {
    pub(crate) fn of(version: Version, places: Vec<Place>) -> Group {
        Group { version, members: Members { places, origins: Origins::default() } }
    }

    /// The directory in which a controller's files are.
    pub fn dir(&self, controller: &str) -> Option<&Path> {
        let serves = |place: &&Place| place.controllers.is_empty() || place.controllers.contains(&controller);
        self.members.places.iter().find(serves).map(|place| place.dir.as_path())
    }

    /// All its directories.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.members.places.iter().map(|place| place.dir.as_path())
    }

    fn file(&self, feature: Feature) -> Result<PathBuf> {
        let (controller, file) = (feature.controller(), feature.file(self.version));
        let dir = self.dir(controller).ok_or_else(|| missing(feature.describe(), controller))?;
        require_file(dir, feature.describe(), file, self.version)
    }

    /// Moves these processes and their descendants in, until two scans agree. Moving into a cpuset
    /// of version 1 forgets affinity masks before Linux 6.2: `Masks::remember` them first.
    pub fn add(&mut self, processes: &[Process], root: &Root) -> Result<Moved> {
        self.add_except(processes, &BTreeSet::new(), root)
    }

    /// The same, but those of `outside` among the descendants stay where they are.
    pub fn add_except(
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

    /// The members of all its directories (`cgroup.procs`), in ascending order of pid; none where somebody
    /// has removed the directory.
    pub fn processes(&self, root: &Root) -> Result<Vec<Process>> {
        self.members.processes(root)
    }

    /// Where the processes that were moved in came from, until they are moved back.
    pub fn origins(&self) -> &Origins {
        &self.members.origins
    }

    /// Takes over what an earlier owner of the group remembered.
    pub fn set_origins(&mut self, origins: Origins) {
        self.members.origins = origins;
    }

    /// Confines the members to these CPUs (`cpuset.cpus`). [`Error::Absent`] if the group has no cpuset.
    pub fn set_cpus(&self, cpus: &CpuSet) -> Result<()> {
        write(&self.file(Feature::Confine)?, &cpus.to_string())
    }

    /// The CPUs that members may really use.
    pub fn cpus(&self) -> Result<CpuSet> {
        let path = self.file(Feature::ShowCpus)?;
        number(&path, &read(&path)?)
    }

    /// The weight among its siblings (1 … 10,000, default 100, in either version). Refused (EINVAL)
    /// to a group that idles.
    pub fn set_weight(&self, weight: u32) -> Result<()> {
        write(&self.file(Feature::Weigh)?, &weight_text(weight, self.version))
    }

    /// `cpu.idle`, on: the group runs only where nothing else wants to. Turning it off resets the
    /// group's weight.
    pub fn idle_switch(&self) -> Result<Switch> {
        Switch::open(self.file(Feature::Idle)?, "1", "0")
    }

    /// What is written to freeze and to thaw.
    fn freezer_values(&self) -> [&'static str; 2] {
        match self.version {
            Version::V1 => ["FROZEN", "THAWED"],
            Version::V2 => ["1", "0"],
        }
    }

    /// The freezer's file, on: frozen. See [`Group::freeze`] for waiting.
    pub fn freeze_switch(&self) -> Result<Switch> {
        let [on, off] = self.freezer_values();
        Switch::open(self.file(Feature::Freeze)?, on, off)
    }

    /// Reads `freezer.state` in version 1, `cgroup.events` and `cgroup.freeze` in version 2.
    /// [`Error::Absent`] if the group has no freezer.
    pub fn freeze_state(&self) -> Result<FreezeState> {
        let path = self.file(Feature::Freeze)?;
        match self.version {
            // Reading is also what makes the kernel look whether FREEZING has become FROZEN.
            Version::V1 => match read(&path)?.trim() {
                "THAWED" => Ok(FreezeState::Thawed),
                "FREEZING" => Ok(FreezeState::Freezing),
                "FROZEN" => Ok(FreezeState::Frozen),
                other => Err(Error::parse(path, other, "expected THAWED, FREEZING or FROZEN")),
            },
            Version::V2 => {
                let events = path.with_file_name("cgroup.events");
                let frozen = read(&events)?.lines().any(|line| line.trim() == "frozen 1");
                Ok(match (frozen, read(&path)?.trim()) {
                    (true, _) => FreezeState::Frozen,
                    (false, "0") => FreezeState::Thawed,
                    (false, _) => FreezeState::Freezing,
                })
            }
        }
    }

    /// Freezes and waits until every thread stands still; returns the nanoseconds that it took.
    /// On a timeout the group is still freezing: thaw it or wait on.
    pub fn freeze(&self, timeout_ns: u64) -> Result<u64> {
        self.reach_state(FreezeState::Frozen, self.freezer_values()[0], timeout_ns)
    }

    /// Thaws and waits until the kernel reports it; returns the nanoseconds that it took. Below a frozen
    /// group that ends with [`Error::Timeout`].
    pub fn thaw(&self, timeout_ns: u64) -> Result<u64> {
        self.reach_state(FreezeState::Thawed, self.freezer_values()[1], timeout_ns)
    }

    fn reach_state(&self, state: FreezeState, text: &str, timeout_ns: u64) -> Result<u64> {
        let path = self.file(Feature::Freeze)?;
        write(&path, text)?;
        wait_until(&format!("becoming {state:?}"), &path, timeout_ns, || Ok(self.freeze_state()? == state))
    }

    /// Sends a signal to every member, then thaws, so that it is acted on.
    pub fn signal(&self, signal: Signal, root: &Root) -> Result<Sent> {
        let sent = signals::send(&self.processes(root)?, signal, root);
        if self.dir("freezer").is_some() {
            self.thaw(THAW_NS)?;
        }
        Ok(sent)
    }

    /// Thaws, moves every member back and removes the directories.
    pub fn remove(mut self, root: &Root) -> Result<()> {
        if self.dir("freezer").is_some_and(host::exists) {
            match self.thaw(THAW_NS) {
                // Somebody has removed it meanwhile.
                Err(error) if error.is_group_gone() => {}
                thawed => drop(thawed?),
            }
        }
        self.members.remove(root)
    }
}

/// A weight (1 … 10,000, default 100) in the version's unit: version 1 has 2 … 262,144, default 1,024.
pub(crate) fn weight_text(weight: u32, version: Version) -> String {
    match version {
        Version::V1 => (u64::from(weight) * 1024 / 100).clamp(2, 262_144).to_string(),
        Version::V2 => weight.clamp(1, 10_000).to_string(),
    }
}

/// No hierarchy of version 1 is there for this; version 2 has one for everything.
pub(crate) fn missing(what: &str, controller: &str) -> Error {
    let why = format!("the v1 hierarchy '{controller}' is not mounted or not writable");
    Absent::new(what, why, "run as root on a kernel with that controller").into()
}

/// The remedy for everything that a missing delegation costs.
pub const DELEGATE: &str = "start coplace by: systemd-run --user --scope -p Delegate=yes coplace …";

/// A file of a group, which not every kernel has and not every group.
pub(crate) fn require_file(dir: &Path, what: &str, file: &str, version: Version) -> Result<PathBuf> {
    let path = dir.join(file);
    if !host::exists(&path) {
        let why = format!("{} does not exist", path.display());
        let remedy = match version {
            Version::V1 => "a newer kernel is needed".to_owned(),
            Version::V2 => format!(
                "its controller is not handed down to this group (or the kernel is too old): as root add it to cgroup.subtree_control above, as a user {DELEGATE}"
            ),
        };
        return Err(Absent::new(what, why, remedy).into());
    }
    Ok(path)
}
