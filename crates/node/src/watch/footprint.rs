//! How much memory a program takes. One of several processes takes less than these have together: workers that
//! were forked share most pages with their parent, and each counts them as its own.
//!
//! The kernel tells proportional shares, but walks all pages for it. So a thread of its own asks, only for programs
//! of several processes, and seldom: what that costs bounds how often. In between the last answer holds.

use std::sync::mpsc::{Receiver, channel};

use linux::host;
use linux::memory::{self, Resident};
use linux::{Process, Root, clock};

/// Between two questions for proportional shares this many times passes what the last one took …
const PAUSE_FACTOR: u64 = 200;
/// … and at least this.
const PAUSE_NS: u64 = 1_000_000_000;
/// Where so much of the sum of what its processes have is its proportional share, they hardly share anything.
const HARDLY_SHARED: f64 = 0.9;

/// An answer of the kernel's about several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    /// What they take together; `None`: the kernel does not say.
    bytes: Option<u64>,
    /// What they had then, what they share counted for each.
    resident_bytes: u64,
    processes: usize,
    cost_ns: u64,
}

#[derive(Default)]
pub(super) struct Footprint {
    memory: Resident,
    shared: Option<Shared>,
    asked: Option<Receiver<Shared>>,
    ask_at_ns: u64,
}

impl Footprint {
    /// Now, and the most that was ever seen.
    pub fn memory(&self) -> Resident {
        self.memory
    }

    pub fn sample(&mut self, members: &[Process], now_ns: u64, root: &Root) {
        if let Some(answer) = self.asked.as_ref().and_then(|asked| asked.try_recv().ok()) {
            self.asked = None;
            self.ask_at_ns = now_ns + (answer.cost_ns * PAUSE_FACTOR).max(PAUSE_NS);
            self.shared = Some(answer);
        }
        let each: Vec<Resident> =
            members.iter().filter_map(|process| memory::resident(process.pid, root).ok()).collect();
        if each.len() > 1 && self.asked.is_none() && now_ns >= self.ask_at_ns {
            self.asked = ask(members.to_vec(), root.clone());
            self.ask_at_ns = now_ns + PAUSE_NS;
        }
        let combined = combine(&each, self.shared);
        self.memory = Resident { peak_bytes: self.memory.peak_bytes.max(combined.peak_bytes), ..combined };
    }
}

/// The answer comes when the kernel has counted.
fn ask(members: Vec<Process>, root: Root) -> Option<Receiver<Shared>> {
    let (answer, asked) = channel();
    let count = move || {
        let began_ns = clock::now_ns();
        let mut shared = Shared { bytes: Some(0), resident_bytes: 0, processes: 0, cost_ns: 0 };
        for process in members {
            let Ok(resident) = memory::resident(process.pid, &root) else { continue };
            shared.resident_bytes += resident.now_bytes;
            shared.processes += 1;
            match memory::proportional_bytes(process.pid, &root) {
                Ok(bytes) => shared.bytes = shared.bytes.map(|sum| sum + bytes),
                // Of who ends meanwhile nothing is left to count.
                Err(_) if !process.is_alive(&root) => {}
                Err(_) => shared.bytes = None,
            }
        }
        shared.cost_ns = clock::now_ns() - began_ns;
        // Nobody listens to it where the program has ended meanwhile.
        let _ = answer.send(shared);
    };
    host::with(|host| host.spawn("footprint", Box::new(count))).ok()?;
    Some(asked)
}

/// What processes take together, from what each of them has and what the kernel last said of all of them.
fn combine(each: &[Resident], shared: Option<Shared>) -> Resident {
    let sum = |of: fn(&Resident) -> u64| each.iter().map(of).sum::<u64>();
    let most = |of: fn(&Resident) -> u64| each.iter().map(of).max().unwrap_or(0);
    let all = Resident {
        now_bytes: sum(|process| process.now_bytes),
        peak_bytes: sum(|process| process.peak_bytes),
        anonymous_bytes: sum(|process| process.anonymous_bytes),
    };
    // None of them takes less than all.
    let largest = Resident {
        now_bytes: most(|process| process.now_bytes),
        peak_bytes: most(|process| process.peak_bytes),
        ..all
    };
    match shared {
        _ if each.len() < 2 => all,
        None => largest,
        Some(Shared { bytes: None, .. }) => {
            // Without better knowledge: files and shared memory are the same ones in each.
            let others = all.now_bytes - all.anonymous_bytes;
            let beside = most(|process| process.now_bytes - process.anonymous_bytes).min(others);
            let now_bytes = all.anonymous_bytes + beside;
            Resident { now_bytes, peak_bytes: now_bytes.max(largest.peak_bytes), ..all }
        }
        Some(Shared { bytes: Some(bytes), resident_bytes, processes, .. })
            if each.len() <= processes && bytes as f64 >= HARDLY_SHARED * resident_bytes as f64 =>
        {
            all
        }
        Some(Shared { bytes: Some(bytes), .. }) => Resident {
            now_bytes: bytes.max(largest.now_bytes),
            peak_bytes: bytes.max(largest.peak_bytes),
            ..all
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn process(now: u64, peak: u64, anonymous: u64) -> Resident {
        Resident { now_bytes: now * MIB, peak_bytes: peak * MIB, anonymous_bytes: anonymous * MIB }
    }

    fn totals(each: &[Resident], shared: Option<(Option<u64>, u64)>) -> (u64, u64) {
        let shared = shared.map(|(bytes, resident)| Shared {
            bytes: bytes.map(|bytes| bytes * MIB),
            resident_bytes: resident * MIB,
            processes: each.len(),
            cost_ns: 1,
        });
        let memory = combine(each, shared);
        (memory.now_bytes / MIB, memory.peak_bytes / MIB)
    }

    #[test]
    fn memory_that_workers_share_counts_once() {
        let workers = [process(100, 110, 90); 4];
        // Before the kernel has answered, when it has, and where it does not.
        assert_eq!(totals(&workers, None), (100, 110));
        assert_eq!(totals(&workers, Some((Some(130), 400))), (130, 130));
        assert_eq!(totals(&workers, Some((Some(50), 400))), (100, 110));
        assert_eq!(totals(&[process(100, 100, 10); 4], Some((None, 400))), (130, 130));
        // Ranks share little, and have had more than they have.
        assert_eq!(totals(&workers, Some((Some(390), 400))), (400, 440));
        assert_eq!(totals(&workers[..1], Some((Some(390), 400))), (100, 110));
    }

    #[test]
    fn a_program_that_forked_since_the_last_count_counts_once() {
        let before = Shared { bytes: Some(200 * MIB), resident_bytes: 200 * MIB, processes: 2, cost_ns: 1 };
        let memory = combine(&[process(100, 100, 90); 8], Some(before));
        assert_eq!(memory.now_bytes, 200 * MIB);
    }

    #[test]
    fn a_live_family_is_counted_by_a_thread() {
        let root = Root::live();
        let own = Process::own(&root).unwrap();
        let asked = ask(vec![own, Process { pid: u32::MAX, start_time_ticks: 1 }], root).unwrap();
        let shared = asked.recv().unwrap();
        assert_eq!(shared.processes, 1);
        assert!(shared.bytes.is_none_or(|bytes| bytes > 0 && bytes <= shared.resident_bytes * 2));
    }
}
