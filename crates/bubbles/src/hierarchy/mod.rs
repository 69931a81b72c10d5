//! The hierarchy of run lists, and what happens to threads and bubbles on it.
//!
//! Every unit of the machine has a list. A processor takes from the lists of the units that it is
//! part of: the most urgent first, among equals from its own list upward. A bubble that it finds is
//! carried down in its direction and bursts: its members are queued there. What lies on the lists of
//! others is only looked at by idle processors (`steal`).
//!
//! Nobody decides for all. Whoever has something to do takes the locks that it needs, for a few
//! instructions: a bubble's before those of its members, bubbles' before lists', never two lists'.
//! What an entity's [`Place`] names says which lock that is. An entity in nobody's list is
//! [`Place::Active`], in the hands of one processor; a bubble that wants it back marks it as recalled,
//! which its holder finds when it wants to put it anywhere.
//!
//! The same code runs under the runtime's workers, the model's single processor loop and shuttle's
//! schedules. Entities are known by address; their memory must outlive the hierarchy.

mod bubble;
mod chain;
mod close;
mod entity;
mod family;
mod levels;
mod list;
mod partition;
mod place;
mod pull;
mod scheduler;
mod steal;

use std::sync::Arc;

use crate::sync::{AtomicPtr, Ordering};

pub use bubble::{Bubble, BurstAt, Wishes};
pub use entity::{Entity, Kind, PRIORITIES, PRIORITY, Place};
pub use family::InsertError;
pub use levels::{Levels, Lists, Unit};
use list::List;
pub use pull::burst_unit;
pub use scheduler::{Branch, Facts, How, Put, Scheduler, Steal};

/// Who is told of what happens.
pub trait World: Sized {
    /// `count` entities were queued on the list of `unit`.
    fn queued(&self, unit: usize, count: usize);
    /// `thread`, which `processor` runs, is to come home, and may be interrupted for that if `preempt`.
    fn recalled(&self, thread: &Entity, processor: usize, preempt: bool);
    /// The last thread of `bubble` has ended, or what it held has left it.
    fn emptied(lists: &Hierarchy<Self>, bubble: &Bubble);
    /// `bubble` has burst on `unit` by the hands of `processor`.
    fn burst(&self, _bubble: &Bubble, _unit: usize, _processor: usize) {}
    /// `bubble` has closed again.
    fn closed(&self, _bubble: &Bubble) {}
    /// `processor` has taken `entity` from the list of another.
    fn stolen(&self, _entity: &Entity, _processor: usize) {}
}

/// What a thread that would give way finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yielded {
    /// Nobody else is as urgent: it goes on.
    Stay,
    /// This one is next; the thread that gave way is queued.
    Next(*const Entity),
    /// It had to go home, and there is nothing else.
    Nothing,
}

/// The units above a processor and their lists, its own first; deeper trees than this are not built.
#[repr(align(64))]
struct Path {
    /// From `count` on the machine's again and again, which changes nothing for who looks at more than there are.
    lists: [*const List; DEEPEST],
    units: [u16; DEEPEST],
    count: u8,
}

const DEEPEST: usize = 24;
/// Lists that are looked at before asking whether there are more.
const STEP: usize = 4;
const _: () = assert!(DEEPEST.is_multiple_of(STEP), "the last step would go beyond the array");

// SAFETY: lists are shared by all processors anyway.
unsafe impl Send for Path {}
// SAFETY: as above.
unsafe impl Sync for Path {}

impl Path {
    fn new(path: &[usize], lists: &[List]) -> Path {
        assert!(path.len() <= DEEPEST, "a machine of {} levels", path.len());
        let mut all = Path { lists: [&lists[0]; DEEPEST], units: [0; DEEPEST], count: path.len() as u8 };
        for (at, &unit) in path.iter().enumerate() {
            (all.lists[at], all.units[at]) = (&lists[unit], unit as u16);
        }
        all
    }

    /// The nearest or the farthest that has something. Apart, as with most schedulers that is mostly the own one.
    #[inline(never)]
    fn find(&self, far: bool, has: impl Fn(usize) -> bool) -> Option<usize> {
        let mut all = 0..usize::from(self.count);
        if far { all.rfind(|&at| has(at)) } else { all.find(|&at| has(at)) }
    }

    /// What the list of one of its units, or of the machine, looks like.
    #[inline(always)]
    fn hint(&self, at: usize) -> u32 {
        // SAFETY: the lists are those of the hierarchy that has this path, and never move.
        unsafe { (*self.lists[at]).hint() }
    }
}

