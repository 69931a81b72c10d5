//! Terrible twins: what may be expected of pairs as long as nothing at all is known.
//!
//! Two instances of one program want the same of the same thing at the same time (de Blanche and Lundqvist,
//! Terrible Twins, COSH 2016, section 3). Let X, what a program wants of the scarcest thing, be uniform
//! between nothing and all of it, and let those who want more than there is share it: s = max(1, X + Y). For
//! two different programs X and Y are independent, for twins they are one.
//!
//! ```text
//! different  E s = 1 + E (X + Y - 1)⁺ = 7/6     sd 0.24
//! twins      E s = 1/2 + 1/2 × 3/2    = 5/4     sd 0.32
//! ```
//!
//! Both sums have the same mean; twins lose because those who want much meet, and those who want little, who
//! would not mind them, are together as well. The numbers are as good as the assumption, hence the errors.

use super::{Estimate, Grid, Knowledge, Predictor};

/// E s and its relative standard deviation for two different programs.
pub const APART: Estimate = Estimate { value: 7.0 / 6.0, error: 0.202 };
/// The same for two instances of one program.
pub const ALIKE: Estimate = Estimate { value: 1.25, error: 0.258 };

pub(super) struct Twins;

impl Predictor for Twins {
    fn name(&self) -> &'static str {
        "twins"
    }

    fn about(&self) -> &'static str {
        "nothing but names: two of one program 1.25, others 1.17"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let names = knowledge.matrix.names();
        Grid::new(names.len(), |(a, b)| Some(if names[a] == names[b] { ALIKE } else { APART }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expectations_are_those_of_uniform_demands() {
        // The midpoint rule on a fine grid.
        let steps = 1000;
        let at = |i: i32| (f64::from(i) + 0.5) / f64::from(steps);
        let moments = |values: Vec<f64>| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            (mean, (square - mean * mean).sqrt() / mean)
        };
        let apart = (0..steps).flat_map(|i| (0..steps).map(move |j| f64::max(1.0, at(i) + at(j)))).collect();
        let alike = (0..steps).map(|i| f64::max(1.0, 2.0 * at(i))).collect();
        for (known, (mean, error)) in [(APART, moments(apart)), (ALIKE, moments(alike))] {
            assert!(
                (known.value - mean).abs() < 1e-3 && (known.error - error).abs() < 1e-3,
                "{mean} {error}"
            );
        }
    }
}
