//! A recorded program under another scheduler, or on another machine, without running it.
//!
//! Each thread becomes a script: how long it computed, and what it did then. The lists, bubbles and
//! schedulers are those of the runtime; the time is counted. What is kept: who made, woke and waited for
//! whom, as often as it did, and how long each thread computed, wherever it runs now. A thread that was
//! woken from outside (it slept, or something was done aside) waits as long as it did.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use topology::Machine;

use super::{EntityId, Event, Trace, What};
use crate::hierarchy::{Bubble, Entity, Hierarchy, Kind, Levels, Lists, World, Yielded};
use crate::schedulers::Scheduler;

/// Every so many looks a processor takes from far away first, as workers do.
const FAR: u32 = 64;

/// Why a trace cannot be played through.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReplayError {
    /// So many events are missing, for which there was no room when it was recorded.
    #[error("{0} events had no room in the trace: record it again with more (COPLACE_BUBBLES_EVENTS)")]
    Lost(u64),
    /// Threads are left that nothing wakes any more.
    #[error(
        "after {at_ns} ns {waiting} threads wait for something that the trace does not say: it ends before its program did"
    )]
    Stuck {
        /// Simulated time since the beginning.
        at_ns: u64,
        /// How many threads have not ended.
        waiting: usize,
    },
}

enum Step {
    Compute(u64),
    /// Waits until it is released once more.
    Block,
    /// Waits so long.
    Sleep(u64),
    Release(u64),
    Yield,
    End,
    Do(What),
}

struct Thread {
    entity: Box<Entity>,
    steps: VecDeque<Step>,
    /// How often it was released before it waited.
    released: u32,
    waits: bool,
}

enum Happened {
    Burst(*const Bubble, usize),
    Stolen(*const Entity, usize),
    Interrupted(usize),
}

#[derive(Default)]
struct Happenings {
    queued: Cell<bool>,
    happened: RefCell<Vec<Happened>>,
}

impl Happenings {
    fn push(&self, what: Happened) {
        self.happened.borrow_mut().push(what);
    }
}

impl World for Happenings {
    fn queued(&self, _unit: usize, _count: usize) {
        self.queued.set(true);
    }

    fn recalled(&self, _thread: &Entity, processor: usize, preempt: bool) {
        if preempt {
            self.push(Happened::Interrupted(processor));
        }
    }

    fn emptied(_lists: &Hierarchy<Happenings>, _bubble: &Bubble) {}

    fn burst(&self, bubble: &Bubble, unit: usize, _processor: usize) {
        self.push(Happened::Burst(bubble, unit));
    }

