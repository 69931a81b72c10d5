//! BP: one after another.
//!
//! # Problem
//!
//! The conceptual baseline: no two programs ever disturb each other.
//!
//! # Source
//!
//! Schönherr, Juurlink, Richling 2013, III-B d: arriving jobs are processed in FIFO order.
//!
//! # Where we differ
//!
//! A program that must not be stopped cannot wait: it runs beside the one whose turn it is, both
//! on equal parts; where one of them cannot shrink to that, mixed. A suspended program lets the
//! next one run; when it is resumed it is first again, and the other waits.
//!
//! # Terms
//!
//! turn: from the end of all programs that arrived earlier to the program's own end.
//!
//! # Pseudocode
//!
//! ```text
//! first   = the earliest program that may be stopped
//! run       first and all that must not be stopped, on equal parts (EQ)
//! waiting   all others
//! ```
//!
//! # Properties
//!
//! - `one_after_another_runs_the_earliest_on_everything`
//! - shares: the earliest has every CPU that it can use and that those who must not be stopped leave, until
//!   its end; nobody else has any. Over the time from the end of all earlier programs to its own end
//!   everybody has the same, the machine: `every_plan_of_every_policy_passes_the_checker`
//! - waiting ends when all earlier programs have ended:
//!   `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! Linear in the number of programs.
//!
//! # Limits
//!
//! CPUs that the program does not use stand idle; a restricted program holds up everybody.

use plan::{App, Promise, Remark, ShareBound, Snapshot, WaitingBound};

use crate::common::compose::compose;
use crate::common::context::Context;
use crate::eq::Division;
use crate::{Decision, Memory, Policy, Settings};

pub(crate) struct OneAfterAnother {
    pub settings: Settings,
}

impl Policy for OneAfterAnother {
    fn letters(&self) -> &'static str {
        "BP"
    }

    fn words(&self) -> &'static str {
        "one after another"
    }

    fn promise(&self) -> Promise {
        Promise {
            share_bound: Some(ShareBound::EarliestFirst),
            waiting_bound: Some(WaitingBound::EarlierArrivals),
            keeps_cpus: true,
            ..Promise::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        // The first one that can be stopped, and all that cannot.
        let mut has_first = false;
        let takes_part = |app: &App| !app.stoppable || !std::mem::replace(&mut has_first, true);
        let cx = Context::for_some(snapshot, &self.settings, memory, takes_part);
        let first = cx.needs.iter().position(|need| need.app.stoppable);
        let mut decision = compose(&cx, &Division::of_usable(&cx), &cx.everybody());
        if let Some(first) = first {
            let (app, waiting) = (cx.needs[first].app.id.clone(), decision.plan.waiting.len() as u32);
            decision.report.remarks.push(Remark::FirstComeFirst { app, waiting });
        }
        decision
    }
}
