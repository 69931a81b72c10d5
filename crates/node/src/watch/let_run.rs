//! For how long a program could run.

/// Time in which neither its turns kept a program from running nor anybody else had stopped it, as far as looks tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct LetRun {
    total_ns: u64,
    /// When it was looked at last, and for how long its turns had kept it from running until then.
    sampled_ns: u64,
    still_ns: u64,
    /// Somebody else had stopped it then.
    stood: bool,
}

impl LetRun {
    pub fn since(now_ns: u64) -> LetRun {
        LetRun { total_ns: 0, sampled_ns: now_ns, still_ns: 0, stood: false }
    }

    /// One more look. Of a time in which it was stopped or continued nobody knows how much of it it ran: none counts.
    pub fn sample(&mut self, now_ns: u64, still_ns: u64, stopped_by_others: bool) {
        let passed_ns = now_ns.saturating_sub(self.sampled_ns);
        let still_now_ns = still_ns.saturating_sub(self.still_ns);
        if !stopped_by_others && !self.stood {
            self.total_ns += passed_ns.saturating_sub(still_now_ns);
        }
        (self.sampled_ns, self.still_ns, self.stood) = (now_ns, still_ns, stopped_by_others);
    }

    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_keep_it_still_do_not_count() {
        let mut run = LetRun::since(100);
        run.sample(150, 0, false);
        run.sample(250, 60, false);
        assert_eq!(run.total_ns(), 50 + 40);
    }

    #[test]
    fn times_that_begin_or_end_stopped_do_not_count() {
        let mut run = LetRun::since(0);
        for (now_ns, stopped) in [(50, false), (100, true), (200, true), (300, false), (350, false)] {
            run.sample(now_ns, 0, stopped);
        }
        assert_eq!(run.total_ns(), 50 + 50);
    }
}
