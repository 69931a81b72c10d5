//! When what is done from time to time is due again; times are on the monotonic clock, in nanoseconds.

use crate::lease;

/// While a program is on its way to another width.
const SETTLING_NS: u64 = 1_000_000;

/// Due at once at first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer {
    at_ns: u64,
}

impl Timer {
    pub fn at_ns(self) -> u64 {
        self.at_ns
    }

    /// Whether it is due; then it is again after the pause. A pause that became shorter counts at once.
    pub fn is_due(&mut self, now_ns: u64, pause_ns: u64) -> bool {
        let next_ns = now_ns + pause_ns;
        let due = now_ns >= self.at_ns || next_ns < self.at_ns;
        if due {
            self.at_ns = next_ns;
        }
        due
    }
}

/// What the scheduler's loop does from time to time.
#[derive(Default)]
pub(super) struct Timers {
    pub sample_apps: Timer,
    pub sample_machine: Timer,
    pub guard: Timer,
    pub adopt: Timer,
    pub pending: Timer,
}

/// Until when the loop may sleep if no message comes: the next look at programs (`None`: there is none to look at), the
/// policy's wake-up, or a sign of life.
pub(super) fn wait_until(now_ns: u64, settling: bool, sample_at: Option<u64>, wake_at: Option<u64>) -> u64 {
    let next = match settling {
        true => Some(now_ns + SETTLING_NS),
        false => sample_at,
    };
    next.into_iter().chain(wake_at).fold(now_ns + lease::BEAT_NS, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_at_first_and_after_each_pause() {
        let mut timer = Timer::default();
        assert!(timer.is_due(5, 10));
        assert!(!timer.is_due(14, 10));
        assert!(timer.is_due(15, 10));
    }

    #[test]
    fn a_shorter_pause_counts_at_once() {
        let mut timer = Timer::default();
        assert!(timer.is_due(0, 500));
        assert!(!timer.is_due(1, 499));
        assert!(timer.is_due(2, 25));
        assert_eq!(timer.at_ns(), 27);
    }

    #[test]
    fn the_loop_sleeps_until_the_earliest_timer() {
        let beat = 100 + lease::BEAT_NS;
        assert_eq!(wait_until(100, false, None, None), beat);
        assert_eq!(wait_until(100, false, Some(130), None), 130);
        assert_eq!(wait_until(100, false, Some(130), Some(120)), 120);
        assert_eq!(wait_until(100, false, Some(beat + 1), Some(beat + 1)), beat);
        assert_eq!(
            wait_until(100, true, Some(90), None),
            100 + SETTLING_NS,
            "what settles is looked at often"
        );
    }
}
