//! What a policy promises about its plans beyond what holds for every plan.

use serde::{Deserialize, Serialize};

/// The checker holds a policy to exactly what it states here; the default promises nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Invariant 4: partitions of resizable programs are whole units of the machine's tree or equal
    /// fractions of one, and those of one level have one shape.
    pub equal_shapes: bool,
    /// Invariant 5: how far the CPU shares of programs of equal weight may differ.
    pub share_bound: Option<ShareBound>,
    /// Invariant 6: when a waiting program must run, given that programs end.
    pub waiting_bound: Option<WaitingBound>,
    /// Invariant 7: no more programs are moved than the shapes of the partitions demand, or the
    /// report has a line that begins with `moves: ` and gives the reason.
    pub keeps_cpus: bool,
}

/// Bound on how unlike the CPU shares of two programs of equal weight may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareBound {
    /// Larger share ≤ this × smaller share.
    Ratio(f64),
    /// Larger share − smaller share ≤ this, in fractions of the machine.
    Difference(f64),
}

/// When a waiting program must run at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingBound {
    /// Once every program that stands before it in order of arrival has ended or is suspended.
    EarlierArrivals,
    /// Once this many running programs have ended since it began to wait; 0: nobody waits.
    Terminations(u32),
}
