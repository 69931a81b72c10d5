//! What is going to happen, in a total order: by time, then in the order in which it was foreseen.

/// What happens to one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What it does now ends: its start-up, or all of it.
    End,
    /// Another phase of its work begins.
    PhaseChange,
    /// A region begins at which it takes another team size up.
    TeamChange,
    /// Its memory lies where its threads are.
    Migrated,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_ns: u64,
    sequence: u64,
    program: usize,
    kind: Kind,
}

/// Not in the heap.
const NOWHERE: usize = usize::MAX;

/// The next thing of every program; what was foreseen for it before is forgotten. A binary heap that
/// knows where each program stands in it, so that it never holds more than there are programs.
#[derive(Debug, Default)]
pub struct Queue {
    heap: Vec<Entry>,
    /// Of each program.
    position: Vec<usize>,
    sequence: u64,
}

impl Queue {
    /// What happens to `program` next, and when, as far as is known now.
    pub fn foresee(&mut self, program: usize, next: Option<(u64, Kind)>) {
        if self.position.len() <= program {
            self.position.resize(program + 1, NOWHERE);
        }
        let at = self.position[program];
        let Some((at_ns, kind)) = next else {
            if at != NOWHERE {
                self.remove(at);
            }
            return;
        };
        self.sequence += 1;
        let entry = Entry { at_ns, sequence: self.sequence, program, kind };
        if at == NOWHERE {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1);
        } else {
            self.heap[at] = entry;
            self.settle(at);
        }
    }

    /// The next time at which something happens.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.at_ns)
    }

    /// What happens at `now_ns` at the latest.
    pub fn pop(&mut self, now_ns: u64) -> Option<(usize, Kind)> {
        let Entry { program, kind, .. } = *self.heap.first().filter(|entry| entry.at_ns <= now_ns)?;
        self.remove(0);
        Some((program, kind))
    }

    fn remove(&mut self, at: usize) {
        self.position[self.heap[at].program] = NOWHERE;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.settle(at);
        }
    }

    /// Puts the entry that was written to `at` where it belongs.
    fn settle(&mut self, at: usize) {
        let at = self.rise(at);
        self.sink(at);
    }

    fn before(&self, one: usize, other: usize) -> bool {
        let key = |at: usize| (self.heap[at].at_ns, self.heap[at].sequence);
        key(one) < key(other)
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.before(at, (at - 1) / 2) {
            self.heap.swap(at, (at - 1) / 2);
            self.position[self.heap[at].program] = at;
            at = (at - 1) / 2;
        }
        self.position[self.heap[at].program] = at;
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                break;
            }
            let child = if right < self.heap.len() && self.before(right, left) { right } else { left };
            if !self.before(child, at) {
                break;
            }
            self.heap.swap(at, child);
            self.position[self.heap[at].program] = at;
            at = child;
        }
        self.position[self.heap[at].program] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Random;

    #[test]
    fn simultaneous_events_keep_their_order_and_void_ones_vanish() {
        let mut queue = Queue::default();
        queue.foresee(2, Some((3, Kind::TeamChange)));
        queue.foresee(1, Some((5, Kind::End)));
        queue.foresee(0, Some((5, Kind::End)));
        queue.foresee(2, None);
        assert_eq!(queue.next_ns(), Some(5));
        assert_eq!(queue.pop(4), None);
        assert_eq!(queue.pop(5), Some((1, Kind::End)));
        assert_eq!(queue.pop(5), Some((0, Kind::End)));
        assert_eq!(queue.pop(5), None);
    }

    #[test]
    fn the_queue_agrees_with_a_linear_search() {
        let mut random = Random::new(7);
        let mut queue = Queue::default();
        let mut naive: Vec<Option<(u64, u64)>> = vec![None; 20];
        for sequence in 0..20_000 {
            let program = random.below(20) as usize;
            let next = random.chance(80).then(|| random.below(50));
            queue.foresee(program, next.map(|at_ns| (at_ns, Kind::End)));
            naive[program] = next.map(|at_ns| (at_ns, sequence));
            if random.chance(40) {
                let first = (0..20).filter_map(|at| naive[at].map(|key| (key, at))).min();
                assert_eq!(queue.next_ns(), first.map(|((at_ns, _), _)| at_ns));
                let now_ns = random.below(50);
                let due = first.filter(|((at_ns, _), _)| *at_ns <= now_ns).map(|(_, at)| at);
                assert_eq!(queue.pop(now_ns), due.map(|at| (at, Kind::End)), "after {sequence}");
                if let Some(at) = due {
                    naive[at] = None;
                }
            }
        }
    }
}
