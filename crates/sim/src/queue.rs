//! What is going to happen, in a total order: by time, then in the order in which it was foreseen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens to one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What it does now ends: its start-up, or all of it.
    End,
    /// A region begins at which it takes another team size up.
    TakesUp,
    /// Its memory lies where its threads are.
    Migrated,
}

/// Time, number in sequence, program, its generation, what.
type Entry = Reverse<(u64, u64, usize, u32, Kind)>;

/// What was foreseen for a program is void once something else is: its generation is another then.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

impl Queue {
    pub fn push(&mut self, at_ns: u64, program: usize, generation: u32, kind: Kind) {
        self.sequence += 1;
        self.heap.push(Reverse((at_ns, self.sequence, program, generation, kind)));
    }

    /// The next time at which something that still holds happens.
    pub fn next_ns(&mut self, holds: impl Fn(usize, u32) -> bool) -> Option<u64> {
        while let Some(&Reverse((at_ns, _, program, generation, _))) = self.heap.peek() {
            if holds(program, generation) {
                return Some(at_ns);
            }
            self.heap.pop();
        }
        None
    }

    /// What happens at `now_ns` at the latest and still holds.
    pub fn pop(&mut self, now_ns: u64, holds: impl Fn(usize, u32) -> bool) -> Option<(usize, Kind)> {
        self.next_ns(&holds).filter(|&at_ns| at_ns <= now_ns)?;
        self.heap.pop().map(|Reverse((_, _, program, _, kind))| (program, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_simultaneous_comes_as_foreseen_and_what_is_void_not_at_all() {
        let mut queue = Queue::default();
        queue.push(5, 1, 0, Kind::End);
        queue.push(5, 0, 0, Kind::End);
        queue.push(3, 2, 0, Kind::TakesUp);
        let holds = |program: usize, _| program != 2;
        assert_eq!(queue.next_ns(holds), Some(5));
        assert_eq!(queue.pop(4, holds), None);
        assert_eq!(queue.pop(5, holds), Some((1, Kind::End)));
        assert_eq!(queue.pop(5, holds), Some((0, Kind::End)));
        assert_eq!(queue.pop(5, holds), None);
    }
}
