//! How many CPUs managed programs get, and which.

mod common;

use std::collections::BTreeMap;

use common::{any_machine, any_subset, cpus, hybrid_laptop};
use coplace_topology::{CpuSet, Level, Machine, Withheld, usable};
use proptest::prelude::*;

fn set(machine: &Machine, quota: Option<u32>, unmanaged: &[(u32, u32)]) -> CpuSet {
    usable(machine.all_cpus(), quota, &unmanaged.iter().copied().collect(), machine).0
}

fn quad() -> Machine {
    Machine::synthetic("pack:4 [numa] l3:1 core:6").unwrap()
}

#[test]
fn without_limits_everything_is_usable() {
    let (set, reasons) = usable(&cpus("3-9"), None, &BTreeMap::new(), &quad());
    assert_eq!((set, reasons.len()), (cpus("3-9"), 0));
}

#[test]
fn a_quota_of_one_cpu_is_one_cpu_and_of_less_too() {
    for quota in [1, 300, 1000] {
        assert_eq!(set(&quad(), Some(quota), &[]).len(), 1);
    }
    assert_eq!(set(&quad(), Some(1001), &[]).len(), 2);
}

#[test]
fn a_quota_takes_whole_units_that_are_close() {
    assert_eq!(set(&quad(), Some(6000), &[]), cpus("0-5"));
    assert_eq!(set(&quad(), Some(9000), &[]), cpus("0-8"));
    assert_eq!(set(&quad(), Some(30_000), &[]), cpus("0-23"));
    // Of the packages the one that is least used.
    assert_eq!(set(&quad(), Some(6000), &[(2, 300)]), cpus("6-11"));
}

#[test]
fn a_quota_takes_cores_before_siblings_and_then_whole_cores() {
    let machine = Machine::synthetic("pack:1 core:4 pu:2").unwrap();
    assert_eq!(set(&machine, Some(3000), &[]), cpus("0,2,4"));
    assert_eq!(set(&machine, Some(6000), &[]), cpus("0-5"));
}

#[test]
fn a_quota_takes_big_cores_before_small_ones() {
    assert_eq!(set(&hybrid_laptop(), Some(2000), &[]), cpus("0,2"));
}

#[test]
fn a_background_daemon_costs_nothing() {
    assert_eq!(set(&quad(), None, &[(3, 50)]), cpus("0-23"));
    assert_eq!(set(&quad(), None, &[(3, 250), (4, 250)]), cpus("0-23"));
}

#[test]
fn busy_unmanaged_programs_keep_the_cpus_that_they_use_most() {
    assert_eq!(set(&quad(), None, &[(3, 950), (7, 20)]), cpus("0-2,4-23"));
    assert_eq!(set(&quad(), None, &[(3, 500), (7, 600), (8, 500)]), cpus("0-6,9-23"));
    let two = Machine::synthetic("core:2").unwrap();
    let (left, reasons) = usable(two.all_cpus(), None, &[(0, 1000)].into(), &two);
    assert_eq!(left, cpus("1"));
    assert_eq!(reasons, [Withheld::Unmanaged { busy_milli: 1000, cpus: cpus("0") }]);
    assert_eq!(reasons[0].to_string(), "unmanaged programs keep 1 CPUs busy: CPUs 0 are left to them");
}

#[test]
fn a_program_that_wanders_leaves_the_rest_together() {
    let everywhere: Vec<(u32, u32)> = (0..24).map(|cpu| (cpu, 1000 / 24)).collect();
    assert_eq!(set(&quad(), None, &everywhere), cpus("0-22"));
}

#[test]
fn a_machine_that_is_full_of_others_still_gives_one_cpu() {
    let two = Machine::synthetic("core:2").unwrap();
    assert_eq!(set(&two, None, &[(0, 5000), (1, 900)]), cpus("1"));
    let one = Machine::synthetic("core:1").unwrap();
    assert_eq!(set(&one, None, &[(0, 1000)]), cpus("0"));
}

#[test]
fn cpus_that_the_description_lacks_can_still_be_used() {
    let two = Machine::synthetic("core:2").unwrap();
    assert_eq!(usable(&cpus("4-7"), Some(2000), &BTreeMap::new(), &two).0, cpus("4-5"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_count_is_what_quota_and_others_leave_and_never_nothing(
        (machine, allowed) in any_machine().prop_flat_map(|m| { let s = any_subset(m.all_cpus()); (Just(m), s) }),
        quota in prop::option::of(1u32..40_000),
        others in prop::collection::btree_map(0u32..40, 0u32..1200, 0..6),
    ) {
        let (set, _) = usable(&allowed, quota, &others, &machine);
        let total: u32 = allowed.iter().filter_map(|cpu| others.get(&cpu)).map(|&milli| milli.min(1000)).sum();
        let busy = (f64::from(total) / 1000.0 - 0.0005).round().max(0.0) as usize;
        let paid = quota.map_or(usize::MAX, |quota| quota.div_ceil(1000) as usize);
        let expected = allowed.len().saturating_sub(busy).min(paid).max(1);
        prop_assert!(set.is_subset(&allowed));
        prop_assert_eq!(set.len(), expected);
        // With a core for each, no two share one.
        if quota.is_some() && busy == 0 {
            let cores = machine.units(Level::Core).filter(|core| core.cpus.intersects(&allowed)).count();
            let used = machine.units(Level::Core).filter(|core| core.cpus.intersects(&set)).count();
            prop_assert!(set.len() == allowed.len() || cores < set.len() || used == set.len());
        }
    }
}
