//! What both versions of control groups share: where they are mounted, which group a process is
//! in, and moving process trees in and back.
//!
//! Groups are made at `coplace/<scheduler>/<application>` below a base directory, so that whoever
//! finds them after a crash knows whose they are.

mod group;
mod members;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::procfs::{Process, Tid};
use crate::root::{Root, read};

pub use group::{DELEGATE, Group, Version};
pub(crate) use group::{missing, require_file, weight_text};
pub(crate) use members::{Members, Place, create_dir, create_levels, group_path, subgroups};
pub use members::{Moved, move_process};

/// The directory below the base under which all our groups stand.
pub const TOP: &str = "coplace";

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted, below the injected root.
    pub point: PathBuf,
    /// Which group of the hierarchy the mount point shows: `/`, or another in containers.
    pub shows: String,
}

impl Mount {
    /// The directory of a group by its path in `/proc/PID/cgroup`. A group outside of what is
    /// mounted (seen from a container) stands for the mount point itself.
    pub fn dir(&self, path: &str) -> PathBuf {
        let inside = match self.shows.as_str() {
            "/" => Some(path),
            shows => path.strip_prefix(shows).filter(|rest| rest.is_empty() || rest.starts_with('/')),
        };
        let relative = inside.unwrap_or("").trim_start_matches('/');
        if relative.is_empty() || relative.split('/').any(|part| part == "..") {
            return self.point.clone();
        }
        self.point.join(relative)
    }
}

/// The mounted hierarchies. A v1 hierarchy with several controllers stands under each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// `None` if no `cgroup2` file system is mounted.
    pub v2: Option<Mount>,
    /// By controller, for example `cpuset`.
    pub v1: BTreeMap<String, Mount>,
}

impl Mounts {
    /// The directory of each hierarchy, by its mount point, in which `membership` is.
    pub fn dirs(&self, membership: &Membership) -> BTreeMap<PathBuf, PathBuf> {
        let v2 = self.v2.as_ref().zip(membership.v2.as_ref());
        let v1 = self.v1.iter().filter_map(|(name, mount)| Some((mount, membership.v1.get(name)?)));
        v2.into_iter().chain(v1).map(|(mount, path)| (mount.point.clone(), mount.dir(path))).collect()
    }
}

/// What else than controllers stands without a value among the options of a version 1 hierarchy: how it is mounted, and
/// what holds for file systems of all kinds. Named are these and not the controllers, to which kernels add.
const NO_CONTROLLERS: [&str; 12] = [
    "rw",
    "ro",
    "sync",
    "dirsync",
    "mand",
    "lazytime",
    "seclabel",
    "noprefix",
    "xattr",
    "clone_children",
    "cpuset_v2_mode",
    "favordynmods",
];

