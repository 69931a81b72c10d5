//! Who is in which bubble.

use super::bubble::{Bubble, Members};
use super::entity::{Entity, Kind, Place};
use super::{Hierarchy, World};
use crate::lock::Guard;

/// Why a thread or bubble cannot be put into a bubble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The thread or bubble is in a bubble already, perhaps in this one.
    #[error("it is in a bubble already: remove it there first")]
    HasHolder,
    /// The bubble would contain itself, directly or through others.
    #[error("a bubble cannot be in itself, nor in one of its own members")]
    Circle,
}

impl<W: World> Hierarchy<W> {
    /// The bubble around an entity, locked.
    pub(super) fn lock_holder<'a>(&self, entity: &Entity) -> Option<(&'a Bubble, Guard<'a, Members>)> {
        loop {
            // SAFETY: the memory of bubbles stays that of bubbles (see `Bubble`).
            let holder: &'a Bubble = unsafe { entity.holder().as_ref() }?;
            let members = holder.lock();
            if entity.holder() == holder.address() {
                return Some((holder, members));
            }
        }
    }

    /// Puts a thread or bubble into a bubble. What has not been woken yet is woken with the bubble; what
    /// is queued goes to where the bubble's members are; what runs or has burst stays as it is until the
    /// bubble closes the next time.
    pub fn insert(&self, bubble: &Bubble, entity: &Entity) -> Result<(), InsertError> {
        if entity.kind() == Kind::Bubble {
            let mut above: *const Bubble = bubble;
            // SAFETY: the memory of bubbles stays that of bubbles.
            while let Some(around) = unsafe { above.as_ref() } {
                if std::ptr::eq(&around.entity, entity) {
                    return Err(InsertError::Circle);
                }
                above = around.entity.holder();
            }
        }
        let mut notified = None;
        let mut members = bubble.lock();
        if !entity.join(bubble.address()) {
            return Err(InsertError::HasHolder);
        }
        members.link(entity);
        let burst_on = match bubble.entity.place() {
            Place::Burst(unit) if !members.closing => Some(unit),
            _ => None,
        };
        loop {
            match (entity.place(), burst_on) {
                (Place::Nowhere, None) if entity.claim() => entity.set_place(Place::Inside),
                (Place::Nowhere, Some(unit)) if entity.claim() => {
                    notified = self.push_quietly(entity, unit, Place::Nowhere);
                }
                (Place::Queued(list), _) => {
                    if !self.unqueue(entity, list) {
                        continue;
                    }
                    match burst_on {
                        None => entity.set_place(Place::Inside),
                        Some(unit) => {
                            entity.set_place(Place::Nowhere);
                            notified = self.push_quietly(entity, unit, Place::Nowhere);
                        }
                    }
                }
                _ => {}
            }
            break;
        }
        drop(members);
        if let Some(unit) = notified {
            self.world.queued(unit, 1);
        }
        Ok(())
    }

    /// Takes a thread or bubble out of the bubble around it, if there is one. What was ready in there is
    /// queued where the bubble is or was.
    pub fn remove(&self, entity: &Entity) {
        let Some((holder, mut members)) = self.lock_holder(entity) else { return };
        members.unlink(entity);
        let mut finished = false;
        let unit = match holder.entity.place() {
            Place::Burst(unit) | Place::Queued(unit) => unit,
            _ => members.origin.unwrap_or(0),
        };
        let mut ready = false;
        loop {
            match entity.place() {
                Place::Inside => {
                    entity.set_place(Place::Active { processor: 0, recalled: false });
                    ready = true;
                }
                Place::Active { processor, recalled: true } => {
                    let recalled = Place::Active { processor, recalled: true };
                    if !entity.step(recalled, Place::Active { processor, recalled: false }) {
                        continue;
                    }
                    finished = self.one_less(holder, &mut members);
                }
                Place::Burst(_) => {
                    // SAFETY: only bubbles burst.
                    let mut inner = unsafe { Bubble::of(entity) }.lock();
                    if std::mem::take(&mut inner.awaited) {
                        finished = self.one_less(holder, &mut members);
                    }
                }
                _ => {}
            }
            break;
        }
        entity.leave();
        drop(members);
        if finished {
            self.settle(holder);
        }
        if ready {
            self.push(entity, unit, Place::Active { processor: 0, recalled: false });
        }
        self.notify_emptied(holder);
    }

    /// A running thread has ended and leaves its bubble.
    #[inline]
    pub fn finish(&self, thread: &Entity) {
        let Some((holder, mut members)) = self.lock_holder(thread) else {
            thread.set_place(Place::Nowhere);
            return;
        };
        members.unlink(thread);
        let finished = thread.recalled() && self.one_less(holder, &mut members);
        let last = members.threads == 0;
        thread.set_place(Place::Nowhere);
        thread.leave();
        drop(members);
        if finished {
            self.settle(holder);
        }
        if last {
            self.notify_emptied(holder);
        }
    }

    /// Whoever waits for this bubble or for one around it looks again.
    fn notify_emptied(&self, bubble: &Bubble) {
        let mut at: *const Bubble = bubble;
        // SAFETY: the memory of bubbles stays that of bubbles.
        while let Some(bubble) = unsafe { at.as_ref() } {
            W::emptied(self, bubble);
            at = bubble.entity.holder();
        }
    }

    /// Whether no thread is left in a bubble and the bubbles in it.
    pub fn is_over(&self, bubble: &Bubble) -> bool {
        let members = bubble.lock();
        members.threads == 0
            // SAFETY: what is no thread is a bubble, and the lock keeps it in.
            && members.iter().all(|member| self.is_over(unsafe { Bubble::of(member) }))
    }

    /// Whether nothing is directly in a bubble.
    pub fn is_empty(&self, bubble: &Bubble) -> bool {
        bubble.lock().is_empty()
    }

    /// Its threads, also those of bubbles in it, counted up to `limit`.
    pub fn threads_up_to(&self, bubble: &Bubble, limit: usize) -> usize {
        let members = bubble.lock();
        let mut count = members.threads;
        for member in members.iter().filter(|member| member.kind() == Kind::Bubble) {
            if count >= limit {
                break;
            }
            // SAFETY: it is a bubble, and the lock keeps it in.
            count += self.threads_up_to(unsafe { Bubble::of(member) }, limit - count);
        }
        count.min(limit)
    }

    /// The members of a bubble, in the order in which they came.
    pub fn members(&self, bubble: &Bubble) -> Vec<*const Entity> {
        bubble.lock().iter().map(std::ptr::from_ref).collect()
    }

    /// Makes an empty bubble forgotten by all lists and bubbles; false if it is not empty.
    pub fn retire(&self, bubble: &Bubble) -> bool {
        if !bubble.lock().is_empty() {
            return false;
        }
        self.remove(&bubble.entity);
        let mut turn = 0;
        loop {
            match bubble.entity.place() {
                Place::Queued(list) => {
                    if self.unqueue(&bubble.entity, list) {
                        break;
                    }
                }
                Place::Active { .. } => {
                    crate::sync::pause(turn);
                    turn += 1;
                }
                _ => break,
            }
        }
        // Whoever put it there still holds its lock for a moment.
        let _ = bubble.lock();
        bubble.entity.set_place(Place::Nowhere);
        true
    }

    /// Takes an entity off the list that it was seen on; false if it is not there any more. Its place is
    /// the caller's to set, who holds the lock of the bubble around it.
    pub(super) fn unqueue(&self, entity: &Entity, list: usize) -> bool {
        let mut held = self.lists[list].lock();
        let there = entity.place() == Place::Queued(list);
        if there {
            held.unlink(entity);
            entity.set_place(Place::Inside);
        }
        there
    }
}
