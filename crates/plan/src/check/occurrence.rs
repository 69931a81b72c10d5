//! Invariant 1: who occurs, where, how often; and that the tree is well formed at all.

use std::collections::{BTreeMap, BTreeSet};

use workload::AppId;

use super::Violation;
use crate::{App, Plan, Snapshot, Tree};

pub fn check(plan: &Plan, snapshot: &Snapshot, found: &mut Vec<Violation>) {
    let live: BTreeMap<&AppId, &App> = snapshot.apps.iter().map(|app| (&app.id, app)).collect();
    let running = plan.tree.as_ref().map(Tree::apps).unwrap_or_default();
    let mentioned = plan.apps();
    for app in live.keys().filter(|app| !mentioned.contains(**app)) {
        found.push(Violation::Missing { app: (*app).clone() });
    }
    for &app in &mentioned {
        let app = app.clone();
        let suspended = plan.suspended.contains(&app);
        let lists = [running.contains(&app), plan.waiting.contains(&app), suspended];
        if lists.into_iter().filter(|&there| there).count() > 1 {
            found.push(Violation::Twice { app: app.clone() });
        }
        match live.get(&app) {
            None => found.push(Violation::Unknown { app }),
            Some(known) if known.suspended && !suspended => found.push(Violation::NotSuspended { app }),
            Some(known) if !known.suspended && suspended => {
                found.push(Violation::SuspendedUnasked { app });
            }
            Some(_) => {}
        }
    }
    if let Some(tree) = &plan.tree {
        check_tree(tree, found);
    }
}

/// Names of all programs below, having reported what is malformed there.
fn check_tree<'a>(tree: &'a Tree, found: &mut Vec<Violation>) -> BTreeSet<&'a AppId> {
    let node = match tree {
        Tree::Run(run) => {
            if run.place.is_empty() || run.threads == 0 {
                found.push(Violation::EmptyRun { app: run.app.clone() });
            }
            return BTreeSet::from([&run.app]);
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
    let mut names = BTreeSet::new();
    for child in tree.children() {
        for app in check_tree(child, found) {
            // In several slots of an in_turn a program is never in two places at once.
            if !names.insert(app) && !turns {
                found.push(Violation::TwoPlacesAtOnce { app: app.clone() });
            }
        }
    }
    names
}
