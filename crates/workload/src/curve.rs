//! Speed-up curves: how much faster a program runs on several CPUs than on one.
//!
//! | curve | speed-up on n CPUs | source |
//! |---|---|---|
//! | table | measured at some sizes, straight lines between, level beyond the last | |
//! | Amdahl | 1 / (s + (1 - s) / n), s the serial share | Amdahl 1967 |
//! | Downey | average parallelism A, variance σ; see [`downey`] | Downey, A Model for Speedup of Parallel Programs, 1997 |
//! | Sevcik | T₁ / (φ T₁ / n + α + β n): imbalance φ, serial time α, overhead β a CPU | Sevcik, Application Scheduling and Processor Allocation in Multiprogrammed Parallel Processing Systems, 1994 |

/// A speed-up curve; on one CPU (and less) the speed-up is the number of CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// (CPUs, speed-up) at ascending sizes above 1; (1, 1) stands before them.
    Table(Vec<(u32, f64)>),
    /// Amdahl's law.
    Amdahl {
        /// Serial part of the sequential time, 0 to 1.
        serial: f64,
    },
    /// Downey's model.
    Downey {
        /// Average parallelism.
        average: f64,
        /// How much the parallelism varies.
        sigma: f64,
    },
    /// Times in fractions of the sequential time.
    Sevcik {
        /// Work that is divided among the CPUs, with its imbalance.
        imbalance: f64,
        /// Work that is not divided.
        serial: f64,
        /// What each CPU adds.
        overhead_per_cpu: f64,
    },
    /// A thread a CPU, and no loss.
    Linear,
}

impl Curve {
    /// Speed-up on `cpus` CPUs, which need not be a whole number: threads that share CPUs.
    pub fn speedup(&self, cpus: f64) -> f64 {
        if cpus <= 1.0 {
            return cpus.max(0.0);
        }
        match self {
            Curve::Table(points) => table(points, cpus),
            Curve::Amdahl { serial } => 1.0 / (serial + (1.0 - serial) / cpus),
            Curve::Downey { average, sigma } => downey(*average, *sigma, cpus),
            Curve::Sevcik { imbalance, serial, overhead_per_cpu } => {
                let alone = imbalance + serial + overhead_per_cpu;
                alone / (imbalance / cpus + serial + overhead_per_cpu * cpus)
            }
            Curve::Linear => cpus,
        }
    }

    /// The first size up to `most` at which the program takes longer than on fewer CPUs.
    pub fn slows_down_at(&self, most: u32) -> Option<u32> {
        /// What rounding may make of two equal speeds.
        const ROUNDING: f64 = 1e-9;
        let mut best = 1.0;
        let sizes: Box<dyn Iterator<Item = u32>> = match self {
            Curve::Table(points) => Box::new(points.iter().map(|&(cpus, _)| cpus)),
            _ => Box::new(2..=most),
        };
        for cpus in sizes {
            let speedup = self.speedup(f64::from(cpus));
            if speedup < best * (1.0 - ROUNDING) {
                return Some(cpus);
            }
            best = speedup.max(best);
        }
        None
    }
}

fn table(points: &[(u32, f64)], cpus: f64) -> f64 {
    let mut before = (1.0, 1.0);
    for &(size, speedup) in points {
        let size = f64::from(size);
        if cpus <= size {
            return before.1 + (speedup - before.1) * (cpus - before.0) / (size - before.0);
        }
        before = (size, speedup);
    }
    before.1
}

/// Downey's two families: for σ ≤ 1 the parallelism is A most of the time and varies linearly
/// otherwise; for σ ≥ 1 it is one for part of the time and Aσ + A - σ for the rest.
fn downey(average: f64, sigma: f64, n: f64) -> f64 {
    let a = average;
    if sigma <= 1.0 {
        if n <= a {
            a * n / (a + sigma / 2.0 * (n - 1.0))
        } else if n <= 2.0 * a - 1.0 {
            a * n / (sigma * (a - 0.5) + n * (1.0 - sigma / 2.0))
        } else {
            a
        }
    } else if n <= a + a * sigma - sigma {
        n * a * (sigma + 1.0) / (sigma * (n + a - 1.0) + a)
    } else {
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Curve> {
        vec![
            Curve::Table(vec![(2, 1.8), (3, 2.5), (6, 3.8), (12, 6.3), (24, 13.4)]),
            Curve::Amdahl { serial: 0.05 },
            Curve::Downey { average: 10.0, sigma: 0.5 },
            Curve::Downey { average: 10.0, sigma: 2.0 },
            Curve::Sevcik { imbalance: 1.1, serial: 0.02, overhead_per_cpu: 0.0 },
            Curve::Linear,
        ]
    }

    #[test]
    fn every_curve_is_one_on_one_cpu_and_does_not_fall() {
        for curve in all() {
            assert!((curve.speedup(1.0) - 1.0).abs() < 1e-12, "{curve:?}");
            assert_eq!(curve.slows_down_at(64), None, "{curve:?}");
            for n in 1..64 {
                assert!(curve.speedup(f64::from(n)) <= f64::from(n) + 1e-12, "{curve:?} at {n}");
            }
        }
    }

    #[test]
    fn a_table_is_met_at_its_points_and_straight_between_them() {
        let curve = &all()[0];
        assert_eq!(curve.speedup(6.0), 3.8);
        assert!((curve.speedup(4.5) - (2.5 + 3.8) / 2.0).abs() < 1e-12);
        assert_eq!(curve.speedup(100.0), 13.4);
        assert_eq!(curve.speedup(0.5), 0.5);
    }

    #[test]
    fn downey_s_pieces_meet_where_they_join() {
        for sigma in [0.3, 1.0, 1.7] {
            let a = 8.0;
            for joint in [a, 2.0 * a - 1.0, a + a * sigma - sigma] {
                let (left, right) = (downey(a, sigma, joint - 1e-9), downey(a, sigma, joint + 1e-9));
                assert!((left - right).abs() < 1e-6, "σ {sigma} at {joint}: {left} {right}");
            }
            assert!((downey(a, sigma, 1000.0) - a).abs() < 1e-12);
        }
    }

    #[test]
    fn a_curve_that_falls_is_found_at_its_first_fall() {
        let curve = Curve::Table(vec![(2, 1.2), (3, 1.3), (6, 1.1), (12, 2.2)]);
        assert_eq!(curve.slows_down_at(24), Some(6));
    }
}
