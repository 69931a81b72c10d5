//! One after another (BP).
//!
//! # The problem
//! Programs that run alone disturb nobody; their speed-ups decide whether that is fast.
//!
//! # Source
//! Schönherr, Juurlink, Richling 2013, III-B d: batch processing, first come first served.
//!
//! # Where we differ
//! A program that must not be stopped and runs already cannot wait; it runs beside the first, left
//! to the kernel.
//!
//! # Pseudocode
//! ```text
//! the program that came first runs on everything that it may use; the others wait
//! ```
//!
//! # Properties
//! A program waits for no more than those that came before it (`waiting_bound`, checked in
//! `tests/sequences.rs`).
//!
//! # Cost
//! O(programs).
//!
//! # Limits
//! A short program waits for long ones; a suspended one is passed over.

use plan::{Promise, Snapshot, Tree, WaitingBound};

use crate::common::{compose, needs::needs};
use crate::{Decision, Memory, Policy, Report};

pub(crate) struct Bp;

impl Policy for Bp {
    fn letters(&self) -> &'static str {
        "BP"
    }

    fn words(&self) -> &'static str {
        "one after another"
    }

    fn promise(&self) -> Promise {
        Promise { waiting_bound: Some(WaitingBound::EarlierArrivals), ..Promise::default() }
    }

    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision {
        let needs = needs(snapshot);
        let mut waiting = std::collections::BTreeSet::new();
        let mut runs = Vec::new();
        for (number, need) in needs.iter().enumerate() {
            let cannot_wait = !need.app.stoppable && need.app.team.is_some();
            if number == 0 || cannot_wait {
                runs.push(Tree::Run(need.run(need.room.clone())));
            } else {
                waiting.insert(need.app.id.clone());
            }
        }
        let mut report = Report::default();
        if let Some(first) = needs.first() {
            report.lines.push(format!(
                "{} came first and has everything; {} wait",
                first.app.id,
                waiting.len()
            ));
        }
        let mut decision = compose::decision(snapshot, compose::mixed(runs), memory, report);
        decision.plan.waiting = waiting;
        decision
    }
}
