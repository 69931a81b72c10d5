//! How good a predictor is on a matrix: cross-validation over unordered pairs.

use workload::Random;

use crate::predict::{Knowledge, Predictor};

/// What a predictor said of pairs that it had not seen.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Known slowdown, predicted slowdown, stated error; without those that it said nothing of.
    pub predicted: Vec<(f64, f64, f64)>,
    /// Cells that it said nothing of.
    pub silent: usize,
}

impl Judged {
    /// Mean of |predicted / known - 1|; `None` where nothing was told.
    pub fn mean_error(&self) -> Option<f64> {
        mean(self.errors())
    }

    /// Part of the predictions that are off by less than this.
    pub fn within(&self, error: f64) -> Option<f64> {
        mean(self.errors().map(|off| if off < error { 1.0 } else { 0.0 }))
    }

    /// Part of the known slowdowns that lie within two stated errors.
    pub fn covered(&self) -> Option<f64> {
        let inside =
            |&(known, predicted, error): &(f64, f64, f64)| libm::log(predicted / known).abs() < 2.0 * error;
        mean(self.predicted.iter().map(|cell| if inside(cell) { 1.0 } else { 0.0 }))
    }

    /// The same for those programs that are slowed down by more than this.
    pub fn slowed_by(&self, factor: f64) -> Judged {
        Judged {
            predicted: self.predicted.iter().copied().filter(|cell| cell.0 > factor).collect(),
            silent: 0,
        }
    }

    /// Both together.
    pub fn and(mut self, other: &Judged) -> Judged {
        self.predicted.extend_from_slice(&other.predicted);
        self.silent += other.silent;
        self
    }

