//! Predictors: what is known in, a slowdown with its error for every pair out. One file each; each says what it
//! uses, so that nobody takes knowledge for skill.

mod additive;
mod cache;
mod class;
mod combined;
mod curves;
mod gauss;
mod lowrank;
mod process;
mod simple;
mod twins;

pub use cache::{Sharing, shared};
pub use class::ClassModel;
pub use twins::{ALIKE, APART};

use crate::matrix::Matrix;
use crate::profile::{Machine, Profile};

/// All that a predictor may look at.
#[derive(Clone, Debug)]
pub struct Knowledge {
    /// What was measured on this machine.
    pub matrix: Matrix,
    /// How far off that may be, as relative errors, where it is not as usual.
    pub errors: Matrix,
    /// What is known of each program by itself, in the matrix's order.
    pub profiles: Vec<Profile>,
    /// What was measured elsewhere, of these programs and others.
    pub elsewhere: Vec<Matrix>,
    /// What programs share.
    pub machine: Machine,
}

impl Knowledge {
    /// A matrix and nothing else.
    pub fn of(matrix: Matrix) -> Knowledge {
        let profiles = vec![Profile::default(); matrix.len()];
        let errors = Matrix::unknown(matrix.names().to_vec());
        Knowledge { matrix, errors, profiles, elsewhere: Vec::new(), machine: Machine::default() }
    }
}

/// A predicted slowdown and its relative standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Time beside another over time alone.
    pub value: f64,
    /// Standard error, as a part of the value.
    pub error: f64,
}

/// Relative error of a measured slowdown, as long as nobody says otherwise.
const MEASURED: f64 = 0.02;

/// What was measured of a pair.
pub fn measured(knowledge: &Knowledge, program: usize, beside: usize) -> Option<Estimate> {
    let error = knowledge.errors.get(program, beside).unwrap_or(MEASURED);
    knowledge.matrix.get(program, beside).map(|value| Estimate { value, error })
}

/// An estimate for every pair that a predictor has one for.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    size: usize,
    cells: Vec<Option<Estimate>>,
}

impl Grid {
    /// A grid for so many programs; `cell` is asked once for each (program, beside).
    pub fn new(size: usize, cell: impl FnMut((usize, usize)) -> Option<Estimate>) -> Grid {
        let cells = (0..size).flat_map(|row| (0..size).map(move |column| (row, column))).map(cell).collect();
        Grid { size, cells }
    }

    /// The number of programs.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether there are no programs.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The estimate for `program` beside `beside`, if there is one.
    pub fn get(&self, program: usize, beside: usize) -> Option<Estimate> {
        self.cells[program * self.size + beside]
    }

    /// These programs of it, in this order; one may come several times.
    pub fn of(&self, programs: &[usize]) -> Grid {
        Grid::new(programs.len(), |(a, b)| self.get(programs[a], programs[b]))
    }
}

/// Tells slowdowns from what is known.
pub trait Predictor: Sync {
    /// The name by which it is chosen.
    fn name(&self) -> &'static str;

    /// What it uses and how, in a line.
    fn about(&self) -> &'static str;

    /// All pairs, also those that are known: of them, what it would say.
    fn predict(&self, knowledge: &Knowledge) -> Grid;
}

/// All of them, the simple ones first.
pub fn predictors() -> [&'static dyn Predictor; 11] {
    [
        &simple::NONE,
        &simple::Median,
        &twins::Twins,
        &class::Classes,
        &curves::Curves,
        &cache::Cache,
        &additive::Additive,
        &lowrank::LowRank,
        &process::PROCESS,
        &process::ELSEWHERE,
        &combined::Combined,
    ]
}

/// The predictor of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Predictor> {
    predictors().into_iter().find(|predictor| predictor.name() == name)
}

/// The root of the mean square; 0 of nothing.
pub(crate) fn rms(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut count, mut sum) = (0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value * value;
    }
    if count == 0.0 { 0.0 } else { f64::sqrt(sum / count) }
}

/// The middle one; `None` of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[count / 2]),
        count => Some((values[count / 2 - 1] + values[count / 2]) / 2.0),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use workload::Random;

    pub(crate) fn unit(random: &mut Random) -> f64 {
        random.below(1 << 30) as f64 / f64::from(1 << 30)
    }

    /// Slowdowns that come of a sensitivity, a pressure and an interaction, in part unknown.
    pub(crate) fn made_up(programs: usize, known_percent: u64, seed: u64) -> (Matrix, Matrix) {
        let mut random = Random::new(seed);
        let mut facts = || (0..programs).map(|_| unit(&mut random)).collect::<Vec<f64>>();
        let (sensitive, presses) = (facts(), facts());
        let names: Vec<String> = (0..programs).map(|at| format!("p{}", letters(at))).collect();
        let (mut whole, mut part) = (Matrix::unknown(names.clone()), Matrix::unknown(names));
        for (a, sensitive) in sensitive.iter().enumerate() {
            for (b, presses) in presses.iter().enumerate() {
                let slowdown = 1.05 + 1.5 * sensitive * presses + 0.2 * presses;
                whole.set(a, b, Some(slowdown));
                if random.chance(known_percent) {
                    part.set(a, b, Some(slowdown));
                }
            }
        }
        (whole, part)
    }

    fn letters(number: usize) -> String {
        [(number / 26) as u8 + b'a', (number % 26) as u8 + b'a'].map(char::from).iter().collect()
    }

    #[test]
    fn every_predictor_has_its_own_name_and_states_its_inputs() {
        let mut names: Vec<&str> = predictors().iter().map(|predictor| predictor.name()).collect();
        assert!(predictors().iter().all(|predictor| predictor.about().len() > 20));
        assert!(names.iter().all(|name| by_name(name).is_some_and(|found| found.name() == *name)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), predictors().len());
    }

    #[test]
    fn predictions_are_possible_slowdowns_whatever_is_unknown() {
        for known in [0, 1, 5, 40, 100] {
            for programs in [1, 2, 3, 9] {
                let (_, part) = made_up(programs, known, known + programs as u64);
                let knowledge = Knowledge::of(part);
                for predictor in predictors() {
                    let grid = predictor.predict(&knowledge);
                    for (a, b) in (0..programs).flat_map(|a| (0..programs).map(move |b| (a, b))) {
                        if let Some(Estimate { value, error }) = grid.get(a, b) {
                            let credible =
                                value.is_finite() && value > 0.0 && error.is_finite() && error >= 0.0;
                            assert!(credible, "{} {known} {programs}: {value} ± {error}", predictor.name());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn relabelling_programs_changes_no_prediction() {
        let (_, part) = made_up(9, 60, 4);
        let order = [4, 2, 8, 0, 1, 7, 3, 6, 5];
        for predictor in predictors() {
            let before = predictor.predict(&Knowledge::of(part.clone())).of(&order);
            let after = predictor.predict(&Knowledge::of(part.of(&order)));
            for (a, b) in (0..9).flat_map(|a| (0..9).map(move |b| (a, b))) {
                match (before.get(a, b), after.get(a, b)) {
                    (None, None) => {}
                    (Some(one), Some(other)) => {
                        let close = (one.value / other.value - 1.0).abs() < 0.01;
                        assert!(close, "{}: {one:?} {other:?}", predictor.name());
                    }
                    other => panic!("{}: {other:?}", predictor.name()),
                }
            }
        }
    }
}
