//! Waking, pulling and bursting: how what is ready comes onto lists.

use std::collections::HashMap;

use super::bubble::{Bubble, Members};
use super::entity::{Entity, Kind, Place};
use super::scheduler::{Branch, Facts, How, Put, Scheduler};
use super::{Hierarchy, World};
use crate::lock::Guard;

const IN_HANDS: Place = Place::Active { processor: 0, recalled: false };

impl<W: World> Hierarchy<W> {
    /// Wakes what is in a bubble: it waits there, or joins the others on their lists.
    pub(super) fn wake_member(&self, entity: &Entity, processor: usize) {
        let Some((holder, members)) = self.lock_holder(entity) else {
            return self.wake(entity, processor);
        };
        entity.set_woken();
        if entity.place() != Place::Nowhere {
            return;
        }
        let notified = match holder.entity.place() {
            Place::Burst(unit) if !members.closing => {
                let home = entity.home().filter(|&home| self.levels.within(home, unit)).unwrap_or(unit);
                self.push_quietly(entity, home, Place::Nowhere)
            }
            _ => {
                entity.set_place(Place::Inside);
                None
            }
        };
        drop(members);
        if let Some(unit) = notified {
            self.world.queued(unit, 1);
        }
    }

    /// Wakes a bubble that is in no other: the scheduler says where it goes.
    pub(super) fn wake_root(&self, entity: &Entity, processor: usize) {
        if !entity.claim() {
            return;
        }
        entity.set_place(IN_HANDS);
        // SAFETY: the caller saw that it is a bubble.
        let bubble = unsafe { Bubble::of(entity) };
        self.submit(bubble, self.scheduler(0), 0, processor);
    }

    /// Has a scheduler place a bubble that is in our hands below `top`.
    pub(super) fn submit(&self, bubble: &Bubble, scheduler: &dyn Scheduler, top: usize, processor: usize) {
        let puts = scheduler.submit_bubble(&self.levels, &|| self.branch(&bubble.entity), top, processor);
        if puts.is_empty() {
            let unit = scheduler.submit_whole(&self.levels, top, processor);
            return self.put_whole(bubble, unit);
        }
        let puts: HashMap<usize, Put> = puts.into_iter().map(|put| (put.what, put)).collect();
        self.open(bubble, &puts, top, processor);
    }

    fn put_whole(&self, bubble: &Bubble, unit: usize) {
        bubble.lock().origin = Some(unit);
        if !self.push(&bubble.entity, unit, IN_HANDS) {
            self.settle(bubble);
        }
    }

    /// Puts a bubble that is in our hands where the plan wants it, and what is in it.
    fn open(&self, bubble: &Bubble, puts: &HashMap<usize, Put>, otherwise: usize, processor: usize) {
        let id = |entity: &Entity| std::ptr::from_ref(entity) as usize;
        let put = puts.get(&id(&bubble.entity));
        let unit = put.map_or(otherwise, |put| put.unit);
        if put.is_none_or(|put| put.how == How::Whole) {
            return self.put_whole(bubble, unit);
        }
        let Some(members) = self.begin_burst(bubble, unit) else { return };
        let (mut notified, mut inner) = (Vec::new(), Vec::new());
        for member in members.iter().filter(|member| member.place() == Place::Inside) {
            let unit = puts.get(&id(member)).map_or(unit, |put| put.unit);
            match member.kind() {
                Kind::Thread => notified.extend(self.push_quietly(member, unit, Place::Inside)),
                Kind::Bubble => {
                    member.set_place(IN_HANDS);
                    inner.push(member);
                }
            }
        }
        drop(members);
        self.world.burst(bubble, unit, processor);
        for unit in notified {
            self.world.queued(unit, 1);
        }
        for member in inner {
            // SAFETY: it is a bubble, and in our hands.
            self.open(unsafe { Bubble::of(member) }, puts, unit, processor);
        }
    }

    /// A processor has taken a bubble, which is in its hands, from the list of `unit`: it goes down in its
    /// direction and bursts.
    pub(super) fn pull(&self, bubble: &Bubble, unit: usize, processor: usize) {
        let scheduler = self.scheduler(unit);
        let facts = self.facts(bubble);
        let unit = scheduler.pulled(&self.levels, &facts, unit, processor);
        self.burst(bubble, unit, processor, scheduler.lets_out_in_front());
    }

    /// What a scheduler may know of a bubble.
    pub fn facts(&self, bubble: &Bubble) -> Facts {
        let wishes = bubble.wishes();
        // More threads than the machine has processors are all the same to whoever chooses a unit.
        Facts { threads: self.threads_up_to(bubble, self.levels.width() + 1), wishes }
    }

    /// Makes a bubble that is in our hands one that has burst on `unit`; its members, or none where somebody
    /// has recalled it meanwhile, which is seen to.
    fn begin_burst<'a>(&self, bubble: &'a Bubble, unit: usize) -> Option<Guard<'a, Members>> {
        let mut members = bubble.lock();
        members.origin.get_or_insert(unit);
        if !bubble.entity.step(IN_HANDS, Place::Burst(unit)) {
            drop(members);
            self.settle(bubble);
            return None;
        }
        bubble.entity.set_home(unit);
        Some(members)
    }

    /// Lets the members of a bubble that is in our hands out onto the list of `unit`.
    fn burst(&self, bubble: &Bubble, unit: usize, processor: usize, in_front: bool) {
        let Some(members) = self.begin_burst(bubble, unit) else { return };
        let mut at = unit;
        let mut list = self.lists[at].lock();
        while !list.is_open()
            && let Some(parent) = self.levels.unit(at).parent
        {
            drop(list);
            at = parent;
            list = self.lists[at].lock();
        }
        let mut count = 0;
        let mut let_out = |member: &Entity| {
            if member.step_own(Place::Inside, Place::Queued(at)) {
                member.adopt();
                member.set_home(at);
                count += 1;
                true
            } else {
                false
            }
        };
        if in_front {
            let ready: Vec<&Entity> = members.iter().filter(|member| let_out(member)).collect();
            ready.into_iter().rev().for_each(|member| list.push_front(member));
        } else {
            members.iter().filter(|member| let_out(member)).for_each(|member| list.push_back(member));
        }
        drop(list);
        drop(members);
        self.world.burst(bubble, unit, processor);
        self.world.queued(at, count);
    }

    /// A thread or bubble with all that is in it, as schedulers see it.
    pub fn branch(&self, entity: &Entity) -> Branch {
        let what = std::ptr::from_ref(entity) as usize;
        match entity.kind() {
            Kind::Thread => Branch { what, priority: entity.priority(), bubble: None },
            Kind::Bubble => {
                // SAFETY: it is a bubble.
                let bubble = unsafe { Bubble::of(entity) };
                let facts = self.facts(bubble);
                let members = bubble.lock();
                let members = members.iter().map(|member| self.branch(member)).collect();
                Branch { what, priority: entity.priority(), bubble: Some((facts, members)) }
            }
        }
    }
}
