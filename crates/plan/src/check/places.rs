//! Invariants 2 and 3: on which CPUs programs may stand, with how many threads, and who may be made
//! to stand still.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use topology::CpuSet;
use workload::AppId;

use super::Violation;
use super::cast::Cast;
use crate::{App, Plan, Run, Snapshot, Tree};

pub fn check(plan: &Plan, snapshot: &Snapshot, cast: &Cast<'_>, found: &mut Vec<Violation>) {
    for app in cast.waiting.iter().filter_map(|&number| cast.app(number)) {
        if !app.stoppable && app.team.is_some() {
            found.push(Violation::StoppedWaiting { app: app.id.clone() });
        }
    }
    if let Some(tree) = &plan.tree {
        let some_fixed = snapshot.apps.iter().any(|app| !app.stoppable);
        let allowed = snapshot.allowed.len();
        Checker { snapshot, cast, allowed, some_fixed, runs: 0, found }.tree(tree, false);
    }
}

struct Checker<'a> {
    snapshot: &'a Snapshot,
    cast: &'a Cast<'a>,
    /// CPUs that are allowed.
    allowed: usize,
    /// Whether anybody must not be stopped.
    some_fixed: bool,
    /// Runs that were seen.
    runs: usize,
    found: &'a mut Vec<Violation>,
}

impl Checker<'_> {
    fn tree(&mut self, tree: &Tree, mixed: bool) {
        match tree {
            Tree::Run(run) => {
                // Strangers are invariant 1's business.
                if let Some(app) = self.cast.app(self.cast.runs[self.runs].1) {
                    self.place(run, app);
                    self.threads(run, app, mixed);
                }
                self.runs += 1;
            }
            Tree::SideBySide(parts) => self.disjoint(parts),
            Tree::Mixed { owner, parts } => self.owners(owner, parts),
            Tree::InTurn { slots, .. } if slots.len() > 1 && self.some_fixed => {
                let fixed = |run: &&Run| self.cast.app_named(&run.app).is_some_and(|app| !app.stoppable);
                let fixed_of = |tree: &Tree| -> BTreeSet<AppId> {
                    tree.runs().into_iter().filter(fixed).map(|run| run.app.clone()).collect()
                };
                let per_slot: Vec<BTreeSet<AppId>> = slots.iter().map(|slot| fixed_of(&slot.tree)).collect();
                let all: BTreeSet<AppId> = per_slot.iter().flatten().cloned().collect();
                for app in all.into_iter().filter(|app| !per_slot.iter().all(|slot| slot.contains(app))) {
                    self.found.push(Violation::StoppedInTurn { app });
                }
            }
            Tree::InTurn { .. } => {}
        }
        let mixed = mixed || matches!(tree, Tree::Mixed { .. });
        tree.children().for_each(|child| self.tree(child, mixed));
    }

    fn disjoint(&mut self, parts: &[Tree]) {
        let mut occupied = CpuSet::new();
        for part in parts {
            let place = match part {
                Tree::Run(run) => Cow::Borrowed(&run.place),
                _ => Cow::Owned(part.place()),
            };
            if occupied.intersects(&place) {
                self.found.push(Violation::Overlap { cpus: occupied.intersection(&place) });
            }
            occupied.add_all(&place);
        }
    }

    fn owners(&mut self, owner: &BTreeMap<u32, AppId>, parts: &[Tree]) {
        let runs: Vec<&Run> = parts.iter().flat_map(Tree::runs).collect();
        for (&cpu, app) in owner {
            if !runs.iter().any(|run| run.app == *app && run.place.contains(cpu)) {
                self.found.push(Violation::StrangeOwner { cpu, app: app.clone() });
            }
        }
    }

    fn place(&mut self, run: &Run, app: &App) {
        if app.within.is_none() && run.place.is_subset(&self.snapshot.usable) {
            return;
        }
        let room = self.snapshot.room(app);
        if run.place.is_subset(&room) {
            return;
        }
        let (wide, needed) = (self.snapshot.wide_room(app), self.snapshot.fewest_of(app, self.allowed));
        // Only what cannot be made narrower than its room may leave it.
        let limit = if needed > room.len() { wide } else { room };
        let outside = run.place.difference(&limit);
        if !outside.is_empty() {
            self.found.push(Violation::Outside { app: app.id.clone(), cpus: outside, room: limit });
        } else if run.place.len() > needed {
            let cpus = run.place.len();
            self.found.push(Violation::OverflowTooWide { app: app.id.clone(), cpus, needed });
        }
    }

    fn threads(&mut self, run: &Run, app: &App, mixed: bool) {
        let (cpus, threads) = (run.place.len(), run.threads);
        let needed = self.snapshot.fewest_of(app, self.allowed);
        let app_id = || app.id.clone();
        if threads as usize > cpus && !mixed {
            self.found.push(Violation::Oversubscribed { app: app_id(), threads, cpus });
        }
        if cpus < needed {
            self.found.push(Violation::Squeezed { app: app_id(), cpus, needed });
            return;
        }
        if !app.accepts_width() {
            return;
        }
        let team = app.team.unwrap_or(0);
        if !app.waits_passively && cpus < team as usize && threads as usize > cpus {
            self.found.push(Violation::NotShrunk { app: app_id(), team, cpus, threads });
        }
        let least = app.demand.min_threads;
        if threads < least && (threads as usize) < self.snapshot.wide_room(app).len() {
            let least = least.min(self.snapshot.wide_room(app).len() as u32);
            self.found.push(Violation::BelowMinimum { app: app_id(), threads, least });
        }
    }
}
