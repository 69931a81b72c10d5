//! What bursts may cost: a share of the machine's time, saved up to a limit; whoever asks before
//! spending stays within it.

/// Of the machine's time.
pub const SHARE: f64 = 0.01;
/// CPU time that may be saved up at most, so that a long quiet time is not followed by a long loud one.
const MOST_SAVED_NS: u64 = 2_000_000_000;

/// CPU time that bursts may use: [`SHARE`] of the machine's time, saved up to a limit.
pub struct Budget {
    began_ns: u64,
    cpus: u32,
    spent_ns: u64,
    /// Earned beyond what may be saved.
    forfeited_ns: u64,
}

impl Budget {
    /// With nothing saved yet, for a machine of so many CPUs. Every `now_ns` is of one monotonic clock.
    pub fn new(now_ns: u64, cpus: u32) -> Budget {
        Budget { began_ns: now_ns, cpus, spent_ns: 0, forfeited_ns: 0 }
    }

    fn earned_ns(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.began_ns) as f64 * f64::from(self.cpus) * SHARE) as u64
    }

    /// CPU time that may be used now.
    pub fn left_ns(&mut self, now_ns: u64) -> u64 {
        let earned_ns = self.earned_ns(now_ns);
        let left_ns = earned_ns.saturating_sub(self.spent_ns + self.forfeited_ns);
        self.forfeited_ns += left_ns.saturating_sub(MOST_SAVED_NS);
        left_ns.min(MOST_SAVED_NS)
    }

    /// How long until so much may be used, if nothing is used meanwhile.
    pub fn until_ns(&mut self, now_ns: u64, cost_ns: u64) -> u64 {
        let missing_ns = cost_ns.min(MOST_SAVED_NS).saturating_sub(self.left_ns(now_ns));
        (missing_ns as f64 / (f64::from(self.cpus) * SHARE)).ceil() as u64
    }

    /// Takes off CPU time that was used, also where that is more than was left.
    pub fn spend(&mut self, cost_ns: u64) {
        self.spent_ns += cost_ns;
    }

    /// Of the machine's time so far.
    pub fn share(&self, now_ns: u64) -> f64 {
        let machine_ns = now_ns.saturating_sub(self.began_ns) as f64 * f64::from(self.cpus);
        if machine_ns > 0.0 { self.spent_ns as f64 / machine_ns } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn asking_before_spending_never_exceeds_the_budget(
            cpus in 1..64_u32,
            steps in proptest::collection::vec((0..20 * S, 0..S), 1..200),
        ) {
            let (mut budget, mut now, mut spent) = (Budget::new(7, cpus), 7, Vec::new());
            for (pause, wish) in steps {
                now += pause;
                let cost = wish.min(budget.left_ns(now));
                budget.spend(cost);
                spent.push((now, cost));
                let share = (now - 7) as f64 * f64::from(cpus) * SHARE;
                prop_assert!(budget.spent_ns as f64 <= share + 1.0);
                prop_assert!(budget.share(now) <= SHARE + 1e-9);
            }
            // Over any stretch: what came in meanwhile, and what could be saved before it.
            for from in 0..spent.len() {
                let cost: u64 = spent[from..].iter().map(|(_, cost)| cost).sum();
                let stretch = (now - spent[from].0) as f64 * f64::from(cpus) * SHARE;
                prop_assert!(cost as f64 <= stretch + MOST_SAVED_NS as f64 + 2.0);
            }
        }
    }

    #[test]
    fn the_budget_states_the_wait_and_then_suffices() {
        let mut budget = Budget::new(0, 2);
        assert_eq!((budget.left_ns(S), budget.until_ns(S, 20_000_000)), (20_000_000, 0));
        budget.spend(20_000_000);
        let wait_ns = budget.until_ns(S, 100_000_000);
        assert_eq!(wait_ns, 5 * S);
        assert!(budget.left_ns(S + wait_ns) >= 100_000_000 - 1);
        // What cannot be saved is waited for no longer than it takes to save all.
        assert!(budget.until_ns(S, u64::MAX) <= 100 * S);
    }
}
