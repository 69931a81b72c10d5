//! Every depth of every access.
//!
//! Most accesses go to one of the last few lines, so those stand in a short list in their exact order,
//! which is searched first. The others have a slot each ([`Slots`]), found by a table with open hashing.
//! The table's keys are pages of 64 lines: programs touch neighbours, and then it stays small. Of a batch
//! the short list is kept first; what was not in it is looked up afterwards in steps, each of them fetched
//! ahead.
//!
//! # Why slots
//!
//! Of the ways known, measured by hand at a footprint of 64 MB: buckets of distances
//! (Kim, Hill and Wood), whose boundaries are moved along at each access, made 2 million accesses a second
//! and do not tell distances exactly within a bucket; increment-and-freeze, which works on batches, 3; a
//! Fenwick tree over time slots that is compacted when they are used up, 7. Slots in a bitmap with counts
//! at five levels of fixed length, which need no branch that cannot be foretold, make 14 at random addresses:
//! `benches/engine.rs` measures them, and `experiments/reuse` records it.

use crate::fetch;
use crate::histogram::Histogram;
use crate::slots::Slots;

/// Lines in the short list. Searching more costs more than it spares.
const RECENT: usize = 8;
const GROUP_BITS: u32 = 6;
const GROUP: usize = 1 << GROUP_BITS;
/// An entry of the table is a key + 1, and below it the number of its group.
const NUMBER_BITS: u32 = 26;
/// The line was never touched, or stands in the short list.
const NO_SLOT: u32 = u32::MAX;
/// No group, nobody who leaves the short list.
const NOBODY: u32 = u32::MAX;
/// How far ahead the table, then the slots, then what counts them are fetched.
const AHEAD: usize = 24;
const NEAR: usize = 16;
const NEXT: usize = 8;
const BATCH: usize = 2048;

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
    batch: Vec<Missed>,
    /// Places by tickets: of the short list before a batch, then of what was not in it.
    place_of: Vec<u32>,
}

/// An access of a batch that was not in the short list.
struct Missed {
    line: u64,
    /// As far as it is known.
    group: u32,
    /// How many lines stood in the short list.
    stood: u32,
    /// Ticket of the line that has to leave the list.
    leaver: u32,
}

impl Default for Exact {
    fn default() -> Self {
        Exact::new()
    }
}

impl Exact {
    /// An engine that has seen no access.
    pub fn new() -> Exact {
        Exact {
            recent: [u64::MAX; RECENT],
            places: [0; RECENT],
            recent_count: 0,
            slots: Slots::new(),
            groups: Groups::new(),
            slot_of: Vec::new(),
            batch: Vec::with_capacity(BATCH),
            place_of: Vec::with_capacity(RECENT + BATCH),
        }
    }

    /// The access's depth; `None` for a first touch. `line` is an address divided by
    /// [`crate::LINE_BYTES`], below 2^43.
    pub fn access(&mut self, line: u64) -> Option<u64> {
        if let Some(at) = self.recent.iter().position(|&recent| recent == line) {
            let place = self.places[at];
            self.bring_up(at, line, place);
            return Some(at as u64 + 1);
        }
        let place = self.place_for(self.groups.find(line >> GROUP_BITS), line);
        let depth = self.come_up(place, self.recent_count as u32);
        if self.recent_count == RECENT {
            self.go_down(self.places[RECENT - 1]);
        } else {
            self.recent_count += 1;
        }
        self.bring_up(RECENT - 1, line, place);
        depth
    }

    /// Every access of a batch, into a histogram.
    pub fn access_all(&mut self, lines: &[u64], histogram: &mut Histogram) {
        for lines in lines.chunks(BATCH) {
            self.keep_recent(lines, histogram);
            self.count_reuse(histogram);
            let (count, places) = (self.recent_count, self.places);
            for (place, ticket) in self.places.iter_mut().zip(places).take(count) {
                *place = self.place_of[ticket as usize];
            }
        }
    }

    /// Distinct lines so far.
    pub fn footprint(&self) -> u64 {
        u64::from(self.slots.count()) + self.recent_count as u64
    }

    #[inline]
    fn bring_up(&mut self, from: usize, line: u64, place: u32) {
        for at in (0..from).rev() {
            self.recent[at + 1] = self.recent[at];
            self.places[at + 1] = self.places[at];
        }
        (self.recent[0], self.places[0]) = (line, place);
    }

