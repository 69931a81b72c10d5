//! The checker: one rejection a rule, and what it must let pass.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{id, plan, set};
use coplace_plan::check::Sequence;
use coplace_plan::{
    Idleness, MoveReason, Promise, Remark, Report, Settled, ShareBound, Snapshot, Violation, WaitingBound,
    check_plan,
};
use proptest::prelude::*;
use topology::Machine;

/// Two packages of four cores, programs as described.
fn eight(apps: &str) -> Snapshot {
    on("pack:2 core:4 pu:1", apps)
}

fn on(machine: &str, apps: &str) -> Snapshot {
    let machine = Arc::new(Machine::synthetic(machine).unwrap());
    Snapshot::for_machine(machine).with_apps(apps).unwrap()
}

fn judge(snapshot: &Snapshot, text: &str) -> Vec<Violation> {
    check_plan(&plan(text), snapshot, &Promise::default())
}

fn judge_shapes(snapshot: &Snapshot, text: &str) -> Vec<Violation> {
    check_plan(&plan(text), snapshot, &Promise { equal_shapes: true, ..Promise::default() })
}

/// `$found` is exactly one violation, and this one.
macro_rules! assert_only {
    ($found:expr, $pattern:pat $(if $guard:expr)?) => {{
        let found = $found;
        assert!(matches!(&found[..], [$pattern] $(if $guard)?), "{found:?}");
    }};
}

fn assert_valid(found: Vec<Violation>) {
    assert_eq!(found, []);
}

// Invariant 1.

#[test]
fn every_live_program_must_occur() {
    assert_only!(judge(&eight("a; b"), "a on 0"), Violation::Missing { app } if app.as_str() == "b");
    assert_valid(judge(&eight("a; b; c suspended"), "a on 0 waiting [b] suspended [c]"));
}

#[test]
fn absent_programs_may_not_occur() {
    assert_only!(judge(&eight("a"), "a on 0 waiting [z]"), Violation::Unknown { app } if app.as_str() == "z");
}

#[test]
fn a_program_stands_in_one_of_tree_waiting_and_suspended() {
    assert_only!(judge(&eight("a"), "a on 0 waiting [a]"), Violation::Twice { .. });
}

#[test]
fn a_program_is_in_one_place_at_a_time_but_in_several_slots() {
    let twice = judge(&eight("a; b"), "side_by_side [in_turn [a on 0, b on 0], a on 1]");
    assert_only!(twice, Violation::TwoPlacesAtOnce { .. });
    assert_valid(judge(&eight("a; b"), "in_turn [a on 0-3, b on 0-3, a on 4-7]"));
}

#[test]
fn exactly_the_suspended_programs_stand_still() {
    assert_only!(judge(&eight("a"), "idle suspended [a]"), Violation::SuspendedUnasked { .. });
    assert_only!(judge(&eight("a suspended"), "a on 0"), Violation::NotSuspended { .. });
    assert_only!(judge(&eight("a suspended"), "idle waiting [a]"), Violation::NotSuspended { .. });
}

#[test]
fn nothing_in_a_tree_is_empty() {
    let node = judge(&eight("a"), "side_by_side [a on 0, in_turn []]");
    assert_only!(node, Violation::EmptyNode { node } if node == "in_turn");
    assert_only!(judge(&eight("a"), "a on 0 x 0")[..1].to_vec(), Violation::EmptyRun { .. });
    assert!(judge(&eight("a"), "a on none").contains(&Violation::EmptyRun { app: id("a") }));
    let mut no_time = plan("in_turn [a on 0, b on 0]");
    if let Some(coplace_plan::Tree::InTurn { slots, .. }) = &mut no_time.tree {
        slots[1].slice_ns = 0;
    }
    let found = check_plan(&no_time, &eight("a; b"), &Promise::default());
    assert_only!(found, Violation::EmptySlot { apps } if apps == "b");
}

// Invariant 2.

#[test]
fn places_side_by_side_are_disjoint() {
    let found = judge(&eight("a; b"), "side_by_side [a on 0-3, b on 3-4]");
    assert_only!(found, Violation::Overlap { cpus } if *cpus == set("3"));
    assert_valid(judge(&eight("a; b"), "mixed [a on 0-3, b on 3-4]"));
}

