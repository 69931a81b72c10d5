//! The exact part of keeping: which program gets which place, so that together they keep most.
//!
//! Programs and places that overlap form a graph; its components are small, because old places are
//! disjoint and units of the machine nest. In a component where every program, or every place, has a
//! single choice, taking the largest overlap first is best; other components up to `EXACT` programs
//! are solved exactly (Kuhn 1955, Munkres 1957), larger ones by largest overlap first and exchanges
//! of two until none helps. Cost: n³ in components that are not stars.

/// Components up to this many programs are solved exactly.
const EXACT: usize = 24;
const NONE: usize = usize::MAX;

/// Of programs (or groups of them), one after the other, with which places each has CPUs in common, and
/// how many, in order of place.
#[derive(Default)]
pub(crate) struct Edges {
    pub all: Vec<(usize, u32)>,
    ends: Vec<usize>,
}

impl Edges {
    /// What was added to `all` since the last end are the next program's, as far as places are `open`.
    pub fn end(&mut self, open: impl Fn(usize) -> bool) {
        let start = self.ends.last().copied().unwrap_or(0);
        let mut end = start;
        for at in start..self.all.len() {
            if open(self.all[at].0) {
                self.all[end] = self.all[at];
                end += 1;
            }
        }
        self.all.truncate(end);
        self.ends.push(end);
    }
}

impl std::ops::Index<usize> for Edges {
    type Output = [(usize, u32)];

    fn index(&self, program: usize) -> &[(usize, u32)] {
        let start = program.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..self.ends[program]]
    }
}

/// Which program gets which place, so that together they keep most: each connected component by itself.
pub(crate) fn best(edges: &Edges, places: usize) -> Vec<(usize, usize)> {
    let mut parent: Vec<usize> = (0..places).collect();
    fn root(parent: &mut [usize], mut node: usize) -> usize {
        while parent[node] != node {
            parent[node] = parent[parent[node]];
            node = parent[node];
        }
        node
    }
    for program in 0..edges.ends.len() {
        for pair in edges[program].windows(2) {
            let (a, b) = (root(&mut parent, pair[0].0), root(&mut parent, pair[1].0));
            parent[a.max(b)] = a.min(b);
        }
    }
    let mut members: Vec<(usize, usize)> = Vec::new();
    for program in 0..edges.ends.len() {
        if let Some(&(place, _)) = edges[program].first() {
            members.push((root(&mut parent, place), program));
        }
    }
    members.sort_unstable();
    let mut found = Vec::with_capacity(members.len());
    let mut programs: Vec<usize> = Vec::new();
    for component in members.chunk_by(|one, other| one.0 == other.0) {
        programs.clear();
        programs.extend(component.iter().map(|&(_, program)| program));
        solve(&programs, edges, &mut found);
    }
    found
}

/// Adds the programs of one component, each with its place, to the `found`.
fn solve(programs: &[usize], edges: &Edges, found: &mut Vec<(usize, usize)>) {
    if let [program] = programs {
        // With nobody to compete with it takes the place where it keeps most, the first of several.
        let most = edges[*program].iter().min_by_key(|&&(place, kept)| (std::cmp::Reverse(kept), place));
        found.extend(most.map(|&(place, _)| (*program, place)));
        return;
    }
    let mut places: Vec<usize> =
        programs.iter().flat_map(|&program| edges[program].iter().map(|&(place, _)| place)).collect();
    let ends = places.len();
    places.sort_unstable();
    places.dedup();
    let star = ends == programs.len() || ends == places.len();
    if star || programs.len() > EXACT || places.len() > 4 * EXACT {
        let mut chosen = greedy(programs, edges, &places);
        if !star {
            exchange(programs, edges, &places, &mut chosen);
        }
        let chosen = chosen.into_iter().zip(programs).filter(|(place, _)| *place != NONE);
        found.extend(chosen.map(|(place, &program)| (program, place)));
    } else {
        found.extend(hungarian(programs, edges, &places));
    }
}

