//! Low rank: ln s(a, b) = m + sensitivity(a) + pressure(b) + Σ u(a) v(b), with few terms in the sum.
//!
//! What matrix completion does with ratings (Delimitrou and Kozyrakis, Paragon, ASPLOS 2013, use it for
//! interference): programs that agree on the pairs known of both are taken to agree on the others. Fitted by
//! alternating least squares; how many terms and how strongly they are held back is tried on
//! every seventh known pair.

use super::additive::{Effects, logarithms};
use super::{Estimate, Grid, Knowledge, Predictor, rms};
use crate::linear::{Square, dot};

const RANKS: [usize; 4] = [0, 1, 2, 3];
const HOLDS: [f64; 3] = [0.3, 1.0, 3.0];
const ROUNDS: usize = 40;
/// Every how many-th pair is left out to try ranks on.
const LEFT_OUT: usize = 7;

pub(super) struct LowRank;

type Cell = (usize, usize, f64);

struct Fitted {
    effects: Effects,
    rows: Vec<Vec<f64>>,
    columns: Vec<Vec<f64>>,
}

impl Fitted {
    fn at(&self, a: usize, b: usize) -> f64 {
        self.effects.at(a, b) + dot(&self.rows[a], &self.columns[b])
    }
}

/// One side's factors for the other's: ridge regression, program by program.
fn half(
    size: usize,
    rank: usize,
    hold: f64,
    cells: &[Vec<(usize, f64)>],
    other: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let mut factors = vec![vec![0.0; rank]; size];
    for (factor, cells_of_row) in
        factors.iter_mut().zip(cells).filter(|(_, cells_of_row)| !cells_of_row.is_empty())
    {
        let gram = Square::new(rank, |i, j| {
            cells_of_row.iter().map(|&(at, _)| other[at][i] * other[at][j]).sum::<f64>()
                + if i == j { hold } else { 0.0 }
        });
        let right: Vec<f64> =
            (0..rank).map(|i| cells_of_row.iter().map(|&(at, value)| other[at][i] * value).sum()).collect();
        if let Some(solved) = gram.factor() {
            *factor = solved.solve(&right);
        }
    }
    factors
}

fn fit(size: usize, values: &[Cell], rank: usize, hold: f64) -> Option<Fitted> {
    let effects = Effects::fit(size, values)?;
    let (mut by_row, mut by_column) = (vec![Vec::new(); size], vec![Vec::new(); size]);
    // In units of their spread, so that `hold` means the same on every machine.
    let scale = rms(values.iter().map(|&(a, b, value)| value - effects.at(a, b))).max(1e-9);
    for &(a, b, value) in values {
        let left = (value - effects.at(a, b)) / scale;
        by_row[a].push((b, left));
        by_column[b].push((a, left));
    }
    // A start that does not depend on the order of programs: their own sensitivity and its powers.
    let strongest = effects.pressure.iter().fold(1e-9, |most: f64, value| most.max(value.abs()));
    let start =
        |value: f64| (0..rank).map(|power| libm::pow(value / strongest, (power + 1) as f64)).collect();
    let mut columns: Vec<Vec<f64>> = effects.pressure.iter().map(|&value| start(value)).collect();
    let mut rows = Vec::new();
    for _ in 0..if rank == 0 { 1 } else { ROUNDS } {
        rows = half(size, rank, hold, &by_row, &columns);
        columns = half(size, rank, hold, &by_column, &rows);
    }
    rows.iter_mut().flatten().for_each(|factor| *factor *= scale);
    Some(Fitted { effects, rows, columns })
}

impl Predictor for LowRank {
    fn name(&self) -> &'static str {
        "lowrank"
    }

    fn about(&self) -> &'static str {
        "known pairs: as additive, plus a few products of hidden properties (matrix completion)"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let (size, values) = (knowledge.matrix.len(), logarithms(knowledge));
        // Pairs are left out by their values' order, so that names and order of programs do not matter.
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&one, &other| values[one].2.total_cmp(&values[other].2));
        let (mut kept, mut out) = (Vec::new(), Vec::new());
        for (place, &at) in order.iter().enumerate() {
            if place % LEFT_OUT == LEFT_OUT / 2 { out.push(values[at]) } else { kept.push(values[at]) }
        }
        let mut best: Option<(f64, usize, f64)> = None;
        for rank in RANKS {
            for hold in HOLDS {
                let Some(fitted) = fit(size, &kept, rank, hold) else { continue };
                let error = rms(out.iter().map(|&(a, b, value)| value - fitted.at(a, b)));
                if !out.is_empty() && best.is_none_or(|(least, ..)| error < least) {
                    best = Some((error, rank, hold));
                }
            }
        }
        let (error, rank, hold) = best.unwrap_or((0.0, 0, 1.0));
        let fitted = fit(size, &values, rank, hold);
        Grid::new(size, |(a, b)| {
            let fitted = fitted.as_ref()?;
            let sure = fitted.effects.error(a, b) / fitted.effects.left;
            let error = if error > 0.0 { error * sure } else { fitted.effects.error(a, b) };
            Some(Estimate { value: libm::exp(fitted.at(a, b)), error })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::additive::Additive;
    use crate::predict::tests::made_up;

    #[test]
    fn products_of_hidden_properties_are_found_where_sums_do_not_do() {
        let (whole, part) = made_up(20, 60, 3);
        let off =
            |grid: Grid| rms(whole.known().map(|(a, b, value)| grid.get(a, b).unwrap().value / value - 1.0));
        let (low, sums) =
            (off(LowRank.predict(&Knowledge::of(part.clone()))), off(Additive.predict(&Knowledge::of(part))));
        assert!(low < 0.5 * sums, "{low} against {sums}");
    }
}
