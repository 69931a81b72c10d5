//! Learning while programs run: what a program lost beside another, seen again and again, slowly forgotten.
//!
//! An observation is the rate of a program's regions alone over that together. Every pair keeps all of its
//! observations; the newest counts most, one that is `half_life_s` older half as much. Nothing is thrown
//! away before it counts less than a hundredth.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;

/// Relative error of one observation of region rates.
const ONE: f64 = 0.1;
/// What counts less is dropped.
const LEAST_WEIGHT: f64 = 0.01;

/// One program was seen beside another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Seconds on any clock that all observations share.
    pub at_s: f64,
    /// Regions a second alone over those together.
    pub slowdown: f64,
}

/// A line of what was seen of live programs: how many parallel regions a second a program entered alone, and beside
/// another with as many threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedPair {
    /// The program whose rate it is.
    pub program: String,
    /// The one that ran beside it.
    pub beside: String,
    /// Seconds on any clock that all lines share.
    pub at_s: f64,
    /// Parallel regions a second while it was alone.
    pub alone_per_s: f64,
    /// The same beside that one.
    pub together_per_s: f64,
}

/// What was seen, by program and neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notebook {
    /// Seconds after which an observation counts half.
    pub half_life_s: f64,
    #[serde(rename = "seen")]
    pairs: BTreeMap<String, BTreeMap<String, Vec<Observation>>>,
}

/// A week: programs change with their data and their builds, not by the hour.
impl Default for Notebook {
    fn default() -> Notebook {
        Notebook { half_life_s: 7.0 * 86_400.0, pairs: BTreeMap::new() }
    }
}

impl Notebook {
    /// Notes rates of regions, alone and together. Rates that are none are not taken: false.
    pub fn note(
        &mut self,
        program: &str,
        beside: &str,
        at_s: f64,
        alone_per_s: f64,
        together_per_s: f64,
    ) -> bool {
        let slowdown = alone_per_s / together_per_s;
        if !(slowdown.is_finite() && slowdown > 0.0 && at_s.is_finite()) {
            return false;
        }
        let pairs = self.pairs.entry(program.to_owned()).or_default();
        pairs.entry(beside.to_owned()).or_default().push(Observation { at_s, slowdown });
        true
    }

