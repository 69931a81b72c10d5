//! Threads that make the accesses, and what they achieve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linux::affinity;
use reuse::LINE_BYTES;
use thiserror::Error;
use topology::CpuSet;

use super::mixture::Mixture;
use super::schedule::{CHUNK, Schedule};
use super::walk::{Order, Walk, Width};

/// At a given rate bursts are about this long.
const BURST_S: f64 = 0.001;
/// What a sleep may be late by; the rest is spent looking at the clock.
const LATE: Duration = Duration::from_micros(80);
/// How long each width is tried.
const TRY: Duration = Duration::from_millis(2);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of each thread, whose block is as large as the longest distance.
    pub mixture: Mixture,
    /// How the lines of a pass follow one another.
    pub order: Order,
    /// Each with a block of memory of its own; 0 counts as 1.
    pub threads: u32,
    /// Thread i runs on CPU i of these, from the beginning again where there are more threads; nobody is
    /// bound where there are none.
    pub cpus: Vec<u32>,
    /// Of all threads together; full speed without.
    pub bytes_per_s: Option<f64>,
    /// A width for streams instead of the one that measures fastest.
    pub width: Option<Width>,
    /// Each thread ends after so many accesses (rounded up to whole passes or chunks of them).
    pub accesses: Option<u64>,
    /// Of random orders.
    pub seed: u64,
    /// Only where nobody else wants the CPUs: threads that wake there take them at once.
    pub idle_time: bool,
    /// Once somebody sets it, all that the threads do ends at once, preparations too.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Settings {
    /// One thread that streams at full speed without an end, bound to no CPU.
    pub fn new(mixture: Mixture) -> Settings {
        Settings {
            mixture,
            order: Order::Stream,
            threads: 1,
            cpus: Vec::new(),
            bytes_per_s: None,
            width: None,
            accesses: None,
            seed: 1,
            idle_time: false,
            stop: None,
        }
    }
}

/// Why DistGen did not begin; all threads that were started have ended by then.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no memory for the block of a thread.
    #[error(
        "no memory for a block of {bytes} bytes a thread: {why}; take shorter distances or fewer threads"
    )]
    Memory {
        /// The size of the block.
        bytes: u64,
        /// What the kernel answered.
        why: std::io::Error,
    },
    /// A thread cannot be bound to its CPU.
    #[error("thread {thread} cannot run on CPU {cpu}: {why}")]
    Cpu {
        /// Its number, from 0.
        thread: u32,
        /// The CPU, by `os_index`.
        cpu: u32,
        /// What the kernel answered.
        why: String,
    },
    /// The kernel makes no more threads.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// The kernel refuses `SCHED_IDLE`, which [`Settings::idle_time`] asks for.
    #[error("a thread may not be made to run in idle time only: {0}")]
    IdleTime(std::io::Error),
    /// A thread panicked while it prepared.
    #[error("a thread ended before it began")]
    Ended,
    /// [`Settings::stop`] was set while the threads prepared their memory; what they had taken by then.
    #[error("it was stopped before it began")]
    Stopped(Spent),
}

/// What was achieved in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// How long the stretch was, in wall-clock time.
    pub seconds: f64,
    /// Of all threads.
    pub accesses: u64,
    /// Those that were started, also where some of them are done.
    pub threads: u32,
}

impl Interval {
    /// Lines that were read, as bytes, of all threads together.
    pub fn bytes_per_s(&self) -> f64 {
        self.accesses as f64 * LINE_BYTES as f64 / self.seconds
    }

    /// From one access of a thread to its next; of a linked list the latency of the memory.
    pub fn ns_per_access(&self) -> f64 {
        self.seconds * 1e9 * f64::from(self.threads) / self.accesses as f64
    }
}

/// What all threads together took, preparations included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time in user and kernel mode.
    pub cpu_ns: u64,
    /// From a thread's beginning to its end; more than its CPU time where others had its CPU.
    pub wall_ns: u64,
}

