//! Invariant 1: who occurs, where, how often; and that the tree is well formed at all.

use workload::AppId;

use super::Violation;
use super::cast::Cast;
use crate::{Plan, Tree};

pub fn check(plan: &Plan, cast: &Cast<'_>, found: &mut Vec<Violation>) {
    let flags = |numbers: &[usize]| {
        let mut flags = vec![false; cast.len()];
        numbers.iter().for_each(|&number| flags[number] = true);
        flags
    };
    let (waiting, suspended) = (flags(&cast.waiting), flags(&cast.suspended));
    let mut running = vec![false; cast.len()];
    cast.runs.iter().for_each(|&(_, number)| running[number] = true);
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
        let stamps = vec![0; cast.len()];
        Walk { cast, runs: 0, stamps, last: 0, below: Vec::new(), found }.tree(tree);
    }
}

struct Walk<'a> {
    cast: &'a Cast<'a>,
    /// Runs that were seen.
    runs: usize,
    /// At which node each program was seen last.
    stamps: Vec<u32>,
    last: u32,
    /// Numbers of the programs below the nodes that are done and whose parents are not.
    below: Vec<usize>,
    found: &'a mut Vec<Violation>,
}

impl Walk<'_> {
    /// Puts the number of each program below `tree` on the list once, having reported what is
    /// malformed there.
    fn tree(&mut self, tree: &Tree) {
        let node = match tree {
            Tree::Run(run) => {
                if run.place.is_empty() || run.threads == 0 {
                    self.found.push(Violation::EmptyRun { app: run.app.clone() });
                }
                self.below.push(self.cast.runs[self.runs].1);
                self.runs += 1;
                return;
            }
            Tree::SideBySide(_) => "side_by_side",
            Tree::Mixed { .. } => "mixed",
            Tree::InTurn { slots, .. } => {
                for slot in slots.iter().filter(|slot| slot.slice_ns == 0) {
                    let names: Vec<&str> = slot.tree.apps().into_iter().map(AppId::as_str).collect();
                    self.found.push(Violation::EmptySlot { apps: names.join(", ") });
                }
                "in_turn"
            }
        };
        if tree.children().next().is_none() {
            self.found.push(Violation::EmptyNode { node: node.to_owned() });
        }
        let mine = self.below.len();
        tree.children().for_each(|child| self.tree(child));
        self.last += 1;
        let turns = matches!(tree, Tree::InTurn { .. });
        let mut kept = mine;
        for at in mine..self.below.len() {
            let number = self.below[at];
            if self.stamps[number] != self.last {
                self.stamps[number] = self.last;
                self.below[kept] = number;
                kept += 1;
            } else if !turns {
                // In several slots of an in_turn a program is never in two places at once.
                self.found.push(Violation::TwoPlacesAtOnce { app: self.cast.name(number).clone() });
            }
        }
        self.below.truncate(kept);
    }
}
