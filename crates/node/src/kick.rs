//! Makes CPUs look again at who is to run.
//!
//! `cpu.idle` changes what a group is worth but forces no reschedule: the outgoing gang runs on
//! until the next tick of each CPU, several milliseconds. A real-time thread that wakes for a
//! moment on a CPU makes it choose anew at once. Where real-time priority is not granted there are
//! no such threads and switches take those milliseconds.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use linux::{affinity, clock};
use topology::CpuSet;

#[derive(Default)]
struct Bell {
    rung: u64,
    end: bool,
}

pub struct Kicker {
    bell: Arc<(Mutex<Bell>, Condvar)>,
}

impl Kicker {
    /// One waiting thread on each of `cpus`; they cost nothing until they are woken.
    pub fn start(cpus: &CpuSet) -> Arc<Kicker> {
        let bell = Arc::new((Mutex::new(Bell::default()), Condvar::new()));
        for cpu in cpus.iter() {
            let theirs = Arc::clone(&bell);
            let place: CpuSet = [cpu].into_iter().collect();
            // A CPU without such a thread switches a little later; nothing else depends on it.
            let _ = std::thread::Builder::new()
                .name(format!("kick-{cpu}"))
                .stack_size(64 << 10)
                .spawn(move || wait(&theirs, &place));
        }
        Arc::new(Kicker { bell })
    }

    pub fn kick(&self) {
        self.bell.0.lock().unwrap_or_else(PoisonError::into_inner).rung += 1;
        self.bell.1.notify_all();
    }
}

impl Drop for Kicker {
    fn drop(&mut self) {
        self.bell.0.lock().unwrap_or_else(PoisonError::into_inner).end = true;
        self.bell.1.notify_all();
    }
}

fn wait(bell: &(Mutex<Bell>, Condvar), place: &CpuSet) {
    if !matches!(clock::raise_priority(), clock::Priority::RealTime { .. })
        || affinity::set(0, place).is_err()
    {
        return;
    }
    let mut state = bell.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut seen = state.rung;
    while !state.end {
        if state.rung == seen {
            state = bell.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        seen = state.rung;
    }
}
