//! The plans of the paper's machines, program by program (Schönherr, Juurlink, Richling 2013).

mod bench;

use bench::{Bench, FIGURE_1};
use coplace_policy::{LevelDecision, Memory, Settings};
use plan::{App, Plan, Tree};
use topology::CpuSet;
use workload::AppId;

/// The evaluation system: four six-core Opterons.
const OPTERON: &str = "pack:4 [numa] l3:1 core:6 pu:1";

/// The width that all programs have.
fn width(plan: &Plan) -> usize {
    let widths: Vec<usize> = plan.runs().iter().map(|run| run.place.len()).collect();
    assert!(widths.iter().all(|&width| width == widths[0]), "unequal parts: {plan}");
    widths[0]
}

fn places(plan: &Plan) -> Vec<(AppId, CpuSet)> {
    let mut places: Vec<_> = plan.runs().iter().map(|run| (run.app.clone(), run.place.clone())).collect();
    places.sort();
    places
}

fn paper_co() -> Settings {
    Settings { allowed_widths: Some(vec![1, 3, 6, 12, 24]), ..Settings::default() }
}

fn ta_width(programs: usize) -> usize {
    match programs {
        1 => 24,
        2 => 12,
        3..=4 => 6,
        5..=8 => 3,
        9..=12 => 2,
        _ => 1,
    }
}

/// III-B f: "if there is one application, it gets scheduled system wide, two to three applications
/// are coscheduled on 12-core partitions, four to seven … on sockets, eight to 23 … half-socket
/// partitions, and finally 24 or more … single-threaded".
fn co_width(programs: usize) -> usize {
    match programs {
        1 => 24,
        2..=3 => 12,
        4..=7 => 6,
        8..=23 => 3,
        _ => 1,
    }
}

#[test]
fn the_paper_s_machine_goes_through_the_paper_s_widths() {
    let mut bench = Bench::new(OPTERON, "TA", &Settings::default());
    for programs in 1..=30 {
        assert_eq!(width(&bench.grow(programs)), ta_width(programs), "{programs} programs");
    }
    for programs in (1..30).rev() {
        let plan = bench.leave(&format!("a{}", 30 - programs));
        assert_eq!(width(&plan), ta_width(programs), "{programs} programs, on the way down");
    }
}

#[test]
fn coscheduling_goes_through_the_levels_of_the_paper() {
    let mut bench = Bench::new(OPTERON, "CO", &paper_co());
    for programs in 1..=30 {
        assert_eq!(width(&bench.grow(programs)), co_width(programs), "{programs} programs");
    }
    for programs in (1..30).rev() {
        let plan = bench.leave(&format!("a{}", 30 - programs));
        assert_eq!(width(&plan), co_width(programs), "{programs} programs, on the way down");
    }
}

