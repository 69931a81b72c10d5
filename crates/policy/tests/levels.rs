//! Equilibrium over levels: the paper's Figure 2 derived from its rule, fairness, and special needs
//! (Schönherr, Juurlink, Richling 2013, II-B and II-C).

mod bench;

use std::collections::BTreeMap;

use bench::{Bench, FIGURE_1};
use coplace_policy::Settings;
use coplace_policy::trial::Random;
use plan::Plan;
use workload::AppId;

const MS: u64 = 1_000_000;

/// Nothing is waited for: each plan is the one after everything has settled.
fn settled() -> Settings {
    Settings { settle_ns: 0, grace_ns: 0, ..Settings::default() }
}

fn cpus_by_app(plan: &Plan) -> BTreeMap<String, f64> {
    plan.mean_cpus().into_iter().map(|(app, cpus)| (app.to_string(), cpus)).collect()
}

/// Jain's index of fairness: (Σx)² ÷ (n Σx²).
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

/// The drawing of Figure 2 is lost; this is what II-B's rule makes of Figure 1's machine, whose levels
/// are the system (one partition of 4 CPUs), processors (two of 2) and cores (four of 1).
///
/// "each partition in a hierarchy level is equally loaded, and odd elements in higher hierarchy
/// levels": with n programs the finest level with at most n partitions takes ⌊n ÷ partitions⌋ for
/// each; of what is left over the next level takes as many as it can have alike, and so on up.
/// "weighting each hierarchy level so that each job receives the same amount of CPU time": a turn of t
/// gives k programs on each partition of w CPUs t × w ÷ k of CPU time each, so t is proportional to
/// k ÷ w. A period lasts 100 ms for each level, 200 ms at most.
///
/// | n | system | processors | cores | k ÷ w | turns |
/// |---|---|---|---|---|---|
/// | 1 | 1 | | | | |
/// | 2 | | 1 each | | | |
/// | 3 | 1 | 1 each | | 1/4 : 1/2 | 200 ms × 1/3, 2/3 |
/// | 4 | | | 1 each | | |
/// | 5 | 1 (a processor each would need two) | | 1 each | 1/4 : 1 | 200 ms × 1/5, 4/5 |
/// | 6 | | 1 each | 1 each | 1/2 : 1 | 200 ms × 1/3, 2/3 |
/// | 7 | 1 | 1 each | 1 each | 1/4 : 1/2 : 1 | 200 ms × 1/7, 2/7, 4/7 |
/// | 8 | | | 2 each | | |
///
/// Whoever had a partition stays inside of it: a1 goes from the system to processor 0-1 and core 0, a2
/// from processor 2-3 to core 2, a3 and a4, which come with 3 and 4 programs, to the cores that are
/// left. Two programs on one core have one thread each, which the kernel shares equally.
const FIGURE_2: [&str; 8] = [
    "a1 on 0-3",
    "side_by_side [a1 on 0-1, a2 on 2-3]",
    "in_turn strict [66.666666ms a3 on 0-3, 133.333334ms side_by_side [a1 on 0-1, a2 on 2-3]]",
    "side_by_side [a1 on 0, a3 on 1, a2 on 2, a4 on 3]",
    "in_turn strict [40ms a5 on 0-3, 160ms side_by_side [a1 on 0, a3 on 1, a2 on 2, a4 on 3]]",
    "in_turn strict [66.666666ms side_by_side [a5 on 0-1, a6 on 2-3], \
     133.333334ms side_by_side [a1 on 0, a3 on 1, a2 on 2, a4 on 3]]",
    "in_turn strict [28.571428ms a7 on 0-3, 57.142857ms side_by_side [a5 on 0-1, a6 on 2-3], \
     114.285715ms side_by_side [a1 on 0, a3 on 1, a2 on 2, a4 on 3]]",
    "side_by_side [mixed [a1 on 0, a5 on 0], mixed [a3 on 1, a7 on 1], \
     mixed [a2 on 2, a6 on 2], mixed [a4 on 3, a8 on 3]]",
];

#[test]
fn the_schedules_of_figure_2_follow_from_the_rule() {
    let mut bench = Bench::new(FIGURE_1, "LV", &settled());
    for (at, expected) in FIGURE_2.into_iter().enumerate() {
        let plan = bench.grow(at + 1);
        assert_eq!(plan.to_string(), expected, "{} programs", at + 1);
        for (app, cpus) in cpus_by_app(&plan) {
            assert!((cpus - 4.0 / (at + 1) as f64).abs() < 1e-6, "{app} has {cpus} CPUs: {plan}");
        }
    }
}

