//! Which CPUs may be used, and how many: what the kernel allows, what `cpu.max` pays for, and what
//! programs that are not managed leave.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::{Level, Machine, Object};
use crate::{CpuSet, MachineError, sysfs};

/// What a process may use, and each limit that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// From `sched_getaffinity`, and `Cpus_allowed_list` in `/proc/self/status`.
    pub affinity: CpuSet,
    /// Of the cgroup, versions 1 and 2; `None` where no cpuset is in force.
    pub cpuset: Option<CpuSet>,
    /// From sysfs or what stands in for it; the affinity mask, where that has CPUs which sysfs lacks.
    pub online: CpuSet,
    /// What a person confined us to.
    pub configured: Option<CpuSet>,
    /// All of the above at once; never empty.
    pub allowed: CpuSet,
    /// The least that the cgroup or one of its ancestors pays for, in thousandths of a CPU; never 0.
    pub quota_milli_cpus: Option<u32>,
    /// One sentence a note.
    pub notes: Vec<String>,
}

/// Why there is no allowance.
#[derive(Debug, thiserror::Error)]
pub enum AllowanceError {
    /// Nothing tells which CPUs are online.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The kernel allows none of the CPUs that a person confined us to.
    #[error(
        "none of the configured CPUs {configured} can be used here: allowed are {allowed}; change the configuration"
    )]
    Configured {
        /// What a person confined us to.
        configured: CpuSet,
        /// Online CPUs in the affinity mask and the cpuset; never empty.
        allowed: CpuSet,
    },
    /// No CPU is online and in both the affinity mask and the cpuset.
    #[error(
        "no CPU is left: online are {online}, the affinity mask has {}, {}",
        or_none(affinity),
        cpuset.as_ref().map_or("no cpuset is in force".into(), |cpuset| format!("the cpuset {}", or_none(cpuset)))
    )]
    Nothing {
        /// As in [`Allowance::online`].
        online: CpuSet,
        /// As in [`Allowance::affinity`].
        affinity: CpuSet,
        /// As in [`Allowance::cpuset`].
        cpuset: Option<CpuSet>,
    },
}

fn or_none(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

impl Allowance {
    /// Reads below `root` (live: `/`). `affinity` is what `sched_getaffinity` answered: a system
    /// call has no root to inject. Its numbers and those of cpusets are the kernel's own; files that
    /// contradict them are disregarded, with a note.
    pub fn read(
        root: &Path,
        affinity: &CpuSet,
        configured: Option<&CpuSet>,
    ) -> Result<Allowance, AllowanceError> {
        let (online, notes) = sysfs::online(root, affinity)?;
        let mut affinity = affinity.clone();
        if let Some(status) = status_list(root) {
            affinity = affinity.intersection(&status);
        }
        Allowance::within(root, online, notes, affinity, configured)
    }

    /// The same whatever mask this process was given: for who acts for others, to whom its own mask, `affinity`, says
    /// no more than how the kernel counts CPUs.
    pub fn without_mask(
        root: &Path,
        affinity: &CpuSet,
        configured: Option<&CpuSet>,
    ) -> Result<Allowance, AllowanceError> {
        let (online, notes) = sysfs::online(root, affinity)?;
        Allowance::within(root, online.clone(), notes, online, configured)
    }

    fn within(
        root: &Path,
        online: CpuSet,
        mut notes: Vec<String>,
        affinity: CpuSet,
        configured: Option<&CpuSet>,
    ) -> Result<Allowance, AllowanceError> {
        let cgroups = cgroup_chains(root);
        let cpuset = cpuset(&cgroups);
        let quota = quota(&cgroups);
        let mut allowed = online.intersection(&affinity);
        if let Some(cpuset) = &cpuset {
            allowed = allowed.intersection(cpuset);
        }
        if allowed.is_empty() {
            return Err(AllowanceError::Nothing { online, affinity, cpuset });
        }
        if let Some(configured) = configured {
            let missing = configured.difference(&allowed);
            if !missing.is_empty() {
                notes.push(format!("configured CPUs {missing} are offline, forbidden or do not exist"));
            }
            let both = allowed.intersection(configured);
            if both.is_empty() {
                return Err(AllowanceError::Configured { configured: configured.clone(), allowed });
            }
            allowed = both;
        }
        if allowed != online {
            notes.push(format!("of the CPUs {online} that are online, {allowed} are allowed"));
        }
        if let Some((milli, path)) = &quota {
            notes.push(format!("{} pays for {} CPUs", path.display(), in_cpus(*milli)));
        }
        Ok(Allowance {
            affinity,
            cpuset,
            online,
            configured: configured.cloned(),
            allowed,
            quota_milli_cpus: quota.map(|(milli, _)| milli),
            notes,
        })
    }
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn status_list(root: &Path) -> Option<CpuSet> {
    let status = read(&root.join("proc/self/status"))?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.parse().ok()
}

/// From our own cgroup up to the highest ancestor that can be seen, one chain a hierarchy.
struct Chain {
    version: u8,
    directories: Vec<PathBuf>,
}

/// Where our cgroups are mounted. In a container the mount may show a part of the hierarchy only
/// (its `root` field), and the namespace may begin our path at that part or above it.
fn cgroup_chains(root: &Path) -> Vec<Chain> {
    let memberships = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = read(&root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut visited = BTreeSet::new();
    let mut chains = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let ours = memberships.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let same = match mount.version {
                2 => controllers.is_empty(),
                _ => controllers.split(',').any(|c| mount.controllers.iter().any(|m| m == c)),
            };
            same.then_some(path)
        });
        let Some(ours) = ours else { continue };
        let top = root.join(mount.point.trim_start_matches('/'));
        let below = match ours.strip_prefix(mount.root.trim_end_matches('/')) {
            Some(below) if !ours.split('/').any(|part| part == "..") => below.trim_matches('/'),
            // Our path and the mount are seen from different namespaces; the mount is ours at least.
            _ => "",
        };
        let mut directories = vec![top.clone()];
        for part in below.split('/').filter(|part| !part.is_empty()) {
            let next = directories[directories.len() - 1].join(part);
            if !next.is_dir() {
                break;
            }
            directories.push(next);
        }
        directories.reverse();
        if top.is_dir() && visited.insert(directories.clone()) {
            chains.push(Chain { version: mount.version, directories });
        }
    }
    chains
}