#[test]
fn the_machine_of_figure_1_goes_through_its_levels() {
    let ta = [4, 2, 1, 1, 1, 1, 1, 1];
    let co = [4, 2, 2, 1, 1, 1, 1, 1];
    for (policy, widths) in [("TA", ta), ("CO", co)] {
        let mut bench = Bench::new(FIGURE_1, policy, &Settings::default());
        for (at, expected) in widths.into_iter().enumerate() {
            assert_eq!(width(&bench.grow(at + 1)), expected, "{policy}, {} programs", at + 1);
        }
    }
    let mut bench = Bench::new(FIGURE_1, "CO", &Settings::default());
    let plan = bench.grow(3);
    let expected = "side_by_side [in_turn strict [100ms a1 on 0-1, 100ms a3 on 0-1], a2 on 2-3]";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn the_level_of_equal_parts_by_topology_matches_a_naive_search() {
    for machine in ["pack:4 [numa] l3:1 core:6", "pack:2 l3:2 core:3 pu:2", "core:7", "pack:3 core:4", "pu:1"]
    {
        let mut bench = Bench::new(machine, "TA", &Settings::default());
        let shapes = bench.snapshot.machine.shapes(&bench.snapshot.usable);
        for programs in 1..=30 {
            let naive = shapes
                .iter()
                .filter(|shape| shape.places.len() >= programs)
                .map(|shape| shape.width)
                .max()
                .unwrap_or_else(|| shapes.iter().map(|shape| shape.width).min().unwrap());
            assert_eq!(width(&bench.grow(programs)), naive as usize, "{programs} programs on {machine}");
        }
    }
}

#[test]
fn arrivals_and_ends_within_a_level_move_nobody() {
    for (policy, from, to) in [("TA", 13, 24), ("TA", 5, 8), ("CO", 8, 20), ("CO", 4, 7)] {
        let mut bench = Bench::new(OPTERON, policy, &paper_co());
        let mut before = places(&bench.grow(from));
        for programs in from + 1..=to {
            let now = places(&bench.grow(programs));
            assert!(before.iter().all(|place| now.contains(place)), "{policy}, {programs} programs");
            before = now;
        }
        for programs in (from..to).rev() {
            // Whoever came last, so that numbers in partitions stay even.
            let now = places(&bench.leave(&format!("a{}", programs + 1)));
            assert!(now.iter().all(|place| before.contains(place)), "{policy}, back to {programs}");
            before = now;
        }
    }
}

#[test]
fn programs_keep_a_part_of_their_place_across_levels() {
    for policy in ["TA", "CO"] {
        let mut bench = Bench::new(OPTERON, policy, &paper_co());
        let mut before = places(&bench.grow(1));
        for programs in 2..=24 {
            let now = places(&bench.grow(programs));
            let alone = programs <= 8;
            for (app, place) in before.iter().filter(|_| alone) {
                let stands = &now.iter().find(|(other, _)| other == app).unwrap().1;
                assert!(stands.is_subset(place), "{policy}: {app} went from {place} to {stands}");
            }
            before = now;
        }
    }
}

#[test]
fn three_programs_on_four_sockets_report_an_idle_one() {
    let mut bench = Bench::new(OPTERON, "TA", &Settings::default());
    let plan = bench.grow(3);
    assert_eq!(plan.place().len(), 18);
    assert!(bench.lines.iter().any(|line| line.contains("stay idle")), "{:?}", bench.lines);
}

#[test]
fn programs_are_dealt_evenly_over_partitions() {
    let mut bench = Bench::new(OPTERON, "CO", &paper_co());
    for programs in 1..=60 {
        let plan = bench.grow(programs);
        let mut counts = std::collections::BTreeMap::new();
        plan.for_each_run(&mut |run| *counts.entry(run.place.clone()).or_insert(0) += 1);
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 1, "{plan}");
    }
}

#[test]
fn hysteresis_keeps_the_level_around_the_switching_point() {
    let settings = Settings { upper_threshold: 2, lower_threshold: 1, ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "CO", &settings);
    // Two partitions of two: entered with 2 + 2 programs, left below 2 - 1.
    assert_eq!(width(&bench.grow(2)), 4);
    assert_eq!(width(&bench.grow(3)), 4);
    assert_eq!(width(&bench.grow(4)), 2);
    assert_eq!(width(&bench.leave("a1")), 2);
    assert_eq!(width(&bench.leave("a2")), 2);
    let plan = bench.leave("a3");
    assert_eq!(width(&plan), 2, "one program is not below 2 - 1");
}

#[test]
fn a_level_is_held_for_the_time_asked_for() {
    let settings = Settings { hold_ns: 500_000_000, ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "CO", &settings);
    assert_eq!(width(&bench.grow(1)), 4);
    let plan = bench.grow(2);
    assert_eq!(width(&plan), 4);
    let wake_at_ns = bench.wake_at_ns.expect("the level is to be left later");
    assert_eq!(wake_at_ns, 501_000_000);
    bench.snapshot.now_ns = wake_at_ns;
    assert_eq!(width(&bench.decide()), 2);
}

#[test]
fn local_decisions_split_a_node_when_it_has_enough_jobs() {
    let settings = Settings { level_decision: LevelDecision::Local, ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "CO", &settings);
    assert_eq!(bench.grow(1).to_string(), "a1 on 0-3");
    assert_eq!(bench.grow(2).to_string(), "side_by_side [a1 on 0-1, a2 on 2-3]");
    assert_eq!(bench.grow(3).to_string(), "side_by_side [a1 on 0, a3 on 1, a2 on 2-3]");
    assert_eq!(bench.grow(4).to_string(), "side_by_side [a1 on 0, a3 on 1, a2 on 2, a4 on 3]");
    // The sibling of what has nothing to do returns its job to the parent.
    assert_eq!(bench.leave("a1").to_string(), "side_by_side [a3 on 0-1, a2 on 2, a4 on 3]");
}

