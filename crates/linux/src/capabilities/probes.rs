//! The trying itself: `Ok` says how or where, `Err` why not and what to do.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use topology::CpuSet;

use super::Mechanism;
use crate::affinity;
use crate::cgroup::{self, create_dir};
use crate::cgroup1;
use crate::cgroup2::{self, DELEGATE, scope};
use crate::clock;
use crate::error::{Absent, Error};
use crate::perf;
use crate::pidfd::PidFd;
use crate::procfs::Process;
use crate::root::{Root, read, write};

type Found = Result<String, Absent>;
type Table = BTreeMap<Mechanism, Found>;

const AS_ROOT: &str = "run as root";

/// `what` is filled in by the caller.
fn absent(why: impl std::fmt::Display, remedy: &str) -> Absent {
    Absent::new("", why, remedy)
}

fn from_error(error: Error, remedy: &str) -> Absent {
    match error {
        Error::Absent(absent) => absent,
        error => absent(error, remedy),
    }
}

fn lookup(table: Result<Table, Absent>) -> impl Fn(Mechanism) -> Found {
    move |mechanism| match &table {
        Ok(table) => {
            table.get(&mechanism).cloned().unwrap_or_else(|| Err(absent("it was not tried", AS_ROOT)))
        }
        Err(all) => Err(all.clone()),
    }
}

/// Tries the v1 hierarchies on a group that holds nobody.
pub fn version1(root: &Root) -> impl Fn(Mechanism) -> Found {
    lookup(try_version1(root).map_err(|error| from_error(error, AS_ROOT)))
}

fn try_version1(root: &Root) -> Result<Table, Error> {
    const SECOND_NS: u64 = 1_000_000_000;
    let hierarchy = cgroup1::Hierarchy::discover(root)?;
    let group = hierarchy.group(&format!("probe-{}", std::process::id()), "probe")?;
    let found = |controller: &str, result: crate::Result<()>| {
        let at = || {
            group
                .dir(controller)
                .and_then(|dir| dir.ancestors().nth(3))
                .map(|base| base.display().to_string())
        };
        result
            .map(|()| format!("below {}", at().unwrap_or_default()))
            .map_err(|error| from_error(error, AS_ROOT))
    };
    let toggle = |switch: crate::Switch| switch.set(true).and_then(|()| switch.set(false));
    let table = Table::from([
        (Mechanism::CpusetV1, found("cpuset", group.cpus().and_then(|cpus| group.set_cpus(&cpus)))),
        (Mechanism::WeightsV1, found("cpu", group.set_weight(100))),
        (Mechanism::IdleV1, found("cpu", group.idle_switch().and_then(toggle))),
        (
            Mechanism::FreezerV1,
            found("freezer", group.freeze(SECOND_NS).and_then(|_| group.thaw(SECOND_NS)).map(drop)),
        ),
    ]);
    group.remove(root)?;
    Ok(table)
}

/// Tries v2 on a group that holds nobody. Controllers that are not handed down to it yet are not
/// enabled for the trial: that would change every group of the machine.
pub fn version2(root: &Root) -> impl Fn(Mechanism) -> Found {
    lookup(try_version2(root).map_err(|error| from_error(error, AS_ROOT)))
}

fn try_version2(root: &Root) -> Result<Table, Error> {
    let hierarchy = cgroup2::Hierarchy::discover(root)?;
    let base = hierarchy.base().to_owned();
    let dir = base.join(format!("coplace-probe-{}", std::process::id()));
    create_dir(&dir)?;
    let freeze = cgroup::wait_until("freezing", &dir, 1_000_000_000, || {
        write(&dir.join("cgroup.freeze"), "1")?;
        Ok(true)
    })
    .and_then(|_| write(&dir.join("cgroup.freeze"), "0"));
    let freezer = freeze
        .map(|()| format!("below {}", base.display()))
        .map_err(|error| from_error(error, "Linux 5.2 or newer is needed"));
    let has_idle = kernel_at_least(root, 5, 15);
    let controller = |name: &str, file: &str| -> Found {
        if !hierarchy.has(name) {
            let why = format!("the controller '{name}' is not in {}/cgroup.controllers", base.display());
            let remedy = match scope::is_one(&base) {
                true => scope::DELEGATE_TO_USERS.to_owned(),
                false => format!(
                    "as root add it to cgroup.subtree_control of the groups above (a v1 mount of it must go first); as a user {DELEGATE}"
                ),
            };
            return Err(Absent::new("", why, remedy));
        }
        let path = dir.join(file);
        if path.exists() {
            let text = read(&path).map_err(|error| from_error(error, AS_ROOT))?;
            return match write(&path, text.trim()) {
                Ok(()) => Ok(format!("below {}", base.display())),
                // An empty cpuset means "as the parent"; writing it back is refused by old kernels.
                Err(_) if text.trim().is_empty() => Ok(format!("below {}", base.display())),
                Err(error) => Err(from_error(error, AS_ROOT)),
            };
        }
        if file == "cpu.idle" && !has_idle {
            return Err(absent("the kernel is older than Linux 5.15", "a newer kernel is needed"));
        }
        Ok(format!("below {}, where '{name}' will be enabled when it is needed", base.display()))
    };
    let table = Table::from([
        (Mechanism::FreezerV2, freezer),
        (Mechanism::CpusetV2, controller("cpuset", "cpuset.cpus")),
        (Mechanism::WeightsV2, controller("cpu", "cpu.weight")),
        (Mechanism::IdleV2, controller("cpu", "cpu.idle")),
    ]);
    fs::remove_dir(&dir).map_err(|e| Error::io("remove the trial group", dir, e))?;
    Ok(table)
}

