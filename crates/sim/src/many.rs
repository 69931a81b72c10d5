//! Many simulations at once, on as many CPUs as are asked for. What comes out does not depend on how
//! many those are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does `work` for every number below `count` and returns what it gave in their order, or the error of
/// the lowest number that has one. `done` hears after each how many are done.
pub fn in_order<T: Send, E: Send>(
    count: usize,
    workers: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
    done: impl Fn(usize) + Sync,
) -> Result<Vec<T>, E> {
    let (next, ended, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<Option<Result<T, E>>>> = Mutex::new((0..count).map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..workers.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    // Numbers are given out in order, so that all below a failed one get done.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = work(number);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    results.lock().expect("no worker panics with the lock")[number] = Some(result);
                    done(ended.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    results.into_inner().expect("no worker panics with the lock").into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_number_of_workers() {
        for workers in [1, 2, 7] {
            let squares = in_order(50, workers, |n| Ok::<_, ()>(n * n), |_| ());
            assert_eq!(squares, Ok((0..50).map(|n| n * n).collect()));
        }
    }

    #[test]
    fn the_first_error_is_the_one_that_is_returned() {
        for workers in [1, 3] {
            let result = in_order(100, workers, |n| if n % 10 == 9 { Err(n) } else { Ok(n) }, |_| ());
            assert_eq!(result, Err(9));
        }
    }
}
