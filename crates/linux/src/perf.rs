//! Hardware counters of programs that this thread starts, and of all that they start
//! (`perf_event_open`).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::error::Absent;
use crate::root::{Root, read};

/// What is counted: the kernel's type of event and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    kind: u32,
    config: u64,
}

impl Event {
    const HARDWARE: u32 = 0;
    const RAW: u32 = 4;
    /// Cycles in user mode.
    pub const CYCLES: Event = Event { kind: Event::HARDWARE, config: 0 };
    /// Instructions in user mode.
    pub const INSTRUCTIONS: Event = Event { kind: Event::HARDWARE, config: 1 };

    /// An event of the processor by its own number.
    pub fn raw(config: u64) -> Event {
        Event { kind: Event::RAW, config }
    }
}

/// What a counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    pub count: u64,
    /// How long it should have counted, and how long it did: counters take turns where there are more of
    /// them than the processor has.
    pub enabled_ns: u64,
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
pub struct Counters(Vec<OwnedFd>);

impl Counters {
    pub fn of_children(events: &[Event], root: &Root) -> Result<Counters, Absent> {
        let flags = DISABLED | INHERIT | ENABLE_ON_EXEC;
        let open = |event: &Event| open(*event, flags).map_err(|error| absent(&error, root));
        Ok(Counters(events.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Readings in the order of the events. A program counts once it has ended and was waited for.
    pub fn read(&self) -> io::Result<Vec<Reading>> {
        self.0.iter().map(reading).collect()
    }
}

const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;
/// Time enabled and time running come with the count.
const READ_FORMAT: u64 = 3;

/// A counter of this thread in user mode.
pub(crate) fn open(event: Event, flags: u64) -> io::Result<OwnedFd> {
    // The first published form of perf_event_attr, 64 bytes: type and size, config, sample period, sample
    // type, read format, flags, …
    const BYTES: u64 = 64;
    let mut attributes = [0u64; BYTES as usize / 8];
    let mut first = [0; 8];
    first[..4].copy_from_slice(&event.kind.to_ne_bytes());
    first[4..].copy_from_slice(&(BYTES as u32).to_ne_bytes());
    attributes[0] = u64::from_ne_bytes(first);
    attributes[1] = event.config;
    attributes[4] = READ_FORMAT;
    attributes[5] = flags | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    // SAFETY: the attributes are as long as they say and outlive the call: this thread (0), any CPU (−1),
    // no group (−1), close-on-exec (8).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 8) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

pub(crate) fn reading(counter: &OwnedFd) -> io::Result<Reading> {
    let mut bytes = [0; 24];
    if rustix::io::read(counter, &mut bytes)? != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
    Ok(Reading { count: word(0), enabled_ns: word(1), running_ns: word(2) })
}

/// Why there is no counter, and what would bring it.
pub(crate) fn absent(error: &io::Error, root: &Root) -> Absent {
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
    fn a_counter_that_took_turns_is_corrected_and_one_that_never_had_one_says_nothing() {
        let reading = |running_ns| Reading { count: 600, enabled_ns: 1_000, running_ns };
        assert_eq!([1_000, 250].map(|ns| reading(ns).corrected()), [Some(600.0), Some(2_400.0)]);
        assert_eq!(reading(0).corrected(), None);
    }

    #[test]
    fn counters_of_children_count_them_or_are_absent_with_a_remedy() {
        match Counters::of_children(&[Event::CYCLES, Event::INSTRUCTIONS], &Root::live()) {
            Ok(counters) => {
                assert!(std::process::Command::new("true").status().unwrap().success());
                let found = counters.read().unwrap();
                assert!(found.iter().all(|reading| reading.enabled_ns > 0), "{found:?}");
            }
            Err(absent) => assert!(!absent.why.is_empty() && !absent.remedy.is_empty(), "{absent}"),
        }
    }
}
