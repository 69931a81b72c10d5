//! A median and how sure it is, whatever the samples' distribution.

use serde::{Deserialize, Serialize};

/// How sure an interval should be.
const WANTED: f64 = 0.95;

/// A median with an interval of order statistics: how many of n samples lie below the median is binomial
/// with p = 1/2, so that ranks alone say how often an interval of two samples holds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Of an even number of samples the mean of the two in the middle.
    pub median: f64,
    /// The interval's lower end, which is one of the samples.
    pub low: f64,
    /// The upper end, with as many samples above it as lie below the lower end.
    pub high: f64,
    /// Of the interval: 0.95 and a little more, or with fewer than six samples what the whole range gives.
    pub confidence: f64,
    /// How many there were, at least 1.
    pub samples: usize,
}

impl Spread {
    /// `None` of no samples.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (low, confidence) = ranks(count)?;
        Some(Spread {
            median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            low: sorted[low],
            high: sorted[count - 1 - low],
            confidence,
            samples: count,
        })
    }
}

/// The rank (from 0) of the narrowest interval's lower end, and its confidence.
fn ranks(count: usize) -> Option<(usize, f64)> {
    let mut best = None;
    // One of the two tails, at the rank looked at: the sum of the binomial coefficients over 2^count.
    let (mut coefficient, mut tail) = (0.5f64.powi(count as i32), 0.0);
    for low in 0..count.div_ceil(2) {
        tail += coefficient;
        coefficient *= (count - low) as f64 / (low + 1) as f64;
        let confidence = (1.0 - 2.0 * tail).max(0.0);
        if best.is_some() && confidence < WANTED {
            break;
        }
        best = Some((low, confidence));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_ranks_of_the_binomial_distribution() {
        // Of 15: the fourth and the twelfth, 96.5%. Of fewer than six the whole range.
        let of = |count: u32| Spread::of((0..count).map(f64::from)).unwrap();
        let fifteen = of(15);
        assert_eq!((fifteen.low, fifteen.median, fifteen.high), (3.0, 7.0, 11.0));
        assert!((fifteen.confidence - 0.9648).abs() < 1e-4, "{fifteen:?}");
        assert_eq!((of(6).low, of(6).high, of(6).median), (0.0, 5.0, 2.5));
        assert!(of(6).confidence > 0.95 && of(3).confidence == 0.75 && of(1).confidence == 0.0);
        assert_eq!(Spread::of([]), None);
    }
}
