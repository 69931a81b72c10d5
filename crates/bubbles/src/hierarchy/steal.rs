//! What idle processors take from others.

use super::bubble::Bubble;
use super::entity::{Entity, Kind, Place};
use super::scheduler::Steal;
use super::{Hierarchy, World};

impl<W: World> Hierarchy<W> {
    /// Takes a thread from the lists of others: the nearest first, and no higher than needed. Closed
    /// bubbles come as a whole and burst on the thief's side; so do those that have burst and of which
    /// no thread runs. A thread leaves its bubble behind only where nothing else can be had.
    pub fn steal(&self, processor: usize) -> Option<*const Entity> {
        let own = self.levels.own(processor);
        let how = self.scheduler(own).idle(&self.levels, processor);
        if how == Steal::Nothing {
            return None;
        }
        for pair in self.levels.path(processor).windows(2) {
            let (mine, above) = (pair[0], pair[1]);
            for unit in above + 1..self.levels.unit(above).end {
                if self.lists[unit].urgency() == 0 || self.levels.within(unit, mine) {
                    continue;
                }
                if let Some(thread) = self.steal_from(unit, mine, processor, how) {
                    return Some(thread);
                }
            }
        }
        None
    }

    fn steal_from(&self, unit: usize, mine: usize, processor: usize, how: Steal) -> Option<*const Entity> {
        let mut list = self.lists[unit].lock();
        if let Some(entity) = list.first(Kind::Bubble) {
            // SAFETY: it is on the list, whose lock is held.
            let bubble = unsafe { Bubble::of(entity) };
            list.unlink(&bubble.entity);
            bubble.entity.set_place(Place::Active { processor: 0, recalled: false });
            drop(list);
            return self.steal_bubble(bubble, mine, processor);
        }
        // SAFETY: as above.
        let thread = unsafe { &*list.first(Kind::Thread)? };
        // SAFETY: the memory of bubbles stays that of bubbles.
        if let Some(holder) = unsafe { thread.holder().as_ref() } {
            let spans_us = match holder.entity.place() {
                Place::Burst(unit) => self.levels.within(self.levels.own(processor), unit),
                _ => false,
            };
            if !spans_us {
                drop(list);
                if self.close_whole(holder) {
                    return self.steal_bubble(holder, mine, processor);
                }
                if how == Steal::Bubbles {
                    return None;
                }
                list = self.lists[unit].lock();
            }
        }
        // SAFETY: as above.
        let thread = unsafe { &*list.first(Kind::Thread)? };
        list.unlink(thread);
        thread.set_place(Place::Active { processor, recalled: false });
        thread.set_home(self.levels.own(processor));
        drop(list);
        self.world.stolen(thread, processor);
        Some(thread)
    }

    fn steal_bubble(&self, bubble: &Bubble, mine: usize, processor: usize) -> Option<*const Entity> {
        self.world.stolen(&bubble.entity, processor);
        self.pull(bubble, mine, processor);
        self.next(processor, false)
    }
}