fn kernel_at_least(root: &Root, major: u32, minor: u32) -> bool {
    let release = read(&root.proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|part| part.trim().parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Things that can only be tried on the machine that we run on.
fn live(root: &Root) -> Result<(), Absent> {
    if root.is_live() {
        return Ok(());
    }
    Err(absent(format!("{} is not the running machine", root.base.display()), "ask on the machine itself"))
}

/// Runs a trial in a thread that ends with it, so that the caller keeps its mask and priority.
fn run_in_thread<T: Send>(trial: impl FnOnce() -> T + Send) -> Result<T, Absent> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .spawn_scoped(scope, trial)
            .map_err(|e| absent(format!("no thread can be made: {e}"), "raise ulimit -u"))?
            .join()
            .map_err(|_| absent("the trial failed", "report this"))
    })
}

pub fn affinity(root: &Root) -> Found {
    live(root)?;
    let set = || affinity::get(0).and_then(|mask| affinity::set(0, &mask).map(|()| mask));
    let mask =
        run_in_thread(set)?.map_err(|error| from_error(error, "allow sched_setaffinity in the container"))?;
    Ok(format!("this user's programs, on CPUs {mask}"))
}

pub fn stop(root: &Root) -> Found {
    live(root)?;
    match Process::own(root).and_then(|own| PidFd::open(own, root)) {
        Ok(_) => Ok("through pidfd".to_owned()),
        Err(_) => Ok("by kill, with a check of identity (pidfd needs Linux 5.3)".to_owned()),
    }
}

pub fn real_time(root: &Root) -> Found {
    live(root)?;
    match run_in_thread(clock::raise_priority)? {
        clock::Priority::RealTime { priority } => Ok(format!("priority {priority}")),
        clock::Priority::Nice { .. } => {
            Err(absent("SCHED_FIFO is refused", "run as root or raise RLIMIT_RTPRIO (limits.conf: rtprio 1)"))
        }
        clock::Priority::Unchanged { why } => {
            Err(absent(why, "run as root or raise RLIMIT_RTPRIO (limits.conf: rtprio 1)"))
        }
    }
}

pub fn nice(root: &Root) -> Found {
    live(root)?;
    let nice = clock::RAISED_NICE;
    // The niceness of a process is that of one thread on Linux: this ends with the trial.
    run_in_thread(|| rustix::process::setpriority_process(None, nice))?
        .map(|()| "granted".to_owned())
        .map_err(|e| absent(io::Error::from(e), "run as root or raise RLIMIT_NICE (limits.conf: nice -11)"))
}

pub fn perf_events(root: &Root) -> Found {
    live(root)?;
    match perf::can_count(root)? {
        true => Ok("instructions of this user's programs".to_owned()),
        false => Err(absent(
            "the hardware counters of this machine stand still",
            "give the virtual machine a vPMU; until then the preload library counts regions instead",
        )),
    }
}

pub fn resctrl(root: &Root) -> Found {
    let dir = root.sys.join("fs/resctrl");
    if dir.join("schemata").exists() {
        let schemata = read(&dir.join("schemata")).map_err(|error| from_error(error, AS_ROOT))?;
        let resources: Vec<&str> =
            schemata.lines().filter_map(|line| line.split(':').next()).map(str::trim).collect();
        let monitors = dir.join("info/L3_MON").is_dir();
        return Ok(resources
            .into_iter()
            .chain(monitors.then_some("monitoring"))
            .collect::<Vec<_>>()
            .join(", "));
    }
    if dir.is_dir() {
        return Err(absent("it is not mounted", "as root: mount -t resctrl resctrl /sys/fs/resctrl"));
    }
    Err(absent(
        "this CPU or this kernel has no cache or bandwidth allocation",
        "a server CPU with RDT, QoS or MPAM is needed",
    ))
}

pub fn numa(root: &Root) -> Found {
    let path = root.sys.join("devices/system/node/online");
    let nodes: CpuSet = match read(&path) {
        Ok(text) => text.parse().map_err(|e| absent(format!("{}: {e}", path.display()), "report this"))?,
        Err(_) => return Err(absent("the kernel shows no NUMA nodes", "nothing is needed: memory is one")),
    };
    if nodes.len() < 2 {
        return Err(absent("there is one node only", "nothing is needed: memory is equally near"));
    }
    Ok(format!("nodes {nodes}"))
}