    /// Leaves tickets in `places`, and in `batch` what was not in the short list.
    fn keep_recent(&mut self, lines: &[u64], histogram: &mut Histogram) {
        self.batch.clear();
        self.place_of.clear();
        self.place_of.extend_from_slice(&self.places);
        for (ticket, place) in self.places.iter_mut().enumerate() {
            *place = ticket as u32;
        }
        let mut depths = [0u64; RECENT + 1];
        for &line in lines {
            if line == self.recent[0] {
                depths[1] += 1;
                continue;
            }
            if let Some(at) = self.recent.iter().position(|&recent| recent == line) {
                depths[at + 1] += 1;
                let ticket = self.places[at];
                self.bring_up(at, line, ticket);
                continue;
            }
            let ticket = (RECENT + self.batch.len()) as u32;
            let full = self.recent_count == RECENT;
            self.batch.push(Missed {
                line,
                group: NOBODY,
                stood: self.recent_count as u32,
                leaver: if full { self.places[RECENT - 1] } else { NOBODY },
            });
            self.recent_count += usize::from(!full);
            self.bring_up(RECENT - 1, line, ticket);
        }
        for (depth, &count) in depths.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.record(Some(depth as u64), count as f64);
        }
    }

    fn count_reuse(&mut self, histogram: &mut Histogram) {
        let mut batch = std::mem::take(&mut self.batch);
        let count = batch.len();
        for at in 0..count + AHEAD {
            if let Some(missed) = batch.get(at) {
                self.groups.fetch(missed.line >> GROUP_BITS);
            }
            if let Some(missed) = at.checked_sub(AHEAD - NEAR).and_then(|near| batch.get_mut(near)) {
                missed.group = self.groups.find(missed.line >> GROUP_BITS);
                if missed.group != NOBODY {
                    fetch(&self.slot_of[missed.group as usize][missed.line as usize % GROUP]);
                }
            }
            if let Some(missed) = at.checked_sub(AHEAD - NEXT).and_then(|next| batch.get(next))
                && missed.group != NOBODY
            {
                match self.slot_of[missed.group as usize][missed.line as usize % GROUP] {
                    NO_SLOT => {}
                    slot => self.slots.fetch(slot),
                }
            }
            if let Some(missed) = at.checked_sub(AHEAD).map(|now| &batch[now]) {
                let place = self.place_for(missed.group, missed.line);
                self.place_of.push(place);
                histogram.record(self.come_up(place, missed.stood), 1.0);
                if missed.leaver != NOBODY {
                    self.go_down(self.place_of[missed.leaver as usize]);
                }
            }
        }
        batch.clear();
        self.batch = batch;
    }

    #[inline]
    fn place_for(&mut self, group: u32, line: u64) -> u32 {
        let group = if group == NOBODY { self.groups.find_or_add(line >> GROUP_BITS) } else { group };
        if group as usize == self.slot_of.len() {
            self.slot_of.push([NO_SLOT; GROUP]);
        }
        group << GROUP_BITS | (line as u32 % GROUP as u32)
    }

    /// A line below the short list, where `stood` lines stand, comes up; its depth.
    #[inline]
    fn come_up(&mut self, place: u32, stood: u32) -> Option<u64> {
        let own = &mut self.slot_of[place as usize / GROUP][place as usize % GROUP];
        match std::mem::replace(own, NO_SLOT) {
            NO_SLOT => None,
            slot => Some(u64::from(self.slots.free(slot)) + u64::from(stood) + 1),
        }
    }

    /// The last of the short list goes below it.
    #[inline]
    fn go_down(&mut self, place: u32) {
        if self.slots.full() {
            self.make_room();
        }
        self.slot_of[place as usize / GROUP][place as usize % GROUP] = self.slots.take();
    }

    #[cold]
    fn make_room(&mut self) {
        let moved = self.slots.make_room();
        for slot in self.slot_of.as_flattened_mut().iter_mut().filter(|slot| **slot != NO_SLOT) {
            *slot = moved.to(*slot);
        }
    }
}

/// Numbers for groups of lines, in order of first touch.
struct Groups {
    /// Entries; 0: nobody. At most a quarter is taken, so that most keys are found at first sight.
    table: Vec<u64>,
    shift: u32,
    count: u32,
}

impl Groups {
    fn new() -> Groups {
        Groups { table: vec![0; 1 << 10], shift: 64 - 10, count: 0 }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> self.shift) as usize
    }

    #[inline]
    fn fetch(&self, key: u64) {
        fetch(&self.table[self.home(key)]);
    }

    /// [`NOBODY`] where there is none.
    #[inline]
    fn find(&self, key: u64) -> u32 {
        let mut at = self.home(key);
        loop {
            match self.table[at] {
                0 => return NOBODY,
                entry if entry >> NUMBER_BITS == key + 1 => return (entry & ((1 << NUMBER_BITS) - 1)) as u32,
                _ => at = (at + 1) & (self.table.len() - 1),
            }
        }
    }

    fn find_or_add(&mut self, key: u64) -> u32 {
        let found = self.find(key);
        if found != NOBODY {
            return found;
        }
        assert!(key < (1 << (64 - NUMBER_BITS)) - 1, "an address is beyond 2^49");
        assert!(self.count < 1 << NUMBER_BITS, "more than 256 GiB of memory cannot be told apart: sample");
        if self.count as usize * 4 >= self.table.len() {
            let old = std::mem::take(&mut self.table);
            self.table = vec![0; old.len() * 2];
            self.shift -= 1;
            old.into_iter().filter(|&entry| entry != 0).for_each(|entry| self.put(entry));
        }
        let number = self.count;
        self.count += 1;
        self.put((key + 1) << NUMBER_BITS | u64::from(number));
        number
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.home((entry >> NUMBER_BITS) - 1);
        while self.table[at] != 0 {
            at = (at + 1) & (self.table.len() - 1);
        }
        self.table[at] = entry;
    }
}