struct Mount {
    version: u8,
    root: String,
    point: String,
    controllers: Vec<String>,
}

impl Mount {
    /// A line of mountinfo (proc(5)): `31 23 0:28 /root /point rw - type source options`.
    fn parse(line: &str) -> Option<Mount> {
        let (fields, tail) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut tail = tail.split(' ');
        let version = match tail.next()? {
            "cgroup2" => 2,
            "cgroup" => 1,
            _ => return None,
        };
        let options = tail.nth(1).unwrap_or("");
        let controllers =
            options.split(',').filter(|o| matches!(*o, "cpu" | "cpuset")).map(Into::into).collect();
        Some(Mount { version, root, point, controllers })
    }
}

/// mountinfo writes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut plain = text.to_owned();
    for (code, c) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        plain = plain.replace(code, c);
    }
    plain
}

/// A cgroup without the controller has no such file: then its nearest ancestor's holds.
fn cpuset(chains: &[Chain]) -> Option<CpuSet> {
    let of = |chain: &Chain| -> Option<CpuSet> {
        let names: &[&str] = match chain.version {
            2 => &["cpuset.cpus.effective"],
            _ => &["cpuset.effective_cpus", "cpuset.cpus"],
        };
        let mut files = chain.directories.iter().flat_map(|dir| names.iter().map(|name| dir.join(name)));
        files.find_map(|file| read(&file)?.parse().ok())
    };
    chains.iter().filter_map(of).reduce(|a, b| a.intersection(&b))
}

/// The least of all ancestors, in thousandths of a CPU, and the file that says so.
fn quota(chains: &[Chain]) -> Option<(u32, PathBuf)> {
    let of = |version: u8, directory: &PathBuf| -> Option<(u32, PathBuf)> {
        let (path, quota, period) = if version == 2 {
            let path = directory.join("cpu.max");
            let text = read(&path)?;
            let mut parts = text.split_whitespace().map(str::to_owned);
            (path, parts.next()?, parts.next().unwrap_or_else(|| "100000".into()))
        } else {
            let path = directory.join("cpu.cfs_quota_us");
            (path.clone(), read(&path)?, read(&directory.join("cpu.cfs_period_us"))?)
        };
        // `max` and −1, for no limit, are not numbers in this sense.
        let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
        let milli = quota.checked_mul(1000)?.checked_div(period)?;
        Some((u32::try_from(milli).ok()?.max(1), path))
    };
    let all = chains.iter().flat_map(|c| c.directories.iter().filter_map(move |dir| of(c.version, dir)));
    all.min_by_key(|(milli, _)| *milli)
}

/// CPUs that managed programs do not get, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Withheld {
    /// Unmanaged programs keep so many busy, in thousandths; these are left to them. Empty: the only CPU is shared.
    Unmanaged {
        /// Their use of all allowed CPUs, in thousandths of one CPU.
        busy_milli: u32,
        /// The CPUs that they use most: `busy_milli` ÷ 1000 of them, rounded, but never all that are allowed.
        cpus: CpuSet,
    },
    /// The quota pays for so many, in thousandths; these are used.
    Quota {
        /// In thousandths of one CPU.
        paid_milli: u32,
        /// The CPUs that managed programs get: `paid_milli` ÷ 1000 of them, rounded up.
        used: CpuSet,
    },
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Withheld::Unmanaged { busy_milli, cpus } => {
                write!(f, "unmanaged programs keep {} CPUs busy", in_cpus(*busy_milli))?;
                match cpus.is_empty() {
                    true => f.write_str("; the only CPU is shared with them"),
                    false => write!(f, ": CPUs {cpus} are left to them"),
                }
            }
            Withheld::Quota { paid_milli, used } => {
                write!(f, "the CPU quota pays for {} CPUs: {used} are used", in_cpus(*paid_milli))
            }
        }
    }
}

