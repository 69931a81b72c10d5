//! Gaussian processes whose covariance is a sum of given parts, of unknown size each.
//!
//! The sizes are found by maximum likelihood with the MM algorithm of Zhou, Hu, Qiao and Sobel (MM Algorithms
//! for Variance Components Models, JCGS 2019): every round multiplies each size by the root of what
//! the data say over what the model says; the likelihood never falls, and there are no step lengths. Values
//! that fit badly count less, as under Student's t.

use crate::linear::{Factor, Square, dot};

/// Degrees of freedom of the noise: 4 lets a value that is five standard errors off count a fifth.
const FREEDOM: f64 = 4.0;
/// No part is smaller than that, of the whole variance.
const LEAST: f64 = 1e-6;

/// The covariance of two cells by one part, of size 1.
pub(super) type Part<'a> = Box<dyn Fn((usize, usize), (usize, usize)) -> f64 + Sync + 'a>;

/// Cells and their values.
#[derive(Clone, Copy)]
pub(super) struct Samples<'d> {
    pub cells: &'d [(usize, usize)],
    /// Around 0.
    pub values: &'d [f64],
}

/// How large every part is, and the noise.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub parts: Vec<f64>,
    pub noise: f64,
    /// Logarithm of the likelihood.
    pub likelihood: f64,
}

impl Sizes {
    /// All alike, together as large as the values are.
    pub fn start(parts: usize, values: &[f64]) -> Sizes {
        let variance = values.iter().map(|value| value * value).sum::<f64>() / values.len().max(1) as f64;
        let each = variance.max(1e-8) / (parts + 1) as f64;
        Sizes { parts: vec![each; parts], noise: each, likelihood: f64::NEG_INFINITY }
    }

    pub fn covariance(&self, parts: &[Part<'_>], one: (usize, usize), other: (usize, usize)) -> f64 {
        let sized = self.parts.iter().zip(parts).filter(|(size, _)| **size > 0.0);
        sized.map(|(size, part)| size * part(one, other)).sum()
    }

    /// Some rounds towards the likeliest sizes.
    pub fn improve(mut self, parts: &[Part<'_>], samples: Samples<'_>, rounds: usize) -> Sizes {
        let count = samples.cells.len();
        if count < 2 {
            return self;
        }
        let squares: Vec<Square> = parts
            .iter()
            .map(|part| Square::new(count, |i, j| part(samples.cells[i], samples.cells[j])))
            .collect();
        let whole = self.parts.iter().sum::<f64>() + self.noise;
        for _ in 0..rounds {
            let mut sum = Square { size: count, cells: vec![0.0; count * count] };
            for (size, square) in self.parts.iter().zip(&squares) {
                for (cell, part) in sum.cells.iter_mut().zip(&square.cells) {
                    *cell += size * part;
                }
            }
            (0..count).for_each(|at| sum.cells[at * count + at] += self.noise);
            let Some(factor) = sum.factor() else { break };
            let weights = factor.solve(samples.values);
            self.likelihood = -0.5 * (dot(&weights, samples.values) + factor.log_determinant());
            let inverse = factor.inverse();
            for (size, square) in self.parts.iter_mut().zip(&squares) {
                let (mut explained, mut expected) = (0.0, 0.0);
                for row in 0..count {
                    let part = square.row(row);
                    explained += weights[row] * dot(part, &weights);
                    expected += dot(part, inverse.row(row));
                }
                *size = (*size * f64::sqrt(explained.max(0.0) / expected.max(1e-300))).max(whole * LEAST);
            }
            let explained = dot(&weights, &weights);
            let expected: f64 = (0..count).map(|at| inverse.row(at)[at]).sum();
            self.noise = (self.noise * f64::sqrt(explained / expected.max(1e-300))).max(whole * LEAST);
        }
        self
    }
}

/// What follows from the values, ready to be asked.
pub(super) struct Posterior<'p> {
    parts: &'p [Part<'p>],
    sizes: &'p Sizes,
    cells: &'p [(usize, usize)],
    factor: Factor,
    weights: Vec<f64>,
}

