//! Sensitivity plus pressure: ln s(a, b) = m + sensitivity(a) + pressure(b).
//!
//! Each program has two numbers: how much it suffers and how much it makes others suffer (Tang et al.,
//! Contentiousness vs. Sensitivity, EXADAPT 2011), here in logarithms and fitted by least squares to
//! whatever pairs are known. A program of which nothing is known has none, that is the mean.

use super::{Estimate, Grid, Knowledge, Predictor, rms};

/// How many pairs with the mean every program is taken to have been seen in.
const SHRINK: f64 = 0.5;
const ROUNDS: usize = 60;
/// Error with fewer pairs than parameters: as large as what was to be explained, at least this.
const LEAST_ERROR: f64 = 0.01;

pub(super) struct Additive;

/// The two numbers of every program.
#[derive(Clone, Debug)]
pub(super) struct Effects {
    pub mean: f64,
    pub sensitivity: Vec<f64>,
    pub pressure: Vec<f64>,
    /// Pairs in which a program was seen suffering and pressing.
    pub counts: Vec<(f64, f64)>,
    /// Standard deviation of what is left over, with regard to the number of parameters.
    pub left: f64,
}

impl Effects {
    /// Of values on (row, column); `None` of none.
    pub fn fit(size: usize, values: &[(usize, usize, f64)]) -> Option<Effects> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().map(|(_, _, value)| value).sum::<f64>() / count;
        let (mut sensitivity, mut pressure) = (vec![0.0; size], vec![0.0; size]);
        let mut counts = vec![(0.0, 0.0); size];
        for &(a, b, _) in values {
            counts[a].0 += 1.0;
            counts[b].1 += 1.0;
        }
        for _ in 0..ROUNDS {
            let mut sums = vec![0.0; size];
            for &(a, b, value) in values {
                sums[a] += value - mean - pressure[b];
            }
            for a in 0..size {
                sensitivity[a] = sums[a] / (counts[a].0 + SHRINK);
            }
            sums.fill(0.0);
            for &(a, b, value) in values {
                sums[b] += value - mean - sensitivity[a];
            }
            for b in 0..size {
                pressure[b] = sums[b] / (counts[b].1 + SHRINK);
            }
        }
        let residual = |&(a, b, value): &(usize, usize, f64)| value - mean - sensitivity[a] - pressure[b];
        let parameters = counts.iter().map(|count| count.0.min(1.0) + count.1.min(1.0)).sum::<f64>();
        let spread = rms(values.iter().map(|(_, _, value)| value - mean));
        let left = if count > parameters + 1.0 {
            rms(values.iter().map(residual)) * f64::sqrt(count / (count - parameters))
        } else {
            spread
        };
        Some(Effects { mean, sensitivity, pressure, counts, left: left.max(LEAST_ERROR) })
    }

    pub fn at(&self, a: usize, b: usize) -> f64 {
        self.mean + self.sensitivity[a] + self.pressure[b]
    }

    /// Standard error: what is left over, and more for programs that were hardly seen.
    pub fn error(&self, a: usize, b: usize) -> f64 {
        let unsure = 1.0 / (self.counts[a].0 + SHRINK) + 1.0 / (self.counts[b].1 + SHRINK);
        self.left * f64::sqrt(1.0 + unsure)
    }
}

/// The logarithms of all known slowdowns.
pub(super) fn logarithms(knowledge: &Knowledge) -> Vec<(usize, usize, f64)> {
    knowledge.matrix.known().map(|(a, b, slowdown)| (a, b, libm::log(slowdown))).collect()
}

impl Predictor for Additive {
    fn name(&self) -> &'static str {
        "additive"
    }

    fn about(&self) -> &'static str {
        "known pairs: in logarithms, how much a program suffers plus how much the other presses"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let size = knowledge.matrix.len();
        let effects = Effects::fit(size, &logarithms(knowledge));
        Grid::new(size, |(a, b)| {
            let effects = effects.as_ref()?;
            Some(Estimate { value: libm::exp(effects.at(a, b)), error: effects.error(a, b) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_sums_is_found_again_from_half_of_it() {
        let value = |a: usize, b: usize| 0.3 + 0.1 * a as f64 - 0.05 * (b * b % 7) as f64;
        let all: Vec<(usize, usize, f64)> =
            (0..12).flat_map(|a| (0..12).map(move |b| (a, b, value(a, b)))).collect();
        let half: Vec<_> =
            all.iter().copied().filter(|(a, b, _)| (a * 5 + b * 3) % 2 == 0 || a == b).collect();
        let effects = Effects::fit(12, &half).unwrap();
        let worst = all.iter().map(|&(a, b, value)| (effects.at(a, b) - value).abs()).fold(0.0, f64::max);
        assert!(worst < 0.12, "{worst}");
        assert!(Effects::fit(12, &[]).is_none());
    }

    #[test]
    fn a_hardly_observed_program_is_less_sure() {
        let values: Vec<(usize, usize, f64)> =
            (0..8).flat_map(|a| (0..8).map(move |b| (a, b, (a * b) as f64 / 20.0))).collect();
        let effects = Effects::fit(9, &values).unwrap();
        assert!(effects.error(8, 0) > effects.error(7, 0));
    }
}