#[test]
fn every_program_gets_the_cpu_time_of_its_weight() {
    const MACHINES: [&str; 8] = [
        "core:2",
        "core:7",
        FIGURE_1,
        "pack:4 [numa] l3:1 core:6",
        "pack:2 [numa] l3:2 core:3 pu:2",
        "pack:3 core:5",
        "pack:2 [numa] l3:1 core:8",
        "pack:8 [numa] l3:4 core:16 pu:2",
    ];
    let mut random = Random::new(1);
    for (machine, weights) in MACHINES.into_iter().flat_map(|machine| [(machine, 1), (machine, 4)]) {
        let mut bench = Bench::new(machine, "LV", &settled());
        for number in 1..=32 {
            // One to four parts of one weight: a program is as heavy as it is long in a queue.
            let weight = 1000 * (1 + random.below(weights));
            let plan = bench.arrive(&format!("a{number} weight {weight}"));
            let shares = plan.mean_cpus();
            let app = |name: &AppId| bench.snapshot.app(name).expect("a live program");
            let shares: Vec<f64> =
                shares.iter().map(|(name, cpus)| cpus / f64::from(app(name).demand.weight_milli)).collect();
            let index = jain(&shares);
            assert!(index >= 0.98, "{number} programs on {machine}: {index}, {plan}");
        }
    }
}

#[test]
fn levels_are_balanced_once_nobody_comes_or_leaves() {
    let settings = Settings { settle_ns: 100 * MS, grace_ns: 0, ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "LV", &settings);
    bench.grow(4);
    let plan = bench.grow(5);
    let crowded = "side_by_side [mixed [a1 on 0, a5 on 0], a3 on 1, a2 on 2, a4 on 3]";
    assert_eq!(plan.to_string(), crowded);
    let wake_at_ns = bench.wake_at_ns.expect("the situation will be stable");
    assert_eq!(wake_at_ns, bench.snapshot.now_ns + 100 * MS);
    bench.snapshot.now_ns = wake_at_ns;
    assert_eq!(bench.decide().to_string(), FIGURE_2[4]);
    assert_eq!(bench.wake_at_ns, None);
    // Whoever is a level up stays there while others come.
    let plan = bench.arrive("a6");
    assert_eq!(
        plan.to_string(),
        "in_turn strict [22.222222ms a5 on 0-3, 177.777778ms side_by_side [mixed [a1 on 0, a6 on 0], a3 on 1, \
         a2 on 2, a4 on 3]]"
    );
    // One for another, in the same instant, is a change too.
    bench.snapshot.now_ns += 200 * MS;
    bench.decide();
    bench.snapshot.apps.retain(|app| app.id.as_str() != "a6");
    bench.snapshot.now_ns += MS;
    let now_ns = bench.snapshot.now_ns;
    bench.arrive(&format!("a7 arrived {now_ns}ns"));
    assert_eq!(bench.wake_at_ns, Some(now_ns + 100 * MS));
}

#[test]
fn a_narrowing_program_keeps_its_partition_until_it_shrank() {
    let settings = Settings { settle_ns: 0, grace_ns: 50 * MS, ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "LV", &settings);
    bench.arrive("a");
    bench.snapshot.apps[0].team = Some(4);
    let plan = bench.arrive("b");
    let asked = "in_turn strict [66.666666ms a on 0-3 x 2, 133.333334ms b on 2-3]";
    assert_eq!(plan.to_string(), asked);
    let asked_ns = bench.snapshot.now_ns;
    assert_eq!(bench.wake_at_ns, Some(asked_ns + 50 * MS));
    // The period does not begin anew when it is asked again.
    bench.snapshot.now_ns += 20 * MS;
    assert_eq!(bench.decide().to_string(), asked);
    assert_eq!(bench.wake_at_ns, Some(asked_ns + 50 * MS));
    // It has changed: the scheduler reacts at once.
    let mut changed = Bench::new(FIGURE_1, "LV", &settings);
    (changed.snapshot, changed.memory) = (bench.snapshot.clone(), bench.memory.clone());
    changed.snapshot.apps[0].team = Some(2);
    assert_eq!(changed.decide().to_string(), "side_by_side [a on 0-1, b on 2-3]");
    // It has not: the period ends.
    bench.snapshot.now_ns = asked_ns + 50 * MS;
    assert_eq!(bench.decide().to_string(), "side_by_side [a on 0-1, b on 2-3]");
}

