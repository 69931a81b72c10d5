//! Likeness: what is known of like pairs, by a Gaussian process over pairs.
//!
//! A pair is like another if its programs are: the same program, another size of it (by the name), or one that
//! suffers and presses as much, as far as the known pairs tell. What a program loses beside another is
//! a sum of parts, each a product of likenesses of the sufferers and of the neighbours; how much each
//! part explains, and how noisy measurements are, is what makes the known pairs likeliest (`gauss`).
//!
//! ```text
//! z(a, b)  = ln (s(a, b) - 1 + c),  c of a few values the likeliest
//! cov      = Σ size × likeness(a, a') × likeness(b, b')  + twins + noise
//! likeness = 1 | same program | size: exp(- distance of sizes / 2) | behaviour: exp(- d² / 2 w²)
//! ```
//!
//! d is the distance in sensitivity and pressure (`additive`, fitted to z), in standard deviations; w is 0.7
//! or 2. The second form, `elsewhere`, also knows what the same pairs did on other machines: its value there is
//! one more property of a pair, in which z may rise, for all and for every program in its own way.
//!
//! The error is the process's own standard deviation for a measurement, noise included. Cost: n³/3 for n known
//! cells; beyond 900, each row is told from the 900 cells that are most like it.

use super::additive::Effects;
use super::gauss::{Part, Posterior, Samples, Sizes};
use super::{Estimate, Grid, Knowledge, Predictor, rms};
use crate::linear::Square;
use crate::matrix::Matrix;
use crate::names::Name;

/// What is added to what a program loses before logarithms are taken.
const SHIFTS: [f64; 3] = [0.1, 0.35, 1.0];
/// By how much a factor e in size makes two sizes of a program less alike.
const SIZE_WIDTH: f64 = 2.0;
/// As how many pairs of its own what other sizes of a program did counts.
const FROM_KIN: f64 = 0.5;
const BEHAVIOUR_WIDTHS: [f64; 2] = [0.7, 2.0];
/// Cells that sizes of parts are found on, and that predictions are made from.
const MOST_TO_LEARN: usize = 300;
const MOST_CELLS: usize = 900;
/// More programs are left to those predictors that need less time.
const MOST_PROGRAMS: usize = 300;
const FIRST_ROUNDS: usize = 8;
const ROUNDS: usize = 25;
const DOUBT_ROUNDS: usize = 2;

pub(super) struct Process {
    elsewhere: bool,
}

pub(super) const PROCESS: Process = Process { elsewhere: false };
pub(super) const ELSEWHERE: Process = Process { elsewhere: true };

type Cell = (usize, usize);

/// Likenesses of programs, as tables.
struct Likeness {
    size: usize,
    same: Square,
    kin: Square,
    behaviour: Vec<Square>,
}

