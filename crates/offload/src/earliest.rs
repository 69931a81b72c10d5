//! Which kernels a set of tasks should use so that the last of them ends early.
//!
//! # Problem
//!
//! Tasks of a few sorts wait; each sort takes other times on the resources of a node. How many of each sort should run
//! on which kind of resource? Taking for each task the kernel that ends it first fills the node with kernels that are
//! fast alone and wasteful together: four products on all four cores, one after another, take 4.44 s, side by side on
//! a core each 2.74 s.
//!
//! # Rule
//!
//! A division says how many tasks of each sort go to each class of resources. What it comes to is found by playing it:
//! every class takes its longest tasks first, resources that have cores in common take turns or share as on the node.
//! From the best of three simple divisions, tasks are moved from class to class as long as that helps.
//!
//! ```text
//! from each of (fastest kernel | least core time | earliest end, task by task):
//!   repeat: of all moves (sort, from, to, one | a quarter | half | all of them) and all orders of the classes take the
//!           one that ends earliest; where none ends earlier, the best pair of moves
//!   until none ends earlier, or MOST_TRIES were played
//! ```
//!
//! # Properties
//!
//! - never worse than its starts: `no_start_is_better_than_what_comes_of_it`
//! - near the best of all divisions where these can be tried (2% in the mean, in most cases the best):
//!   `small_cases_are_within_a_few_percent_of_the_best`
//!
//! # Cost
//!
//! At most three times [`MOST_TRIES`] divisions, each played in (tasks × resources) steps, of which there are three times
//! [`MOST_STEPS`] at most.

use std::cmp::Ordering;

/// Divisions that are played at most from one start.
pub const MOST_TRIES: usize = 400;
/// Fewer where many tasks wait: so many tasks × resources are gone through at most from one start.
pub const MOST_STEPS: usize = 1_000_000;
/// Up to so many classes all orders of them are tried.
const MOST_PERMUTED: usize = 4;
/// Less is no gain, s.
const GAIN_S: f64 = 1e-9;

/// A resource of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Which class of resources it belongs to.
    pub class: usize,
    /// Threads on the node's cores that a kernel on it has.
    pub threads: f64,
    /// For how long it is busy still, s; 0 if it is free.
    pub busy_s: f64,
    /// Units that may not run while it runs.
    pub rivals: Vec<usize>,
}

/// Tasks that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Sort {
    /// How many there are.
    pub count: usize,
    /// What one takes on each class, s; `None`: it has no kernel there.
    pub takes_s: Vec<Option<f64>>,
}

/// A node and the tasks that wait for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// Cores of the node.
    pub cores: f64,
    /// All resources.
    pub units: Vec<Unit>,
    /// How many classes of resources there are.
    pub classes: usize,
    /// All tasks.
    pub sorts: Vec<Sort>,
}

/// How many tasks of each sort run on each class.
pub type Counts = Vec<Vec<usize>>;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// `counts[sort][class]`
    pub counts: Counts,
    /// `order[class]`: a unit gives way to rivals of classes with less, as long as tasks wait for these.
    pub order: Vec<usize>,
    /// When the last task ends, s from now.
    pub ends_s: f64,
}

impl Situation {
    /// When the last task ends under a division, s from now; infinite if a task would never run.
    pub fn play(&self, counts: &Counts, order: &[usize]) -> f64 {
        let mut waiting = self.queues(counts);
        let mut left: Vec<f64> = self.units.iter().map(|unit| unit.busy_s).collect();
        let mut now_s = 0.0;
        loop {
            for at in 0..self.units.len() {
                let unit = &self.units[at];
                let is_unused = left[at] == 0.0 && unit.rivals.iter().all(|rival| left[*rival] == 0.0);
                if is_unused && !self.is_deferred(at, order, |class| !waiting[class].is_empty()) {
                    left[at] = waiting[unit.class].pop().unwrap_or(0.0);
                }
            }
            let busy = || left.iter().zip(&self.units).filter(|(left, _)| **left > 0.0);
            let threads: f64 = busy().map(|(_, unit)| unit.threads).sum();
            let slowed = if threads > self.cores { self.cores / threads } else { 1.0 };
            let rate = |unit: &Unit| if unit.threads == 0.0 { 1.0 } else { slowed };
            let Some(step_s) = busy().map(|(left, unit)| left / rate(unit)).min_by(f64::total_cmp) else {
                return if waiting.iter().all(Vec::is_empty) { now_s } else { f64::INFINITY };
            };
            now_s += step_s;
            for (left, unit) in left.iter_mut().zip(&self.units) {
                let rest = *left - step_s * rate(unit);
                *left = if rest > 1e-12 { rest } else { 0.0 };
            }
        }
    }