/// On cache lines of its own: whoever reads it does not slow down whoever writes others.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// Our own order to stop, and somebody else's.
struct Stop(AtomicBool, Option<Arc<AtomicBool>>);

impl Stop {
    fn order(&self) {
        self.0.store(true, Relaxed);
    }

    fn is_ordered(&self) -> bool {
        self.0.load(Relaxed) || self.1.as_ref().is_some_and(|stop| stop.load(Relaxed))
    }
}

struct Shared {
    go: AtomicBool,
    stop: Stop,
    counters: Vec<Counter>,
    done: AtomicU64,
    cpu_ns: AtomicU64,
    wall_ns: AtomicU64,
}

/// Running threads. Dropping it ends them.
pub struct DistGen {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    since: Instant,
    before: u64,
    width: Width,
}

impl DistGen {
    /// Starts the threads, and returns once all of them have prepared their memory and begun.
    pub fn start(settings: &Settings) -> Result<DistGen, StartError> {
        let count = settings.threads.max(1);
        let shared = Arc::new(Shared {
            go: AtomicBool::new(false),
            stop: Stop(AtomicBool::new(false), settings.stop.clone()),
            counters: (0..count).map(|_| Counter::default()).collect(),
            done: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            wall_ns: AtomicU64::new(0),
        });
        let (results, ready) = mpsc::channel();
        // Made first, so that an error on the way ends and joins the threads that run already.
        let mut generator =
            DistGen { shared, threads: Vec::new(), since: Instant::now(), before: 0, width: Width::Bytes8 };
        for number in 0..count {
            let (settings, shared, results) =
                (settings.clone(), Arc::clone(&generator.shared), results.clone());
            let thread = thread::Builder::new().name(format!("distgen {number}")).spawn(move || {
                let (began, began_cpu_ns) = (Instant::now(), linux::clock::thread_cpu_ns());
                let prepared = prepare(&settings, number, &shared.stop);
                let (worker, result) = match prepared {
                    Ok(worker) => {
                        let width = worker.width;
                        (Some(worker), Ok(width))
                    }
                    Err(error) => (None, Err(error)),
                };
                // Nobody listens any longer only where another thread could not be prepared.
                let _ = results.send(result);
                drop(results);
                if let Some(worker) = worker {
                    while !shared.go.load(Relaxed) && !shared.stop.is_ordered() {
                        thread::park_timeout(Duration::from_millis(10));
                    }
                    worker.work(&shared, number as usize);
                }
                shared.cpu_ns.fetch_add(linux::clock::thread_cpu_ns() - began_cpu_ns, Relaxed);
                shared.wall_ns.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
                shared.done.fetch_add(1, Relaxed);
            });
            generator.threads.push(thread.map_err(StartError::Thread)?);
        }
        drop(results);
        for _ in 0..count {
            generator.width = match ready.recv().map_err(|_| StartError::Ended)? {
                Err(StartError::Stopped(_)) => return Err(StartError::Stopped(generator.finish())),
                prepared => prepared?,
            };
        }
        generator.shared.go.store(true, Relaxed);
        generator.threads.iter().for_each(|thread| thread.thread().unpark());
        generator.since = Instant::now();
        Ok(generator)
    }

    /// The width that streams of the last thread are read with.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Since the start, or since this was asked last.
    pub fn interval(&mut self) -> Interval {
        let accesses: u64 = self.shared.counters.iter().map(|counter| counter.0.load(Relaxed)).sum();
        let now = Instant::now();
        let interval = Interval {
            seconds: (now - self.since).as_secs_f64(),
            accesses: accesses - self.before,
            threads: self.threads.len() as u32,
        };
        (self.since, self.before) = (now, accesses);
        interval
    }

    /// Whether all threads have made the accesses that they were told to.
    pub fn is_done(&self) -> bool {
        self.shared.done.load(Relaxed) == self.threads.len() as u64
    }

