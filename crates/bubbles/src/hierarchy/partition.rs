//! Processors that come and go, and schedulers that are exchanged.

use super::bubble::Bubble;
use super::entity::{Entity, Kind, Place};
use super::scheduler::Scheduler;
use super::{Hierarchy, World};
use crate::sync::Ordering;

impl<W: World> Hierarchy<W> {
    /// From now on only these processors take from the lists. What lies on lists that nobody looks at
    /// any more goes up to the next list that somebody does. At least one processor must be left.
    pub fn set_processors(&self, usable: &dyn Fn(usize) -> bool) {
        for (number, unit) in self.levels.units().iter().enumerate() {
            if unit.processors.clone().any(usable) || number == 0 {
                self.lists[number].lock().set_open(true);
                continue;
            }
            let mut list = self.lists[number].lock();
            list.set_open(false);
            let left = list.drain();
            drop(list);
            for entity in left {
                self.put_back(entity, number);
            }
        }
    }

    /// Exchanges the scheduler of a unit and all below, while threads run. What is queued there is
    /// placed anew by it, below that unit: bubbles of which nothing runs are closed first. What runs or
    /// is blocked comes under the new scheduler when it is queued the next time.
    pub fn exchange(&self, top: usize, scheduler: &'static dyn Scheduler, processor: usize) {
        let leaked: *mut &'static dyn Scheduler = Box::leak(Box::new(scheduler));
        let below = top..self.levels.unit(top).end;
        for unit in below.clone() {
            self.schedulers[unit].store(leaked, Ordering::Release);
        }
        let mut drained = Vec::new();
        for unit in below {
            let queued = self.lists[unit].lock().iter().collect::<Vec<_>>();
            for entity in queued {
                // SAFETY: entities outlive the hierarchy's use of them.
                let mut at = unsafe { &*entity }.holder();
                let mut around = Vec::new();
                // SAFETY: the memory of bubbles stays that of bubbles.
                while let Some(holder) = unsafe { at.as_ref() } {
                    if matches!(holder.entity.place(), Place::Burst(on) if self.levels.within(on, top)) {
                        around.push(holder);
                    }
                    at = holder.entity.holder();
                }
                if let Some(closed) = around.into_iter().rev().find(|holder| self.close_whole(holder)) {
                    drained.push((std::ptr::from_ref(&closed.entity), top));
                }
            }
            let queued = self.lists[unit].lock().drain();
            drained.extend(queued.into_iter().map(|entity| (entity, unit)));
        }
        for (entity, unit) in drained {
            // SAFETY: it is in our hands.
            let entity_ref = unsafe { &*entity };
            match entity_ref.kind() {
                Kind::Bubble if entity_ref.holder().is_null() => {
                    // SAFETY: it is a bubble.
                    self.submit(unsafe { Bubble::of(entity) }, scheduler, top, processor);
                }
                Kind::Thread if entity_ref.holder().is_null() => {
                    let unit = scheduler.submit_thread(&self.levels, entity_ref.priority(), processor);
                    let unit = if self.levels.within(unit, top) { unit } else { top };
                    self.put_back(entity, unit);
                }
                _ => self.put_back(entity, unit),
            }
        }
    }

    /// Queues what is in our hands; what was recalled meanwhile goes home.
    fn put_back(&self, entity: *const Entity, unit: usize) {
        // SAFETY: it is in our hands.
        let entity_ref = unsafe { &*entity };
        if self.push(entity_ref, unit, Place::Active { processor: 0, recalled: false }) {
            return;
        }
        match entity_ref.kind() {
            Kind::Thread => self.come_home(entity_ref, 0, Place::Inside),
            // SAFETY: it is a bubble.
            Kind::Bubble => self.settle(unsafe { Bubble::of(entity) }),
        }
    }
}
