//! What threads and bubbles cost on one worker, in nanoseconds, as lines `name value`.
//!
//! `experiments/bubble-costs` runs it beside other libraries.

use std::hint::black_box;
use std::time::Instant;

use coplace_bubbles::hierarchy::Lists;
use coplace_bubbles::*;
use topology::CpuSet;

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let other = spawn(move || fib(n - 1));
    let here = fib(n - 2);
    here + other.join().expect("it does not panic")
}

/// The same; nothing but the call that divides the work is another one.
fn fib_by_join(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (other, here) = join(|| fib_by_join(n - 1), || fib_by_join(n - 2));
    here + other
}

fn time(name: &str, count: u64, work: impl FnOnce()) {
    let began = Instant::now();
    work();
    println!("{name} {:.2}", began.elapsed().as_nanos() as f64 / count as f64);
}

fn yields(count: u64) {
    let other = spawn(move || (0..count).for_each(|_| yield_now()));
    time("yield", 2 * count, || {
        (0..count).for_each(|_| yield_now());
    });
    other.join().expect("it ends");
}

fn blocking(count: u64) {
    let pair = std::sync::Arc::new((Semaphore::new(0), Semaphore::new(0)));
    let theirs = pair.clone();
    let other = spawn(move || {
        for _ in 0..count {
            theirs.0.acquire();
            theirs.1.release();
        }
    });
    time("blocking-switch", 2 * count, || {
        for _ in 0..count {
            pair.0.release();
            pair.1.acquire();
        }
    });
    other.join().expect("it ends");
}

fn parking(count: u64) {
    let me = ThreadId::current();
    // Nothing else unparks the two: each `park` is a turn.
    let other = spawn(move || {
        for _ in 0..count {
            park();
            me.unpark();
        }
    });
    yield_now();
    time("park", 2 * count, || {
        for _ in 0..count {
            other.unpark();
            park();
        }
    });
    other.join().expect("it ends");
}

fn bubble(count: u64, members: u64) {
    time("bubble-member", count * members, || {
        for _ in 0..count {
            let bubble = Bubble::new();
            for _ in 0..members {
                drop(Builder::new().inside(&bubble).spawn(|| ()));
            }
            bubble.wake();
            bubble.join();
        }
    });
}

fn main() {
    let scale: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let first = {
        // SAFETY: it takes nothing.
        let cpu = unsafe { libc::sched_getcpu() };
        CpuSet::from_cpus(&[cpu.max(0) as u32])
    };
    // One list at every level that the machine names, though one worker alone could do with one.
    let config = Config { processors: Some(first), lists: Lists::EveryLevel, ..Config::default() };
    run(&config, || {
        time("create-join-cold", 1000, || {
            let threads: Vec<_> = (0..1000).map(|_| spawn(|| ())).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        });
        for _ in 0..3 {
            yields(100 * scale);
        }
        yields(5000 * scale);
        time("create-join", 2000 * scale, || {
            for at in 0..2000 * scale {
                spawn(move || at).join().map(black_box).expect("it ends");
            }
        });
        time("create-detached", 1000 * scale, || {
            for _ in 0..100 {
                for _ in 0..10 * scale {
                    drop(spawn(|| ()));
                }
                yield_now();
            }
        });
        blocking(2000 * scale);
        parking(2000 * scale);
        // fib(20) makes 10,945 threads.
        black_box(fib(20));
        time("fork-join", 10_945 * (scale / 10).max(1), || {
            for _ in 0..(scale / 10).max(1) {
                black_box(fib(20));
            }
        });
        black_box(fib_by_join(20));
        time("join", 10_945 * scale, || {
            for _ in 0..scale {
                black_box(fib_by_join(20));
            }
        });
        bubble(2 * scale, 16);
        bubble(200 * scale, 16);
    })
    .expect("it runs");
}
