//! Which pass comes next, so that the mixture is kept at every moment as well as whole passes can.

use super::mixture::Mixture;

/// Accesses between two looks at whether to go on, at full speed.
pub(crate) const CHUNK: u64 = 1 << 14;
/// Distances up to so many lines are felt by what else DistGen touches between two passes, some twenty
/// lines; so often they are repeated then before another's turn comes.
const SHORT: u64 = 1 << 10;
const REPEATED: u64 = 64;

/// A stretch of accesses: `repeat` times the lines from `from` to `to` of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The first line, counted from 0; above 0 where a longer pass goes on that was cut.
    pub(crate) from: u64,
    /// The line after the last one.
    pub(crate) to: u64,
    /// At least 1; exactly 1 for a part of a pass that was cut.
    pub(crate) repeat: u64,
}

impl Pass {
    /// Lines that it reads, with all repetitions.
    pub(crate) fn accesses(&self) -> u64 {
        (self.to - self.from) * self.repeat
    }
}

/// The passes of a mixture, one after the other, without end.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    lines: Vec<u64>,
    shares: Vec<f64>,
    /// Accesses that each distance has had.
    had: Vec<u64>,
    all: u64,
    /// Accesses after which somebody looks whether to go on; a pass that is longer is cut there, shorter
    /// ones are repeated.
    chunk: u64,
    /// The rest of a long pass: where it goes on and ends.
    rest: Option<(u64, u64)>,
}

impl Schedule {
    /// Longer passes are cut after `chunk` accesses, shorter ones may be repeated; 0 counts as 1.
    pub(crate) fn with_chunks(mixture: &Mixture, chunk: u64) -> Schedule {
        Schedule {
            lines: mixture.shares().iter().map(|share| share.lines).collect(),
            shares: mixture.shares().iter().map(|share| share.share).collect(),
            had: vec![0; mixture.shares().len()],
            all: 0,
            chunk: chunk.max(1),
            rest: None,
        }
    }

    fn next_pass(&mut self) -> Pass {
        if let Some((from, end)) = self.rest.take() {
            return self.cut(from, end);
        }
        // Whoever is furthest behind. The first is the longest, which touches everything.
        let behind = |index: usize| self.shares[index] * self.all as f64 - self.had[index] as f64;
        let index = (0..self.lines.len())
            .max_by(|&one, &other| behind(one).total_cmp(&behind(other)))
            .expect("a mixture has a distance");
        let lines = self.lines[index];
        let wanted = match self.lines.len() {
            1 => self.chunk,
            // At a given rate bursts are short, and the mixture is kept within each.
            _ if self.chunk < CHUNK => (behind(index).max(0.0) as u64).min(self.chunk),
            _ if lines <= SHORT => CHUNK.max(REPEATED * lines),
            _ => CHUNK,
        };
        let repeat = (wanted / lines).max(1);
        self.had[index] += lines * repeat;
        self.all += lines * repeat;
        if repeat > 1 { Pass { from: 0, to: lines, repeat } } else { self.cut(0, lines) }
    }

    fn cut(&mut self, from: u64, end: u64) -> Pass {
        let to = end.min(from + self.chunk);
        self.rest = (to < end).then_some((to, end));
        Pass { from, to, repeat: 1 }
    }
}

impl Iterator for Schedule {
    type Item = Pass;

    fn next(&mut self) -> Option<Pass> {
        Some(self.next_pass())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use reuse::{Exact, Histogram};

    use super::*;

    fn accesses(mixture: &Mixture, count: u64) -> Vec<u64> {
        let mut lines = Vec::new();
        for pass in Schedule::with_chunks(mixture, CHUNK / 2) {
            (0..pass.repeat).for_each(|_| lines.extend(pass.from..pass.to));
            if lines.len() as u64 > count {
                break;
            }
        }
        lines
    }

    fn mixtures() -> impl Strategy<Value = Mixture> {
        let lines = prop_oneof![1u64..40, 40u64..500, 500u64..4_000];
        proptest::collection::btree_map(lines, 0.02f64..1.0, 1..5)
            .prop_map(|weights| Mixture::new(&weights.into_iter().collect::<Vec<_>>()).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_pass_brings_its_length_as_depth(mixture in mixtures()) {
            let mut engine = Exact::new();
            let wanted: Vec<u64> = mixture.shares().iter().map(|share| share.lines).collect();
            for line in accesses(&mixture, 100_000) {
                if let Some(depth) = engine.access(line) {
                    prop_assert!(wanted.contains(&depth), "{depth} is none of {wanted:?}");
                }
            }
        }

        #[test]
        fn mixtures_come_out_as_asked_for(mixture in mixtures()) {
            // Long enough that a pass more or less does not matter.
            let count = mixture.most_lines() * 250;
            let mut histogram = Histogram::new();
            Exact::new().access_all(&accesses(&mixture, count), &mut histogram);
            for share in mixture.shares() {
                let bin = Histogram::range_of(Histogram::bin_of(share.lines));
                let found = histogram.between(bin.0, bin.1) / histogram.accesses();
                let wanted: f64 = mixture
                    .shares()
                    .iter()
                    .filter(|other| Histogram::bin_of(other.lines) == Histogram::bin_of(share.lines))
                    .map(|other| other.share)
                    .sum();
                prop_assert!((found - wanted).abs() < 0.01, "{share:?}: {found} of {wanted}");
            }
        }
    }

    proptest! {
        #[test]
        fn at_full_speed_mixtures_come_out_over_a_hundred_turns(mixture in mixtures()) {
            let mut had: BTreeMap<u64, u64> = BTreeMap::new();
            let mut all = 0;
            for pass in Schedule::with_chunks(&mixture, CHUNK) {
                prop_assert!(pass.to > SHORT || pass.from > 0 || pass.accesses() > CHUNK - pass.to);
                *had.entry(pass.to).or_default() += pass.accesses();
                all += pass.accesses();
                if all > 100 * CHUNK.max(REPEATED * SHORT) {
                    break;
                }
            }
            for share in mixture.shares() {
                let found = had.get(&share.lines).map_or(0.0, |&had| had as f64 / all as f64);
                prop_assert!((found - share.share).abs() < 0.02, "{share:?}: {found}");
            }
        }
    }

    #[test]
    fn one_distance_is_walked_in_chunks() {
        let passes: Vec<Pass> = Schedule::with_chunks(&Mixture::single(40_000), 1 << 14).take(4).collect();
        let ends: Vec<(u64, u64)> = passes.iter().map(|pass| (pass.from, pass.to)).collect();
        assert_eq!(ends, [(0, 16_384), (16_384, 32_768), (32_768, 40_000), (0, 16_384)]);
        assert_eq!(Schedule::with_chunks(&Mixture::single(10), 1 << 14).next().unwrap().repeat, 1_638);
    }
}
