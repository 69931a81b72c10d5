//! The strategy of our own: plans all that waits for the earliest end, by what is known of each kernel's time.
//!
//! # Problem
//!
//! The paper's strategies look at one task and one resource at a time. Which kernel is best for a task depends on all
//! that wait, and on what its cores could do instead.
//!
//! # Rule
//!
//! Whenever tasks have come, or a kernel took another time than expected, all waiting tasks are divided among the
//! classes of resources ([`earliest`](crate::earliest)). A resource that becomes free takes the longest task that the
//! division has for its class. Times are those that were seen of the program's kernel (the mean, newer ones counting
//! more, without what sharing cores has cost), else those that the program expects, else its ranking. What began before
//! the strategy came into force teaches nothing. When the governor is low, tasks that have another kernel stay off
//! devices.
//!
//! # Properties
//!
//! - each task runs: `every_strategy_ends_every_task`
//! - wrong expectations are corrected by what is seen: `expectations_are_corrected_by_what_is_seen`
//! - what was not seen from its begin is not learned from: `what_ran_before_a_swap_teaches_nothing`

use std::collections::{BTreeMap, BTreeSet};

use policy::Failed;

use crate::board::{Board, Finished, Overlap};
use crate::earliest::{Division, Situation, Sort, Unit};
use crate::strategy::{Draft, Occasion, Strategy};
use crate::task::{Governor, Kind, ResourceId, Task, TaskId};

/// How much a newly seen time counts in the mean.
const NEWEST: f64 = 0.5;
/// What is seen may differ by so much from what was expected before everything is planned anew.
const SURPRISE: f64 = 0.1;
/// What runs longer than expected is taken to need this part of its time still.
const LEAST_LEFT: f64 = 0.05;

/// Plans all that waits for the earliest end.
#[derive(Debug, Default)]
pub struct Adaptive {
    /// Seconds that kernels took, by program and kind of resource.
    seen_s: BTreeMap<(String, Kind), f64>,
    progress: Progress,
    plan: Option<Plan>,
}

/// How far what runs has come: the time that it would have taken with its cores for itself, s.
#[derive(Debug, Default)]
struct Progress {
    done_s: BTreeMap<TaskId, f64>,
    until_ns: u64,
    /// What ran already when the strategy came into force: how far that had come is not known.
    unseen: BTreeSet<TaskId>,
}

impl Progress {
    /// The strategy comes into force, for the first time or again.
    fn begin(board: &Board) -> Progress {
        let unseen = board.all_running().map(|(_, task)| task).collect();
        Progress { done_s: BTreeMap::new(), until_ns: board.now_ns(), unseen }
    }

    /// What a task that has ended took; `None`: it never ran, or that is not known.
    fn finish(&mut self, id: TaskId) -> Option<f64> {
        let done_s = self.done_s.remove(&id);
        if self.unseen.remove(&id) { None } else { done_s }
    }

    /// Counts the time since the last call for all that ran; `ended` did until now.
    fn count(&mut self, board: &Board, ended: Option<&Finished>) {
        let passed_s = (board.now_ns() - self.until_ns) as f64 / 1e9;
        self.until_ns = board.now_ns();
        if passed_s == 0.0 {
            return;
        }
        let ended = ended.and_then(|ended| Some((ended.run?.0, ended.id)));
        let ran: Vec<(ResourceId, TaskId)> = board.all_running().chain(ended).collect();
        let threads_of = |id: &ResourceId| board.resource(*id).map_or(0.0, |resource| resource.threads);
        let threads: f64 = ran.iter().map(|(id, _)| threads_of(id)).sum();
        let slowed = (cores(board) as f64 / threads).min(1.0);
        for (id, task) in ran {
            let rate = if threads_of(&id) == 0.0 { 1.0 } else { slowed };
            *self.done_s.entry(task).or_default() += passed_s * rate;
        }
    }
}

/// A division of what waits, as far as it is not assigned yet.
#[derive(Debug)]
struct Plan {
    classes: Vec<Kind>,
    situation: Situation,
    division: Division,
    /// The tasks of each sort, the first to be assigned last.
    tasks: Vec<Vec<TaskId>>,
}

impl Strategy for Adaptive {
    fn name(&self) -> &str {
        "adaptive"
    }

    fn call(&mut self, draft: &mut Draft, occasion: Occasion) -> Result<(), Failed> {
        let board = draft.board();
        let ended = board.last_ended().filter(|ended| occasion == Occasion::Ended(ended.id));
        match occasion {
            Occasion::Begin => self.progress = Progress::begin(board),
            _ => self.progress.count(board, ended),
        }
        match occasion {
            Occasion::Begin | Occasion::Arrived(_) | Occasion::Governor => self.plan = None,
            Occasion::Ended(_) => {
                if ended.is_none_or(|ended| self.observe(board, ended)) {
                    self.plan = None;
                }
            }
            Occasion::Tick => {}
            Occasion::Free(resource) => {
                if self.plan.is_none() {
                    self.plan = Some(self.make(draft.board()));
                }
                let task = self.plan.as_mut().and_then(|plan| plan.take(draft.board(), resource));
                if let Some(task) = task {
                    draft.assign(task, resource).map_err(|error| Failed(error.to_string()))?;
                }
            }
        }
        Ok(())
    }
}

