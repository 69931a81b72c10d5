//! Control groups below an imitated root: regular files stand in for the kernel's.

use std::fs;
use std::path::{Path, PathBuf};

use coplace_linux::cgroup::{self, CpuMax, FreezeState};
use coplace_linux::{Error, Process, Root, cgroup1, cgroup2, procfs};
use topology::CpuSet;

struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        Machine { dir: tempfile::tempdir().unwrap() }
    }

    fn root(&self) -> Root {
        Root::at(self.dir.path())
    }

    fn put(&self, path: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// A process with the given command name in the given groups.
    fn process(&self, pid: u32, ppid: u32, comm: &str, cgroup: &str) -> Process {
        let zeros = "0 ".repeat(30);
        let start = 1_000 + pid;
        // Fields 3-22, then up to 39 (processor = 5) and beyond.
        let line = format!(
            "{pid} ({comm}) S {ppid} {pid} 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 {start} {}5 {zeros}\n",
            "0 ".repeat(16)
        );
        self.put(&format!("proc/{pid}/stat"), &line);
        self.put(
            &format!("proc/{pid}/status"),
            "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nTracerPid:\t0\nCpus_allowed_list:\t0-3,8\n",
        );
        self.put(&format!("proc/{pid}/cgroup"), cgroup);
        Process { pid, start_time_ticks: u64::from(start) }
    }

    /// We are process 50 of a machine with these mounts.
    fn mounts(&self, mountinfo: &str, own_cgroup: &str) {
        let own = self.process(50, 1, "tests", own_cgroup);
        self.put("proc/50/mountinfo", mountinfo);
        std::os::unix::fs::symlink(own.pid.to_string(), self.dir.path().join("proc/self")).unwrap();
    }

    fn version2_group(&self, dir: &str) {
        for (file, text) in [
            ("cgroup.controllers", "cpuset cpu memory pids\n"),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", ""),
            ("cgroup.freeze", "0\n"),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("cpuset.cpus", "\n"),
            ("cpuset.cpus.effective", "0-7\n"),
            ("cpu.weight", "100\n"),
            ("cpu.idle", "0\n"),
            ("cpu.max", "max 100000\n"),
        ] {
            self.put(&format!("{dir}/{file}"), text);
        }
    }
}

const V2: &str = "40 30 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

fn unified() -> Machine {
    let machine = Machine::new();
    machine.mounts(V2, "0::/user.slice\n");
    for level in ["", "/coplace", "/coplace/s1", "/coplace/s1/lu", "/user.slice"] {
        machine.version2_group(&format!("sys/fs/cgroup{level}"));
    }
    machine
}

#[test]
fn v2_controllers_are_enabled_above_the_group_and_not_in_it() {
    let machine = unified();
    let hierarchy = cgroup2::Hierarchy::discover(&machine.root()).unwrap();
    assert!(
        hierarchy.has("cpuset") && hierarchy.has("cpu") && hierarchy.has("freezer") && !hierarchy.has("io")
    );
    hierarchy.group("s1", "lu", &machine.root()).unwrap();
    for level in ["", "/coplace", "/coplace/s1"] {
        // The last of two writes; a regular file keeps no list.
        assert_eq!(machine.get(&format!("sys/fs/cgroup{level}/cgroup.subtree_control")), "+cpu");
    }
    assert_eq!(machine.get("sys/fs/cgroup/coplace/s1/lu/cgroup.subtree_control"), "");
}

#[test]
fn v2_controllers_that_are_handed_down_already_are_left_alone() {
    let machine = unified();
    machine.put("sys/fs/cgroup/cgroup.subtree_control", "memory cpuset cpu\n");
    let hierarchy = cgroup2::Hierarchy::discover(&machine.root()).unwrap();
    hierarchy.group("s1", "lu", &machine.root()).unwrap();
    assert_eq!(machine.get("sys/fs/cgroup/cgroup.subtree_control"), "memory cpuset cpu\n");
}