    fn stolen(&self, entity: &Entity, processor: usize) {
        self.push(Happened::Stolen(entity, processor));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A processor's thread has computed, unless it was interrupted since.
    Computed(usize, u64),
    Slept(u64),
    SliceOver(u64),
}

#[derive(Clone, Default)]
struct Processor {
    runs: Option<u64>,
    /// Until when it computes, and how often what it does was changed.
    until_ns: u64,
    changes: u64,
    searches: u32,
}

struct Player {
    lists: Hierarchy<Happenings>,
    threads: BTreeMap<u64, Thread>,
    bubbles: BTreeMap<u64, Box<Bubble>>,
    by_address: BTreeMap<usize, EntityId>,
    scripts: BTreeMap<u64, VecDeque<Step>>,
    processors: Vec<Processor>,
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    count: u64,
    now_ns: u64,
    played: Trace,
}

/// Plays a trace's program through.
pub fn replay(
    trace: &Trace,
    machine: &Machine,
    scheduler: &'static dyn Scheduler,
) -> Result<Trace, ReplayError> {
    if trace.lost > 0 {
        return Err(ReplayError::Lost(trace.lost));
    }
    let (scripts, first) = scripts(trace);
    let levels = Levels::new(machine, machine.all_cpus(), Lists::Distinct);
    let width = levels.width();
    let mut player = Player {
        lists: Hierarchy::new(levels, scheduler, Happenings::default()),
        threads: BTreeMap::new(),
        bubbles: BTreeMap::new(),
        by_address: BTreeMap::new(),
        scripts,
        processors: vec![Processor::default(); width],
        due: BinaryHeap::new(),
        count: 0,
        now_ns: 0,
        played: Trace {
            machine: machine.to_synthetic(),
            processors: width,
            scheduler: scheduler.name().to_owned(),
            lost: 0,
            names: trace.names.clone(),
            events: Vec::new(),
        },
    };
    first.into_iter().for_each(|what| player.carry_out(what, 0));
    player.play()
}

/// What each thread does, and what is done before the first one runs.
fn scripts(trace: &Trace) -> (BTreeMap<u64, VecDeque<Step>>, Vec<What>) {
    let mut scripts: BTreeMap<u64, VecDeque<Step>> = BTreeMap::new();
    let mut first = Vec::new();
    let mut since: BTreeMap<u64, u64> = BTreeMap::new();
    // Who waits, since when, and which of its steps that is.
    let mut waits: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    // Who has said that it waits and does something yet before it is off its processor, such as giving
    // back the lock that wakes somebody else; and which of its steps the waiting is.
    let mut leaves: BTreeMap<u64, usize> = BTreeMap::new();
    for event in &trace.events {
        let released = match event.what {
            What::Run(thread) => {
                since.insert(thread, event.at_ns);
                leaves.remove(&thread);
                continue;
            }
            What::Idle | What::Burst(..) | What::Stolen(_) => continue,
            What::Wake(EntityId::Thread(thread)) => waits.remove(&thread).map(|waited| (thread, waited)),
            _ => None,
        };
        if let (0, Some((thread, (since_ns, at)))) = (event.thread, released) {
            if let Some(step) = scripts.get_mut(&thread).and_then(|steps| steps.get_mut(at)) {
                *step = Step::Sleep(event.at_ns - since_ns);
            }
            continue;
        }
        if event.thread == 0 {
            first.push(event.what);
            continue;
        }
        let steps = scripts.entry(event.thread).or_default();
        if let Some(at) = leaves.remove(&event.thread)
            && !matches!(event.what, What::Yield | What::Block | What::End)
        {
            let step = match released {
                // It need not wait after all.
                Some((thread, _)) if thread == event.thread => {
                    steps[at] = Step::Compute(0);
                    since.insert(event.thread, event.at_ns);
                    continue;
                }
                Some((thread, _)) => Step::Release(thread),
                None => Step::Do(event.what),
            };
            steps.insert(at, step);
            leaves.insert(event.thread, at + 1);
            waits.entry(event.thread).and_modify(|waited| waited.1 += 1);
            continue;
        }
        let computed = since.insert(event.thread, event.at_ns).map_or(0, |since| event.at_ns - since);
        if computed > 0 {
            steps.push_back(Step::Compute(computed));
        }
        steps.push_back(match event.what {
            What::Yield => Step::Yield,
            What::End => Step::End,
            What::Block => {
                waits.insert(event.thread, (event.at_ns, steps.len()));
                leaves.insert(event.thread, steps.len());
                Step::Block
            }
            what => released.map_or(Step::Do(what), |(thread, _)| Step::Release(thread)),
        });
    }
    (scripts, first)
}

impl Player {
    fn play(mut self) -> Result<Trace, ReplayError> {
        self.offer();
        while !self.threads.is_empty() && self.goes_on() {
            let Some(Reverse((at_ns, _, due))) = self.due.pop() else { break };
            self.now_ns = at_ns;
            match due {
                Due::Computed(processor, changes) => {
                    if self.processors[processor].changes == changes {
                        self.go_on(processor);
                    }
                }
                Due::Slept(thread) => self.release(thread, 0),
                Due::SliceOver(number) => {
                    if self.bubbles.get(&number).is_some_and(|bubble| !self.lists.is_over(bubble)) {
                        self.carry_out(What::Close(number), 0);
                    }
                }
            }
            self.offer();
        }
        match self.threads.len() {
            0 => Ok(self.played),
            waiting => Err(ReplayError::Stuck { at_ns: self.now_ns, waiting }),
        }
    }

    /// Whether anything is due but slices, which would be over and begin again for ever.
    fn goes_on(&self) -> bool {
        self.due.iter().any(|Reverse((.., due))| !matches!(due, Due::SliceOver(_)))
    }

