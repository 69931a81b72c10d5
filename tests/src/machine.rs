//! The time in which the machine ran: a virtual one may stand still for as long as its host likes, and
//! what is promised in seconds is promised for a machine that runs.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two of its ticks the clock counts no more than this.
const MOST: Duration = Duration::from_millis(60);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time since the first call, less all but [`MOST`] of each time for which the machine stood still.
pub fn ran() -> Duration {
    static STARTED: Once = Once::new();
    static RAN_NS: AtomicU64 = AtomicU64::new(0);
    STARTED.call_once(|| {
        thread::spawn(|| {
            let mut last = Instant::now();
            loop {
                thread::sleep(Duration::from_millis(5));
                let now = Instant::now();
                RAN_NS.fetch_add((now - last).min(MOST).as_nanos() as u64, Ordering::Relaxed);
                last = now;
            }
        });
    });
    Duration::from_nanos(RAN_NS.load(Ordering::Relaxed))
}

/// Waits for what must come within this time of a machine that runs.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut is: impl FnMut() -> bool) {
    let began = ran();
    while !is() {
        assert!(ran() - began < limit, "{what}: not within {limit:?}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Lets this time of a machine that runs pass.
pub fn pass(time: Duration) {
    let began = ran();
    while ran() - began < time {
        thread::sleep(POLL_INTERVAL);
    }
}
