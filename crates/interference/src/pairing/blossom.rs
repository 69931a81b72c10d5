//! Minimum-weight perfect matching in a graph with few edges, from any prices that are feasible.
//!
//! Edmonds' algorithm (Paths, Trees, and Flowers, 1965) in the form of Galil (Efficient Algorithms for Finding
//! Maximum Matching in Graphs, 1986), the data structures after J. van Rantwijk's description (2008). What is
//! different: it begins from prices given by the caller, and matches what is tight under them, so that only
//! few searches remain.
//!
//! Terms: a vertex's price y; an edge's slack w - y_u - y_v; a blossom is an odd cycle of tight edges that is
//! treated as one vertex; S and T are the even and odd ends of alternating trees. Endpoint 2k and 2k+1 are the
//! two ends of edge k. Prices are kept as -2 y, so that all numbers stay whole: the caller's prices are whole, so
//! ours begin even, those of all tree roots change together, and the slack between two S is even.

mod nested;

const NONE: usize = usize::MAX;
const FREE: u8 = 0;
const S: u8 = 1;
const T: u8 = 2;
/// S, and on one of the two paths that are being traced.
const TRACED: u8 = 5;

/// Two vertices and what it costs to match them.
pub(super) type Edge = (usize, usize, i64);

/// A perfect matching and why nothing is cheaper.
pub(super) struct Matched {
    pub mate: Vec<usize>,
    /// -2 y of each vertex.
    pub prices: Vec<i64>,
    /// The outermost blossom that a vertex lies in; itself where in none.
    outer: Vec<usize>,
}

impl Matched {
    /// Twice the slack of an edge that the graph did not have; `None` inside a blossom, where slack is larger than
    /// prices tell.
    pub fn slack(&self, u: usize, v: usize, cost: i64) -> Option<i64> {
        (self.outer[u] != self.outer[v]).then(|| self.prices[u] + self.prices[v] + 2 * cost)
    }
}

struct Solver<'e> {
    count: usize,
    edges: &'e [Edge],
    /// The far endpoints of each vertex's edges.
    ends: Vec<Vec<usize>>,
    /// The far endpoint of the matched edge.
    mate: Vec<usize>,
    label: Vec<u8>,
    /// The endpoint through which a label came.
    label_end: Vec<usize>,
    outer: Vec<usize>,
    parent: Vec<usize>,
    children: Vec<Vec<usize>>,
    base: Vec<usize>,
    /// Endpoints that join a blossom's children.
    joints: Vec<Vec<usize>>,
    /// The edge of least slack to an S vertex.
    best: Vec<usize>,
    best_list: Vec<Option<Vec<usize>>>,
    unused: Vec<usize>,
    dual: Vec<i64>,
    allowed: Vec<bool>,
    queue: Vec<usize>,
}

/// A cheapest perfect matching of `count` vertices. `prices[u] + prices[v] <= cost` must hold for every
/// edge. `None` where there is no perfect matching.
pub(super) fn solve(count: usize, edges: &[Edge], prices: &[i64]) -> Option<Matched> {
    let mut ends = vec![Vec::new(); count];
    for (k, &(u, v, _)) in edges.iter().enumerate() {
        ends[u].push(2 * k + 1);
        ends[v].push(2 * k);
    }
    let mut dual: Vec<i64> = prices.iter().map(|price| -2 * price).collect();
    dual.resize(2 * count, 0);
    let mut solver = Solver {
        count,
        edges,
        ends,
        mate: vec![NONE; count],
        label: vec![FREE; 2 * count],
        label_end: vec![NONE; 2 * count],
        outer: (0..count).collect(),
        parent: vec![NONE; 2 * count],
        children: vec![Vec::new(); 2 * count],
        base: (0..count).chain(std::iter::repeat_n(NONE, count)).collect(),
        joints: vec![Vec::new(); 2 * count],
        best: vec![NONE; 2 * count],
        best_list: vec![None; 2 * count],
        unused: (count..2 * count).rev().collect(),
        dual,
        allowed: vec![false; edges.len()],
        queue: Vec::new(),
    };
    solver.match_tight();
    while solver.mate.contains(&NONE) {
        if !solver.stage() {
            return None;
        }
    }
    let mate = (0..count).map(|v| solver.end(solver.mate[v])).collect();
    solver.dual.truncate(count);
    Some(Matched { mate, prices: solver.dual, outer: solver.outer })
}

