//! Hardware counters of programs that this thread starts, and of all that they start
//! (`perf_event_open`).

use std::io;

use perf_event::events::{Hardware, Raw};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

use crate::error::Absent;
use crate::root::{Root, read};

/// What is counted, in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Clock cycles of the CPU (`PERF_COUNT_HW_CPU_CYCLES`).
    Cycles,
    /// Instructions retired (`PERF_COUNT_HW_INSTRUCTIONS`).
    Instructions,
    /// An event of the processor by its own number.
    Raw(u64),
}

impl Event {
    /// Of this thread, standing still; the library leaves kernel and hypervisor out.
    fn builder(self) -> Builder<'static> {
        match self {
            Event::Cycles => Builder::new(Hardware::CPU_CYCLES),
            Event::Instructions => Builder::new(Hardware::INSTRUCTIONS),
            Event::Raw(config) => Builder::new(Raw::new(config)),
        }
    }
}

/// What a counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Events counted during its turns; [`Reading::corrected`] makes up for the rest of the time.
    pub count: u64,
    /// How long it should have counted, and how long it did: counters take turns where there are more of
    /// them than the processor has.
    pub enabled_ns: u64,
    /// How long it did count; 0 if it never had a turn.
    pub running_ns: u64,
}

impl Reading {
    /// The count as it would have been without taking turns; `None` if it never had one.
    pub fn corrected(&self) -> Option<f64> {
        let share = self.running_ns as f64 / self.enabled_ns as f64;
        (self.running_ns > 0).then(|| self.count as f64 / share)
    }
}

/// Counters that stand still until a program that this thread starts is executed, and count it, its
/// threads and its children.
pub struct Counters(Vec<Counter>);

impl Counters {
    /// Opens one counter for each event; [`Absent`] at the first that cannot be opened: the machine has none,
    /// this user may not, or the processor does not know the event.
    pub fn of_children(events: &[Event], root: &Root) -> Result<Counters, Absent> {
        let open = |event: &Event| event.builder().inherit(true).enable_on_exec(true).build();
        let opened: io::Result<_> = events.iter().map(open).collect();
        opened.map(Counters).map_err(|error| absent(&error, root))
    }

    /// Readings in the order of the events. A program counts once it has ended and was waited for.
    pub fn read(&mut self) -> io::Result<Vec<Reading>> {
        self.0.iter_mut().map(reading).collect()
    }
}

/// Whether instructions of this thread are counted: some virtual machines let a counter be opened that never
/// moves.
pub(crate) fn can_count(root: &Root) -> Result<bool, Absent> {
    let opened = Event::Instructions.builder().enabled(true).build();
    let mut counter = opened.map_err(|error| absent(&error, root))?;
    Ok(reading(&mut counter).is_ok_and(|reading| reading.count > 0))
}

fn reading(counter: &mut Counter) -> io::Result<Reading> {
    let read = counter.read_full()?;
    let ns = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_nanos() as u64);
    Ok(Reading {
        count: read.count(),
        enabled_ns: ns(read.time_enabled()),
        running_ns: ns(read.time_running()),
    })
}

/// Why there is no counter, and what would bring it.
fn absent(error: &io::Error, root: &Root) -> Absent {
    let none = |why: &dyn std::fmt::Display, remedy: &str| Absent::new("hardware counters", why, remedy);
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => none(
            &"this machine shows no hardware counters",
            "give the virtual machine a vPMU; until then the preload library counts regions instead",
        ),
        Some(libc::EACCES | libc::EPERM) => {
            let level = read(&root.proc.join("sys/kernel/perf_event_paranoid")).unwrap_or_default();
            none(
                &format_args!("{error} (kernel.perf_event_paranoid is {})", level.trim()),
                "as root: sysctl kernel.perf_event_paranoid=2, or allow perf_event_open in the container",
            )
        }
        Some(libc::EINVAL) => none(
            &"the processor does not know an event",
            "its family's definitions (crates/probe/data/counters) want correcting",
        ),
        _ => none(error, "a kernel with perf events is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplexed_counter_is_scaled_and_an_idle_one_is_absent() {
        let reading = |running_ns| Reading { count: 600, enabled_ns: 1_000, running_ns };
        assert_eq!([1_000, 250].map(|ns| reading(ns).corrected()), [Some(600.0), Some(2_400.0)]);
        assert_eq!(reading(0).corrected(), None);
    }

    #[test]
    fn counters_of_children_count_them_or_are_absent_with_a_remedy() {
        match Counters::of_children(&[Event::Cycles, Event::Instructions], &Root::live()) {
            Ok(mut counters) => {
                assert!(std::process::Command::new("true").status().unwrap().success());
                let found = counters.read().unwrap();
                assert!(found.iter().all(|reading| reading.enabled_ns > 0), "{found:?}");
            }
            Err(absent) => assert!(!absent.why.is_empty() && !absent.remedy.is_empty(), "{absent}"),
        }
    }
}
