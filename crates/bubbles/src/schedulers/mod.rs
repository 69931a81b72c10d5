//! Schedulers: where threads and bubbles go. They decide and do nothing: what they answer is carried
//! out by the hierarchy, which knows who runs and who holds which lock.

mod distribute;
mod pull;

use std::sync::atomic::{AtomicUsize, Ordering};

use topology::Level;

use crate::hierarchy::{BurstAt, Levels, Wishes};

pub use pull::burst_unit;

/// What a scheduler may know of a bubble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Threads in it and in the bubbles in it, counted up to one more than the machine has processors.
    pub threads: usize,
    pub wishes: Wishes,
}

impl Facts {
    /// Whether its maker allows it to be let out on a unit.
    pub fn may_burst_on(&self, levels: &Levels, unit: usize) -> bool {
        let here = levels.unit(unit);
        here.children.is_empty()
            || match self.wishes.burst {
                BurstAt::Fitting => here.width() <= self.wishes.most,
                BurstAt::Level(level) => here.narrowest >= level,
                BurstAt::Processors(count) => {
                    !here.children.iter().any(|&child| levels.unit(child).width() >= count)
                }
            }
    }
}

/// A thread, or a bubble with all that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// By which a [`Put`] names it.
    pub what: usize,
    pub priority: u8,
    /// `None` for a thread.
    pub bubble: Option<(Facts, Vec<Branch>)>,
}

impl Branch {
    pub fn threads(&self) -> usize {
        match &self.bubble {
            None => 1,
            Some((_, members)) => members.iter().map(Branch::threads).sum(),
        }
    }
}

/// Whether a bubble stays closed where it is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It waits there as a whole until a processor pulls it.
    Whole,
    /// Its members are let out: they go where the plan puts them, or onto its own unit's list.
    Burst,
}

/// One line of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    pub what: usize,
    pub unit: usize,
    pub how: How,
}

/// What an idle processor may take from the lists of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    Nothing,
    /// Bubbles as a whole, and threads that are in none.
    Bubbles,
    /// Where no whole bubble can be had, also single threads out of one.
    Threads,
}

/// Where what goes. `from` and `processor` are those that act; answers are numbers of units.
pub trait Scheduler: Send + Sync {
    fn name(&self) -> &str;

    /// The list for a thread that is in no bubble.
    fn submit_thread(&self, levels: &Levels, _priority: u8, from: usize) -> usize {
        levels.own(from)
    }

    /// Whether bubbles are distributed when they are woken, by `submit_bubble`.
    fn plans(&self) -> bool {
        false
    }

    /// Where a bubble and what is in it goes when it is woken, below `top`.
    fn submit_bubble(&self, _levels: &Levels, _bubble: &Branch, _top: usize, _from: usize) -> Vec<Put> {
        Vec::new()
    }

    /// The list for a whole bubble, where there is no plan.
    fn submit_whole(&self, _levels: &Levels, top: usize, _from: usize) -> usize {
        top
    }

    /// A processor pulls a bubble from the list of `unit`: the unit on which it bursts, on the way from
    /// there to the processor.
    fn pulled(&self, levels: &Levels, bubble: &Facts, unit: usize, processor: usize) -> usize {
        burst_unit(levels, bubble, unit, processor)
    }

    /// What an idle processor may take from others.
    fn idle(&self, _levels: &Levels, _processor: usize) -> Steal {
        Steal::Threads
    }

    /// Whether members of a bubble that bursts go before what is queued there.
    fn lets_out_in_front(&self) -> bool {
        false
    }
}

/// The paper's: bubbles wait on the widest list, are pulled down by processors and burst where their
/// makers said, or where they have a processor for every thread.
pub struct Burst;
/// Balances load from the top, and lets out the bubbles that stand in the way of that.
pub struct Spread;
/// Keeps what is in one bubble together, as far down as it finds a processor for every thread.
pub struct Affinity;
/// One bubble at a time on all of the machine, in turn; the next ones fill what it leaves idle.
pub struct Gang;
/// Bubbles go to the NUMA node where their data are; the others where they balance it.
pub struct Memory;
/// Bubbles stay whole with whoever woke them until another processor has nothing to do.
pub struct Stealing;
/// One list for all: bubbles mean nothing.
pub struct Flat;
/// Every thread has its processor, in the order of the program; nobody takes it from there.
#[derive(Default)]
pub struct Fixed {
    next: AtomicUsize,
}

impl Scheduler for Burst {
    fn name(&self) -> &str {
        "burst"
    }
}

impl Scheduler for Spread {
    fn name(&self) -> &str {
        "spread"
    }

    fn plans(&self) -> bool {
        true
    }

    fn submit_bubble(&self, levels: &Levels, bubble: &Branch, top: usize, _from: usize) -> Vec<Put> {
        let mut puts = Vec::new();
        distribute::spread(levels, top, vec![bubble], &mut puts);
        puts
    }
}

