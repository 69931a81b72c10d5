//! fixed: a plan that the user wrote.
//!
//! # Problem
//!
//! Experiments want a plan that no policy would choose: two programs in turn on the same CPUs,
//! one of them mixed with a third.
//!
//! # Source
//!
//! None; the plan's text form (`docs/formats/plan.md`).
//!
//! # Where we differ
//!
//! Nothing to differ from.
//!
//! # Terms
//!
//! others: CPUs for programs that the plan does not name.
//!
//! # Pseudocode
//!
//! ```text
//! tree    = the text, without programs that are not there (or suspended), and without CPUs that
//!           are not allowed
//! others  = mixed on the given place beside the tree, or waiting
//! ```
//!
//! # Properties
//!
//! - `a_fixed_plan_is_carried_out_as_written`
//! - `a_fixed_plan_leaves_out_absent_programs`
//!
//! # Cost
//!
//! Linear in the plan's size.
//!
//! # Limits
//!
//! Shares are as the plan is written: its user is who promises. A plan that squeezes a program which cannot shrink is refused by the checker.

use std::collections::BTreeSet;

use plan::{Plan, Promise, Remark, Run, ShareBound, Slot, Snapshot, Tree};
use workload::AppId;

use crate::common::context::Context;
use crate::common::gather::{beside, leaf};
use crate::common::outcome;
use crate::{Decision, LevelMemory, Memory, Policy, Settings};

pub(crate) struct Fixed {
    pub settings: Settings,
    pub plan: Plan,
}

impl Fixed {
    /// `tree` without programs that are not `live` and CPUs that are not theirs.
    fn prune(&self, tree: &Tree, snapshot: &Snapshot, live: &BTreeSet<&AppId>) -> Option<Tree> {
        match tree {
            Tree::Run(run) => {
                let app = snapshot.app(&run.app).filter(|app| live.contains(&app.id))?;
                let place = run.place.intersection(&snapshot.wide_room(app));
                if place.is_empty() {
                    return None;
                }
                // Without an explicit number the text means one thread a CPU.
                let whole = run.threads as usize == run.place.len();
                let threads = if whole { place.len() as u32 } else { run.threads };
                Some(Tree::Run(Run { place, threads, ..run.clone() }))
            }
            Tree::SideBySide(parts) => {
                let parts: Vec<Tree> =
                    parts.iter().filter_map(|part| self.prune(part, snapshot, live)).collect();
                (!parts.is_empty()).then_some(Tree::SideBySide(parts))
            }
            Tree::Mixed { owner, parts } => {
                let parts: Vec<Tree> =
                    parts.iter().filter_map(|part| self.prune(part, snapshot, live)).collect();
                let runs: Vec<&Run> = parts.iter().flat_map(Tree::runs).collect();
                let owner = owner
                    .iter()
                    .filter(|(cpu, app)| runs.iter().any(|run| run.app == **app && run.place.contains(**cpu)))
                    .map(|(&cpu, app)| (cpu, app.clone()))
                    .collect();
                (!parts.is_empty()).then_some(Tree::Mixed { owner, parts })
            }
            Tree::InTurn { mode, slots } => {
                let slot = |slot: &Slot| {
                    let tree = self.prune(&slot.tree, snapshot, live)?;
                    Some(Slot { slice_ns: slot.slice_ns, tree })
                };
                let slots: Vec<Slot> = slots.iter().filter_map(slot).collect();
                (!slots.is_empty()).then_some(Tree::InTurn { mode: *mode, slots })
            }
        }
    }
}

impl Policy for Fixed {
    fn letters(&self) -> &'static str {
        "fixed"
    }

    fn words(&self) -> &'static str {
        "a fixed plan"
    }

    fn promise(&self) -> Promise {
        Promise { share_bound: Some(ShareBound::AsWritten), ..Promise::default() }
    }

    fn hands_off(&self) -> bool {
        true
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, memory);
        let live: BTreeSet<&AppId> = cx
            .needs
            .iter()
            .map(|need| &need.app.id)
            .filter(|id| !self.plan.waiting.contains(*id) && !self.plan.suspended.contains(*id))
            .collect();
        let tree = self.plan.tree.as_ref().and_then(|tree| self.prune(tree, snapshot, &live));
        let placed: BTreeSet<AppId> =
            tree.iter().flat_map(|tree| tree.runs()).map(|run| run.app.clone()).collect();
        let mut others = Vec::new();
        let mut waiting = Vec::new();
        for need in cx.needs.iter().filter(|need| !placed.contains(&need.app.id)) {
            let place =
                self.settings.others.as_ref().map(|others| need.open(&others.intersection(&snapshot.usable)));
            match place.filter(|place| !place.is_empty() && live.contains(&need.app.id)) {
                Some(place) => others.push(leaf(cx.run(need, &place))),
                None => waiting.push(need.app.id.clone()),
            }
        }
        // A program that the plan itself lists as waiting or suspended is not left out of it.
        waiting.retain(|app| live.contains(app));
        let remarks = if waiting.is_empty() { Vec::new() } else { vec![Remark::Unplanned { apps: waiting }] };
        let tree = match tree {
            Some(tree) if others.is_empty() => Some(tree),
            tree => beside(tree.into_iter().collect(), others),
        };
        outcome::decision(&cx, tree, LevelMemory::default(), None, remarks)
    }
}
