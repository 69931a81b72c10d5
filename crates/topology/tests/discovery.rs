//! What discovery does with files that are missing, damaged or something else.

mod common;

use common::cpus;
use coplace_topology::{Allowance, AllowanceError, CpuSet, Level, Machine};

/// A directory with these files.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

fn error(spec: &str) -> String {
    Machine::load(spec).unwrap_err().to_string()
}

#[test]
fn an_empty_directory_is_refused_by_name() {
    let empty = tree(&[]);
    let error = error(empty.path().to_str().unwrap());
    assert!(error.contains(empty.path().to_str().unwrap()) && error.contains("no CPUs"), "{error}");
}

#[test]
fn a_file_that_is_not_hwloc_xml_is_refused_with_its_reason() {
    for (text, why) in [
        ("hello", "not an hwloc XML file"),
        ("", "not an hwloc XML file"),
        ("<html></html>", "<html>, not <topology>"),
        ("<topology version=\"2.0\"></topology>", "no object of type PU"),
        ("<topology><object type=\"PU\" cpuset=\"0xzz\"/></topology>", "no object of type PU"),
        ("<topology><object", "not an hwloc XML file"),
    ] {
        let directory = tree(&[("m.xml", text)]);
        let path = directory.path().join("m.xml");
        let error = error(path.to_str().unwrap());
        assert!(error.starts_with(path.to_str().unwrap()) && error.contains(why), "{text}: {error}");
        assert!(error.contains("lstopo"), "{error}");
    }
    let directory = tree(&[]);
    let path = directory.path().join("m.xml");
    std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    assert!(error(path.to_str().unwrap()).contains("not text"));
}

#[test]
fn a_name_that_is_no_machine_is_refused_with_the_choices() {
    for spec in ["nonsense", "/no/such/file", "./pack:2", ""] {
        let error = error(spec);
        assert!(error.contains("'this'") && error.contains("pack:2 core:4 pu:2"), "{error}");
    }
    assert!(error("pack:2 core:x").contains("column 13"));
    assert_eq!(Machine::load("pack:2 core:2").unwrap().machine.pu_count(), 4);
}

#[test]
fn damaged_lists_are_passed_over_with_a_note() {
    let cpu = "sys/devices/system/cpu";
    let root = tree(&[
        (&format!("{cpu}/online"), "0-3"),
        (&format!("{cpu}/cpu0/topology/package_cpus_list"), "0-zebra"),
        (&format!("{cpu}/cpu0/topology/core_cpus_list"), "0-1"),
        (&format!("{cpu}/cpu1/topology/core_cpus_list"), "1-2"),
        (&format!("{cpu}/cpu2/cache/index0/level"), "many"),
        (&format!("{cpu}/cpu2/cache/index1/level"), "3"),
        (&format!("{cpu}/cpu0/cpu_capacity"), "1024"),
        ("sys/devices/system/node/node0/cpulist", "0-3"),
        ("sys/devices/system/node/node0/distance", "10 x"),
    ]);
    let found = Machine::from_sysfs(root.path()).unwrap();
    assert_eq!(found.machine.units(Level::Core).count(), 1, "two cores that cross cannot both be");
    assert!(found.notes.iter().any(|note| note.contains("zebra")), "{:?}", found.notes);
    assert!(found.notes.iter().any(|note| note.contains("crosses")), "{:?}", found.notes);
    assert!(found.machine.caches.is_empty() && found.machine.distances.is_none());
    assert!(found.machine.capacities.is_empty(), "one capacity of four says nothing");
}

#[test]
fn offline_cpus_are_no_part_of_the_machine() {
    let cpu = "sys/devices/system/cpu";
    let mut files = vec![(format!("{cpu}/cpu2/online"), "0"), (format!("{cpu}/cpu1/online"), "1")];
    files.extend((0..3).map(|n| (format!("{cpu}/cpu{n}/topology/core_id"), "0")));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let found = Machine::from_sysfs(tree(&files).path()).unwrap();
    assert_eq!(found.machine.all_cpus(), &cpus("0-1"));
}

#[test]
fn capacities_come_from_the_kernel_before_frequencies() {
    let cpu = "sys/devices/system/cpu";
    let with = |file: &str, values: [&str; 2]| {
        let root = tree(&[
            (&format!("{cpu}/online"), "0-1"),
            (&format!("{cpu}/cpu0/{file}"), values[0]),
            (&format!("{cpu}/cpu1/{file}"), values[1]),
        ]);
        Machine::from_sysfs(root.path()).unwrap().machine.capacities
    };
    assert_eq!(with("cpu_capacity", ["1024", "446"]), [(0, 1024), (1, 446)].into());
    assert_eq!(with("cpufreq/cpuinfo_max_freq", ["4000000", "2000000"]), [(0, 1024), (1, 512)].into());
    assert_eq!(with("cpufreq/cpuinfo_max_freq", ["4000000", "4000000"]), [].into());
}

const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-7");

