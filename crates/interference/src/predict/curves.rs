//! Slowdown curves: how a program suffers beside a probe of rising pressure, read off at its neighbour's
//! pressure (Mars et al., Bubble-Up, MICRO 2011; Weidendorfer and Breitbart, Detailed Characterization of
//! HPC Applications for Co-Scheduling, COSH 2016, section 5, take such curves with DistGen).
//!
//! A neighbour's pressure is the profile's; where that has none and pairs with the neighbour are known, the
//! pressure at which the curves of those programs fit these pairs best.

use super::{Estimate, Grid, Knowledge, Predictor, median, rms};
use crate::profile::interpolate;

/// Error as long as no known pair says how good curves are here; larger where the pressure was fitted.
const ERROR: f64 = 0.1;
/// Steps in which a pressure is looked for, over the range of the curves.
const STEPS: usize = 200;

pub(super) struct Curves;

/// The pressure that explains the known pairs best.
fn fitted(knowledge: &Knowledge, presser: usize) -> Option<f64> {
    let curves: Vec<(usize, f64)> = (0..knowledge.matrix.len())
        .filter(|&a| !knowledge.profiles[a].curve.is_empty())
        .filter_map(|a| Some((a, knowledge.matrix.get(a, presser)?)))
        .collect();
    let most =
        curves.iter().filter_map(|&(a, _)| Some(knowledge.profiles[a].curve.last()?.0)).fold(0.0, f64::max);
    let off = |pressure: f64| {
        rms(curves.iter().map(|&(a, slowdown)| {
            let predicted = interpolate(&knowledge.profiles[a].curve, pressure).unwrap_or(1.0);
            libm::log(predicted / slowdown)
        }))
    };
    let tries = (0..=STEPS).map(|step| most * step as f64 / STEPS as f64);
    let best =
        tries.map(|pressure| (off(pressure), pressure)).min_by(|one, other| one.0.total_cmp(&other.0))?;
    (!curves.is_empty()).then_some(best.1)
}

impl Predictor for Curves {
    fn name(&self) -> &'static str {
        "curves"
    }

    fn about(&self) -> &'static str {
        "slowdown curves of the profiles, read off at the other's pressure (profile, or fitted to known pairs)"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let size = knowledge.matrix.len();
        let pressures: Vec<Option<f64>> =
            (0..size).map(|b| knowledge.profiles[b].pressure.or_else(|| fitted(knowledge, b))).collect();
        let predicted = |a: usize, b: usize| interpolate(&knowledge.profiles[a].curve, pressures[b]?);
        let off = knowledge.matrix.known().filter_map(|(a, b, slowdown)| Some(predicted(a, b)? / slowdown));
        let off: Vec<f64> = off.map(|ratio| libm::log(ratio).abs()).collect();
        let error =
            if off.len() > 4 { median(off).map_or(ERROR, |off| (1.5 * off).max(0.01)) } else { ERROR };
        Grid::new(size, |(a, b)| predicted(a, b).map(|value| Estimate { value, error }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::profile::Profile;

    fn with_curve(steepness: f64, pressure: Option<f64>) -> Profile {
        let curve = vec![(0.0, 1.0), (0.5, 1.0 + 0.2 * steepness), (1.0, 1.0 + steepness)];
        Profile { curve, pressure, ..Profile::default() }
    }

    #[test]
    fn a_curve_is_read_off_at_the_neighbour_s_pressure() {
        let mut knowledge = Knowledge::of(Matrix::unknown(vec!["a".into(), "b".into()]));
        knowledge.profiles = vec![with_curve(1.0, Some(0.0)), with_curve(0.5, Some(0.75))];
        let grid = Curves.predict(&knowledge);
        assert!((grid.get(0, 1).unwrap().value - 1.6).abs() < 1e-9);
        assert!((grid.get(1, 0).unwrap().value - 1.0).abs() < 1e-9);
    }

    #[test]
    fn an_unknown_pressure_is_fitted_to_observations() {
        let matrix = Matrix::parse("m", ",a,b,c\na,,,1.6\nb,,,\nc,,,\n").unwrap();
        let mut knowledge = Knowledge::of(matrix);
        knowledge.profiles = vec![with_curve(1.0, None), with_curve(0.5, None), Profile::default()];
        let grid = Curves.predict(&knowledge);
        assert!((grid.get(1, 2).unwrap().value - 1.3).abs() < 0.01, "{:?}", grid.get(1, 2));
        assert_eq!(grid.get(1, 0), None);
    }
}