    /// Whether a unit leaves the cores to a rival for whose class tasks wait.
    pub fn is_deferred(&self, unit: usize, order: &[usize], has_tasks: impl Fn(usize) -> bool) -> bool {
        let class = self.units[unit].class;
        let mut rivals = self.units[unit].rivals.iter().map(|rival| self.units[*rival].class);
        rivals.any(|rival| order[rival] < order[class] && has_tasks(rival))
    }

    /// What each class is to run, the next last.
    fn queues(&self, counts: &Counts) -> Vec<Vec<f64>> {
        let mut queues = vec![Vec::new(); self.classes];
        for (sort, counts) in self.sorts.iter().zip(counts) {
            for ((queue, takes_s), count) in queues.iter_mut().zip(&sort.takes_s).zip(counts) {
                queue.extend(std::iter::repeat_n(takes_s.unwrap_or(f64::INFINITY), *count));
            }
        }
        queues.iter_mut().for_each(|queue: &mut Vec<f64>| queue.sort_by(f64::total_cmp));
        queues
    }

    /// Threads of the units of a class, and how many units it has.
    fn class(&self, class: usize) -> (f64, usize) {
        let units: Vec<&Unit> = self.units.iter().filter(|unit| unit.class == class).collect();
        (units.first().map_or(0.0, |unit| unit.threads), units.len())
    }

    /// The classes on which a task of this sort can run, with what it takes there.
    fn kernels<'s>(&'s self, sort: &'s Sort) -> impl Iterator<Item = (usize, f64)> + 's {
        let there = |(class, takes_s): (usize, &Option<f64>)| Some((class, (*takes_s)?));
        sort.takes_s.iter().enumerate().filter_map(there).filter(|(class, _)| self.class(*class).1 > 0)
    }

    /// All tasks of a sort on the class where `cost` is least.
    fn by_cost(&self, cost: impl Fn(usize, f64) -> f64) -> Counts {
        let of_sort = |sort: &Sort| {
            let costs = self.kernels(sort).map(|(class, takes_s)| (cost(class, takes_s), class));
            let mut counts = vec![0; self.classes];
            if let Some((_, class)) = costs.min_by(|one, other| by_number(one.0, other.0)) {
                counts[class] = sort.count;
            }
            counts
        };
        self.sorts.iter().map(of_sort).collect()
    }

    /// Each task, the longest first, where it ends earliest by what was put there before.
    fn task_by_task(&self) -> Counts {
        let mut counts = vec![vec![0; self.classes]; self.sorts.len()];
        let mut until_s: Vec<f64> = self.units.iter().map(|unit| unit.busy_s).collect();
        let longest =
            |sort: &Sort| self.kernels(sort).map(|(_, takes_s)| takes_s).fold(f64::INFINITY, f64::min);
        let mut order: Vec<usize> = (0..self.sorts.len()).collect();
        order.sort_by(|one, other| by_number(longest(&self.sorts[*other]), longest(&self.sorts[*one])));
        for sort in order {
            for _ in 0..self.sorts[sort].count {
                let ends = self.kernels(&self.sorts[sort]).flat_map(|(class, takes_s)| {
                    let units = self.units.iter().enumerate().filter(move |(_, unit)| unit.class == class);
                    let until_s = &until_s;
                    units.map(move |(at, unit)| {
                        let begin_s =
                            unit.rivals.iter().map(|rival| until_s[*rival]).fold(until_s[at], f64::max);
                        (begin_s + takes_s, at)
                    })
                });
                let Some((end_s, at)) = ends.min_by(|one, other| by_number(one.0, other.0)) else { continue };
                until_s[at] = end_s;
                counts[sort][self.units[at].class] += 1;
            }
        }
        counts
    }

    /// A division that ends early. Tasks without any kernel that could run are in no class of it.
    pub fn divide(&self) -> Division {
        let starts = [
            self.by_cost(|_, takes_s| takes_s),
            self.by_cost(|class, takes_s| takes_s * self.class(class).0.max(1e-3)),
            self.task_by_task(),
        ];
        let climbed = starts.into_iter().map(|counts| self.climb(counts));
        let best = climbed.min_by(|one, other| by_number(one.ends_s, other.ends_s));
        best.unwrap_or(Division { counts: Vec::new(), order: Vec::new(), ends_s: 0.0 })
    }

