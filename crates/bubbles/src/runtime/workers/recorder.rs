//! Recording what happens: a ring for each processor, written by its worker alone, and one for all others.

use std::cell::UnsafeCell;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::status;
use crate::hierarchy::Levels;
use crate::trace::{EntityId, Event, Trace, What};

/// Events that a ring has room for, unless `COPLACE_BUBBLES_EVENTS` says otherwise.
const EVENTS: usize = 1 << 18;

/// The last so many events of one processor.
struct Ring {
    events: Vec<Event>,
    /// All that there were.
    count: u64,
    room: usize,
}

impl Ring {
    fn push(&mut self, event: Event) {
        if self.events.len() < self.room {
            self.events.push(event);
        } else {
            self.events[(self.count % self.room as u64) as usize] = event;
        }
        self.count += 1;
    }
}

pub(crate) struct Recorder {
    began: Instant,
    path: PathBuf,
    rings: Box<[UnsafeCell<Ring>]>,
    others: Mutex<Ring>,
    names: Mutex<Vec<(EntityId, String)>>,
}

// SAFETY: a ring is only written by its processor's kernel thread, and read when all of these have ended.
unsafe impl Sync for Recorder {}

impl Recorder {
    pub fn new(path: PathBuf, processors: usize) -> Recorder {
        let wanted = std::env::var("COPLACE_BUBBLES_EVENTS").ok().and_then(|text| text.parse().ok());
        let room = wanted.unwrap_or(EVENTS).max(1);
        let ring = || Ring { events: Vec::with_capacity(room), count: 0, room };
        Recorder {
            began: Instant::now(),
            path,
            rings: (0..processors).map(|_| UnsafeCell::new(ring())).collect(),
            others: Mutex::new(ring()),
            names: Mutex::default(),
        }
    }

    #[cold]
    #[inline(never)]
    pub fn note(&self, what: What) {
        let at_ns = self.began.elapsed().as_nanos() as u64;
        match status::here() {
            Some(worker) => {
                let thread = worker.runs().map_or(0, |thread| thread.id_number());
                let event = Event::new(at_ns, worker.number, thread, what);
                // SAFETY: this is the processor's kernel thread, and it is in the runtime: nothing interrupts it.
                unsafe { (*self.rings[worker.number].get()).push(event) };
            }
            None => {
                let event = Event::new(at_ns, self.rings.len(), 0, what);
                self.others.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            }
        }
    }

    pub fn name(&self, trace_id: EntityId, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push((trace_id, name.to_owned()));
    }

    /// Writes the trace of a run whose workers have all ended.
    pub fn write(&self, machine: Option<String>, levels: &Levels, scheduler: &str) {
        // SAFETY: no worker is left that could write.
        let rings = self.rings.iter().map(|ring| unsafe { &*ring.get() });
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let rings: Vec<&Ring> = rings.chain(std::iter::once(&*others)).collect();
        let mut trace = Trace {
            machine,
            processors: levels.width(),
            scheduler: scheduler.to_owned(),
            lost: rings.iter().map(|ring| ring.count - ring.events.len() as u64).sum(),
            names: self.names.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            events: Vec::new(),
        };
        for ring in rings {
            // From where it was overwritten last: the oldest that is left.
            let oldest = (ring.count % ring.room as u64) as usize % ring.events.len().max(1);
            trace.events.extend(ring.events[oldest..].iter().chain(&ring.events[..oldest]));
        }
        trace.sort();
        if let Err(error) = std::fs::write(&self.path, trace.to_string()) {
            eprintln!("coplace-bubbles: the trace cannot be written to {}: {error}", self.path.display());
        }
    }
}