    /// Out of lines of JSON, one [`ObservedPair`] each, and the time of the newest; else which line is wrong, and why.
    pub fn read(text: &str) -> Result<(Notebook, f64), (usize, String)> {
        let (mut notebook, mut now_s) = (Notebook::default(), f64::NEG_INFINITY);
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let observed: ObservedPair =
                serde_json::from_str(line).map_err(|error| (at + 1, error.to_string()))?;
            if !notebook.note(
                &observed.program,
                &observed.beside,
                observed.at_s,
                observed.alone_per_s,
                observed.together_per_s,
            ) {
                return Err((at + 1, "rates must be above 0, and times finite".to_owned()));
            }
            now_s = now_s.max(observed.at_s);
        }
        Ok((notebook, now_s))
    }

    /// The observations of a pair, oldest first as they were noted.
    pub fn of(&self, program: &str, beside: &str) -> &[Observation] {
        self.pairs.get(program).and_then(|pairs| pairs.get(beside)).map_or(&[], Vec::as_slice)
    }

    fn weight(&self, observation: &Observation, now_s: f64) -> f64 {
        libm::exp2(-(now_s - observation.at_s).max(0.0) / self.half_life_s.max(1.0))
    }

    /// Slowdown of a pair and its relative error.
    pub fn slowdown(&self, program: &str, beside: &str, now_s: f64) -> Option<(f64, f64)> {
        let observed = self.of(program, beside);
        let weights: Vec<f64> = observed.iter().map(|observation| self.weight(observation, now_s)).collect();
        let whole: f64 = weights.iter().sum();
        if whole < LEAST_WEIGHT {
            return None;
        }
        let logs = || observed.iter().zip(&weights).map(|(one, weight)| (libm::log(one.slowdown), weight));
        let mean = logs().map(|(log, weight)| weight * log).sum::<f64>() / whole;
        let spread = logs().map(|(log, weight)| weight * (log - mean) * (log - mean)).sum::<f64>() / whole;
        // As if it had been seen once before, one observation's error off.
        let error = f64::sqrt((whole * spread + ONE * ONE) / (whole + 1.0) / whole);
        Some((libm::exp(mean), error))
    }

    /// Drops what has been forgotten.
    pub fn forget(&mut self, now_s: f64) {
        let half_life_s = self.half_life_s.max(1.0);
        let counts =
            |one: &Observation| libm::exp2(-(now_s - one.at_s).max(0.0) / half_life_s) >= LEAST_WEIGHT;
        for pairs in self.pairs.values_mut() {
            pairs.values_mut().for_each(|observations| observations.retain(counts));
            pairs.retain(|_, observations| !observations.is_empty());
        }
        self.pairs.retain(|_, pairs| !pairs.is_empty());
    }

    /// The matrix of all programs that were seen.
    pub fn matrix(&self, now_s: f64) -> Matrix {
        let neighbours = self.pairs.values().flat_map(BTreeMap::keys);
        let names: std::collections::BTreeSet<&String> = self.pairs.keys().chain(neighbours).collect();
        let mut matrix = Matrix::unknown(names.into_iter().cloned().collect());
        for a in 0..matrix.len() {
            for b in 0..matrix.len() {
                let known = self.slowdown(matrix.name(a), matrix.name(b), now_s);
                matrix.set(a, b, known.map(|(slowdown, _)| slowdown));
            }
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_observations_are_surer_and_new_ones_count_more() {
        let mut notebook = Notebook { half_life_s: 100.0, ..Notebook::default() };
        assert!(notebook.note("a", "b", 0.0, 10.0, 5.0));
        let (once, unsure) = notebook.slowdown("a", "b", 0.0).unwrap();
        (1..20).for_each(|_| assert!(notebook.note("a", "b", 0.0, 10.0, 5.0)));
        let (often, sure) = notebook.slowdown("a", "b", 0.0).unwrap();
        assert!((once - 2.0).abs() < 1e-9 && (often - 2.0).abs() < 1e-9 && sure < unsure / 2.0);
        (0..20).for_each(|_| assert!(notebook.note("a", "b", 1000.0, 10.0, 10.0)));
        let (now, _) = notebook.slowdown("a", "b", 1000.0).unwrap();
        assert!((0.99..1.02).contains(&now), "{now}");
    }

    #[test]
    fn data_are_kept_until_they_do_not_count() {
        let mut notebook = Notebook { half_life_s: 100.0, ..Notebook::default() };
        notebook.note("a", "b", 0.0, 10.0, 5.0);
        notebook.forget(600.0);
        assert_eq!(notebook.of("a", "b").len(), 1);
        assert_eq!(notebook.matrix(600.0).get(0, 1).map(|value| value.round()), Some(2.0));
        notebook.forget(700.0);
        assert!(notebook.of("a", "b").is_empty() && notebook.matrix(700.0).is_empty());
    }

    #[test]
    fn lines_are_read_and_a_wrong_one_is_reported_by_number() {
        let line = |rate: f64| {
            let observed = ObservedPair {
                program: "a".into(),
                beside: "b".into(),
                at_s: 3.0,
                alone_per_s: 10.0,
                together_per_s: rate,
            };
            serde_json::to_string(&observed).unwrap()
        };
        let (notebook, now_s) = Notebook::read(&format!("{}\n\n{}\n", line(5.0), line(5.0))).unwrap();
        assert_eq!((notebook.of("a", "b").len(), now_s), (2, 3.0));
        assert_eq!(Notebook::read(&format!("{}\n{}\n", line(5.0), line(0.0))).unwrap_err().0, 2);
        assert_eq!(Notebook::read("{}").unwrap_err().0, 1);
    }

    #[test]
    fn rates_that_are_none_are_refused() {
        let mut notebook = Notebook::default();
        for (alone, together) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (-1.0, 1.0)] {
            assert!(!notebook.note("a", "b", 0.0, alone, together));
        }
        assert_eq!(notebook, Notebook::default());
    }

    #[test]
    fn a_notebook_survives_being_written() {
        let mut notebook = Notebook::default();
        notebook.note("a", "b", 1.5, 10.0, 8.0);
        let text = serde_json::to_string(&notebook).unwrap();
        assert_eq!(serde_json::from_str::<Notebook>(&text).unwrap(), notebook);
    }
}
