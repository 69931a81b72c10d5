//! Where the exact search for pairs begins: the relaxation in which a program may have half of one partner and
//! half of another.
//!
//! Halves are an assignment: everybody chooses a partner, and everybody is chosen once. Its optimum consists
//! of pairs and of circles of programs, and its prices prove that nothing is cheaper. Circles of even length
//! are pairs, too; only odd ones are left to `blossom`, two of which it joins at a time, so that it has a dozen searches to
//! do instead of hundreds (Applegate and Cook, Solving Large-Scale Matching Problems, 1993; Kolmogorov,
//! Blossom V, 2009, section 4).
//!
//! The assignment itself: an auction (Bertsekas 1979) gives most programs theirs. The others' come by shortest
//! augmenting paths, all of a phase at a time, over those pairs alone that have least slack; what is left out there is
//! looked at afterwards, and added where it would have helped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::matching::Costs;

const NONE: usize = usize::MAX;
/// Bids for each program.
const BIDS: usize = 6;
/// Choices tried for every program at first, and added for each at a time.
const NEAR: usize = 8;
const MORE: usize = 8;

/// An optimal assignment.
pub(super) struct Halves {
    /// Whom each chooses.
    pub choice: Vec<usize>,
    /// price(u) + price(v) <= cost for all pairs, and equal where one chooses the other. Whole because costs are even.
    pub prices: Vec<i64>,
}

/// Costs must be even; their number of programs, too.
pub(super) fn halves(costs: &Costs) -> Halves {
    let mut search = Search::new(costs);
    search.auction();
    search.gather();
    loop {
        search.assign();
        if !search.add_missing() {
            break;
        }
    }
    let half = |(row, column): (&i64, &i64)| (row + column) / 2;
    let prices = search.rows.iter().zip(&search.columns).map(half).collect();
    Halves { choice: search.choice, prices }
}

struct Search<'c> {
    costs: &'c Costs,
    count: usize,
    /// rows[u] + columns[v] <= cost for all choices in `near`, equal where chosen.
    rows: Vec<i64>,
    columns: Vec<i64>,
    choice: Vec<usize>,
    chosen_by: Vec<usize>,
    near: Vec<Vec<usize>>,
    /// Of one phase: distance of each row and column from those without a choice.
    far: Vec<i64>,
    far_columns: Vec<i64>,
}

