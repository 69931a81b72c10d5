//! More than two a place: local search, with a lower bound.
//!
//! From several starts (greedy, pairs of pairs, random) programs change places with one another, or move to where
//! there is room, as long as that helps; then some are shuffled and it goes on from there, within a budget of
//! steps. NP-hard from three a place on, so what is told is how far the best can be away.
//!
//! # Bounds
//!
//! Everybody has the k - 1 neighbours that hurt least (k places each, nobodies hurt nobody):
//! Σ of that for sums, the largest for the worst. Of the mean with even k also: a place of k is k - 1
//! pairings, so k - 1 cheapest perfect matchings cost no more than all places.

use workload::Random;

use super::{Objective, Problem, Wanted, cheapest, online};

/// The most programs that are gone through exactly.
pub const MOST_TO_ENUMERATE: usize = 12;
/// Places judged in a search.
const BUDGET: usize = 3_000_000;
const STARTS: usize = 8;
/// Kicks without success after which a start is given up.
const PATIENCE: usize = 60;

type Places = Vec<Vec<usize>>;

/// Places and the bound, in the objective's own terms.
pub(super) fn search(problem: &Problem, wanted: &Wanted, each: usize) -> (Places, f64) {
    let mut random = Random::for_purpose(wanted.seed, "grouping");
    let mut budget = BUDGET;
    let mut best: Option<(Score, Places)> = None;
    for start in 0..STARTS {
        if budget == 0 {
            break;
        }
        let mut places = match start {
            0 => greedy(problem, wanted, each),
            1 => pairs_of_pairs(problem, wanted, each),
            _ => shuffled(problem.len(), wanted.places, &mut random),
        };
        let mut score = climb(problem, wanted, each, &mut places, &mut budget);
        let mut misses = 0;
        while misses < PATIENCE && budget > 0 {
            let mut next = places.clone();
            kick(&mut next, &mut random);
            let found = climb(problem, wanted, each, &mut next, &mut budget);
            if found.better(&score) {
                (score, places, misses) = (found, next, 0);
            } else {
                misses += 1;
            }
        }
        if best.as_ref().is_none_or(|(least, _)| score.better(least)) {
            best = Some((score, places));
        }
    }
    let (_, places) = best.expect("there is a first start");
    (places, bound(problem, wanted, each))
}

/// What an assignment is worth: the objective, then the sum.
#[derive(Clone, Copy, Debug)]
struct Score {
    first: f64,
    second: f64,
}

impl Score {
    fn better(&self, other: &Score) -> bool {
        let slack = 1e-9 * other.first.abs().max(1e-9);
        self.first < other.first - slack
            || self.first < other.first + slack && self.second < other.second - 1e-9 * other.second.abs()
    }
}

/// Costs of the places, kept as they change.
struct Costs {
    firsts: Vec<f64>,
    seconds: Vec<f64>,
    worst: bool,
}

impl Costs {
    fn of(problem: &Problem, wanted: &Wanted, places: &Places) -> Costs {
        let of =
            |objective: &Objective| places.iter().map(|place| problem.cost_of(place, objective)).collect();
        let worst = wanted.objective.is_worst();
        Costs { firsts: of(&wanted.objective), seconds: of(&Objective::Mean), worst }
    }

    fn score(&self) -> Score {
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        let first =
            if self.worst { self.firsts.iter().copied().fold(0.0, f64::max) } else { sum(&self.firsts) };
        Score { first, second: if self.worst { sum(&self.seconds) } else { 0.0 } }
    }
}

/// Changes until no exchange of two programs and no move helps.
fn climb(problem: &Problem, wanted: &Wanted, each: usize, places: &mut Places, budget: &mut usize) -> Score {
    let mut costs = Costs::of(problem, wanted, places);
    let mut score = costs.score();
    let mut changed = true;
    while changed && *budget > 0 {
        changed = false;
        for one in 0..places.len() {
            for other in 0..places.len() {
                // Positions behind the end are free seats.
                for (i, j) in seats(one, other, places, each) {
                    *budget = budget.saturating_sub(1);
                    exchange(places, (one, i), (other, j));
                    let before = [one, other].map(|at| (costs.firsts[at], costs.seconds[at]));
                    for at in [one, other] {
                        costs.firsts[at] = problem.cost_of(&places[at], &wanted.objective);
                        if costs.worst {
                            costs.seconds[at] = problem.cost_of(&places[at], &Objective::Mean);
                        }
                    }
                    let next = costs.score();
                    if next.better(&score) {
                        (score, changed) = (next, true);
                        break;
                    }
                    undo(places, (one, i), (other, j));
                    for (at, (first, second)) in [one, other].into_iter().zip(before) {
                        (costs.firsts[at], costs.seconds[at]) = (first, second);
                    }
                }
            }
        }
    }
    score
}