    /// From one division to one from which no move ends earlier.
    fn climb(&self, counts: Counts) -> Division {
        let orders = self.orders();
        let tasks: usize = self.sorts.iter().map(|sort| sort.count).sum();
        let most = (MOST_STEPS / (tasks * self.units.len()).max(1)).clamp(1, MOST_TRIES);
        let mut tries = 0;
        let mut attempt = |counts: &Counts, order: &[usize], best: &mut Division| {
            tries += 1;
            let ends_s = self.play(counts, order);
            if ends_s < best.ends_s - GAIN_S {
                *best = Division { counts: counts.clone(), order: order.to_vec(), ends_s };
            }
            tries < most
        };
        let ends_s = self.play(&counts, &orders[0]);
        let mut best = Division { counts, order: orders[0].clone(), ends_s };
        loop {
            let mut next = best.clone();
            let mut goes_on = orders.iter().all(|order| attempt(&best.counts, order, &mut next));
            goes_on &= self.moves(&best.counts).all(|counts| attempt(&counts, &best.order, &mut next));
            if goes_on && next == best {
                // From where no move helps, two together may.
                let pairs = self.moves(&best.counts).flat_map(|counts| {
                    let after: Vec<Counts> = self.moves(&counts).collect();
                    after
                });
                goes_on = pairs.into_iter().all(|counts| attempt(&counts, &best.order, &mut next));
            }
            let has_gained = next != best;
            best = next;
            if !has_gained || !goes_on {
                return best;
            }
        }
    }

    /// Orders of the classes that are worth a try: all where units have rivals and classes are few.
    fn orders(&self) -> Vec<Vec<usize>> {
        let natural: Vec<usize> = (0..self.classes).collect();
        if self.units.iter().all(|unit| unit.rivals.is_empty()) {
            return vec![natural];
        }
        if self.classes > MOST_PERMUTED {
            let rotated = |by: usize| natural.iter().map(|class| (class + by) % self.classes).collect();
            return (0..self.classes).map(rotated).collect();
        }
        let mut orders = vec![Vec::new()];
        for class in 0..self.classes {
            let inserted = |order: &Vec<usize>| {
                let at = |at: usize| [&order[..at], &[class], &order[at..]].concat();
                (0..=order.len()).map(at).collect::<Vec<_>>()
            };
            orders = orders.iter().flat_map(inserted).collect();
        }
        orders
    }

    /// The divisions that differ by some tasks of one sort on another class.
    fn moves<'s>(&'s self, counts: &'s Counts) -> impl Iterator<Item = Counts> + 's {
        let of_sort = move |(at, sort): (usize, &'s Sort)| {
            let pairs = self.kernels(sort).flat_map(move |(from, _)| {
                self.kernels(sort).filter(move |(to, _)| from != *to).map(move |(to, _)| (from, to))
            });
            pairs.flat_map(move |(from, to)| {
                let there = counts[at][from];
                let mut amounts = vec![1, there / 4, there / 2, there];
                amounts.retain(|amount| (1..=there).contains(amount));
                amounts.dedup();
                amounts.into_iter().map(move |amount| {
                    let mut counts = counts.clone();
                    counts[at][from] -= amount;
                    counts[at][to] += amount;
                    counts
                })
            })
        };
        self.sorts.iter().enumerate().flat_map(of_sort)
    }
}