#[test]
fn places_lie_in_usable_cpus() {
    let found = judge(&eight("a").with_usable(set("0-3")), "a on 2-5");
    assert_only!(found, Violation::Outside { cpus, .. } if *cpus == set("4-5"));
    let strange = judge(&eight("a"), "a on 7-8");
    assert_only!(strange, Violation::Outside { cpus, .. } if *cpus == set("8"));
}

#[test]
fn a_program_stays_where_it_must() {
    let snapshot = eight("a within 4-5");
    assert_only!(judge(&snapshot, "a on 3-4"), Violation::Outside { room, .. } if *room == set("4-5"));
    assert_valid(judge(&snapshot, "a on 4"));
    // Where nothing that is usable is left to it, it still stays there.
    assert_valid(judge(&snapshot.clone().with_usable(set("0-3")), "a on 4-5"));
    assert_only!(judge(&snapshot.with_usable(set("0-3")), "a on 0"), Violation::Outside { .. });
}

#[test]
fn a_too_wide_team_reaches_beyond_usable_only_as_it_must() {
    let snapshot = eight("a rigid max 6").with_usable(set("0-3"));
    assert_valid(judge(&snapshot, "a on 0-5"));
    assert_only!(judge(&snapshot, "a on 0-6"), Violation::OverflowTooWide { cpus: 7, needed: 6, .. });
    assert_only!(judge(&snapshot, "a on 0-3"), Violation::Squeezed { .. });
    let passive = eight("a rigid max 6 passive").with_usable(set("0-3"));
    assert_only!(judge(&passive, "a on 0-5"), Violation::Outside { .. });
    let narrow = eight("a rigid max 2").with_usable(set("0-3"));
    assert_only!(judge(&narrow, "a on 4-5"), Violation::Outside { .. });
}

#[test]
fn an_owner_runs_on_its_own_cpus() {
    let found = judge(&eight("a; b"), "mixed {2: a} [a on 0-1, b on 0-2]");
    assert_only!(found, Violation::StrangeOwner { cpu: 2, .. });
    assert_valid(judge(&eight("a; b"), "mixed {0: a} [a on 0-1, b on 0-2]"));
}

// Invariant 3.

#[test]
fn more_threads_than_cpus_stand_only_under_mixed() {
    assert_only!(judge(&eight("a"), "a on 0-1 x 3"), Violation::Oversubscribed { threads: 3, cpus: 2, .. });
    assert_valid(judge(&eight("a"), "mixed [a on 0-1 x 3]"));
}

#[test]
fn a_rigid_program_is_never_narrower_than_its_team() {
    let started = eight("a rigid max 4 team 6");
    assert_only!(judge(&started, "a on 0-4"), Violation::Squeezed { cpus: 5, needed: 6, .. });
    assert_valid(judge(&started, "a on 0-5"));
    let mixed = judge(&eight("a rigid team 4; b rigid team 4"), "mixed [a on 0-3, b on 0-2]");
    assert_only!(mixed, Violation::Squeezed { app, .. } if app.as_str() == "b");
    // Before anything was observed, what it demands; as wide as the machine where it does not say.
    assert_only!(judge(&eight("a rigid max 3"), "a on 0-1"), Violation::Squeezed { needed: 3, .. });
    assert_only!(judge(&eight("a rigid"), "a on 0-6"), Violation::Squeezed { needed: 8, .. });
    // Wider than everything that there is, all that there is.
    assert_valid(judge(&eight("a rigid team 64"), "a on 0-7"));
    assert_valid(judge(&eight("a rigid team 4 passive"), "mixed [a on 0 x 4]"));
}

#[test]
fn moldable_and_evolving_programs_are_rigid_once_they_run() {
    for kind in ["moldable", "evolving"] {
        assert_valid(judge(&eight(&format!("a {kind} max 8")), "a on 0-1"));
        let started = eight(&format!("a {kind} team 4"));
        assert_only!(judge(&started, "a on 0-1"), Violation::Squeezed { needed: 4, .. });
    }
}

