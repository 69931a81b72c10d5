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

/// How long the machine's CPUs have been idle, all together.
pub fn idle() -> Duration {
    let text = std::fs::read_to_string("/proc/stat").expect("it is readable");
    let ticks = text.split_whitespace().nth(4).and_then(|text| text.parse::<u64>().ok());
    // SAFETY: it takes a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64(ticks.expect("it says how long CPUs were idle") as f64 / per_second as f64)
}

/// Whether other programs keep a CPU busy; takes two seconds.
pub fn is_busy() -> bool {
    let (began, before) = (Instant::now(), idle());
    thread::sleep(Duration::from_secs(2));
    let used = began.elapsed() * crate::processes::cpu_count() as u32;
    used.saturating_sub(idle() - before) > began.elapsed() / 2
}
