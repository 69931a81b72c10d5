//! The plan: one small immutable value that says who runs where, with how many threads, and in
//! turn with whom.

mod promise;
mod snapshot;
mod tree;

pub use promise::{Promise, ShareBound, WaitingBound};
pub use snapshot::{App, Snapshot};
pub use tree::{Bind, Memory, Plan, Run, Slot, Tree, TurnMode};