/// Seats that can change: every program of one place with every one of a later place, or with a free seat.
fn seats(one: usize, other: usize, places: &Places, each: usize) -> Vec<(usize, Option<usize>)> {
    if one == other {
        return Vec::new();
    }
    let mut all = Vec::new();
    for i in 0..places[one].len() {
        if one < other {
            all.extend((0..places[other].len()).map(|j| (i, Some(j))));
        }
        if places[other].len() < each {
            all.push((i, None));
        }
    }
    all
}

fn exchange(places: &mut Places, (one, i): (usize, usize), (other, j): (usize, Option<usize>)) {
    match j {
        Some(j) => {
            let program = places[one][i];
            places[one][i] = places[other][j];
            places[other][j] = program;
        }
        None => {
            let program = places[one].remove(i);
            places[other].push(program);
        }
    }
}

fn undo(places: &mut Places, (one, i): (usize, usize), (other, j): (usize, Option<usize>)) {
    match j {
        Some(_) => exchange(places, (one, i), (other, j)),
        None => {
            let program = places[other].pop().expect("it was put there");
            places[one].insert(i, program);
        }
    }
}

/// Three programs of three places go round, or two change.
fn kick(places: &mut Places, random: &mut Random) {
    let full: Vec<usize> = (0..places.len()).filter(|&at| !places[at].is_empty()).collect();
    if full.len() < 2 {
        return;
    }
    let mut chosen = full;
    for last in (1..chosen.len()).rev() {
        chosen.swap(last, random.below(last as u64 + 1) as usize);
    }
    chosen.truncate(3);
    let seats: Vec<(usize, usize)> =
        chosen.iter().map(|&at| (at, random.below(places[at].len() as u64) as usize)).collect();
    let first = places[seats[0].0][seats[0].1];
    for pair in seats.windows(2) {
        places[pair[0].0][pair[0].1] = places[pair[1].0][pair[1].1];
    }
    let last = seats[seats.len() - 1];
    places[last.0][last.1] = first;
}

fn greedy(problem: &Problem, wanted: &Wanted, each: usize) -> Places {
    let mut places = vec![Vec::new(); wanted.places];
    for program in 0..problem.len() {
        let place = online::arrive(problem, &places, program, each, &wanted.objective);
        places[place.expect("there is room for all")].push(program);
    }
    places
}

fn shuffled(size: usize, places: usize, random: &mut Random) -> Places {
    let mut order: Vec<usize> = (0..size).collect();
    for last in (1..size).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut found = vec![Vec::new(); places];
    for (at, program) in order.into_iter().enumerate() {
        found[at % places].push(program);
    }
    found
}

/// What each pair loses together; nobody loses nothing.
fn together(problem: &Problem, a: usize, b: usize) -> f64 {
    let size = problem.len();
    if a < size && b < size && a != b { problem.lost(a, b) + problem.lost(b, a) } else { 0.0 }
}

/// The cheapest pairs, and these as cheaply beside each other as they can be, until places are full.
fn pairs_of_pairs(problem: &Problem, wanted: &Wanted, each: usize) -> Places {
    let mut groups: Places = (0..problem.len()).map(|program| vec![program]).collect();
    let mut size = 1;
    while 2 * size <= each && groups.len() > wanted.places {
        if groups.len() % 2 == 1 {
            groups.push(Vec::new());
        }
        let cost = |a: usize, b: usize| -> f64 {
            let pairs = groups[a].iter().flat_map(|&one| groups[b].iter().map(move |&other| (one, other)));
            // Above 0 whatever programs lose beside each other.
            (size * size) as f64 + pairs.map(|(one, other)| together(problem, one, other)).sum::<f64>()
        };
        let mate = cheapest(groups.len(), cost);
        let joined = (0..groups.len()).filter(|&a| a < mate[a]);
        groups = joined.map(|a| groups[a].iter().chain(&groups[mate[a]]).copied().collect()).collect();
        size *= 2;
    }
    // What does not fit goes where it hurts least, one by one.
    let rest: Vec<usize> = groups.split_off(groups.len().min(wanted.places)).concat();
    groups.resize(wanted.places, Vec::new());
    for program in rest {
        let place = online::arrive(problem, &groups, program, each, &wanted.objective);
        groups[place.expect("there is room for all")].push(program);
    }
    groups
}

