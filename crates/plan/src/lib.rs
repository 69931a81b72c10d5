//! The plan: one small immutable value that says who runs where, with how many threads, and in
//! turn with whom.

pub mod check;
mod diff;
mod evidence;
mod fold;
mod meeting;
mod normal;
mod picture;
mod promise;
mod report;
mod snapshot;
mod speedup;
mod text;
mod tree;

pub use check::{Violation, check_plan};
pub use diff::{AppChange, Change, Standing, State, diff};
pub use evidence::{Evidence, Known, Source};
pub use fold::Unfairness;
pub use normal::{Limits, Refusal, normalise, standstill_ns};
pub use promise::{Promise, Settled, ShareBound, WaitingBound};
pub use report::{Basis, Fact, Idleness, MoveReason, Rejection, Remark, Report, Severity};
pub use snapshot::{App, ParseAppError, Snapshot};
pub use speedup::Speedup;
pub use text::{DEFAULT_SLICE_NS, ParsePlanError, display_ns, parse_ns};
pub use tree::{Bind, Memory, Plan, Run, Slot, Tree, TurnMode};
