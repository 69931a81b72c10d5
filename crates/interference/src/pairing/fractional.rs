//! Where the exact search for pairs begins: the relaxation in which a program may have half of one partner and
//! half of another.
//!
//! Halves are an assignment: everybody chooses a partner, and everybody is chosen once. Its optimum consists
//! of pairs and of circles of programs, and its prices prove that nothing is cheaper. Circles of even length
//! are pairs, too; only odd ones are left to `blossom`, two of which it joins at a time, so that it has a few searches to
//! do instead of hundreds (Applegate and Cook, Solving Large-Scale Matching Problems, 1993; Kolmogorov,
//! Blossom V, 2009, section 4).
//!
//! The assignment itself is found by an auction (Bertsekas, The Auction Algorithm, 1988): who has none bids for the
//! partner that costs it least, as much as that is better than the next one and a little more. What is more
//! than that becomes smaller from one auction to the next; at last it is so small that the assignment is the
//! cheapest. Its prices are then made exact along chains of choices (Bellman and Ford). The first and coarsest
//! auctions are those of a third of the programs, who begin with a third of theirs.

use std::collections::VecDeque;

use super::costs::{Costs, Halves};
use super::kinds::Kinds;

const NONE: usize = usize::MAX;
/// The first auction's least step, as a part of what costs differ by, and how much smaller each next one's is. Of 16
/// and 64, and of 5 and 10, these had the fewest bids and looks at whole rows, or nearly, in each of the benchmark's cases.
const FIRST: i64 = 64;
const STEP: i64 = 10;

/// From so many programs on a third of them bids first, in so many auctions. Instead of a third, a half, a quarter and
/// a fifth had more looks at whole rows in most cases; so had parts drawn in the order of the programs, not of their costs.
const MANY: usize = 64;
const THIRD: usize = 3;
const AUCTIONS: usize = 3;

/// Partners that each remembers as its least ones. More are looked at less often, and cost more each time: of 8
/// to 96 these took least.
const NEAR: usize = 8;
/// And one more, which is what all others have at least.
const EXAMINED: usize = NEAR + 1;

/// An even number of programs.
pub(super) fn halves(costs: &Costs) -> Halves {
    if let Some(kinds) = Kinds::few(costs) {
        return kinds.halves(costs);
    }
    let (choice, prices) = assignment(costs);
    let (pairs, left) = circles(&choice);
    Halves { pairs, left, tight: choice.into_iter().enumerate().collect(), prices }
}

/// Whom each chooses, and prices that prove it.
fn assignment(costs: &Costs) -> (Vec<usize>, Vec<i64>) {
    let mut search = Search::new(costs);
    search.auctions(usize::MAX);
    let rows = search.settle();
    // Whole, because costs and prices are even.
    let half = |(row, column): (&f64, &f64)| ((row + column) / 2.0) as i64;
    let prices = rows.iter().zip(&search.columns).map(half).collect();
    (search.choice, prices)
}

/// Pairs out of everybody's choice, and those that are left by circles of odd length.
fn circles(choice: &[usize]) -> (Vec<(usize, usize)>, Vec<usize>) {
    let (mut pairs, mut left) = (Vec::new(), Vec::new());
    let mut visited = vec![false; choice.len()];
    for first in 0..choice.len() {
        let mut at = first;
        while !visited[at] {
            let partner = choice[at];
            visited[at] = true;
            if visited[partner] {
                left.push(at);
            } else {
                visited[partner] = true;
                pairs.push((at.min(partner), at.max(partner)));
                at = choice[partner];
            }
        }
    }
    (pairs, left)
}

/// All numbers are whole and small enough to be exact.
struct Search<'c> {
    costs: &'c Costs,
    columns: Vec<f64>,
    /// The next auction's.
    step: i64,
    choice: Vec<usize>,
    chosen_by: Vec<usize>,
    near: Vec<Near>,
}

/// The partners of least cost - price when a row was last looked at whole, and what all others had then. Prices
/// only fall in auctions, so that no other can have come below that since.
#[derive(Clone)]
struct Near {
    columns: [u32; NEAR],
    costs: [f64; NEAR],
    others: f64,
}

impl Near {
    /// Any partners, none of which can be taken for the least.
    fn unknown() -> Near {
        let columns = std::array::from_fn(|at| at as u32);
        Near { columns, costs: [f64::INFINITY; NEAR], others: f64::NEG_INFINITY }
    }
}

