//! The engines against an oracle that is slow and plainly right.

use coplace_reuse::{Exact, Histogram, Rate, Shards, sample_hash};
use proptest::prelude::*;
use workload::Random;

/// The definition: a stack of lines, searched from the top.
fn oracle(lines: &[u64]) -> Vec<Option<u64>> {
    let mut stack: Vec<u64> = Vec::new();
    lines
        .iter()
        .map(|&line| {
            let at = stack.iter().rposition(|&other| other == line);
            let depth = at.map(|at| (stack.len() - at) as u64);
            if let Some(at) = at {
                stack.remove(at);
            }
            stack.push(line);
            depth
        })
        .collect()
}

fn exact(lines: &[u64]) -> Vec<Option<u64>> {
    let mut engine = Exact::new();
    lines.iter().map(|&line| engine.access(line)).collect()
}

fn histogram(depths: &[Option<u64>]) -> Histogram {
    let mut histogram = Histogram::new();
    depths.iter().for_each(|&depth| histogram.record(depth, 1.0));
    histogram
}

/// Traces with everything in them that programs do: hot lines, walks, strides, far jumps.
fn traces() -> impl Strategy<Value = Vec<u64>> {
    let piece = prop_oneof![
        proptest::collection::vec(0u64..12, 1..200),
        (0u64..1 << 40, 1usize..300).prop_map(|(from, count)| (from..from + count as u64).collect()),
        (0u64..2000, 1u64..5000, 1usize..200)
            .prop_map(|(from, stride, count)| (0..count as u64).map(|i| from + i * stride).collect()),
        proptest::collection::vec(0u64..400, 1..400),
        proptest::collection::vec(0u64..(1 << 43), 1..20),
    ];
    proptest::collection::vec((piece, 1usize..4), 1..8)
        .prop_map(|pieces| pieces.into_iter().flat_map(|(piece, times)| piece.repeat(times)).collect())
}

