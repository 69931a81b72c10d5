//! What is known of a program by itself, and of the machine that programs share.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;

/// Where a program's data flow (Haritatos et al., COSH 2016, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Stays in the core and its private caches.
    N,
    /// Lives from the shared cache.
    C,
    /// Streams through all caches.
    S,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::N => "N (keeps to its private caches)",
            Class::C => "C (lives from the last-level cache)",
            Class::S => "S (streams)",
        })
    }
}

/// All of it optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Whether it stays in its core, lives from the shared cache, or streams.
    pub class: Option<Class>,
    /// Memory traffic when alone.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// How much it presses on others, as a pressure of the probe (0 nothing, 1 all that the probe can).
    pub pressure: Option<f64>,
    /// Slowdown beside the probe at rising pressures: (pressure, slowdown).
    pub curve: Vec<(f64, f64)>,
    /// Part of its accesses to the shared cache that miss with so much of it: (bytes, part), bytes rising.
    pub misses: Vec<(f64, f64)>,
    /// Accesses to the shared cache when alone.
    pub accesses_per_s: Option<f64>,
}

/// What programs share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// What memory delivers at most.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Size of the cache that they share.
    pub cache_bytes: Option<f64>,
    /// How long a miss of the shared cache holds a program up.
    pub miss_s: f64,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { bandwidth_bytes_per_s: None, cache_bytes: None, miss_s: 60e-9 }
    }
}

/// A file of profiles: `[machine]` and a `[program.NAME]` each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profiles {
    /// What the programs share.
    pub machine: Machine,
    /// What is known of each program, by its name.
    pub program: BTreeMap<String, Profile>,
}

impl Profiles {
    /// The profiles of a matrix's programs, in its order; empty ones where there are none.
    pub fn of(&self, matrix: &Matrix) -> Vec<Profile> {
        matrix.names().iter().map(|name| self.program.get(name).cloned().unwrap_or_default()).collect()
    }

    /// What no profile can be: (program or `machine`, what is wrong).
    pub fn fault(&self) -> Option<(String, String)> {
        let machine =
            [self.machine.bandwidth_bytes_per_s, self.machine.cache_bytes, Some(self.machine.miss_s)];
        if machine.into_iter().flatten().any(|value| !positive(value)) {
            return Some(("machine".into(), "its values must be above 0".into()));
        }
        self.program.iter().find_map(|(name, profile)| Some((name.clone(), profile.fault()?)))
    }
}

impl Profile {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Profile::default()
    }

    fn fault(&self) -> Option<String> {
        let refused = |message: &str| Some(message.to_owned());
        let amounts = [self.bandwidth_bytes_per_s, self.pressure, self.accesses_per_s];
        if amounts.into_iter().flatten().any(|value| !(value.is_finite() && value >= 0.0)) {
            return refused("bandwidth, pressure and accesses must not be below 0");
        }
        let rising = |points: &[(f64, f64)]| points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !rising(&self.curve) || !rising(&self.misses) {
            return refused("the points of a curve must stand in rising order, each once");
        }
        if self.curve.iter().any(|point| !(point.0 >= 0.0 && positive(point.1))) {
            return refused("its curve needs pressures from 0 on and slowdowns above 0");
        }
        if self.misses.iter().any(|point| !(point.0 >= 0.0 && (0.0..=1.0).contains(&point.1))) {
            return refused("its misses need bytes from 0 on and parts between 0 and 1");
        }
        None
    }
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// The value at `x` of a line through points in rising order; beyond the ends it stays as it is.
pub(crate) fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.iter().position(|point| point.0 >= x);
    Some(match after {
        None => points.last()?.1,
        Some(0) => points[0].1,
        Some(at) => {
            let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
            y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_points_a_curve_is_a_line_and_beyond_them_flat() {
        let points = [(0.0, 1.0), (1.0, 2.0)];
        assert_eq!([-1.0, 0.25, 7.0].map(|x| interpolate(&points, x).unwrap()), [1.0, 1.25, 2.0]);
        assert_eq!(interpolate(&[], 1.0), None);
    }

    #[test]
    fn impossible_profiles_are_reported_by_their_program() {
        let falling = Profile { curve: vec![(1.0, 1.0), (0.5, 1.0)], ..Profile::default() };
        let below = Profile { pressure: Some(-1.0), ..Profile::default() };
        let sure = Profile { misses: vec![(1.0, 1.5)], ..Profile::default() };
        for profile in [falling, below, sure] {
            let program = BTreeMap::from([("x".to_owned(), profile)]);
            assert_eq!(Profiles { program, ..Profiles::default() }.fault().unwrap().0, "x");
        }
        assert_eq!(Profiles::default().fault(), None);
    }
}