impl Scheduler for Affinity {
    fn name(&self) -> &str {
        "affinity"
    }

    fn plans(&self) -> bool {
        true
    }

    fn submit_bubble(&self, levels: &Levels, bubble: &Branch, top: usize, _from: usize) -> Vec<Put> {
        let mut puts = Vec::new();
        distribute::together(levels, top, vec![bubble], &mut puts);
        puts
    }
}

impl Scheduler for Gang {
    fn name(&self) -> &str {
        "gang"
    }

    fn submit_thread(&self, _levels: &Levels, _priority: u8, _from: usize) -> usize {
        0
    }

    /// On the whole unit where it waits, unless its maker wants less.
    fn pulled(&self, levels: &Levels, bubble: &Facts, unit: usize, processor: usize) -> usize {
        match bubble.wishes.burst {
            BurstAt::Fitting if bubble.wishes.most >= levels.unit(unit).width() => unit,
            _ => burst_unit(levels, bubble, unit, processor),
        }
    }

    fn idle(&self, _levels: &Levels, _processor: usize) -> Steal {
        Steal::Bubbles
    }

    fn lets_out_in_front(&self) -> bool {
        true
    }
}

impl Scheduler for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn plans(&self) -> bool {
        true
    }

    fn submit_bubble(&self, levels: &Levels, bubble: &Branch, top: usize, _from: usize) -> Vec<Put> {
        let mut puts = Vec::new();
        distribute::near_memory(levels, top, bubble, &mut puts);
        puts
    }

    fn idle(&self, _levels: &Levels, _processor: usize) -> Steal {
        Steal::Bubbles
    }
}

impl Scheduler for Stealing {
    fn name(&self) -> &str {
        "steal"
    }

    fn submit_whole(&self, levels: &Levels, top: usize, from: usize) -> usize {
        if levels.within(levels.own(from), top) { levels.own(from) } else { top }
    }

    /// Where it is met on the processor's own list, and on the way there otherwise.
    fn pulled(&self, levels: &Levels, bubble: &Facts, unit: usize, processor: usize) -> usize {
        match bubble.wishes.burst {
            BurstAt::Fitting => levels.own(processor),
            _ => burst_unit(levels, bubble, unit, processor),
        }
    }

    /// What is queued behind stays whole for thieves.
    fn lets_out_in_front(&self) -> bool {
        true
    }
}

impl Scheduler for Flat {
    fn name(&self) -> &str {
        "flat"
    }

    fn submit_thread(&self, _levels: &Levels, _priority: u8, _from: usize) -> usize {
        0
    }

    fn plans(&self) -> bool {
        true
    }

    fn submit_bubble(&self, _levels: &Levels, bubble: &Branch, top: usize, _from: usize) -> Vec<Put> {
        let mut puts = Vec::new();
        distribute::all_on(top, bubble, &mut puts);
        puts
    }

    fn pulled(&self, _levels: &Levels, _bubble: &Facts, unit: usize, _processor: usize) -> usize {
        unit
    }

    fn idle(&self, _levels: &Levels, _processor: usize) -> Steal {
        Steal::Nothing
    }
}

impl Scheduler for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }

    /// The processors one after the other.
    fn submit_thread(&self, levels: &Levels, _priority: u8, _from: usize) -> usize {
        levels.own(self.next.fetch_add(1, Ordering::Relaxed) % levels.width())
    }

    fn plans(&self) -> bool {
        true
    }

    fn submit_bubble(&self, levels: &Levels, bubble: &Branch, top: usize, _from: usize) -> Vec<Put> {
        let mut puts = Vec::new();
        distribute::in_order(levels, top, bubble, &mut puts);
        puts
    }

    fn idle(&self, _levels: &Levels, _processor: usize) -> Steal {
        Steal::Nothing
    }
}

/// The schedulers that come with us, by name.
pub fn by_name(name: &str) -> Option<&'static dyn Scheduler> {
    Some(match name {
        "burst" => &Burst,
        "spread" => &Spread,
        "affinity" => &Affinity,
        "gang" => &Gang,
        "memory" => &Memory,
        "steal" => &Stealing,
        "flat" => &Flat,
        // It counts, and so each has one of its own.
        "fixed" => Box::leak(Box::<Fixed>::default()),
        _ => return None,
    })
}

/// Their names.
pub const NAMES: [&str; 8] = ["burst", "spread", "affinity", "gang", "memory", "steal", "flat", "fixed"];

/// The units of NUMA nodes with this number of the kernel, below `top`.
fn memory_unit(levels: &Levels, top: usize, node: u32) -> Option<usize> {
    (top..levels.unit(top).end).find(|&number| {
        let unit = levels.unit(number);
        let is_node = unit.level <= Level::Numa && Level::Numa <= unit.narrowest;
        is_node && unit.os_index.unwrap_or(unit.logical_index) == node
    })
}
