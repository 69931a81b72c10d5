//! How long a line takes from one CPU to another, and from memory: whether CPUs share a cache at this moment.
//!
//! Where two CPUs share one, what one writes the other reads out of it, faster than memory answers. Where they do not,
//! the line passes through whatever joins their caches, which takes as long as memory or longer. A machine's word for it
//! is not enough: a virtual one tells of a cache that its CPUs share, while its host moves each of them to cores of
//! another cache and back, for half a minute or minutes at a time.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linux::affinity;
use serde::{Deserialize, Serialize};
use topology::CpuSet;

/// Batches of round trips, of which the fastest counts: whatever comes between only makes them slower.
const BATCHES: u32 = 20;
const TRIPS: u32 = 100;
/// With nothing in the way all of them take one or two.
const LONGEST: Duration = Duration::from_millis(50);
/// Looks at a line between two looks at the clock.
const SPINS: u32 = 1_000;

/// On lines of its own, and of those that are fetched together with them.
#[repr(align(128))]
struct Line<T>(T);

/// From so much of the time of memory on, CPUs are apart. Published medians (github.com/nviennot/core-to-core-latency)
/// are 47 to 51 ns within a package of Cascade Lake or Ice Lake and 108 to 136 across packages, 23 ns within eight cores
/// of Milan and 107 across; a local read from memory takes 80 to 100 ns there. So within a cache it is a fifth to
/// three fifths of that, across caches as much or more.
pub const APART: f64 = 0.75;

/// Of a line, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Between CPUs of two programs: of several pairs the longest.
    pub core_to_core_ns: f64,
    /// From memory to a CPU: the median of batches of reads, each of which waits for the one before.
    pub memory_ns: f64,
}

impl Latency {
    /// Between each CPU of one program and one of another. None where that cannot be told: on processors that let no
    /// program drive lines out, and where others have the CPUs.
    pub fn between(first: &[u32], second: &[u32]) -> Option<Latency> {
        let pairs = first.iter().cycle().zip(second.iter().cycle()).take(first.len().max(second.len()));
        let mut core_to_core_ns: f64 = 0.0;
        for (&first, &second) in pairs {
            core_to_core_ns = core_to_core_ns.max(passed_ns(first, second)?);
        }
        Some(Latency { core_to_core_ns, memory_ns: memory_ns()? })
    }

    /// Whether they share no cache, or not all of them do.
    pub fn is_apart(&self) -> bool {
        self.core_to_core_ns >= APART * self.memory_ns
    }
}

/// From one CPU to the other, one way: half of a round trip of a line that both write by turns. None where the CPUs
/// cannot be had, or one of them was somebody else's all the time.
fn passed_ns(first: u32, second: u32) -> Option<f64> {
    let (ball, stopped) = (Line(AtomicU64::new(0)), Line(AtomicBool::new(false)));
    let (ball, stopped) = (&ball.0, &stopped.0);
    let until = Instant::now() + LONGEST;
    // Until the ball has this number; false: somebody has given up.
    let waited = |number: u64| {
        for spin in 1.. {
            if ball.load(Ordering::Acquire) == number {
                return true;
            }
            if spin % SPINS == 0 && (stopped.load(Ordering::Relaxed) || Instant::now() >= until) {
                stopped.store(true, Ordering::Relaxed);
                return false;
            }
            hint::spin_loop();
        }
        unreachable!("it spins for ever")
    };
    let bound = |cpu: u32| {
        let may = affinity::set(0, &[cpu].into_iter().collect::<CpuSet>()).is_ok();
        stopped.fetch_or(!may, Ordering::Relaxed);
        may
    };
    let trips = u64::from(BATCHES * TRIPS);
    thread::scope(|scope| {
        scope.spawn(|| {
            let back = || {
                bound(second)
                    && (0..trips).all(|trip| {
                        waited(2 * trip + 1) && {
                            ball.store(2 * trip + 2, Ordering::Release);
                            true
                        }
                    })
            };
            back()
        });
        let forth = || {
            bound(first).then_some(())?;
            let mut fastest = None;
            for batch in 0..u64::from(BATCHES) {
                let began = Instant::now();
                for trip in batch * u64::from(TRIPS)..(batch + 1) * u64::from(TRIPS) {
                    ball.store(2 * trip + 1, Ordering::Release);
                    if !waited(2 * trip + 2) {
                        return fastest;
                    }
                }
                // The first one has waited for the other thread to begin.
                let took = began.elapsed();
                if batch > 0 {
                    fastest = Some(fastest.map_or(took, |fastest: Duration| fastest.min(took)));
                }
            }
            fastest
        };
        let fastest = scope.spawn(forth).join().expect("it does not panic")?;
        Some(fastest.as_nanos() as f64 / f64::from(2 * TRIPS))
    })
}

