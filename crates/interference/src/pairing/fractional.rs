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
//! cheapest. Its prices are then made exact along chains of choices (Bellman and Ford).

use std::collections::VecDeque;

use super::matching::{Costs, LANES};

const NONE: usize = usize::MAX;
/// The first auction's least step, as a part of what costs differ by, and how much smaller each next one's is.
const FIRST: i64 = 16;
const STEP: i64 = 5;

/// Partners that each remembers as its least ones. More are looked at less often, and cost more each time: of 8
/// to 96 these took least.
const NEAR: usize = 8;

/// An optimal assignment.
pub(super) struct Halves {
    /// Whom each chooses.
    pub choice: Vec<usize>,
    /// price(u) + price(v) <= cost for all pairs, and equal where one chooses the other.
    pub prices: Vec<i64>,
}

/// An even number of programs.
pub(super) fn halves(costs: &Costs) -> Halves {
    let mut search = Search::new(costs);
    let mut step = (costs.range() / FIRST).max(1);
    loop {
        search.auction(step as f64);
        if step == 1 {
            break;
        }
        step = (step / STEP).max(1);
    }
    let rows = search.settle();
    // Whole, because costs and prices are even.
    let half = |(row, column): (&f64, &f64)| ((row + column) / 2.0) as i64;
    let prices = rows.iter().zip(&search.columns).map(half).collect();
    Halves { choice: search.choice, prices }
}

/// All numbers are whole and small enough to be exact.
struct Search<'c> {
    costs: &'c Costs,
    columns: Vec<f64>,
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
    const NOTHING: Near =
        Near { columns: [0; NEAR], costs: [f64::INFINITY; NEAR], others: f64::NEG_INFINITY };
}

impl Search<'_> {
    fn new(costs: &Costs) -> Search<'_> {
        Search {
            costs,
            columns: vec![0.0; costs.width],
            choice: vec![NONE; costs.count],
            chosen_by: vec![NONE; costs.count],
            near: vec![Near::NOTHING; costs.count],
        }
    }

    /// The least and the next value of cost - price in a row, and where the least is.
    fn least(&mut self, row: usize) -> (f64, f64, usize) {
        let found = self.least_near(row);
        if found.1 <= self.near[row].others {
            return found;
        }
        self.look_at_all(row);
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
    fn look_at_all(&mut self, row: usize) {
        let costs = self.costs.row(row);
        // One more than is remembered: what all others have at least.
        let (mut values, mut columns) = ([f64::INFINITY; NEAR + 1], [0; NEAR + 1]);
        let chunks = costs.chunks_exact(LANES).zip(self.columns.chunks_exact(LANES));
        for (chunk, (costs, prices)) in chunks.enumerate() {
            // Lane by lane, so that the compiler can take several at a time; most chunks hold none of the least.
            let value: [f64; LANES] = std::array::from_fn(|lane| costs[lane] - prices[lane]);
            let bound = values[NEAR];
            if !value.iter().fold(false, |any, &value| any | (value < bound)) {
                continue;
            }
            for (lane, &value) in value.iter().enumerate() {
                if value < values[NEAR] {
                    let at = values.partition_point(|&known| known <= value);
                    values.copy_within(at..NEAR, at + 1);
                    columns.copy_within(at..NEAR, at + 1);
                    (values[at], columns[at]) = (value, chunk * LANES + lane);
                }
            }
        }
        let near = &mut self.near[row];
        near.others = values[NEAR];
        for (at, &column) in columns[..NEAR].iter().enumerate() {
            near.columns[at] = column as u32;
            near.costs[at] = if values[at] < f64::INFINITY { costs[column] } else { f64::INFINITY };
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

    proptest! {
        #[test]
        fn halves_are_the_cheapest_and_their_prices_prove_it(half in 1usize..=4, seed in 0u64..u64::MAX, range in 1u64..40) {
            let count = 2 * half;
            let mut random = Random::new(seed);
            let cells: Vec<f64> = (0..count * count).map(|_| random.below(range) as f64).collect();
            let costs = Costs::new(count, |a, b| cells[a.min(b) * count + a.max(b)]);
            let found = halves(&costs);
            let paid: i64 = (0..count).map(|row| costs.of(row, found.choice[row])).sum();
            prop_assert_eq!(paid, brute(&costs));
            let mut chosen = found.choice.clone();
            chosen.sort_unstable();
            prop_assert_eq!(chosen, (0..count).collect::<Vec<_>>());
            for (u, v) in (0..count).flat_map(|u| (0..count).map(move |v| (u, v))).filter(|(u, v)| u != v) {
                let slack = costs.of(u, v) - found.prices[u] - found.prices[v];
                prop_assert!(slack >= 0 && (found.choice[u] != v || slack == 0));
            }
        }
    }
}
