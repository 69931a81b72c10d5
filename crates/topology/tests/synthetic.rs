//! One-line machines, both ways.

mod common;

use common::{any_machine, cpus};
use coplace_topology::{Level, Machine};
use proptest::prelude::*;

fn machine(text: &str) -> Machine {
    Machine::synthetic(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_token_makes_a_level_and_cpus_count_up() {
    let machine = machine("pack:4 [numa] l3:1(size=6MB) core:6 pu:1");
    let levels = [Level::Node, Level::Package, Level::Numa, Level::Llc, Level::Core, Level::Pu];
    assert_eq!(machine.levels(), levels);
    let nodes: Vec<_> =
        machine.units(Level::Numa).map(|node| (node.os_index, node.cpus.to_string())).collect();
    assert_eq!(nodes[1], (Some(1), "6-11".to_owned()));
    assert_eq!(machine.last_level_cache_of(23).unwrap().size_bytes, Some(6 << 20));
    assert_eq!(machine.core_of(7).unwrap().logical_index, 7);
    let core = machine.core_of(7).unwrap();
    assert_eq!(machine.parent(core).unwrap().level, Level::Llc);
    assert_eq!(machine.parent(&machine.root), None);
    assert_eq!(machine.enclosing(&cpus("6-7")).unwrap().level, Level::Llc);
    assert_eq!(machine.enclosing(&cpus("5-6")).unwrap().level, Level::Node);
    assert_eq!(machine.unit_of(24, Level::Core), None);
}

#[test]
fn hwlocs_other_names_are_understood() {
    assert_eq!(machine("node:2 socket:1 core:2").root, machine("numa:2 package:1 core:2 pu:1").root);
    assert_eq!(
        machine("Package:2[NUMANode] L3Cache:1 Core:2").root,
        machine("pack:2 [numa] l3:1 core:2").root
    );
    assert_eq!(machine("numa:2(memory=4GB) core:1").pu_count(), 2);
    let cluster = machine("machine:3 pack:1 core:2");
    assert_eq!((cluster.root.level, cluster.units(Level::Node).count()), (Level::Cluster, 3));
}

#[test]
fn an_inner_cache_is_a_level_only_where_cores_share_it() {
    assert_eq!(machine("l3:1 l2:4 core:1").units(Level::Group).count(), 0);
    assert_eq!(machine("l3:1 l2:4 core:1 pu:2").units(Level::Group).count(), 0);
    let clusters = machine("l3:1 l2:2(size=2MB) core:4");
    assert_eq!(clusters.units(Level::Group).map(|g| g.cpus.to_string()).collect::<Vec<_>>(), ["0-3", "4-7"]);
    assert_eq!(clusters.caches.len(), 3);
}

#[test]
fn mistakes_are_reported_with_their_column() {
    for (text, column, what) in [
        ("", 1, "empty"),
        ("pack", 1, "level:count"),
        ("pack:2 cor:4", 8, "'cor' is not a level"),
        ("pack:2 core:0", 13, "'0' is not a count"),
        ("pack:2 core:-1", 13, "'-1' is not a count"),
        ("core:2 pack:2", 8, "only pu"),
        ("pu:2 core:2", 6, "below pu"),
        ("pack:2 pack:2", 8, "twice"),
        ("l2:2 l3:1", 6, "L3 cache cannot stand below an L2"),
        ("pack:2 [l3]", 9, "only [numa]"),
        ("[numa] pack:2", 1, "word before"),
        ("l3:1(size=6", 1, "not closed"),
        ("l3:1(size=6XB) core:2", 6, "'6XB' is not a size"),
        ("l3:1(colour=red) core:2", 6, "'colour' is not known"),
        ("core:2(size=6MB)", 8, "'size' is not known"),
        ("pack:1000 core:1000", 11, "more than 65536 CPUs"),
        ("pack:4294967295 core:4294967295", 1, "more than 65536 CPUs"),
    ] {
        let error = Machine::synthetic(text).unwrap_err();
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.what.contains(what), "{text}: {error}");
    }
}

#[test]
fn machines_that_a_line_cannot_describe_have_none() {
    let mut unlike = machine("core:2");
    unlike.capacities = [(0, 1024), (1, 512)].into();
    assert_eq!(unlike.to_synthetic(), None);
    assert_eq!(common::hybrid_laptop().to_synthetic(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_machine_is_read_as_the_same_machine(
        packs in 1u32..4, numa in any::<bool>(), l3 in 0u32..3, l2 in 0u32..3, cores in 1u32..4, pus in 1u32..3,
        size in prop::option::of(1u64..100)
    ) {
        let mut text = format!("pack:{packs}");
        if numa { text += " [numa]"; }
        if l3 > 0 {
            text += &format!(" l3:{l3}");
            if let Some(size) = size { text += &format!("(size={size}MB linesize=64)"); }
        }
        if l2 > 0 { text += &format!(" l2:{l2}(size=512KB)"); }
        text += &format!(" core:{cores} pu:{pus}");
        let machine = machine(&text);
        let again = Machine::synthetic(&machine.to_synthetic().unwrap()).unwrap();
        prop_assert_eq!(&again.root, &machine.root);
        prop_assert_eq!(&again.caches, &machine.caches);
    }

    #[test]
    fn a_random_machine_is_printed_faithfully_or_not_at_all(machine in any_machine()) {
        if let Some(text) = machine.to_synthetic() {
            let again = Machine::synthetic(&text).unwrap();
            let units = |m: &Machine| m.objects().map(|o| (o.level, o.logical_index, o.cpus.clone())).collect::<Vec<_>>();
            prop_assert_eq!(units(&again), units(&machine));
        }
    }

    #[test]
    fn machines_survive_json(machine in any_machine()) {
        let json = serde_json::to_string(&machine).unwrap();
        prop_assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9:\\[\\]() =]{0,30}") {
        let _ = Machine::synthetic(&text);
    }
}
