//! rayon's join on one worker: it has no threads to yield from or to block.

use std::time::Instant;

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (other, here) = rayon::join(|| fib(n - 1), || fib(n - 2));
    here + other
}

fn main() {
    let scale: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let count = 2000 * scale;
        let began = Instant::now();
        for at in 0..count {
            let mut result = 0;
            rayon::scope(|scope| scope.spawn(|_| result = at));
            std::hint::black_box(result);
        }
        println!("create-join {:.2}", began.elapsed().as_nanos() as f64 / count as f64);
        let began = Instant::now();
        for _ in 0..scale {
            std::hint::black_box(fib(20));
        }
        let count = 10_945 * scale;
        println!("join {:.2}", began.elapsed().as_nanos() as f64 / count as f64);
    });
}
