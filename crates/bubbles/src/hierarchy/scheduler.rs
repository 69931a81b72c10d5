//! What a scheduler is: where threads and bubbles go. It decides and does nothing: what it answers is carried
//! out by the hierarchy, which knows who runs and who holds which lock.

use super::bubble::{BurstAt, Wishes};
use super::levels::Levels;
use super::pull::burst_unit;

/// What a scheduler may know of a bubble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Threads in it and in the bubbles in it, counted up to one more than the machine has processors.
    pub threads: usize,
    /// As its maker set them last.
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
    /// 0 to 15, 15 before all others.
    pub priority: u8,
    /// `None` for a thread.
    pub bubble: Option<(Facts, Vec<Branch>)>,
}

impl Branch {
    /// How many threads are in it, at any depth; 1 for a thread.
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
    /// The [`Branch::what`] of the thread or bubble.
    pub what: usize,
    /// Number of the unit on whose list it goes, or on which it bursts.
    pub unit: usize,
    /// Only for a bubble; a thread is queued either way.
    pub how: How,
}

/// What an idle processor may take from the lists of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    /// Nothing: it waits until there is something on its own lists.
    Nothing,
    /// Bubbles as a whole, and threads that are in none.
    Bubbles,
    /// Where no whole bubble can be had, also single threads out of one.
    Threads,
}

/// Where what goes. `from` and `processor` are those that act; answers are numbers of units.
pub trait Scheduler: Send + Sync {
    /// What traces call it, such as `burst`.
    fn name(&self) -> &str;

    /// The list for a thread that is in no bubble.
    fn submit_thread(&self, levels: &Levels, _priority: u8, from: usize) -> usize {
        levels.own(from)
    }

    /// Where a bubble and what is in it goes when it is woken, below `top`. `bubble` tells what that is, for
    /// those who want to know; an empty plan leaves it whole.
    fn submit_bubble(
        &self,
        _levels: &Levels,
        _bubble: &dyn Fn() -> Branch,
        _top: usize,
        _from: usize,
    ) -> Vec<Put> {
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