#[test]
fn rotation_gives_everybody_the_same_over_time() {
    let settings = Settings { rebalance_every_ns: Some(100_000_000), ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "CO", &settings);
    bench.grow(3);
    let mut alone = std::collections::BTreeMap::new();
    for _ in 0..30 {
        bench.snapshot.now_ns = bench.wake_at_ns.expect("uneven partitions are rotated");
        let plan = bench.decide();
        let shares = plan.mean_cpus();
        let (app, _) = shares.iter().find(|(_, cpus)| **cpus == 2.0).expect("one program is alone");
        *alone.entry((*app).clone()).or_insert(0) += 1;
    }
    assert_eq!(alone.values().copied().collect::<Vec<i32>>(), [10, 10, 10]);
}

#[test]
fn rotation_within_nodes_takes_nobody_to_another_node() {
    let node_of = |place: &CpuSet| place.lowest().expect("a place") / 6;
    let rotated = |within: bool| {
        let settings = Settings {
            allowed_widths: Some(vec![3]),
            rebalance_every_ns: Some(100_000_000),
            rebalance_within_nodes: within,
            ..Settings::default()
        };
        let mut bench = Bench::new(OPTERON, "CO", &settings);
        let mut before = places(&bench.grow(11));
        let (mut moved, mut left) = (0, 0);
        for _ in 0..30 {
            bench.snapshot.now_ns = bench.wake_at_ns.expect("uneven partitions are rotated");
            let now = places(&bench.decide());
            for ((_, old), (_, new)) in before.iter().zip(&now) {
                moved += usize::from(old != new);
                left += usize::from(node_of(old) != node_of(new));
            }
            before = now;
        }
        (moved, left)
    };
    // Of eleven programs on eight halves of nodes one that shares goes to the other half of its node each time.
    let (moved, left) = rotated(true);
    assert!(moved >= 30 && left == 0, "{moved} moves, {left} to another node");
    let (_, left) = rotated(false);
    assert!(left > 0, "without the setting nodes are left");
}

#[test]
fn an_allowed_width_of_the_machine_makes_all_take_turns() {
    let settings = Settings { allowed_widths: Some(vec![2]), ..Settings::default() };
    let mut bench = Bench::new("core:2", "CO", &settings);
    let plan = bench.grow(2);
    assert_eq!(plan.to_string(), "in_turn strict [100ms a1 on 0-1, 100ms a2 on 0-1]");
}

#[test]
fn equal_parts_only_add_and_remove_cpus() {
    let mut bench = Bench::new(OPTERON, "EQ", &Settings::default());
    let mut before = places(&bench.grow(1));
    let mut check = |plan: &Plan| {
        let now = places(plan);
        for (app, old) in &before {
            if let Some((_, new)) = now.iter().find(|(other, _)| other == app) {
                assert!(new.is_subset(old) || old.is_subset(new), "{app}: {old} became {new}");
            }
        }
        before = now;
    };
    for programs in 2..=24 {
        check(&bench.grow(programs));
    }
    for gone in 1..24 {
        check(&bench.leave(&format!("a{gone}")));
    }
}

#[test]
fn equal_parts_are_the_quotient_and_the_first_get_the_rest() {
    let mut bench = Bench::new(OPTERON, "EQ", &Settings::default());
    for programs in 1..=24 {
        let plan = bench.grow(programs);
        let sizes: Vec<usize> = bench
            .snapshot
            .apps
            .iter()
            .map(|app| plan.runs().iter().find(|run| run.app == app.id).unwrap().place.len())
            .collect();
        let naive: Vec<usize> =
            (0..programs).map(|n| 24 / programs + usize::from(n < 24 % programs)).collect();
        assert_eq!(sizes, naive);
    }
    let shared = bench.grow(49);
    let mut counts = std::collections::BTreeMap::new();
    shared.for_each_run(&mut |run| *counts.entry(run.place.clone()).or_insert(0) += 1);
    assert!(counts.len() == 24 && counts.values().all(|&count| count == 2 || count == 3));
}