impl<'c> Search<'c> {
    fn new(costs: &'c Costs) -> Search<'c> {
        let count = costs.count;
        Search {
            costs,
            count,
            rows: vec![0; count],
            columns: vec![0; count],
            choice: vec![NONE; count],
            chosen_by: vec![NONE; count],
            near: Vec::new(),
            far: vec![0; count],
            far_columns: vec![0; count],
        }
    }

    /// The least and the next value of cost - price in a row, without the program itself, and where the least is.
    fn least(&self, row: usize) -> (i64, i64, usize) {
        let (mut best, mut next, mut at) = (i64::MAX, i64::MAX, NONE);
        for (column, (cost, price)) in self.costs.row(row).iter().zip(&self.columns).enumerate() {
            let value = cost - price;
            if value < next && column != row {
                if value < best {
                    (best, next, at) = (value, best, column);
                } else {
                    next = value;
                }
            }
        }
        (best, next, at)
    }

    /// Every program in turn bids for the partner that costs it least, as much as that is better than the next one.
    fn auction(&mut self) {
        let mut open: Vec<usize> = (0..self.count).rev().collect();
        for _ in 0..BIDS * self.count {
            let Some(row) = open.pop() else { break };
            let (best, next, at) = self.least(row);
            if next == i64::MAX {
                break;
            }
            // A price only ever falls; where two are alike nothing is bid, and the first who came stays.
            let before = self.chosen_by[at];
            if before == NONE || next > best {
                self.columns[at] -= next - best;
                self.chosen_by[at] = row;
                self.choice[row] = at;
                if before != NONE {
                    self.choice[before] = NONE;
                    open.push(before);
                }
            }
        }
    }

    /// Prices of rows as high as they may be, and the choices of least slack; a choice that is not among the best stays
    /// only if it is as good.
    fn gather(&mut self) {
        let mut best = Vec::with_capacity(NEAR + 1);
        for row in 0..self.count {
            self.costs.nearest(row, &self.columns, NEAR, &mut best);
            self.rows[row] = best.first().map_or(0, |&(slack, _)| slack);
            let choice = self.choice[row];
            if choice != NONE && self.slack(row, choice) > 0 {
                (self.choice[row], self.chosen_by[choice]) = (NONE, NONE);
            }
            let mut near: Vec<usize> = best.iter().map(|&(_, column)| column).collect();
            // Its neighbour in the list, so that all can be served.
            near.push(row ^ 1);
            near.extend(Some(self.choice[row]).filter(|&choice| choice != NONE));
            near.sort_unstable();
            near.dedup();
            self.near.push(near);
        }
    }

    fn slack(&self, row: usize, column: usize) -> i64 {
        self.costs.row(row)[column] - self.rows[row] - self.columns[column]
    }

    /// Choices for all, by phases: paths without slack first; where none are left prices change so that there are.
    fn assign(&mut self) {
        loop {
            while self.augment() {}
            if !self.choice.contains(&NONE) {
                return;
            }
            let nearest = self.measure();
            self.change(nearest);
        }
    }

    /// Gives as many as possible of those without a choice one along paths without slack, each place visited once.
    /// Whether anybody got one.
    fn augment(&mut self) -> bool {
        let mut seen = vec![false; self.count];
        let mut any = false;
        // Row, and which of its choices is tried next.
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in 0..self.count {
            if self.choice[root] != NONE {
                continue;
            }
            path.clear();
            path.push((root, 0));
            while let Some(&mut (row, ref mut next)) = path.last_mut() {
                let Some(&column) = self.near[row].get(*next) else {
                    path.pop();
                    continue;
                };
                *next += 1;
                if seen[column] || self.slack(row, column) != 0 {
                    continue;
                }
                seen[column] = true;
                let holder = self.chosen_by[column];
                if holder != NONE {
                    path.push((holder, 0));
                    continue;
                }
                // Everybody on the path takes what it tried last.
                for &(row, next) in &path {
                    let column = self.near[row][next - 1];
                    (self.choice[row], self.chosen_by[column]) = (column, row);
                }
                any = true;
                break;
            }
        }
        any
    }

    /// Distances in slack from those without a choice (Dijkstra), as far as the nearest partner whom nobody has chosen;
    /// how far that is. Prices further away say what they are worth already.
    fn measure(&mut self) -> i64 {
        let mut nearest = i64::MAX;
        self.far.fill(i64::MAX);
        self.far_columns.fill(i64::MAX);
        let mut heap: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
        for row in 0..self.count {
            if self.choice[row] == NONE {
                self.far[row] = 0;
                heap.push(Reverse((0, row)));
            }
        }
        while let Some(Reverse((far, row))) = heap.pop() {
            if far >= nearest {
                break;
            }
            if far > self.far[row] {
                continue;
            }
            for at in 0..self.near[row].len() {
                let column = self.near[row][at];
                let there = far + self.slack(row, column);
                if there < self.far_columns[column] {
                    self.far_columns[column] = there;
                    let holder = self.chosen_by[column];
                    if holder == NONE {
                        nearest = nearest.min(there);
                    } else if there < self.far[holder] {
                        // What is chosen has no slack.
                        self.far[holder] = there;
                        heap.push(Reverse((there, holder)));
                    }
                }
            }
        }
        nearest
    }

    /// Prices by which the shortest paths to that distance are without slack.
    fn change(&mut self, nearest: i64) {
        for (price, far) in self.rows.iter_mut().zip(&self.far) {
            *price += (nearest - far).max(0);
        }
        for (price, far) in self.columns.iter_mut().zip(&self.far_columns) {
            *price -= (nearest - far).max(0);
        }
    }

    /// Looks at all choices; those that cost less than they are worth are added, the worst of each program, and
    /// prices and choices fall back to what then holds. Whether there were any.
    fn add_missing(&mut self) -> bool {
        let mut any = false;
        let mut over: Vec<(i64, usize)> = Vec::new();
        for row in 0..self.count {
            let own = self.rows[row];
            let slacks = self.costs.row(row).iter().zip(&self.columns).map(|(cost, price)| cost - price);
            over.clear();
            over.extend(slacks.zip(0..).filter(|&(slack, column)| slack < own && column != row));
            if over.is_empty() {
                continue;
            }
            over.sort_unstable();
            over.truncate(MORE);
            self.rows[row] = over[0].0;
            self.near[row].extend(over.iter().map(|&(_, column)| column));
            let choice = self.choice[row];
            if choice != NONE {
                (self.choice[row], self.chosen_by[choice]) = (NONE, NONE);
            }
            any = true;
        }
        any
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
                    best[next] = best[next].min(best[set] + costs.row(row)[column]);
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
            let paid: i64 = (0..count).map(|row| costs.row(row)[found.choice[row]]).sum();
            prop_assert_eq!(paid, brute(&costs));
            let mut chosen = found.choice.clone();
            chosen.sort_unstable();
            prop_assert_eq!(chosen, (0..count).collect::<Vec<_>>());
            for (u, v) in (0..count).flat_map(|u| (0..count).map(move |v| (u, v))).filter(|(u, v)| u != v) {
                let slack = costs.row(u)[v] - found.prices[u] - found.prices[v];
                prop_assert!(slack >= 0 && (found.choice[u] != v || slack == 0));
            }
        }
    }
}
