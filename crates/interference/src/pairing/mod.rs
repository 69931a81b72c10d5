//! Who stands beside whom: programs to places, by what they are expected to lose.
//!
//! Two a place is a minimum-weight perfect matching (`matching`), exact. More than two a place is found by local
//! search, with a lower bound (`grouping`). A place that is not full is filled up with nobodies, who press on
//! no one. How slow a program is in company is taken to add up: 1 + Σ (s(a, b) - 1) over its neighbours b.
//!
//! When the predictions are no better than guesses, the twins rule places: see [`trusted`].

pub(crate) mod blossom;
mod costs;
mod fractional;
mod grouping;
mod kinds;
mod matching;
mod online;

pub use grouping::{MOST_TO_ENUMERATE, enumerate};
pub use matching::cheapest;
pub use online::arrive;

use crate::predict::{Estimate, Grid, rms};
use workload::Random;

/// What is to be small.
#[derive(Clone, Debug, PartialEq)]
pub enum Objective {
    /// The mean slowdown of all programs.
    Mean,
    /// The worst slowdown of any.
    Worst,
    /// The time until the last has ended: the largest slowdown times length.
    Makespan,
    /// Energy: a place draws `idle_w` until its last program has ended, and each program `busy_w` while it runs.
    Energy {
        /// Watts of a place that has a program.
        idle_w: f64,
        /// Watts that a program adds.
        busy_w: f64,
    },
}

impl Objective {
    /// Is it a maximum over places, instead of a sum?
    pub fn is_worst(&self) -> bool {
        matches!(self, Objective::Worst | Objective::Makespan)
    }
}

/// Programs, what they do to each other, and how long each takes alone.
#[derive(Clone, Debug)]
pub struct Problem {
    size: usize,
    slowdowns: Vec<f64>,
    /// Seconds alone.
    lengths: Vec<f64>,
    /// Same program, for the twins rule.
    alike: Vec<usize>,
}

/// Programs on places, and what that costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The programs of each place, places in the order of their first programs; empty ones last.
    pub places: Vec<Vec<usize>>,
    /// What the objective comes to.
    pub cost: f64,
    /// Nothing is cheaper than that.
    pub bound: f64,
}

impl Assignment {
    /// By how much it is at most dearer than the best, as a part of the cost.
    pub fn gap(&self) -> f64 {
        if self.cost > 0.0 { ((self.cost - self.bound) / self.cost).max(0.0) } else { 0.0 }
    }
}

/// How a problem is to be solved.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// How many places there are.
    pub places: usize,
    /// What is to be small.
    pub objective: Objective,
    /// Where a search is random, it is so by this number.
    pub seed: u64,
}

/// Changes of place until twins are apart.
const MOST_EXCHANGES: usize = 10_000;

impl Problem {
    /// Slowdowns by (program, beside), names to know twins by, and lengths (all alike where empty).
    pub fn new(names: &[String], lengths: &[f64], slowdown: impl Fn(usize, usize) -> f64) -> Problem {
        let size = names.len();
        let slowdowns = (0..size * size).map(|at| slowdown(at / size, at % size)).collect();
        let first = |name: &String| names.iter().position(|other| other == name).unwrap_or(0);
        let lengths = if lengths.is_empty() { vec![1.0; size] } else { lengths.to_vec() };
        Problem { size, slowdowns, lengths, alike: names.iter().map(first).collect() }
    }

    /// The same programs, of whom only names are known: twins cost 1 more, and nothing else counts.
    pub fn twins_only(&self) -> Problem {
        let cell = |at: usize| {
            let (a, b) = (at / self.size, at % self.size);
            if a != b && self.alike[a] == self.alike[b] { 2.0 } else { 1.0 }
        };
        let slowdowns = (0..self.size * self.size).map(cell).collect();
        Problem { slowdowns, lengths: vec![1.0; self.size], ..self.clone() }
    }

    /// The number of programs.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether there are no programs.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Are these two of one program?
    pub fn twins(&self, a: usize, b: usize) -> bool {
        a != b && self.alike[a] == self.alike[b]
    }

    /// What `program` loses beside `beside`.
    fn lost(&self, program: usize, beside: usize) -> f64 {
        self.slowdowns[program * self.size + beside] - 1.0
    }

