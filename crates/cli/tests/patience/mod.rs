//! Waiting on machines that stand still now and then: their time is that in which they ran.

use std::time::{Duration, Instant};

/// Of the time between two looks no more than this is time in which the machine ran.
const MOST: Duration = Duration::from_millis(50);

/// Waits for what must come within this time.
#[track_caller]
#[allow(dead_code, reason = "not every test program has something to wait for")]
pub fn within(limit: Duration, what: &str, is: impl FnMut() -> bool) {
    assert!(comes(limit, is), "{what}: not within {limit:?}");
}

/// Lets this time pass.
#[allow(dead_code, reason = "not every test program lets time pass")]
pub fn pass(time: Duration) {
    comes(time, || false);
}

fn comes(limit: Duration, mut is: impl FnMut() -> bool) -> bool {
    let (mut ran, mut last) = (Duration::ZERO, Instant::now());
    while !is() {
        let now = Instant::now();
        ran += (now - last).min(MOST);
        last = now;
        if ran >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