    /// Ends the threads, and tells what they took.
    pub fn finish(mut self) -> Spent {
        self.end();
        Spent { cpu_ns: self.shared.cpu_ns.load(Relaxed), wall_ns: self.shared.wall_ns.load(Relaxed) }
    }

    fn end(&mut self) {
        self.shared.stop.order();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It ended by a panic of its own, which has been told.
            let _ = thread.join();
        }
    }
}

impl Drop for DistGen {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    walk: Walk,
    schedule: Schedule,
    width: Width,
    bytes_per_s: Option<f64>,
    most: u64,
}

fn prepare(settings: &Settings, number: u32, stop: &Stop) -> Result<Worker, StartError> {
    if settings.idle_time {
        linux::clock::set_idle_policy().map_err(StartError::IdleTime)?;
    }
    if !settings.cpus.is_empty() {
        let cpu = settings.cpus[number as usize % settings.cpus.len()];
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        affinity::set(own, &CpuSet::from_cpus(&[cpu])).map_err(|error| StartError::Cpu {
            thread: number,
            cpu,
            why: error.to_string(),
        })?;
    }
    let lines = settings.mixture.most_lines();
    let width = settings.width.unwrap_or(Width::Bytes8);
    // After binding: the pages come from the memory near the CPU.
    let seed = settings.seed.wrapping_add(u64::from(number));
    let walk =
        Walk::new(lines, settings.order, width, seed, &|| stop.is_ordered()).map_err(|why| {
            match why.kind() {
                std::io::ErrorKind::Interrupted => StartError::Stopped(Spent::default()),
                _ => StartError::Memory { bytes: lines * LINE_BYTES, why },
            }
        })?;
    let own_rate = settings.bytes_per_s.map(|rate| rate / f64::from(settings.threads.max(1)));
    let chunk = own_rate.map_or(CHUNK, |rate| ((rate * BURST_S) as u64 / LINE_BYTES).clamp(16, CHUNK));
    let mut worker = Worker {
        walk,
        schedule: Schedule::with_chunks(&settings.mixture, chunk),
        width,
        bytes_per_s: own_rate,
        most: settings.accesses.unwrap_or(u64::MAX),
    };
    if settings.width.is_none() && settings.order == Order::Stream {
        worker.choose_width();
    }
    Ok(worker)
}

impl Worker {
    /// Tries every width on passes of the mixture, which are what it will do.
    fn choose_width(&mut self) {
        let mut best = f64::INFINITY;
        let mut chosen = Width::Bytes8;
        for width in Width::available() {
            self.walk.set_width(width);
            let (began, mut accesses) = (Instant::now(), 0);
            while began.elapsed() < TRY {
                accesses += self.pass();
            }
            let cost = began.elapsed().as_secs_f64() / accesses as f64;
            // A wider load has to be better than noise: it may slow the clock of others.
            if cost < best * 0.97 {
                (best, chosen) = (cost, width);
            }
        }
        self.walk.set_width(chosen);
        self.width = chosen;
    }

    fn pass(&mut self) -> u64 {
        let pass = self.schedule.next().expect("schedules have no end");
        self.walk.read(pass);
        pass.accesses()
    }

    fn work(mut self, shared: &Shared, number: usize) {
        let began = Instant::now();
        let mut accesses = 0;
        while accesses < self.most && !shared.stop.is_ordered() {
            accesses += self.pass();
            shared.counters[number].0.store(accesses, Relaxed);
            if let Some(rate) = self.bytes_per_s {
                wait_until(began, accesses as f64 * LINE_BYTES as f64 / rate, &shared.stop);
            }
        }
    }
}

