//! Normal form and differences.

mod common;

use std::borrow::Cow;

use common::{any_plan, id, plan, set, sound_plan};
use coplace_plan::{AppChange, Limits, Plan, Refusal, Slot, Tree, TurnMode, diff, normalise, standstill_ns};
use proptest::prelude::*;

fn normal(text: &str) -> String {
    normalise(&plan(text), &Limits::default())
        .unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
        .to_string()
}

fn refused(text: &str) -> Refusal {
    normalise(&plan(text), &Limits::default()).expect_err(text)
}

#[test]
fn single_and_empty_nodes_vanish_and_nested_equal_ones_merge() {
    for (text, expected) in [
        ("side_by_side [a on 0]", "a on 0"),
        ("side_by_side [side_by_side [a on 0, b on 1], c on 2]", "side_by_side [a on 0, b on 1, c on 2]"),
        ("side_by_side [in_turn [a on 0], side_by_side []]", "a on 0"),
        ("side_by_side [] waiting [a]", "idle waiting [a]"),
        ("mixed [mixed {0: a} [a on 0, b on 0], c on 0]", "mixed {0: a} [a on 0, b on 0, c on 0]"),
        ("mixed [side_by_side [a on 0, b on 1], c on 0-1]", "mixed [a on 0, b on 1, c on 0-1]"),
        ("mixed [a on 0-1]", "a on 0-1"),
        ("mixed [a on 0-1 x 4]", "mixed [a on 0-1 x 4]"),
    ] {
        assert_eq!(normal(text), expected, "{text}");
    }
}

#[test]
fn a_plan_in_normal_form_is_unchanged() {
    for text in [
        "idle",
        "a on 0",
        "mixed [a on 0-1 x 4]",
        "mixed [a on 0, b on 0]",
        "side_by_side [mixed [a on 0 x 2], b on 1]",
        "in_turn [a on 0, side_by_side [b on 0, c on 1]]",
    ] {
        let plan = plan(text);
        assert!(matches!(normalise(&plan, &Limits::default()), Ok(Cow::Borrowed(_))), "{text}");
    }
}

#[test]
fn all_four_levels_can_be_carried_out() {
    let text = "in_turn strict [20ms side_by_side [in_turn strict [20ms mixed [a on 0, b on 0], 20ms c on 0], d on 1], 20ms e on 0-1]";
    assert_eq!(normal(text), text);
}

#[test]
fn deeper_trees_are_refused_with_place_and_remedy() {
    let refusal = refused("side_by_side [in_turn [side_by_side [a on 0, b on 1], c on 0-1], d on 2]");
    let shown = refusal.to_string();
    assert_eq!(shown, "side_by_side stands below in_turn, where only mixed and runs can be carried out");
    let mixed = refused("mixed [in_turn [a on 0, b on 0], c on 0]").to_string();
    assert_eq!(mixed, "in_turn stands below mixed, where only runs can be carried out");
    let thrice = refused("in_turn [in_turn [in_turn [a on 0, b on 0], c on 0], d on 0]").to_string();
    assert_eq!(thrice, "in_turn stands below in_turn, where only mixed and runs can be carried out");
}

#[test]
fn an_idle_slot_and_two_owners_of_one_cpu_are_refused() {
    assert_eq!(refused("in_turn [a on 0, side_by_side []]"), Refusal::IdleSlot { slot: 1 });
    let owners = refused("mixed {0: c} [mixed {0: a} [a on 0, b on 0], c on 0]");
    assert_eq!(owners, Refusal::TwoOwners { cpu: 0, outer: id("c"), inner: id("a") });
}

#[test]
fn turns_are_refused_where_nothing_can_make_programs_take_them() {
    let limits = Limits { in_turn: false, ..Limits::default() };
    assert_eq!(normalise(&plan("in_turn [a on 0, b on 0]"), &limits), Err(Refusal::NoTurns));
    assert!(normalise(&plan("side_by_side [a on 0, b on 1]"), &limits).is_ok());
}

#[test]
fn slices_are_stretched_to_the_mechanisms_shortest() {
    let limits = Limits { shortest_slice_ns: 50_000_000, filling: false, ..Limits::default() };
    let fitted = normalise(&plan("in_turn filling [20ms a on 0, 30ms b on 0]"), &limits).unwrap().to_string();
    assert_eq!(fitted, "in_turn strict [50ms a on 0, 75ms b on 0]");
}

#[test]
fn slices_are_shortened_until_nobody_stands_still_too_long() {
    let text = "in_turn [100ms a on 0, 100ms b on 0, 200ms c on 0]";
    let limits = Limits { longest_standstill_ns: Some(150_000_000), ..Limits::default() };
    let fitted = normalise(&plan(text), &limits).unwrap().to_string();
    assert_eq!(fitted, "in_turn strict [50ms a on 0, 50ms b on 0, 100ms c on 0]");
    let coarse = Limits { shortest_slice_ns: 80_000_000, ..limits };
    let fitted = normalise(&plan(text), &coarse).unwrap().to_string();
    assert_eq!(fitted, "in_turn strict [80ms a on 0, 80ms b on 0, 160ms c on 0]");
}