/// The lists of a machine.
pub struct Hierarchy<W> {
    levels: Levels,
    /// The units of each processor, as `Levels::path`, in one piece.
    paths: Box<[Path]>,
    /// Paths point into it, which a box would not allow.
    lists: Arc<[List]>,
    /// The scheduler of each unit; each points at a leaked `&'static dyn Scheduler`.
    schedulers: Box<[AtomicPtr<&'static dyn Scheduler>]>,
    /// Who is told of what happens on the lists.
    pub world: W,
}

impl<W: World> Hierarchy<W> {
    /// Empty lists for these units, with one scheduler for all of them. Panics beyond 24 levels.
    pub fn new(levels: Levels, scheduler: &'static dyn Scheduler, world: W) -> Hierarchy<W> {
        let scheduler: *mut &'static dyn Scheduler = Box::leak(Box::new(scheduler));
        let count = levels.units().len();
        let lists: Arc<[List]> = (0..count).map(|_| List::new()).collect();
        Hierarchy {
            paths: (0..levels.width()).map(|processor| Path::new(levels.path(processor), &lists)).collect(),
            levels,
            lists,
            schedulers: (0..count).map(|_| AtomicPtr::new(scheduler)).collect(),
            world,
        }
    }

    /// The units to which the lists belong.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The scheduler in force on a unit.
    #[inline]
    pub fn scheduler(&self, unit: usize) -> &'static dyn Scheduler {
        // SAFETY: it points at a leaked reference.
        unsafe { *self.schedulers[unit].load(Ordering::Acquire) }
    }

    /// What is queued on a unit's list, first to be taken first; for looking only.
    pub fn queued(&self, unit: usize) -> Vec<*const Entity> {
        self.lists[unit].lock().iter().collect()
    }

    /// The same as text, while the list stands still.
    pub fn names(&self, unit: usize, name: impl Fn(&Entity) -> String) -> Vec<String> {
        // SAFETY: what is on the list is alive.
        self.lists[unit].lock().iter().map(|entity| name(unsafe { &*entity })).collect()
    }

    /// The unit with the most urgent that `processor` can see, and one more than its priority. Among
    /// equals the nearest, or where `far` is set the farthest: who only ever took the nearest would
    /// let what lies higher up wait for as long as threads give way to each other below.
    #[inline(always)]
    fn best(&self, processor: usize, far: bool) -> Option<(usize, u32)> {
        let path = &self.paths[processor];
        loop {
            let mut all = 0;
            for step in 0..usize::from(path.count).div_ceil(STEP) {
                all |= (0..STEP).fold(0, |hint, at| hint | path.hint(step * STEP + at));
            }
            let urgency = list::urgency(all);
            if urgency == 0 {
                return None;
            }
            // What was seen may have gone meanwhile.
            let has = |at: usize| list::urgency(path.hint(at)) == urgency;
            let found = if !far && has(0) { Some(0) } else { path.find(far, has) };
            if let Some(at) = found {
                return Some((usize::from(path.units[at]), urgency));
            }
        }
    }

    /// Takes the thread that `processor` is to run next, bursting what bubbles it meets. See
    /// `best` for `far`.
    #[inline]
    pub fn next(&self, processor: usize, far: bool) -> Option<*const Entity> {
        loop {
            let (unit, _) = self.best(processor, far)?;
            if let Some(thread) = self.next_on(unit, processor) {
                return Some(thread);
            }
        }
    }

    /// Takes the first of a list; a bubble is pulled, and `None` then as well.
    #[inline]
    fn next_on(&self, unit: usize, processor: usize) -> Option<*const Entity> {
        let mut list = self.lists[unit].lock();
        let entity = list.pop()?;
        // SAFETY: entities outlive the hierarchy's use of them, and this one was on a list.
        let entity_ref = unsafe { &*entity };
        if entity_ref.kind() == Kind::Thread {
            entity_ref.set_place(Place::Active { processor, recalled: false });
            return Some(entity);
        }
        entity_ref.set_place(Place::Active { processor: 0, recalled: false });
        drop(list);
        // SAFETY: it is a bubble.
        self.pull(unsafe { Bubble::of(entity) }, unit, processor);
        None
    }

    /// A running thread lets others run that are at least as urgent.
    #[inline(always)]
    pub fn yield_processor(&self, thread: &Entity, processor: usize, far: bool) -> Yielded {
        if thread.recalled() {
            self.come_home(thread, processor, Place::Inside);
            return self.next(processor, far).map_or(Yielded::Nothing, Yielded::Next);
        }
        let Some((unit, urgency)) = self.best(processor, far) else { return Yielded::Stay };
        if urgency <= u32::from(thread.priority()) {
            return Yielded::Stay;
        }
        if thread.home() == Some(unit) {
            // Both are on one list: one lock for both.
            let mut list = self.lists[unit].lock();
            if list.is_open()
                && let Some(entity) = list.head()
            {
                // SAFETY: it is on the list, whose lock is held.
                let entity_ref = unsafe { &*entity };
                let active = Place::Active { processor, recalled: false };
                if entity_ref.kind() == Kind::Thread && thread.step_own(active, Place::Queued(unit)) {
                    thread.adopt();
                    list.exchange(entity_ref, thread);
                    entity_ref.set_place(active);
                    return Yielded::Next(entity);
                }
            }
        }
        // The other one is taken first: our thread would come back as the nearest.
        let Some(next) = self.next_on(unit, processor).or_else(|| self.next(processor, far)) else {
            return Yielded::Stay;
        };
        self.requeue(thread, processor);
        Yielded::Next(next)
    }

