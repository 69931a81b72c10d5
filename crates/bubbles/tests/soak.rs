//! Threads that wait for one another in every way while workers fall asleep and wake up: no wake-up is
//! lost. `COPLACE_SOAK_S` says how many seconds (60 unless it is set).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coplace_bubbles::*;
use topology::Machine;

/// Nothing at all for so long means that somebody was not woken.
const STANDSTILL: Duration = Duration::from_secs(20);

fn seconds() -> u64 {
    std::env::var("COPLACE_SOAK_S").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// One round on a runtime of its own; `turns` counts what was done.
fn round(machine: &str, scheduler: &str, until: Instant, turns: &Arc<AtomicU64>) {
    let machine = Some(Machine::synthetic(machine).expect("a machine"));
    let scheduler = schedulers::by_name(scheduler).expect("it is known");
    let config = Config { machine, scheduler, ..Config::default() };
    let turns = turns.clone();
    run(&config, move || {
        let stop = Arc::new(AtomicBool::new(false));
        let going = |stop: &Arc<AtomicBool>| {
            let stop = stop.clone();
            move || !stop.load(Ordering::Relaxed)
        };
        let mut threads = Vec::new();
        // Pairs that wake each other, so that all of them together leave workers idle again and again.
        for pair in 0..6_u32 {
            let doors = Arc::new((Semaphore::new(0), Semaphore::new(0)));
            let (theirs, counts, goes) = (doors.clone(), turns.clone(), going(&stop));
            threads.push(spawn(move || {
                while goes() {
                    doors.0.release();
                    doors.1.acquire();
                    if counts.fetch_add(1, Ordering::Relaxed).is_multiple_of(1000 + u64::from(pair)) {
                        sleep(Duration::from_micros(50));
                    }
                }
                (0..2).for_each(|_| doors.0.release());
            }));
            let goes = going(&stop);
            threads.push(spawn(move || {
                while goes() {
                    theirs.0.acquire();
                    theirs.1.release();
                }
                (0..2).for_each(|_| theirs.1.release());
            }));
        }
        let (sender, receiver) = channel(2);
        let goes = going(&stop);
        threads.push(spawn(move || while goes() && sender.send(1).is_ok() {}));
        let counts = turns.clone();
        threads.push(spawn(move || {
            while receiver.receive().is_some() {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        }));
        // Bubbles that come, close and go.
        let (counts, goes) = (turns.clone(), going(&stop));
        threads.push(spawn(move || {
            while goes() {
                let bubble = Bubble::new();
                let barrier = Arc::new(Barrier::new(4));
                for _ in 0..4 {
                    let (barrier, counts) = (barrier.clone(), counts.clone());
                    drop(Builder::new().inside(&bubble).spawn(move || {
                        for _ in 0..5 {
                            barrier.wait();
                            counts.fetch_add(1, Ordering::Relaxed);
                        }
                    }));
                }
                bubble.wake();
                yield_now();
                bubble.close();
                bubble.join();
            }
        }));
        let (counts, goes) = (turns.clone(), going(&stop));
        threads.push(spawn(move || {
            while goes() {
                aside(|| std::thread::sleep(Duration::from_micros(20)));
                counts.fetch_add(1, Ordering::Relaxed);
            }
        }));
        sleep(until.saturating_duration_since(Instant::now()));
        stop.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    })
    .expect("it runs");
}

#[test]
fn no_wake_up_is_lost() {
    let turns = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let (watched, done) = (turns.clone(), over.clone());
    let watch = std::thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        while !done.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(200));
            let now = watched.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > STANDSTILL {
                eprintln!("nothing has happened for {STANDSTILL:?} after {now} turns: a wake-up was lost");
                std::process::abort();
            }
        }
    });
    let end = Instant::now() + Duration::from_secs(seconds());
    let machines = ["core:2", "core:1", "core:4", "pack:2 core:2"];
    for (at, scheduler) in schedulers::NAMES.iter().cycle().enumerate() {
        if Instant::now() >= end {
            break;
        }
        let until = (Instant::now() + Duration::from_millis(1500)).min(end);
        round(machines[at % machines.len()], scheduler, until, &turns);
    }
    over.store(true, Ordering::SeqCst);
    watch.join().expect("it watches");
    println!("{} turns in {} s", turns.load(Ordering::Relaxed), seconds());
}
