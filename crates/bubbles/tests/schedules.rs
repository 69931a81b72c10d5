//! Schedules of a few processors tried out by shuttle: the lists, stealing, bursting, regeneration; and workers
//! that sleep.
//!
//! `cargo test -p coplace-bubbles --features shuttle --test schedules`; a failure prints the schedule
//! that repeats it.

mod driver;
mod sleeping;

use std::sync::Arc;

use driver::Busy;
use shuttle::rand::Rng;

/// How many schedules are tried of each.
fn schedules() -> usize {
    std::env::var("COPLACE_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

fn all_end(
    machine: &'static str,
    scheduler: &'static str,
    bubbles: usize,
    threads: usize,
    turns: u32,
    changes: bool,
) {
    let tried = move || {
        let busy = Arc::new(Busy::new(machine, scheduler, bubbles, threads, turns, changes));
        let workers: Vec<_> = (0..busy.processors())
            .map(|processor| {
                let busy = busy.clone();
                shuttle::thread::spawn(move || {
                    let mut random = |limit| shuttle::rand::thread_rng().gen_range(0..limit);
                    busy.work(processor, &mut random, &shuttle::thread::yield_now);
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
    };
    shuttle::check_random(tried, schedules());
}

#[test]
fn two_processors_share_lists() {
    all_end("core:2", "flat", 0, 4, 3, false);
    all_end("core:2", "burst", 0, 4, 3, false);
}

#[test]
fn thieves_and_owners_do_not_take_the_same() {
    all_end("core:2", "steal", 3, 5, 3, false);
    all_end("pack:2 core:2", "steal", 3, 4, 2, false);
}

#[test]
fn bubbles_burst_and_close_while_members_come_and_go() {
    all_end("core:2", "burst", 1, 3, 6, false);
    all_end("core:3", "burst", 3, 4, 4, false);
    all_end("core:2", "gang", 3, 4, 4, false);
}

#[test]
fn distributed_bubbles_close_and_are_pulled_again() {
    all_end("core:2", "spread", 3, 4, 4, false);
    all_end("core:2", "affinity", 2, 4, 4, false);
}

#[test]
fn schedulers_and_processors_change_under_way() {
    all_end("core:2", "burst", 3, 4, 8, true);
}