impl Likeness {
    fn of(names: &[String], effects: &Effects) -> Likeness {
        let parsed: Vec<Name> = names.iter().map(|name| Name::of(name)).collect();
        let size = names.len();
        let kin = |a: usize, b: usize| {
            parsed[a].apart(&parsed[b]).map_or(0.0, |apart| libm::exp(-apart / SIZE_WIDTH))
        };
        let kin = Square::new(size, kin);
        let suffers = behaviours(&effects.sensitivity, |a| effects.counts[a].0, &kin);
        let presses = behaviours(&effects.pressure, |a| effects.counts[a].1, &kin);
        let behaviour = |width: f64| {
            Square::new(size, |a, b| match (suffers[a], suffers[b], presses[a], presses[b]) {
                (Some(one), Some(other), Some(presses), Some(is_pressed)) => {
                    let (suffers, presses) = (one - other, presses - is_pressed);
                    libm::exp(-0.5 * (suffers * suffers + presses * presses) / (width * width))
                }
                _ => f64::from(a == b),
            })
        };
        Likeness {
            size,
            same: Square::new(size, |a, b| if a == b { 1.0 } else { 0.0 }),
            kin,
            behaviour: BEHAVIOUR_WIDTHS.map(behaviour).into(),
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let all = None;
        let (same, kin) = (Some(&self.same), Some(&self.kin));
        let (near, far) = (Some(&self.behaviour[0]), Some(&self.behaviour[1]));
        let products = [
            (same, all),
            (kin, all),
            (all, same),
            (all, kin),
            (kin, kin),
            (far, far),
            (near, near),
            (same, kin),
            (kin, same),
            (same, far),
            (far, same),
            (kin, far),
            (far, kin),
        ];
        let size = self.size;
        let at = move |table: Option<&Square>, one: usize, other: usize| {
            table.map_or(1.0, |table| table.cells[one * size + other])
        };
        let mut parts: Vec<Part<'_>> = Vec::new();
        for (rows, columns) in products {
            parts.push(Box::new(move |(a, b), (c, d)| at(rows, a, c) * at(columns, b, d)));
        }
        // Twins, and sizes of one program beside each other.
        parts.push(Box::new(|(a, b), (c, d)| if a == b && c == d { 1.0 } else { 0.0 }));
        parts.push(Box::new(move |(a, b), (c, d)| at(kin, a, b) * at(kin, c, d)));
        parts
    }
}

/// One side of programs' behaviour, in standard deviations. Who was hardly seen is taken for its other sizes, as far as
/// these were seen; `None` where there are none, either.
fn behaviours(effect: &[f64], count: impl Fn(usize) -> f64, kin: &Square) -> Vec<Option<f64>> {
    let scale = rms(effect.iter().copied()).max(1e-9);
    let one = |a: usize| {
        let (mut sum, mut weights) = (count(a) * effect[a], count(a));
        let others = (0..kin.size).filter(|&b| b != a && count(b) > 0.0);
        let (like, weight) = others.fold((0.0, 0.0), |(sum, weights), b| {
            let weight = kin.row(a)[b];
            (sum + weight * effect[b], weights + weight)
        });
        if weight > 0.0 {
            sum += FROM_KIN * like / weight;
            weights += FROM_KIN;
        }
        (weights > 0.0).then(|| sum / weights / scale)
    };
    (0..effect.len()).map(one).collect()
}

/// What pairs did on another machine: deviations of ln s from their mean, by cell.
struct Other {
    size: usize,
    values: Vec<Option<f64>>,
}

impl Other {
    /// `None` where that machine saw none of these programs. Pairs that it did not see, of programs that it saw,
    /// get what their programs did there otherwise.
    fn of(names: &[String], other: &Matrix) -> Option<Other> {
        let places: Vec<Option<usize>> = names.iter().map(|name| other.find(name)).collect();
        let known: Vec<_> = other.known().map(|(a, b, slowdown)| (a, b, libm::log(slowdown))).collect();
        let effects = Effects::fit(other.len(), &known)?;
        let value = |(a, b): Cell| {
            let (a, b) = (places[a]?, places[b]?);
            let value = other.get(a, b).map_or_else(|| effects.at(a, b), libm::log);
            Some(value - effects.mean)
        };
        let size = names.len();
        let values: Vec<Option<f64>> = (0..size * size).map(|at| value((at / size, at % size))).collect();
        values.iter().any(Option::is_some).then_some(Other { size, values })
    }

    fn at(&self, (a, b): Cell) -> Option<f64> {
        self.values[a * self.size + b]
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let width = 0.5 * rms(self.values.iter().flatten().copied()).max(1e-9);
        let product = move |one: Cell, other: Cell| match (self.at(one), self.at(other)) {
            (Some(one), Some(other)) => one * other,
            _ => 0.0,
        };
        let near = move |one: Cell, other: Cell| match (self.at(one), self.at(other)) {
            (Some(one), Some(other)) => libm::exp(-0.5 * ((one - other) / width) * ((one - other) / width)),
            _ => 0.0,
        };
        vec![
            Box::new(product),
            Box::new(near),
            Box::new(move |one, other| if one.0 == other.0 { product(one, other) } else { 0.0 }),
            Box::new(move |one, other| if one.1 == other.1 { product(one, other) } else { 0.0 }),
        ]
    }
}

/// Everything learned under one shift.
struct Learned {
    shift: f64,
    effects: Effects,
    sizes: Sizes,
    /// Likelihood of the slowdowns themselves.
    likelihood: f64,
}

impl Predictor for Process {
    fn name(&self) -> &'static str {
        if self.elsewhere { "elsewhere" } else { "likeness" }
    }