#[test]
fn a_malleable_team_is_squeezed_only_if_it_is_asked_to_shrink() {
    let running = eight("a team 4");
    assert_valid(judge(&running, "a on 0-1"));
    assert_only!(judge(&running, "mixed [a on 0-1 x 4]"), Violation::NotShrunk { team: 4, cpus: 2, .. });
    assert_valid(judge(&eight("a team 4 passive"), "mixed [a on 0-1 x 4]"));
}

#[test]
fn no_program_gets_fewer_threads_than_its_minimum() {
    assert_only!(judge(&eight("a min 3"), "a on 0-1"), Violation::Squeezed { needed: 3, .. });
    assert_only!(judge(&eight("a min 3"), "a on 0-3 x 2"), Violation::BelowMinimum { least: 3, .. });
}

#[test]
fn an_unstoppable_program_never_takes_turns_or_waits() {
    let snapshot = eight("a fixed team 2; b");
    let turns = judge(&snapshot, "in_turn [a on 0-1, b on 0-1]");
    assert_only!(turns, Violation::StoppedInTurn { app } if app.as_str() == "a");
    let every_slot = "in_turn [side_by_side [a on 0-1, b on 2], a on 0-1]";
    assert_valid(judge(&snapshot, every_slot));
    assert_only!(judge(&snapshot, "b on 0 waiting [a]"), Violation::StoppedWaiting { .. });
    assert_valid(judge(&eight("a fixed; b"), "b on 0 waiting [a]"));
}

// Invariant 4.

#[test]
fn partitions_are_units_or_equal_fractions() {
    let snapshot = eight("a; b");
    for good in [
        "side_by_side [a on 0-3, b on 4-7]",
        "side_by_side [a on 0-1, b on 6-7]",
        "side_by_side [a on 2, b on 5]",
        "in_turn [a on 0-7, b on 0-7]",
        "in_turn [side_by_side [a on 0-3, b on 4-7], a on 0-7]",
    ] {
        assert_valid(judge_shapes(&snapshot, good));
    }
    for odd in ["0-2", "0-5", "1-2", "3-4", "0,4"] {
        let found = judge_shapes(&eight("a"), &format!("a on {odd}"));
        assert!(
            found.iter().any(|wrong| matches!(wrong, Violation::OddPartition { .. })),
            "{odd}: {found:?}"
        );
    }
}

#[test]
fn a_restricted_program_is_exempt_from_shapes() {
    assert_valid(judge_shapes(&eight("a within 1-3"), "a on 1-3"));
    assert_valid(judge_shapes(&eight("a rigid team 3; b"), "side_by_side [a on 0-2, b on 4-7]"));
    // What rigid programs leave can be cut into equal parts, too.
    assert_valid(judge_shapes(&eight("a rigid team 6; b; c"), "side_by_side [a on 0-5, b on 6, c on 7]"));
}

#[test]
fn a_program_with_all_it_can_use_leaves_the_rest_to_be_cut() {
    // One CPU for who can use one: the other seven are two partitions of three, or one.
    let snapshot = eight("a max 1; b; c");
    for good in
        ["side_by_side [a on 0, b on 1-3, c on 4-6]", "side_by_side [a on 0, in_turn [b on 1-7, c on 1-7]]"]
    {
        assert_valid(judge_shapes(&snapshot, good));
    }
    // It has not where others are in turn with it, or where it could use more.
    let odd = |apps: &str, text: &str| {
        let found = judge_shapes(&eight(apps), text);
        assert!(
            found.iter().any(|wrong| matches!(wrong, Violation::OddPartition { .. })),
            "{text}: {found:?}"
        );
    };
    odd("a max 1; b; c", "in_turn [side_by_side [a on 0, b on 1-3], c on 0-7]");
    odd("a max 2; b; c", "side_by_side [a on 0, b on 1-3, c on 4-6]");
    odd("a; b; c", "side_by_side [a on 0, b on 1-3, c on 4-6]");
}

