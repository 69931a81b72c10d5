//! Finds a division worth more than its neighbours: newcomers are let in where that costs least, then
//! single CPUs and whole homes change hands as long as that is worth it.

use super::counts::Counts;
use super::model::{Facts, Ground, Judged};

/// A change must be worth so much (in sums of logarithms: 0.02 is one program 2% faster), lest
/// programs be resized for nothing.
const WORTH_A_CHANGE: f64 = 0.02;
/// The same for a program that changes nodes.
const WORTH_A_MOVE: f64 = 0.1;
/// Changes a decision at most.
const MOST_CHANGES: usize = 200;
/// Steps a decision at most; judging a division counts as one for each program and node.
const MOST_STEPS: usize = 5_000_000;

pub(super) struct Search<'a> {
    facts: &'a [Facts],
    ground: &'a Ground,
    counts: Counts,
    /// What was judged last and kept.
    kept: Judged,
    /// Sets of nodes that a program may have its home in.
    homes: Vec<Vec<usize>>,
    /// Steps done so far.
    steps: usize,
}

/// The sets of nodes that are tried: all of four nodes and fewer; of more the single ones, runs of
/// two, four, eight … side by side, and all.
fn homes(nodes: usize) -> Vec<Vec<usize>> {
    if nodes <= 4 {
        let members = |set: usize| (0..nodes).filter(|node| set >> node & 1 == 1).collect();
        return (1..1 << nodes).map(members).collect();
    }
    let mut homes: Vec<Vec<usize>> = Vec::new();
    let mut width = 1;
    while width < nodes {
        homes.extend((0..nodes).step_by(width).map(|first| (first..nodes.min(first + width)).collect()));
        width *= 2;
    }
    homes.push((0..nodes).collect());
    homes
}

/// Cells for every program, from where they stand now.
pub(super) fn divide(facts: &[Facts], ground: &Ground, now: Counts) -> Counts {
    let homes = homes(ground.cells.len());
    let kept = Judged::of(facts, ground, &now);
    let mut search = Search { facts, ground, counts: now, kept, homes, steps: 0 };
    for newcomer in 0..facts.len() {
        search.fill(newcomer);
    }
    search.accept();
    for _ in 0..MOST_CHANGES {
        if !(search.resize() || search.rehome()) {
            break;
        }
    }
    search.counts
}