    fn about(&self) -> &'static str {
        if self.elsewhere {
            "as likeness, and what the same pairs did on other machines"
        } else {
            "known pairs of like programs: by size (from names), sensitivity and pressure; a Gaussian process"
        }
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let nothing = || Grid::new(knowledge.matrix.len(), |_| None);
        let others: Vec<Other> = if self.elsewhere {
            knowledge
                .elsewhere
                .iter()
                .filter_map(|other| Other::of(knowledge.matrix.names(), other))
                .collect()
        } else {
            Vec::new()
        };
        if knowledge.matrix.len() > MOST_PROGRAMS || self.elsewhere && others.is_empty() {
            return nothing();
        }
        // In an order that does not depend on that of the programs.
        let mut known: Vec<(usize, usize, f64)> = knowledge.matrix.known().collect();
        known.sort_by(|one, other| one.2.total_cmp(&other.2));
        let Some(learned) = learn(&knowledge.matrix, &known, &others) else { return nothing() };
        predict_cells(&knowledge.matrix, &known, &others, &learned)
    }
}

fn transformed(known: &[(usize, usize, f64)], shift: f64) -> Vec<(usize, usize, f64)> {
    known.iter().map(|&(a, b, slowdown)| (a, b, libm::log(slowdown - 1.0 + shift))).collect()
}

fn parts<'p>(likeness: &'p Likeness, others: &'p [Other]) -> Vec<Part<'p>> {
    likeness.parts().into_iter().chain(others.iter().flat_map(Other::parts)).collect()
}

/// The likeliest shift and sizes; `None` where nothing is known.
fn learn(matrix: &Matrix, known: &[(usize, usize, f64)], others: &[Other]) -> Option<Learned> {
    let least = known.first()?.2;
    let step = known.len().div_ceil(MOST_TO_LEARN).max(1);
    let some: Vec<(usize, usize, f64)> = known.iter().copied().skip(step / 2).step_by(step).collect();
    let cells: Vec<Cell> = some.iter().map(|&(a, b, _)| (a, b)).collect();
    let rounds = |shift: f64, sizes: Option<Sizes>, rounds: usize| {
        let effects = Effects::fit(matrix.len(), &transformed(known, shift))?;
        let values: Vec<f64> = transformed(&some, shift).iter().map(|cell| cell.2 - effects.mean).collect();
        let likeness = Likeness::of(matrix.names(), &effects);
        let parts = parts(&likeness, others);
        let start = sizes.unwrap_or_else(|| Sizes::start(parts.len(), &values));
        let sizes = start.improve(&parts, Samples { cells: &cells, values: &values }, rounds);
        // dz / ds, so that shifts can be compared.
        let stretch: f64 = some.iter().map(|cell| libm::log(cell.2 - 1.0 + shift)).sum();
        let likelihood = sizes.likelihood - stretch;
        Some(Learned { shift, effects, sizes, likelihood })
    };
    // A slowdown below 1 needs a larger shift.
    let shifts = SHIFTS.into_iter().map(|shift| shift.max(1.0 - least + SHIFTS[0]));
    let tried: Vec<Learned> = shifts.filter_map(|shift| rounds(shift, None, FIRST_ROUNDS)).collect();
    let best =
        tried.into_iter().reduce(|best, next| if next.likelihood > best.likelihood { next } else { best })?;
    rounds(best.shift, Some(best.sizes), ROUNDS)
}

fn predict_cells(
    matrix: &Matrix,
    known: &[(usize, usize, f64)],
    others: &[Other],
    learned: &Learned,
) -> Grid {
    let likeness = Likeness::of(matrix.names(), &learned.effects);
    let parts = parts(&likeness, others);
    let cells: Vec<Cell> = known.iter().map(|&(a, b, _)| (a, b)).collect();
    let mean = learned.effects.mean;
    let values: Vec<f64> = transformed(known, learned.shift).iter().map(|cell| cell.2 - mean).collect();
    let size = matrix.len();
    let estimate = |posterior: &Posterior<'_>, cell: Cell| {
        let (off, variance) = posterior.at(cell);
        let lost = libm::exp((mean + off).min(7.0));
        let value = (1.0 - learned.shift + lost).max(0.01);
        Estimate { value, error: variance.sqrt() * lost / value }
    };
    if cells.len() <= MOST_CELLS {
        let posterior = settle(&parts, &learned.sizes, &cells, &values);
        return Grid::new(size, |cell| posterior.as_ref().map(|posterior| estimate(posterior, cell)));
    }
    let mut rows: Vec<Vec<Option<Estimate>>> = Vec::new();
    for row in 0..size {
        let nearest = nearest(&parts, &learned.sizes, &cells, row, size);
        let cells: Vec<Cell> = nearest.iter().map(|&at| cells[at]).collect();
        let values: Vec<f64> = nearest.iter().map(|&at| values[at]).collect();
        let posterior = settle(&parts, &learned.sizes, &cells, &values);
        let predicted = |column| posterior.as_ref().map(|posterior| estimate(posterior, (row, column)));
        rows.push((0..size).map(predicted).collect());
    }
    Grid::new(size, |(a, b)| rows[a][b])
}