#[test]
fn one_after_another_runs_the_earliest_on_everything() {
    let mut bench = Bench::new(OPTERON, "BP", &Settings::default());
    assert_eq!(bench.grow(3).to_string(), "a1 on 0-23 waiting [a2, a3]");
    assert_eq!(bench.leave("a1").to_string(), "a2 on 0-23 waiting [a3]");
    bench.snapshot.apps[0].suspended = true;
    assert_eq!(bench.decide().to_string(), "a3 on 0-23 suspended [a2]");
}

#[test]
fn uncontrolled_programs_overlap_everywhere() {
    let mut bench = Bench::new("core:4", "UE", &Settings::default());
    let plan = bench.arrive("a; b rigid max 2; c team 3");
    assert_eq!(plan.to_string(), "mixed [a on 0-3, b on 0-3 x 2, c on 0-3]");
    let mut bench = Bench::new("core:4", "LA", &Settings::default());
    bench.snapshot.load_average_15min_milli = 2_500;
    let plan = bench.arrive("a; b rigid max 2");
    assert_eq!(plan.to_string(), "mixed [a on 0-3 x 2, b on 0-3 x 2]");
    assert_eq!(bench.policy.launch_environment(), [("OMP_DYNAMIC", "TRUE")]);
}

#[test]
fn a_rigid_program_as_wide_as_the_machine_alternates_with_all() {
    for policy in ["TA", "CO", "EQ"] {
        let mut bench = Bench::new("core:4", policy, &Settings::default());
        let plan = bench.arrive("r rigid max 4; a; b");
        let Some(Tree::InTurn { slots, .. }) = &plan.tree else { panic!("{policy}: {plan}") };
        assert_eq!(slots[0].tree.to_string(), "r on 0-3", "{policy}");
        // Three programs, a third of the time for one: a half-filled level claims what it lacks.
        let shares = plan.mean_cpus();
        let share = |name: &str| shares[&AppId::new(name).unwrap()];
        assert!((share("r") - 4.0 / 3.0).abs() < 0.01, "{policy}: {plan}");
        assert!((share("a") - 4.0 / 3.0).abs() < 0.01, "{policy}: {plan}");
    }
}

#[test]
fn fitting_rigid_programs_share_a_slot_side_by_side() {
    let mut bench = Bench::new("core:4", "TA", &Settings::default());
    let plan = bench.arrive("r rigid max 2; s rigid max 2; t rigid max 2; a");
    let expected =
        "in_turn strict [100ms side_by_side [s on 0-1, t on 2-3], 100ms side_by_side [r on 0-1, a on 2-3]]";
    assert_eq!(plan.to_string(), expected);
    assert!(plan.mean_cpus().values().all(|&cpus| cpus == 1.0));
    let mut bench = Bench::new("core:4", "TA", &Settings::default());
    // As wide as an equal part: no turns at all.
    let plan = bench.arrive("r rigid max 2; a");
    assert_eq!(plan.to_string(), "side_by_side [r on 0-1, a on 2-3]");
}

#[test]
fn a_heavier_program_gets_longer_turns() {
    let settings = Settings { allowed_widths: Some(vec![2]), ..Settings::default() };
    let mut bench = Bench::new("core:2", "CO", &settings);
    let plan = bench.arrive("a weight 3000; b");
    assert_eq!(plan.to_string(), "in_turn strict [150ms a on 0-1, 50ms b on 0-1]");
}

