//! How a program's speed grows with its threads, as far as it was measured.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Speed with several threads relative to one thread, in thousandths, at the team sizes at which it
/// was measured. One thread has speed 1000 by definition and need not be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<u32, u32>", into = "BTreeMap<u32, u32>")]
pub struct Speedup(BTreeMap<u32, u32>);

impl Speedup {
    /// From (threads, speed in thousandths of one thread's).
    pub fn new(points: impl IntoIterator<Item = (u32, u32)>) -> Result<Speedup, String> {
        let mut speeds = BTreeMap::from([(1, 1000)]);
        for (threads, speed_milli) in points {
            if threads == 0 || speed_milli == 0 {
                return Err(format!("{threads}:{speed_milli} is no speed-up: both must be above 0"));
            }
            if threads == 1 && speed_milli != 1000 {
                return Err(format!("1:{speed_milli} is no speed-up: one thread has 1000 by definition"));
            }
            speeds.insert(threads, speed_milli);
        }
        Ok(Speedup(speeds))
    }

    /// From rates by team size, in whatever unit: the curve, and the rate with one thread. `None` with
    /// fewer than two sizes. Where one thread was not seen, its rate is what Amdahl's law (a part of the
    /// time that threads shorten in proportion, a part that they do not) makes of the two narrowest.
    pub fn from_rates(rates: &BTreeMap<u32, f64>) -> Option<(Speedup, f64)> {
        let mut points = rates.iter().map(|(&threads, &rate)| (threads, rate));
        let one = rate_of_one(points.next()?, points.next()?);
        let milli = |rate: f64| ((rate / one * 1000.0).round() as u32).max(1);
        let wider = rates.iter().filter(|(threads, _)| **threads > 1);
        let curve = Speedup::new(wider.map(|(&threads, &rate)| (threads, milli(rate)))).ok()?;
        Some((curve, one))
    }

    /// Speed with `threads`: on a straight line between the team sizes that were measured, and no more
    /// than with the widest of them beyond it.
    pub fn milli(&self, threads: u32) -> u64 {
        let threads = threads.max(1);
        let below = self.0.range(..=threads).next_back();
        let above = self.0.range(threads..).next();
        match (below, above) {
            (Some((&low, &slow)), Some((&high, &fast))) if high > low => {
                let (slow, fast) = (i64::from(slow), i64::from(fast));
                let rise = (fast - slow) * i64::from(threads - low) / i64::from(high - low);
                (slow + rise).unsigned_abs()
            }
            (Some((_, &speed)), _) | (None, Some((_, &speed))) => u64::from(speed),
            (None, None) => 1000,
        }
    }
}

fn rate_of_one((low, slow): (u32, f64), (high, fast): (u32, f64)) -> f64 {
    if low == 1 {
        return slow;
    }
    let (low, high) = (f64::from(low), f64::from(high));
    // 1 ÷ rate = serial + parallel ÷ threads, for both sizes.
    let parallel = ((1.0 / slow - 1.0 / fast) / (1.0 / low - 1.0 / high)).max(0.0);
    let serial = (1.0 / slow - parallel / low).max(0.0);
    1.0 / (serial + parallel.min(low / slow))
}

impl TryFrom<BTreeMap<u32, u32>> for Speedup {
    type Error = String;

    fn try_from(points: BTreeMap<u32, u32>) -> Result<Speedup, String> {
        Speedup::new(points)
    }
}

impl From<Speedup> for BTreeMap<u32, u32> {
    fn from(speedup: Speedup) -> BTreeMap<u32, u32> {
        speedup.0
    }
}

impl FromStr for Speedup {
    type Err = String;

    /// `2:1900,4:3500`.
    fn from_str(text: &str) -> Result<Speedup, String> {
        let point = |part: &str| -> Result<(u32, u32), String> {
            let wrong = || format!("'{part}' is not THREADS:SPEED in thousandths, as in 2:1900");
            let (threads, speed) = part.split_once(':').ok_or_else(wrong)?;
            Ok((threads.parse().map_err(|_| wrong())?, speed.parse().map_err(|_| wrong())?))
        };
        Speedup::new(text.split(',').map(point).collect::<Result<Vec<_>, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_make_a_curve_and_two_sizes_give_the_one_thread_rate() {
        // A tenth of the time is serial: 1 ÷ (0.1 + 0.9 ÷ n) of 50 a second.
        let rate = |threads: u32| 50.0 / (0.1 + 0.9 / f64::from(threads));
        for sizes in [[1, 2, 4], [2, 4, 8]] {
            let (curve, one) = Speedup::from_rates(&sizes.map(|n| (n, rate(n))).into()).unwrap();
            assert!((one - 50.0).abs() < 1e-9, "{one}");
            assert_eq!((curve.milli(2), curve.milli(4)), (1818, 3077));
        }
        assert_eq!(Speedup::from_rates(&BTreeMap::from([(2, 5.0)])), None);
    }

    #[test]
    fn speeds_lie_on_straight_lines_and_end_with_the_widest_team() {
        let speedup: Speedup = "2:1800,4:3000".parse().unwrap();
        let speeds: Vec<u64> = [1, 2, 3, 4, 8].map(|threads| speedup.milli(threads)).into();
        assert_eq!(speeds, [1000, 1800, 2400, 3000, 3000]);
        let falling: Speedup = "2:1500,4:500".parse().unwrap();
        assert_eq!(falling.milli(3), 1000);
    }

    #[test]
    fn an_impossible_curve_is_refused_with_its_point() {
        for (text, part) in [("2", "'2' is not"), ("2:0", "2:0"), ("0:5", "0:5"), ("1:900", "1:900")] {
            let error = text.parse::<Speedup>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_curve_is_written_as_a_map_and_read_again() {
        let speedup: Speedup = "2:1800".parse().unwrap();
        let text = serde_json::to_string(&speedup).unwrap();
        assert_eq!(text, r#"{"1":1000,"2":1800}"#);
        assert_eq!(serde_json::from_str::<Speedup>(&text).unwrap(), speedup);
        assert!(serde_json::from_str::<Speedup>(r#"{"2":0}"#).is_err());
    }
}