    /// The slowdown of a program in this company (itself left out).
    pub fn slowdown(&self, program: usize, company: &[usize]) -> f64 {
        let lost = company.iter().filter(|other| **other != program).map(|&other| self.lost(program, other));
        (1.0 + lost.sum::<f64>()).max(0.01)
    }

    /// What one place costs. The mean is a sum here, of all its programs' slowdowns.
    pub fn cost_of(&self, place: &[usize], objective: &Objective) -> f64 {
        let slowdowns = place.iter().map(|&program| (program, self.slowdown(program, place)));
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        match objective {
            Objective::Mean => slowdowns.map(|(_, slowdown)| slowdown).sum(),
            Objective::Worst => most(&mut slowdowns.map(|(_, slowdown)| slowdown)),
            Objective::Makespan => most(&mut slowdowns.map(|(program, slow)| slow * self.lengths[program])),
            Objective::Energy { idle_w, busy_w } => {
                let times: Vec<f64> = slowdowns.map(|(program, slow)| slow * self.lengths[program]).collect();
                idle_w * most(&mut times.iter().copied()) + busy_w * times.iter().sum::<f64>()
            }
        }
    }

    /// What an assignment costs: the mean slowdown, the worst, the makespan or the energy.
    pub fn cost(&self, places: &[Vec<usize>], objective: &Objective) -> f64 {
        let costs = places.iter().map(|place| self.cost_of(place, objective));
        match objective {
            Objective::Mean => costs.sum::<f64>() / self.size.max(1) as f64,
            Objective::Energy { .. } => costs.sum(),
            Objective::Worst | Objective::Makespan => costs.fold(0.0, f64::max),
        }
    }

    /// The best assignment (two a place), or a good one with a bound.
    pub fn assign(&self, wanted: &Wanted) -> Assignment {
        let each = self.size.div_ceil(wanted.places.max(1));
        match each {
            0 | 1 => {
                let places = (0..self.size).map(|program| vec![program]).collect();
                self.finish(places, wanted, None)
            }
            2 => {
                let (places, bound) = matching::pairs(self, wanted);
                self.finish(places, wanted, bound)
            }
            _ => {
                let (places, bound) = grouping::search(self, wanted, each);
                self.finish(places, wanted, Some(bound))
            }
        }
    }

    /// Programs one after another, each to the place where it costs least then.
    pub fn greedy(&self, wanted: &Wanted) -> Assignment {
        let each = self.size.div_ceil(wanted.places.max(1)).max(1);
        let mut places = vec![Vec::new(); wanted.places.max(1)];
        for program in 0..self.size {
            let place = online::arrive(self, &places, program, each, &wanted.objective);
            places[place.expect("there is room for all")].push(program);
        }
        self.finish(places, wanted, Some(0.0))
    }

    /// A random assignment, as even as it can be.
    pub fn random(&self, wanted: &Wanted, random: &mut Random) -> Assignment {
        let mut order: Vec<usize> = (0..self.size).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        let count = wanted.places.max(1);
        let mut places = vec![Vec::new(); count];
        for (at, program) in order.into_iter().enumerate() {
            places[at % count].push(program);
        }
        self.finish(places, wanted, Some(0.0))
    }

    /// A random assignment in which no program stands beside its twin, as far as that is possible: of a random one
    /// twins change places with programs elsewhere, at random, until nobody stands beside its twin.
    pub fn random_apart(&self, wanted: &Wanted, random: &mut Random) -> Assignment {
        let mut places = self.random(wanted, random).places;
        let clash = |place: &[usize]| {
            place.iter().enumerate().any(|(at, &a)| place[..at].iter().any(|&b| self.twins(a, b)))
        };
        for _ in 0..MOST_EXCHANGES {
            let Some(one) = places.iter().position(|place| clash(place)) else { break };
            let i = random.below(places[one].len() as u64) as usize;
            let other = random.below(places.len() as u64) as usize;
            if other == one || places[other].is_empty() {
                continue;
            }
            let j = random.below(places[other].len() as u64) as usize;
            let clashes =
                |places: &[Vec<usize>]| [one, other].iter().filter(|&&at| clash(&places[at])).count();
            let before = clashes(&places);
            let swap = |places: &mut [Vec<usize>]| {
                let program = places[one][i];
                places[one][i] = places[other][j];
                places[other][j] = program;
            };
            swap(&mut places);
            if clashes(&places) > before {
                swap(&mut places);
            }
        }
        self.finish(places, wanted, Some(0.0))
    }