impl Solver<'_> {
    /// The vertex at an endpoint.
    fn end(&self, endpoint: usize) -> usize {
        let edge = &self.edges[endpoint / 2];
        if endpoint.is_multiple_of(2) { edge.0 } else { edge.1 }
    }

    /// Twice an edge's slack.
    fn slack(&self, edge: usize) -> i64 {
        let (u, v, cost) = self.edges[edge];
        self.dual[u] + self.dual[v] + 2 * cost
    }

    fn leaves(&self, blossom: usize) -> Vec<usize> {
        let (mut found, mut open) = (Vec::new(), vec![blossom]);
        while let Some(next) = open.pop() {
            if next < self.count { found.push(next) } else { open.extend(self.children[next].iter().rev()) }
        }
        found
    }

    /// Matches tight edges between unmatched vertices.
    fn match_tight(&mut self) {
        for k in 0..self.edges.len() {
            let (u, v, _) = self.edges[k];
            debug_assert!(self.slack(k) >= 0, "prices are feasible");
            if self.mate[u] == NONE && self.mate[v] == NONE && self.slack(k) == 0 {
                (self.mate[u], self.mate[v]) = (2 * k + 1, 2 * k);
            }
        }
    }

    /// One search; false where no more vertices can be matched.
    fn stage(&mut self) -> bool {
        self.label.fill(FREE);
        self.best.fill(NONE);
        self.best_list.fill(None);
        self.allowed.fill(false);
        self.queue.clear();
        for v in 0..self.count {
            if self.mate[v] == NONE && self.label[self.outer[v]] == FREE {
                self.assign(v, S, NONE);
            }
        }
        loop {
            if self.scan() {
                break;
            }
            if !self.adjust() {
                return false;
            }
        }
        for b in self.count..2 * self.count {
            let top = self.parent[b] == NONE && self.base[b] != NONE;
            if top && self.label[b] == S && self.dual[b] == 0 {
                self.expand(b, true);
            }
        }
        true
    }

    /// Grows trees along tight edges; true once a path was augmented.
    fn scan(&mut self) -> bool {
        while let Some(v) = self.queue.pop() {
            for at in 0..self.ends[v].len() {
                let p = self.ends[v][at];
                let (k, w) = (p / 2, self.end(p));
                if self.outer[v] == self.outer[w] {
                    continue;
                }
                let slack = self.slack(k);
                if slack <= 0 {
                    self.allowed[k] = true;
                }
                let there = self.label[self.outer[w]];
                if self.allowed[k] {
                    if there == FREE {
                        self.assign(w, T, p ^ 1);
                    } else if there == S {
                        match self.meet(v, w) {
                            Some(base) => self.contract(base, k),
                            None => {
                                self.augment(k);
                                return true;
                            }
                        }
                    } else if self.label[w] == FREE {
                        self.label[w] = T;
                        self.label_end[w] = p ^ 1;
                    }
                } else {
                    let target = if there == S {
                        self.outer[v]
                    } else if self.label[w] == FREE {
                        w
                    } else {
                        continue;
                    };
                    if self.best[target] == NONE || slack < self.slack(self.best[target]) {
                        self.best[target] = k;
                    }
                }
            }
        }
        false
    }

    /// Changes prices until something becomes possible; false where nothing ever will.
    fn adjust(&mut self) -> bool {
        #[derive(Clone, Copy)]
        enum Event {
            Grow(usize),
            Join(usize),
            Expand(usize),
        }
        let mut next: Option<(i64, Event)> = None;
        let mut offer = |delta: i64, event: Event| {
            if next.is_none_or(|(least, _)| delta < least) {
                next = Some((delta, event));
            }
        };
        for v in 0..self.count {
            if self.label[self.outer[v]] == FREE && self.best[v] != NONE {
                offer(self.slack(self.best[v]), Event::Grow(self.best[v]));
            }
        }
        for b in 0..2 * self.count {
            if self.parent[b] == NONE && self.label[b] == S && self.best[b] != NONE {
                offer(self.slack(self.best[b]) / 2, Event::Join(self.best[b]));
            }
        }
        for b in self.count..2 * self.count {
            if self.base[b] != NONE && self.parent[b] == NONE && self.label[b] == T {
                offer(self.dual[b], Event::Expand(b));
            }
        }
        let Some((delta, event)) = next else { return false };
        for v in 0..self.count {
            match self.label[self.outer[v]] {
                S => self.dual[v] -= delta,
                T => self.dual[v] += delta,
                _ => {}
            }
        }
        for b in self.count..2 * self.count {
            if self.base[b] != NONE && self.parent[b] == NONE {
                match self.label[b] {
                    S => self.dual[b] += delta,
                    T => self.dual[b] -= delta,
                    _ => {}
                }
            }
        }
        match event {
            Event::Grow(k) => {
                self.allowed[k] = true;
                let (u, v, _) = self.edges[k];
                self.queue.push(if self.label[self.outer[u]] == FREE { v } else { u });
            }
            Event::Join(k) => {
                self.allowed[k] = true;
                self.queue.push(self.edges[k].0);
            }
            Event::Expand(b) => self.expand(b, false),
        }
        true
    }

    /// Labels the blossom of `w`, reached through endpoint `p`; a T's mate becomes S.
    fn assign(&mut self, w: usize, label: u8, p: usize) {
        let b = self.outer[w];
        for at in [w, b] {
            (self.label[at], self.label_end[at], self.best[at]) = (label, p, NONE);
        }
        if label == S {
            let leaves = self.leaves(b);
            self.queue.extend(leaves);
        } else {
            let mate = self.mate[self.base[b]];
            self.assign(self.end(mate), S, mate ^ 1);
        }
    }

    /// Where the ways from two S vertices to their roots meet, as the base of that blossom.
    fn meet(&mut self, v: usize, w: usize) -> Option<usize> {
        let (mut v, mut w) = (v, w);
        let mut path = Vec::new();
        let mut base = None;
        while v != NONE {
            let b = self.outer[v];
            if self.label[b] == TRACED {
                base = Some(self.base[b]);
                break;
            }
            path.push(b);
            self.label[b] = TRACED;
            v = match self.label_end[b] {
                NONE => NONE,
                through => self.end(self.label_end[self.outer[self.end(through)]]),
            };
            if w != NONE {
                (v, w) = (w, v);
            }
        }
        for b in path {
            self.label[b] = S;
        }
        base
    }

    /// Swaps matched and unmatched along the path between two roots that edge `k` joins.
    fn augment(&mut self, k: usize) {
        let (v, w, _) = self.edges[k];
        for (s, p) in [(v, 2 * k + 1), (w, 2 * k)] {
            let (mut s, mut p) = (s, p);
            loop {
                let bs = self.outer[s];
                if bs >= self.count {
                    self.turn(bs, s);
                }
                self.mate[s] = p;
                if self.label_end[bs] == NONE {
                    break;
                }
                let bt = self.outer[self.end(self.label_end[bs])];
                let through = self.label_end[bt];
                s = self.end(through);
                let j = self.end(through ^ 1);
                if bt >= self.count {
                    self.turn(bt, j);
                }
                self.mate[j] = through;
                p = through ^ 1;
            }
        }
    }
}