#[test]
fn an_unstoppable_program_stands_in_every_slot() {
    let mut bench = Bench::new("core:4", "TA", &Settings::default());
    let plan = bench.arrive("r rigid max 3; s rigid max 3; sh fixed max 1");
    let Some(Tree::InTurn { slots, .. }) = &plan.tree else { panic!("{plan}") };
    let shell = AppId::new("sh").unwrap();
    assert!(slots.iter().all(|slot| slot.tree.apps().contains(&shell)), "{plan}");
    // There is room beside both.
    let expected =
        "in_turn strict [100ms side_by_side [r on 1-3, sh on 0], 100ms side_by_side [s on 1-3, sh on 0]]";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn a_passive_rigid_program_may_be_squeezed() {
    let mut bench = Bench::new("core:4", "TA", &Settings::default());
    let plan = bench.arrive("r rigid max 4 passive; a");
    assert_eq!(plan.to_string(), "side_by_side [mixed [r on 0-1 x 4], a on 2-3]");
}

#[test]
fn a_rigid_spinning_program_is_never_narrowed() {
    for policy in ["BP", "EQ", "TA", "CO"] {
        let mut bench = Bench::new(OPTERON, policy, &paper_co());
        bench.arrive("r rigid max 10");
        for programs in 2..40 {
            let plan = bench.arrive(&format!("b{programs}"));
            let run = plan.runs().into_iter().find(|run| run.app.as_str() == "r").cloned();
            assert!(run.is_some_and(|run| run.place.len() >= 10), "{policy}: {plan}");
        }
    }
}

#[test]
fn a_fixed_plan_is_carried_out_as_written() {
    let text = "in_turn strict [20ms a on 0-1, 20ms b on 0-1]";
    let settings = Settings { plan: Some(text.to_owned()), ..Settings::default() };
    let mut bench = Bench::new("core:2", "fixed", &settings);
    assert_eq!(bench.arrive("a; b").to_string(), text);
}

#[test]
fn a_fixed_plan_leaves_out_absent_programs() {
    let text = "in_turn strict [20ms a on 0-1, 20ms b on 0-1]";
    let settings = Settings { plan: Some(text.to_owned()), ..Settings::default() };
    let mut bench = Bench::new("core:2", "fixed", &settings);
    assert_eq!(bench.arrive("b; c").to_string(), "in_turn strict [20ms b on 0-1] waiting [c]");
    let settings = Settings { others: Some("1".parse().unwrap()), ..settings };
    let mut bench = Bench::new("core:2", "fixed", &settings);
    let plan = bench.arrive("b; c").to_string();
    assert_eq!(plan, "mixed [b on 0-1, c on 1]");
}

#[test]
fn a_program_that_a_fixed_plan_has_wait_is_not_unplanned() {
    let text = "a on 0-1 waiting [b]".to_owned();
    let mut bench = Bench::new("core:2", "fixed", &Settings { plan: Some(text), ..Settings::default() });
    assert_eq!(bench.arrive("a; b").to_string(), "a on 0-1 waiting [b]");
    assert_eq!(bench.lines, Vec::<String>::new());
    bench.arrive("c");
    assert_eq!(bench.lines, ["c: no place in the plan, waiting."]);
}

#[test]
fn suspended_programs_take_no_part() {
    for policy in ["UE", "LA", "BP", "EQ", "TA", "CO"] {
        let mut bench = Bench::new(FIGURE_1, policy, &Settings::default());
        let plan = bench.arrive("a; b suspended");
        assert_eq!(plan.to_string(), "a on 0-3 suspended [b]", "{policy}");
    }
}

#[test]
fn memory_survives_being_written_down() {
    let settings = Settings {
        level_decision: LevelDecision::Local,
        rebalance_every_ns: Some(1_000),
        ..Settings::default()
    };
    for policy in ["TA", "CO"] {
        let mut bench = Bench::new(FIGURE_1, policy, &settings);
        bench.grow(5);
        let text = serde_json::to_string(&bench.memory).unwrap();
        assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), bench.memory);
    }
}

#[test]
fn settings_come_from_a_table_and_unknown_ones_are_refused() {
    let settings: Settings =
        toml::from_str("slice_ns = 10000000\nallowed_widths = [2]\nlevel_decision = \"local\"").unwrap();
    assert_eq!(settings.slice_ns, 10_000_000);
    assert_eq!(settings.level_decision, LevelDecision::Local);
    let error = toml::from_str::<Settings>("slise_ns = 1").unwrap_err();
    assert!(error.to_string().contains("slise_ns"), "{error}");
}

#[test]
fn programs_that_come_with_nothing_known_are_not_special() {
    let mut bench = Bench::new(FIGURE_1, "TA", &Settings::default());
    bench.snapshot.apps.push(App::new(AppId::new("new").unwrap(), 0));
    assert_eq!(bench.decide().to_string(), "new on 0-3");
}