    fn errors(&self) -> impl Iterator<Item = f64> + '_ {
        self.predicted.iter().map(|&(known, predicted, _)| (predicted / known - 1.0).abs())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

/// `folds`-fold cross-validation over unordered pairs. A fold hides its pairs both ways, so that no predictor
/// sees what the partner of a hidden program lost. Of the pairs outside the fold, `known_percent` of all pairs are
/// shown (at most all of them). The same seed hides the same pairs from every predictor.
pub fn judge(
    predictor: &dyn Predictor,
    knowledge: &Knowledge,
    folds: usize,
    known_percent: f64,
    seed: u64,
) -> Judged {
    let parts = hidden(knowledge, folds, known_percent, seed);
    parts.iter().fold(Judged::default(), |judged, (shown, asked)| judged.and(&one(predictor, shown, asked)))
}

/// A fold: what is shown, and which cells are asked for, with what they are.
pub type Fold = (Knowledge, Vec<(usize, usize, f64)>);

/// What is shown and asked in every fold.
pub fn hidden(knowledge: &Knowledge, folds: usize, known_percent: f64, seed: u64) -> Vec<Fold> {
    let mut random = Random::for_purpose(seed, "folds");
    let size = knowledge.matrix.len();
    let known = |&(a, b): &(usize, usize)| {
        knowledge.matrix.get(a, b).is_some() || knowledge.matrix.get(b, a).is_some()
    };
    let pairs = (0..size).flat_map(|a| (a..size).map(move |b| (a, b)));
    let mut pairs: Vec<(usize, usize)> = pairs.filter(known).collect();
    shuffle(&mut pairs, &mut random);
    let wanted = (pairs.len() as f64 * known_percent / 100.0).round() as usize;
    let fold = |number: usize| {
        let out = |at: usize| at % folds == number;
        let mut rest: Vec<(usize, usize)> =
            pairs.iter().enumerate().filter(|(at, _)| !out(*at)).map(|(_, pair)| *pair).collect();
        shuffle(&mut rest, &mut Random::for_purpose(seed ^ (number as u64 + 1), "shown"));
        rest.truncate(wanted);
        let mut shown = knowledge.clone();
        shown.matrix = crate::Matrix::unknown(knowledge.matrix.names().to_vec());
        for &(a, b) in &rest {
            shown.matrix.set(a, b, knowledge.matrix.get(a, b));
            shown.matrix.set(b, a, knowledge.matrix.get(b, a));
        }
        let mut asked = Vec::new();
        for &(a, b) in pairs.iter().enumerate().filter(|(at, _)| out(*at)).map(|(_, pair)| pair) {
            let ways = if a == b { vec![(a, b)] } else { vec![(a, b), (b, a)] };
            asked.extend(ways.into_iter().filter_map(|(a, b)| Some((a, b, knowledge.matrix.get(a, b)?))));
        }
        (shown, asked)
    };
    (0..folds).map(fold).collect()
}

/// What a predictor says of the cells asked for.
pub fn one(predictor: &dyn Predictor, shown: &Knowledge, asked: &[(usize, usize, f64)]) -> Judged {
    let grid = predictor.predict(shown);
    let mut judged = Judged::default();
    for &(a, b, known) in asked {
        match grid.get(a, b) {
            Some(predicted) => judged.predicted.push((known, predicted.value, predicted.error)),
            None => judged.silent += 1,
        }
    }
    judged
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::tests::made_up;
    use crate::predict::{Estimate, Grid, by_name};

    #[test]
    fn every_known_cell_is_asked_once_and_never_shown_either_way() {
        let (_, part) = made_up(9, 80, 2);
        let knowledge = Knowledge::of(part.clone());
        let folds = hidden(&knowledge, 10, 90.0, 3);
        let mut asked: Vec<(usize, usize)> = Vec::new();
        for (shown, cells) in &folds {
            for &(a, b, _) in cells {
                assert_eq!((shown.matrix.get(a, b), shown.matrix.get(b, a)), (None, None));
                asked.push((a, b));
            }
        }
        asked.sort_unstable();
        assert_eq!(asked, part.known().map(|(a, b, _)| (a, b)).collect::<Vec<_>>());
    }

    #[test]
    fn the_requested_share_of_cells_is_shown() {
        let (_, part) = made_up(10, 100, 2);
        for percent in [10.0, 40.0, 90.0] {
            for (shown, _) in hidden(&Knowledge::of(part.clone()), 10, percent, 1) {
                let pairs = shown.matrix.known_pairs().len() as f64 / 55.0 * 100.0;
                assert!((pairs - percent).abs() < 3.0, "{pairs} {percent}");
            }
        }
    }

    /// Knows everything, and looks at the mirrored cell where it does not.
    struct Spy;

    impl Predictor for Spy {
        fn name(&self) -> &'static str {
            "spy"
        }
        fn about(&self) -> &'static str {
            "the mirrored cell"
        }
        fn predict(&self, knowledge: &Knowledge) -> Grid {
            Grid::new(knowledge.matrix.len(), |(a, b)| {
                knowledge.matrix.get(b, a).map(|value| Estimate { value, error: 0.1 })
            })
        }
    }

    #[test]
    fn a_predictor_that_reads_the_mirrored_cell_finds_nothing() {
        let (whole, _) = made_up(8, 100, 2);
        let judged = judge(&Spy, &Knowledge::of(whole), 10, 90.0, 1);
        assert_eq!((judged.predicted.len(), judged.silent), (0, 64));
    }

    #[test]
    fn errors_and_shares_follow_their_definitions() {
        let judged = Judged { predicted: vec![(1.0, 1.1, 0.2), (2.0, 1.0, 0.2), (1.5, 1.5, 0.2)], silent: 0 };
        assert!((judged.mean_error().unwrap() - 0.2).abs() < 1e-12);
        assert!((judged.within(0.3).unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert!((judged.covered().unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(judged.slowed_by(1.2).predicted.len(), 2);
        assert_eq!(Judged::default().mean_error(), None);
    }

    #[test]
    fn the_same_seed_judges_alike() {
        let (whole, _) = made_up(8, 100, 2);
        let predicted = |seed| {
            judge(by_name("additive").unwrap(), &Knowledge::of(whole.clone()), 5, 60.0, seed).predicted
        };
        assert_eq!(predicted(1), predicted(1));
        assert_ne!(predicted(1), predicted(2));
    }
}
