//! What happens inside blossoms: making them, dissolving them, and turning the matching round in them.

use std::collections::BTreeMap;

use super::{FREE, NONE, S, Solver, T};

impl Solver<'_> {
    /// Makes a blossom of the cycle that edge `k` closes over `base`.
    pub(super) fn contract(&mut self, base: usize, k: usize) {
        let (v, w, _) = self.edges[k];
        let bb = self.outer[base];
        let b = self.unused.pop().expect("there are fewer blossoms than vertices");
        self.base[b] = base;
        self.parent[b] = NONE;
        self.parent[bb] = b;
        let (mut path, mut joints) = (Vec::new(), Vec::new());
        let mut bv = self.outer[v];
        while bv != bb {
            self.parent[bv] = b;
            path.push(bv);
            joints.push(self.label_end[bv]);
            bv = self.outer[self.end(self.label_end[bv])];
        }
        path.push(bb);
        path.reverse();
        joints.reverse();
        joints.push(2 * k);
        let mut bw = self.outer[w];
        while bw != bb {
            self.parent[bw] = b;
            path.push(bw);
            joints.push(self.label_end[bw] ^ 1);
            bw = self.outer[self.end(self.label_end[bw])];
        }
        (self.label[b], self.label_end[b], self.dual[b]) = (S, self.label_end[bb], 0);
        self.children[b] = path.clone();
        self.joints[b] = joints;
        for v in self.leaves(b) {
            if self.label[self.outer[v]] == T {
                // What was odd is even now, and can be scanned.
                self.queue.push(v);
            }
            self.outer[v] = b;
        }
        let mut best_to: BTreeMap<usize, usize> = BTreeMap::new();
        for child in path {
            let list = self.best_list[child].take().unwrap_or_else(|| {
                let leaves = self.leaves(child);
                leaves.into_iter().flat_map(|v| self.ends[v].iter().map(|p| p / 2)).collect()
            });
            for k in list {
                let (i, j, _) = self.edges[k];
                let other = if self.outer[j] == b { self.outer[i] } else { self.outer[j] };
                if other != b && self.label[other] == S {
                    let slack = self.slack(k);
                    let best = best_to.entry(other).or_insert(k);
                    if slack < self.slack(*best) {
                        *best = k;
                    }
                }
            }
            self.best[child] = NONE;
        }
        let list: Vec<usize> = best_to.into_values().collect();
        self.best[b] = list.iter().copied().min_by_key(|&k| self.slack(k)).unwrap_or(NONE);
        self.best_list[b] = Some(list);
    }

    /// Dissolves a blossom; in mid-stage (a T whose price is used up) its children are labelled.
    pub(super) fn expand(&mut self, b: usize, end_of_stage: bool) {
        for child in self.children[b].clone() {
            self.parent[child] = NONE;
            if child < self.count {
                self.outer[child] = child;
            } else if end_of_stage && self.dual[child] == 0 {
                self.expand(child, true);
            } else {
                for v in self.leaves(child) {
                    self.outer[v] = child;
                }
            }
        }
        if !end_of_stage && self.label[b] == T {
            self.relabel(b);
        }
        (self.label[b], self.label_end[b], self.best[b]) = (FREE, NONE, NONE);
        self.children[b].clear();
        self.joints[b].clear();
        self.base[b] = NONE;
        self.best_list[b] = None;
        self.unused.push(b);
    }

    /// Labels the children of a dissolved T blossom along the way that the matching takes through it.
    fn relabel(&mut self, b: usize) {
        let (children, joints) = (self.children[b].clone(), self.joints[b].clone());
        let count = children.len() as isize;
        let child = |j: isize| children[j.rem_euclid(count) as usize];
        let joint = |j: isize| joints[j.rem_euclid(count) as usize];
        let entry = self.outer[self.end(self.label_end[b] ^ 1)];
        let mut j = children.iter().position(|&child| child == entry).expect("it is one of them") as isize;
        // From the entry to the base the way of even length.
        let (step, trick) = if j & 1 == 1 {
            j -= count;
            (1, 0)
        } else {
            (-1, 1)
        };
        let mut p = self.label_end[b];
        while j != 0 {
            let near = self.end(p ^ 1);
            self.label[near] = FREE;
            let q = joint(j - trick as isize) ^ trick;
            let far = self.end(q ^ 1);
            self.label[far] = FREE;
            self.assign(near, T, p);
            self.allowed[q / 2] = true;
            j += step;
            p = joint(j - trick as isize) ^ trick;
            self.allowed[p / 2] = true;
            j += step;
        }
        let at_base = child(j);
        for at in [self.end(p ^ 1), at_base] {
            (self.label[at], self.label_end[at]) = (T, p);
        }
        self.best[at_base] = NONE;
        j += step;
        while child(j) != entry {
            let other = child(j);
            j += step;
            if self.label[other] == S {
                continue;
            }
            // Reached from outside meanwhile?
            let reached = self.leaves(other).into_iter().find(|&v| self.label[v] != FREE);
            if let Some(v) = reached {
                self.label[v] = FREE;
                let mate = self.end(self.mate[self.base[other]]);
                self.label[mate] = FREE;
                self.assign(v, T, self.label_end[v]);
            }
        }
    }

    /// Turns the matching inside blossom `b` so that `v` is its base.
    pub(super) fn turn(&mut self, b: usize, v: usize) {
        let mut t = v;
        while self.parent[t] != b {
            t = self.parent[t];
        }
        if t >= self.count {
            self.turn(t, v);
        }
        let count = self.children[b].len() as isize;
        let first = self.children[b].iter().position(|&child| child == t).expect("it is one of them");
        let mut j = first as isize;
        let (step, trick) = if j & 1 == 1 {
            j -= count;
            (1, 0)
        } else {
            (-1, 1)
        };
        while j != 0 {
            j += step;
            let p = self.joints[b][(j - trick as isize).rem_euclid(count) as usize] ^ trick;
            let t = self.children[b][j.rem_euclid(count) as usize];
            if t >= self.count {
                self.turn(t, self.end(p));
            }
            j += step;
            let t = self.children[b][j.rem_euclid(count) as usize];
            if t >= self.count {
                self.turn(t, self.end(p ^ 1));
            }
            let (one, other) = (self.end(p), self.end(p ^ 1));
            (self.mate[one], self.mate[other]) = (p ^ 1, p);
        }
        self.children[b].rotate_left(first);
        self.joints[b].rotate_left(first);
        self.base[b] = self.base[self.children[b][0]];
    }
}
