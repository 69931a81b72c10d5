//! The schedulers that come with us. What a scheduler is, the hierarchy says, which asks it.

mod distribute;

use std::sync::atomic::{AtomicUsize, Ordering};

use topology::Level;

use crate::hierarchy::{BurstAt, Levels};

pub use crate::hierarchy::{Branch, Facts, How, Put, Scheduler, Steal, burst_unit};

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

    fn submit_bubble(&self, levels: &Levels, bubble: &dyn Fn() -> Branch, top: usize, _: usize) -> Vec<Put> {
        plan(|puts| distribute::spread(levels, top, vec![&bubble()], puts))
    }
}

impl Scheduler for Affinity {
    fn name(&self) -> &str {
        "affinity"
    }

    fn submit_bubble(&self, levels: &Levels, bubble: &dyn Fn() -> Branch, top: usize, _: usize) -> Vec<Put> {
        plan(|puts| distribute::together(levels, top, vec![&bubble()], puts))
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

    fn submit_bubble(&self, levels: &Levels, bubble: &dyn Fn() -> Branch, top: usize, _: usize) -> Vec<Put> {
        plan(|puts| distribute::near_memory(levels, top, &bubble(), puts))
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

    fn submit_bubble(&self, _: &Levels, bubble: &dyn Fn() -> Branch, top: usize, _: usize) -> Vec<Put> {
        plan(|puts| distribute::all_on(top, &bubble(), puts))
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

    fn submit_bubble(&self, levels: &Levels, bubble: &dyn Fn() -> Branch, top: usize, _: usize) -> Vec<Put> {
        plan(|puts| distribute::in_order(levels, top, &bubble(), puts))
    }

    fn idle(&self, _levels: &Levels, _processor: usize) -> Steal {
        Steal::Nothing
    }
}

type Make = fn() -> &'static dyn Scheduler;

/// The schedulers that come with us.
const ALL: [(&str, Make); 8] = [
    ("burst", || &Burst),
    ("spread", || &Spread),
    ("affinity", || &Affinity),
    ("gang", || &Gang),
    ("memory", || &Memory),
    ("steal", || &Stealing),
    ("flat", || &Flat),
    // It counts, and so each has one of its own.
    ("fixed", || Box::leak(Box::<Fixed>::default())),
];

/// Their names.
pub const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ALL[at].0;
        at += 1;
    }
    names
};

/// The one of this name.
pub fn by_name(name: &str) -> Option<&'static dyn Scheduler> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// What somebody puts where.
fn plan(distribute: impl FnOnce(&mut Vec<Put>)) -> Vec<Put> {
    let mut puts = Vec::new();
    distribute(&mut puts);
    puts
}

/// The units of NUMA nodes with this number of the kernel, below `top`.
fn memory_unit(levels: &Levels, top: usize, node: u32) -> Option<usize> {
    (top..levels.unit(top).end).find(|&number| {
        let unit = levels.unit(number);
        let is_node = unit.level <= Level::Numa && Level::Numa <= unit.narrowest;
        is_node && unit.os_index.unwrap_or(unit.logical_index) == node
    })
}
