//! may's coroutines on one worker.

use std::sync::Arc;
use std::time::Instant;
use may::sync::Semphore;

fn told(name: &str, count: u64, began: Instant) {
    println!("{name} {:.2}", began.elapsed().as_nanos() as f64 / count as f64);
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let other = may::go!(move || fib(n - 1));
    let here = fib(n - 2);
    here + other.join().unwrap()
}

fn all(scale: u64) {
    let count = 2000 * scale;
    let other = may::go!(move || {
        for _ in 0..count {
            may::coroutine::yield_now();
        }
    });
    let began = Instant::now();
    for _ in 0..count {
        may::coroutine::yield_now();
    }
    told("yield", 2 * count, began);
    other.join().unwrap();

    let began = Instant::now();
    for at in 0..count {
        std::hint::black_box(may::go!(move || at).join().unwrap());
    }
    told("create-join", count, began);

    let pair = Arc::new((Semphore::new(0), Semphore::new(0)));
    let theirs = pair.clone();
    let other = may::go!(move || {
        for _ in 0..count {
            theirs.0.wait();
            theirs.1.post();
        }
    });
    let began = Instant::now();
    for _ in 0..count {
        pair.0.post();
        pair.1.wait();
    }
    told("blocking-switch", 2 * count, began);
    other.join().unwrap();

    let began = Instant::now();
    for _ in 0..(scale / 10).max(1) {
        std::hint::black_box(fib(20));
    }
    told("fork-join", 10_945 * (scale / 10).max(1), began);
}

fn main() {
    let scale = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    may::config().set_workers(1).set_stack_size(0x1000);
    may::go!(move || all(scale)).join().unwrap();
}
