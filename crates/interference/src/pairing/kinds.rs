//! Programs that cost the same beside everybody else are one kind, and where there are few kinds, the relaxation into
//! halves (`fractional`) is a transport of their members to each other: a problem of as many rows as there are kinds.
//!
//! Auctions are slow there: equal programs outbid each other by the least step. Here everybody of a kind goes the
//! shortest way at once (successive shortest paths with prices; Ahuja, Magnanti and Orlin, Network Flows, 1993,
//! section 9.7).

use std::collections::HashMap;

use super::costs::{Costs, Halves};

const NONE: usize = usize::MAX;
/// From so many programs a kind on average this is quicker than an auction, by far.
const MEMBERS: usize = 4;

/// The programs of each kind.
pub(super) struct Kinds(Vec<Vec<usize>>);

impl Kinds {
    /// `None` where they are many.
    pub fn few(costs: &Costs) -> Option<Kinds> {
        Kinds::find(costs, costs.count / MEMBERS)
    }

    pub(super) fn find(costs: &Costs, most: usize) -> Option<Kinds> {
        let mut kinds: Vec<Vec<usize>> = Vec::new();
        // The same costs in whatever order have the same sum of bits.
        let mut with_sum: HashMap<u64, Vec<usize>> = HashMap::new();
        for program in 0..costs.count {
            let sum = costs.row(program).iter().fold(0_u64, |sum, cost| sum.wrapping_add(cost.to_bits()));
            let known = with_sum.entry(sum).or_default();
            match known.iter().find(|&&kind| alike(costs, kinds[kind][0], program)) {
                Some(&kind) => kinds[kind].push(program),
                None if kinds.len() == most => return None,
                None => {
                    known.push(kinds.len());
                    kinds.push(vec![program]);
                }
            }
        }
        Some(Kinds(kinds))
    }

    pub fn halves(self, costs: &Costs) -> Halves {
        let transport = Transport::cheapest(&self, costs);
        // Whole, because costs and prices are even.
        let mut prices = vec![0; costs.count];
        for (kind, members) in self.0.iter().enumerate() {
            let price = ((transport.rows[kind] + transport.columns[kind]) / 2.0) as i64;
            members.iter().for_each(|&member| prices[member] = price);
        }
        self.paired(&transport.amounts, prices)
    }

    /// Who goes one way goes with one who comes back, two of a kind that stay with each other. What is then left
    /// of odd numbers leads round in circuits of kinds; each second step of one makes a pair, and one of an odd
    /// number stays alone.
    fn paired(self, amounts: &[usize], prices: Vec<i64>) -> Halves {
        let kinds = self.0.len();
        let mut free = self.0;
        let (mut pairs, mut left, mut tight) = (Vec::new(), Vec::new(), Vec::new());
        let mut odd = vec![false; kinds * kinds];
        for one in 0..kinds {
            for other in one..kinds {
                let there = amounts[one * kinds + other];
                let both = if one == other { there } else { there + amounts[other * kinds + one] };
                for _ in 0..both / 2 {
                    pairs.push((pop_free(&mut free, one), pop_free(&mut free, other)));
                }
                (odd[one * kinds + other], odd[other * kinds + one]) = (both % 2 == 1, both % 2 == 1);
            }
        }
        for first in 0..kinds {
            let on_it: Vec<usize> =
                circuit(&mut odd, kinds, first).into_iter().map(|kind| pop_free(&mut free, kind)).collect();
            let alone = on_it.len() % 2;
            left.extend(&on_it[..alone]);
            pairs.extend(on_it[alone..].chunks_exact(2).map(|two| (two[0], two[1])));
            let next = on_it.iter().skip(1).chain(on_it.first());
            tight.extend(
                on_it.iter().zip(next).filter(|(one, other)| one != other).map(|(&one, &other)| (one, other)),
            );
        }
        Halves { pairs, left, tight, prices }
    }
}

fn pop_free(free: &mut [Vec<usize>], kind: usize) -> usize {
    free[kind].pop().expect("a kind has as many members as go")
}

/// Whether both cost the same beside all others. Who is alike to the same one is alike to each other, since then all
/// costs among them are the same, too.
fn alike(costs: &Costs, one: usize, other: usize) -> bool {
    let (low, high) = (one.min(other), one.max(other));
    let (one, other) = (costs.row(one), costs.row(other));
    [0..low, low + 1..high, high + 1..costs.count].into_iter().all(|part| one[part.clone()] == other[part])
}

