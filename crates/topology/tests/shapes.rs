//! Shapes against the rules of paper 001, II-A: worked examples and random machines.

mod common;

use common::{any_machine, any_subset, cpus, hybrid_laptop, table};
use coplace_topology::{CpuSet, Level, Machine};
use proptest::prelude::*;

fn widths(text: &str) -> Vec<u32> {
    let machine = Machine::synthetic(text).unwrap();
    machine.shapes(machine.all_cpus()).iter().map(|shape| shape.width).collect()
}

#[test]
fn the_papers_quad_six_core_is_cut_into_24_12_6_3_2_and_1() {
    assert_eq!(widths("pack:4 [numa] l3:1 core:6 pu:1"), [24, 12, 6, 3, 2, 1]);
}

#[test]
fn the_papers_dual_socket_dual_core_is_cut_into_4_2_and_1() {
    assert_eq!(widths("pack:2 core:2"), [4, 2, 1]);
}

#[test]
fn smt_siblings_are_separated_only_by_the_last_shape() {
    let machine = Machine::synthetic("pack:2 [numa] l3:2 core:4 pu:2").unwrap();
    let shapes = machine.shapes(machine.all_cpus());
    assert_eq!(shapes.iter().map(|s| s.width).collect::<Vec<_>>(), [32, 16, 8, 4, 2, 1]);
    for shape in &shapes[..5] {
        for core in machine.units(Level::Core) {
            assert_eq!(shape.places.iter().filter(|place| place.intersects(&core.cpus)).count(), 1);
        }
    }
}

#[test]
fn seven_cores_lose_one_rather_than_split_into_seven() {
    let machine = Machine::synthetic("core:7").unwrap();
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "7 machine: 0-6\n\
         3 3 cores: 0-2 | 3-5, left over 6\n\
         2 2 cores: 0-1 | 2-3 | 4-5, left over 6\n\
         1 core: 0 | 1 | 2 | 3 | 4 | 5 | 6\n"
    );
}

#[test]
fn exact_fractions_are_preferred_to_ones_that_leave_cpus_over() {
    assert_eq!(widths("core:10"), [10, 5, 2, 1]);
    assert_eq!(widths("core:6"), [6, 3, 2, 1]);
    assert_eq!(widths("pack:3 core:3"), [9, 3, 1], "3 → 9 partitions: the packages cannot be halved");
    assert_eq!(widths("core:9"), [9, 3, 2, 1]);
}

#[test]
fn partitions_of_a_hybrid_machine_have_equal_kinds_of_cores() {
    let machine = hybrid_laptop();
    assert_eq!(
        table(&machine, machine.all_cpus()),
        "16 machine: 0-15\n\
         8 half a machine: 0-3,8-11 | 4-7,12-15\n\
         4 a quarter of a machine: 0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15\n\
         1 core of capacity 602: 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15, left over 0-7\n"
    );
}

#[test]
fn units_with_holes_are_trimmed_to_what_they_have_in_common() {
    let machine = Machine::synthetic("pack:2 l3:2 core:4").unwrap();
    let text = table(&machine, &cpus("0-6,8-15"));
    assert!(
        text.starts_with("15 all usable CPUs: 0-6,8-15\n7 package: 0-6 | 8-14, left over 15\n"),
        "{text}"
    );
    // Both packages lack the same: nothing is left over.
    let same = machine.shapes(&cpus("1-6,9-14"));
    assert_eq!(same.iter().map(|s| s.width).collect::<Vec<_>>(), [12, 6, 3, 1]);
    assert!(same.iter().all(|shape| shape.left_over.is_empty()));
}

#[test]
fn packages_of_unlike_size_give_the_pairs_that_fit_both() {
    let machine = Machine::synthetic("pack:2 core:6").unwrap();
    let shapes = machine.shapes(&cpus("0-5,6-9"));
    let pairs = shapes.iter().find(|shape| shape.width == 2).unwrap();
    assert_eq!(pairs.places.len(), 5);
    assert!(pairs.left_over.is_empty());
}

#[test]
fn one_usable_cpu_is_one_shape() {
    let machine = Machine::synthetic("pack:2 core:6").unwrap();
    assert_eq!(table(&machine, &cpus("7")), "1 all usable CPUs: 7\n");
}

#[test]
fn cpus_that_the_machine_lacks_are_in_no_shape() {
    let machine = Machine::synthetic("core:2").unwrap();
    assert_eq!(table(&machine, &cpus("1-9")), "1 all usable CPUs: 1\n");
    assert!(machine.shapes(&cpus("5")).is_empty());
}

#[test]
fn capacities_within_a_tenth_are_alike_and_others_unlike() {
    let mut machine = Machine::synthetic("core:4").unwrap();
    machine.capacities = [(0, 1024), (1, 1024), (2, 930), (3, 930)].into();
    assert_eq!(machine.shapes(machine.all_cpus())[1].places, [cpus("0-1"), cpus("2-3")]);
    machine.capacities = [(0, 1024), (1, 1024), (2, 900), (3, 900)].into();
    assert_eq!(machine.shapes(machine.all_cpus())[1].places, [cpus("0,2"), cpus("1,3")]);
}