const MACHINES: [&str; 5] = [
    "pack:4 [numa] l3:1 core:6 pu:1",
    "pack:2 l3:2 core:4 pu:2",
    "pack:1 core:7 pu:1",
    "pack:3 core:3 pu:2",
    "core:2 pu:1",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_shape_of_the_topology_passes_the_balance_check(
        machine in prop::sample::select(&MACHINES[..]), holes in prop::collection::btree_set(0u32..32, 0..12),
    ) {
        let whole = on(machine, "");
        let all = whole.machine.all_cpus().clone();
        let usable = all.iter().filter(|cpu| !holes.contains(cpu)).collect::<topology::CpuSet>();
        prop_assume!(!usable.is_empty());
        let snapshot = whole.clone().with_usable(usable.clone());
        for shape in whole.machine.shapes(&usable).iter() {
            let mut filled = snapshot.clone();
            let mut runs = Vec::new();
            for (index, place) in shape.places.iter().enumerate() {
                filled = filled.with_apps(&format!("a{index}")).unwrap();
                runs.push(format!("a{index} on {place}"));
            }
            let found = judge_shapes(&filled, &format!("side_by_side [{}]", runs.join(", ")));
            prop_assert_eq!(found, vec![], "{}, usable {}, {} wide", machine, usable, shape.width);
        }
    }
}

#[test]
fn left_over_cpus_are_spoken_of() {
    let snapshot = on("pack:1 core:7 pu:1", "a; b");
    let shapes = snapshot.machine.shapes(&snapshot.usable);
    let shape = shapes.iter().find(|shape| !shape.left_over.is_empty());
    let shape = shape.expect("seven CPUs cannot all be cut into equal parts");
    let text = format!("side_by_side [a on {}, b on {}]", shape.places[0], shape.places[1]);
    let promise = Promise { equal_shapes: true, ..Promise::default() };
    let step = |remarks: Vec<Remark>| {
        let report = Report { remarks, ..Report::default() };
        Sequence::default().check_step(&plan(&text), &snapshot, &promise, &report)
    };
    let cpus = shape.left_over.clone();
    assert_only!(step(Vec::new()), Violation::LeftOverUnexplained { cpus } if *cpus == shape.left_over);
    assert_valid(step(vec![Remark::LeftOver { cpus: cpus.clone(), width: shape.width }]));
    assert_valid(step(vec![Remark::Idle { cpus: cpus.clone(), why: Idleness::OneShape }]));
    // Other CPUs do not count, nor does what a script says of them.
    let other = shape.places[0].clone();
    let wrong = vec![
        Remark::LeftOver { cpus: other, width: shape.width },
        Remark::Script(format!("CPUs {cpus} are left over")),
    ];
    assert_only!(step(wrong), Violation::LeftOverUnexplained { cpus } if *cpus == shape.left_over);
}

// Invariant 5.

#[test]
fn equal_programs_have_equal_shares_up_to_the_promise() {
    let judge = |apps: &str, text: &str, bound| {
        let promise = Promise { share_bound: Some(bound), ..Promise::default() };
        check_plan(&plan(text), &eight(apps), &promise)
    };
    let uneven = "side_by_side [a on 0-2, b on 3-4]";
    assert_only!(judge("a; b", uneven, ShareBound::Ratio(1.0)), Violation::Unfair { richer, .. } if richer.as_str() == "a");
    assert_valid(judge("a; b", uneven, ShareBound::Ratio(1.5)));
    assert_only!(judge("a; b", uneven, ShareBound::Difference(0.1)), Violation::Unfair { .. });
    assert_valid(judge("a; b", uneven, ShareBound::Difference(0.125)));
    // Who waits has nothing; who asks for something else cannot be compared.
    assert_only!(judge("a; b", "a on 0 waiting [b]", ShareBound::Ratio(9.0)), Violation::Unfair { .. });
    assert_valid(judge("a; b weight 500", uneven, ShareBound::Ratio(1.0)));
    assert_valid(judge("a; b rigid max 2", uneven, ShareBound::Ratio(1.0)));
    assert_valid(judge("a; b suspended", "a on 0 suspended [b]", ShareBound::Ratio(1.0)));
}

fn judge_shares(apps: &str, text: &str, bound: ShareBound) -> Vec<Violation> {
    let promise = Promise { share_bound: Some(bound), ..Promise::default() };
    check_plan(&plan(text), &eight(apps), &promise)
}

