//! The text form.

mod common;

use common::{any_plan, any_tree, id, plan, set};
use coplace_plan::{Bind, Memory, ParsePlanError, Plan, Run, Slot, Tree, TurnMode, display_ns, parse_ns};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_plan_is_read_back_from_what_it_prints(plan in any_plan()) {
        let text = plan.to_string();
        prop_assert_eq!(text.parse::<Plan>(), Ok(plan), "{}", text);
        prop_assert!(!text.contains('\n'));
    }

    #[test]
    fn every_tree_is_read_back_from_what_it_prints(tree in any_tree()) {
        prop_assert_eq!(tree.to_string().parse::<Tree>(), Ok(tree));
    }

    #[test]
    fn every_duration_is_read_back_exactly(ns: u64) {
        prop_assert_eq!(parse_ns(&display_ns(ns).to_string()), Ok(ns));
    }

    #[test]
    fn the_parser_never_panics_and_every_error_has_a_position(text in ".{0,60}") {
        if let Err(error) = text.parse::<Plan>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.column));
        }
    }

    #[test]
    fn one_token_more_or_less_is_refused_or_means_something(
        plan in any_plan(), cut in 0usize..200,
    ) {
        let text = plan.to_string();
        let mut tokens: Vec<&str> = text.split(' ').collect();
        tokens.remove(cut % tokens.len());
        if let Ok(other) = tokens.join(" ").parse::<Plan>() {
            prop_assert_eq!(other.to_string().parse::<Plan>(), Ok(other));
        }
    }
}

#[test]
fn the_documented_example_parses_and_prints_unchanged() {
    let text = "side_by_side [cg on 0-3, in_turn strict [20ms mg on 4-7, 20ms ft on 4-7]] waiting [is] suspended [ep]";
    let read = plan(text);
    assert_eq!(read.to_string(), text);
    let slot = |app| Slot { slice_ns: 20_000_000, tree: Tree::Run(Run::new(id(app), set("4-7"))) };
    let turns = Tree::InTurn { mode: TurnMode::Strict, slots: vec![slot("mg"), slot("ft")] };
    let cg = Tree::Run(Run::new(id("cg"), set("0-3")));
    assert_eq!(read.tree, Some(Tree::SideBySide(vec![cg, turns])));
    assert_eq!((read.waiting, read.suspended), (common::names(&["is"]), common::names(&["ep"])));
}

#[test]
fn omitted_fields_have_their_defaults() {
    let read = plan("in_turn [a on 0-1, 1.5s run b on 0-1]");
    assert_eq!(read.to_string(), "in_turn strict [20ms a on 0-1, 1.5s b on 0-1]");
    assert_eq!(plan("idle"), Plan::default());
    assert_eq!(plan(" idle waiting [ a,b ] "), plan("idle waiting [a, b]"));
}

#[test]
fn a_comma_continues_a_cpu_list_only_before_a_bare_number() {
    let read = plan("in_turn [a on 0-1,4, 20ms b on 0-1]");
    assert_eq!(read.runs()[0].place, set("0-1,4"));
    assert_eq!(read.runs()[1].app, id("b"));
    let mixed = plan("mixed {0,2: a, 1: b} [a on 0-2, b on 0-2]");
    let Some(Tree::Mixed { owner, .. }) = &mixed.tree else { panic!("{mixed}") };
    assert_eq!(owner.get(&2), Some(&id("a")));
    assert_eq!(mixed.to_string(), "mixed {0,2: a, 1: b} [a on 0-2, b on 0-2]");
}

#[test]
fn every_property_of_a_run_is_read() {
    let read = plan("mixed [a on 0-1 x 5 bind each memory follow lends, b on 0 x2]");
    let run = read.runs()[0].clone();
    assert_eq!((run.threads, run.bind, run.memory, run.lends), (5, Bind::Each, Memory::Follow, true));
    assert_eq!(read.runs()[1].threads, 2);
    assert_eq!(plan("a on 0-3 x 4").to_string(), "a on 0-3");
}

#[test]
fn durations_print_short_and_exact() {
    for (ns, text) in [
        (20_000_000, "20ms"),
        (1_500_000_000, "1.5s"),
        (500_000, "500us"),
        (7, "7ns"),
        (0, "0ns"),
        (1_000_000_001, "1.000000001s"),
        (u64::MAX, "18446744073.709551615s"),
    ] {
        assert_eq!(display_ns(ns).to_string(), text);
        assert_eq!(parse_ns(text), Ok(ns));
    }
}

fn error(text: &str) -> ParsePlanError {
    text.parse::<Plan>().expect_err(text)
}

#[test]
fn an_error_shows_column_finding_and_expectation_by_a_caret() {
    let shown = error("side_by_side [cg on 0-3, mg in 4-7]").to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "column 29: found 'in', expected 'on' and a CPU list");
    assert_eq!(lines[1], "  side_by_side [cg on 0-3, mg in 4-7]");
    assert_eq!(lines[2].find('^'), Some(2 + 28));
}

#[test]
fn every_kind_of_mistake_is_found_where_it_stands() {
    for (text, column, expected) in [
        ("", 1, "a program's name"),
        ("a", 2, "'on'"),
        ("a on", 5, "a CPU list"),
        ("a on x", 6, "a CPU list"),
        ("a on 3-1", 8, "a CPU from 3 on"),
        ("a on 65536", 6, "a CPU below 65536"),
        ("a on 0 x", 9, "the number of threads"),
        ("a on 0 x 99999999999", 10, "at most"),
        ("a on 0 bind 1", 13, "'each'"),
        ("a on 0 memory stay", 15, "'follow'"),
        ("a on 0 ]", 8, "the end of the plan"),
        ("in_turn often [a on 0]", 9, "'strict', 'filling' or '['"),
        ("in_turn [20 a on 0]", 10, "no unit"),
        ("in_turn [20m a on 0]", 10, "no unit"),
        ("in_turn [0ms a on 0]", 10, "at least 1ns"),
        ("in_turn [1.0000000001s a on 0]", 10, "finer than a nanosecond"),
        ("in_turn [99999999999s a on 0]", 10, "longer than"),
        ("side_by_side a on 0", 14, "'['"),
        ("side_by_side [a on 0", 21, "',' or ']'"),
        ("side_by_side [a on 0 b on 1]", 22, "',' or ']'"),
        ("mixed {0 a} [a on 0]", 10, "':'"),
        ("mixed {0: a, 0: b} [a on 0, b on 0]", 14, "no owner yet"),
        ("idle waiting a", 14, "'['"),
        ("idle waiting [1]", 15, "a program's name"),
    ] {
        let error = error(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

#[test]
fn endless_nesting_is_refused_without_overflowing_the_stack() {
    let deep = "side_by_side [".repeat(100_000);
    assert!(error(&deep).expected.contains("levels"));
}