proptest! {
    #[test]
    fn the_exact_engine_finds_the_depth_of_every_access(lines in traces()) {
        prop_assert_eq!(exact(&lines), oracle(&lines));
    }

    #[test]
    fn a_batch_gives_the_histogram_of_its_accesses_one_by_one(lines in traces()) {
        let mut batch = Histogram::new();
        let mut engine = Exact::new();
        let (one, other) = lines.split_at(lines.len() / 3);
        engine.access_all(one, &mut batch);
        engine.access_all(other, &mut batch);
        prop_assert_eq!(batch, histogram(&exact(&lines)));
        let mut distinct = lines.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(engine.footprint(), distinct.len() as u64);
    }

    #[test]
    fn a_sample_of_everything_is_exact(lines in traces()) {
        for rate in [Rate::Fixed(1.0), Rate::Size(u32::MAX)] {
            let mut shards = Shards::new(rate);
            shards.access_all(&lines);
            let estimate = shards.estimate();
            let exact = histogram(&exact(&lines));
            for size in [0, 1, 3, 10, 100, 300, 5000] {
                prop_assert!((estimate.histogram.misses(size) - exact.misses(size)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn a_sample_holds_its_lines_depths_scaled_by_its_rate(lines in traces()) {
        let rate = 0.3;
        let mut shards = Shards::new(Rate::Fixed(rate));
        shards.access_all(&lines);
        let threshold = (rate * 2f64.powi(64)) as u64;
        let sampled: Vec<u64> = lines.iter().copied().filter(|&line| sample_hash(line) < threshold).collect();
        let estimate = shards.estimate();
        let weighted: f64 = oracle(&sampled).iter().filter(|depth| depth.is_some_and(|depth| depth > 1)).count() as f64
            / rate;
        let found = estimate.histogram.between(2, u64::MAX);
        prop_assert!((found - weighted).abs() < 1e-3 * (1.0 + weighted), "{found} against {weighted}");
        prop_assert!((estimate.histogram.accesses() - lines.len() as f64).abs() < 1e-6);
    }

    #[test]
    fn a_sample_of_fixed_size_never_has_more_lines(lines in traces(), most in 1u32..50) {
        let mut shards = Shards::new(Rate::Size(most));
        shards.access_all(&lines);
        let rate = shards.rate();
        let mut kept: Vec<u64> =
            lines.iter().copied().filter(|&line| (sample_hash(line) as f64) < rate * 2f64.powi(64)).collect();
        kept.sort_unstable();
        kept.dedup();
        prop_assert!(kept.len() <= most as usize, "{} lines at rate {rate}", kept.len());
    }
}

#[test]
fn depths_stay_right_while_slots_move_and_multiply() {
    // Round and round more lines than the first slots hold, with a short loop in between.
    let count = 150_000u64;
    let mut engine = Exact::new();
    for round in 0..4 {
        for line in 0..count {
            let depth = engine.access(line * 3);
            assert_eq!(depth, if round == 0 { None } else { Some(count) }, "line {line} of round {round}");
        }
    }
    let small: Vec<u64> = (0..20).map(|line| (count - 1 - line) * 3).collect();
    small.iter().for_each(|&line| {
        engine.access(line);
    });
    for _ in 0..20_000 {
        small.iter().for_each(|&line| assert_eq!(engine.access(line), Some(20)));
    }
}

/// A program's mixture: hot lines, a loop, a large walk, random jumps.
fn mixture(accesses: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::for_purpose(seed, "mixture");
    let (mut walk, mut round) = (0u64, 0u64);
    (0..accesses)
        .map(|_| match random.below(10) {
            0..4 => random.below(64),
            4..6 => {
                round = (round + 1) % 6_000;
                10_000 + round
            }
            6..8 => {
                walk = (walk + 1) % 100_000;
                1_000_000 + walk
            }
            _ => 10_000_000 + random.below(40_000),
        })
        .collect()
}

#[test]
fn a_sample_of_a_tenth_is_near_the_curve_within_its_error() {
    let lines = mixture(2_000_000, 3);
    let mut exact = Histogram::new();
    Exact::new().access_all(&lines, &mut exact);
    for rate in [Rate::Fixed(0.1), Rate::Size(12_000)] {
        let mut shards = Shards::new(rate);
        shards.access_all(&lines);
        let estimate = shards.estimate();
        let difference = estimate.histogram.mean_difference(&exact, 256, 1 << 18);
        let promised = estimate.mean_error(256, 1 << 18);
        assert!(difference < 0.01, "{rate:?}: {difference}");
        assert!(promised < 0.02 && difference < 4.0 * promised, "{rate:?}: {difference} against {promised}");
    }
}

#[test]
fn strides_are_sampled_at_their_rate() {
    for stride in [1u64, 2, 7, 16, 64, 512, 610, 4096, 1 << 20] {
        let threshold = (0.01 * 2f64.powi(64)) as u64;
        let sampled = (0..200_000).filter(|i| sample_hash(123_456_789 + i * stride) < threshold).count();
        assert!((1_600..2_400).contains(&sampled), "stride {stride}: {sampled} of 2000");
    }
}

#[test]
fn a_triad_has_its_arrays_as_its_depth() {
    // a[i] = b[i] + s * c[i], eight elements a line: of each line's eight accesses one goes to the
    // bottom of the stack, which is as deep as the three arrays are large, and seven to its top.
    let array = 1_000u64;
    let mut lines = Vec::new();
    for _ in 0..10 {
        for element in 0..array * 8 {
            lines.extend([1, 2, 0].map(|which| which * array + element / 8));
        }
    }
    let depths = exact(&lines);
    let repeated = &depths[lines.len() / 10..];
    let deep = repeated.iter().filter(|depth| **depth == Some(3 * array)).count();
    let near = repeated.iter().filter(|depth| **depth == Some(3)).count();
    assert_eq!((deep, near), (repeated.len() / 8, repeated.len() * 7 / 8));
}
