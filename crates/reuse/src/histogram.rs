//! How many accesses had which depth, and how many a cache of which size would miss.

use serde::{Deserialize, Serialize};

/// Depths below have a bin of their own.
const SINGLE: u64 = 128;
/// Bins for each doubling of the depth above: none is wider than 1/64 of its lowest depth.
const PER_DOUBLING: u64 = 64;

/// Accesses by depth. Counts are numbers of accesses, or estimates of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// By bin; trailing ones that nothing fell into may be missing.
    bins: Vec<f64>,
    first: f64,
}

/// A bin that something fell into.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Lowest depth, in lines.
    pub from_lines: u64,
    /// Highest depth, in lines.
    pub to_lines: u64,
    /// Accesses of these depths; of a sample an estimate.
    pub accesses: f64,
}

/// A point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Size of the cache, in lines.
    pub lines: u64,
    /// Share of all accesses that miss.
    pub miss_ratio: f64,
}

impl Histogram {
    /// One without accesses.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Which bin a depth (from 1) belongs to.
    pub fn bin_of(depth: u64) -> usize {
        if depth < SINGLE {
            return depth as usize;
        }
        let doubling = u64::from(depth.ilog2() - SINGLE.ilog2());
        let within = (depth >> (depth.ilog2() - PER_DOUBLING.ilog2())) - PER_DOUBLING;
        (SINGLE + doubling * PER_DOUBLING + within) as usize
    }

    /// Lowest and highest depth of a bin.
    pub fn range_of(bin: usize) -> (u64, u64) {
        let bin = bin as u64;
        if bin < SINGLE {
            return (bin, bin);
        }
        let (doubling, within) = ((bin - SINGLE) / PER_DOUBLING, (bin - SINGLE) % PER_DOUBLING);
        let width = (SINGLE / PER_DOUBLING) << doubling;
        let from = (SINGLE << doubling) + within * width;
        (from, from + width - 1)
    }

    /// An access of this depth, or a first touch, counted `weight` times.
    pub fn record(&mut self, depth: Option<u64>, weight: f64) {
        match depth {
            Some(depth) => self.add_to_bin(Self::bin_of(depth), weight),
            None => self.first += weight,
        }
    }