#[test]
fn a_floor_grows_with_programs_and_with_their_weights() {
    let four = "a; b; c; d max 1";
    let text = "side_by_side [a on 0-3, b on 4, c on 5-6, d on 7]";
    // Four times as much as an equal, and four programs are there.
    assert_valid(judge_shares(four, text, ShareBound::Floor(1.0)));
    assert_only!(judge_shares(four, text, ShareBound::Floor(0.9)), Violation::Unfair { poorer, .. } if poorer.as_str() == "b");
    // Who is suspended is not there.
    let three = "a; b; c; d suspended";
    let text = "side_by_side [a on 0-3, b on 4, c on 5-6] suspended [d]";
    assert_only!(judge_shares(three, text, ShareBound::Floor(1.0)), Violation::Unfair { .. });
    assert_valid(judge_shares(three, text, ShareBound::Floor(4.0 / 3.0)));
    // Of twelve parts of weight one is b's, and an equal has six times as much.
    let light = "a; b; heavy weight 10000";
    let text = "side_by_side [a on 0-5, b on 6, heavy on 7]";
    assert_only!(judge_shares(light, text, ShareBound::Floor(0.4)), Violation::Unfair { .. });
    assert_valid(judge_shares(light, text, ShareBound::Floor(0.6)));
    // Nobody may be left without anything.
    assert_only!(
        judge_shares("a; b", "a on 0 waiting [b]", ShareBound::Floor(99.0)),
        Violation::Unfair { .. }
    );
}

#[test]
fn the_earliest_first_has_everything() {
    let first = ShareBound::EarliestFirst;
    assert_valid(judge_shares("a; b", "a on 0-7 waiting [b]", first));
    let latest = judge_shares("a; b", "b on 0-7 waiting [a]", first);
    assert_only!(latest, Violation::Unfair { richer, poorer, .. } if richer.as_str() == "b" && poorer.as_str() == "a");
    // With CPUs left that it could have it is the poorer twice.
    let half = judge_shares("a; b", "b on 0-3 waiting [a]", first);
    assert!(matches!(&half[..], [Violation::TooLittle { .. }, Violation::Unfair { .. }]), "{half:?}");
    let beside = judge_shares("a; b", "side_by_side [a on 0-6, b on 7]", first);
    assert_only!(&beside, Violation::Unfair { richer, .. } if richer.as_str() == "b");
    let text = "b has 0.1250 of the machine, the earlier a 0.8750; promised: the earliest has everything";
    assert_eq!(beside[0].to_string(), text);
    let narrow = judge_shares("a; b", "a on 0-6 waiting [b]", first);
    assert_only!(&narrow, Violation::TooLittle { least, .. } if *least == 1.0);
    assert_eq!(narrow[0].invariant(), 5);
    assert_valid(judge_shares("a max 3; b", "a on 0-2 waiting [b]", first));
    // Who must not be stopped runs beside it, a suspended program lets the next one run.
    assert_valid(judge_shares("sh fixed; a; b", "side_by_side [sh on 0, a on 1-7] waiting [b]", first));
    assert_valid(judge_shares("a suspended; b", "b on 0-7 suspended [a]", first));
    // A rigid one that came first is nobody's equal, and yet it is first.
    assert_valid(judge_shares("r rigid max 2; b", "r on 0-1 waiting [b]", first));
    assert_only!(
        judge_shares("r rigid max 2; b", "side_by_side [r on 0-1, b on 2-7]", first),
        Violation::Unfair { .. }
    );
}

#[test]
fn a_plan_that_a_user_wrote_is_held_to_no_shares() {
    assert_valid(judge_shares("a; b", "a on 0-7 waiting [b]", ShareBound::AsWritten));
}

