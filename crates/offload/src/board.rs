//! The queues of a node: what waits for a decision, what waits for its resource, and what runs.
//!
//! ```text
//! arrive ─► global queue ─ assign ─► queue of a resource ─ start ─► running ─ end ─► gone
//!                ▲                          │
//!                └──────── withdraw ────────┘
//! ```
//!
//! Which task is assigned where is a strategy's business. A task that is assigned starts by itself: the first of a
//! queue as soon as nothing runs on its resource. Where resources may not overlap, one that has cores in common with
//! others waits for these, and of several that wait for the same cores the one goes first whose task was assigned
//! first; so the whole machine comes to its turn among single cores.

use std::collections::{BTreeMap, VecDeque};

use crate::task::{Governor, Resource, ResourceId, Task, TaskId};

/// May kernels on resources that have cores in common run at the same time?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// No: each has its cores for itself.
    #[default]
    Refused,
    /// Yes: the kernel of the operating system shares these cores out.
    Allowed,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    /// `order`: its number among all assignments.
    Assigned {
        to: ResourceId,
        order: u64,
    },
    Running {
        on: ResourceId,
        began_ns: u64,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    task: Task,
    place: Place,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    queue: VecDeque<TaskId>,
    running: Option<TaskId>,
}

/// A task that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its number.
    pub id: TaskId,
    /// What it was.
    pub task: Task,
    /// Where its kernel ran and for how long, ns; `None`: its program went before it began.
    pub run: Option<(ResourceId, u64)>,
}

/// What cannot be done with a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// It has ended, or there never was one.
    #[error("there is no task {0}")]
    NoTask(u64),
    /// A node has that many resources only.
    #[error("there is no resource {0}")]
    NoResource(usize),
    /// Only a task of the global queue is assigned.
    #[error("task {0} is not in the global queue: it was assigned before")]
    NotWaiting(u64),
    /// Only a task that is assigned and has not begun comes back.
    #[error("task {0} is in no queue of a resource")]
    NotAssigned(u64),
    /// Its program brought no code for that kind of resource.
    #[error("task {task} has no kernel for {resource}, which is {kind}")]
    NoKernel {
        /// The task's number.
        task: u64,
        /// The resource's name.
        resource: String,
        /// The resource's kind.
        kind: String,
    },
}

/// A kernel that starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Whose.
    pub task: TaskId,
    /// Where.
    pub on: ResourceId,
    /// Which of the task's kernels, by its rank.
    pub rank: usize,
}

/// An assignment that can be taken back as long as nothing else has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo {
    task: TaskId,
    at: usize,
    /// Where it came from: the global queue, or a resource's.
    from: Place,
}

/// The queues of a node. Every change keeps each task in exactly one place.
#[derive(Clone, Debug, Default)]
pub struct Board {
    resources: Vec<Resource>,
    overlap: Overlap,
    slots: Vec<Slot>,
    tasks: BTreeMap<TaskId, Entry>,
    waiting: VecDeque<TaskId>,
    governor: Governor,
    now_ns: u64,
    assigned: u64,
    next: u64,
    last_ended: Option<Finished>,
}

impl Board {
    /// Nothing is there yet.
    pub fn new(resources: Vec<Resource>, overlap: Overlap, governor: Governor) -> Board {
        let slots = resources.iter().map(|_| Slot::default()).collect();
        Board { resources, overlap, slots, governor, ..Board::default() }
    }

    /// ns since the node's beginning.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Time never goes back.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// How much may be used.
    pub fn governor(&self) -> Governor {
        self.governor
    }

    /// Its user has changed it.
    pub fn set_governor(&mut self, governor: Governor) {
        self.governor = governor;
    }

    /// All of the node; a [`ResourceId`] is a place in this list.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// One of them.
    pub fn resource(&self, id: ResourceId) -> Option<&Resource> {
        self.resources.get(id.0)
    }

