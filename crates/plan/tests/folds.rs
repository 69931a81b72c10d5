//! What can be asked of a plan.

mod common;

use std::collections::BTreeMap;

use common::{any_tree, id, plan, set, sound_plan};
use coplace_plan::{Tree, standstill_ns};
use proptest::prelude::*;

fn share(text: &str, app: &str) -> f64 {
    plan(text).mean_cpus()[&id(app)]
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn a_place_of_its_own_counts_whole() {
    assert!(close(share("side_by_side [a on 0-2 x 1, b on 3]", "a"), 3.0));
}

#[test]
fn turns_are_weighted_by_their_slices() {
    let text = "in_turn [30ms a on 0-3, 10ms side_by_side [b on 0-1, c on 2-3]] waiting [d]";
    assert!(close(share(text, "a"), 3.0));
    assert!(close(share(text, "b"), 0.5));
    assert!(close(share(text, "d"), 0.0));
    let shares = plan(text);
    assert!(close(shares.cpu_shares(4)[&id("a")], 0.75));
}

#[test]
fn a_program_in_several_slots_has_the_sum_of_them() {
    assert!(close(share("in_turn [10ms a on 0-1, 10ms b on 0-1, 20ms a on 0]", "a"), 0.5 + 0.5));
}

#[test]
fn nested_turns_multiply() {
    assert!(close(share("in_turn [20ms in_turn [a on 0-3, b on 0-3], 20ms c on 0-3]", "a"), 1.0));
}

#[test]
fn mixed_divides_each_cpu_among_the_threads_expected_on_it() {
    assert!(close(share("mixed [a on 0-3, b on 0-3]", "a"), 2.0));
    // One thread on four CPUs loads each by a quarter: 1 / 1.25 of what both want is there.
    assert!(close(share("mixed [a on 0-3, b on 0-3 x 1]", "a"), 3.2));
    assert!(close(share("mixed [a on 0-3, b on 0-3 x 1]", "b"), 0.8));
    // CPU 1 alone is shared.
    assert!(close(share("mixed [a on 0-1, b on 1-2]", "b"), 1.5));
    // What nobody wants is nobody's.
    assert!(close(share("mixed [a on 0-3 x 1, b on 0-3 x 1]", "a"), 1.0));
}

#[test]
fn an_owner_goes_first_on_its_cpus() {
    let text = "mixed {0-1: a} [a on 0-1, b on 0-3]";
    assert!(close(share(text, "a"), 2.0));
    assert!(close(share(text, "b"), 2.0));
}

#[test]
fn mixed_in_turn_with_others_divides_its_own_time_alone() {
    assert!(close(share("in_turn [mixed [a on 0, b on 0], c on 0]", "a"), 0.25));
    assert!(close(share("mixed [in_turn [a on 0, b on 0], c on 0]", "c"), 0.5));
}

#[test]
fn the_programs_in_turn_are_known_at_every_time() {
    let turns = plan("side_by_side [in_turn [10ms a on 0, 20ms b on 0], in_turn [15ms c on 1, 15ms d on 1]]");
    assert_eq!(turns.period_ns(), 30_000_000);
    let at = |ms: u64| {
        turns.running_at(ms * 1_000_000).iter().map(|run| run.app.as_str()).collect::<Vec<_>>().join("")
    };
    assert_eq!(
        [at(0), at(9), at(10), at(15), at(29), at(30), at(45)],
        ["ac", "ac", "bc", "bd", "bd", "ac", "bd"]
    );
}

#[test]
fn nested_turns_advance_only_while_their_slot_runs() {
    let nested = plan("in_turn [10ms in_turn [10ms a on 0, 10ms b on 0], 10ms c on 0]");
    let at = |ms: u64| nested.running_at(ms * 1_000_000)[0].app.as_str().to_owned();
    assert_eq!([at(0), at(10), at(20), at(30), at(40)], ["a", "c", "b", "c", "a"]);
    assert_eq!(nested.period_ns(), 40_000_000);
}

#[test]
fn distance_from_fair_respects_weights() {
    let uneven = plan("side_by_side [a on 0-2, b on 3]");
    let weights = |a: u32| BTreeMap::from([(id("a"), a), (id("b"), 1000)]);
    let even = uneven.unfairness(4, &weights(3000));
    assert!(close(even.ratio, 1.0) && close(even.difference, 0.0), "{even:?}");
    let odd = uneven.unfairness(4, &weights(1000));
    assert!(close(odd.ratio, 3.0) && close(odd.difference, 0.25), "{odd:?}");
    let left_out = plan("a on 0 waiting [b]").unfairness(4, &weights(1000));
    assert_eq!(left_out.ratio, f64::INFINITY);
}

#[test]
fn the_longest_standstill_is_that_of_the_shortest_slot() {
    let tree = |text: &str| text.parse::<Tree>().unwrap();
    assert_eq!(standstill_ns(&tree("in_turn [30ms a on 0, 10ms b on 0]")), 30_000_000);
    assert_eq!(
        standstill_ns(&tree("in_turn [10ms a on 0, 10ms b on 0, 10ms a on 0, 10ms c on 0]")),
        30_000_000
    );
    assert_eq!(standstill_ns(&tree("side_by_side [a on 0, b on 1]")), 0);
}

#[test]
fn names_places_and_widths_match_the_text() {
    let mix = plan("side_by_side [a on 0-1, in_turn [b on 2-3, c on 2 x 1]] waiting [d] suspended [e]");
    let apps: Vec<&str> = mix.apps().into_iter().map(|app| app.as_str()).collect();
    assert_eq!(apps, ["a", "b", "c", "d", "e"]);
    assert_eq!(mix.place(), set("0-3"));
    assert_eq!(mix.widths(), BTreeMap::from([(&id("a"), 2), (&id("b"), 2), (&id("c"), 1)]));
}

#[test]
fn the_picture_has_a_row_a_cpu_and_shows_turns_over_one_period() {
    let picture =
        plan("side_by_side [cg on 0, in_turn [10ms mg on 1-2, 30ms ft on 1-2]] waiting [is]").picture(8);
    let rows: Vec<&str> = picture.lines().collect();
    assert_eq!(rows[0], "CPU  0       40ms");
    assert_eq!(rows[1], "0    aaaaaaaa");
    assert_eq!(rows[2], "1    bbcccccc");
    assert_eq!(rows[3], "2    bbcccccc");
    assert_eq!(rows[4], "a = cg, b = mg, c = ft; waiting: is");
}

#[test]
fn the_picture_marks_shared_and_unused_cpus() {
    let picture = plan("in_turn [10ms mixed [a on 0-1, b on 0], 10ms a on 0]").picture(4);
    let rows: Vec<&str> = picture.lines().collect();
    assert_eq!(&rows[1..], ["0    **aa", "1    aa..", "a = a, b = b, * = shared, . = idle"]);
    assert_eq!(plan("idle").picture(4), "nothing runs\n");
}

proptest! {
    #[test]
    fn shares_sum_to_no_more_than_the_cpus(plan in sound_plan()) {
        let cpus: f64 = plan.mean_cpus().values().sum();
        prop_assert!(cpus <= plan.place().len() as f64 + 1e-9, "{} of {}", cpus, plan);
    }

    #[test]
    fn time_averages_equal_the_shares_of_the_fold(plan in sound_plan()) {
        let mixed = matches!(plan.tree, Some(Tree::Mixed { .. }));
        let period = plan.period_ns();
        prop_assume!(!mixed && period <= 1_000_000_000);
        let step = 5_000_000;
        let samples = (period / step).max(1);
        let mut sampled: BTreeMap<_, f64> = plan.apps().into_iter().map(|app| (app, 0.0)).collect();
        for sample in 0..samples {
            for run in plan.running_at(sample * step) {
                *sampled.entry(&run.app).or_default() += run.place.len() as f64 / samples as f64;
            }
        }
        for (app, cpus) in plan.mean_cpus() {
            prop_assert!((cpus - sampled[app]).abs() < 1e-6, "{}: {} of {}", app, cpus, plan);
        }
    }

    #[test]
    fn folds_answer_for_any_tree_whatsoever(tree in any_tree(), phase: u64) {
        tree.running_at(phase);
        tree.period_ns();
        standstill_ns(&tree);
        let plan = coplace_plan::Plan { tree: Some(tree), ..Default::default() };
        plan.picture(20);
        for (app, cpus) in plan.mean_cpus() {
            prop_assert!(cpus.is_finite() && cpus >= 0.0, "{}", app);
        }
    }
}