#[test]
fn a_settled_bound_holds_once_nothing_has_changed() {
    let settled = Some(Settled { after_ns: 10, bound: ShareBound::Ratio(1.0) });
    let mut history =
        History { sequence: Sequence::default(), promise: Promise { settled, ..Promise::default() } };
    let uneven = "side_by_side [a on 0-2, b on 3-4]";
    let at = |now_ns: u64, apps: &str| Snapshot { now_ns, ..eight(apps) };
    assert_valid(history.step(&at(100, "a; b"), uneven));
    assert_valid(history.step(&at(109, "a; b"), uneven));
    assert_only!(history.step(&at(110, "a; b"), uneven), Violation::Unfair { .. });
    assert_valid(history.step(&at(111, "a; b"), "side_by_side [a on 0-2, b on 3-5]"));
    // Other teams, other CPUs and another policy begin it anew.
    assert_valid(history.step(&at(112, "a team 3; b"), uneven));
    assert_valid(history.step(&at(121, "a team 3; b"), uneven));
    let fewer = at(122, "a team 3; b").with_usable(set("0-5"));
    assert_valid(history.step(&fewer, uneven));
    assert_valid(history.step(&Snapshot { now_ns: 131, ..fewer.clone() }, uneven));
    history.sequence.forget_waits();
    assert_valid(history.step(&Snapshot { now_ns: 132, ..fewer.clone() }, uneven));
    assert_only!(history.step(&Snapshot { now_ns: 142, ..fewer }, uneven), Violation::Unfair { .. });
}

#[test]
fn promises_written_before_there_was_a_settled_bound_are_read() {
    let old = r#"{"equal_shapes":true,"share_bound":{"ratio":2.0},"waiting_bound":{"terminations":0},"keeps_cpus":true}"#;
    let read: Promise = serde_json::from_str(old).unwrap();
    assert_eq!((read.share_bound, read.settled), (Some(ShareBound::Ratio(2.0)), None));
    assert_eq!(serde_json::to_string(&read).unwrap(), old);
}

// Invariants 6 and 7.

struct History {
    sequence: Sequence,
    promise: Promise,
}

impl History {
    fn new(promise: Promise) -> History {
        History { sequence: Sequence::default(), promise }
    }

    fn step(&mut self, snapshot: &Snapshot, text: &str) -> Vec<Violation> {
        self.step_with(snapshot, text, &BTreeMap::new())
    }

    fn step_with(
        &mut self,
        snapshot: &Snapshot,
        text: &str,
        moves: &BTreeMap<workload::AppId, MoveReason>,
    ) -> Vec<Violation> {
        let report = Report { moves: moves.clone(), ..Report::default() };
        self.sequence.check_step(&plan(text), snapshot, &self.promise, &report)
    }
}

#[test]
fn waiting_ends_after_the_promised_number_of_terminations() {
    let bound = WaitingBound::Terminations(2);
    let mut history = History::new(Promise { waiting_bound: Some(bound), ..Promise::default() });
    assert_valid(history.step(&eight("a; b; c; w"), "side_by_side [a on 0, b on 1, c on 2] waiting [w]"));
    assert_valid(history.step(&eight("b; c; w"), "side_by_side [b on 1, c on 2] waiting [w]"));
    let late = history.step(&eight("c; w"), "c on 2 waiting [w]");
    assert_only!(late, Violation::WaitsTooLong { app, terminations: 2, .. } if app.as_str() == "w");
    let mut nobody =
        History::new(Promise { waiting_bound: Some(WaitingBound::Terminations(0)), ..Promise::default() });
    assert_only!(nobody.step(&eight("w"), "idle waiting [w]"), Violation::WaitsTooLong { .. });
}

#[test]
fn waiting_behind_earlier_arrivals_ends_with_the_last_of_them() {
    let bound = WaitingBound::EarlierArrivals;
    let promise = Promise { waiting_bound: Some(bound), ..Promise::default() };
    let mut history = History::new(promise);
    assert_valid(history.step(&eight("a; b; w; z"), "a on 0 waiting [b, w, z]"));
    assert_valid(history.step(&eight("b; w"), "b on 0 waiting [w]"));
    assert_only!(history.step(&eight("w; y"), "y on 0 waiting [w]"), Violation::WaitsTooLong { .. });
    // A later arrival's end brings nobody's turn nearer, and who is suspended blocks nobody.
    let mut history = History::new(promise);
    assert_valid(history.step(&eight("a; w; z"), "a on 0 waiting [w, z]"));
    assert_valid(history.step(&eight("a; w"), "a on 0 waiting [w]"));
    let blocked = history.step(&eight("a suspended; w"), "idle waiting [w] suspended [a]");
    assert_only!(blocked, Violation::WaitsTooLong { .. });
}