#[test]
fn the_best_scaling_program_goes_a_level_up() {
    let mut bench = Bench::new(FIGURE_1, "LV", &settled());
    // Of three programs one is on the whole machine: not the latest, but the one that gains by it.
    let plan = bench.arrive("poor speedup 2:1400,4:1500; good speedup 2:1950,4:3800; unknown");
    let expected = "in_turn strict [66.666666ms good on 0-3, \
                    133.333334ms side_by_side [poor on 0-1, unknown on 2-3]]";
    assert_eq!(plan.to_string(), expected);
    assert!(bench.lines.iter().any(|line| line.starts_with("good: lose least")), "{:?}", bench.lines);
    // Nothing is known about who is as good as unknown: half is what everybody is taken to keep.
    let mut bench = Bench::new(FIGURE_1, "LV", &settled());
    let plan = bench.arrive("poor speedup 2:1900,4:2000; unknown; late");
    assert!(plan.to_string().contains("ms late on 0-3"), "{plan}");
}

#[test]
fn a_saturated_program_has_its_own_partition_all_the_time() {
    let mut bench = Bench::new(FIGURE_1, "LV", &settled());
    let plan = bench.arrive("a; b; script max 1");
    // One and a half CPUs for each of the others.
    let expected = "side_by_side [in_turn strict [100ms a on 1-3, 100ms b on 1-3], script on 0]";
    assert_eq!(plan.to_string(), expected);
    let mut bench = Bench::new("pack:4 [numa] l3:1 core:6", "LV", &settled());
    let plan = bench.arrive("a; b; script max 1");
    // 23 CPUs are left: two partitions of 11, and one CPU that is left over.
    assert_eq!(plan.to_string(), "side_by_side [a on 1-11, b on 12-22, script on 0]");
    // One that can use more than its part shares with all others.
    let mut bench = Bench::new(FIGURE_1, "LV", &settled());
    let plan = bench.arrive("a; b; wide max 3");
    assert!(cpus_by_app(&plan).values().all(|cpus| (cpus - 4.0 / 3.0).abs() < 1e-6), "{plan}");
}

#[test]
fn rigid_programs_stand_on_a_level_that_is_wide_enough() {
    let mut bench = Bench::new("pack:4 [numa] l3:1 core:6", "LV", &settled());
    // 28 programs: single CPUs are the finest level, which the four rigid ones do not fit.
    bench.arrive(&(1..=4).map(|number| format!("r{number} rigid max 5; ")).collect::<String>());
    let plan = bench.grow(28);
    for run in plan.runs() {
        let wanted = if run.app.as_str().starts_with('r') { 6 } else { 1 };
        assert_eq!(run.place.len(), wanted, "{plan}");
    }
    assert!(cpus_by_app(&plan).values().all(|cpus| (cpus - 24.0 / 28.0).abs() < 1e-6), "{plan}");
}

#[test]
fn programs_that_need_no_coscheduling_have_their_turn_together() {
    let settings = Settings { allowed_widths: Some(vec![4]), ..settled() };
    let mut bench = Bench::new(FIGURE_1, "LV", &settings);
    let plan = bench.arrive("a; b uncoordinated; c uncoordinated; d");
    // Three times sixty milliseconds, by weight.
    let expected = "in_turn strict [50ms a on 0-3, 100ms mixed [b on 0-3 x 2, c on 0-3 x 2], 50ms d on 0-3]";
    assert_eq!(plan.to_string(), expected);
    assert!(cpus_by_app(&plan).values().all(|&cpus| cpus == 1.0), "{plan}");
}

#[test]
fn programs_of_unlike_weight_take_turns_even_on_one_cpu() {
    let mut bench = Bench::new("core:2", "LV", &settled());
    let plan = bench.arrive("a weight 3000; b weight 3000; c; d");
    let expected = "side_by_side [in_turn strict [150ms a on 0, 50ms c on 0], \
                    in_turn strict [150ms b on 1, 50ms d on 1]]";
    assert_eq!(plan.to_string(), expected);
    let report = "a weight 1: what is less than a turn is worth";
    let mut bench = Bench::new("core:2", "LV", &settled());
    let plan = bench.arrive("a weight 1; b; c");
    assert!(bench.lines[0].starts_with("a count as weight"), "{report}: {:?}", bench.lines);
    assert!(cpus_by_app(&plan).values().all(|&cpus| cpus > 0.02), "{plan}");
}
