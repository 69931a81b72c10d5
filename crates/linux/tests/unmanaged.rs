//! What is left to programs that nobody manages.

use std::collections::BTreeMap;

use coplace_linux::procfs::{CpuTicks, CpuTimes, ticks_per_second};
use coplace_linux::unmanaged::{Managed, MilliCpus, Sample, smooth, usage_between, usage_share_between};
use topology::CpuSet;

const SECOND_NS: u64 = 1_000_000_000;

/// One second after boot per unit of `busy_permille`, for CPUs 0, 1, …
fn sample(at_s: u64, busy_ms: &[u64], managed: &[(u64, u64, &str)]) -> Sample {
    let ticks = |ms: &u64| CpuTicks { busy_ticks: ms * ticks_per_second() / 1_000, ..CpuTicks::default() };
    let cpus = busy_ms.iter().enumerate().map(|(cpu, ms)| (cpu as u32, ticks(ms))).collect();
    let managed = managed
        .iter()
        .map(|(id, ms, place)| {
            (*id, Managed { cpu_ns: ms * 1_000_000, place: place.parse::<CpuSet>().unwrap() })
        })
        .collect();
    Sample { at_ns: at_s * SECOND_NS, cpus: CpuTimes { cpus }, managed }
}

fn milli(cpus: &[(u32, u32)]) -> MilliCpus {
    cpus.iter().copied().collect()
}

#[test]
fn without_managed_programs_everything_busy_is_unmanaged() {
    let used = usage_between(&sample(1, &[0, 100], &[]), &sample(2, &[700, 100], &[]));
    assert_eq!(used, milli(&[(0, 700), (1, 0)]));
}

#[test]
fn managed_use_is_subtracted_from_the_own_place_only() {
    let before = sample(1, &[0, 0], &[(7, 0, "0")]);
    let after = sample(2, &[1_000, 500], &[(7, 800, "0")]);
    assert_eq!(usage_between(&before, &after), milli(&[(0, 200), (1, 500)]));
}

#[test]
fn narrow_places_are_explained_first_and_wide_ones_after() {
    let before = sample(1, &[0, 0], &[(1, 0, "0-1"), (2, 0, "0")]);
    let after = sample(2, &[1_000, 1_000], &[(1, 1_000, "0-1"), (2, 1_000, "0")]);
    assert_eq!(usage_between(&before, &after), milli(&[(0, 0), (1, 0)]));
}

#[test]
fn tick_rounding_keeps_results_between_zero_and_one_cpu() {
    let before = sample(1, &[0], &[(1, 500, "0")]);
    assert_eq!(usage_between(&before, &sample(2, &[900], &[(1, 1_700, "0")])), milli(&[(0, 0)]));
    assert_eq!(usage_between(&before, &sample(2, &[1_040], &[(1, 500, "0")])), milli(&[(0, 1_000)]));
    // A sum that falls because a member ended.
    assert_eq!(usage_between(&before, &sample(2, &[300], &[(1, 100, "0")])), milli(&[(0, 300)]));
    assert_eq!(usage_between(&before, &before), BTreeMap::new());
}

#[test]
fn a_program_that_arrived_between_samples_waits_for_the_next() {
    let used = usage_between(&sample(1, &[0], &[]), &sample(2, &[600], &[(1, 600, "0")]));
    assert_eq!(used, milli(&[(0, 600)]));
}

#[test]
fn smoothing_reaches_63_percent_after_one_time_constant() {
    let (then, now) = (milli(&[(0, 0), (1, 1_000)]), milli(&[(0, 1_000), (1, 0), (2, 300)]));
    let once = smooth(&then, &now, SECOND_NS, SECOND_NS);
    assert_eq!(once, milli(&[(0, 633), (1, 367), (2, 300)]));
    let mut value = then;
    for _ in 0..2_000 {
        value = smooth(&value, &now, SECOND_NS / 100, SECOND_NS);
    }
    assert_eq!(value, now);
    assert_eq!(smooth(&value, &milli(&[(0, 5)]), 0, SECOND_NS), milli(&[(0, 1_000)]));
}

/// The share of two CPUs that others took.
fn share(before: &Sample, after: &Sample) -> Option<f64> {
    usage_share_between(before, after, &"0-1".parse().unwrap())
}

#[test]
fn one_of_two_cpus_used_by_others_is_a_half() {
    let before = sample(1, &[0, 0, 0], &[(1, 400, "0-1")]);
    // The third CPU is not asked about.
    let after = sample(2, &[1_000, 1_000, 1_000], &[(1, 1_400, "0-1")]);
    assert_eq!(share(&before, &after), Some(0.5));
}

#[test]
fn managed_time_is_left_out_and_stolen_time_is_not() {
    let before = sample(1, &[0, 0], &[(1, 0, "0-1")]);
    let mut after = sample(2, &[500, 500], &[(1, 1_000, "0-1")]);
    assert_eq!(share(&before, &after), Some(0.0));
    after.cpus.cpus.get_mut(&0).unwrap().stolen_ticks = ticks_per_second() / 2;
    assert_eq!(share(&before, &after), Some(0.25));
    // The kernel counts in ticks: a program may seem to have used more than was used.
    assert_eq!(share(&before, &sample(2, &[400, 500], &[(1, 1_000, "0-1")])), Some(0.0));
}

#[test]
fn samples_too_close_have_no_share() {
    let one = sample(1, &[0, 0], &[]);
    assert_eq!(share(&one, &Sample { at_ns: one.at_ns + SECOND_NS / 10, ..one.clone() }), None);
}