#[test]
fn a_wait_that_was_interrupted_begins_anew() {
    let bound = WaitingBound::Terminations(1);
    let mut history = History::new(Promise { waiting_bound: Some(bound), ..Promise::default() });
    assert_valid(history.step(&eight("a; w"), "a on 0 waiting [w]"));
    assert_valid(history.step(&eight("w; b"), "side_by_side [w on 0, b on 1]"));
    assert_valid(history.step(&eight("w; b"), "b on 0 waiting [w]"));
    history.sequence.forget_waits();
    assert_valid(history.step(&eight("w; c"), "c on 0 waiting [w]"));
}

fn keeping() -> Promise {
    Promise { equal_shapes: true, keeps_cpus: true, ..Promise::default() }
}

#[test]
fn partitions_are_dealt_out_so_that_most_cpus_are_kept() {
    let snapshot = eight("a; b");
    let mut history = History::new(keeping());
    assert_valid(history.step(&snapshot, "side_by_side [a on 0-3, b on 4-7]"));
    let swapped = history.step(&snapshot, "side_by_side [b on 0-3, a on 4-7]");
    assert_only!(swapped, Violation::NeedlessMove { kept: 0, possible: 8, moved } if moved == "b, a");
}

#[test]
fn a_free_partition_where_a_program_stood_is_a_better_one() {
    let mut history = History::new(keeping());
    assert_valid(history.step(&eight("a"), "a on 4-7"));
    let moved = history.step(&eight("a; b"), "side_by_side [a on 0-1, b on 2-3]");
    assert_only!(moved, Violation::NeedlessMove { kept: 0, possible: 2, .. });
    let mut history = History::new(keeping());
    assert_valid(history.step(&eight("a"), "a on 4-7"));
    assert_valid(history.step(&eight("a; b"), "side_by_side [a on 4-5, b on 0-1]"));
}

#[test]
fn a_move_with_a_reason_is_no_needless_one() {
    let snapshot = eight("a; b");
    let mut history = History::new(keeping());
    assert_valid(history.step(&snapshot, "side_by_side [a on 0-3, b on 4-7]"));
    let why = MoveReason::Script("its pages are there".into());
    let reasons = BTreeMap::from([(id("a"), why.clone()), (id("b"), why)]);
    assert_valid(history.step_with(&snapshot, "side_by_side [b on 0-3, a on 4-7]", &reasons));
}

#[test]
fn gangs_that_share_a_place_move_together_or_not_at_all() {
    let snapshot = eight("a; b; c");
    let mut history = History::new(keeping());
    assert_valid(history.step(&snapshot, "side_by_side [in_turn [a on 0-3, b on 0-3], c on 4-7]"));
    let moved = history.step(&snapshot, "side_by_side [in_turn [a on 4-7, b on 4-7], c on 0-3]");
    assert_only!(moved, Violation::NeedlessMove { kept: 0, possible: 12, .. });
}

#[test]
fn new_shapes_move_only_programs_they_must() {
    let mut history = History::new(keeping());
    assert_valid(history.step(&eight("a"), "a on 0-7"));
    assert_valid(history.step(&eight("a; b"), "side_by_side [a on 0-3, b on 4-7]"));
    assert_valid(history.step(&eight("b"), "b on 0-7"));
}

#[test]
fn a_policy_without_promises_is_held_to_no_sequence() {
    let snapshot = eight("a; b");
    let mut history = History::new(Promise::default());
    assert_valid(history.step(&snapshot, "side_by_side [a on 0-3, b on 4-7]"));
    assert_valid(history.step(&snapshot, "side_by_side [b on 0-3, a on 4-7]"));
    assert_valid(history.step(&snapshot, "idle waiting [a, b]"));
}

#[test]
fn every_violation_states_invariant_and_subject() {
    let found = judge(&eight("a rigid team 4"), "a on 0-1");
    assert_eq!(found[0].invariant(), 3);
    assert_eq!(found[0].to_string(), "a cannot run on fewer than 4 CPUs, but is given 2");
}