/// Which of the allowed CPUs managed programs get, and why not all.
///
/// * No more than ⌈quota⌉ CPUs, at least one: on more, programs would stand still for a part of
///   every period, and at different times. Whole units that are close together are preferred; where
///   there are as many cores as CPUs to take, each core gives one.
/// * Less as many CPUs as unmanaged programs keep busy (`unmanaged_milli_per_cpu`, smoothed by the
///   caller, in thousandths of each CPU), rounded to the nearest: half a CPU and less costs
///   nothing. The CPUs that they use most are left to them.
///
/// Empty only if `allowed` is.
pub fn usable(
    allowed: &CpuSet,
    quota_milli_cpus: Option<u32>,
    unmanaged_milli_per_cpu: &BTreeMap<u32, u32>,
    machine: &Machine,
) -> (CpuSet, Vec<Withheld>) {
    let mut reasons = Vec::new();
    if allowed.is_empty() {
        return (CpuSet::new(), reasons);
    }
    let used = |cpu: u32| unmanaged_milli_per_cpu.get(&cpu).copied().unwrap_or(0).min(1000);
    let total: u64 = allowed.iter().map(|cpu| u64::from(used(cpu))).sum();
    // Half a CPU exactly is still within the dead band.
    let busy = ((total + 499) / 1000) as usize;
    let mut left = allowed.clone();
    if busy > 0 {
        // Of CPUs that are used alike the last go, so that what is left stays together.
        let mut by_use: Vec<u32> = allowed.iter().collect();
        by_use.sort_by_key(|&cpu| (Reverse(used(cpu)), Reverse(cpu)));
        let gone = CpuSet::from_cpus(&by_use[..busy.min(by_use.len() - 1)]);
        left = allowed.difference(&gone);
        let busy_milli = total.min(u64::from(u32::MAX)) as u32;
        reasons.push(Withheld::Unmanaged { busy_milli, cpus: gone });
    }
    let paid = quota_milli_cpus.map_or(usize::MAX, |milli| milli.div_ceil(1000).max(1) as usize);
    if paid < left.len() {
        let paid_milli = quota_milli_cpus.unwrap_or(0);
        let cores: CpuSet = one_pu_of_each_core(machine, &left, &used);
        let from = if cores.len() >= paid { cores } else { left };
        let mut picked = CpuSet::new();
        pick(&machine.root, paid, &from, machine, &used, &mut picked);
        // CPUs that the machine's description lacks are allowed all the same.
        let missing = from.difference(&picked).take(paid - picked.len().min(paid));
        left = picked.union(&missing);
        reasons.push(Withheld::Quota { paid_milli, used: left.clone() });
    }
    (left, reasons)
}

fn in_cpus(milli: u32) -> String {
    if milli.is_multiple_of(1000) {
        (milli / 1000).to_string()
    } else {
        format!("{:.2}", f64::from(milli) / 1000.0)
    }
}

fn one_pu_of_each_core(machine: &Machine, from: &CpuSet, used: &impl Fn(u32) -> u32) -> CpuSet {
    let cores = machine.units(Level::Core).map(|core| core.cpus.intersection(from));
    let chosen: CpuSet = cores.filter_map(|pus| pus.iter().min_by_key(|&cpu| used(cpu))).collect();
    let in_cores = machine.units(Level::Core).fold(CpuSet::new(), |all, core| all.union(&core.cpus));
    chosen.union(&from.difference(&in_cores))
}

/// Adds `count` CPUs of `from` below `object`: from the smallest child that has enough, else from
/// several children, the largest first; big cores before small ones.
fn pick(
    object: &Object,
    count: usize,
    from: &CpuSet,
    machine: &Machine,
    used: &impl Fn(u32) -> u32,
    picked: &mut CpuSet,
) {
    let here = object.cpus.intersection(from);
    if here.len() <= count || object.children.is_empty() {
        *picked = picked.union(&here.take(count));
        return;
    }
    let mut need = count;
    let mut children: Vec<Child<'_>> = object
        .children
        .iter()
        .enumerate()
        .map(|(at, object)| {
            let cpus = object.cpus.intersection(from);
            let capacity = Reverse(cpus.iter().map(|cpu| machine.capacity(cpu)).max().unwrap_or(0));
            Child { object, size: cpus.len(), capacity, use_milli: cpus.iter().map(used).sum(), at }
        })
        .collect();
    children.sort_by_key(|c| (Reverse(c.size), c.capacity, c.use_milli, c.at));
    for (at, largest) in children.iter().enumerate() {
        if need == 0 {
            return;
        }
        // The list begins with the widest: once that is too narrow, so are all.
        let best_fit = children[at..]
            .iter()
            .take_while(|child| child.size >= need)
            .min_by_key(|c| (c.capacity, c.size, c.use_milli, c.at));
        if let Some(child) = best_fit {
            return pick(child.object, need, from, machine, used, picked);
        }
        pick(largest.object, need, from, machine, used, picked);
        need -= largest.size;
    }
}

struct Child<'a> {
    object: &'a Object,
    /// CPUs to choose from.
    size: usize,
    capacity: Reverse<u32>,
    use_milli: u32,
    at: usize,
}
