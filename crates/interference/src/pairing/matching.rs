//! Two a place: minimum-weight perfect matching.
//!
//! A thousand programs have half a million pairs, of which hardly any matter. The relaxation into halves
//! (`fractional`) says which, with prices that hold for all pairs; those of least slack go to the exact solver
//! (`blossom`), which begins with what the relaxation has paired. Its prices then prove of all other pairs
//! that they would not help; those that might are added, until none is left.

use std::cmp::Ordering;

use super::blossom::{self, Edge, Matched};
use super::costs::{Costs, Halves};
use super::fractional::halves;
use super::{Objective, Problem, Wanted};

/// Pairs tried for every program at first, and added for each at a time.
const NEAR: usize = 10;
const MORE: usize = 4;

/// Pairs (and programs alone), and a bound where it is not exact.
pub(super) fn pairs(problem: &Problem, wanted: &Wanted) -> (Vec<Vec<usize>>, Option<f64>) {
    let objective = &wanted.objective;
    let size = problem.len();
    // Nobodies fill the places up.
    let whole = 2 * wanted.places;
    let place = |a: usize, b: usize| -> Vec<usize> { [a, b].into_iter().filter(|&one| one < size).collect() };
    let costs: Vec<f64> =
        (0..whole * whole).map(|at| problem.cost_of(&place(at / whole, at % whole), objective)).collect();
    let mate = if objective.is_worst() {
        bottleneck(problem, whole, &costs)
    } else {
        cheapest(whole, |a, b| costs[a * whole + b])
    };
    let pairs = (0..whole).filter(|&a| a < mate[a]).map(|a| place(a, mate[a])).collect();
    (pairs, None)
}

/// The partner of each of an even number of programs, so that the sum of costs is least; costs need not be
/// whole, and count in millionths.
pub fn cheapest(count: usize, cost: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    assert!(count.is_multiple_of(2), "an odd number cannot be paired");
    let costs = Costs::new(count, cost);
    let halves = halves(&costs);
    let mut edges = nearest(&costs, &halves);
    loop {
        let matched =
            blossom::solve(count, &edges, &halves.prices).expect("a perfect matching is among the edges");
        let missing = missing(&costs, &matched);
        if missing.is_empty() {
            return matched.mate;
        }
        edges.extend(missing);
    }
}

/// What the relaxation has paired, first; then for every program the pairs of least slack, and some so that
/// everybody can be matched.
fn nearest(costs: &Costs, halves: &Halves) -> Vec<Edge> {
    let count = costs.count;
    let mut prices: Vec<f64> = halves.prices.iter().map(|&price| price as f64).collect();
    prices.resize(costs.width, 0.0);
    let mut mate: Vec<usize> = (0..count).collect();
    halves.pairs.iter().for_each(|&(u, v)| (mate[u], mate[v]) = (v, u));
    let mut rest: Vec<(usize, usize)> = Vec::with_capacity(count * (NEAR + 1));
    for u in 0..count {
        let near = costs.nearest::<NEAR>(u, &prices, &[]);
        rest.extend(near.iter().filter(|near| near.1 != u).map(|&(_, v)| (u.min(v), u.max(v))));
    }
    let ends = halves.left.chunks_exact(2).map(|two| (two[0], two[1]));
    rest.extend(halves.tight.iter().copied().chain(ends).map(|(u, v)| (u.min(v), u.max(v))));
    rest.sort_unstable();
    rest.dedup();
    rest.retain(|&(u, v)| mate[u] != v);
    halves.pairs.iter().copied().chain(rest).map(|(u, v)| (u, v, costs.of(u, v))).collect()
}

/// The pairs that would be cheaper than they are worth, some of each program.
fn missing(costs: &Costs, matched: &Matched) -> Vec<Edge> {
    let count = costs.count;
    let prices: Vec<f64> = matched.prices.iter().map(|&price| price as f64).collect();
    let mut found: Vec<Edge> = Vec::new();
    let mut over: Vec<(i64, usize)> = Vec::new();
    for u in 0..count {
        over.clear();
        for (v, &cost) in costs.row(u)[..count].iter().enumerate().skip(u + 1) {
            if prices[u] + prices[v] + 2.0 * cost < 0.0
                && let Some(slack) = matched.slack(u, v, cost as i64)
            {
                over.push((slack, v));
            }
        }
        over.sort_unstable();
        found.extend(over.iter().take(MORE).map(|&(_, v)| (u, v, costs.of(u, v))));
    }
    found
}

