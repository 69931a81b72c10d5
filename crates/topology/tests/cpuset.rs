//! `CpuSet` against a `BTreeSet` of numbers.

use std::collections::BTreeSet;

use coplace_topology::{CpuSet, MAX_CPUS};
use proptest::prelude::*;

fn any_set() -> impl Strategy<Value = BTreeSet<u32>> {
    let cpu = prop_oneof![4 => 0u32..70, 1 => 0u32..1100, 1 => Just(MAX_CPUS - 1)];
    prop::collection::btree_set(cpu, 0..40)
}

fn cpus(set: &BTreeSet<u32>) -> CpuSet {
    set.iter().copied().collect()
}

fn model(set: &CpuSet) -> BTreeSet<u32> {
    set.iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_agree_with_those_of_ordinary_sets(a in any_set(), b in any_set(), cpu in 0u32..70, n in 0usize..50) {
        let (x, y) = (cpus(&a), cpus(&b));
        prop_assert_eq!(model(&x.union(&y)), &a | &b);
        let mut grown = x.clone();
        grown.add_all(&y);
        prop_assert_eq!(&grown, &x.union(&y));
        prop_assert_eq!(model(&x.intersection(&y)), &a & &b);
        prop_assert_eq!(model(&x.difference(&y)), &a - &b);
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.intersection(&y).is_subset(&y), true);
        prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
        prop_assert_eq!(x.common_len(&y), a.intersection(&b).count());
        prop_assert_eq!(x.cmp(&y) == std::cmp::Ordering::Equal, a == b);
        let mut less = x.clone();
        less.remove(cpu);
        prop_assert_eq!(less, x.difference(&CpuSet::from_cpus(&[cpu])));
        prop_assert_eq!(x == y, a == b);
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.contains(cpu), a.contains(&cpu));
        prop_assert_eq!(x.lowest(), a.first().copied());
        prop_assert_eq!(x.highest(), a.last().copied());
        prop_assert_eq!(model(&x.take(n)), a.iter().copied().take(n).collect::<BTreeSet<_>>());
    }

    #[test]
    fn equal_sets_are_equal_values_however_they_were_made(a in any_set(), b in any_set()) {
        let mut grown = cpus(&a);
        b.iter().for_each(|&cpu| grown.insert(cpu));
        b.difference(&a).for_each(|&cpu| grown.remove(cpu));
        prop_assert_eq!(&grown, &cpus(&a));
        let backwards: Vec<u32> = a.iter().rev().copied().collect();
        prop_assert_eq!(&CpuSet::from_cpus(&backwards), &cpus(&a));
        prop_assert_eq!(cpus(&a).union(&cpus(&b)).difference(&cpus(&b)), cpus(&(&a - &b)));
    }

    #[test]
    fn a_range_is_the_set_of_its_numbers(first in 0u32..200, count in 0u32..200) {
        let all: Vec<u32> = (first..first + count).collect();
        prop_assert_eq!(CpuSet::from_cpus(&all), all.iter().copied().collect::<CpuSet>());
    }

    #[test]
    fn lists_are_read_as_they_were_written(a in any_set()) {
        let set = cpus(&a);
        prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set.clone()));
        let json = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(serde_json::from_str::<CpuSet>(&json).unwrap(), set);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9,\\- a]{0,20}") {
        let _ = text.parse::<CpuSet>();
    }
}

#[test]
fn lists_are_written_like_the_kernels() {
    assert_eq!(cpus(&[0, 1, 2, 3, 8, 10, 11].into()).to_string(), "0-3,8,10-11");
    assert_eq!(CpuSet::new().to_string(), "");
    assert_eq!(" 0-1 , 5\n".parse::<CpuSet>().unwrap(), cpus(&[0, 1, 5].into()));
}

#[test]
fn a_malformed_list_is_refused_with_the_reason() {
    for (text, why) in [
        ("a", "'a' is not a number"),
        ("1,,2", "'' is not a number"),
        ("3-1", "runs backwards"),
        ("70000", "beyond 65535"),
        ("0-4000000000", "beyond 65535"),
        ("-1", "'' is not a number"),
    ] {
        let error = text.parse::<CpuSet>().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("0-3,8"), "{error}");
    }
}
