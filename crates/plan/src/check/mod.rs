//! The checker: judges plans and sequences of plans against the invariants, knowing nothing of the
//! policies that made them.
//!
//! | invariant | judged by | what it says |
//! |---|---|---|
//! | 1 | [`check_plan`] | every live program occurs in the tree, in waiting or in suspended, in exactly one, at one place at a time; nothing else occurs |
//! | 2 | [`check_plan`] | places side by side are disjoint and lie in what is usable; only what cannot be narrower may reach into what is allowed, and no further than it must |
//! | 3 | [`check_plan`] | more threads than CPUs only under `mixed`; nobody is squeezed below the team that runs; what must not be stopped never is |
//! | 4 | [`check_plan`], [`Sequence::check_step`] | partitions are units or equal fractions, of one shape a level, if promised; left-over CPUs are explained |
//! | 5 | [`check_plan`], [`Sequence::check_step`] | CPU shares of equal programs differ by no more than promised of every plan, and once nothing has changed for some time |
//! | 6 | [`Sequence::check_step`] | waiting ends as promised, given that programs end |
//! | 7 | [`Sequence::check_step`] | partitions of one shape are dealt out so that most CPUs are kept, if promised |
//!
//! Every violation names the invariant, the program and the numbers.

mod cast;
mod occurrence;
mod places;
mod quiet;
mod sequence;
mod shapes;
mod shares;
mod violation;

use std::cell::OnceCell;

pub use sequence::Sequence;
pub use violation::Violation;

use crate::{Plan, Promise, ShareBound, Snapshot};
use cast::Cast;
use shapes::{Offered, Partitioned};

/// A plan and the snapshot that it was made for, with what several checks ask of the two.
pub struct Case<'a> {
    plan: &'a Plan,
    snapshot: &'a Snapshot,
    cast: Cast<'a>,
    partitioned: OnceCell<Partitioned<'a>>,
    offered: OnceCell<Option<Offered>>,
}

impl<'a> Case<'a> {
    /// Of a plan and the snapshot that it was made for; nothing is judged yet.
    pub fn of(plan: &'a Plan, snapshot: &'a Snapshot) -> Case<'a> {
        let cast = Cast::of(plan, snapshot);
        Case { plan, snapshot, cast, partitioned: OnceCell::new(), offered: OnceCell::new() }
    }

    /// Everything that is wrong with the plan, given what its policy promises; empty: valid.
    pub fn check(&self, promise: &Promise) -> Vec<Violation> {
        let mut found = Vec::new();
        occurrence::check(self.plan, &self.cast, &mut found);
        places::check(self.plan, self.snapshot, &self.cast, &mut found);
        if promise.equal_shapes {
            shapes::check(self, &mut found);
        }
        if let Some(bound) = promise.share_bound {
            self.check_shares(bound, &mut found);
        }
        found
    }

    fn check_shares(&self, bound: ShareBound, found: &mut Vec<Violation>) {
        shares::check(self.plan, self.snapshot, &self.cast, bound, found);
    }

    fn partitioned(&self) -> &Partitioned<'a> {
        self.partitioned.get_or_init(|| Partitioned::of(self.snapshot, &self.cast))
    }

    fn offered(&self) -> Option<&Offered> {
        let offered = || Offered::of(self.snapshot, &self.cast, self.partitioned());
        self.offered.get_or_init(offered).as_ref()
    }
}

/// Everything that is wrong with `plan` for `snapshot`, given what its policy promises; empty: valid.
pub fn check_plan(plan: &Plan, snapshot: &Snapshot, promise: &Promise) -> Vec<Violation> {
    Case::of(plan, snapshot).check(promise)
}
