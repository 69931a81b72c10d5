//! Records: what there is to know of a thread and of a bubble, and lists of threads that wait. Data alone: who
//! schedules them, and what programs may do with them, stands above.

pub(super) mod bubble;
pub(super) mod debug;
pub(super) mod offers;
pub(super) mod spare;
pub(super) mod thread;
pub(super) mod waiters;

use bubble::Shared;
use thread::Thread;

use crate::hierarchy::{Entity, Kind};
use crate::trace::EntityId;

/// A thread or bubble of the runtime, for traces.
pub(crate) fn trace_id(entity: &Entity) -> EntityId {
    match entity.kind() {
        // SAFETY: the runtime's entities are its threads and bubbles.
        Kind::Thread => EntityId::Thread(unsafe { Thread::of(entity) }.id_number()),
        // SAFETY: as above.
        Kind::Bubble => unsafe { Shared::of_entity(entity) }.trace_id(),
    }
}
