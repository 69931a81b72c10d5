//! Every depth of every access.
//!
//! Most accesses go to one of the last few lines, so those stand in a short list in their exact order,
//! which is searched first. The others have a slot each ([`Slots`]), found by a table with open
//! hashing. The table's keys are groups of 16 lines, whose slots lie in one cache line: programs
//! touch neighbours, and then it stays small. A batch is fetched ahead.
//!
//! Cost (criterion, `benches/engine.rs`): 8 million accesses a second and more at a footprint of 64 MB.

use crate::histogram::Histogram;
use crate::slots::Slots;

/// Lines in the short list. Searching more costs more than it spares.
const RECENT: usize = 8;
const GROUP_BITS: u32 = 4;
const GROUP: usize = 1 << GROUP_BITS;
/// The line was never touched, or stands in the short list.
const NO_SLOT: u32 = u32::MAX;
/// How far ahead the table is fetched, and from it the slots.
const AHEAD: usize = 24;
const NEAR: usize = 12;

/// An exact engine: depths of accesses, in order.
pub struct Exact {
    recent: [u64; RECENT],
    /// The same lines' places in `slot_of`.
    places: [u32; RECENT],
    recent_count: usize,
    slots: Slots,
    groups: Groups,
    /// Slots of the lines of each group.
    slot_of: Vec<[u32; GROUP]>,
}

impl Default for Exact {
    fn default() -> Self {
        Exact::new()
    }
}

impl Exact {
    pub fn new() -> Exact {
        Exact {
            recent: [u64::MAX; RECENT],
            places: [0; RECENT],
            recent_count: 0,
            slots: Slots::new(),
            groups: Groups::new(),
            slot_of: Vec::new(),
        }
    }

    /// The access's depth; `None` for a first touch. `line` is an address divided by
    /// [`crate::LINE_BYTES`], below 2^58.
    pub fn access(&mut self, line: u64) -> Option<u64> {
        if self.recent[0] == line {
            return Some(1);
        }
        for at in 1..RECENT {
            if self.recent[at] == line {
                let place = self.places[at];
                self.recent.copy_within(0..at, 1);
                self.places.copy_within(0..at, 1);
                (self.recent[0], self.places[0]) = (line, place);
                return Some(at as u64 + 1);
            }
        }
        self.older(line)
    }

    /// Every access of a batch, into a histogram.
    pub fn access_all(&mut self, lines: &[u64], histogram: &mut Histogram) {
        for (at, &line) in lines.iter().enumerate() {
            if let Some(&ahead) = lines.get(at + AHEAD) {
                self.groups.fetch(ahead >> GROUP_BITS);
            }
            if let Some(&near) = lines.get(at + NEAR)
                && let Some(group) = self.groups.find(near >> GROUP_BITS)
            {
                fetch(&self.slot_of[group as usize]);
            }
            histogram.record(self.access(line), 1.0);
        }
    }

    /// Distinct lines so far.
    pub fn footprint(&self) -> u64 {
        u64::from(self.slots.count()) + self.recent_count as u64
    }

    /// A line that is not in the short list.
    #[inline(never)]
    fn older(&mut self, line: u64) -> Option<u64> {
        let group = self.groups.find_or_add(line >> GROUP_BITS);
        if group as usize == self.slot_of.len() {
            self.slot_of.push([NO_SLOT; GROUP]);
        }
        let within = line as usize % GROUP;
        let slot = std::mem::replace(&mut self.slot_of[group as usize][within], NO_SLOT);
        let depth =
            (slot != NO_SLOT).then(|| u64::from(self.slots.give_up(slot)) + self.recent_count as u64 + 1);
        if self.recent_count == RECENT {
            if self.slots.full() {
                self.make_room();
            }
            let last = self.places[RECENT - 1] as usize;
            self.slot_of[last / GROUP][last % GROUP] = self.slots.take();
        } else {
            self.recent_count += 1;
        }
        self.recent.copy_within(0..RECENT - 1, 1);
        self.places.copy_within(0..RECENT - 1, 1);
        (self.recent[0], self.places[0]) = (line, group * GROUP as u32 + within as u32);
        depth
    }

    fn make_room(&mut self) {
        let moved = self.slots.make_room();
        for slot in self.slot_of.as_flattened_mut().iter_mut().filter(|slot| **slot != NO_SLOT) {
            *slot = moved.to(*slot);
        }
    }
}

/// Numbers for groups of lines, in order of first touch.
struct Groups {
    /// A group's key + 1 and its number; 0: nobody.
    table: Vec<(u64, u32)>,
    shift: u32,
    count: u32,
}

impl Groups {
    fn new() -> Groups {
        Groups { table: vec![(0, 0); 1 << 10], shift: 64 - 10, count: 0 }
    }

    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn fetch(&self, key: u64) {
        fetch(&self.table[self.home(key)]);
    }

    fn find(&self, key: u64) -> Option<u32> {
        let mut at = self.home(key);
        loop {
            match self.table[at] {
                (there, number) if there == key + 1 => return Some(number),
                (0, _) => return None,
                _ => at = (at + 1) & (self.table.len() - 1),
            }
        }
    }

    fn find_or_add(&mut self, key: u64) -> u32 {
        if let Some(number) = self.find(key) {
            return number;
        }
        if self.count as usize * 2 >= self.table.len() {
            let old = std::mem::take(&mut self.table);
            self.table = vec![(0, 0); old.len() * 2];
            self.shift -= 1;
            old.into_iter().filter(|(key, _)| *key != 0).for_each(|(key, number)| self.put(key - 1, number));
        }
        let number = self.count;
        self.count += 1;
        self.put(key, number);
        number
    }

    fn put(&mut self, key: u64, number: u32) {
        let mut at = self.home(key);
        while self.table[at].0 != 0 {
            at = (at + 1) & (self.table.len() - 1);
        }
        self.table[at] = (key + 1, number);
    }
}

/// Tells the processor that this will be needed soon.
fn fetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of a reference's address reads nothing that the program could see, and the
    // address is valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(std::ptr::from_ref(what).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}
