//! The combination: all predictors that have something to say of a pair, by how sure they are.
//!
//! ```text
//! ln value = Σ ln value_p / error_p² ÷ Σ 1 / error_p²     over the sources that speak
//! error²   = 1 / Σ 1 / error_p²  + spread of the sources²
//! ```
//!
//! Of the predictors that complete a matrix only the best informed speaks, since they know the same pairs;
//! beside it those that know programs by themselves (`class`, `curves`, `cache`). Where nobody speaks, the
//! twins prior does. A pair that was measured is what was measured.

use super::{Estimate, Grid, Knowledge, Predictor, by_name, measured};

pub(super) struct Combined;

impl Predictor for Combined {
    fn name(&self) -> &'static str {
        "combined"
    }

    fn about(&self) -> &'static str {
        "everything that is known: measured pairs, likeness or elsewhere, profiles, twins; by stated errors"
    }

    fn predict(&self, knowledge: &Knowledge) -> Grid {
        let ask = |name: &str| by_name(name).expect("its name stands in the list").predict(knowledge);
        // Each knows what the next one knows, and more.
        let matrix = ["elsewhere", "likeness", "lowrank"].map(|name| (name, std::cell::OnceCell::new()));
        let completed = |a: usize, b: usize| {
            matrix.iter().find_map(|(name, grid)| grid.get_or_init(|| ask(name)).get(a, b))
        };
        let programs = ["class", "curves", "cache"].map(ask);
        let prior = ask("twins");
        Grid::new(knowledge.matrix.len(), |(a, b)| {
            if let Some(known) = measured(knowledge, a, b) {
                return Some(known);
            }
            let sources = programs.iter().filter_map(|grid| grid.get(a, b)).chain(completed(a, b));
            together(&sources.collect::<Vec<_>>()).or_else(|| prior.get(a, b))
        })
    }
}

fn together(sources: &[Estimate]) -> Option<Estimate> {
    let weight = |source: &Estimate| 1.0 / (source.error.max(1e-3) * source.error.max(1e-3));
    let weights: f64 = sources.iter().map(weight).sum();
    if weights <= 0.0 {
        return None;
    }
    let mean = sources.iter().map(|source| weight(source) * libm::log(source.value)).sum::<f64>() / weights;
    let off = |source: &Estimate| libm::log(source.value) - mean;
    let spread =
        sources.iter().map(|source| weight(source) * off(source) * off(source)).sum::<f64>() / weights;
    Some(Estimate { value: libm::exp(mean), error: f64::sqrt(1.0 / weights + spread) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    #[test]
    fn the_surer_source_counts_more_and_disagreement_makes_unsure() {
        let sure = Estimate { value: 1.2, error: 0.02 };
        let vague = Estimate { value: 2.0, error: 0.4 };
        let both = together(&[sure, vague]).unwrap();
        assert!((1.2..1.21).contains(&both.value) && both.error > 0.02, "{both:?}");
        assert_eq!(together(&[]), None);
        let alone = together(&[sure]).unwrap();
        assert!((alone.value - 1.2).abs() < 1e-9 && (alone.error - 0.02).abs() < 1e-9);
    }

    #[test]
    fn measurements_stay_and_unknown_pairs_get_the_prior() {
        let matrix = Matrix::parse("m", ",a,b\na,1.5,\nb,,\n").unwrap();
        let grid = Combined.predict(&Knowledge::of(matrix));
        assert_eq!(grid.get(0, 0).unwrap().value, 1.5);
        let nothing = Combined.predict(&Knowledge::of(Matrix::unknown(vec!["a".into(), "b".into()])));
        assert!((nothing.get(0, 1).unwrap().value - 7.0 / 6.0).abs() < 1e-9);
        assert!((nothing.get(0, 0).unwrap().value - 1.25).abs() < 1e-9);
    }
}
