//! Records of threads that no worker has in its hands. They are made in batches, and never freed.

use std::sync::Mutex;

use super::debug;
use super::thread::Thread;

const BATCH: usize = 64;
static SPARE: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());

/// Adds up to `count` records to `threads`, at least one.
pub(crate) fn refill(threads: &mut Vec<&'static Thread>, count: usize) {
    let mut spare = SPARE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if spare.is_empty() {
        let records: &'static [Thread] = (0..BATCH).map(|_| Thread::new()).collect::<Vec<_>>().leak();
        debug::made(records);
        spare.extend(records.iter().rev());
    }
    let from = spare.len().saturating_sub(count);
    threads.extend(spare.drain(from..));
}

pub(crate) fn recycle(threads: impl Iterator<Item = &'static Thread>) {
    SPARE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(threads);
}