    /// The dearest assignment, as far as it is found: exact for two a place and a sum, else by search.
    pub fn worst(&self, wanted: &Wanted) -> Assignment {
        let most = self.slowdowns.iter().copied().fold(1.0, f64::max);
        let slowdowns = self.slowdowns.iter().map(|slowdown| 1.0 + most - slowdown).collect();
        let turned = Problem { slowdowns, ..self.clone() };
        let sum = Wanted { objective: Objective::Mean, ..wanted.clone() };
        let places = turned.assign(&sum).places;
        self.finish(places, wanted, Some(0.0))
    }

    /// As many places as there are, in order; `None` for the bound: it is exact.
    fn finish(&self, mut places: Vec<Vec<usize>>, wanted: &Wanted, bound: Option<f64>) -> Assignment {
        places.iter_mut().for_each(|place| place.sort_unstable());
        places.retain(|place| !place.is_empty());
        places.sort_unstable();
        let cost = self.cost(&places, &wanted.objective);
        places.resize(wanted.places.max(places.len()), Vec::new());
        Assignment { places, cost, bound: bound.unwrap_or(cost).min(cost) }
    }
}

/// Do predictions say more than that everything is alike? Not where their errors are as large as their
/// spread: then who is placed by them is placed by noise, and the twins rule does better.
pub fn trusted(grid: &Grid) -> bool {
    let cells = || (0..grid.len()).flat_map(|a| (0..grid.len()).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let estimates: Vec<Estimate> = cells().filter_map(|(a, b)| grid.get(a, b)).collect();
    if estimates.len() < 2 || estimates.len() < cells().count() {
        return false;
    }
    let mean = estimates.iter().map(|one| libm::log(one.value)).sum::<f64>() / estimates.len() as f64;
    rms(estimates.iter().map(|one| libm::log(one.value) - mean)) > rms(estimates.iter().map(|one| one.error))
}

/// Programs placed by predictions where these are trusted, else by the twins rule alone: (assignment, were
/// they trusted). The cost is in predicted slowdowns either way.
pub fn place(problem: &Problem, grid: &Grid, wanted: &Wanted) -> (Assignment, bool) {
    if trusted(grid) {
        return (problem.assign(wanted), true);
    }
    let sum = Wanted { objective: Objective::Mean, ..wanted.clone() };
    let places = problem.twins_only().assign(&sum).places;
    (problem.finish(places, wanted, Some(0.0)), false)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::predict::tests::unit;
    use proptest::prelude::*;

    pub(crate) fn problem(size: usize, seed: u64) -> Problem {
        let mut random = Random::new(seed);
        let cells: Vec<f64> = (0..size * size).map(|_| 1.0 + unit(&mut random)).collect();
        let lengths: Vec<f64> = (0..size).map(|_| 1.0 + 9.0 * unit(&mut random)).collect();
        let names: Vec<String> = (0..size).map(|at| format!("p{at}")).collect();
        Problem::new(&names, &lengths, |a, b| cells[a * size + b])
    }

    pub(crate) fn wanted(places: usize, objective: Objective) -> Wanted {
        Wanted { places, objective, seed: 1 }
    }

    fn objectives() -> [Objective; 4] {
        let energy = Objective::Energy { idle_w: 50.0, busy_w: 20.0 };
        [Objective::Mean, Objective::Worst, Objective::Makespan, energy]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn matching_equals_brute_force_for_all_objectives(size in 2usize..=10, seed in 0u64..1_000_000) {
            let problem = problem(size, seed);
            let places = size.div_ceil(2);
            for objective in objectives() {
                let found = problem.assign(&wanted(places, objective.clone()));
                let best = enumerate(&problem, places, &objective).unwrap();
                prop_assert!((found.cost - best).abs() < 1e-4 * best, "{objective:?}: {} {best}", found.cost);
                prop_assert!(found.bound <= found.cost);
            }
        }

        #[test]
        fn relabelling_programs_changes_no_cost_and_no_pair(size in 2usize..=12, seed in 0u64..1_000_000) {
            let problem = problem(size, seed);
            let mut order: Vec<usize> = (0..size).collect();
            let mut random = Random::new(seed);
            (1..size).rev().for_each(|last| order.swap(last, random.below(last as u64 + 1) as usize));
            let names: Vec<String> = (0..size).map(|at| format!("p{at}")).collect();
            let lengths: Vec<f64> = order.iter().map(|&at| problem.lengths[at]).collect();
            let turned = Problem::new(&names, &lengths, |a, b| 1.0 + problem.lost(order[a], order[b]));
            let wanted = wanted(size.div_ceil(2), Objective::Mean);
            let (one, other) = (problem.assign(&wanted), turned.assign(&wanted));
            let mut named: Vec<Vec<usize>> =
                other.places.iter().map(|place| place.iter().map(|&at| order[at]).collect()).collect();
            named.iter_mut().for_each(|place| place.sort_unstable());
            named.sort_unstable();
            prop_assert_eq!(one.places, named);
        }

        #[test]
        fn every_program_has_one_place_for_any_numbers(size in 0usize..14, places in 1usize..9, seed in 0u64..1000) {
            let problem = problem(size, seed);
            for objective in objectives() {
                let wanted = wanted(places, objective);
                let mut random = Random::new(seed);
                let all = [problem.assign(&wanted), problem.greedy(&wanted), problem.random(&wanted, &mut random), problem.worst(&wanted)];
                for found in all {
                    let mut programs: Vec<usize> = found.places.concat();
                    programs.sort_unstable();
                    prop_assert_eq!(&programs, &(0..size).collect::<Vec<_>>());
                    prop_assert!(found.places.len() == places && found.places.iter().all(|place| place.len() <= size.div_ceil(places)));
                    prop_assert!(found.cost >= problem.assign(&wanted).cost - 1e-9 || size.div_ceil(places) > 2);
                }
            }
        }

        #[test]
        fn uncertain_predictions_leave_the_twins_placement(
            spread in 0.0f64..0.3, more in 1.05f64..4.0, seed in 0u64..1000
        ) {
            let names: Vec<String> = (0..8).map(|at| format!("p{}", at / 2)).collect();
            let mut random = Random::new(seed);
            let values: Vec<f64> = (0..64).map(|_| libm::exp(spread * (2.0 * unit(&mut random) - 1.0))).collect();
            // Uniform within ± spread, so `spread` itself is more than the standard deviation.
            let grid = Grid::new(8, |(a, b)| Some(Estimate { value: values[a * 8 + b], error: spread * more }));
            let problem = Problem::new(&names, &[], |a, b| grid.get(a, b).unwrap().value);
            let wanted = wanted(4, Objective::Mean);
            let (found, by_predictions) = place(&problem, &grid, &wanted);
            prop_assert!(!by_predictions);
            prop_assert_eq!(&found.places, &problem.twins_only().assign(&wanted).places);
            prop_assert!(found.places.iter().all(|place| !problem.twins(place[0], place[1])));
        }
    }

    #[test]
    fn sure_predictions_place() {
        let grid = Grid::new(4, |(a, b)| Some(Estimate { value: 1.0 + (a * b) as f64 / 4.0, error: 0.01 }));
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let problem = Problem::new(&names, &[], |a, b| grid.get(a, b).unwrap().value);
        let (found, by_predictions) = place(&problem, &grid, &wanted(2, Objective::Mean));
        assert!(by_predictions);
        assert_eq!(found.places, [vec![0, 3], vec![1, 2]]);
        let blind = Grid::new(4, |(a, _)| (a > 0).then_some(Estimate { value: 1.0, error: 0.0 }));
        assert!(!trusted(&blind));
    }

    #[test]
    fn a_random_assignment_without_twins_has_none() {
        let names: Vec<String> = (0..20).map(|at| format!("p{}", at / 2)).collect();
        let problem = Problem::new(&names, &[], |_, _| 1.5);
        let mut random = Random::new(3);
        for (places, each) in [(10, 2), (7, 3), (5, 4)] {
            for _ in 0..20 {
                let found = problem.random_apart(&wanted(places, Objective::Mean), &mut random);
                let apart =
                    |place: &Vec<usize>| place.iter().all(|&a| place.iter().all(|&b| !problem.twins(a, b)));
                assert!(found.places.iter().all(|place| place.len() <= each && apart(place)), "{found:?}");
            }
        }
    }

    #[test]
    fn programs_with_a_place_each_are_not_slowed() {
        for (size, places) in [(1, 1), (1, 3), (3, 5), (0, 2)] {
            let found = problem(size, 1).assign(&wanted(places, Objective::Mean));
            assert_eq!(found.cost, if size == 0 { 0.0 } else { 1.0 });
            assert_eq!(found.places.len(), places);
        }
    }
}