#[test]
fn a_difference_names_only_what_changed() {
    let old = plan("side_by_side [a on 0-1, b on 2-3] waiting [c]");
    let new = plan("side_by_side [a on 0-1, c on 2-3] suspended [b]");
    let change = diff(&old, &new);
    assert_eq!(change.to_string(), "b is suspended; c stops waiting, on 2-3 x 2");
    let moved = diff(&plan("a on 0-3"), &plan("side_by_side [a on 0-1, b on 2-3]"));
    assert_eq!(
        moved.apps[&id("a")],
        vec![AppChange::Moved { from: set("0-3"), to: set("0-1") }, AppChange::Resized { from: 4, to: 2 },]
    );
    assert!(!moved.turns && !moved.mixing);
}

#[test]
fn changed_turns_and_sharing_are_named_though_nobody_moves() {
    let a_b = plan("in_turn [20ms a on 0, 20ms b on 0]");
    for (other, turns, mixing) in [
        ("in_turn [20ms a on 0, 30ms b on 0]", true, false),
        ("in_turn filling [20ms a on 0, 20ms b on 0]", true, false),
        ("in_turn [20ms b on 0, 20ms a on 0]", true, false),
        ("mixed [a on 0, b on 0]", true, true),
    ] {
        let change = diff(&a_b, &plan(other));
        assert_eq!((change.turns, change.mixing), (turns, mixing), "{other}");
        assert!(change.apps.is_empty(), "{other}");
    }
    // A program with several slots changes the turns when it changes its place in one of them.
    let two = "in_turn [a on 0-1, b on 0-1, a on 0]";
    assert!(diff(&plan(two), &plan("in_turn [a on 0-1, b on 0-1, a on 1]")).turns);
}

proptest! {
    #[test]
    fn carrying_out_a_difference_turns_the_old_plan_into_the_new(old in sound_plan(), new in sound_plan()) {
        let change = diff(&old, &new);
        let mut states = old.states();
        change.apply(&mut states);
        prop_assert_eq!(states, new.states());
    }

    #[test]
    fn one_programs_state_is_that_among_all_states(plan in any_plan()) {
        let states = plan.states();
        for app in plan.apps() {
            let state = plan.state(app);
            prop_assert_eq!(state.as_ref(), states.get(app), "{} in {}", app, plan);
        }
        prop_assert_eq!(plan.state(&"nobody".parse().unwrap()), None);
    }

    #[test]
    fn equal_plans_do_not_differ_and_unequal_normal_ones_do(old in sound_plan(), new in sound_plan()) {
        let limits = Limits::default();
        let (old, new) = (normalise(&old, &limits).unwrap(), normalise(&new, &limits).unwrap());
        prop_assert!(diff(&old, &old).is_empty());
        prop_assert_eq!(diff(&old, &new).is_empty(), old == new, "{} and {}", old, new);
    }

    #[test]
    fn the_normal_form_is_a_fixpoint_with_the_same_programs(
        plan in any_plan(), shortest in 1u64..100_000_000, still in prop::option::of(1u64..1_000_000_000),
    ) {
        let limits = Limits { shortest_slice_ns: shortest, longest_standstill_ns: still, ..Limits::default() };
        let Ok(normal) = normalise(&plan, &limits) else { return Ok(()) };
        prop_assert_eq!(&normalise(&normal, &limits), &Ok(Cow::Borrowed(&*normal)));
        let as_it_is = normalise(&normal, &Limits::default());
        prop_assert!(matches!(as_it_is, Ok(Cow::Borrowed(_))), "{} is made anew", normal);
        prop_assert_eq!(normal.apps(), plan.apps());
    }

    #[test]
    fn the_normal_form_gives_everybody_the_same_cpus(plan in sound_plan(), wraps in any::<[bool; 3]>()) {
        // A program alone in a mixed gets its whole place; in company it gets what its threads can use.
        prop_assume!(!matches!(&plan.tree, Some(Tree::Mixed { parts, .. }) if parts.len() == 1));
        let wrapped = Plan { tree: plan.tree.clone().map(|tree| wrap(tree, wraps)), ..plan.clone() };
        let limits = Limits { shortest_slice_ns: 50_000_000, ..Limits::default() };
        let normal = normalise(&wrapped, &limits).unwrap();
        for (app, cpus) in normal.mean_cpus() {
            prop_assert!((cpus - plan.mean_cpus()[app]).abs() < 1e-6, "{} in {}", app, plan);
        }
    }

    #[test]
    fn in_normal_form_standstill_keeps_the_limits(plan in sound_plan()) {
        let limits = Limits {
            shortest_slice_ns: 5_000_000,
            longest_standstill_ns: Some(60_000_000),
            ..Limits::default()
        };
        let normal = normalise(&plan, &limits).unwrap();
        let still = normal.tree.as_ref().map_or(0, standstill_ns);
        let slots = |tree: &Tree| match tree {
            Tree::InTurn { slots, .. } => slots.iter().map(|slot| slot.slice_ns).min(),
            _ => None,
        };
        let shortest = normal.tree.as_ref().and_then(slots).unwrap_or(u64::MAX);
        prop_assert!(still <= 60_000_000 || shortest == 5_000_000, "{}", normal);
    }
}

/// The same meaning, said in more words.
fn wrap(tree: Tree, [side, turn, deep]: [bool; 3]) -> Tree {
    let tree = match tree {
        Tree::SideBySide(parts) if deep => {
            Tree::SideBySide(parts.into_iter().map(|part| Tree::SideBySide(vec![part])).collect())
        }
        other => other,
    };
    let tree = if turn {
        Tree::InTurn { mode: TurnMode::Strict, slots: vec![Slot { slice_ns: 1, tree }] }
    } else {
        tree
    };
    if side { Tree::SideBySide(vec![tree, Tree::SideBySide(Vec::new())]) } else { tree }
}