#[test]
fn a_plan_of_1000_programs_on_1024_cpus_is_judged_within_20_ms() {
    if cfg!(debug_assertions) {
        return coplace_skipped::skipped_here("a timing of optimised code: cargo test --release");
    }
    let names: Vec<String> = (0..1000).map(|index| format!("a{index}")).collect();
    let snapshot = on("pack:8 [numa] l3:8 core:8 pu:2", &names.join(";"));
    let side_by_side = |first: u32| {
        let on = |(index, name): (usize, &String)| format!("{name} on {}", (first + index as u32) % 1024);
        let runs: Vec<String> = names.iter().enumerate().map(on).collect();
        plan(&format!("side_by_side [{}]", runs.join(", ")))
    };
    let promise = Promise { share_bound: Some(ShareBound::Ratio(1.0)), ..keeping() };
    let mut sequence = Sequence::default();
    let report = Report::default();
    for first in [0, 0, 24] {
        let plan = side_by_side(first);
        let start = std::time::Instant::now();
        assert_valid(check_plan(&plan, &snapshot, &promise));
        let checked = start.elapsed();
        let found = sequence.check_step(&plan, &snapshot, &promise, &report);
        println!("plan {checked:?}, step {:?}, {} violations", start.elapsed() - checked, found.len());
        assert!(checked.as_millis() < 20, "{checked:?}");
        assert_eq!(found.is_empty(), first == 0);
    }
}

/// Of each program that waits, how many of those that ran have ended since: counted in the simplest way.
#[derive(Default)]
struct NaiveWaits {
    running: Vec<String>,
    terminations: BTreeMap<String, u32>,
}

impl NaiveWaits {
    fn step(&mut self, live: &[String], waiting: &[String]) {
        let ended = self.running.iter().filter(|app| !live.contains(app)).count() as u32;
        self.terminations.retain(|app, _| waiting.contains(app));
        self.terminations.values_mut().for_each(|terminations| *terminations += ended);
        for app in waiting {
            self.terminations.entry(app.clone()).or_insert(0);
        }
        self.running = live.iter().filter(|app| !waiting.contains(app)).cloned().collect();
    }
}

/// Some of eight programs in an order of their own, and how many of them, from the first on, wait.
fn some_waiting() -> impl Strategy<Value = (Vec<String>, usize)> {
    // Two of them differ behind their first eight letters only.
    let names = ["a", "b", "c", "d10", "d9", "abcdefgh1", "abcdefgh2", "abcdefgh"].map(str::to_owned);
    (prop::sample::subsequence(names.to_vec(), 0..=8).prop_shuffle(), 0usize..9)
        .prop_map(|(live, waiting)| (live.clone(), waiting.min(live.len())))
}

proptest! {
    #[test]
    fn terminations_are_counted_as_naively(
        steps in prop::collection::vec(some_waiting(), 1..12), bound in 0u32..3,
    ) {
        let promise =
            Promise { waiting_bound: Some(WaitingBound::Terminations(bound)), ..Promise::default() };
        let (mut history, mut naive) = (History::new(promise), NaiveWaits::default());
        for (live, waiting) in steps {
            let (waiting, running) = live.split_at(waiting);
            naive.step(&live, waiting);
            let runs: Vec<String> = running.iter().map(|app| format!("{app} on 0")).collect();
            let tree = if runs.is_empty() { "idle".to_owned() } else { format!("mixed [{}]", runs.join(", ")) };
            let text = format!("{tree} waiting [{}]", waiting.join(", "));
            let late: BTreeMap<String, u32> = history
                .step(&eight(&live.join("; ")), &text)
                .into_iter()
                .filter_map(|found| match found {
                    Violation::WaitsTooLong { app, terminations, .. } => Some((app.to_string(), terminations)),
                    _ => None,
                })
                .collect();
            let expected = naive.terminations.iter().filter(|(_, count)| **count >= bound);
            prop_assert_eq!(late, expected.map(|(app, count)| (app.clone(), *count)).collect(), "{}", text);
        }
    }
}
