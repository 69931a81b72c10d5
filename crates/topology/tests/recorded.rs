//! The recorded machines in `tests/machines`: what discovery makes of them, and their shapes.

mod common;

use std::path::{Path, PathBuf};

use common::{cpus, table};
use coplace_topology::{Allowance, CpuSet, Discovery, Level, Machine};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/machines").join(name)
}

fn load(name: &str) -> Discovery {
    Machine::load(path(name).to_str().unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

fn allowance(name: &str) -> Allowance {
    Allowance::read(&path(name), &CpuSet::first(64), None).unwrap()
}

fn count(machine: &Machine, level: Level) -> usize {
    machine.units(level).count()
}

#[test]
fn a_part_of_a_machine_has_what_is_on_its_cpus_and_nothing_else() {
    let machine = load("quad-opteron-8435.xml").machine;
    let part = machine.only(&cpus("0-5,7,9,99"));
    assert_eq!((part.pu_count(), part.name.as_str()), (8, machine.name.as_str()));
    let packages: Vec<_> = part.units(Level::Package).map(|unit| unit.cpus.clone()).collect();
    assert_eq!(packages, [cpus("0-5"), cpus("7,9")]);
    assert_eq!((count(&part, Level::Numa), count(&part, Level::Core)), (2, 8));
    assert!(part.caches.iter().all(|cache| cache.cpus.is_subset(part.all_cpus())));
    assert_eq!(machine.only(machine.all_cpus()), machine);
}

#[test]
fn the_papers_quad_opteron_has_its_recorded_structure() {
    let Discovery { machine, notes } = load("quad-opteron-8435.xml");
    assert_eq!(notes, [] as [&str; 0]);
    assert_eq!((machine.name.as_str(), machine.pu_count()), ("quad-opteron-8435", 24));
    for (level, units) in
        [(Level::Package, 4), (Level::Numa, 4), (Level::Llc, 4), (Level::Core, 24), (Level::Pu, 24)]
    {
        assert_eq!(count(&machine, level), units, "{level}");
    }
    assert_eq!(count(&machine, Level::Group), 0);
    let cache = machine.last_level_cache_of(13).unwrap();
    assert_eq!((cache.level, cache.size_bytes, cache.line_bytes), (3, Some(5 << 20), Some(64)));
    assert_eq!(cache.cpus, cpus("12-17"));
    assert_eq!(
        (machine.distance(0, 0), machine.distance(0, 3), machine.distance(0, 4)),
        (Some(10), Some(20), None)
    );
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "24 machine: 0-23\n\
         12 2 packages: 0-11 | 12-23\n\
         6 package: 0-5 | 6-11 | 12-17 | 18-23\n\
         3 half a package: 0-2 | 3-5 | 6-8 | 9-11 | 12-14 | 15-17 | 18-20 | 21-23\n\
         2 a third of a package: 0-1 | 2-3 | 4-5 | 6-7 | 8-9 | 10-11 | 12-13 | 14-15 | 16-17 | 18-19 | 20-21 | 22-23\n\
         1 core: 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 | 16 | 17 | 18 | 19 | 20 | 21 | 22 | 23\n"
    );
}

#[test]
fn the_papers_figure_1_is_read_from_version_1_of_hwlocs_format() {
    let machine = load("dual-socket-dual-core.xml").machine;
    assert_eq!(machine.name, "dual-socket-dual-core");
    assert_eq!(
        (count(&machine, Level::Package), count(&machine, Level::Llc), count(&machine, Level::Numa)),
        (2, 2, 0)
    );
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "4 machine: 0-3\n2 package: 0-1 | 2-3\n1 core: 0 | 1 | 2 | 3\n"
    );
}

#[test]
fn a_hybrid_laptop_keeps_clusters_whole_and_kinds_apart() {
    let machine = load("hybrid-laptop").machine;
    assert_eq!(
        machine.kinds.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>(),
        ["cpu_core", "cpu_atom"]
    );
    assert_eq!((machine.capacity(0), machine.capacity(15)), (1024, 762));
    let clusters: Vec<_> = machine.units(Level::Group).map(|group| group.cpus.to_string()).collect();
    assert_eq!(clusters, ["8-11", "12-15"]);
    assert_eq!(machine.core_of(1).unwrap().cpus, cpus("0-1"));
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "16 machine: 0-15\n\
         8 half a package: 0-3,8-11 | 4-7,12-15\n\
         4 a quarter of a package: 0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15\n\
         1 core of capacity 762: 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15, left over 0-7\n"
    );
}