/// What a set of CPUs looks like, written apart from the module under test: the tree below the
/// machine restricted to the set, with capacities, without units that do not branch.
fn form_of(machine: &Machine, place: &CpuSet) -> String {
    fn of(object: &coplace_topology::Object, place: &CpuSet, machine: &Machine) -> Option<String> {
        if object.children.is_empty() {
            let cpu = object.cpus.lowest().filter(|&cpu| place.contains(cpu))?;
            return Some(format!("{}", machine.capacity(cpu)));
        }
        let mut children: Vec<String> =
            object.children.iter().filter_map(|child| of(child, place, machine)).collect();
        children.sort();
        match children.len() {
            0 => None,
            1 => children.pop(),
            _ => Some(format!("{:?}[{}]", object.level, children.join(" "))),
        }
    }
    of(&machine.root, place, machine).unwrap_or_default()
}

fn check(machine: &Machine, usable: &CpuSet) {
    let shapes = machine.shapes(usable);
    assert_eq!(shapes[0].places, std::slice::from_ref(usable), "the widest is all");
    for (wider, narrower) in shapes.iter().zip(&shapes[1..]) {
        assert!(wider.width > narrower.width);
        assert!(wider.places.len() < narrower.places.len());
    }
    for shape in shapes.iter() {
        let mut covered = CpuSet::new();
        let form = form_of(machine, &shape.places[0]);
        for place in &shape.places {
            assert_eq!(place.len(), shape.width as usize);
            assert!(!place.intersects(&covered), "{shape:?}");
            assert_eq!(form_of(machine, place), form, "{shape:?}");
            covered = covered.union(place);
        }
        assert!(!covered.intersects(&shape.left_over));
        assert_eq!(covered.union(&shape.left_over), *usable);
        assert_eq!(usable.len() - shape.left_over.len(), shape.places.len() * shape.width as usize);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn partitions_are_disjoint_alike_and_cover_the_usable_set(
        (machine, usable) in any_machine().prop_flat_map(|m| { let s = any_subset(m.all_cpus()); (Just(m), s) })
    ) {
        check(&machine, &usable);
    }

    #[test]
    fn a_partition_of_a_regular_machine_divides_one_unit(
        packs in 1u32..5, llcs in 1u32..4, cores in 1u32..9, pus in 1u32..3
    ) {
        let machine = Machine::synthetic(&format!("pack:{packs} l3:{llcs} core:{cores} pu:{pus}")).unwrap();
        let shapes = machine.shapes(machine.all_cpus());
        let exact = shapes.iter().filter(|shape| shape.left_over.is_empty());
        for place in exact.flat_map(|shape| &shape.places) {
            let unit = machine.enclosing(place).unwrap();
            prop_assert_eq!(unit.cpus.len() % place.len(), 0);
            // It never takes a part of one child and a part of another.
            let cut = unit.children.iter().any(|c| c.cpus.intersects(place) && !c.cpus.is_subset(place));
            prop_assert!(!cut, "{place} cuts through a child of {} {}", unit.level, unit.cpus);
        }
    }

    #[test]
    fn no_number_of_programs_idles_half_of_a_flat_machine(cores in 1u32..130) {
        let machine = Machine::synthetic(&format!("core:{cores}")).unwrap();
        let counts: Vec<usize> =
            machine.shapes(machine.all_cpus()).iter().map(|shape| shape.places.len()).collect();
        prop_assert!(counts.windows(2).all(|c| c[1] <= 2 * c[0] + 2), "{counts:?}");
        prop_assert_eq!(counts.last().copied(), Some(cores as usize));
    }
}

#[test]
fn shapes_of_1024_cpus_take_less_than_a_millisecond() {
    if cfg!(debug_assertions) {
        return coplace_skipped::skipped_here("a timing of optimised code: cargo test --release");
    }
    for text in ["pack:8 [numa] l3:8 core:8 pu:2", "core:1024", "pack:2 numa:4 core:64 pu:2"] {
        let machine = Machine::synthetic(text).unwrap();
        for usable in [machine.all_cpus().clone(), cpus("0-17,19-700,702-1022")] {
            let mut times: Vec<_> = (0..101)
                .map(|_| {
                    let start = std::time::Instant::now();
                    std::hint::black_box(machine.shapes(&usable));
                    start.elapsed()
                })
                .collect();
            times.sort();
            println!("{text}, {} usable: median {:?}, least {:?}", usable.len(), times[50], times[0]);
            // The least is what it costs when nothing else runs.
            assert!(usable.len() < 1024 || times[0].as_micros() < 1000);
        }
    }
}
