//! What can be asked of a plan: each question one fold over the tree.

use std::collections::{BTreeMap, BTreeSet};

use topology::CpuSet;
use workload::AppId;

use crate::{Plan, Run, Tree};

impl Tree {
    /// The subtrees directly below, in order.
    pub fn children(&self) -> impl Iterator<Item = &Tree> {
        let (parts, slots) = match self {
            Tree::Run(_) => (&[][..], &[][..]),
            Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => (&parts[..], &[][..]),
            Tree::InTurn { slots, .. } => (&[][..], &slots[..]),
        };
        parts.iter().chain(slots.iter().map(|slot| &slot.tree))
    }

    /// Calls `visit` with every run, left to right.
    pub fn for_each_run<'a>(&'a self, visit: &mut impl FnMut(&'a Run)) {
        match self {
            Tree::Run(run) => visit(run),
            _ => self.children().for_each(|child| child.for_each_run(visit)),
        }
    }

    /// Every run, left to right.
    pub fn runs(&self) -> Vec<&Run> {
        let mut runs = Vec::new();
        self.for_each_run(&mut |run| runs.push(run));
        runs
    }

    /// Every program that runs in the tree at some time.
    pub fn apps(&self) -> BTreeSet<&AppId> {
        self.runs().into_iter().map(|run| &run.app).collect()
    }

    /// All CPUs that the tree uses at some time.
    pub fn place(&self) -> CpuSet {
        let mut place = CpuSet::new();
        self.for_each_run(&mut |run| place.add_all(&run.place));
        place
    }

    /// After how many nanoseconds of running the tree does the same again; 0 where nothing takes
    /// turns. Nested turns advance only while their slot runs, so that one round of the outer turns
    /// is what counts; saturates at `u64::MAX`.
    pub fn period_ns(&self) -> u64 {
        match self {
            Tree::Run(_) => 0,
            Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
                parts.iter().map(Tree::period_ns).fold(0, common_multiple)
            }
            Tree::InTurn { slots, .. } => {
                let round = slots.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.slice_ns));
                // A nested round that does not fit its slot needs several outer rounds to come
                // back to its start.
                let rounds = slots.iter().map(|slot| match slot.tree.period_ns() {
                    0 => 1,
                    inner => common_multiple(inner, slot.slice_ns) / slot.slice_ns.max(1),
                });
                round.saturating_mul(rounds.fold(1, common_multiple).max(1))
            }
        }
    }

    /// The runs that are in turn after the tree has been running for `phase_ns`.
    pub fn running_at(&self, phase_ns: u64) -> Vec<&Run> {
        let mut runs = Vec::new();
        self.collect_running(phase_ns, &mut runs);
        runs
    }

    fn collect_running<'a>(&'a self, phase_ns: u64, runs: &mut Vec<&'a Run>) {
        match self {
            Tree::Run(run) => runs.push(run),
            Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
                parts.iter().for_each(|part| part.collect_running(phase_ns, runs));
            }
            Tree::InTurn { slots, .. } => {
                let round = slots.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.slice_ns)).max(1);
                let mut into_round = phase_ns % round;
                for slot in slots {
                    if into_round < slot.slice_ns {
                        // The slot has had one whole slice in each round before this one.
                        let inner = (phase_ns / round).saturating_mul(slot.slice_ns);
                        slot.tree.collect_running(inner.saturating_add(into_round), runs);
                        return;
                    }
                    into_round -= slot.slice_ns;
                }
            }
        }
    }
}

/// A run with what its surroundings make of it.
struct Leaf<'a> {
    run: &'a Run,
    /// Fraction of the whole time in which the run, or the `mixed` that it stands in, is in turn.
    outer: f64,
    /// Fraction of that in which the run is in turn within the `mixed`.
    inner: f64,
    /// Number of the outermost `mixed` around it.
    mixed: Option<usize>,
}

#[derive(Default)]
struct Leaves<'a> {
    runs: Vec<Leaf<'a>>,
    /// Owners of each outermost `mixed`.
    owners: Vec<&'a BTreeMap<u32, AppId>>,
}