/// From memory, of the CPU that this runs on: the median of reads, each of which needs the one before, of lines that
/// were driven out of all caches. None on processors that let no program drive lines out.
#[cfg(target_arch = "x86_64")]
fn memory_ns() -> Option<f64> {
    use std::arch::x86_64::{_mm_clflush, _mm_mfence};

    use workload::Random;

    /// Within one or a few pages, so that translating addresses takes no part.
    const LINES: usize = 64;
    // Each has the next one's number, in one cycle through all (Sattolo 1986), whose order nothing can foretell.
    let mut lines: Vec<Line<usize>> = (0..LINES).map(Line).collect();
    let mut random = Random::for_purpose(1, "lines from memory");
    for last in (1..LINES).rev() {
        let other = random.below(last as u64) as usize;
        let taken = lines[last].0;
        lines[last].0 = std::mem::replace(&mut lines[other].0, taken);
    }
    let batch = || {
        let lines = hint::black_box(&lines);
        for line in lines.iter() {
            // SAFETY: every x86-64 processor has this instruction; it reads and writes nothing, and the address is
            // that of a line of ours.
            unsafe { _mm_clflush(std::ptr::from_ref(line).cast()) }
        }
        // SAFETY: as above; it waits for what came before it.
        unsafe { _mm_mfence() }
        let began = Instant::now();
        let last = (0..LINES).fold(0, |line, _| lines[line].0);
        hint::black_box(last);
        began.elapsed()
    };
    let mut took: Vec<Duration> = (0..BATCHES).map(|_| batch()).collect();
    took.sort();
    Some(took[took.len() / 2].as_nanos() as f64 / LINES as f64)
}

#[cfg(not(target_arch = "x86_64"))]
fn memory_ns() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<u32> {
        affinity::get(0).unwrap().iter().collect()
    }

    #[test]
    fn a_line_takes_time_between_two_cpus() {
        let cpus = allowed();
        let [first, .., last] = cpus[..] else {
            return coplace_skipped::skipped_here("there is only one CPU");
        };
        let found = (0..100).find_map(|_| passed_ns(first, last)).expect("both run once in a hundred times");
        assert!((1.0..100_000.0).contains(&found), "{found}");
    }

    #[test]
    fn cpus_are_apart_where_a_line_between_them_costs_like_memory() {
        let is_apart = |core_to_core_ns, memory_ns| Latency { core_to_core_ns, memory_ns }.is_apart();
        // As measured on virtual CPUs of an AMD EPYC, the closest ones.
        assert!(!is_apart(37.3, 70.6) && !is_apart(25.7, 136.1) && is_apart(163.6, 149.0));
        // As published: Cascade Lake, Xeon E-2388G, Milan.
        assert!(!is_apart(48.0, 81.0) && is_apart(136.0, 81.0));
        assert!(!is_apart(30.0, 69.6) && !is_apart(23.0, 95.0) && is_apart(107.0, 95.0));
    }

    #[test]
    fn an_unavailable_cpu_is_not_waited_for() {
        let began = Instant::now();
        let cpu = allowed()[0];
        assert_eq!(passed_ns(cpu, 65_000), None);
        assert_eq!(passed_ns(65_000, cpu), None);
        // On one CPU the two never run at the same time: whoever waits gives up.
        let _ = passed_ns(cpu, cpu);
        assert!(began.elapsed() < 100 * LONGEST);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn memory_takes_longer_than_a_cache() {
        let found = memory_ns().unwrap();
        assert!((5.0..100_000.0).contains(&found), "{found}");
    }
}
