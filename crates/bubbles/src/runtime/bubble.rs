//! Bubbles as programs have them.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use topology::Level;

use super::pool::Lists;
use super::preempt;
use super::record::who;
use super::thread::Thread;
use super::threads::JoinHandle;
use super::wait::{self, Waiters};
use super::worker;
use crate::hierarchy::{self, BurstAt, InsertError, PRIORITY, Place, Wishes};
use crate::lock::Lock;
use crate::trace::{What, Who};

/// A bubble with what the runtime adds to it. Never freed: see [`hierarchy::Bubble`].
#[repr(C)]
pub(crate) struct Shared {
    pub bubble: hierarchy::Bubble,
    number: AtomicU64,
    /// Somebody waits for it to be over.
    waited_for: AtomicBool,
    /// Nobody has it any more: it goes when it is over.
    dropped: AtomicBool,
    joiners: Lock<Waiters>,
    name: UnsafeCell<Option<Box<str>>>,
}

// SAFETY: the name is set by the maker before others know the bubble; the rest is locked or atomic.
unsafe impl Sync for Shared {}

/// All that were ever made.
struct Known {
    all: Vec<&'static Shared>,
    /// Those that nobody has.
    spare: Vec<&'static Shared>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { all: Vec::new(), spare: Vec::new() });
static NUMBER: AtomicU64 = AtomicU64::new(1);

impl Shared {
    fn take(name: Option<&str>) -> &'static Shared {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match known.spare.pop() {
            Some(shared) => shared,
            None => {
                let shared: &'static Shared = Box::leak(Box::new(Shared {
                    bubble: hierarchy::Bubble::new(PRIORITY),
                    number: AtomicU64::new(0),
                    waited_for: AtomicBool::new(false),
                    dropped: AtomicBool::new(false),
                    joiners: Lock::new(Waiters::new()),
                    name: UnsafeCell::new(None),
                }));
                known.all.push(shared);
                shared
            }
        };
        // SAFETY: nobody has it, and who goes through all of them holds the lock.
        unsafe { *shared.name.get() = name.map(Into::into) };
        drop(known);
        shared.bubble.renew();
        shared.number.store(NUMBER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        shared.waited_for.store(false, Ordering::Relaxed);
        shared.dropped.store(false, Ordering::Relaxed);
        shared
    }

    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    fn who(&self) -> Who {
        Who::Bubble(self.number())
    }

    /// # Safety
    ///
    /// `bubble` is one of the runtime's.
    pub unsafe fn of(bubble: &hierarchy::Bubble) -> &'static Shared {
        // SAFETY: it is the first field, and never freed.
        unsafe { &*std::ptr::from_ref(bubble).cast::<Shared>() }
    }

    pub fn name(&self) -> Option<&str> {
        // SAFETY: it is set before others know the bubble, or under the lock that they hold.
        unsafe { (*self.name.get()).as_deref() }
    }

    /// Its last thread has ended, or that of a bubble in it: whoever waits looks again.
    pub fn tell(&'static self, lists: &Lists) {
        if self.waited_for.load(Ordering::Acquire) {
            loop {
                let waiter = self.joiners.lock().pop();
                let Some(thread) = waiter else { break };
                thread.wake(lists, 0);
            }
        }
        if self.dropped.load(Ordering::Acquire) {
            self.go(lists);
        }
    }

    /// Takes the memory back of a bubble that nobody has any more, if it is empty.
    fn go(&'static self, lists: &Lists) {
        if lists.is_empty(&self.bubble) && self.dropped.swap(false, Ordering::AcqRel) {
            self.number.store(0, Ordering::Relaxed);
            lists.retire(&self.bubble);
            KNOWN.lock().unwrap_or_else(PoisonError::into_inner).spare.push(self);
        }
    }
}

/// Lines of a tree that people still read.
const MOST_LINES: usize = 100;
/// Threads are counted up to here.
const MANY: usize = 1_000_000;

