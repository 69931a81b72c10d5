//! Those that know nothing of pairs: `none` and `median`, the naive predictors of Haritatos et al., A
//! Resource-Centric Application Classification Approach, COSH 2016, section 3.2.

use super::{Estimate, Grid, Knowledge, Predictor, median, rms};

/// Always the same small slowdown.
pub(super) struct Constant(f64);

/// As the paper has it: no contention is 1.05.
pub(super) const NONE: Constant = Constant(1.05);
/// Its error as long as nothing is known.
const UNKNOWN_ERROR: f64 = 0.3;

pub(super) struct Median;

impl Predictor for Constant {
    fn name(&self) -> &'static str {
        "none"
    }

    fn about(&self) -> &'static str {
        "no contention: 1.05 for every pair (the paper's)"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        Grid::new(knowledge.matrix.len(), |_| Some(alike(knowledge, self.0)))
    }
}

impl Predictor for Median {
    fn name(&self) -> &'static str {
        "median"
    }

    fn about(&self) -> &'static str {
        "the median of all known slowdowns for every pair"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let middle = median(knowledge.matrix.known().map(|(_, _, slowdown)| slowdown));
        Grid::new(knowledge.matrix.len(), |_| middle.map(|middle| alike(knowledge, middle)))
    }
}

/// One value for all, as wrong as it is about what is known.
fn alike(knowledge: &Knowledge, value: f64) -> Estimate {
    let error = rms(knowledge.matrix.known().map(|(_, _, slowdown)| libm::log(slowdown / value)));
    Estimate { value, error: if error > 0.0 { error } else { UNKNOWN_ERROR } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    #[test]
    fn the_median_is_that_of_the_known_cells() {
        let matrix = Matrix::parse("m", ",a,b\na,1.1,1.5\nb,,1.3\n").unwrap();
        let grid = Median.predict(&Knowledge::of(matrix));
        assert_eq!(grid.get(1, 0).unwrap().value, 1.3);
        assert_eq!(
            NONE.predict(&Knowledge::of(Matrix::unknown(vec!["a".into()]))).get(0, 0).unwrap().value,
            1.05
        );
    }
}