impl<'p> Posterior<'p> {
    /// `doubts`: by how much the noise of each value is larger than usual.
    pub fn of(
        parts: &'p [Part<'p>],
        sizes: &'p Sizes,
        cells: &'p [(usize, usize)],
        values: &[f64],
        doubts: &[f64],
    ) -> Option<Posterior<'p>> {
        let covariance = Square::new(cells.len(), |i, j| {
            let noise = if i == j { sizes.noise * doubts[i] } else { 0.0 };
            sizes.covariance(parts, cells[i], cells[j]) + noise
        });
        let factor = covariance.factor()?;
        let weights = factor.solve(values);
        Some(Posterior { parts, sizes, cells, factor, weights })
    }

    /// Of every value: how much its noise exceeds the usual, judged by what the others say of it.
    pub fn doubts(&self) -> Vec<f64> {
        let inverse = self.factor.inverse();
        let doubt = |(at, weight): (usize, &f64)| {
            // Left out, it is weight / inverse off, with variance 1 / inverse.
            let off = weight * weight / inverse.row(at)[at];
            ((FREEDOM + off) / (FREEDOM + 1.0)).max(1.0)
        };
        self.weights.iter().enumerate().map(doubt).collect()
    }

    /// Mean and variance of a measurement of this cell.
    pub fn at(&self, cell: (usize, usize)) -> (f64, f64) {
        let towards: Vec<f64> =
            self.cells.iter().map(|&other| self.sizes.covariance(self.parts, cell, other)).collect();
        let half = self.factor.half_solve(&towards);
        let own = self.sizes.covariance(self.parts, cell, cell) + self.sizes.noise;
        (dot(&towards, &self.weights), (own - dot(&half, &half)).max(self.sizes.noise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Part<'static>> {
        vec![Box::new(|(a, _), (b, _)| if a == b { 1.0 } else { 0.0 })]
    }

    #[test]
    fn the_sizes_of_parts_and_noise_are_found() {
        // Ten rows of twelve values: their own part has variance 1, the noise 0.01.
        let cells: Vec<(usize, usize)> = (0..10).flat_map(|a| (0..12).map(move |b| (a, b))).collect();
        let own = |a: usize| if a.is_multiple_of(2) { 1.0 } else { -1.0 };
        let values: Vec<f64> =
            cells.iter().map(|&(a, b)| own(a) + if b.is_multiple_of(2) { 0.1 } else { -0.1 }).collect();
        let samples = Samples { cells: &cells, values: &values };
        let parts = rows();
        let sizes = Sizes::start(1, &values).improve(&parts, samples, 100);
        assert!((0.5..2.0).contains(&sizes.parts[0]), "{sizes:?}");
        assert!((0.008..0.013).contains(&sizes.noise), "{sizes:?}");
        let few = Sizes::start(1, &values).improve(&parts, samples, 3);
        assert!(few.likelihood < sizes.likelihood);
    }

    #[test]
    fn a_value_that_contradicts_its_like_is_doubted() {
        let cells: Vec<(usize, usize)> = (0..9).map(|b| (0, b)).collect();
        let mut values = vec![1.0; 9];
        values[4] = -3.0;
        let parts = rows();
        let sizes = Sizes { parts: vec![1.0], noise: 0.01, likelihood: 0.0 };
        let posterior = Posterior::of(&parts, &sizes, &cells, &values, &[1.0; 9]).unwrap();
        let doubts = posterior.doubts();
        assert!(doubts[4] > 3.0 * doubts[3], "{doubts:?}");
        let again = Posterior::of(&parts, &sizes, &cells, &values, &doubts).unwrap();
        assert!(again.at((0, 20)).0 > posterior.at((0, 20)).0);
    }

    #[test]
    fn without_observations_the_variance_is_the_prior_s() {
        let parts = rows();
        let sizes = Sizes { parts: vec![1.0], noise: 0.25, likelihood: 0.0 };
        let posterior = Posterior::of(&parts, &sizes, &[(0, 0)], &[1.0], &[1.0]).unwrap();
        let (mean, variance) = posterior.at((7, 7));
        assert_eq!((mean, variance), (0.0, 1.25));
        let (mean, variance) = posterior.at((0, 7));
        assert!((mean - 0.8).abs() < 1e-12 && (variance - (0.2 + 0.25)).abs() < 1e-12);
    }
}