/// All steps that can be reached from a kind, each once, as one way round (Hierholzer, 1873): every kind has an even
/// number of them. They are taken out; empty where there are none.
fn circuit(odd: &mut [bool], kinds: usize, first: usize) -> Vec<usize> {
    let (mut open, mut round) = (vec![first], Vec::new());
    while let Some(&kind) = open.last() {
        match (0..kinds).find(|next| odd[kind * kinds + next]) {
            Some(next) => {
                (odd[kind * kinds + next], odd[next * kinds + kind]) = (false, false);
                open.push(next);
            }
            None => round.extend(open.pop()),
        }
    }
    // It ends where it began.
    round.pop();
    round
}

/// How many of each kind choose each kind, and prices that prove that nothing is cheaper.
struct Transport {
    amounts: Vec<usize>,
    rows: Vec<f64>,
    columns: Vec<f64>,
}

impl Transport {
    fn cheapest(kinds: &Kinds, costs: &Costs) -> Transport {
        let sizes: Vec<usize> = kinds.0.iter().map(Vec::len).collect();
        let cost = |one: usize, other: usize| match &kinds.0[one][..] {
            _ if one != other => costs.row(kinds.0[one][0])[kinds.0[other][0]],
            [first, second, ..] => costs.row(*first)[*second],
            // Nobody has itself.
            _ => f64::INFINITY,
        };
        let count = sizes.len();
        let cells: Vec<f64> = (0..count * count).map(|at| cost(at / count, at % count)).collect();
        // What each has to pay at least, so that nothing is below its prices from the beginning.
        let least = |row: usize| cells[row * count..][..count].iter().copied().fold(f64::INFINITY, f64::min);
        let rows = (0..count).map(least).collect();
        let mut transport = Transport { amounts: vec![0; count * count], rows, columns: vec![0.0; count] };
        let mut wanted = sizes.clone();
        for (row, &size) in sizes.iter().enumerate() {
            let mut left = size;
            while left > 0 {
                left -= transport.send(&cells, row, left, &mut wanted);
            }
        }
        transport
    }

    /// Sends as many of `left` as go the shortest way from a row to a column that wants more, and tells how many.
    fn send(&mut self, cells: &[f64], from: usize, left: usize, wanted: &mut [usize]) -> usize {
        let count = wanted.len();
        // To each column: how far, from which row, whether nothing is shorter; to each row: how far, from which column.
        let (mut far, mut through, mut done) =
            (vec![f64::INFINITY; count], vec![NONE; count], vec![false; count]);
        let mut reached: Vec<Option<(f64, usize)>> = vec![None; count];
        reached[from] = Some((0.0, NONE));
        let mut open = vec![from];
        let end = loop {
            while let Some(row) = open.pop() {
                let begun = reached[row].map_or(0.0, |(far, _)| far);
                for column in 0..count {
                    let there = begun + cells[row * count + column] - self.rows[row] - self.columns[column];
                    if !done[column] && there < far[column] {
                        (far[column], through[column]) = (there, row);
                    }
                }
            }
            let nearer = |one: &usize, other: &usize| far[*one].total_cmp(&far[*other]);
            let column =
                (0..count).filter(|&column| !done[column]).min_by(nearer).expect("somebody wants more");
            done[column] = true;
            if wanted[column] > 0 {
                break column;
            }
            for row in (0..count).filter(|row| self.amounts[row * count + column] > 0) {
                if reached[row].is_none() {
                    reached[row] = Some((far[column], column));
                    open.push(row);
                }
            }
        };
        for at in 0..count {
            if let Some((begun, _)) = reached[at] {
                self.rows[at] += far[end] - begun;
            }
            if done[at] {
                self.columns[at] -= far[end] - far[at];
            }
        }
        // Back along the way: who was sent to a column on it goes on to the next.
        let (mut more, mut fewer) = (Vec::new(), Vec::new());
        let mut column = end;
        loop {
            let row = through[column];
            more.push(row * count + column);
            match reached[row] {
                Some((_, before)) if before != NONE => {
                    fewer.push(row * count + before);
                    column = before;
                }
                _ => break,
            }
        }
        let there = fewer.iter().map(|&at| self.amounts[at]).min().unwrap_or(left);
        let most = left.min(wanted[end]).min(there);
        more.into_iter().for_each(|at| self.amounts[at] += most);
        fewer.into_iter().for_each(|at| self.amounts[at] -= most);
        wanted[end] -= most;
        most
    }
}
