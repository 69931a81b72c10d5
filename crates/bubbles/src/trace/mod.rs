//! What happened in a run, as text: written by the runtime, drawn and replayed without it.
//!
//! `docs/formats/bubbles-trace.md` describes the form.

mod read;
mod replay;
mod segments;

use std::fmt;

use crate::hierarchy::{BurstAt, Wishes};

pub use read::TraceError;
pub use replay::{ReplayError, replay};
pub use segments::{Segment, Summary, colours};

/// A thread or a bubble, by a number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityId {
    /// A thread; `t5` in the text.
    Thread(u64),
    /// A bubble; `b5` in the text.
    Bubble(u64),
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntityId::Thread(number) => write!(f, "t{number}"),
            EntityId::Bubble(number) => write!(f, "b{number}"),
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A thread was made, or a bubble.
    Made(EntityId, u8),
    /// A bubble's maker wishes something else for it.
    Wishes(u64, Wishes),
    /// It was given this priority, which counts from the next time on that it is queued.
    Priority(EntityId, u8),
    /// It was put into the bubble of that number.
    Insert(EntityId, u64),
    /// It was taken out of the bubble around it, if it was in one.
    Remove(EntityId),
    /// It was woken, for the first time or from what it waited for.
    Wake(EntityId),
    /// The program closed a bubble.
    Close(u64),
    /// The thread gives way, if others are at least as urgent.
    Yield,
    /// The thread is about to wait for something.
    Block,
    /// The thread has ended.
    End,
    /// The processor goes on with this thread.
    Run(u64),
    /// The processor has no thread any more.
    Idle,
    /// A bubble burst on this unit.
    Burst(u64, usize),
    /// The processor took it from another.
    Stolen(EntityId),
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Since the run began.
    at_ns: u64,
    /// Where it happened; one more than the processors have where none did it.
    processor: usize,
    /// Which thread did it; 0 for none.
    thread: u64,
    what: What,
}

impl Event {
    /// `at_ns`: since the run began. `processor`: the number of processors where none did it. `thread`: 0
    /// where no thread did.
    pub fn new(at_ns: u64, processor: usize, thread: u64, what: What) -> Event {
        Event { at_ns, processor, thread, what }
    }
}

/// What was recorded of a run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Trace {
    /// As [`topology::Machine::synthetic`] reads it, where the machine can be said in that way.
    pub machine: Option<String>,
    /// How many there were, numbered from 0 in tree order.
    pub processors: usize,
    /// Name of the one in force when the run began.
    pub scheduler: String,
    /// Events that had no room.
    pub lost: u64,
    /// Names of threads and bubbles, in the order in which they were given.
    pub names: Vec<(EntityId, String)>,
    /// In order of time.
    pub events: Vec<Event>,
}

impl Trace {
    /// Brings events that were recorded by several into the order of time.
    pub(crate) fn sort(&mut self) {
        self.events.sort_by_key(|event| event.at_ns);
    }
}

pub(crate) const HEAD: &str = "coplace bubbles trace 1";

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        if let Some(machine) = &self.machine {
            writeln!(f, "machine {machine}")?;
        }
        writeln!(f, "processors {}\nscheduler {}\nlost {}", self.processors, self.scheduler, self.lost)?;
        for (id, name) in &self.names {
            writeln!(f, "name {id} {}", name.replace('\n', " "))?;
        }
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.at_ns, self.processor, self.thread)?;
        match self.what {
            What::Made(id, priority) => write!(f, "made {id} {priority}"),
            What::Wishes(bubble, wishes) => write!(f, "wishes b{bubble} {}", Wished(wishes)),
            What::Priority(id, priority) => write!(f, "priority {id} {priority}"),
            What::Insert(id, bubble) => write!(f, "insert {id} b{bubble}"),
            What::Remove(id) => write!(f, "remove {id}"),
            What::Wake(id) => write!(f, "wake {id}"),
            What::Close(bubble) => write!(f, "close b{bubble}"),
            What::Yield => f.write_str("yield"),
            What::Block => f.write_str("block"),
            What::End => f.write_str("end"),
            What::Run(thread) => write!(f, "run t{thread}"),
            What::Idle => f.write_str("idle"),
            What::Burst(bubble, unit) => write!(f, "burst b{bubble} {unit}"),
            What::Stolen(id) => write!(f, "stolen {id}"),
        }
    }
}

/// Wishes as words: where it bursts, processors, NUMA node, slice, interruption.
struct Wished(Wishes);

impl fmt::Display for Wished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wishes { burst, fewest, most, memory, slice_ns, preempt } = self.0;
        match burst {
            BurstAt::Fitting => f.write_str("fitting")?,
            BurstAt::Level(level) => f.write_str(read::level_name(level))?,
            BurstAt::Processors(count) => write!(f, "{count}")?,
        }
        write!(f, " {fewest}-{most} ")?;
        match memory {
            Some(node) => write!(f, "{node}")?,
            None => f.write_str("-")?,
        }
        write!(f, " {slice_ns} {}", u8::from(preempt))
    }
}
