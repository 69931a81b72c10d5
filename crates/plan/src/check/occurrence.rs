//! Invariant 1: who occurs, where, how often; and that the tree is well formed at all.

use workload::AppId;

use super::Violation;
use super::cast::Cast;
use crate::{Plan, Tree};

pub fn check(plan: &Plan, cast: &Cast<'_>, found: &mut Vec<Violation>) {
    let flags = |names: &mut dyn Iterator<Item = &AppId>| {
        let mut flags = vec![false; cast.len()];
        names.for_each(|name| flags[cast.number(name)] = true);
        flags
    };
    let (waiting, suspended) = (flags(&mut plan.waiting.iter()), flags(&mut plan.suspended.iter()));
    let mut running = vec![false; cast.len()];
    plan.for_each_run(&mut |run| running[cast.number(&run.app)] = true);
    for number in 0..cast.len() {
        let app = || cast.name(number).clone();
        let lists = [running[number], waiting[number], suspended[number]];
        let times = lists.into_iter().filter(|&there| there).count();
        if times > 1 {
            found.push(Violation::Twice { app: app() });
        }
        match cast.app(number) {
            None => found.push(Violation::Unknown { app: app() }),
            Some(_) if times == 0 => found.push(Violation::Missing { app: app() }),
            Some(known) if known.suspended && !suspended[number] => {
                found.push(Violation::NotSuspended { app: app() });
            }
            Some(known) if !known.suspended && suspended[number] => {
                found.push(Violation::SuspendedUnasked { app: app() });
            }
            Some(_) => {}
        }
    }
    if let Some(tree) = &plan.tree {
        let mut stamps = Stamps { of: vec![0; cast.len()], last: 0 };
        check_tree(tree, cast, &mut stamps, found);
    }
}

/// At which node each program was seen last.
struct Stamps {
    of: Vec<u32>,
    last: u32,
}

/// Numbers of all programs below, having reported what is malformed there.
fn check_tree(tree: &Tree, cast: &Cast<'_>, stamps: &mut Stamps, found: &mut Vec<Violation>) -> Vec<usize> {
    let node = match tree {
        Tree::Run(run) => {
            if run.place.is_empty() || run.threads == 0 {
                found.push(Violation::EmptyRun { app: run.app.clone() });
            }
            return vec![cast.number(&run.app)];
        }
        Tree::SideBySide(_) => "side_by_side",
        Tree::Mixed { .. } => "mixed",
        Tree::InTurn { slots, .. } => {
            for slot in slots.iter().filter(|slot| slot.slice_ns == 0) {
                let names: Vec<&str> = slot.tree.apps().into_iter().map(AppId::as_str).collect();
                found.push(Violation::EmptySlot { apps: names.join(", ") });
            }
            "in_turn"
        }
    };
    if tree.children().next().is_none() {
        found.push(Violation::EmptyNode { node: node.to_owned() });
    }
    let turns = matches!(tree, Tree::InTurn { .. });
    let below: Vec<Vec<usize>> =
        tree.children().map(|child| check_tree(child, cast, stamps, found)).collect();
    stamps.last += 1;
    let mut programs = Vec::new();
    for number in below.into_iter().flatten() {
        if stamps.of[number] != stamps.last {
            stamps.of[number] = stamps.last;
            programs.push(number);
        } else if !turns {
            // In several slots of an in_turn a program is never in two places at once.
            found.push(Violation::TwoPlacesAtOnce { app: cast.name(number).clone() });
        }
    }
    programs
}