#[test]
fn v2_values_are_written_in_the_kernels_form() {
    let machine = unified();
    let hierarchy = cgroup2::Hierarchy::discover(&machine.root()).unwrap();
    let group = hierarchy.group("s1", "lu", &machine.root()).unwrap();
    let file = |name: &str| machine.get(&format!("sys/fs/cgroup/coplace/s1/lu/{name}"));
    group.set_cpus(&"0-2,5".parse::<CpuSet>().unwrap()).unwrap();
    assert_eq!(file("cpuset.cpus"), "0-2,5");
    assert_eq!(group.cpus().unwrap(), CpuSet::first(8));
    group.set_weight(20_000).unwrap();
    assert_eq!(file("cpu.weight"), "10000");
    hierarchy.set_weight("s1", 250).unwrap();
    assert_eq!(machine.get("sys/fs/cgroup/coplace/s1/cpu.weight"), "250");
    let idle = group.idle_switch().unwrap();
    idle.set(true).unwrap();
    assert_eq!(file("cpu.idle").trim(), "1");
    idle.set(false).unwrap();
    assert_eq!(file("cpu.idle").trim(), "0");
    // Nothing in a regular file becomes frozen: the wait ends at its timeout, with the path.
    let error = group.freeze(2_000_000).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains("cgroup.freeze"), "{error}");
    assert_eq!(file("cgroup.freeze"), "1");
    assert_eq!(group.freeze_state().unwrap(), FreezeState::Freezing);
    machine.put("sys/fs/cgroup/coplace/s1/lu/cgroup.events", "populated 1\nfrozen 1\n");
    group.freeze(0).unwrap();
}

#[test]
fn a_v2_group_without_a_controller_is_absent_with_a_remedy() {
    let machine = unified();
    let hierarchy = cgroup2::Hierarchy::discover(&machine.root()).unwrap();
    let group = hierarchy.group("s1", "lu", &machine.root()).unwrap();
    fs::remove_file(group.dir("cpu").unwrap().join("cpu.idle")).unwrap();
    match group.idle_switch().unwrap_err() {
        Error::Absent(absent) => assert!(absent.remedy.contains("Delegate=yes"), "{absent}"),
        error => panic!("{error}"),
    }
}

#[test]
fn a_tree_enters_a_v2_group_and_each_member_goes_back() {
    let machine = unified();
    let root = machine.root();
    machine.version2_group("sys/fs/cgroup/one.scope");
    machine.version2_group("sys/fs/cgroup/two.scope");
    let parent = machine.process(60, 1, "cg (main) x", "0::/one.scope\n");
    let child = machine.process(61, 60, "worker", "0::/two.scope\n");
    let stranger = machine.process(62, 1, "stranger", "0::/one.scope\n");
    let mut group = cgroup2::Hierarchy::discover(&root).unwrap().group("s1", "lu", &root).unwrap();
    let moved = group.add(&[parent], &root).unwrap();
    assert!(moved.settled && moved.failed.is_empty(), "{moved:?}");
    assert_eq!(moved.processes, [parent, child]);
    assert_eq!(group.origins().processes(), [parent, child]);
    assert!(!group.origins().processes().contains(&stranger));
    // What the kernel would show now.
    machine.process(60, 1, "cg (main) x", "0::/coplace/s1/lu\n");
    machine.process(61, 60, "worker", "0::/coplace/s1/lu\n");
    let moved = group.release(&[parent, child], &root);
    assert!(moved.failed.is_empty(), "{moved:?}");
    assert_eq!(machine.get("sys/fs/cgroup/one.scope/cgroup.procs"), "60");
    assert_eq!(machine.get("sys/fs/cgroup/two.scope/cgroup.procs"), "61");
    assert!(group.origins().processes().is_empty());
}