/// The least largest cost, and of those matchings one with the least sum.
fn bottleneck(problem: &Problem, count: usize, costs: &[f64]) -> Vec<usize> {
    let mut values: Vec<f64> =
        (0..count * count).filter(|at| at / count != at % count).map(|at| costs[at]).collect();
    values.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    values.dedup();
    let sum = |a: usize, b: usize| -> f64 {
        let place: Vec<usize> = [a, b].into_iter().filter(|&one| one < problem.len()).collect();
        problem.cost_of(&place, &Objective::Mean)
    };
    // What is forbidden costs more than all that is allowed together.
    let most = (0..count * count).map(|at| sum(at / count, at % count)).fold(1.0, f64::max) * count as f64;
    let within = |limit: f64| {
        let cost = |a: usize, b: usize| if costs[a * count + b] <= limit { sum(a, b) } else { most };
        let mate = cheapest(count, cost);
        let holds = (0..count).all(|a| costs[a * count + mate[a]] <= limit);
        holds.then_some(mate)
    };
    let (mut low, mut high) = (0, values.len().saturating_sub(1));
    let mut found = None;
    while low < high {
        let middle = (low + high) / 2;
        match within(values[middle]) {
            Some(mate) => (found, high) = (Some((middle, mate)), middle),
            None => low = middle + 1,
        }
    }
    match found {
        Some((at, mate)) if at == low => mate,
        _ => values.get(low).and_then(|&limit| within(limit)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::UNIT;
    use super::*;
    use proptest::prelude::*;
    use workload::Random;

    fn brute(count: usize, costs: &[i64]) -> i64 {
        // By sets of those that are matched already, the lowest free one first.
        let mut best = vec![i64::MAX; 1 << count];
        best[0] = 0;
        for set in 0..1usize << count {
            let Some(u) = (0..count).find(|u| set >> u & 1 == 0) else { continue };
            if best[set] == i64::MAX {
                continue;
            }
            for v in (u + 1..count).filter(|v| set >> v & 1 == 0) {
                let next = set | 1 << u | 1 << v;
                best[next] = best[next].min(best[set] + costs[u * count + v]);
            }
        }
        best[(1 << count) - 1]
    }

    fn symmetric(count: usize, seed: u64, range: u64) -> Vec<i64> {
        let mut random = Random::new(seed);
        let mut costs = vec![0; count * count];
        for u in 0..count {
            for v in u + 1..count {
                let cost = random.below(range) as i64;
                (costs[u * count + v], costs[v * count + u]) = (cost, cost);
            }
        }
        costs
    }

    fn cost_of(count: usize, costs: &[i64], mate: &[usize]) -> i64 {
        assert!((0..count).all(|u| mate[mate[u]] == u && mate[u] != u), "{mate:?}");
        (0..count).filter(|&u| u < mate[u]).map(|u| costs[u * count + mate[u]]).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn a_matching_is_as_cheap_as_brute_force_finds(half in 1usize..=6, seed in 0u64..u64::MAX, range in 1u64..60) {
            let count = 2 * half;
            let costs = symmetric(count, seed, range);
            let mate = cheapest(count, |a, b| costs[a * count + b] as f64 * UNIT);
            prop_assert_eq!(cost_of(count, &costs, &mate), brute(count, &costs));
        }
    }

    /// Few edges and prices that help: what many programs get must be as cheap as with all edges and none.
    #[test]
    fn few_edges_with_good_prices_cost_no_more_than_all_edges() {
        for seed in 0..60 {
            let count = 20 + 2 * (seed as usize % 30);
            let costs = symmetric(count, seed, if seed % 2 == 0 { 12 } else { 100_000 });
            let mate = cheapest(count, |a, b| costs[a * count + b] as f64 * UNIT);
            let all: Vec<Edge> = (0..count)
                .flat_map(|u| (u + 1..count).map(move |v| (u, v)))
                .map(|(u, v)| (u, v, costs[u * count + v]))
                .collect();
            let whole = blossom::solve(count, &all, &vec![0; count]).unwrap();
            assert_eq!(cost_of(count, &costs, &mate), cost_of(count, &costs, &whole.mate), "seed {seed}");
        }
    }

    #[test]
    fn programs_of_few_kinds_are_matched_as_cheaply() {
        // Many ties: 60 instances of 5 programs.
        let kinds = symmetric(5, 3, 1000);
        let count = 60;
        let cost = |a: usize, b: usize| if a % 5 == b % 5 { 700 } else { kinds[a % 5 * 5 + b % 5] };
        let costs: Vec<i64> = (0..count * count).map(|at| cost(at / count, at % count)).collect();
        let mate = cheapest(count, |a, b| cost(a, b) as f64 * UNIT);
        let all: Vec<Edge> =
            (0..count).flat_map(|u| (u + 1..count).map(move |v| (u, v, cost(u, v)))).collect();
        let whole = blossom::solve(count, &all, &vec![0; count]).unwrap();
        assert_eq!(cost_of(count, &costs, &mate), cost_of(count, &costs, &whole.mate));
    }

    /// benches/matching.rs tells how long it takes; here only that nothing goes on for ever.
    #[test]
    fn a_thousand_programs_are_paired_within_seconds() {
        let count = 1000;
        let mut random = Random::new(5);
        let facts: Vec<(u64, u64)> = (0..count).map(|_| (random.below(1000), random.below(1000))).collect();
        let both = |a: usize, b: usize| (facts[a].0 * facts[b].1 + facts[b].0 * facts[a].1) as f64 * 1e-6;
        let kinds = |a: usize, b: usize| if a % 26 == b % 26 { 3.0 } else { both(a % 26, b % 26) };
        for cost in [&both as &dyn Fn(usize, usize) -> f64, &kinds] {
            let began = std::time::Instant::now();
            let mate = cheapest(count, cost);
            println!("paired in {:?}", began.elapsed());
            assert!((0..count).all(|u| mate[mate[u]] == u) && began.elapsed().as_secs() < 20);
        }
    }

    #[test]
    fn a_graph_without_a_perfect_matching_is_reported() {
        assert!(blossom::solve(4, &[(0, 1, 1), (0, 2, 1), (0, 3, 1)], &[0; 4]).is_none());
    }
}
