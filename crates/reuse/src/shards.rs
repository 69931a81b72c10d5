//! Depths of a sample of the lines: SHARDS (Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC
//! Construction with SHARDS, FAST 2015).
//!
//! A line is in the sample if a hash of its number is below a threshold, so that all or none of its
//! accesses are seen. Among the lines of a sample at rate R, others appear R times as often as they
//! do among all, so depths are divided by R and accesses count 1/R. With a fixed *size* the threshold
//! falls so that the sample never has more than so many lines; what was seen at a higher rate keeps
//! the weight of its time, which is what the paper's rescaling comes to.
//!
//! What the sample has too many or too few accesses of is put right in the bin of depth 1, as the
//! paper does (SHARDS-adj): it comes from lines that are used very often, and so at small depths.
//!
//! **Error.** The paper gives none from within a run. Here the sampled lines fall into 16 groups by
//! another hash; the missed accesses of a group are 16 independent samples of the same thing, and their
//! spread gives the standard error of their sum. It covers which lines came into the sample. It does
//! not cover that a depth d itself is only known to about sqrt(d/R): at small caches (below some ten
//! divided by R lines) curves are smeared.

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::slots::Slots;

/// Groups of lines whose spread gives the error.
const GROUPS: usize = 16;
/// Of 52 bits, at the upper end of 64: what the measuring tool multiplies fastest, many lines at once.
const FACTOR: u64 = 0x9_e377_9b97_f4a7 << 12;

/// What a line's place in or outside the sample depends on; the measuring tool computes the same in
/// front of every access, so it is one multiplication.
#[inline]
pub fn sample_hash(line: u64) -> u64 {
    line.wrapping_mul(FACTOR)
}

/// Which group a line falls into, independently of [`sample_hash`].
fn group_of(line: u64) -> usize {
    let mixed = (line ^ (line >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 60) as usize
}

/// How much is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// This share of the lines (above 0, at most 1).
    Fixed(f64),
    /// At most so many lines at a time.
    Size(u32),
}

impl Rate {
    fn threshold(self) -> u64 {
        match self {
            Rate::Fixed(share) if share >= 1.0 => u64::MAX,
            Rate::Fixed(share) => (share * 2f64.powi(64)) as u64,
            Rate::Size(_) => u64::MAX,
        }
    }
}

/// A sampling engine.
pub struct Shards {
    threshold: u64,
    most: Option<usize>,
    slot_of: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    /// Lines of the sample, the next to leave first; only with a fixed size.
    by_hash: BinaryHeap<(u64, u64)>,
    slots: Slots,
    groups: Vec<Histogram>,
    accesses: u64,
}

/// What a sample says.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// All accesses, as the sample stands for them.
    pub histogram: Histogram,
    groups: Vec<Histogram>,
    accesses: f64,
}

impl Shards {
    /// An engine that samples at this rate and has seen no access.
    pub fn new(rate: Rate) -> Shards {
        Shards {
            threshold: rate.threshold(),
            most: match rate {
                Rate::Fixed(_) => None,
                Rate::Size(lines) => Some(lines.max(1) as usize),
            },
            slot_of: HashMap::default(),
            by_hash: BinaryHeap::new(),
            slots: Slots::new(),
            groups: vec![Histogram::new(); GROUPS],
            accesses: 0,
        }
    }

    /// A batch of accesses, in order.
    pub fn access_all(&mut self, lines: &[u64]) {
        self.accesses += lines.len() as u64;
        for &line in lines {
            if sample_hash(line) < self.threshold {
                self.sampled(line);
            }
        }
    }

    /// One access to a line, by its number.
    pub fn access(&mut self, line: u64) {
        self.access_all(&[line]);
    }

    /// Share of the lines that is in the sample now.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / 2f64.powi(64)
    }

    #[inline(never)]
    fn sampled(&mut self, line: u64) {
        if self.slots.full() {
            let moved = self.slots.make_room();
            self.slot_of.values_mut().for_each(|slot| *slot = moved.to(*slot));
        }
        let rate = self.rate();
        let before = self.slot_of.get(&line).map(|&slot| self.slots.free(slot));
        self.slot_of.insert(line, self.slots.take());
        let depth = before.map(|others| 1 + (f64::from(others) / rate).round() as u64);
        self.groups[group_of(line)].record(depth, 1.0 / rate);
        if let Some(most) = self.most
            && before.is_none()
        {
            self.by_hash.push((sample_hash(line), line));
            while self.slot_of.len() > most {
                self.shrink();
            }
        }
    }

    /// The lines with the highest hash leave the sample.
    fn shrink(&mut self) {
        let Some(&(highest, _)) = self.by_hash.peek() else { return };
        self.threshold = highest;
        while let Some(&(hash, line)) = self.by_hash.peek()
            && hash >= highest
        {
            self.by_hash.pop();
            if let Some(slot) = self.slot_of.remove(&line) {
                self.slots.free(slot);
            }
        }
    }

    /// What is known so far.
    pub fn estimate(&self) -> Estimate {
        Estimate::from_groups(self.groups.clone(), self.accesses as f64)
    }
}

impl Estimate {
    /// From the weighted histograms of the groups and the number of all accesses.
    pub(crate) fn from_groups(groups: Vec<Histogram>, accesses: f64) -> Estimate {
        let mut histogram = Histogram::new();
        groups.iter().for_each(|group| histogram.add(group, 1.0));
        histogram.record(Some(1), accesses - histogram.accesses());
        Estimate { histogram, groups, accesses }
    }

    /// Standard error of the miss ratio at this cache size.
    pub fn error(&self, lines: u64) -> f64 {
        let misses: Vec<f64> = self.groups.iter().map(|group| group.misses(lines)).collect();
        let count = misses.len() as f64;
        let mean = misses.iter().sum::<f64>() / count;
        let variance = misses.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (count - 1.0);
        (variance * count).sqrt() / self.accesses.max(1.0)
    }

    /// Expected mean absolute error of the miss-ratio curve over [`Histogram::sizes`] of this range:
    /// of a normal distribution it is sqrt(2/π) of the standard error.
    pub fn mean_error(&self, from_lines: u64, to_lines: u64) -> f64 {
        let errors: Vec<f64> =
            Histogram::sizes(from_lines, to_lines).map(|lines| self.error(lines)).collect();
        errors.iter().sum::<f64>() / errors.len().max(1) as f64 * std::f64::consts::FRAC_2_PI.sqrt()
    }
}

/// Line numbers are mixed well enough by one multiplication; the standard hash would cost more than
/// all the rest.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // The sample holds the lines with a small hash: another factor, and the high half goes down,
        // where the map looks.
        let mixed = (self.0 ^ number).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 32);
    }
}