/// For people: a line for each bubble that has not gone, below that of the bubble around it.
pub(crate) fn tree(lists: &Lists) -> String {
    let mut found: Vec<(&Shared, u64, String)> = {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let living = known.all.iter().filter(|shared| shared.number() != 0);
        let described = |shared: &&'static Shared| {
            let number = shared.number();
            (*shared, number, shared.name().map_or_else(|| format!("bubble {number}"), str::to_owned))
        };
        living.map(described).collect()
    };
    found.sort_by_key(|(_, number, _)| *number);
    let mut inside: BTreeMap<*const hierarchy::Bubble, Vec<usize>> = BTreeMap::new();
    for (at, (shared, ..)) in found.iter().enumerate() {
        inside.entry(shared.bubble.entity.holder()).or_default().push(at);
    }
    let mut text = String::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut below = |holder: *const hierarchy::Bubble, depth: usize, open: &mut Vec<(usize, usize)>| {
        open.extend(inside.remove(&holder).unwrap_or_default().into_iter().rev().map(|at| (at, depth)));
    };
    below(std::ptr::null(), 0, &mut open);
    let mut lines = 0;
    while let Some((at, depth)) = open.pop() {
        let (shared, _, name) = &found[at];
        below(&shared.bubble, depth + 1, &mut open);
        lines += 1;
        if lines > MOST_LINES {
            continue;
        }
        let threads = lists.threads_up_to(&shared.bubble, MANY);
        let unit =
            |unit: usize| lists.levels().units().get(unit).map_or("nowhere".into(), ToString::to_string);
        let place = match shared.bubble.entity.place() {
            Place::Queued(on) => format!(", waits on {}", unit(on)),
            Place::Burst(on) => format!(", let out on {}", unit(on)),
            Place::Active { .. } => ", being placed".to_owned(),
            Place::Inside => String::new(),
            Place::Nowhere => ", not woken".to_owned(),
        };
        let plural = if threads == 1 { "" } else { "s" };
        let _ = writeln!(text, "{:indent$}{name}: {threads} thread{plural}{place}", "", indent = 2 * depth);
    }
    if lines > MOST_LINES {
        let _ = writeln!(text, "… and {} more bubbles", lines - MOST_LINES);
    }
    text
}

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
    pub fn new() -> Bubble {
        Bubble::make(None)
    }

    pub fn named(name: &str) -> Bubble {
        Bubble::make(Some(name))
    }

    fn make(name: Option<&str>) -> Bubble {
        // Inside: who is interrupted while it holds a lock of the kernel thread may keep others from it.
        let worker = worker::enter();
        let shared = Shared::take(name);
        let world = &worker.lists().world;
        world.note(|| What::Made(shared.who(), PRIORITY));
        if let (Some(name), Some(recorder)) = (name, &world.recorder) {
            recorder.name(shared.who(), name);
        }
        worker::leave();
        Bubble { shared }
    }

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
        let lists = worker.lists();
        if slice_ns > 0 {
            lists.world.clock.start(lists);
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
        worker::note(|| What::Priority(self.shared.who(), priority));
        self
    }

    /// Puts a thread into it.
    pub fn insert<T>(&self, thread: &JoinHandle<T>) -> Result<(), InsertError> {
        self.insert_entity(&thread.record().entity)
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
        worker.lists().world.note(|| What::Insert(who(entity), self.shared.number()));
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
        worker.lists().world.note(|| What::Remove(self.shared.who()));
        worker.lists().remove(&self.shared.bubble.entity);
        worker::leave();
    }

    /// Lets it be scheduled, with all that is in it.
    pub fn wake(&self) {
        let worker = worker::enter();
        worker.lists().world.note(|| What::Wake(self.shared.who()));
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
                self.shared.waited_for.store(true, Ordering::SeqCst);
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

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Bubble {
    fn drop(&mut self) {
        // Outside a runtime all threads have ended, and no list is left.
        if worker::is_inside() {
            let worker = worker::enter();
            let lists = worker.lists();
            self.shared.dropped.store(true, Ordering::Release);
            self.shared.go(lists);
            worker::leave();
        } else {
            self.shared.number.store(0, Ordering::Relaxed);
        }
    }
}
