//! Sharing a cache, from two miss-ratio curves.
//!
//! An LRU cache throws everything out at the same age, whoever it belongs to: each program holds what it
//! touched within that age. By the kinetic equation of Hu et al. (Kinetic Modeling of Data Eviction in Cache,
//! USENIX ATC 2016) a program whose miss ratio with c bytes is m(c) fills its part of the cache at the rate m(c) an
//! access, so that it holds c bytes at the age
//!
//! ```text
//! T(c) = ∫₀ᶜ dc' / (line × m(c') × accesses per second)
//! c₁ + c₂ = cache,   T₁(c₁) = T₂(c₂)
//! s₁ = 1 + accesses per second × (m₁(c₁) - m₁(cache)) × time of a miss
//! ```
//!
//! Who is slowed down asks less often; a few rounds settle that. `Sharing::Equal` gives each half, as a
//! partitioned cache would.

use super::{Estimate, Grid, Knowledge, Predictor, median};
use crate::profile::{Profile, interpolate};

const LINE_BYTES: f64 = 64.0;
/// Steps of the integral over the cache.
const STEPS: usize = 512;
const ROUNDS: usize = 8;
/// Below that, who holds what hardly ages any more.
const LEAST_MISSES: f64 = 1e-6;
const ERROR: f64 = 0.15;

/// How a cache is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Everything is thrown out at the same age.
    Age,
    /// Each has half.
    Equal,
}

pub(super) struct Cache;

/// Slowdowns of two programs that share a cache of so many bytes; `None` where a profile lacks its misses or
/// accesses.
pub fn shared(
    one: &Profile,
    other: &Profile,
    cache_bytes: f64,
    miss_s: f64,
    sharing: Sharing,
) -> Option<(f64, f64)> {
    let both = [one, other];
    let rates = [one.accesses_per_s?, other.accesses_per_s?];
    let misses = |program: usize, bytes: f64| interpolate(&both[program].misses, bytes);
    let alone = [misses(0, cache_bytes)?, misses(1, cache_bytes)?];
    let mut slowed = [1.0, 1.0];
    for _ in 0..ROUNDS {
        let now = [rates[0] / slowed[0], rates[1] / slowed[1]];
        let first = match sharing {
            Sharing::Equal => cache_bytes / 2.0,
            Sharing::Age => divide(&both, now, cache_bytes),
        };
        for (program, bytes) in [(0, first), (1, cache_bytes - first)] {
            let more = (misses(program, bytes)? - alone[program]).max(0.0);
            slowed[program] = 1.0 + rates[program] * more * miss_s;
        }
    }
    Some((slowed[0], slowed[1]))
}

/// The bytes of the first where both reach the same age together.
fn divide(both: &[&Profile; 2], rates: [f64; 2], cache_bytes: f64) -> f64 {
    let step = cache_bytes / STEPS as f64;
    let mut held = [0.0, 0.0];
    let mut ages = [0.0, 0.0];
    while held[0] + held[1] + 1e-9 < cache_bytes {
        // The younger one gets the next piece: it still holds all of its last so many seconds.
        let program = if ages[0] <= ages[1] { 0 } else { 1 };
        let misses = interpolate(&both[program].misses, held[program] + step / 2.0).unwrap_or(0.0);
        let per_s = rates[program] * misses.max(LEAST_MISSES) * LINE_BYTES;
        if per_s <= 0.0 {
            return if program == 0 { held[0] } else { cache_bytes - held[1] };
        }
        held[program] += step;
        ages[program] += step / per_s;
    }
    held[0].min(cache_bytes)
}

impl Predictor for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn about(&self) -> &'static str {
        "miss-ratio curves and access rates of the profiles: who holds how much of a shared LRU cache"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let machine = &knowledge.machine;
        let predicted = |a: usize, b: usize| {
            let (one, other) = (&knowledge.profiles[a], &knowledge.profiles[b]);
            Some(shared(one, other, machine.cache_bytes?, machine.miss_s, Sharing::Age)?.0)
        };
        let off = knowledge.matrix.known().filter_map(|(a, b, slowdown)| Some(predicted(a, b)? / slowdown));
        let off: Vec<f64> = off.map(|ratio| libm::log(ratio).abs()).collect();
        let error =
            if off.len() > 4 { median(off).map_or(ERROR, |off| (1.5 * off).max(0.01)) } else { ERROR };
        Grid::new(knowledge.matrix.len(), |(a, b)| predicted(a, b).map(|value| Estimate { value, error }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: f64 = 1e6;

    fn streams(rate: f64) -> Profile {
        Profile { misses: vec![(0.0, 1.0)], accesses_per_s: Some(rate), ..Profile::default() }
    }

    /// Reuses a working set of so many bytes: all hits from there on.
    fn lives_from(bytes: f64, rate: f64) -> Profile {
        let misses = vec![(0.0, 1.0), (bytes, 0.0)];
        Profile { misses, accesses_per_s: Some(rate), ..Profile::default() }
    }

    fn slowdowns(one: &Profile, other: &Profile, sharing: Sharing) -> (f64, f64) {
        shared(one, other, CACHE, 50e-9, sharing).unwrap()
    }

    #[test]
    fn a_stream_evicts_its_neighbour_and_is_not_slowed() {
        let (victim, stream) = slowdowns(&lives_from(0.9e6, 1e7), &streams(1e7), Sharing::Age);
        assert!(victim > 1.1 && stream == 1.0, "{victim} {stream}");
        let (faster, _) = slowdowns(&lives_from(0.9e6, 1e7), &streams(4e7), Sharing::Age);
        assert!(faster > victim, "{faster} {victim}");
    }

    #[test]
    fn twins_share_equally_and_small_sets_do_not_mind() {
        let big = lives_from(0.9e6, 1e7);
        let (one, other) = slowdowns(&big, &big, Sharing::Age);
        let (half, _) = slowdowns(&big, &big, Sharing::Equal);
        assert!((one - other).abs() < 0.01 && (one - half).abs() < 0.01, "{one} {other} {half}");
        let small = lives_from(0.2e6, 1e7);
        assert!(slowdowns(&small, &small, Sharing::Age).0 < 1.01);
    }

    #[test]
    fn an_equal_share_protects_from_a_stream() {
        let victim = lives_from(0.4e6, 1e7);
        let (by_age, _) = slowdowns(&victim, &streams(1e8), Sharing::Age);
        let (equal, _) = slowdowns(&victim, &streams(1e8), Sharing::Equal);
        assert!(equal == 1.0 && by_age > 1.0, "{equal} {by_age}");
    }
}
