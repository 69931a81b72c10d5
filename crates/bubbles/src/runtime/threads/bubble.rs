//! Bubbles as programs have them.

use std::fmt;

use topology::Level;

use super::wait;
use crate::hierarchy::{self, BurstAt, InsertError, PRIORITY, Wishes};
use crate::runtime::records::bubble::Shared;
use crate::runtime::records::thread::Thread;
use crate::runtime::records::trace_id;
use crate::runtime::workers::{pool, preempt, worker};
use crate::trace::What;

/// Threads, and bubbles of threads, that belong together.
///
/// A bubble is made closed. What is put into it before it is woken starts when it is let out; what is
/// put into it later joins the others. A bubble that is dropped before its threads have ended lives on
/// until they have.
///
/// ```
/// use coplace_bubbles::{Bubble, Builder, Config, run};
/// run(&Config::default(), || {
///     let bubble = Bubble::new();
///     let one = Builder::new().dormant().spawn(|| 1);
///     bubble.insert(&one).unwrap();
///     bubble.wake();
///     let two = Builder::new().dormant().spawn(|| 2);
///     bubble.insert(&two).unwrap();
///     assert_eq!(one.join().unwrap() + two.join().unwrap(), 3);
/// })
/// .unwrap();
/// ```
pub struct Bubble {
    shared: &'static Shared,
}

impl Default for Bubble {
    fn default() -> Bubble {
        Bubble::new()
    }
}

impl fmt::Debug for Bubble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bubble({})", self.name().unwrap_or("without a name"))
    }
}

impl Bubble {
    /// Makes an empty bubble without a name. Panics outside threads of [`run`](crate::run).
    pub fn new() -> Bubble {
        Bubble::make(None)
    }

    /// Like [`new`](Bubble::new), with a name for traces and [`placement`](crate::placement).
    pub fn named(name: &str) -> Bubble {
        Bubble::make(Some(name))
    }

    fn make(name: Option<&str>) -> Bubble {
        // Inside: who is interrupted while it holds a lock of the kernel thread may keep others from it.
        let worker = worker::enter();
        let shared = Shared::acquire(name);
        let world = &worker.lists().world;
        world.note(|| What::Made(shared.trace_id(), PRIORITY));
        if let (Some(name), Some(recorder)) = (name, &world.recorder) {
            recorder.name(shared.trace_id(), name);
        }
        worker::leave();
        Bubble { shared }
    }

    /// The name that it was made with; `None` where it was made without one.
    pub fn name(&self) -> Option<&str> {
        self.shared.name()
    }

    fn wish(&self, change: impl FnOnce(&mut Wishes)) -> &Bubble {
        let mut wishes = self.shared.bubble.wishes();
        change(&mut wishes);
        self.shared.bubble.set_wishes(wishes);
        worker::note(|| What::Wishes(self.shared.number(), wishes));
        self
    }

    /// It bursts on a unit of this level; where the machine lacks it, of the next narrower one.
    pub fn burst_level(&self, level: Level) -> &Bubble {
        self.wish(|wishes| wishes.burst = BurstAt::Level(level))
    }

    /// It bursts on the smallest unit with at least so many processors.
    pub fn burst_processors(&self, count: usize) -> &Bubble {
        self.wish(|wishes| wishes.burst = BurstAt::Processors(count))
    }

    /// The fewest and the most processors of the unit on which it bursts.
    pub fn elastic(&self, fewest: usize, most: usize) -> &Bubble {
        self.wish(|wishes| (wishes.fewest, wishes.most) = (fewest, most))
    }

    /// Its data are on this NUMA node, by the kernel's number.
    pub fn memory(&self, node: u32) -> &Bubble {
        self.wish(|wishes| wishes.memory = Some(node))
    }

    /// It closes so many nanoseconds after it has burst, and may burst elsewhere; 0: never by itself.
    pub fn slice_ns(&self, slice_ns: u64) -> &Bubble {
        let worker = worker::enter();
        if slice_ns > 0 {
            pool::start_clock(worker.lists());
        }
        worker::leave();
        self.wish(|wishes| wishes.slice_ns = slice_ns)
    }

    /// Whether its own threads are interrupted, by SIGURG, when they are to come home and do not come to
    /// the runtime by themselves. They must not hold anything then that belongs to the kernel thread: a
    /// lock of the standard library, a reference to a thread-local variable.
    pub fn preempt(&self, preempt: bool) -> &Bubble {
        if preempt {
            preempt::prepare();
        }
        self.wish(|wishes| wishes.preempt = preempt)
    }

    /// 0 to 15; 7 unless it is set. It counts from the next time on that the bubble is queued.
    pub fn priority(&self, priority: u8) -> &Bubble {
        self.shared.bubble.entity.set_priority(priority);
        worker::note(|| What::Priority(self.shared.trace_id(), priority));
        self
    }

    pub(crate) fn insert_record(&self, thread: &Thread) -> Result<(), InsertError> {
        self.insert_entity(&thread.entity)
    }

    /// Puts a bubble into it.
    pub fn insert_bubble(&self, bubble: &Bubble) -> Result<(), InsertError> {
        self.insert_entity(&bubble.shared.bubble.entity)
    }

    fn insert_entity(&self, entity: &hierarchy::Entity) -> Result<(), InsertError> {
        let worker = worker::enter();
        worker.lists().world.note(|| What::Insert(trace_id(entity), self.shared.number()));
        let inserted = worker.lists().insert(&self.shared.bubble, entity);
        worker::leave();
        inserted
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Takes it out of the bubble around it.
    pub fn remove(&self) {
        let worker = worker::enter();
        worker.lists().world.note(|| What::Remove(self.shared.trace_id()));
        worker.lists().remove(&self.shared.bubble.entity);
        worker::leave();
    }

    /// Lets it be scheduled, with all that is in it.
    pub fn wake(&self) {
        let worker = worker::enter();
        worker.lists().world.note(|| What::Wake(self.shared.trace_id()));
        worker.lists().wake(&self.shared.bubble.entity, worker.number);
        worker::leave();
    }

    /// Calls its threads home; it goes back to where it was and may burst elsewhere. False if it has not
    /// burst.
    pub fn close(&self) -> bool {
        let worker = worker::enter();
        let lists = worker.lists();
        lists.world.note(|| What::Close(self.shared.number()));
        let closes = lists.close(&self.shared.bubble);
        worker::leave();
        closes
    }

    /// Whether it has no threads that have not ended.
    pub fn is_over(&self) -> bool {
        let worker = worker::enter();
        let over = worker.lists().is_over(&self.shared.bubble);
        worker::leave();
        over
    }

    /// Waits until all threads in it, and in the bubbles in it, have ended.
    pub fn join(&self) {
        loop {
            let over = wait::with(&self.shared.joiners, |worker, joiners| {
                // Before looking: who ends after that will find us.
                self.shared.will_be_waited_for();
                if worker.lists().is_over(&self.shared.bubble) {
                    return true;
                }
                wait::wait(worker, joiners, |joiners| joiners);
                false
            });
            if over {
                return;
            }
        }
    }

    /// How many threads and bubbles are directly in it.
    pub fn len(&self) -> usize {
        let worker = worker::enter();
        let count = worker.lists().members(&self.shared.bubble).len();
        worker::leave();
        count
    }

    /// Whether neither a thread nor a bubble is directly in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Bubble {
    fn drop(&mut self) {
        // Outside a runtime all threads have ended, and no list is left.
        if worker::is_inside() {
            let worker = worker::enter();
            self.shared.release(worker.lists());
            worker::leave();
        } else {
            self.shared.release_outside();
        }
    }
}