    /// Puts a running thread back where it came from; from then on others may run it.
    pub fn requeue(&self, thread: &Entity, processor: usize) {
        let active = Place::Active { processor, recalled: false };
        let home = thread.home().unwrap_or_else(|| self.levels.own(processor));
        if !self.push(thread, home, active) {
            self.come_home(thread, processor, Place::Inside);
        }
    }

    /// A running thread is about to wait for something: nobody runs it until it is woken. To be called
    /// before whoever wakes it can know of it.
    #[inline]
    pub fn block(&self, thread: &Entity, processor: usize) {
        if !thread.step_own(Place::Active { processor, recalled: false }, Place::Nowhere) {
            self.come_home(thread, processor, Place::Nowhere);
        }
    }

    /// Wakes a thread or bubble; `processor` is the one that does so. Waking what is awake does
    /// nothing.
    #[inline]
    pub fn wake(&self, entity: &Entity, processor: usize) {
        if !entity.holder().is_null() {
            return self.wake_member(entity, processor);
        }
        if entity.kind() == Kind::Bubble {
            return self.wake_root(entity, processor);
        }
        match entity.home() {
            _ if entity.is_fresh() => {
                if entity.claim() {
                    self.start(entity, processor);
                }
            }
            home => {
                self.push(entity, home.unwrap_or(0), Place::Nowhere);
            }
        }
    }

    /// Wakes a new thread that is in no bubble and that nobody else knows yet.
    #[inline]
    pub fn start(&self, thread: &Entity, processor: usize) {
        thread.set_woken();
        let unit = self.scheduler(0).submit_thread(&self.levels, thread.priority(), processor);
        self.push(thread, unit, Place::Nowhere);
    }

    /// Takes a queued thread off its list if `processor` may run it: what another waits for goes first.
    pub fn take(&self, thread: &Entity, processor: usize) -> bool {
        let Place::Queued(unit) = thread.place() else { return false };
        if !self.levels.unit(unit).processors.contains(&processor) {
            return false;
        }
        let mut list = self.lists[unit].lock();
        let there = thread.place() == Place::Queued(unit);
        if there {
            list.unlink(thread);
            thread.set_place(Place::Active { processor, recalled: false });
        }
        there
    }

    /// Whether `processor` may run, without being given it by a list, what is at home on `unit`, and
    /// nothing on its lists is more urgent.
    #[inline]
    pub fn may_hand(&self, entity: &Entity, processor: usize) -> bool {
        let home = entity.home().unwrap_or(0);
        entity.holder().is_null()
            && self.levels.unit(home).processors.contains(&processor)
            && self
                .best(processor, false)
                .is_none_or(|(_, urgency)| urgency <= u32::from(entity.priority()) + 1)
    }

    /// Whether something lies on any list that `processor` looks at, or could be stolen by it.
    pub fn anything(&self, processor: usize) -> bool {
        if self.best(processor, false).is_some() {
            return true;
        }
        let own = self.levels.own(processor);
        self.scheduler(own).idle(&self.levels, processor) != Steal::Nothing
            && self.lists.iter().any(|list| list.urgency() > 0)
    }

    /// Queues an entity that is at `from` behind those of its priority; false if it is not there any
    /// more, or was recalled.
    #[inline]
    fn push(&self, entity: &Entity, unit: usize, from: Place) -> bool {
        let Some(unit) = self.push_quietly(entity, unit, from) else { return false };
        self.world.queued(unit, 1);
        true
    }

    /// The same without telling; says on which list it is now.
    #[inline]
    fn push_quietly(&self, entity: &Entity, mut unit: usize, from: Place) -> Option<usize> {
        loop {
            let mut list = self.lists[unit].lock();
            if !list.is_open()
                && let Some(parent) = self.levels.unit(unit).parent
            {
                unit = parent;
                continue;
            }
            if !entity.step_own(from, Place::Queued(unit)) {
                return None;
            }
            entity.adopt();
            entity.set_home(unit);
            list.push_back(entity);
            return Some(unit);
        }
    }
}
