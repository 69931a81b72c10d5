//! Dealing programs of unlike weights over partitions in which they take turns as long as their weights
//! are large: what counts is not how many share a partition but how much they weigh together.
//!
//! The heaviest chooses first, always the partition that carries least. So the last one that came to a
//! partition found nothing lighter, and weighs no more than anybody there: a partition weighs at most
//! twice as much as any other that holds a program as heavy as one of its own, and what two equal
//! programs get differs by no more than that. Restricted programs, which have fewer choices, are dealt
//! before all others; equal programs that may stand anywhere find what they left.

use topology::CpuSet;

use super::keep::{Claim, Owners, exchange_groups};

/// Who shares which of `places`: indices into `claims`, of which `weights` has the weights. Whoever finds
/// no partition that it may use is left out.
pub(crate) fn deal_by_weight(places: &[CpuSet], claims: &[Claim<'_>], weights: &[u64]) -> Vec<Vec<usize>> {
    let owners = Owners::of(places);
    let overlaps: Vec<Vec<(usize, u32)>> =
        claims.iter().map(|claim| claim.before.map_or_else(Vec::new, |b| owners.most_first(b))).collect();
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|&number| {
        (claims[number].scope.is_none(), std::cmp::Reverse(weights[number]), overlaps[number].is_empty())
    });
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    let mut loads = vec![0u64; places.len()];
    for number in order {
        let kept =
            |place: usize| overlaps[number].iter().find(|(other, _)| *other == place).map_or(0, |o| o.1);
        let open = (0..places.len()).filter(|&place| claims[number].admits(&places[place]));
        if let Some(place) = open.min_by_key(|&place| (loads[place], std::cmp::Reverse(kept(place)), place)) {
            dealt[place].push(number);
            loads[place] += weights[number];
        }
    }
    dealt.iter_mut().for_each(|programs| programs.sort_unstable());
    exchange_groups(dealt, claims, &overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Random;

    #[test]
    fn equals_stand_where_weights_differ_by_a_factor_of_2() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let places: Vec<CpuSet> =
                (0..1 + random.below(6) as u32).map(|n| CpuSet::from_cpus(&[2 * n, 2 * n + 1])).collect();
            let weights: Vec<u64> = (0..1 + random.below(20))
                .map(|_| *random.pick(&[1, 100, 500, 1000, 3000, 1_000_000]))
                .collect();
            let claims = vec![Claim { before: None, scope: None, floor: 1, load: 1 }; weights.len()];
            let dealt = deal_by_weight(&places, &claims, &weights);
            let loads: Vec<u64> =
                dealt.iter().map(|group| group.iter().map(|&number| weights[number]).sum()).collect();
            for (one, other) in (0..dealt.len()).flat_map(|a| (0..dealt.len()).map(move |b| (a, b))) {
                let equals = |&a: &usize| dealt[other].iter().any(|&b| weights[a] == weights[b]);
                if dealt[one].iter().any(equals) {
                    assert!(loads[one] <= 2 * loads[other], "{weights:?}: {dealt:?}");
                }
            }
            assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), weights.len());
        }
    }

    #[test]
    fn a_program_stays_on_one_of_several_light_partitions() {
        let places: Vec<CpuSet> = ["0-1", "2-3"].map(|place| place.parse().unwrap()).into();
        let stood: CpuSet = "2-3".parse().unwrap();
        let claim = |before| Claim { before, scope: None, floor: 1, load: 1 };
        let claims = [claim(None), claim(Some(&stood)), claim(None)];
        assert_eq!(deal_by_weight(&places, &claims, &[1, 2, 2]), [vec![0, 2], vec![1]]);
    }
}