    /// A task that has not ended.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).map(|entry| &entry.task)
    }

    /// Tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// The global queue: tasks that are assigned to nothing, in order of arrival.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = TaskId> + '_ {
        self.waiting.iter().copied()
    }

    /// How many of them there are.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// What waits for this resource, the next first.
    pub fn queue(&self, id: ResourceId) -> impl Iterator<Item = TaskId> + '_ {
        self.slots.get(id.0).into_iter().flat_map(|slot| slot.queue.iter().copied())
    }

    /// The number that the next task gets.
    pub fn next_task(&self) -> TaskId {
        TaskId(self.next)
    }

    /// How many tasks are on a resource: the one that runs, and those in its queue.
    pub fn load(&self, id: ResourceId) -> usize {
        self.slots.get(id.0).map_or(0, |slot| slot.queue.len() + usize::from(slot.running.is_some()))
    }

    /// What runs on it.
    pub fn running(&self, id: ResourceId) -> Option<TaskId> {
        self.slots.get(id.0)?.running
    }

    /// The task that has ended last.
    pub fn last_ended(&self) -> Option<&Finished> {
        self.last_ended.as_ref()
    }

    /// Whether kernels on resources that have cores in common may run at the same time.
    pub fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Everything that runs.
    pub fn all_running(&self) -> impl Iterator<Item = (ResourceId, TaskId)> + '_ {
        let of_slot = |(at, slot): (usize, &Slot)| Some((ResourceId(at), slot.running?));
        self.slots.iter().enumerate().filter_map(of_slot)
    }

    /// Whether a task that is assigned to it now would start at once.
    pub fn is_free(&self, id: ResourceId) -> bool {
        let is_unused = |slot: &Slot| slot.running.is_none() && slot.queue.is_empty();
        self.slots.get(id.0).is_some_and(is_unused)
            && self.rivals(id).all(|rival| is_unused(&self.slots[rival.0]))
    }

    /// Other resources whose cores it may not use at the same time.
    fn rivals(&self, id: ResourceId) -> impl Iterator<Item = ResourceId> + '_ {
        let cores = (self.overlap == Overlap::Refused).then(|| &self.resources[id.0].cores);
        let others = (0..self.resources.len()).filter(move |at| *at != id.0);
        let has_common =
            move |at: &usize| cores.is_some_and(|cores| cores.intersects(&self.resources[*at].cores));
        others.filter(has_common).map(ResourceId)
    }

    /// A new task, at the end of the global queue.
    pub fn arrive(&mut self, task: Task) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        self.tasks.insert(id, Entry { task, place: Place::Waiting });
        self.waiting.push_back(id);
        id
    }

    fn entry(&self, id: TaskId) -> Result<&Entry, Misplaced> {
        self.tasks.get(&id).ok_or(Misplaced::NoTask(id.0))
    }

    /// From the global queue to the end of a resource's.
    pub(crate) fn assign(&mut self, id: TaskId, to: ResourceId) -> Result<Undo, Misplaced> {
        let resource = self.resource(to).ok_or(Misplaced::NoResource(to.0))?;
        let entry = self.entry(id)?;
        if entry.place != Place::Waiting {
            return Err(Misplaced::NotWaiting(id.0));
        }
        if entry.task.rank_on(&resource.kind).is_none() {
            let (resource, kind) = (resource.name.clone(), resource.kind.to_string());
            return Err(Misplaced::NoKernel { task: id.0, resource, kind });
        }
        let at = self.waiting.iter().position(|other| *other == id).ok_or(Misplaced::NotWaiting(id.0))?;
        self.waiting.remove(at);
        self.slots[to.0].queue.push_back(id);
        self.assigned += 1;
        self.set_place(id, Place::Assigned { to, order: self.assigned });
        Ok(Undo { task: id, at, from: Place::Waiting })
    }

    /// From a resource's queue back into the global one, where it stood by its arrival.
    pub(crate) fn withdraw(&mut self, id: TaskId) -> Result<Undo, Misplaced> {
        let Place::Assigned { to, .. } = self.entry(id)?.place else {
            return Err(Misplaced::NotAssigned(id.0));
        };
        let from = self.tasks[&id].place;
        let queue = &mut self.slots[to.0].queue;
        let at = queue.iter().position(|other| *other == id).ok_or(Misplaced::NotAssigned(id.0))?;
        queue.remove(at);
        let before = self.waiting.partition_point(|other| *other < id);
        self.waiting.insert(before, id);
        self.set_place(id, Place::Waiting);
        Ok(Undo { task: id, at, from })
    }

    /// Takes changes back, the last first.
    pub(crate) fn revert(&mut self, changes: Vec<Undo>) {
        for Undo { task, at, from } in changes.into_iter().rev() {
            let Some(entry) = self.tasks.get(&task) else { continue };
            match (entry.place, from) {
                (Place::Assigned { to, .. }, Place::Waiting) => {
                    self.slots[to.0].queue.retain(|other| *other != task);
                    self.waiting.insert(at.min(self.waiting.len()), task);
                }
                (Place::Waiting, Place::Assigned { to, .. }) => {
                    self.waiting.retain(|other| *other != task);
                    let queue = &mut self.slots[to.0].queue;
                    queue.insert(at.min(queue.len()), task);
                }
                _ => continue,
            }
            self.set_place(task, from);
        }
    }

    fn set_place(&mut self, id: TaskId, place: Place) {
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.place = place;
        }
    }

    /// When the next task of a resource was assigned, in order of all assignments.
    fn next_order(&self, id: ResourceId) -> Option<u64> {
        match self.tasks.get(self.slots[id.0].queue.front()?)?.place {
            Place::Assigned { order, .. } => Some(order),
            _ => None,
        }
    }

    /// Starts what can start now, in order of assignment.
    pub fn start_ready(&mut self) -> Vec<Start> {
        let mut starts = Vec::new();
        let mut candidates: Vec<(u64, ResourceId)> = (0..self.slots.len())
            .map(ResourceId)
            .filter(|id| self.slots[id.0].running.is_none())
            .filter_map(|id| Some((self.next_order(id)?, id)))
            .collect();
        candidates.sort();
        for (order, on) in candidates {
            let is_before = |rival: ResourceId| {
                self.slots[rival.0].running.is_some()
                    || self.next_order(rival).is_some_and(|other| other < order)
            };
            if self.rivals(on).any(is_before) {
                continue;
            }
            let Some(task) = self.slots[on.0].queue.pop_front() else { continue };
            self.slots[on.0].running = Some(task);
            self.set_place(task, Place::Running { on, began_ns: self.now_ns });
            let rank = self.tasks[&task].task.rank_on(&self.resources[on.0].kind).unwrap_or_default();
            starts.push(Start { task, on, rank });
        }
        starts
    }

    /// A task has ended, or its program has gone. `None`: there is none of that number.
    pub fn end(&mut self, id: TaskId) -> Option<Task> {
        let Entry { task, place } = self.tasks.remove(&id)?;
        match place {
            Place::Waiting => self.waiting.retain(|other| *other != id),
            Place::Assigned { to, .. } => self.slots[to.0].queue.retain(|other| *other != id),
            Place::Running { on, .. } => self.slots[on.0].running = None,
        }
        let run = match place {
            Place::Running { on, began_ns } => Some((on, self.now_ns - began_ns)),
            _ => None,
        };
        self.last_ended = Some(Finished { id, task: task.clone(), run });
        Some(task)
    }

    /// What must hold of the queues at any time; `Err` says what does not.
    pub fn check(&self) -> Result<(), String> {
        let mut seen: BTreeMap<TaskId, usize> = BTreeMap::new();
        let queued = self.slots.iter().flat_map(|slot| slot.queue.iter().chain(&slot.running));
        queued.chain(&self.waiting).for_each(|id| *seen.entry(*id).or_default() += 1);
        if let Some((id, count)) =
            seen.iter().find(|(id, count)| **count != 1 || !self.tasks.contains_key(id))
        {
            return Err(format!("task {} is {count} times in the queues", id.0));
        }
        if let Some(id) = self.tasks.keys().find(|id| !seen.contains_key(id)) {
            return Err(format!("task {} is in no queue", id.0));
        }
        for (at, slot) in self.slots.iter().enumerate() {
            let id = ResourceId(at);
            if slot.running.is_some() && self.rivals(id).any(|rival| self.slots[rival.0].running.is_some()) {
                return Err(format!("{} shares cores with another that runs", self.resources[at].name));
            }
            for task in slot.queue.iter().chain(&slot.running) {
                if self.tasks[task].task.rank_on(&self.resources[at].kind).is_none() {
                    return Err(format!("task {} has no kernel for {}", task.0, self.resources[at].name));
                }
            }
        }
        match self.waiting.iter().zip(self.waiting.iter().skip(1)).all(|(one, next)| one < next) {
            true => Ok(()),
            false => Err("the global queue is out of order".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::CpuSet;

    use super::*;
    use crate::task::{Kernel, Kind};

    fn resource(name: &str, kind: Kind, cores: &[u32]) -> Resource {
        Resource { name: name.to_owned(), kind, cores: CpuSet::from_cpus(cores), threads: cores.len() as f64 }
    }

    /// Two cores, both together, and a device whose host thread has the second.
    fn board(overlap: Overlap) -> Board {
        let resources = vec![
            resource("core0", Kind::Core, &[0]),
            resource("core1", Kind::Core, &[1]),
            resource("all", Kind::AllCores, &[0, 1]),
            resource("gpu0", Kind::Device("gpu".into()), &[1]),
        ];
        Board::new(resources, overlap, Governor::High)
    }

    fn task(kinds: &[Kind]) -> Task {
        let kernels = kinds.iter().map(|kind| Kernel { on: kind.clone(), expected_ns: None }).collect();
        Task { program: "p".into(), arrived_ns: 0, kernels }
    }

    fn all_kinds() -> Task {
        task(&[Kind::AllCores, Kind::Core, Kind::Device("gpu".into())])
    }

    const CORE0: ResourceId = ResourceId(0);
    const CORE1: ResourceId = ResourceId(1);
    const ALL: ResourceId = ResourceId(2);
    const GPU: ResourceId = ResourceId(3);

    #[test]
    fn tasks_start_in_order_of_assignment_where_cores_are_free() {
        let mut board = board(Overlap::Refused);
        let tasks: Vec<TaskId> = (0..4).map(|_| board.arrive(all_kinds())).collect();
        board.assign(tasks[0], CORE0).unwrap();
        board.assign(tasks[1], ALL).unwrap();
        // Assigned after the whole machine, so it waits for that although its core is unused.
        board.assign(tasks[2], CORE1).unwrap();
        assert_eq!(board.start_ready(), [Start { task: tasks[0], on: CORE0, rank: 1 }]);
        assert!(!board.is_free(GPU) && board.start_ready().is_empty());
        board.check().unwrap();
        board.end(tasks[0]);
        assert_eq!(board.start_ready(), [Start { task: tasks[1], on: ALL, rank: 0 }]);
        board.end(tasks[1]);
        assert_eq!(board.start_ready(), [Start { task: tasks[2], on: CORE1, rank: 1 }]);
        assert!(!board.is_free(GPU) && board.is_free(CORE0));
        board.check().unwrap();
    }

    #[test]
    fn overlapping_resources_run_side_by_side_where_allowed() {
        let mut board = board(Overlap::Allowed);
        let tasks: Vec<TaskId> = (0..4).map(|_| board.arrive(all_kinds())).collect();
        for (task, on) in tasks.iter().zip([CORE0, CORE1, ALL, GPU]) {
            board.assign(*task, on).unwrap();
        }
        assert_eq!(board.start_ready().len(), 4);
        board.check().unwrap();
    }

    #[test]
    fn what_cannot_be_done_changes_nothing() {
        let mut board = board(Overlap::Refused);
        let one = board.arrive(task(&[Kind::Core]));
        assert_eq!(board.assign(TaskId(9), CORE0).unwrap_err(), Misplaced::NoTask(9));
        assert_eq!(board.assign(one, ResourceId(9)).unwrap_err(), Misplaced::NoResource(9));
        assert!(matches!(board.assign(one, GPU).unwrap_err(), Misplaced::NoKernel { .. }));
        assert_eq!(board.withdraw(one).unwrap_err(), Misplaced::NotAssigned(0));
        board.assign(one, CORE0).unwrap();
        assert_eq!(board.assign(one, CORE1).unwrap_err(), Misplaced::NotWaiting(0));
        board.start_ready();
        assert_eq!(board.withdraw(one).unwrap_err(), Misplaced::NotAssigned(0));
        board.check().unwrap();
        assert!(board.end(one).is_some() && board.end(one).is_none());
    }

    #[test]
    fn changes_that_are_taken_back_leave_the_queues_as_they_were() {
        let mut board = board(Overlap::Refused);
        let tasks: Vec<TaskId> = (0..3).map(|_| board.arrive(all_kinds())).collect();
        board.assign(tasks[2], CORE1).unwrap();
        let changes = vec![
            board.assign(tasks[1], CORE1).unwrap(),
            board.withdraw(tasks[2]).unwrap(),
            board.assign(tasks[2], ALL).unwrap(),
            board.assign(tasks[0], CORE1).unwrap(),
        ];
        board.revert(changes);
        board.check().unwrap();
        assert_eq!(board.waiting().collect::<Vec<_>>(), [tasks[0], tasks[1]]);
        assert_eq!(board.queue(CORE1).collect::<Vec<_>>(), [tasks[2]]);
    }
}
