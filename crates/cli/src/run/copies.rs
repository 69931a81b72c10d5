//! Which of the signals that reach `coplace run` its program has got by itself.
//!
//! What is sent to the process group, or to each process there is (service managers and batch systems do that),
//! reaches program and [witness](super::witness) alike; what is meant for `coplace run` alone reaches neither,
//! and is passed on. Who sends to one process after the other has not come to the witness yet when the signal
//! reaches us: so a signal that the program would act on a second time waits for a while for its copy.

/// For so long a copy may follow, or go before.
pub const WINDOW_NS: u64 = 250_000_000;
/// Copies that come so shortly after each other are one to whoever does not run in between.
const BURST_NS: u64 = 10_000_000;

#[derive(Debug, Default)]
pub struct Copies {
    /// Signals that reached us, in order, and when.
    ours: Vec<(i32, u64)>,
    /// Those that reached the witness and not us yet.
    others: Vec<(i32, u64)>,
}

impl Copies {
    /// A signal has reached us.
    pub fn note_arrived(&mut self, signal: i32, now_ns: u64) {
        if !self.was_delivered(signal, now_ns) {
            self.ours.push((signal, now_ns));
        }
    }

    /// Whether the program has got this one by itself, as far as is known by now; that counts once.
    pub fn was_delivered(&mut self, signal: i32, now_ns: u64) -> bool {
        self.others.retain(|(_, at)| now_ns.saturating_sub(*at) < WINDOW_NS);
        let at = self.others.iter().position(|(other, _)| *other == signal);
        at.map(|at| self.others.remove(at)).is_some()
    }

    /// A signal has reached the witness.
    pub fn note_witnessed(&mut self, signal: i32, now_ns: u64) {
        let first = self.ours.iter().find(|(ours, _)| *ours == signal).map(|(_, at)| *at);
        match first {
            Some(first) => self.ours.retain(|(ours, at)| *ours != signal || at - first > BURST_NS),
            None => self.others.push((signal, now_ns)),
        }
    }

    /// Those that were meant for us alone, as no copy came; each is told once.
    pub fn due(&mut self, now_ns: u64) -> Vec<i32> {
        let is_due = |at: &u64| now_ns.saturating_sub(*at) >= WINDOW_NS;
        let due = self.ours.iter().filter(|(_, at)| is_due(at)).map(|(signal, _)| *signal).collect();
        self.ours.retain(|(_, at)| !is_due(at));
        due
    }

    /// When the next one is due.
    pub fn next_ns(&self) -> Option<u64> {
        self.ours.iter().map(|(_, at)| at + WINDOW_NS).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_signal_for_us_alone_is_due_once_after_the_window() {
        let mut copies = Copies::default();
        copies.note_arrived(15, 1000 * MS);
        assert_eq!(copies.next_ns(), Some(1000 * MS + WINDOW_NS));
        assert_eq!(copies.due(1100 * MS), [0; 0]);
        assert_eq!(copies.due(1000 * MS + WINDOW_NS), [15]);
        assert_eq!((copies.due(2000 * MS), copies.next_ns()), (vec![], None));
    }

    #[test]
    fn a_copy_before_or_after_it_cancels_one_signal() {
        for witness_first in [false, true] {
            let mut copies = Copies::default();
            if witness_first {
                copies.note_witnessed(15, 900 * MS);
            }
            copies.note_arrived(15, 1000 * MS);
            copies.note_arrived(10, 1000 * MS);
            if !witness_first {
                copies.note_witnessed(15, 1200 * MS);
            }
            assert_eq!(copies.due(1300 * MS), [10]);
            copies.note_arrived(15, 1400 * MS);
            assert_eq!(copies.due(1700 * MS), [15]);
        }
    }

    #[test]
    fn two_signals_for_us_alone_are_two_however_soon() {
        let mut copies = Copies::default();
        for at in [1000 * MS, 1001 * MS, 1500 * MS] {
            copies.note_arrived(12, at);
        }
        assert_eq!(copies.due(2000 * MS), [12, 12, 12]);
    }

    #[test]
    fn copies_that_became_one_to_the_witness_cancel_all() {
        let mut copies = Copies::default();
        copies.note_arrived(15, 1000 * MS);
        copies.note_arrived(15, 1002 * MS);
        copies.note_arrived(15, 1200 * MS);
        copies.note_witnessed(15, 1210 * MS);
        assert_eq!(copies.due(2000 * MS), [15]);
    }

    #[test]
    fn an_old_copy_does_not_count_for_a_new_signal() {
        let mut copies = Copies::default();
        copies.note_witnessed(15, 1000 * MS);
        copies.note_arrived(15, 1400 * MS);
        assert_eq!(copies.due(2000 * MS), [15]);
    }
}