/// Nothing is cheaper than that.
fn bound(problem: &Problem, wanted: &Wanted, each: usize) -> f64 {
    let (size, seats) = (problem.len(), wanted.places * each);
    // The least that so many neighbours can add.
    let least = |lost: &dyn Fn(usize) -> f64, program: usize| {
        let others = (0..size).filter(|&other| other != program).map(lost);
        let mut all: Vec<f64> = others.chain(std::iter::repeat_n(0.0, seats - size)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.iter().take(each - 1).sum::<f64>()
    };
    let slow = |program: usize| 1.0 + least(&|other| problem.lost(program, other), program);
    let slows: Vec<f64> = (0..size).map(slow).collect();
    let times = || slows.iter().zip(&problem.lengths).map(|(slow, length)| slow * length);
    match &wanted.objective {
        Objective::Worst => slows.iter().copied().fold(0.0, f64::max),
        Objective::Makespan => times().fold(0.0, f64::max),
        Objective::Energy { idle_w, busy_w } => times().sum::<f64>() * (busy_w + idle_w / each as f64),
        Objective::Mean => {
            let sum: f64 = (0..size).map(|one| least(&|other| together(problem, one, other), one)).sum();
            let mut lost = (sum / 2.0).max(slows.iter().map(|slow| slow - 1.0).sum());
            if each.is_multiple_of(2) {
                // Seats are even in number, too.
                let mate = cheapest(seats, |a, b| 10.0 + together(problem, a, b));
                let matched: f64 = (0..seats).map(|a| together(problem, a, mate[a])).sum::<f64>() / 2.0;
                // Costs were rounded to millionths.
                lost = lost.max((each - 1) as f64 * (matched - 1e-6 * seats as f64));
            }
            (size as f64 + lost) / size.max(1) as f64
        }
    }
}

/// The least cost of all ways to put programs on places, gone through one by one; `None` for more than
/// [`MOST_TO_ENUMERATE`] programs.
pub fn enumerate(problem: &Problem, places: usize, objective: &Objective) -> Option<f64> {
    if problem.len() > MOST_TO_ENUMERATE {
        return None;
    }
    let each = problem.len().div_ceil(places.max(1));
    let mut best = f64::INFINITY;
    place_next(problem, objective, each, places, 0, &mut Vec::new(), &mut best);
    Some(best)
}

fn place_next(
    problem: &Problem,
    objective: &Objective,
    each: usize,
    most: usize,
    program: usize,
    places: &mut Places,
    best: &mut f64,
) {
    if program == problem.len() {
        *best = best.min(problem.cost(places, objective));
        return;
    }
    for at in 0..places.len() {
        if places[at].len() < each {
            places[at].push(program);
            place_next(problem, objective, each, most, program + 1, places, best);
            places[at].pop();
        }
    }
    if places.len() < most {
        places.push(vec![program]);
        place_next(problem, objective, each, most, program + 1, places, best);
        places.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problem, wanted};
    use super::*;

    #[test]
    fn groups_of_three_and_four_are_within_two_percent_of_the_best() {
        for (size, places) in [(6, 2), (7, 2), (8, 2), (9, 3), (10, 3), (11, 3), (12, 4), (12, 3)] {
            for seed in 0..4 {
                let problem = problem(size, seed);
                for objective in [Objective::Mean, Objective::Worst, Objective::Makespan] {
                    let found = problem.assign(&wanted(places, objective.clone()));
                    let best = enumerate(&problem, places, &objective).unwrap();
                    let summary = format!("{size} on {places}, {objective:?}: {} best {best}", found.cost);
                    assert!(found.cost <= 1.02 * best && found.cost >= best - 1e-9, "{summary}");
                    assert!(found.bound <= best + 1e-9, "{summary}, bound {}", found.bound);
                }
            }
        }
    }

    #[test]
    fn the_bound_is_met_where_groups_are_obvious() {
        let names: Vec<String> = (0..12).map(|at| format!("p{at}")).collect();
        let friends = |a: usize, b: usize| if a / 4 == b / 4 { 1.0 } else { 3.0 };
        let problem = Problem::new(&names, &[], friends);
        let found = problem.assign(&wanted(3, Objective::Mean));
        assert!((found.cost - 1.0).abs() < 1e-9 && found.gap() < 1e-4, "{found:?}");
        let one_too_many = problem.assign(&wanted(2, Objective::Worst));
        assert!(one_too_many.bound <= one_too_many.cost);
        assert_eq!(enumerate(&super::super::tests::problem(13, 1), 4, &Objective::Mean), None);
    }

    #[test]
    fn the_same_seed_groups_alike() {
        let problem = problem(30, 5);
        let wanted = wanted(8, Objective::Mean);
        assert_eq!(problem.assign(&wanted), problem.assign(&wanted));
    }
}