impl<'a> Leaves<'a> {
    fn of(tree: &'a Tree) -> Leaves<'a> {
        let mut leaves = Leaves::default();
        leaves.collect(tree, 1.0, 1.0, None);
        leaves
    }

    fn collect(&mut self, tree: &'a Tree, outer: f64, inner: f64, mixed: Option<usize>) {
        match tree {
            Tree::Run(run) => self.runs.push(Leaf { run, outer, inner, mixed }),
            Tree::SideBySide(parts) => {
                parts.iter().for_each(|part| self.collect(part, outer, inner, mixed));
            }
            Tree::Mixed { owner, parts } => {
                let index = mixed.unwrap_or_else(|| {
                    self.owners.push(owner);
                    self.owners.len() - 1
                });
                parts.iter().for_each(|part| self.collect(part, outer, inner, Some(index)));
            }
            Tree::InTurn { slots, .. } => {
                let round: f64 = slots.iter().map(|slot| slot.slice_ns as f64).sum();
                for slot in slots {
                    let slice = slot.slice_ns as f64 / round.max(1.0);
                    match mixed {
                        None => self.collect(&slot.tree, outer * slice, inner, mixed),
                        Some(_) => self.collect(&slot.tree, outer, inner * slice, mixed),
                    }
                }
            }
        }
    }

    /// CPUs given to each run, in the order of `runs`.
    fn mean_cpus(&self) -> Vec<f64> {
        let mut load: Vec<BTreeMap<u32, Load>> = vec![BTreeMap::new(); self.owners.len()];
        let density =
            |leaf: &Leaf<'_>| leaf.inner * f64::from(leaf.run.threads) / leaf.run.place.len().max(1) as f64;
        let owns = |leaf: &Leaf<'_>, mixed: usize, cpu| self.owners[mixed].get(&cpu) == Some(&leaf.run.app);
        for leaf in &self.runs {
            let Some(mixed) = leaf.mixed else { continue };
            for cpu in leaf.run.place.iter() {
                let load = load[mixed].entry(cpu).or_default();
                *(if owns(leaf, mixed, cpu) { &mut load.owner } else { &mut load.others }) += density(leaf);
            }
        }
        let share = |leaf: &Leaf<'_>| match leaf.mixed {
            None => leaf.outer * leaf.run.place.len() as f64,
            Some(mixed) => {
                let granted = |cpu: u32| load[mixed][&cpu].granted(owns(leaf, mixed, cpu));
                leaf.outer * density(leaf) * leaf.run.place.iter().map(granted).sum::<f64>()
            }
        };
        self.runs.iter().map(share).collect()
    }
}

/// Runnable threads that can be expected on one CPU under one `mixed`.
#[derive(Clone, Default)]
struct Load {
    owner: f64,
    others: f64,
}

impl Load {
    /// CPU time that each runnable thread gets.
    fn granted(&self, owns: bool) -> f64 {
        let (wanted, left) =
            if owns { (self.owner, 1.0) } else { (self.others, (1.0 - self.owner).max(0.0)) };
        if wanted > left { left / wanted } else { 1.0 }
    }
}

impl Plan {
    /// Every program that the plan mentions: in the tree, waiting or suspended.
    pub fn apps(&self) -> BTreeSet<&AppId> {
        let mut apps: BTreeSet<&AppId> = self.waiting.iter().chain(&self.suspended).collect();
        self.for_each_run(&mut |run| {
            apps.insert(&run.app);
        });
        apps
    }

    /// Calls `visit` with every run, left to right.
    pub fn for_each_run<'a>(&'a self, visit: &mut impl FnMut(&'a Run)) {
        if let Some(tree) = &self.tree {
            tree.for_each_run(visit);
        }
    }

    /// Every run, left to right.
    pub fn runs(&self) -> Vec<&Run> {
        self.tree.as_ref().map(Tree::runs).unwrap_or_default()
    }