impl Adaptive {
    /// Takes in how long a kernel took; whether that, or the end of what never ran, changes the plan.
    fn observe(&mut self, board: &Board, ended: &Finished) -> bool {
        let Some(took_s) = self.progress.finish(ended.id) else { return true };
        let Some(resource) = ended.run.and_then(|(on, _)| board.resource(on)) else { return true };
        let expected_s = self.takes_s(&ended.task, &resource.kind).unwrap_or_default();
        let mean_s = self.seen_s.entry((ended.task.program.clone(), resource.kind.clone())).or_insert(took_s);
        *mean_s += NEWEST * (took_s - *mean_s);
        (took_s - expected_s).abs() > SURPRISE * expected_s
    }

    /// What a kernel takes, s, by the best that is known.
    fn takes_s(&self, task: &Task, on: &Kind) -> Option<f64> {
        let rank = task.rank_on(on)?;
        let seen_s = || self.seen_s.get(&(task.program.clone(), on.clone())).copied();
        let expected_s = || task.kernels[rank].expected_ns.map(|ns| ns as f64 / 1e9);
        Some(seen_s().or_else(expected_s).unwrap_or(1.0 + rank as f64).max(1e-9))
    }

    fn make(&self, board: &Board) -> Plan {
        let mut classes: Vec<Kind> = board.resources().iter().map(|resource| resource.kind.clone()).collect();
        classes.sort();
        classes.dedup();
        let (sorts, tasks) = self.sorts(board, &classes);
        let situation = Situation {
            cores: cores(board) as f64,
            units: self.units(board, &classes),
            classes: classes.len(),
            sorts,
        };
        let division = situation.divide();
        Plan { classes, situation, division, tasks }
    }

    /// Tasks that take the same times everywhere, and which those are.
    fn sorts(&self, board: &Board, classes: &[Kind]) -> (Vec<Sort>, Vec<Vec<TaskId>>) {
        let mut known: Vec<(Sort, Vec<TaskId>)> = Vec::new();
        for id in board.waiting() {
            let Some(task) = board.task(id) else { continue };
            let takes_s = self.allowed_times(board, task, classes);
            match known.iter_mut().find(|(sort, _)| sort.takes_s == takes_s) {
                Some((sort, ids)) => {
                    sort.count += 1;
                    ids.push(id);
                }
                None => known.push((Sort { count: 1, takes_s }, vec![id])),
            }
        }
        known.into_iter().map(|(sort, ids)| (sort, ids.into_iter().rev().collect())).unzip()
    }

    fn allowed_times(&self, board: &Board, task: &Task, classes: &[Kind]) -> Vec<Option<f64>> {
        let is_device = |kind: &Kind| matches!(kind, Kind::Device(_));
        let has_other = classes.iter().any(|kind| !is_device(kind) && task.rank_on(kind).is_some());
        let is_masked = |kind: &Kind| board.governor() == Governor::Low && is_device(kind) && has_other;
        classes.iter().map(|kind| self.takes_s(task, kind).filter(|_| !is_masked(kind))).collect()
    }

    fn units(&self, board: &Board, classes: &[Kind]) -> Vec<Unit> {
        let resources = board.resources();
        let rivals = |at: usize| -> Vec<usize> {
            let is_rival =
                |other: &usize| *other != at && resources[at].cores.intersects(&resources[*other].cores);
            match board.overlap() {
                Overlap::Allowed => Vec::new(),
                Overlap::Refused => (0..resources.len()).filter(is_rival).collect(),
            }
        };
        let unit = |at: usize| Unit {
            class: classes.binary_search(&resources[at].kind).unwrap_or_default(),
            threads: resources[at].threads,
            busy_s: self.busy_s(board, ResourceId(at)),
            rivals: rivals(at),
        };
        (0..resources.len()).map(unit).collect()
    }

    /// How long it will be busy with what runs there and waits in its queue, s.
    fn busy_s(&self, board: &Board, id: ResourceId) -> f64 {
        let Some(resource) = board.resource(id) else { return 0.0 };
        let takes_s = |task: TaskId| board.task(task).and_then(|task| self.takes_s(task, &resource.kind));
        let left_s = |task: TaskId| {
            let (takes_s, done_s) = (takes_s(task)?, self.progress.done_s.get(&task).copied());
            Some((takes_s - done_s.unwrap_or(0.0)).max(LEAST_LEFT * takes_s))
        };
        let running_s = board.running(id).and_then(left_s).unwrap_or(0.0);
        running_s + board.queue(id).filter_map(takes_s).sum::<f64>()
    }
}

/// Cores of the node, as far as its resources show them.
fn cores(board: &Board) -> usize {
    let all = board
        .resources()
        .iter()
        .fold(topology::CpuSet::default(), |all, resource| all.union(&resource.cores));
    all.len()
}

impl Plan {
    /// The task that the division has for a resource that is free.
    fn take(&mut self, board: &Board, resource: ResourceId) -> Option<TaskId> {
        let class = self.classes.binary_search(&board.resource(resource)?.kind).ok()?;
        let has_tasks = |class: usize| self.division.counts.iter().any(|counts| counts[class] > 0);
        if self.situation.is_deferred(resource.0, &self.division.order, has_tasks) {
            return None;
        }
        let sorts = self.situation.sorts.iter().enumerate();
        let planned = sorts.filter(|(at, _)| self.division.counts[*at][class] > 0);
        let longest = planned.filter_map(|(at, sort)| Some((sort.takes_s[class]?, at)));
        let (_, at) = longest.max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)))?;
        self.division.counts[at][class] -= 1;
        self.tasks[at].pop()
    }
}
