//! What a policy promises about its plans beyond what holds for every plan.

use serde::{Deserialize, Serialize};

/// The checker holds a policy to exactly what it states here; the default promises nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Invariant 4: partitions of resizable programs are whole units of the machine's tree or equal
    /// fractions of one, and those of one level have one shape.
    pub equal_shapes: bool,
    /// Invariant 5: how far the CPU shares of programs of equal demand may differ, over every whole round
    /// of turns ([`crate::Plan::period_ns`]) of every plan, and so over every time that consists of such.
    pub share_bound: Option<ShareBound>,
    /// Invariant 5: what holds beyond that once nothing has changed for some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// Invariant 6: when a waiting program must run, given that programs end.
    pub waiting_bound: Option<WaitingBound>,
    /// Invariant 7: no more programs are moved than the shapes of the partitions demand, or the
    /// report has a line that begins with `moves: ` and gives the reason.
    pub keeps_cpus: bool,
}

/// Bound on how unlike the CPU shares of two programs of equal demand may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareBound {
    /// Larger share ≤ this × smaller share.
    Ratio(f64),
    /// Larger share − smaller share ≤ this, in fractions of the machine.
    Difference(f64),
    /// Larger share × part ≤ this × smaller share, where the part is that of one of all programs that are
    /// there, or of its weight if that is less: whatever an equal has, nobody is left with less than
    /// 1 ÷ (this × programs) of it.
    Floor(f64),
    /// The earliest program has every CPU that it can use and that those who must not be stopped leave;
    /// nobody else who may be stopped has any. Over time everybody has that, once all who came before
    /// have ended: `WaitingBound::EarlierArrivals`.
    EarliestFirst,
    /// A user wrote the plan, and with it who has how much: there is nothing to hold the policy to.
    AsWritten,
}

/// A bound for quiet times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// How long no program has come, left, been suspended or resumed or changed its team or its needs,
    /// and the same CPUs are usable.
    pub after_ns: u64,
    /// What then holds of every plan.
    pub bound: ShareBound,
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