    /// All CPUs that the plan uses at some time.
    pub fn place(&self) -> CpuSet {
        self.tree.as_ref().map(Tree::place).unwrap_or_default()
    }

    /// See [`Tree::period_ns`].
    pub fn period_ns(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::period_ns)
    }

    /// See [`Tree::running_at`].
    pub fn running_at(&self, phase_ns: u64) -> Vec<&Run> {
        self.tree.as_ref().map(|tree| tree.running_at(phase_ns)).unwrap_or_default()
    }

    /// Team size that each running program is asked to have: the widest of its slots.
    pub fn widths(&self) -> BTreeMap<&AppId, u32> {
        let mut widths = BTreeMap::new();
        self.for_each_run(&mut |run| {
            let width = widths.entry(&run.app).or_insert(0);
            *width = run.threads.max(*width);
        });
        widths
    }

    /// CPUs that each program is given in the long run: 2.0 is two CPUs all the time, or four half
    /// of the time. Waiting and suspended programs have 0.
    ///
    /// A place counts whole for the program that has it alone, whether or not the program fills it:
    /// nobody else may. Under `mixed` a CPU is divided equally among the threads that can be expected
    /// on it (threads ÷ CPUs of each run; an owner's threads go first); where these are fewer than
    /// one, the rest of the CPU is nobody's. Turns nested below a `mixed` count by their average.
    pub fn mean_cpus(&self) -> BTreeMap<&AppId, f64> {
        let mut means: BTreeMap<&AppId, f64> = self.apps().into_iter().map(|app| (app, 0.0)).collect();
        self.for_each_mean(&mut |run, cpus| *means.entry(&run.app).or_default() += cpus);
        means
    }

    /// Calls `visit` with every run and the CPUs that it is given in the long run.
    pub(crate) fn for_each_mean<'a>(&'a self, visit: &mut impl FnMut(&'a Run, f64)) {
        let Some(tree) = &self.tree else { return };
        let leaves = Leaves::of(tree);
        leaves.runs.iter().zip(leaves.mean_cpus()).for_each(|(leaf, cpus)| visit(leaf.run, cpus));
    }

    /// Long-run share of CPU time of each program, as a fraction of a machine of `cpus` CPUs; see
    /// [`Plan::mean_cpus`].
    pub fn cpu_shares(&self, cpus: usize) -> BTreeMap<&AppId, f64> {
        self.mean_cpus().into_iter().map(|(app, mean)| (app, mean / cpus.max(1) as f64)).collect()
    }

    /// How far the shares are from what each program's weight entitles it to, over the programs in
    /// `weights_milli` alone; a program that the plan does not mention has no share.
    pub fn unfairness(&self, cpus: usize, weights_milli: &BTreeMap<AppId, u32>) -> Unfairness {
        let shares = self.cpu_shares(cpus);
        let share = |app: &AppId| shares.get(app).copied().unwrap_or(0.0);
        let total: f64 = weights_milli.keys().map(share).sum();
        let weights: f64 = weights_milli.values().map(|&weight| f64::from(weight)).sum();
        let mut unfairness = Unfairness { ratio: 1.0, difference: 0.0 };
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for (app, &weight) in weights_milli {
            let fair = total * f64::from(weight) / weights.max(1.0);
            unfairness.difference = unfairness.difference.max((share(app) - fair).abs());
            if weight > 0 {
                let per_weight = share(app) / f64::from(weight);
                (least, most) = (least.min(per_weight), most.max(per_weight));
            }
        }
        if most > 0.0 {
            unfairness.ratio = most / least;
        }
        unfairness
    }
}

/// Distance of a plan from fair; see [`Plan::unfairness`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unfairness {
    /// Largest share per weight ÷ smallest; 1 is fair, infinite where somebody gets nothing.
    pub ratio: f64,
    /// Largest distance of a share from the fair one, in fractions of the machine.
    pub difference: f64,
}

fn common_multiple(a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 {
        return a.max(b);
    }
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}
