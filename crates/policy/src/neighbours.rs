//! Who slows whom, as policies are told: a setting, so that whoever decides needs neither files nor a
//! predictor.

use interference::Grid;
use interference::predict::{ALIKE, APART, Estimate};
use serde::{Deserialize, Serialize};

/// By what those who share memory or caches are chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbours {
    /// By names alone: two runs of one program stay apart.
    Twins,
    /// By what the snapshot knows of each program (what it asks of memory and caches).
    Profile,
    /// By load instruction rates: high ones beside low ones.
    LoadRates,
    /// By predicted slowdowns.
    Predicted(Predictions),
}

/// A slowdown and its relative standard error for every pair of some programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predictions {
    /// The programs, in the order of the rows and columns.
    pub programs: Vec<String>,
    /// Row by row: slowdown of the row's program beside the column's, and its error, in thousandths.
    pub cells_milli: Vec<(u32, u32)>,
}

impl Predictions {
    /// Those of a predictor; where it says nothing, what is true of programs on average.
    pub fn of(programs: &[String], grid: &Grid) -> Predictions {
        let milli = |value: f64| (value * 1000.0).round().clamp(0.0, 1e9) as u32;
        let cell = |at: usize| {
            let (a, b) = (at / programs.len(), at % programs.len());
            let estimate = grid.get(a, b).unwrap_or_else(|| prior(a == b));
            (milli(estimate.value).max(1), milli(estimate.error))
        };
        let cells = (0..programs.len() * programs.len()).map(cell).collect();
        Predictions { programs: programs.to_vec(), cells_milli: cells }
    }

    pub(crate) fn find(&self, program: &str) -> Option<usize> {
        self.programs.iter().position(|known| known == program)
    }

    /// Of programs by their numbers.
    pub(crate) fn get(&self, program: usize, beside: usize) -> Option<Estimate> {
        let &(value, error) = self.cells_milli.get(program * self.programs.len() + beside)?;
        Some(Estimate { value: f64::from(value) / 1000.0, error: f64::from(error) / 1000.0 })
    }
}

/// What is expected of two of one program, and of two different ones, as long as nothing is known.
pub(crate) fn prior(twins: bool) -> Estimate {
    if twins { ALIKE } else { APART }
}