/// Waits until so many seconds after `began`, unless told to stop.
fn wait_until(began: Instant, seconds: f64, stop: &Stop) {
    loop {
        let left = seconds - began.elapsed().as_secs_f64();
        if left <= 0.0 || stop.is_ordered() {
            return;
        }
        let left = Duration::from_secs_f64(left.min(0.05));
        match left.checked_sub(LATE) {
            Some(sleep) if !sleep.is_zero() => thread::sleep(sleep),
            _ => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings::new(text.parse().unwrap())
    }

    #[test]
    fn every_order_reads_at_full_speed_and_ends_on_request() {
        for order in [Order::Stream, Order::Random, Order::Linked] {
            let mut generator =
                DistGen::start(&Settings { order, threads: 2, ..settings("16K:1,256K:1") }).unwrap();
            // A busy machine may keep it from running for a while.
            let since = Instant::now();
            loop {
                thread::sleep(Duration::from_millis(50));
                let interval = generator.interval();
                if interval.accesses > 10_000 && interval.bytes_per_s() > 1e6 {
                    assert!(interval.ns_per_access() > 0.0);
                    break;
                }
                assert!(since.elapsed() < Duration::from_secs(60), "{order:?}: {interval:?}");
            }
        }
    }

    #[test]
    fn every_width_that_is_there_can_be_chosen() {
        for width in Width::available() {
            let settings = Settings { width: Some(width), ..settings("20K") };
            // A busy machine may keep it from running for a while.
            let mut lengths = [5, 50, 500, 5000].into_iter().map(Duration::from_millis);
            let reads = |length| {
                let mut generator = DistGen::start(&settings).unwrap();
                thread::sleep(length);
                generator.interval().accesses > 0
            };
            assert!(lengths.any(reads), "{width}");
        }
    }

    #[test]
    fn a_rate_is_kept() {
        let settings = Settings { bytes_per_s: Some(50e6), threads: 2, ..settings("64K") };
        let mut generator = DistGen::start(&settings).unwrap();
        // A busy machine may keep it from running at all for a while, after which it catches up: over
        // the whole time it is never ahead, and in the end not behind.
        let (since, mut read) = (Instant::now(), 0.0);
        loop {
            thread::sleep(Duration::from_millis(400));
            read += generator.interval().accesses as f64 * LINE_BYTES as f64;
            let rate = read / since.elapsed().as_secs_f64();
            assert!(rate < 60e6 && since.elapsed() < Duration::from_secs(60), "{rate}");
            if rate >= 30e6 {
                break;
            }
        }
    }

    #[test]
    fn a_run_ends_after_the_requested_accesses() {
        let settings = Settings { accesses: Some(100_000), ..settings("1M") };
        let mut generator = DistGen::start(&settings).unwrap();
        let since = Instant::now();
        while !generator.is_done() && since.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!((100_000..120_000).contains(&generator.interval().accesses));
    }

    #[test]
    fn a_stop_ends_preparations_and_reports_what_was_spent() {
        let stop = Arc::new(AtomicBool::new(false));
        let idle = Settings { idle_time: true, stop: Some(Arc::clone(&stop)), ..settings("1M") };
        let generator = DistGen::start(&idle).unwrap();
        thread::sleep(Duration::from_millis(20));
        stop.store(true, Relaxed);
        let since = Instant::now();
        while !generator.is_done() && since.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_micros(100));
        }
        let spent = generator.finish();
        assert!(0 < spent.cpu_ns && spent.cpu_ns <= spent.wall_ns, "{spent:?}");
        // Stopped from the beginning: no block of memory is touched through.
        let settings = Settings { stop: Some(stop), ..settings("256M") };
        let Err(StartError::Stopped(spent)) = DistGen::start(&settings) else { panic!("it began") };
        assert!(0 < spent.cpu_ns && spent.cpu_ns <= spent.wall_ns, "{spent:?}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_and_nobody_is_left_behind() {
        let wrong = Settings { cpus: vec![0, 999], threads: 2, ..settings("64K") };
        let error = DistGen::start(&wrong).err().expect("there is no such CPU").to_string();
        assert!(error.contains("CPU 999"), "{error}");
    }
}
