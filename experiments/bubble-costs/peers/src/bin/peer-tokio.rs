//! tokio's tasks on one thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::{spawn, yield_now};

fn told(name: &str, count: u64, began: Instant) {
    println!("{name} {:.2}", began.elapsed().as_nanos() as f64 / count as f64);
}

fn fib(n: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return n;
        }
        let other = spawn(fib(n - 1));
        let here = fib(n - 2).await;
        here + other.await.unwrap()
    })
}

async fn all(scale: u64) {
    let count = 2000 * scale;
    let other = spawn(async move {
        for _ in 0..count {
            yield_now().await;
        }
    });
    let began = Instant::now();
    for _ in 0..count {
        yield_now().await;
    }
    told("yield", 2 * count, began);
    other.await.unwrap();

    let began = Instant::now();
    for at in 0..count {
        std::hint::black_box(spawn(async move { at }).await.unwrap());
    }
    told("create-join", count, began);

    let pair = Arc::new((Semaphore::new(0), Semaphore::new(0)));
    let theirs = pair.clone();
    let other = spawn(async move {
        for _ in 0..count {
            theirs.0.acquire().await.unwrap().forget();
            theirs.1.add_permits(1);
        }
    });
    let began = Instant::now();
    for _ in 0..count {
        pair.0.add_permits(1);
        pair.1.acquire().await.unwrap().forget();
    }
    told("blocking-switch", 2 * count, began);
    other.await.unwrap();

    let began = Instant::now();
    for _ in 0..(scale / 10).max(1) {
        std::hint::black_box(spawn(fib(20)).await.unwrap());
    }
    told("fork-join", 10_945 * (scale / 10).max(1), began);
}

fn main() {
    let scale = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { spawn(all(scale)).await.unwrap() });
}