#[test]
fn seven_cpus_are_cut_with_one_left_over() {
    let machine = load("seven-cpus").machine;
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "7 machine: 0-6\n\
         3 3 cores: 0-2 | 3-5, left over 6\n\
         2 2 cores: 0-1 | 2-3 | 4-5, left over 6\n\
         1 core: 0 | 1 | 2 | 3 | 4 | 5 | 6\n"
    );
}

#[test]
fn a_cpuset_with_holes_is_cut_by_what_its_packages_have_left() {
    let machine = load("cpuset-with-holes").machine;
    let allowance = allowance("cpuset-with-holes");
    assert_eq!(allowance.cpuset, Some(cpus("0-2,4-7")));
    assert_eq!(allowance.allowed, cpus("0-2,5-7"));
    assert_eq!(allowance.quota_milli_cpus, None);
    assert_eq!(
        table(&machine, &allowance.allowed),
        "6 all usable CPUs: 0-2,5-7\n3 package: 0-2 | 5-7\n1 core: 0 | 1 | 2 | 5 | 6 | 7\n"
    );
}

#[test]
fn a_containers_quota_is_the_least_of_all_its_ancestors() {
    let machine = load("container").machine;
    let allowance = allowance("container");
    assert_eq!(allowance.allowed, cpus("2-7"));
    assert_eq!(allowance.quota_milli_cpus, Some(2500));
    let (usable, reasons) =
        coplace_topology::usable(&allowance.allowed, Some(2500), &Default::default(), &machine);
    assert_eq!(usable, cpus("2,4,6"), "a PU of each core: three cores do more than one and a half");
    assert_eq!(reasons[0].to_string(), "the CPU quota pays for 2.50 CPUs: 2,4,6 are used");
    assert_eq!(table(&machine, &usable), "3 all usable CPUs: 2,4,6\n1 core: 2 | 4 | 6\n");
}

#[test]
fn wsl2_is_a_flat_machine_with_a_note() {
    let Discovery { machine, notes } = load("wsl2");
    assert_eq!((machine.pu_count(), machine.levels()), (4, vec![Level::Node, Level::Pu]));
    assert!(notes[0].contains("/proc/cpuinfo"), "{notes:?}");
    assert!(machine.core_of(0).is_none() && machine.last_level_cache_of(0).is_none());
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "4 machine: 0-3\n2 half a machine: 0-1 | 2-3\n1 PU: 0 | 1 | 2 | 3\n"
    );
    assert_eq!(allowance("wsl2").allowed, cpus("0-3"));
}

#[test]
fn a_virtual_machine_of_two_cpus_is_cut_once() {
    let machine = load("two-cpu-vm").machine;
    assert_eq!(machine.last_level_cache_of(1).unwrap().size_bytes, Some(32 << 20));
    assert_eq!(machine.capacities, Default::default());
    assert_eq!(
        machine.to_synthetic().as_deref(),
        Some(
            "pack:1 [numa] l3:1(size=32MB linesize=64) l2:2(size=512KB linesize=64) l1:1(size=32KB linesize=64) core:1 pu:1"
        )
    );
    assert_eq!(table(&machine, machine.all_cpus()), "2 machine: 0-1\n1 core: 0 | 1\n");
    let allowance = allowance("two-cpu-vm");
    assert_eq!((allowance.allowed, allowance.quota_milli_cpus), (cpus("0-1"), None));
}

#[test]
fn hwloc_adds_what_sysfs_lacks_and_changes_nothing_else() {
    let rich = load("quad-opteron-8435.xml").machine;
    let mut poor = Machine::synthetic("pack:4 core:6").unwrap();
    poor.refine(&rich);
    assert_eq!(poor.levels(), rich.levels());
    assert_eq!((&poor.caches, &poor.distances), (&rich.caches, &rich.distances));
    let mut other = Machine::synthetic("pack:3 l3:1 core:8").unwrap();
    let before = other.root.clone();
    other.refine(&rich);
    assert_eq!(count(&other, Level::Numa), 2, "nodes that cross a package are left out");
    assert_eq!(other.units(Level::Package).count(), 3);
    assert_eq!(other.root.cpus, before.cpus);
}

#[test]
fn this_machine_is_found_and_can_be_cut() {
    let Discovery { machine, notes } = Machine::discover();
    assert!(machine.pu_count() > 0);
    let noted = machine.source.contains("hwloc") || notes.iter().any(|note| note.contains("hwloc"));
    assert!(noted || machine.is_whole());
    assert_eq!(machine.shapes(machine.all_cpus())[0].places, std::slice::from_ref(machine.all_cpus()));
}