/// Reads `/proc/self/mountinfo`.
pub fn mounts(root: &Root) -> Result<Mounts> {
    let path = root.proc.join("self/mountinfo");
    let mut mounts = Mounts::default();
    for line in read(&path)?.lines() {
        // id parent device root point options [optional …] - type source super-options
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut before = before.split(' ').skip(3).map(unescape);
        let mut after = after.split(' ');
        let (Some(shows), Some(point)) = (before.next(), before.next()) else { continue };
        let mount = Mount { point: root.resolve(Path::new(&point)), shows };
        match after.next() {
            // The first mount wins: later ones are usually bind mounts of parts of it.
            Some("cgroup2") if mounts.v2.is_none() => mounts.v2 = Some(mount),
            Some("cgroup") => {
                for option in after.nth(1).unwrap_or("").split(',') {
                    if !option.is_empty() && !option.contains('=') && !NO_CONTROLLERS.contains(&option) {
                        mounts.v1.entry(option.to_owned()).or_insert_with(|| mount.clone());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(mounts)
}

/// The kernel writes blanks and backslashes in paths as octal numbers (`\040`).
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |value, digit| (value << 3) | (digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Which groups a process is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The path in the line `0::PATH`; `None` without such a line.
    pub v2: Option<String>,
    /// By controller.
    pub v1: BTreeMap<String, String>,
}

/// Reads `/proc/PID/cgroup`.
pub fn membership(pid: u32, root: &Root) -> Result<Membership> {
    read_membership(root.proc.join(pid.to_string()).join("cgroup"))
}

/// The same of one thread: version 1, and threaded groups of version 2, may hold the threads of a
/// process apart.
pub fn thread_membership(pid: u32, tid: Tid, root: &Root) -> Result<Membership> {
    read_membership(root.proc.join(pid.to_string()).join("task").join(tid.to_string()).join("cgroup"))
}

fn read_membership(path: PathBuf) -> Result<Membership> {
    let mut membership = Membership::default();
    for line in read(&path)?.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(Error::parse(path, line, "expected number:controllers:path"));
        };
        if id == "0" && controllers.is_empty() {
            membership.v2 = Some(group.to_owned());
        }
        for controller in controllers.split(',').filter(|controller| !controller.is_empty()) {
            membership.v1.insert(controller.to_owned(), group.to_owned());
        }
    }
    Ok(membership)
}

/// The leaf beside our groups into which those are moved that stand in a delegated group itself.
pub(crate) const OUTSIDE: &str = "coplace-outside";

/// Where processes stand that belong to a delegated group and not to a program, since groups of ours were made below it:
/// from then on the kernel lets none into the group itself (v2). `delegated` is its directory.
pub fn dir_outside(delegated: &Path) -> PathBuf {
    delegated.join(OUTSIDE)
}

/// The group (or its directory) in which somebody would stand without us: below it our groups are made, so that
/// every limit which holds for a program goes on to hold for it.
pub fn without_ours(group: &Path) -> &Path {
    let mut own = group;
    loop {
        let level = |at: usize| own.ancestors().nth(at).and_then(Path::file_name);
        own = match (level(0), level(2), own.ancestors().nth(3)) {
            (Some(name), _, _) if name == OUTSIDE => own.parent().unwrap_or(own),
            (_, Some(top), Some(above)) if top == TOP => above,
            _ => return own,
        };
    }
}

/// The directory below which groups for all of these processes can be made without taking a limit away: the one
/// in which all of them stand. `dir` finds a process's directory.
pub(crate) fn common<'a>(
    memberships: &'a [Membership],
    dir: impl Fn(&'a Membership) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let mut dirs = memberships.iter().map(|membership| Some(without_ours(&dir(membership)?).to_owned()));
    let first = dirs.next()??;
    (dirs.all(|other| other.as_ref() == Some(&first)) && !is_step(&first)).then_some(first)
}

/// Whether a batch system (Slurm) takes those for a step of a job who stand in exactly this group: it would
/// neither signal nor end those below.
fn is_step(group: &Path) -> bool {
    let parts: Vec<_> = group.iter().map(|part| part.to_string_lossy()).collect();
    parts.windows(2).any(|pair| pair[0].starts_with("job_") && pair[1].starts_with("step_"))
}

/// Where processes were before we moved them: a value that a guard can keep on disk, so that they
/// can go back even if whoever moved them is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origins {
    pub(crate) entries: Vec<Origin>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub process: Process,
    /// The group's directory in the same order as the places it was moved to.
    pub dirs: Vec<PathBuf>,
}

impl Origins {
    /// The processes that were moved and have not been moved back.
    pub fn processes(&self) -> Vec<Process> {
        self.entries.iter().map(|origin| origin.process).collect()
    }

    pub(crate) fn find(&self, process: Process) -> Option<&Origin> {
        self.entries.iter().find(|origin| origin.process == process)
    }
}

/// The CPU time that a group may use, as `cpu.max` or `cpu.cfs_quota_us` limit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMax {
    /// CPU time in microseconds that all members together may use in each period.
    pub quota_us: u64,
    /// Length of a period in microseconds; the kernel's default is 100,000.
    pub period_us: u64,
}

impl CpuMax {
    /// In thousandths of a CPU.
    pub fn milli_cpus(&self) -> u64 {
        self.quota_us.saturating_mul(1_000) / self.period_us.max(1)
    }

    pub(crate) fn tighter(one: Option<CpuMax>, other: Option<CpuMax>) -> Option<CpuMax> {
        match (one, other) {
            (Some(a), Some(b)) => Some(if a.milli_cpus() <= b.milli_cpus() { a } else { b }),
            (a, b) => a.or(b),
        }
    }
}

/// Every limit of CPU time on a process, in either version, by the group whose members share it.
pub fn cpu_limits(pid: u32, root: &Root) -> Result<BTreeMap<PathBuf, CpuMax>> {
    let mut limits = crate::cgroup1::cpu_limits(pid, root)?;
    limits.extend(crate::cgroup2::cpu_limits(pid, root)?);
    Ok(limits)
}

/// Whether a group of threads stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreezeState {
    /// Not asked to stand still.
    Thawed,
    /// Asked to, but not every thread stands still yet.
    Freezing,
    /// Every thread stands still.
    Frozen,
}

