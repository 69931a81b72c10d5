//! Regeneration: a bubble calls its members home and goes back to where it was.

use super::bubble::{Bubble, Members};
use super::entity::{Entity, Kind, Place};
use super::{Hierarchy, World};

const IN_HANDS: Place = Place::Active { processor: 0, recalled: false };

impl<W: World> Hierarchy<W> {
    /// Closes a bubble that has burst, and all that have burst in it. Members on lists come home at
    /// once, blocked ones count as home, running ones come when they let go of their processors; the
    /// last one puts the bubble back. False where it has not burst, or is closing already.
    pub fn close(&self, bubble: &Bubble) -> bool {
        let mut members = bubble.lock();
        if !matches!(bubble.entity.place(), Place::Burst(_)) || members.closing {
            return false;
        }
        let home = self.call_all(&mut members);
        if home {
            bubble.entity.set_place(IN_HANDS);
        }
        drop(members);
        if home {
            self.settle(bubble);
        }
        true
    }

    /// Tells those again whom a closing bubble waits for; whether there are any.
    pub fn remind(&self, bubble: &Bubble) -> bool {
        let members = bubble.lock();
        if !members.closing {
            return false;
        }
        for member in members.iter() {
            match (member.place(), member.kind()) {
                (Place::Active { processor, recalled: true }, Kind::Thread) => {
                    self.world.recalled(member, processor, members.wishes.preempt);
                }
                (Place::Burst(_), Kind::Bubble) => {
                    // SAFETY: it is a bubble, and the lock keeps it in.
                    self.remind(unsafe { Bubble::of(member) });
                }
                _ => {}
            }
        }
        true
    }

    /// Whether a bubble has burst and waits for members to come home.
    pub fn is_closing(&self, bubble: &Bubble) -> bool {
        bubble.lock().closing
    }

    /// Closes a bubble only if none of its threads runs; it is in the caller's hands then.
    pub(super) fn close_whole(&self, bubble: &Bubble) -> bool {
        let mut members = bubble.lock();
        if !matches!(bubble.entity.place(), Place::Burst(_)) || members.closing || !Self::none_runs(&members)
        {
            return false;
        }
        let home = self.call_all(&mut members);
        if home {
            bubble.entity.set_place(IN_HANDS);
        }
        home
    }

    fn none_runs(members: &Members) -> bool {
        members.iter().all(|member| match member.place() {
            Place::Active { .. } => false,
            // SAFETY: only bubbles burst.
            Place::Burst(_) => Self::none_runs(&unsafe { Bubble::of(member) }.lock()),
            _ => true,
        })
    }

    /// Calls all members of a locked bubble; whether all are home.
    fn call_all(&self, members: &mut Members) -> bool {
        members.closing = true;
        let preempt = members.wishes.preempt;
        members.out = members.iter().filter(|member| !self.call(member, preempt)).count();
        members.closing = members.out > 0;
        !members.closing
    }

    /// Calls a member of a locked bubble home; false if the bubble has to wait for it.
    fn call(&self, member: &Entity, preempt: bool) -> bool {
        loop {
            match member.place() {
                Place::Nowhere | Place::Inside => return true,
                Place::Queued(list) => {
                    if self.unqueue(member, list) {
                        return true;
                    }
                }
                Place::Active { recalled: true, .. } => return false,
                // It came into the bubble while it ran: it is a member from when it is queued the next time.
                Place::Active { .. } if member.kind() == Kind::Thread && !member.is_adopted() => return true,
                Place::Active { processor, recalled: false } => {
                    let active = Place::Active { processor, recalled: false };
                    if member.step(active, Place::Active { processor, recalled: true }) {
                        if member.kind() == Kind::Thread {
                            self.world.recalled(member, processor, preempt);
                        }
                        return false;
                    }
                }
                Place::Burst(_) => {
                    // SAFETY: only bubbles burst.
                    let bubble = unsafe { Bubble::of(member) };
                    let mut inner = bubble.lock();
                    if !matches!(member.place(), Place::Burst(_)) {
                        continue;
                    }
                    if !inner.closing && self.call_all(&mut inner) {
                        member.set_place(Place::Inside);
                        self.world.closed(bubble);
                        return true;
                    }
                    inner.awaited = true;
                    return false;
                }
            }
        }
    }

    /// One that a closing bubble waited for is home. True if it was the last: the bubble is in the
    /// caller's hands then, who settles it after letting go of its lock.
    pub(super) fn one_less(&self, bubble: &Bubble, members: &mut Members) -> bool {
        members.out -= 1;
        if members.out > 0 {
            return false;
        }
        members.closing = false;
        let recalled = std::mem::take(&mut members.awaited);
        bubble.entity.set_place(Place::Active { processor: 0, recalled });
        true
    }

    /// A running thread that was recalled goes into its bubble: ready (`to` is `Inside`) or waiting for
    /// something (`Nowhere`). One that was let off meanwhile goes where it would have gone.
    #[cold]
    pub(super) fn come_home(&self, thread: &Entity, processor: usize, to: Place) {
        if let Some((holder, mut members)) = self.lock_holder(thread)
            && thread.recalled()
        {
            thread.set_place(to);
            let last = self.one_less(holder, &mut members);
            drop(members);
            if last {
                self.settle(holder);
            }
            return;
        }
        match to {
            Place::Nowhere => self.block(thread, processor),
            _ => self.requeue(thread, processor),
        }
    }

    /// Puts a closed bubble that is in our hands back where it was: on a list, or into its bubble.
    pub(super) fn settle(&self, bubble: &Bubble) {
        self.world.closed(bubble);
        loop {
            let origin = bubble.lock().origin.unwrap_or(0);
            let Some((holder, mut members)) = self.lock_holder(&bubble.entity) else {
                if self.push(&bubble.entity, origin, IN_HANDS) {
                    return;
                }
                continue;
            };
            let recalled = bubble.entity.recalled();
            match holder.entity.place() {
                Place::Burst(unit) if !members.closing => {
                    let list = if self.levels.within(origin, unit) { origin } else { unit };
                    let notified = self.push_quietly(&bubble.entity, list, IN_HANDS);
                    drop(members);
                    if let Some(unit) = notified {
                        self.world.queued(unit, 1);
                        return;
                    }
                }
                _ => {
                    let last = recalled && self.one_less(holder, &mut members);
                    bubble.entity.set_place(Place::Inside);
                    drop(members);
                    if last {
                        self.settle(holder);
                    }
                    return;
                }
            }
        }
    }
}
