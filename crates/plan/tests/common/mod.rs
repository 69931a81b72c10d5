//! Random plans for the property tests.

#![allow(dead_code)] // Each test file uses its own part of this.

use std::collections::{BTreeMap, BTreeSet};

use coplace_plan::{Bind, Memory, Plan, Run, Slot, Tree, TurnMode};
use proptest::prelude::*;
use topology::CpuSet;
use workload::AppId;

pub fn id(name: &str) -> AppId {
    AppId::new(name).unwrap()
}

pub fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub fn plan(text: &str) -> Plan {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Names that are keywords where keywords stand are names where names stand.
pub fn any_app() -> impl Strategy<Value = AppId> {
    prop_oneof![
        "[a-z_][a-zA-Z0-9_.-]{0,6}".prop_map(|name| id(&name)),
        prop::sample::select(vec![
            "on",
            "run",
            "idle",
            "in_turn",
            "mixed",
            "side_by_side",
            "waiting",
            "suspended",
            "strict",
            "filling",
            "x",
            "bind",
            "lends",
            "none",
            "each",
            "memory",
            "x4",
        ])
        .prop_map(id),
    ]
}

pub fn any_place() -> impl Strategy<Value = CpuSet> {
    prop::collection::btree_set(0u32..70, 0..6).prop_map(|cpus| cpus.into_iter().collect())
}

pub fn any_run() -> impl Strategy<Value = Run> {
    (any_app(), any_place(), prop::option::of(0u32..10), any::<[bool; 3]>()).prop_map(
        |(app, place, threads, [bind, memory, lends])| {
            let mut run = Run::new(app, place);
            run.threads = threads.unwrap_or(run.threads);
            run.bind = if bind { Bind::Each } else { Bind::Free };
            run.memory = if memory { Memory::Follow } else { Memory::Stay };
            run.lends = lends;
            run
        },
    )
}

pub fn any_slice_ns() -> impl Strategy<Value = u64> {
    prop_oneof![1u64.., 1u64..1000, (1u64..1000).prop_map(|ms| ms * 1_000_000)]
}

/// Any tree at all, well formed or not.
pub fn any_tree() -> impl Strategy<Value = Tree> {
    any_run().prop_map(Tree::Run).prop_recursive(4, 24, 4, |tree| {
        let parts = prop::collection::vec(tree.clone(), 0..4);
        let slot = (any_slice_ns(), tree).prop_map(|(slice_ns, tree)| Slot { slice_ns, tree });
        let mode = prop::sample::select(vec![TurnMode::Strict, TurnMode::Filling]);
        prop_oneof![
            parts.clone().prop_map(Tree::SideBySide),
            (mode, prop::collection::vec(slot, 0..4)).prop_map(|(mode, slots)| Tree::InTurn { mode, slots }),
            (prop::collection::btree_map(0u32..70, any_app(), 0..4), parts)
                .prop_map(|(owner, parts)| Tree::Mixed { owner, parts }),
        ]
    })
}

pub fn any_plan() -> impl Strategy<Value = Plan> {
    let names = || prop::collection::btree_set(any_app(), 0..4);
    (prop::option::of(any_tree()), names(), names()).prop_map(|(tree, waiting, suspended)| Plan {
        tree,
        waiting,
        suspended,
    })
}

/// Programs `a` … `f`, each running once with a small place, waiting, suspended or not there, under
/// one of the structures that plans have; valid in form.
pub fn sound_plan() -> impl Strategy<Value = Plan> {
    let fate = (0u8..4, 1u32..4, 1u32..5, any::<[bool; 3]>());
    (prop::collection::vec(fate, 6), 0u8..4, 1u64..4).prop_map(|(fates, form, slice)| {
        let mut plan = Plan::default();
        let mut runs = Vec::new();
        for (index, (fate, width, threads, [bind, memory, lends])) in fates.into_iter().enumerate() {
            let app = id(["a", "b", "c", "d", "e", "f"][index]);
            match fate {
                0 => drop(plan.waiting.insert(app)),
                1 if width == 1 => drop(plan.suspended.insert(app)),
                1 => {}
                _ => {
                    let first = index as u32 * 4;
                    let mut run = Run::new(app, (first..first + width).collect());
                    run.threads = if form == 2 { threads } else { threads.min(width) };
                    run.bind = if bind { Bind::Each } else { Bind::Free };
                    run.memory = if memory { Memory::Follow } else { Memory::Stay };
                    run.lends = lends;
                    runs.push(Tree::Run(run));
                }
            }
        }
        let slice_ns = slice * 10_000_000;
        plan.tree = (!runs.is_empty()).then(|| match form {
            0 => Tree::SideBySide(runs),
            1 => in_turn(slice_ns, runs),
            2 => Tree::Mixed { owner: BTreeMap::new(), parts: runs },
            _ => {
                let rest = runs.split_off(runs.len() / 2);
                let halves = [runs, rest].into_iter().filter(|half| !half.is_empty());
                Tree::SideBySide(halves.map(|half| in_turn(slice_ns, half)).collect())
            }
        });
        plan
    })
}

fn in_turn(slice_ns: u64, trees: Vec<Tree>) -> Tree {
    let slots = trees.into_iter().map(|tree| Slot { slice_ns, tree }).collect();
    Tree::InTurn { mode: TurnMode::Strict, slots }
}

pub fn names(list: &[&str]) -> BTreeSet<AppId> {
    list.iter().map(|name| id(name)).collect()
}
