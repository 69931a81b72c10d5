//! The class model: Haritatos, Nikas, Goumas and Koziris, A Resource-Centric Application Classification
//! Approach, COSH 2016, section 2.4.
//!
//! ```text
//! S beside S   max(1, (own bandwidth + other's) / machine's)
//! C beside S   α × other's bandwidth + β
//! S beside C   c1        C beside C   c2
//! S beside N   c3        C beside N   c4        N beside any   c5
//! ```
//!
//! The paper prints the first line upside down (machine's over demanded): as a slowdown it is this way round,
//! and it is not below 1. α, β and the constants are fitted to the known pairs by least squares; those that
//! no known pair tells of are 1, and α 0.

use super::{Estimate, Grid, Knowledge, Predictor, rms};
use crate::profile::Class;

/// Error of a kind of pair that was never seen.
const UNSEEN: f64 = 0.25;

pub(super) struct Classes;

/// The fitted parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassModel {
    /// Slowdown of C for each byte/s of S beside it.
    pub alpha: f64,
    /// Slowdown of C beside an S without traffic.
    pub beta: f64,
    /// c1 to c5.
    pub constants: [f64; 5],
    /// Error by kind of pair: S S, C S, c1 to c5.
    errors: [f64; 7],
}

/// A kind of pair, in the order of `ClassModel::errors`.
fn kind(own: Class, other: Class) -> usize {
    match (own, other) {
        (Class::S, Class::S) => 0,
        (Class::C, Class::S) => 1,
        (Class::S, Class::C) => 2,
        (Class::C, Class::C) => 3,
        (Class::S, Class::N) => 4,
        (Class::C, Class::N) => 5,
        (Class::N, _) => 6,
    }
}

impl ClassModel {
    /// Fits them to the pairs that were measured between programs of known class.
    pub fn fit(knowledge: &Knowledge) -> ClassModel {
        let points = |wanted: usize| -> Vec<(f64, f64)> {
            let pairs = knowledge.matrix.known().filter_map(|(a, b, slowdown)| {
                let (own, other) = (&knowledge.profiles[a], &knowledge.profiles[b]);
                (kind(own.class?, other.class?) == wanted)
                    .then_some((other.bandwidth_bytes_per_s.unwrap_or(0.0), slowdown))
            });
            pairs.collect()
        };
        let mean = |pairs: &[(f64, f64)]| match pairs.len() {
            0 => 1.0,
            count => pairs.iter().map(|pair| pair.1).sum::<f64>() / count as f64,
        };
        let (alpha, beta) = line(&points(1));
        let constants = [2, 3, 4, 5, 6].map(|wanted| mean(&points(wanted)));
        let mut model = ClassModel { alpha, beta, constants, errors: [UNSEEN; 7] };
        for wanted in 0..7 {
            let off = knowledge.matrix.known().filter_map(|(a, b, slowdown)| {
                let own = kind(knowledge.profiles[a].class?, knowledge.profiles[b].class?);
                let predicted = model.slowdown(knowledge, a, b)?;
                (own == wanted).then(|| libm::log(predicted / slowdown))
            });
            let off: Vec<f64> = off.collect();
            if off.len() > 2 {
                model.errors[wanted] = rms(off).max(0.01);
            }
        }
        model
    }

    /// `None` where a class or a bandwidth that is needed is not known.
    fn slowdown(&self, knowledge: &Knowledge, a: usize, b: usize) -> Option<f64> {
        let (own, other) = (&knowledge.profiles[a], &knowledge.profiles[b]);
        match kind(own.class?, other.class?) {
            0 => {
                let wanted = own.bandwidth_bytes_per_s? + other.bandwidth_bytes_per_s?;
                Some((wanted / knowledge.machine.bandwidth_bytes_per_s?).max(1.0))
            }
            1 => Some((self.alpha * other.bandwidth_bytes_per_s? + self.beta).max(1.0)),
            kind => Some(self.constants[kind - 2]),
        }
    }
}

/// Least squares; flat where all x are alike.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    if points.is_empty() {
        return (0.0, 1.0);
    }
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let square: f64 = points.iter().map(|point| (point.0 - mean_x) * (point.0 - mean_x)).sum();
    let both: f64 = points.iter().map(|point| (point.0 - mean_x) * (point.1 - mean_y)).sum();
    let slope = if square > 0.0 { both / square } else { 0.0 };
    (slope, mean_y - slope * mean_x)
}

impl Predictor for Classes {
    fn name(&self) -> &'static str {
        "class"
    }

    fn about(&self) -> &'static str {
        "classes N, C, S and bandwidths of the profiles; constants fitted to known pairs"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let model = ClassModel::fit(knowledge);
        Grid::new(knowledge.matrix.len(), |(a, b)| {
            let value = model.slowdown(knowledge, a, b)?;
            let kind = kind(knowledge.profiles[a].class?, knowledge.profiles[b].class?);
            Some(Estimate { value, error: model.errors[kind] })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::profile::{Machine, Profile};

    fn knowledge(text: &str, classes: &[(Class, f64)]) -> Knowledge {
        let mut knowledge = Knowledge::of(Matrix::parse("m", text).unwrap());
        let profile = |&(class, bandwidth): &(Class, f64)| Profile {
            class: Some(class),
            bandwidth_bytes_per_s: Some(bandwidth),
            ..Profile::default()
        };
        knowledge.profiles = classes.iter().map(profile).collect();
        knowledge.machine = Machine { bandwidth_bytes_per_s: Some(10e9), ..Machine::default() };
        knowledge
    }

    #[test]
    fn streams_share_the_bandwidth_and_are_not_sped_up() {
        let predicted = |first, second| {
            let knowledge = knowledge(",a,b\na,,\nb,,\n", &[(Class::S, first), (Class::S, second)]);
            Classes.predict(&knowledge).get(0, 1).unwrap().value
        };
        assert!((predicted(9e9, 6e9) - 1.5).abs() < 1e-9);
        assert_eq!(predicted(2e9, 3e9), 1.0);
    }

    #[test]
    fn the_linear_law_is_found_again() {
        let classes = [(Class::C, 0.0), (Class::S, 2e9), (Class::S, 4e9), (Class::S, 8e9)];
        let matrix = ",c,x,y,z\nc,1.1,1.2,1.4,\nx,1.01,,,\ny,1.03,,,\nz,,,,\n";
        let knowledge = knowledge(matrix, &classes);
        let model = ClassModel::fit(&knowledge);
        assert!((model.alpha - 1e-10).abs() < 1e-15 && (model.beta - 1.0).abs() < 1e-9, "{model:?}");
        let grid = Classes.predict(&knowledge);
        assert!((grid.get(0, 3).unwrap().value - 1.8).abs() < 1e-9);
        assert!((grid.get(3, 0).unwrap().value - 1.02).abs() < 1e-9);
        assert!((grid.get(0, 0).unwrap().value - 1.1).abs() < 1e-9);
    }

    #[test]
    fn without_classes_nothing_is_predicted() {
        let matrix = Matrix::parse("m", ",a\na,1.5\n").unwrap();
        assert_eq!(Classes.predict(&Knowledge::of(matrix)).get(0, 0), None);
    }
}
