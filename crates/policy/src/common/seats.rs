//! The same number of programs for every partition of a level (paper II-B), and who of too many
//! stays without a seat.

use super::keep::{Claim, Owners, exchange_groups};
use super::needs::Need;

/// As many seats as every partition can have alike, and who has them (indices into `claims`, which
/// are in order of arrival). Lower ranks are seated first; of one rank those who stand on a partition
/// of this level, there; then the earliest. Nobody where there are fewer programs than partitions.
pub(crate) fn seats(places: &[topology::CpuSet], claims: &[Claim<'_>], ranks: &[u64]) -> Vec<Vec<usize>> {
    let owners = Owners::of(places);
    let overlaps: Vec<Vec<(usize, u32)>> =
        claims.iter().map(|claim| claim.before.map_or_else(Vec::new, |b| owners.most_first(b))).collect();
    // Restricted programs may not fill the seats that there are programs for; then there are fewer.
    let most = claims.len() / places.len().max(1);
    let dealt = (1..=most).rev().find_map(|each| fill(places, claims, ranks, &overlaps, each));
    dealt.map_or_else(|| vec![Vec::new(); places.len()], |dealt| exchange_groups(dealt, claims, &overlaps))
}

/// `each` seats on every place; `None` where some stay empty.
fn fill(
    places: &[topology::CpuSet],
    claims: &[Claim<'_>],
    ranks: &[u64],
    overlaps: &[Vec<(usize, u32)>],
    each: usize,
) -> Option<Vec<Vec<usize>>> {
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    let mut empty = each * places.len();
    let mut sit = |dealt: &mut Vec<Vec<usize>>, number: usize, place: usize| {
        dealt[place].push(number);
        empty -= 1;
    };
    // Restricted ones first: those with the fewest choices.
    let mut restricted: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (number, claim) in claims.iter().enumerate().filter(|(_, claim)| claim.scope.is_some()) {
        let choices: Vec<usize> = (0..places.len()).filter(|&place| claim.admits(&places[place])).collect();
        restricted.push((choices.len(), number, choices));
    }
    restricted.sort_unstable();
    for (_, number, choices) in restricted {
        let stands = overlaps[number].first().map(|&(place, _)| place);
        let open = choices.into_iter().filter(|&place| dealt[place].len() < each);
        if let Some(place) = open.min_by_key(|&place| (dealt[place].len(), stands != Some(place), place)) {
            sit(&mut dealt, number, place);
        }
    }
    // Narrow old places have fewer choices than wide ones; of as many choices who stands on a wider level
    // goes on standing there, lest levels change hands at every decision.
    let is_wider = |number: usize| {
        let width = places.first().map_or(0, topology::CpuSet::len);
        claims[number].before.is_some_and(|before| before.len() > width)
    };
    let mut order: Vec<usize> = (0..claims.len()).filter(|&number| claims[number].scope.is_none()).collect();
    order.sort_by_key(|&number| (ranks[number], overlaps[number].len(), is_wider(number), number));
    let mut next = 0;
    for like in order.chunk_by(|&a, &b| ranks[a] == ranks[b]) {
        let mut rest = Vec::new();
        for &number in like {
            let near = overlaps[number].iter().map(|&(place, _)| place);
            match near.into_iter().find(|&place| dealt[place].len() < each) {
                Some(place) => sit(&mut dealt, number, place),
                None => rest.push(number),
            }
        }
        rest.sort_unstable();
        for number in rest {
            while next < places.len() && dealt[next].len() == each {
                next += 1;
            }
            if next < places.len() {
                sit(&mut dealt, number, next);
            }
        }
    }
    dealt.iter_mut().for_each(|programs| programs.sort_unstable());
    (empty == 0).then_some(dealt)
}

/// What is left of a program's speed for each CPU when it gets `wider` CPUs instead of `width`, in
/// eighths, so that small errors of what was learned change nothing. A program that nothing is known
/// about ranks between those that are known to scale and those that are known not to: it is taken to
/// keep half.
pub(crate) fn rank(need: &Need<'_>, width: u32, wider: Option<u32>) -> u64 {
    let Some(wider) = wider else { return 0 };
    let speed = |cpus: u32| {
        let threads = cpus.min(need.cap);
        need.app.speedup.as_ref().map_or(u64::from(threads) * 1000, |speedup| speedup.milli(threads))
    };
    let kept = speed(wider) * u64::from(width) * 8 / (speed(width).max(1) * u64::from(wider)).max(1);
    if need.app.speedup.is_some() { kept } else { kept / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::CpuSet;

    fn sets(places: &[&str]) -> Vec<CpuSet> {
        places.iter().map(|place| place.parse().unwrap()).collect()
    }

    fn free(before: Option<&CpuSet>) -> Claim<'_> {
        Claim { before, scope: None, floor: 1, load: 1 }
    }

    #[test]
    fn partitions_have_equal_seats_and_the_latest_get_none() {
        let places = sets(&["0", "1", "2"]);
        assert_eq!(seats(&places, &[free(None); 7], &[0; 7]), [vec![0, 1], vec![2, 3], vec![4, 5]]);
        assert_eq!(seats(&places, &[free(None); 2], &[0; 2]), [[0; 0]; 3]);
    }

    #[test]
    fn a_program_keeps_its_partition_and_lower_ranks_go_first() {
        let places = sets(&["0", "1"]);
        let old = sets(&["1", "0", "0"]);
        let claims: Vec<Claim<'_>> = old.iter().map(|before| free(Some(before))).collect();
        assert_eq!(seats(&places, &claims, &[0; 3]), [vec![1], vec![0]]);
        assert_eq!(seats(&places, &claims, &[0, 5, 0]), [vec![2], vec![0]]);
    }

    #[test]
    fn a_restricted_program_without_a_seat_leaves_it_to_others() {
        let places = sets(&["0", "1"]);
        let only: CpuSet = "0".parse().unwrap();
        let bound = Claim { scope: Some(&only), ..free(None) };
        assert_eq!(seats(&places, &[bound, bound, free(None)], &[0; 3]), [vec![0], vec![2]]);
        // Nobody can have the other's seat.
        assert_eq!(seats(&places, &[bound, bound], &[0; 2]), [[0; 0]; 2]);
    }
}