    fn at(&mut self, at_ns: u64, due: Due) {
        self.count += 1;
        self.due.push(Reverse((at_ns, self.count, due)));
    }

    fn note(&mut self, processor: usize, what: What) {
        let thread = self.processors.get(processor).and_then(|processor| processor.runs).unwrap_or(0);
        self.played.events.push(Event::new(self.now_ns, processor, thread, what));
    }

    /// Idle processors look until none finds anything, and who was interrupted gives way.
    fn offer(&mut self) {
        loop {
            self.handle_happenings();
            if !self.lists.world.queued.take() {
                return;
            }
            for processor in 0..self.processors.len() {
                if self.processors[processor].runs.is_none() && self.find_work(processor) {
                    self.go_on(processor);
                }
            }
        }
    }

    fn handle_happenings(&mut self) {
        loop {
            let happened = self.lists.world.happened.take();
            if happened.is_empty() {
                return;
            }
            for what in happened {
                match what {
                    Happened::Burst(bubble, unit) => self.has_burst(bubble, unit),
                    Happened::Stolen(entity, processor) => {
                        if let Some(&id) = self.by_address.get(&(entity as usize)) {
                            self.note(processor, What::Stolen(id));
                        }
                    }
                    Happened::Interrupted(processor) => self.interrupt(processor),
                }
            }
        }
    }

    fn has_burst(&mut self, bubble: *const Bubble, unit: usize) {
        let Some(&EntityId::Bubble(number)) = self.by_address.get(&(bubble as usize)) else { return };
        let processor = self.processors.len();
        self.note(processor, What::Burst(number, unit));
        let slice_ns = self.bubbles[&number].wishes().slice_ns;
        if slice_ns > 0 {
            self.at(self.now_ns + slice_ns, Due::SliceOver(number));
        }
    }

    fn interrupt(&mut self, processor: usize) {
        let here = &mut self.processors[processor];
        let Some(thread) = here.runs.filter(|_| here.until_ns > self.now_ns) else { return };
        let left_ns = here.until_ns - self.now_ns;
        here.until_ns = self.now_ns;
        here.changes += 1;
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.steps.push_front(Step::Compute(left_ns));
            thread.steps.push_front(Step::Yield);
        }
        self.go_on(processor);
    }

    fn far(&mut self, processor: usize) -> bool {
        let searches = &mut self.processors[processor].searches;
        *searches = searches.wrapping_add(1);
        searches.is_multiple_of(FAR)
    }

    /// Whether the processor has found something to run.
    fn find_work(&mut self, processor: usize) -> bool {
        let far = self.far(processor);
        let found = self.lists.next(processor, far).or_else(|| self.lists.steal(processor));
        self.runs(processor, found);
        found.is_some()
    }

    fn runs(&mut self, processor: usize, entity: Option<*const Entity>) {
        let thread = entity.and_then(|entity| match self.by_address.get(&(entity as usize)) {
            Some(&EntityId::Thread(thread)) => Some(thread),
            _ => None,
        });
        let was = std::mem::replace(&mut self.processors[processor].runs, thread);
        match thread {
            Some(thread) => self.note(processor, What::Run(thread)),
            None if was.is_some() => self.note(processor, What::Idle),
            None => {}
        }
    }

    /// Carries out what the processor's thread does, and those after it, up to where one computes.
    fn go_on(&mut self, processor: usize) {
        while let Some(number) = self.processors[processor].runs {
            let thread = self.threads.get_mut(&number).expect("who runs has not ended");
            let entity: *const Entity = &*thread.entity;
            // SAFETY: boxes stay where they are until the thread has ended, which only this function sees to.
            let entity = unsafe { &*entity };
            match thread.steps.pop_front().unwrap_or(Step::End) {
                Step::Compute(ns) => {
                    let until_ns = self.now_ns + ns;
                    let here = &mut self.processors[processor];
                    here.until_ns = until_ns;
                    here.changes += 1;
                    let changes = here.changes;
                    return self.at(until_ns, Due::Computed(processor, changes));
                }
                Step::Yield => {
                    let far = self.far(processor);
                    match self.lists.yield_processor(entity, processor, far) {
                        Yielded::Stay => {}
                        Yielded::Next(next) => self.runs(processor, Some(next)),
                        Yielded::Nothing => self.find_next_or_idle(processor),
                    }
                }
                Step::Block if thread.released > 0 => thread.released -= 1,
                Step::Block => {
                    thread.waits = true;
                    self.lists.block(entity, processor);
                    self.find_next_or_idle(processor);
                }
                Step::Sleep(ns) => {
                    thread.waits = true;
                    self.lists.block(entity, processor);
                    self.at(self.now_ns + ns, Due::Slept(number));
                    self.find_next_or_idle(processor);
                }
                Step::Release(other) => self.release(other, processor),
                Step::Do(what) => self.carry_out(what, processor),
                Step::End => {
                    self.note(processor, What::End);
                    self.lists.finish(entity);
                    self.by_address.remove(&(std::ptr::from_ref(entity) as usize));
                    self.threads.remove(&number);
                    self.find_next_or_idle(processor);
                }
            }
        }
    }

