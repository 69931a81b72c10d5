//! The little linear algebra that Gaussian processes need. Our own because libraries choose their
//! instructions by the processor, and then round differently: a plan may not depend on that.

/// A symmetric matrix, whole, by rows.
#[derive(Clone, Debug)]
pub(crate) struct Square {
    pub size: usize,
    pub cells: Vec<f64>,
}

/// The lower triangle L of a positive definite matrix L Lᵀ.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    size: usize,
    cells: Vec<f64>,
}

/// The sum of products, in eight strands, which compilers turn into vector instructions.
pub(crate) fn dot(one: &[f64], other: &[f64]) -> f64 {
    const STRANDS: usize = 8;
    let mut sums = [0.0; STRANDS];
    let (ones, others) = (one.chunks_exact(STRANDS), other.chunks_exact(STRANDS));
    let rest: f64 = ones.remainder().iter().zip(others.remainder()).map(|(a, b)| a * b).sum();
    for (one, other) in ones.zip(others) {
        for strand in 0..STRANDS {
            sums[strand] += one[strand] * other[strand];
        }
    }
    sums.iter().sum::<f64>() + rest
}

impl Square {
    pub fn new(size: usize, cell: impl Fn(usize, usize) -> f64) -> Square {
        let mut cells = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..=row {
                let value = cell(row, column);
                cells[row * size + column] = value;
                cells[column * size + row] = value;
            }
        }
        Square { size, cells }
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.cells[row * self.size..][..self.size]
    }

    /// `None` where it is not positive definite.
    pub fn factor(&self) -> Option<Factor> {
        let size = self.size;
        let mut cells = vec![0.0; size * size];
        for row in 0..size {
            let (done, rest) = cells.split_at_mut(row * size);
            let mine = &mut rest[..size];
            for column in 0..row {
                let other = &done[column * size..][..=column];
                let sum = self.cells[row * size + column] - dot(&mine[..column], &other[..column]);
                mine[column] = sum / other[column];
            }
            let square = self.cells[row * size + row] - dot(&mine[..row], &mine[..row]);
            if square.is_nan() || square <= 0.0 {
                return None;
            }
            mine[row] = square.sqrt();
        }
        Some(Factor { size, cells })
    }
}

impl Factor {
    /// L⁻¹ b.
    pub fn half_solve(&self, right: &[f64]) -> Vec<f64> {
        let mut x = vec![0.0; self.size];
        for row in 0..self.size {
            let line = &self.cells[row * self.size..][..=row];
            x[row] = (right[row] - dot(&line[..row], &x[..row])) / line[row];
        }
        x
    }

    /// (L Lᵀ)⁻¹ b.
    pub fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut x = self.half_solve(right);
        for row in (0..self.size).rev() {
            let line = &self.cells[row * self.size..][..=row];
            x[row] /= line[row];
            let value = x[row];
            for (other, factor) in x[..row].iter_mut().zip(line) {
                *other -= factor * value;
            }
        }
        x
    }

    /// ln det (L Lᵀ).
    pub fn log_determinant(&self) -> f64 {
        2.0 * (0..self.size).map(|at| libm::log(self.cells[at * self.size + at])).sum::<f64>()
    }

    /// (L Lᵀ)⁻¹, whole.
    pub fn inverse(&self) -> Square {
        let size = self.size;
        // Rows of L⁻ᵀ, that is columns of L⁻¹: the one that begins at `start` has zeros before it.
        let mut columns = vec![0.0; size * size];
        for start in 0..size {
            let x = &mut columns[start * size..][..size];
            x[start] = 1.0 / self.cells[start * size + start];
            for row in start + 1..size {
                let line = &self.cells[row * size..][..=row];
                x[row] = -dot(&line[start..row], &x[start..row]) / line[row];
            }
        }
        let column = |at: usize, from: usize| &columns[at * size + from..(at + 1) * size];
        Square::new(size, |row, other| dot(column(row, row), column(other, row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// B Bᵀ + 1.
    fn positive(size: usize, cells: &[f64]) -> Square {
        let row = |at: usize| &cells[at * size..][..size];
        Square::new(size, |a, b| dot(row(a), row(b)) + if a == b { 1.0 } else { 0.0 })
    }

    proptest! {
        #[test]
        fn inverse_and_solution_undo_the_matrix(cells in proptest::collection::vec(-2.0f64..2.0, 121), b in proptest::collection::vec(-3.0f64..3.0, 11)) {
            let matrix = positive(11, &cells);
            let factor = matrix.factor().unwrap();
            let (x, inverse) = (factor.solve(&b), factor.inverse());
            for row in 0..11 {
                prop_assert!((dot(matrix.row(row), &x) - b[row]).abs() < 1e-6);
                prop_assert!((dot(inverse.row(row), &b) - x[row]).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn the_determinant_is_that_of_the_matrix_and_others_are_refused() {
        let matrix = Square::new(2, |a, b| if a == b { 3.0 } else { 1.0 });
        assert!((matrix.factor().unwrap().log_determinant() - libm::log(8.0)).abs() < 1e-12);
        assert!(Square::new(2, |_, _| 1.0).factor().is_none());
    }
}
