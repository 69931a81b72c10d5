//! Uncontrolled (UE).
//!
//! # The problem
//! None is solved: this is what happens without coplace, to compare with.
//!
//! # Source
//! Schönherr, Juurlink, Richling 2013, III-B a. The waiting policy of the programs' runtime is left
//! as it is given (UE with spin-blocking, UEp with passive waiting in the paper).
//!
//! # Where we differ
//! Unmanaged programs keep their CPUs, as under every policy.
//!
//! # Pseudocode
//! ```text
//! everybody runs on everything that it may use, with its own number of threads
//! ```
//!
//! # Properties
//! Every plan passes the checker (`tests/sequences.rs`); nothing more is promised.
//!
//! # Cost
//! O(programs). # Limits: programs that spin slow each other down without bound.

use plan::{Promise, Snapshot};

use crate::common::{compose, needs::needs};
use crate::{Decision, Memory, Policy, Report};

pub(crate) struct Ue;

impl Policy for Ue {
    fn letters(&self) -> &'static str {
        "UE"
    }

    fn words(&self) -> &'static str {
        "uncontrolled"
    }

    fn promise(&self) -> Promise {
        Promise { waiting_bound: Some(plan::WaitingBound::Terminations(0)), ..Promise::default() }
    }

    fn decide(&self, snapshot: &Snapshot, memory: Memory) -> Decision {
        let tree = compose::everybody(&needs(snapshot));
        compose::decision(snapshot, tree, memory, Report::default())
    }
}