fn by_number(one: f64, other: f64) -> Ordering {
    one.total_cmp(&other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::{Strategy as Drawn, ValueTree};
    use proptest::test_runner::TestRunner;

    use super::*;

    const CORE: usize = 0;
    const ALL: usize = 1;
    const GPU: usize = 2;

    /// Cores, all of them, and a device whose host thread has the last core; with or without overlap.
    fn situation(cores: usize, overlap: bool, sorts: Vec<Sort>) -> Situation {
        let unit = |class, threads| Unit { class, threads, busy_s: 0.0, rivals: Vec::new() };
        let mut units: Vec<Unit> = (0..cores).map(|_| unit(CORE, 1.0)).collect();
        units.extend([unit(ALL, cores as f64), unit(GPU, 0.0)]);
        if !overlap {
            let (all, gpu) = (cores, cores + 1);
            units[..cores].iter_mut().for_each(|core| core.rivals.push(all));
            units[cores - 1].rivals.push(gpu);
            units[all].rivals = (0..cores).chain([gpu]).collect();
            units[gpu].rivals = vec![cores - 1, all];
        }
        Situation { cores: cores as f64, units, classes: 3, sorts }
    }

    fn sort(count: usize, core: f64, all: f64, gpu: f64) -> Sort {
        Sort { count, takes_s: vec![Some(core), Some(all), Some(gpu)] }
    }

    #[test]
    fn products_run_on_single_cores_although_all_are_faster() {
        let division = situation(4, false, vec![sort(100, 2.74, 1.11, 3.69)]).divide();
        let [core, all, gpu] = division.counts[0][..] else { panic!("{division:?}") };
        // The device takes a core for its host thread, on which products are faster. One after another on all cores: 111 s.
        assert!(core > 90 && gpu == 0 && all < 10, "{division:?}");
        assert!(division.ends_s <= 25.0 * 2.74 + 1e-6, "{division:?}");
    }

    #[test]
    fn a_single_task_takes_its_fastest_kernel() {
        let division = situation(4, false, vec![sort(1, 2.74, 1.11, 3.69)]).divide();
        assert_eq!((division.counts, division.ends_s), (vec![vec![0, 1, 0]], 1.11));
    }

    #[test]
    fn what_runs_already_is_waited_for() {
        let mut busy = situation(2, false, vec![sort(1, 2.0, 1.0, 9.0)]);
        busy.units[0].busy_s = 3.0;
        // All cores are free in 3 s only, the second one now.
        assert_eq!(busy.divide().counts, [[1, 0, 0]]);
    }

    #[test]
    fn tasks_without_a_kernel_that_can_run_are_left_out() {
        let foreign = Sort { count: 2, takes_s: vec![None, None, None] };
        let division = situation(2, true, vec![foreign, sort(1, 1.0, 1.0, 1.0)]).divide();
        assert_eq!((division.counts[0].clone(), division.ends_s), (vec![0, 0, 0], 1.0));
    }

    fn any_situation(most: usize) -> impl Drawn<Value = Situation> {
        let tenths = || 1..60_u32;
        let any_sort = (1..=most, tenths(), tenths(), tenths()).prop_map(|(count, core, all, gpu)| {
            sort(count, f64::from(core) / 10.0, f64::from(all) / 10.0, f64::from(gpu) / 10.0)
        });
        (1..4_usize, any::<bool>(), proptest::collection::vec(any_sort, 1..3))
            .prop_map(|(cores, overlap, sorts)| situation(cores, overlap, sorts))
    }

    /// All divisions of these sorts among three classes.
    fn all_counts(sorts: &[Sort]) -> Vec<Counts> {
        let Some((sort, rest)) = sorts.split_first() else { return vec![Vec::new()] };
        let mut found = Vec::new();
        for tail in all_counts(rest) {
            for core in 0..=sort.count {
                for all in 0..=sort.count - core {
                    let mut counts = vec![vec![core, all, sort.count - core - all]];
                    counts.extend(tail.clone());
                    found.push(counts);
                }
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_start_is_better_than_what_comes_of_it(situation in any_situation(30)) {
            let division = situation.divide();
            let placed: Vec<usize> = division.counts.iter().map(|counts| counts.iter().sum()).collect();
            let counts: Vec<usize> = situation.sorts.iter().map(|sort| sort.count).collect();
            prop_assert_eq!(placed, counts);
            prop_assert_eq!(situation.play(&division.counts, &division.order), division.ends_s);
            for order in situation.orders() {
                for start in [situation.by_cost(|_, takes_s| takes_s), situation.task_by_task()] {
                    prop_assert!(division.ends_s <= situation.play(&start, &order) + 1e-6);
                }
            }
        }
    }

    /// Always the same cases: what a search may miss in a rare one is no news.
    #[test]
    fn small_cases_are_within_a_few_percent_of_the_best() {
        let mut runner = TestRunner::deterministic();
        let mut ratios: Vec<f64> = (0..300)
            .map(|_| {
                let situation = any_situation(5).new_tree(&mut runner).expect("it can be drawn").current();
                let orders = situation.orders();
                let all = all_counts(&situation.sorts);
                let ends =
                    all.iter().flat_map(|counts| orders.iter().map(|order| situation.play(counts, order)));
                situation.divide().ends_s / ends.fold(f64::INFINITY, f64::min)
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!(mean <= 1.02 && ratios[ratios.len() - 1] <= 1.1, "mean {mean}, most {:?}", ratios.last());
        assert!(ratios[ratios.len() * 8 / 10] <= 1.0 + 1e-9, "{:?}", &ratios[ratios.len() * 8 / 10..]);
    }
}
