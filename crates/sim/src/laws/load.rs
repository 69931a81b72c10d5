//! The load average over fifteen minutes, as Linux computes it (kernel/sched/loadavg.c): sampled every
//! five seconds, in fixed point with 11 bits.

/// Time between two samples.
pub const EVERY_NS: u64 = 5_000_000_000;

const SHIFT: u32 = 11;
const ONE: u64 = 1 << SHIFT;
/// exp(-5 s / 15 min) in fixed point.
const DECAY: u64 = 2037;

/// The load average over 15 minutes, in the kernel's fixed point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadAverage(u64);

impl LoadAverage {
    /// One sample with this many threads that run or could.
    pub fn sample(&mut self, runnable: u64) {
        let active = runnable * ONE;
        let mut load = self.0 * DECAY + active * (ONE - DECAY);
        if active >= self.0 {
            load += ONE - 1;
        }
        self.0 = load >> SHIFT;
    }

    /// In thousandths of a runnable thread.
    pub fn milli(self) -> u64 {
        self.0 * 1000 / ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_fifteen_minutes_the_load_average_has_two_thirds() {
        let mut load = LoadAverage::default();
        (0..180).for_each(|_| load.sample(24));
        // 24 × (1 - 1/e) = 15.2, and a little less, because the decay is rounded.
        assert!((14_800..15_300).contains(&load.milli()), "{}", load.milli());
        (0..2000).for_each(|_| load.sample(0));
        assert_eq!(load.milli(), 0);
    }
}