fn greedy(programs: &[usize], edges: &Edges, places: &[usize]) -> Vec<usize> {
    let mut all: Vec<(std::cmp::Reverse<u32>, usize, usize)> = Vec::new();
    for (row, &program) in programs.iter().enumerate() {
        all.extend(edges[program].iter().map(|&(place, kept)| (std::cmp::Reverse(kept), row, place)));
    }
    all.sort_unstable();
    let mut chosen = vec![NONE; programs.len()];
    let mut taken = vec![false; places.len()];
    for (_, row, place) in all {
        let column = places.binary_search(&place).expect("place of this component");
        if chosen[row] == NONE && !taken[column] {
            chosen[row] = place;
            taken[column] = true;
        }
    }
    chosen
}

/// Exchanges two programs' partitions, or moves one to a free one, while that keeps more CPUs.
fn exchange(programs: &[usize], edges: &Edges, places: &[usize], chosen: &mut [usize]) {
    let kept = |row: usize, place: usize| {
        edges[programs[row]].binary_search_by_key(&place, |&(place, _)| place).map_or(0, |at| {
            let (_, kept) = edges[programs[row]][at];
            kept
        })
    };
    let mut holder = vec![NONE; places.len()];
    for (row, &place) in chosen.iter().enumerate() {
        if place != NONE {
            holder[places.binary_search(&place).expect("place of this component")] = row;
        }
    }
    // Each round gains at least one CPU; the bound only guards against a slow crawl.
    for _ in 0..64 {
        let mut better = false;
        for row in 0..programs.len() {
            for &(place, gain) in &edges[programs[row]] {
                let column = places.binary_search(&place).expect("place of this component");
                let (mine, other) = (chosen[row], holder[column]);
                if mine == place {
                    continue;
                }
                let now = kept(row, mine) + if other == NONE { 0 } else { kept(other, place) };
                let then = gain + if other == NONE { 0 } else { kept(other, mine) };
                if then > now {
                    chosen[row] = place;
                    holder[column] = row;
                    if other != NONE {
                        chosen[other] = mine;
                    }
                    if mine != NONE {
                        holder[places.binary_search(&mine).expect("place of this component")] = other;
                    }
                    better = true;
                }
            }
        }
        if !better {
            break;
        }
    }
}

/// The exact assignment (shortest augmenting paths with potentials).
fn hungarian(programs: &[usize], edges: &Edges, places: &[usize]) -> Vec<(usize, usize)> {
    // As many columns as rows at least; columns beyond `places` mean "some other partition".
    let rows = programs.len();
    let columns = places.len().max(rows) + rows;
    let cost = |row: usize, column: usize| -> i64 {
        let Some(&place) = places.get(column) else { return 0 };
        let edge = &edges[programs[row]];
        edge.binary_search_by_key(&place, |&(place, _)| place).map_or(0, |at| -i64::from(edge[at].1))
    };
    let (mut up, mut vp) = (vec![0i64; rows + 1], vec![0i64; columns + 1]);
    let (mut holder, mut way) = (vec![0usize; columns + 1], vec![0usize; columns + 1]);
    for row in 1..=rows {
        holder[0] = row;
        let mut column = 0;
        let mut least = vec![i64::MAX; columns + 1];
        let mut used = vec![false; columns + 1];
        loop {
            used[column] = true;
            let current = holder[column];
            let (mut delta, mut next) = (i64::MAX, 0);
            for candidate in 1..=columns {
                if used[candidate] {
                    continue;
                }
                let reduced = cost(current - 1, candidate - 1) - up[current] - vp[candidate];
                if reduced < least[candidate] {
                    least[candidate] = reduced;
                    way[candidate] = column;
                }
                if least[candidate] < delta {
                    delta = least[candidate];
                    next = candidate;
                }
            }
            for candidate in 0..=columns {
                if used[candidate] {
                    up[holder[candidate]] += delta;
                    vp[candidate] -= delta;
                } else {
                    least[candidate] = least[candidate].saturating_sub(delta);
                }
            }
            column = next;
            if holder[column] == 0 {
                break;
            }
        }
        while column != 0 {
            let previous = way[column];
            holder[column] = holder[previous];
            column = previous;
        }
    }
    (1..=columns)
        .filter(|&column| holder[column] != 0 && cost(holder[column] - 1, column - 1) < 0)
        .map(|column| (programs[holder[column] - 1], places[column - 1]))
        .collect()
}
