//! Ten thousand threads in two bubbles for some seconds, and on which CPUs they run meanwhile: under
//! `coplace run` those that the node leaves to the program.
//!
//! `partition SECONDS` prints a line whenever the processors have changed that ran threads in the last 20 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coplace_bubbles::{Bubble, Builder, Config, processor, processors, run, sleep, yield_now};

const THREADS: usize = 10_000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

struct Shared {
    over: AtomicBool,
    turns: AtomicU64,
    /// Processors that ran threads since they were last looked at.
    used: Vec<AtomicBool>,
}

fn work(shared: &Shared) {
    while !shared.over.load(Ordering::Relaxed) {
        shared.used[processor()].store(true, Ordering::Relaxed);
        shared.turns.fetch_add(1, Ordering::Relaxed);
        // Some work between two turns, which nothing can leave out.
        (0..2000).for_each(|step| {
            std::hint::black_box(step);
        });
        yield_now();
    }
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2.0);
    run(&Config::default(), || {
        println!("{} processors", processors());
        let shared = Arc::new(Shared {
            over: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            used: (0..processors()).map(|_| AtomicBool::new(false)).collect(),
        });
        let all = Bubble::named("all");
        let halves = ["left", "right"].map(Bubble::named);
        for half in &halves {
            all.insert_bubble(half).expect("it is in none");
            for _ in 0..THREADS / 2 {
                let shared = shared.clone();
                drop(Builder::new().inside(half).spawn(move || work(&shared)));
            }
        }
        all.wake();
        // More urgent than those that it watches.
        let watcher = Builder::new().priority(15).spawn({
            let shared = shared.clone();
            move || {
                let (began, mut last) = (Instant::now(), Vec::new());
                while began.elapsed().as_secs_f64() < seconds {
                    sleep(POLL_INTERVAL);
                    let samples = shared.used.iter().enumerate();
                    let used: Vec<usize> = samples
                        .filter(|(_, used)| used.swap(false, Ordering::Relaxed))
                        .map(|(at, _)| at)
                        .collect();
                    if !used.is_empty() && used != last {
                        println!("{} ms: {used:?}", began.elapsed().as_millis());
                        last = used;
                    }
                }
                shared.over.store(true, Ordering::Relaxed);
            }
        });
        watcher.join().expect("it ends");
        all.join();
        assert!(shared.turns.load(Ordering::Relaxed) >= THREADS as u64, "every thread had a turn");
    })
    .expect("it runs");
    println!("VERIFIED");
}