/// Names become directories: they must be one harmless path component.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let harmless = !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name.chars().all(|c| !c.is_control() && c != '/');
    if harmless {
        return Ok(());
    }
    let why = format!("the name of {what} must be one path component that does not start with a dot");
    Err(Error::parse(Path::new(TOP), name, why))
}

/// Polls until `reached`, first quickly, then every millisecond; returns the nanoseconds it took.
pub(crate) fn wait_until(
    what: &str,
    path: &Path,
    timeout_ns: u64,
    mut reached: impl FnMut() -> Result<bool>,
) -> Result<u64> {
    use crate::clock::{now_ns, sleep_until};
    let start_ns = now_ns();
    let mut pause_ns = 20_000;
    loop {
        let done = reached()?;
        let waited_ns = now_ns() - start_ns;
        if done {
            return Ok(waited_ns);
        }
        if waited_ns >= timeout_ns {
            return Err(Error::Timeout { what: what.to_owned(), path: path.to_owned(), waited_ns });
        }
        sleep_until(now_ns() + pause_ns);
        pause_ns = (pause_ns * 2).min(1_000_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing_in(paths: &[&str]) -> Option<PathBuf> {
        let member = |path: &&str| Membership { v2: Some((*path).to_owned()), ..Membership::default() };
        let memberships: Vec<Membership> = paths.iter().map(member).collect();
        common(&memberships, |own| Some(PathBuf::from(own.v2.as_ref()?)))
    }

    #[test]
    fn groups_of_ours_stand_for_the_group_above_them() {
        for (group, own) in [
            ("/", "/"),
            ("/user/a.scope", "/user/a.scope"),
            ("/coplace/coplace-1/cg", "/"),
            ("/user/a.scope/coplace/coplace-1/cg", "/user/a.scope"),
            ("/a/coplace/coplace-1/cg/coplace/coplace-2/lu", "/a"),
            ("/a/coplace-outside", "/a"),
            ("/coplace/other", "/coplace/other"),
        ] {
            assert_eq!(without_ours(Path::new(group)), Path::new(own), "{group}");
        }
    }

    #[test]
    fn processes_that_stand_apart_have_no_group_in_common() {
        assert_eq!(standing_in(&["/a", "/a/coplace/s/cg"]), Some("/a".into()));
        assert_eq!(standing_in(&["/a", "/a/b"]), None);
        assert_eq!(standing_in(&[]), None);
    }

    #[test]
    fn a_step_of_a_job_is_left_in_its_group() {
        assert_eq!(standing_in(&["/slurm/uid_7/job_12/step_0"]), None);
        assert_eq!(standing_in(&["/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"]), None);
        assert_eq!(standing_in(&["/slurm/uid_7"]), Some("/slurm/uid_7".into()));
    }
}