impl Search<'_> {
    fn free(&self, node: usize) -> usize {
        self.ground.cells[node].saturating_sub(self.counts.used(node))
    }

    fn evaluate(&mut self) -> f64 {
        self.steps += self.facts.len() * self.ground.cells.len();
        self.kept.worth_of(self.facts, self.ground, &self.counts)
    }

    /// `counts` is what others are compared with from now on.
    fn accept(&mut self) {
        self.kept = Judged::of(self.facts, self.ground, &self.counts);
    }

    /// Gives a cell of `node` to `program`: a free one, else one of whoever has most there and
    /// keeps as many as it needs. Whether there was one.
    fn claim(&mut self, program: usize, node: usize, fewest: usize) -> bool {
        if self.free(node) == 0 {
            let can = |&other: &usize| {
                other != program
                    && self.counts.get(other, node) > 0
                    && self.counts.total(other) > self.facts[other].floor
                    && self.counts.get(other, node) >= fewest
            };
            let Some(other) = (0..self.facts.len()).filter(can).max_by_key(|&other| {
                (self.counts.get(other, node), self.counts.total(other), std::cmp::Reverse(other))
            }) else {
                return false;
            };
            self.counts.remove(other, node);
        }
        self.counts.add(program, node);
        true
    }

    /// Puts `program`, which has nothing, on `home`: its part of each node as if all there had the same.
    fn settle(&mut self, program: usize, home: &[usize]) -> bool {
        for &node in home {
            if !self.claim(program, node, 1) {
                return false;
            }
        }
        for &node in home {
            let part = self.ground.cells[node] / self.counts.present(node).max(1);
            while self.counts.get(program, node) < part
                && self.counts.total(program) < self.facts[program].cap
            {
                if !self.claim(program, node, self.counts.get(program, node) + 2) {
                    break;
                }
            }
        }
        while self.counts.total(program) < self.facts[program].floor {
            if !(0..self.ground.cells.len()).any(|node| self.claim(program, node, 1)) {
                return false;
            }
        }
        true
    }

    /// A home for a program that has none or too little.
    fn fill(&mut self, program: usize) {
        let has = self.counts.total(program);
        if has >= self.facts[program].needs {
            // Its least share grows as others end.
            let home: Vec<usize> =
                (0..self.ground.cells.len()).filter(|&n| self.counts.get(program, n) > 0).collect();
            while self.counts.total(program) < self.facts[program].floor {
                if !home.iter().any(|&node| self.claim(program, node, 1)) {
                    break;
                }
            }
            // Nobody at home can spare anything: there is enough elsewhere, since all least shares fit.
            if self.counts.total(program) >= self.facts[program].floor {
                return;
            }
        }
        self.counts.clear(program);
        if let Some((_, counts)) = self.best_home(program) {
            self.counts = counts;
        }
    }

    fn best_home(&mut self, program: usize) -> Option<(f64, Counts)> {
        let before = self.counts.clone();
        let mut best: Option<(f64, Counts)> = None;
        let homes = std::mem::take(&mut self.homes);
        for home in &homes {
            let late = self.steps > MOST_STEPS && best.is_some();
            if late || home.len() > self.facts[program].cap {
                continue;
            }
            if self.settle(program, home) {
                let worth = self.evaluate();
                match &mut best {
                    Some((most, _)) if worth <= *most => {}
                    Some((most, counts)) => {
                        *most = worth;
                        counts.clone_from(&self.counts);
                    }
                    None => best = Some((worth, self.counts.clone())),
                }
            }
            self.counts.clone_from(&before);
        }
        self.homes = homes;
        best
    }

    /// Keeps what was done to `counts` if that is worth it.
    fn keep(&mut self, before: &Counts, least: f64) -> bool {
        let worth = self.evaluate();
        if worth > self.kept.worth + least {
            self.accept();
            return true;
        }
        self.counts.clone_from(before);
        false
    }

    /// One change of widths within homes. Whether there was one worth it.
    fn resize(&mut self) -> bool {
        let nodes = self.ground.cells.len();
        let before = self.counts.clone();
        for program in 0..self.facts.len() {
            if self.steps > MOST_STEPS {
                return false;
            }
            let home: Vec<usize> = (0..nodes).filter(|&node| before.get(program, node) > 0).collect();
            let more = |search: &Self, count: usize| {
                search.counts.total(program) + count <= search.facts[program].cap
            };
            // A cell more, in one node or in all, of those that are free or that another has there.
            for &node in &home {
                if !more(self, 1) {
                    break;
                }
                if self.free(node) > 0 {
                    self.counts.add(program, node);
                    if self.keep(&before, WORTH_A_CHANGE) {
                        return true;
                    }
                    continue;
                }
                for other in 0..self.facts.len() {
                    let spare = self.counts.total(other) > self.facts[other].floor.max(1);
                    if other == program || before.get(other, node) == 0 || !spare {
                        continue;
                    }
                    self.counts.add(program, node);
                    self.counts.remove(other, node);
                    if self.keep(&before, WORTH_A_CHANGE) {
                        return true;
                    }
                }
            }
            if home.len() > 1 && more(self, home.len()) {
                if home.iter().all(|&node| self.claim(program, node, 2)) {
                    if self.keep(&before, WORTH_A_CHANGE) {
                        return true;
                    }
                } else {
                    self.counts.clone_from(&before);
                }
                // From one other in all nodes that both have.
                for other in 0..self.facts.len() {
                    let has_lent = |node: &usize| before.get(other, *node) > 0;
                    if other == program || !home.iter().all(has_lent) {
                        continue;
                    }
                    for &node in &home {
                        self.counts.add(program, node);
                        self.counts.remove(other, node);
                    }
                    if self.counts.total(other) < self.facts[other].floor.max(1) {
                        self.counts.clone_from(&before);
                    } else if self.keep(&before, WORTH_A_CHANGE) {
                        return true;
                    }
                }
            }
            // A cell less where it only hurts others by its demand.
            for step in 0..=home.len() {
                let from: Vec<usize> = if step == 0 { home.clone() } else { vec![home[step - 1]] };
                if self.counts.total(program) < self.facts[program].floor.max(1) + from.len() {
                    continue;
                }
                from.iter().for_each(|&node| self.counts.remove(program, node));
                if self.keep(&before, WORTH_A_CHANGE) {
                    return true;
                }
            }
        }
        false
    }

    /// The best change of a program's home, if it is worth a move.
    fn rehome(&mut self) -> bool {
        let before = self.counts.clone();
        let mut best: Option<(f64, Counts)> = None;
        for program in 0..self.facts.len() {
            if self.steps > MOST_STEPS {
                break;
            }
            self.counts.clear(program);
            if let Some((worth, counts)) = self.best_home(program)
                && best.as_ref().is_none_or(|(most, _)| worth > *most)
            {
                best = Some((worth, counts));
            }
            self.counts.clone_from(&before);
        }
        match best {
            Some((worth, counts)) if worth > self.kept.worth + WORTH_A_MOVE => {
                self.counts = counts;
                self.accept();
                true
            }
            _ => false,
        }
    }
}
