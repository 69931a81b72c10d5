//! Programs that come one by one.

use super::{Objective, Problem};

/// The place with room for `each` where an arriving program costs least more, itself and those there; of
/// places that are alike the emptiest, then the first. `None` where all are full.
pub fn arrive(
    problem: &Problem,
    places: &[Vec<usize>],
    program: usize,
    each: usize,
    objective: &Objective,
) -> Option<usize> {
    let more = |place: &Vec<usize>| {
        let with: Vec<usize> = place.iter().copied().chain([program]).collect();
        let after = problem.cost_of(&with, objective);
        if objective.is_worst() { after } else { after - problem.cost_of(place, objective) }
    };
    let open = places.iter().enumerate().filter(|(_, place)| place.len() < each);
    let judged = open.map(|(at, place)| (more(place), place.len(), at));
    let best = judged
        .min_by(|one, other| one.0.total_cmp(&other.0).then((one.1, one.2).cmp(&(other.1, other.2))))?;
    Some(best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arriving_program_goes_where_it_and_the_others_lose_least() {
        let names = ["quiet", "loud", "frail"].map(str::to_owned);
        let lost = |a: usize, b: usize| if (a, b) == (2, 1) { 2.0 } else { 1.1 };
        let problem = Problem::new(&names, &[], lost);
        let places = [vec![0], vec![1], vec![]];
        assert_eq!(arrive(&problem, &places, 2, 2, &Objective::Mean), Some(2));
        assert_eq!(arrive(&problem, &places[..2], 2, 2, &Objective::Mean), Some(0));
        assert_eq!(arrive(&problem, &places[1..2], 2, 1, &Objective::Mean), None);
    }
}