#[test]
fn the_tightest_limit_on_the_way_up_counts_in_either_version() {
    let machine = unified();
    machine.version2_group("sys/fs/cgroup/a");
    machine.version2_group("sys/fs/cgroup/a/b");
    machine.put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    machine.put("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    let process = machine.process(70, 1, "x", "2:cpu,cpuacct:/q/r\n0::/a/b\n");
    let limit = cgroup2::cpu_max(process.pid, &machine.root()).unwrap().unwrap();
    assert_eq!((limit, limit.milli_cpus()), (CpuMax { quota_us: 150_000, period_us: 100_000 }, 1_500));
    assert_eq!(cgroup2::cpu_max(50, &machine.root()).unwrap(), None);
    machine.put(
        "proc/50/mountinfo",
        "41 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n",
    );
    machine.put("sys/fs/cgroup/cpu,cpuacct/q/cpu.cfs_quota_us", "50000\n");
    machine.put("sys/fs/cgroup/cpu,cpuacct/q/cpu.cfs_period_us", "100000\n");
    machine.put("sys/fs/cgroup/cpu,cpuacct/q/r/cpu.cfs_quota_us", "-1\n");
    assert_eq!(cgroup1::cpu_max(process.pid, &machine.root()).unwrap().unwrap().milli_cpus(), 500);
}

#[test]
fn mounts_with_blanks_and_partial_hierarchies_are_parsed() {
    let machine = Machine::new();
    machine.mounts(
        "40 30 0:27 /docker/7 /sys/fs/c\\040group rw - cgroup2 cgroup2 rw\n\
         41 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
         42 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
         44 30 0:30 / /sys/fs/cgroup/set ro - cgroup cgroup ro,seclabel,cpuset,noprefix,clone_children\n\
         43 30 0:27 / /elsewhere rw - cgroup2 cgroup2 rw\n",
        "0::/docker/7/x\n",
    );
    let mounts = cgroup::mounts(&machine.root()).unwrap();
    let v2 = mounts.v2.unwrap();
    assert_eq!(v2.point, machine.dir.path().join("sys/fs/c group"));
    assert_eq!(v2.dir("/docker/7/x"), v2.point.join("x"));
    assert_eq!(v2.dir("/docker/77"), v2.point, "outside of what is mounted");
    assert_eq!(v2.dir("/../other"), v2.point);
    // Nothing but controllers.
    assert_eq!(mounts.v1.keys().collect::<Vec<_>>(), ["cpu", "cpuacct", "cpuset"]);
}

#[test]
fn a_machine_without_cgroups_is_an_absence_with_a_remedy() {
    let machine = Machine::new();
    machine.mounts("1 0 0:1 / / rw - ext4 /dev/vda rw\n", "");
    for error in [
        cgroup1::Hierarchy::discover(&machine.root()).map(drop).unwrap_err(),
        cgroup2::Hierarchy::discover(&machine.root()).map(drop).unwrap_err(),
    ] {
        let Error::Absent(absent) = error else { panic!("{error}") };
        assert!(!absent.why.is_empty() && !absent.remedy.is_empty());
    }
}

#[test]
fn a_v1_cpuset_inherits_its_values_before_a_process_enters() {
    let machine = Machine::new();
    machine.mounts("41 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n", "3:cpuset:/jobs\n");
    for level in ["jobs", "jobs/coplace", "jobs/coplace/s1", "jobs/coplace/s1/lu"] {
        let own = level == "jobs";
        machine.put(&format!("sys/fs/cgroup/cpuset/{level}/cpuset.cpus"), if own { "0-3\n" } else { "\n" });
        machine.put(&format!("sys/fs/cgroup/cpuset/{level}/cpuset.mems"), if own { "0-1\n" } else { "\n" });
    }
    let hierarchy = cgroup1::Hierarchy::discover(&machine.root()).unwrap();
    assert!(hierarchy.has("cpuset") && !hierarchy.has("freezer"));
    let group = hierarchy.group("s1", "lu").unwrap();
    for level in ["", "/s1", "/s1/lu"] {
        assert_eq!(machine.get(&format!("sys/fs/cgroup/cpuset/jobs/coplace{level}/cpuset.cpus")), "0-3");
        assert_eq!(machine.get(&format!("sys/fs/cgroup/cpuset/jobs/coplace{level}/cpuset.mems")), "0-1");
    }
    assert!(matches!(group.freeze_switch(), Err(Error::Absent(_))));
}

#[test]
fn a_v1_hierarchy_serves_each_of_its_controllers() {
    let machine = Machine::new();
    let joint = "/sys/fs/cgroup/joint rw - cgroup cgroup rw,cpuset,cpu,cpuacct";
    let alone = "/sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer";
    let own = "3:cpuset,cpu,cpuacct:/jobs\n2:freezer:/\n";
    machine.mounts(&format!("41 30 0:30 / {joint}\n42 30 0:31 / {alone}\n"), own);
    machine.put("sys/fs/cgroup/freezer/freezer.state", "THAWED\n");
    for level in ["jobs", "jobs/coplace", "jobs/coplace/s1", "jobs/coplace/s1/lu"] {
        for (file, text) in [("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n"), ("cpu.shares", "1024\n")] {
            machine.put(&format!("sys/fs/cgroup/joint/{level}/{file}"), text);
        }
    }
    let hierarchy = cgroup1::Hierarchy::discover(&machine.root()).unwrap();
    assert!(["cpuset", "cpu", "freezer"].iter().all(|controller| hierarchy.has(controller)));
    assert_eq!(hierarchy.base("cpu"), hierarchy.base("cpuset"));
    assert_eq!(hierarchy.dirs("s1", "lu").unwrap().len(), 2, "one in each hierarchy");
    let group = hierarchy.group("s1", "lu").unwrap();
    assert_eq!(group.dir("cpu"), group.dir("cpuset"));
    group.set_weight(200).unwrap();
    assert_eq!(machine.get("sys/fs/cgroup/joint/jobs/coplace/s1/lu/cpu.shares"), "2048");
    // With either, and none of it where no cpuset is to be made.
    for time in [true, false] {
        assert!(hierarchy.clone().of_cpu_time(time).has("cpuset"), "{time}");
    }
    assert!(!hierarchy.clone().of_cpu_time(true).has("freezer"));
    assert!(!hierarchy.without_cpusets().unwrap().has("cpu"));
}

#[test]
fn stat_and_status_are_read_whatever_a_command_calls_itself() {
    let machine = Machine::new();
    let process = machine.process(60, 7, "a) R 1 (b", "");
    let stat = procfs::stat(60, &machine.root()).unwrap();
    assert_eq!((stat.comm.as_str(), stat.state, stat.ppid, stat.processor), ("a) R 1 (b", 'S', 7, 5));
    assert_eq!((stat.utime_ticks, stat.stime_ticks, stat.process()), (150, 50, process));
    let status = procfs::status(60, &machine.root()).unwrap();
    assert_eq!((status.uid, status.effective_uid, status.cpus_allowed.len()), (1000, 1001, 5));
    machine.put("proc/61/stat", "61 (cut) S 1 2");
    let error = procfs::stat(61, &machine.root()).unwrap_err().to_string();
    assert!(error.contains("proc/61/stat") && error.contains("field 6"), "{error}");
    let ns = procfs::tree_cpu_time_ns(&[process], &machine.root());
    assert_eq!(ns, 200 * 1_000_000_000 / procfs::ticks_per_second());
}

#[test]
fn the_environment_finds_members_that_lost_their_parents() {
    let machine = Machine::new();
    let marked = machine.process(60, 1, "daemon", "");
    machine.process(61, 1, "other", "");
    machine.put("proc/60/environ", "PATH=/bin\0COPLACE_APP=7\0");
    machine.put("proc/61/environ", "COPLACE_APP=77\0");
    assert_eq!(procfs::with_variable("COPLACE_APP", "7", &machine.root()).unwrap(), [marked]);
}

#[test]
fn errors_name_the_file_that_is_missing() {
    let root = Root::at(Path::new("/nonexistent"));
    for error in [
        procfs::cpu_times(&root).map(drop).unwrap_err(),
        procfs::loadavg(&root).map(drop).unwrap_err(),
        procfs::all(&root).map(drop).unwrap_err(),
        cgroup::mounts(&root).map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("/nonexistent/proc"), "{error}");
    }
}