/// Those known cells that tell most of a row.
fn nearest(parts: &[Part<'_>], sizes: &Sizes, cells: &[Cell], row: usize, size: usize) -> Vec<usize> {
    let step = size.div_ceil(16);
    let worth = |&cell: &Cell| -> f64 {
        (0..size).step_by(step).map(|column| sizes.covariance(parts, (row, column), cell)).sum()
    };
    let mut worths: Vec<(f64, usize)> = cells.iter().map(worth).zip(0..).collect();
    worths.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    worths.into_iter().take(MOST_CELLS).map(|(_, at)| at).collect()
}

/// The posterior once values that contradict their like count less.
fn settle<'p>(
    parts: &'p [Part<'p>],
    sizes: &'p Sizes,
    cells: &'p [Cell],
    values: &[f64],
) -> Option<Posterior<'p>> {
    let mut doubts = vec![1.0; cells.len()];
    for _ in 0..DOUBT_ROUNDS {
        doubts = Posterior::of(parts, sizes, cells, values, &doubts)?.doubts();
    }
    Posterior::of(parts, sizes, cells, values, &doubts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::additive::Additive;
    use crate::predict::tests::made_up;

    fn off(grid: &Grid, whole: &Matrix, part: &Matrix) -> f64 {
        let unknown = whole.known().filter(|&(a, b, _)| part.get(a, b).is_none());
        rms(unknown.map(|(a, b, value)| grid.get(a, b).unwrap().value / value - 1.0))
    }

    #[test]
    fn likeness_finds_patterns_that_sums_miss() {
        let (whole, part) = made_up(14, 70, 5);
        let knowledge = Knowledge::of(part.clone());
        let (ours, sums) = (PROCESS.predict(&knowledge), Additive.predict(&knowledge));
        let (ours, sums) = (off(&ours, &whole, &part), off(&sums, &whole, &part));
        assert!(ours < 0.5 * sums, "{ours} against {sums}");
    }

    #[test]
    fn a_new_size_of_a_known_program_is_predicted_like_it() {
        let names = ["lm 1", "lm 2", "lm 4", "lm 8", "ep"].map(str::to_owned).to_vec();
        let mut matrix = Matrix::unknown(names);
        for a in 0..5 {
            for b in 0..5 {
                let heavy = |at: usize| if at == 4 { 0.0 } else { 1.0 + 0.1 * at as f64 };
                if a != 3 && b != 3 {
                    matrix.set(a, b, Some(1.02 + 0.5 * heavy(a) * heavy(b)));
                }
            }
        }
        let grid = PROCESS.predict(&Knowledge::of(matrix));
        let predicted = grid.get(3, 2).unwrap();
        assert!((1.55..1.9).contains(&predicted.value), "{predicted:?}");
        assert!(predicted.error > grid.get(2, 2).unwrap().error);
    }

    #[test]
    fn the_same_pairs_elsewhere_help_where_hardly_anything_is_known() {
        let (whole, part) = made_up(12, 12, 6);
        let mut there = whole.clone();
        for (a, b, slowdown) in whole.known() {
            there.set(a, b, Some(1.0 + 0.7 * (slowdown - 1.0)));
        }
        let knowledge = Knowledge { elsewhere: vec![there], ..Knowledge::of(part.clone()) };
        let (with, without) = (ELSEWHERE.predict(&knowledge), PROCESS.predict(&knowledge));
        let (with, without) = (off(&with, &whole, &part), off(&without, &whole, &part));
        assert!(with < 0.5 * without, "{with} against {without}");
    }

    #[test]
    fn without_knowledge_nothing_is_predicted() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let knowledge = Knowledge::of(Matrix::unknown(names));
        assert_eq!(PROCESS.predict(&knowledge).get(0, 1), None);
    }
}