    /// The processor has nothing any more, unless it finds something.
    fn find_next_or_idle(&mut self, processor: usize) {
        let far = self.far(processor);
        let next = self.lists.next(processor, far).or_else(|| self.lists.steal(processor));
        self.runs(processor, next);
    }

    fn release(&mut self, number: u64, processor: usize) {
        let Some(thread) = self.threads.get_mut(&number) else { return };
        if std::mem::take(&mut thread.waits) {
            self.lists.wake(&thread.entity, processor);
        } else {
            thread.released += 1;
        }
    }

    fn entity(&self, id: EntityId) -> Option<&Entity> {
        match id {
            EntityId::Thread(number) => self.threads.get(&number).map(|thread| &*thread.entity),
            EntityId::Bubble(number) => self.bubbles.get(&number).map(|bubble| &bubble.entity),
        }
    }

    fn carry_out(&mut self, what: What, processor: usize) {
        match what {
            What::Made(id, priority) => self.make(id, priority),
            What::Wishes(bubble, wishes) => {
                if let Some(bubble) = self.bubbles.get(&bubble) {
                    bubble.set_wishes(wishes);
                }
            }
            What::Priority(id, priority) => {
                if let Some(entity) = self.entity(id) {
                    entity.set_priority(priority);
                }
            }
            What::Insert(id, bubble) => {
                if let (Some(entity), Some(bubble)) = (self.entity(id), self.bubbles.get(&bubble)) {
                    // What the program was refused is refused here.
                    let _ = self.lists.insert(bubble, entity);
                }
            }
            What::Remove(id) => {
                if let Some(entity) = self.entity(id) {
                    self.lists.remove(entity);
                }
            }
            What::Wake(id) => {
                if let Some(entity) = self.entity(id) {
                    self.lists.wake(entity, processor);
                }
            }
            What::Close(bubble) => {
                if let Some(bubble) = self.bubbles.get(&bubble) {
                    self.lists.close(bubble);
                }
            }
            _ => return,
        }
        self.note(processor, what);
    }

