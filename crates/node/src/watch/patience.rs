//! How long a team is waited for that is to become narrower.
//!
//! A team can change at the next region only. One that stays in its region keeps CPUs that were
//! promised to others, or shares them; beyond some patience it counts as rigid, with the threads
//! that it has, until it enters regions again.

/// How long a program must have been let run in a region that it was to leave with a narrower team.
pub const PATIENCE_NS: u64 = 5_000_000_000;

/// The patience with one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// How long the program had been let run when its team was first seen too wide in this region.
    since_ns: Option<u64>,
    lost: bool,
}

/// A process at one look.
#[derive(Clone, Copy, Debug)]
pub struct RegionSample {
    /// It is in a region, and entered none since the last look.
    pub in_same_region: bool,
    /// More threads run than are wished for.
    pub too_wide: bool,
    /// How long the program was let run so far: no time in which it stood still.
    pub let_run_ns: u64,
}

impl Patience {
    /// Once lost, it is lost for as long as the region lasts, whatever is wished for meanwhile.
    pub fn sample(&mut self, sample: RegionSample) {
        if !sample.in_same_region || !(sample.too_wide || self.lost) {
            *self = Patience::default();
            return;
        }
        let since_ns = *self.since_ns.get_or_insert(sample.let_run_ns);
        self.lost |= sample.let_run_ns.saturating_sub(since_ns) >= PATIENCE_NS;
    }

    pub fn is_lost(&self) -> bool {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn sampled(in_same_region: bool, too_wide: bool, let_run_ns: u64) -> RegionSample {
        RegionSample { in_same_region, too_wide, let_run_ns }
    }

    #[test]
    fn patience_ends_after_five_seconds_of_a_too_wide_region() {
        let mut patience = Patience::default();
        for (let_run_ns, lost) in [(10 * S, false), (14 * S, false), (15 * S, true)] {
            patience.sample(sampled(true, true, let_run_ns));
            assert_eq!(patience.is_lost(), lost, "after {let_run_ns}");
        }
    }

    #[test]
    fn time_in_which_it_stood_still_does_not_count() {
        let mut patience = Patience::default();
        (0..1000).for_each(|_| patience.sample(sampled(true, true, 7 * S)));
        assert!(!patience.is_lost());
    }

    #[test]
    fn a_region_that_is_as_wide_as_it_should_be_may_last_for_ever() {
        let mut patience = Patience::default();
        (0..1000).for_each(|at| patience.sample(sampled(true, false, at * S)));
        assert!(!patience.is_lost());
        // Only from when it was asked to be narrower.
        patience.sample(sampled(true, true, 1000 * S));
        patience.sample(sampled(true, true, 1004 * S));
        assert!(!patience.is_lost());
    }

    #[test]
    fn patience_returns_with_the_next_region_not_with_a_wider_wish() {
        let mut patience = Patience::default();
        patience.sample(sampled(true, true, 0));
        patience.sample(sampled(true, true, PATIENCE_NS));
        patience.sample(sampled(true, false, PATIENCE_NS + S));
        assert!(patience.is_lost(), "the wish is its width now");
        patience.sample(sampled(false, false, PATIENCE_NS + 2 * S));
        assert!(!patience.is_lost());
        patience.sample(sampled(true, true, PATIENCE_NS + 3 * S));
        assert!(!patience.is_lost(), "patience begins anew");
    }
}