#[test]
fn version_1_and_2_hierarchies_both_limit() {
    let root = tree(&[
        ONLINE,
        ("proc/self/cgroup", "4:cpu,cpuacct:/a/b\n3:cpuset:/\n0::/u"),
        (
            "proc/self/mountinfo",
            "30 1 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             31 1 0:2 / /sys/fs/cgroup/my\\040set rw - cgroup cgroup rw,cpuset\n\
             32 1 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        ),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"),
        ("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1"),
        ("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000"),
        ("sys/fs/cgroup/my set/cpuset.effective_cpus", "0-3"),
        ("sys/fs/cgroup/my set/cpuset.cpus", "0-7"),
        ("sys/fs/cgroup/unified/u/cpu.max", "max 100000"),
    ]);
    let allowance = Allowance::read(root.path(), &cpus("1-5"), None).unwrap();
    assert_eq!(allowance.quota_milli_cpus, Some(1500));
    assert_eq!(allowance.allowed, cpus("1-3"));
    assert!(allowance.notes.iter().any(|note| note.contains("a/cpu.cfs_quota_us pays for 1.50 CPUs")));
}

#[test]
fn a_path_from_outside_the_namespace_falls_back_to_the_mount() {
    for ours in ["0::/../other", "0::/elsewhere", "0::/box/gone"] {
        let root = tree(&[
            ONLINE,
            ("proc/self/cgroup", ours),
            ("proc/self/mountinfo", "32 1 0:3 /box /cg rw - cgroup2 cgroup2 rw"),
            ("cg/cpu.max", "50000 100000"),
            ("cg/cpuset.cpus.effective", "4"),
        ]);
        let allowance = Allowance::read(root.path(), &CpuSet::first(8), None).unwrap();
        assert_eq!((allowance.quota_milli_cpus, allowance.allowed), (Some(500), cpus("4")), "{ours}");
    }
}

#[test]
fn without_cgroups_only_affinity_limits() {
    let root = tree(&[ONLINE]);
    let allowance = Allowance::read(root.path(), &cpus("2-7"), None).unwrap();
    assert_eq!((allowance.allowed, allowance.cpuset, allowance.quota_milli_cpus), (cpus("2-7"), None, None));
    assert_eq!(allowance.online, cpus("0-7"));
}

#[test]
fn the_mask_counts_where_the_online_file_contradicts_it() {
    // lxcfs counts the CPUs of a container from 0; mask and cpuset have the kernel's numbers.
    for (online, mask, cpuset, allowed) in [
        ("0", "24", "24", "24"),
        ("0-3", "24-27", "24-27", "24-27"),
        ("0-3", "2-5", "2-5", "2-5"),
        ("0-3", "2-5", "3,5", "3,5"),
        // Within what the file says it is believed.
        ("0-3", "1-2", "0-3", "1-2"),
    ] {
        let root = tree(&[
            ("sys/devices/system/cpu/online", online),
            ("proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t{mask}")),
            ("proc/self/cgroup", "0::/"),
            ("proc/self/mountinfo", "32 1 0:3 / /cg rw - cgroup2 cgroup2 rw"),
            ("cg/cpuset.cpus.effective", cpuset),
        ]);
        let allowance = Allowance::read(root.path(), &cpus(mask), None).unwrap();
        assert_eq!(allowance.allowed, cpus(allowed), "{online} {mask}");
        let noted = allowance.notes.iter().any(|note| note.contains("is disregarded"));
        assert_eq!(noted, !cpus(mask).is_subset(&cpus(online)), "{:?}", allowance.notes);
    }
}

#[test]
fn configured_cpus_confine_and_missing_ones_are_named() {
    let root = tree(&[ONLINE]);
    let read = |configured: &str| Allowance::read(root.path(), &CpuSet::first(8), Some(&cpus(configured)));
    let allowance = read("6-9").unwrap();
    assert_eq!(allowance.allowed, cpus("6-7"));
    assert!(allowance.notes[0].contains("8-9"), "{:?}", allowance.notes);
    assert!(matches!(read("8"), Err(AllowanceError::Configured { .. })));
    let apart = tree(&[ONLINE, ("proc/self/status", "Cpus_allowed_list:\t5")]);
    let nothing = Allowance::read(apart.path(), &cpus("3"), None);
    assert!(matches!(nothing, Err(AllowanceError::Nothing { .. })));
}

#[test]
fn where_no_cpu_is_left_each_limit_is_named_or_its_absence() {
    let why = |files: &[(&str, &str)], mask: &str| {
        let root = tree(&[&[ONLINE], files].concat());
        Allowance::read(root.path(), &cpus(mask), None).unwrap_err().to_string()
    };
    let apart = ("proc/self/status", "Cpus_allowed_list:\t5");
    assert_eq!(
        why(&[apart], "3"),
        "no CPU is left: online are 0-7, the affinity mask has none, no cpuset is in force"
    );
    let cpuset = [
        ("proc/self/cgroup", "0::/"),
        ("proc/self/mountinfo", "32 1 0:3 / /cg rw - cgroup2 cgroup2 rw"),
        ("cg/cpuset.cpus.effective", "4"),
    ];
    assert_eq!(
        why(&cpuset, "2-3"),
        "no CPU is left: online are 0-7, the affinity mask has 2-3, the cpuset 4"
    );
}