    pub(crate) fn add_to_bin(&mut self, bin: usize, weight: f64) {
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0.0);
        }
        self.bins[bin] += weight;
    }

    /// Another histogram's accesses too, each counted `weight` times.
    pub fn add(&mut self, other: &Histogram, weight: f64) {
        self.first += other.first * weight;
        for (bin, &count) in other.bins.iter().enumerate().filter(|(_, count)| **count != 0.0) {
            self.add_to_bin(bin, count * weight);
        }
    }

    /// All accesses.
    pub fn accesses(&self) -> f64 {
        self.first + self.bins.iter().sum::<f64>()
    }

    /// First touches: the lines that were used at all.
    pub fn first_touches(&self) -> f64 {
        self.first
    }

    /// What fell somewhere, by rising depth; first touches apart.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.bins.iter().enumerate().filter(|(_, accesses)| **accesses != 0.0).map(|(bin, &accesses)| {
            let (from_lines, to_lines) = Self::range_of(bin);
            Row { from_lines, to_lines, accesses }
        })
    }

    /// Accesses with a depth in this range (both ends within), as if depths were spread evenly inside
    /// a bin.
    pub fn between(&self, from_lines: u64, to_lines: u64) -> f64 {
        let part = |row: Row| {
            let (from, to) = (row.from_lines.max(from_lines), row.to_lines.min(to_lines));
            let width = (row.to_lines - row.from_lines + 1) as f64;
            if from > to { 0.0 } else { row.accesses * (to - from + 1) as f64 / width }
        };
        self.rows().map(part).sum()
    }

    /// Accesses that a fully associative LRU cache of so many lines misses; first touches are misses.
    pub fn misses(&self, lines: u64) -> f64 {
        self.first + self.between(lines + 1, u64::MAX)
    }

    /// The same as a share of all accesses; 0 where there were none.
    pub fn miss_ratio(&self, lines: u64) -> f64 {
        let accesses = self.accesses();
        if accesses > 0.0 { (self.misses(lines) / accesses).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Where the miss ratio changes: a point at the upper end of each bin that something fell into,
    /// and before it at its lower end; between two points nothing happens but inside a bin.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let accesses = self.accesses().max(f64::MIN_POSITIVE);
        let mut missed = accesses;
        let mut points = vec![CurvePoint { lines: 0, miss_ratio: (missed / accesses).clamp(0.0, 1.0) }];
        for row in self.rows() {
            let before = row.from_lines - 1;
            if points.last().is_some_and(|last| last.lines < before) {
                points.push(CurvePoint { lines: before, miss_ratio: (missed / accesses).clamp(0.0, 1.0) });
            }
            missed -= row.accesses;
            points.push(CurvePoint { lines: row.to_lines, miss_ratio: (missed / accesses).clamp(0.0, 1.0) });
        }
        points
    }

    /// Cache sizes at which two curves are compared: the upper ends of all bins from `from_lines` to
    /// `to_lines`, which are about evenly spread over the logarithm of the size.
    pub fn sizes(from_lines: u64, to_lines: u64) -> impl Iterator<Item = u64> {
        (Self::bin_of(from_lines.max(1))..)
            .map(|bin| Self::range_of(bin).1)
            .take_while(move |&to| to <= to_lines)
    }

    /// Mean absolute difference of the miss ratios over [`Histogram::sizes`] of this range.
    pub fn mean_difference(&self, other: &Histogram, from_lines: u64, to_lines: u64) -> f64 {
        let (mut sum, mut count) = (0.0, 0u32);
        for lines in Self::sizes(from_lines, to_lines) {
            sum += (self.miss_ratio(lines) - other.miss_ratio(lines)).abs();
            count += 1;
        }
        sum / f64::from(count.max(1))
    }

    /// Rows as CSV with a head; the last row, with empty depths, are the first touches. `columns` are
    /// put before each row, with their heads in `heads`.
    pub fn csv_rows(&self, columns: &str) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for row in self.rows() {
            let _ = writeln!(out, "{columns}{},{},{}", row.from_lines, row.to_lines, row.accesses);
        }
        let _ = writeln!(out, "{columns},,{}", self.first);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_lies_in_its_bin_and_bins_follow_one_another() {
        let mut next = 1;
        for bin in 1..3000 {
            let (from, to) = Histogram::range_of(bin);
            assert_eq!(from, next, "bin {bin}");
            assert_eq!((Histogram::bin_of(from), Histogram::bin_of(to)), (bin, bin));
            assert!((to - from) * 64 <= from, "bin {bin} is {from} to {to}");
            next = to + 1;
        }
    }

    #[test]
    fn a_cache_hits_what_is_no_deeper_than_it_is_large() {
        let mut histogram = Histogram::new();
        [Some(1), Some(4), Some(4), Some(10), None]
            .into_iter()
            .for_each(|depth| histogram.record(depth, 1.0));
        assert_eq!(
            [0, 1, 3, 4, 9, 10, 99].map(|lines| histogram.misses(lines)),
            [5.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0]
        );
        assert_eq!(histogram.miss_ratio(4), 0.4);
        assert_eq!(histogram.accesses(), 5.0);
        for point in histogram.curve() {
            assert!((point.miss_ratio - histogram.miss_ratio(point.lines)).abs() < 1e-12, "{point:?}");
        }
    }

    #[test]
    fn an_empty_histogram_misses_nothing() {
        assert_eq!(Histogram::new().miss_ratio(7), 0.0);
        assert_eq!(Histogram::new().mean_difference(&Histogram::new(), 1, 100), 0.0);
    }
}