impl Search<'_> {
    fn new(costs: &Costs) -> Search<'_> {
        let mut search = Search {
            costs,
            columns: costs.means(),
            step: (costs.range() / FIRST).max(1),
            choice: vec![NONE; costs.count],
            chosen_by: vec![NONE; costs.count],
            near: vec![Near::unknown(); costs.count],
        };
        if costs.count >= MANY {
            search.begin_with_a_third();
        }
        search
    }

    /// First prices from auctions of a third of the programs, drawn evenly from the cheapest to the dearest: each
    /// is worth so much that one of the third would take it as gladly as its choice, and none would rather. Whole rows
    /// are shorter there, and first steps as long as these differ by make every remembered partner worthless.
    fn begin_with_a_third(&mut self) {
        let count = self.costs.count;
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| self.columns[a].total_cmp(&self.columns[b]));
        let third: Vec<usize> = order.into_iter().skip(THIRD / 2).step_by(THIRD).collect();
        let costs = self.costs.among(&third);
        let mut search = Search::new(&costs);
        search.auctions(AUCTIONS);
        let prices = &mut self.columns[..count];
        prices.fill(f64::INFINITY);
        for (at, &row) in third.iter().enumerate() {
            let own = search.own(at);
            for (price, cost) in prices.iter_mut().zip(self.costs.row(row)) {
                let worth = cost - own;
                *price = if worth < *price { worth } else { *price };
            }
        }
        self.step = (self.step / STEP).max(1);
    }

    /// Auctions of ever smaller steps: so many, or until the assignment is the cheapest.
    fn auctions(&mut self, most: usize) {
        for _ in 0..most {
            self.auction(self.step as f64);
            if self.step == 1 {
                break;
            }
            self.step = (self.step / STEP).max(1);
        }
    }

    /// The least and the next value of cost - price in a row, and where the least is.
    fn least(&mut self, row: usize) -> (f64, f64, usize) {
        let found = self.least_near(row);
        if found.1 <= self.near[row].others {
            return found;
        }
        self.examine_all(row);
        self.least_near(row)
    }

    /// The same among the partners that the row remembers.
    fn least_near(&self, row: usize) -> (f64, f64, usize) {
        let near = &self.near[row];
        let (mut least, mut next, mut there) = (f64::INFINITY, f64::INFINITY, 0);
        for (&column, &cost) in near.columns.iter().zip(&near.costs) {
            let value = cost - self.columns[column as usize];
            if value < least {
                (least, next, there) = (value, least, column as usize);
            } else if value < next {
                next = value;
            }
        }
        (least, next, there)
    }

    /// Finds the partners that a row is to remember.
    fn examine_all(&mut self, row: usize) {
        let found = self.costs.nearest::<EXAMINED>(row, &self.columns, &self.near[row].columns);
        let near = &mut self.near[row];
        near.others = found[NEAR].0;
        for (at, &(_, column)) in found[..NEAR].iter().enumerate() {
            near.columns[at] = column as u32;
            // Where there are fewer, the row's own is named, which is infinite.
            near.costs[at] = self.costs.row(row)[column];
        }
    }

    /// A choice for everybody that costs it at most `step` more than its best. With `step` 1 no other is cheaper
    /// together, because costs differ by more than there are programs, if they differ.
    fn auction(&mut self, step: f64) {
        let mut open: Vec<usize> = (0..self.costs.count).rev().collect();
        while let Some(row) = open.pop() {
            let (best, next, at) = self.least(row);
            let has = self.choice[row];
            if has != NONE {
                if self.costs.row(row)[has] - self.columns[has] <= best + step {
                    continue;
                }
                self.chosen_by[has] = NONE;
            }
            // With two programs there is no next.
            let better = if next == f64::INFINITY { 0.0 } else { next - best };
            self.columns[at] -= better + step;
            let before = std::mem::replace(&mut self.chosen_by[at], row);
            self.choice[row] = at;
            if before != NONE {
                self.choice[before] = NONE;
                open.push(before);
            }
        }
    }

    /// Prices that are equal to the cost of every choice and nowhere above it. A choice that would be cheaper lowers
    /// the price of whom it means, so that who has that one now pays more itself; that ends, since nothing is cheaper
    /// all round.
    fn settle(&mut self) -> Vec<f64> {
        self.columns.iter_mut().for_each(|price| *price -= price.rem_euclid(2.0));
        let mut waits = vec![true; self.costs.count];
        let mut queue: VecDeque<usize> = (0..self.costs.count).collect();
        while let Some(row) = queue.pop_front() {
            waits[row] = false;
            let own = self.own(row);
            let costs = &self.costs.row(row)[..self.costs.count];
            for (column, (cost, price)) in costs.iter().zip(&mut self.columns).enumerate() {
                if cost - own < *price {
                    *price = cost - own;
                    let holder = self.chosen_by[column];
                    if !std::mem::replace(&mut waits[holder], true) {
                        queue.push_back(holder);
                    }
                }
            }
        }
        (0..self.costs.count).map(|row| self.own(row)).collect()
    }

    /// What a row's choice leaves of its cost.
    fn own(&self, row: usize) -> f64 {
        self.costs.row(row)[self.choice[row]] - self.columns[self.choice[row]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::Random;

    /// The cheapest way in which everybody chooses another, by sets of those who are chosen already.
    fn brute(costs: &Costs) -> i64 {
        let count = costs.count;
        let mut best = vec![i64::MAX; 1 << count];
        best[0] = 0;
        for set in 0..(1usize << count) - 1 {
            let row = set.count_ones() as usize;
            for column in (0..count).filter(|&column| set >> column & 1 == 0 && column != row) {
                if best[set] < i64::MAX {
                    let next = set | 1 << column;
                    best[next] = best[next].min(best[set] + costs.of(row, column));
                }
            }
        }
        best[(1 << count) - 1]
    }

    /// Everybody is chosen once, and nobody's choice costs more than the prices say that it must.
    fn prove(costs: &Costs, choice: &[usize], prices: &[i64]) -> Result<(), TestCaseError> {
        let everybody = 0..costs.count;
        let mut chosen = choice.to_vec();
        chosen.sort_unstable();
        prop_assert_eq!(chosen, everybody.clone().collect::<Vec<_>>());
        for (u, v) in
            everybody.clone().flat_map(|u| everybody.clone().map(move |v| (u, v))).filter(|(u, v)| u != v)
        {
            let slack = costs.of(u, v) - prices[u] - prices[v];
            prop_assert!(slack >= 0 && (choice[u] != v || slack == 0));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn halves_are_the_cheapest_and_their_prices_prove_it(half in 1usize..=4, seed in 0u64..u64::MAX, range in 1u64..40) {
            let count = 2 * half;
            let mut random = Random::new(seed);
            let cells: Vec<f64> = (0..count * count).map(|_| random.below(range) as f64 - 10.0).collect();
            let costs = Costs::new(count, |a, b| cells[a.min(b) * count + a.max(b)]);
            let (choice, prices) = assignment(&costs);
            let paid: i64 = (0..count).map(|row| costs.of(row, choice[row])).sum();
            prop_assert_eq!(paid, brute(&costs));
            prove(&costs, &choice, &prices)?;
        }

        #[test]
        fn an_earlier_bid_changes_no_optimum(more in 0usize..150, kind in 0u8..4, seed in 0u64..u64::MAX) {
            let count = MANY - 4 + 2 * (more / 2);
            let mut random = Random::new(seed);
            let mut unit = || random.below(1 << 20) as f64 / f64::from(1 << 20);
            let facts: Vec<(f64, f64)> = (0..count).map(|_| (unit(), unit())).collect();
            let noise: Vec<f64> = (0..count * count).map(|_| unit()).collect();
            let costs = Costs::new(count, |a, b| match kind {
                0 => noise[a.min(b) * count + a.max(b)],
                1 => facts[a].0 * facts[b].1 + facts[b].0 * facts[a].1,
                2 => (noise[a.min(b) * count + a.max(b)] * 4.0).floor(),
                _ => facts[a].0 + if noise[a.min(b) * count + a.max(b)] < 0.1 { 1e9 } else { facts[b].0 },
            });
            let (choice, prices) = assignment(&costs);
            prove(&costs, &choice, &prices)?;
        }

        #[test]
        fn pairings_by_kind_cost_the_same(kinds in 1usize..=4, half in 1usize..=4, seed in 0u64..u64::MAX, range in 1u64..40) {
            let count = 2 * half;
            let mut random = Random::new(seed);
            let kind: Vec<usize> = (0..count).map(|_| random.below(kinds as u64) as usize).collect();
            let cells: Vec<f64> = (0..kinds * kinds).map(|_| random.below(range) as f64 - 10.0).collect();
            let cost = |a: usize, b: usize| cells[kind[a].min(kind[b]) * kinds + kind[a].max(kind[b])];
            let costs = Costs::new(count, cost);
            let found = Kinds::find(&costs, count).expect("there are at most as many as programs").halves(&costs);
            // Everybody pays its price, as that is what its halves cost.
            prop_assert_eq!(2 * found.prices.iter().sum::<i64>(), brute(&costs));
            let mut all = found.left.clone();
            all.extend(found.pairs.iter().flat_map(|&(u, v)| [u, v]));
            all.sort_unstable();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            for &(u, v) in found.pairs.iter().chain(&found.tight) {
                prop_assert_eq!(costs.of(u, v), found.prices[u] + found.prices[v]);
            }
            for (u, v) in (0..count).flat_map(|u| (0..u).map(move |v| (u, v))) {
                prop_assert!(costs.of(u, v) >= found.prices[u] + found.prices[v]);
            }
        }
    }
}