    fn make(&mut self, id: EntityId, priority: u8) {
        match id {
            EntityId::Thread(number) => {
                let entity = Box::new(Entity::new(Kind::Thread, priority));
                self.by_address.insert(std::ptr::from_ref(&*entity) as usize, id);
                let steps = self.scripts.remove(&number).unwrap_or_default();
                self.threads.insert(number, Thread { entity, steps, released: 0, waits: false });
            }
            EntityId::Bubble(number) => {
                let bubble = Box::new(Bubble::new(priority));
                self.by_address.insert(std::ptr::from_ref(&*bubble) as usize, id);
                self.bubbles.insert(number, bubble);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedulers;

    /// Two bubbles of two threads, each of which computes for 100 ns, all recorded on one processor.
    fn trace() -> Trace {
        let mut text = String::from("coplace bubbles trace 1\nprocessors 1\nscheduler flat\n");
        let mut line = |words: &str| {
            text += words;
            text.push('\n');
        };
        line("0 1 0 made t1 7");
        line("0 1 0 wake t1");
        line("0 0 0 run t1");
        for bubble in 1..=2 {
            line(&format!("0 0 1 made b{bubble} 7"));
            for thread in [2 * bubble, 2 * bubble + 1] {
                line(&format!("0 0 1 made t{thread} 7"));
                line(&format!("0 0 1 insert t{thread} b{bubble}"));
            }
            line(&format!("0 0 1 wake b{bubble}"));
        }
        line("0 0 1 block");
        for thread in 2..=5 {
            line(&format!("{} 0 1 run t{thread}", 100 * (thread - 2)));
            if thread == 5 {
                line("400 0 5 wake t1");
            }
            line(&format!("{} 0 {thread} end", 100 * (thread - 1)));
        }
        line("400 0 0 run t1");
        line("410 0 1 end");
        Trace::parse(&text).expect("a trace")
    }

    #[test]
    fn a_priority_above_the_highest_counts_as_the_highest() {
        let text = "coplace bubbles trace 1\nprocessors 1\nscheduler flat\n\
                    0 1 0 made t1 99\n0 1 0 wake t1\n0 0 0 run t1\n410 0 1 end\n";
        let machine = Machine::synthetic("core:1").expect("a machine");
        let scheduler = schedulers::by_name("flat").expect("it is known");
        let played = replay(&Trace::parse(text).expect("a trace"), &machine, scheduler);
        assert_eq!(played.map(|trace| trace.end_ns()), Ok(410));
    }

    fn duration_ns(machine: &str, scheduler: &str) -> u64 {
        let machine = Machine::synthetic(machine).expect("a machine");
        let scheduler = schedulers::by_name(scheduler).expect("it is known");
        replay(&trace(), &machine, scheduler).expect("it plays through").end_ns()
    }

    #[test]
    fn a_replayed_program_keeps_its_time_and_gains_by_processors() {
        for scheduler in schedulers::NAMES {
            assert_eq!(duration_ns("core:1", scheduler), 410, "{scheduler}");
            assert_eq!(duration_ns("core:2", scheduler), 210, "{scheduler}");
        }
        assert_eq!(duration_ns("pack:2 core:2", "spread"), 110);
    }

    #[test]
    fn a_sleeping_thread_sleeps_as_long_in_the_replay() {
        let text = "coplace bubbles trace 1\nprocessors 1\nscheduler flat\n0 1 0 made t1 7\n0 1 0 wake t1\n\
            0 0 0 run t1\n5 0 1 block\n45 1 0 wake t1\n50 0 0 run t1\n60 0 1 end\n";
        let machine = Machine::synthetic("core:1").expect("a machine");
        let trace = Trace::parse(text).expect("a trace");
        assert_eq!(replay(&trace, &machine, &schedulers::Burst).map(|played| played.end_ns()), Ok(55));
    }

    #[test]
    fn a_slice_lets_bubbles_take_turns() {
        let mut text = String::from("coplace bubbles trace 1\nprocessors 1\nscheduler gang\n");
        for bubble in 1..=2 {
            text += &format!(
                "0 1 0 made b{bubble} 7\n0 1 0 wishes b{bubble} fitting 1-9 - 30 1\n0 1 0 made t{bubble} 7\n\
                 0 1 0 insert t{bubble} b{bubble}\n0 1 0 wake b{bubble}\n"
            );
        }
        text += "0 0 0 run t1\n100 0 1 end\n100 0 0 run t2\n200 0 2 end\n";
        let trace = Trace::parse(&text).expect("a trace");
        let machine = Machine::synthetic("core:1").expect("a machine");
        let played = replay(&trace, &machine, &schedulers::Gang).expect("it plays through");
        assert_eq!(played.end_ns(), 200);
        assert!(played.summary().switches > 4, "{played}");
    }

    #[test]
    fn an_incomplete_trace_is_refused() {
        let machine = Machine::synthetic("core:1").expect("a machine");
        let lost = Trace { lost: 3, ..trace() };
        assert_eq!(replay(&lost, &machine, &schedulers::Burst), Err(ReplayError::Lost(3)));
        let mut cut = trace();
        cut.events.retain(|event| event.what != What::Wake(EntityId::Thread(1)) || event.thread == 0);
        assert_eq!(
            replay(&cut, &machine, &schedulers::Burst),
            Err(ReplayError::Stuck { at_ns: 400, waiting: 1 })
        );
    }
}
