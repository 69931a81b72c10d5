//! Random operations by several kernel threads on one hierarchy.
//!
//! `COPLACE_OPERATIONS` sets how many (300,000 unless it is set); `experiments/bubbles-soak`
//! runs ten million of them under each sanitizer.

mod driver;

use std::sync::atomic::Ordering;

use driver::Busy;
use workload::Random;

fn operations() -> usize {
    std::env::var("COPLACE_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(300_000)
}

#[test]
fn no_thread_runs_twice_and_all_end() {
    let mut done = 0;
    let mut round = 0_u64;
    let machines = ["core:2", "core:3", "pack:2 core:2", "pack:2 [numa] core:2 pu:2"];
    while done < operations() {
        round += 1;
        let machine = machines[round as usize % machines.len()];
        let scheduler = coplace_bubbles::schedulers::NAMES[round as usize % 8];
        let busy = Busy::new(machine, scheduler, round as usize % 6, 40, 50, round.is_multiple_of(3));
        std::thread::scope(|scope| {
            for processor in 0..busy.processors() {
                let busy = &busy;
                scope.spawn(move || {
                    let mut random = Random::new(round << 8 | processor as u64);
                    let mut below = |limit: u32| random.below(u64::from(limit)) as u32;
                    busy.work(processor, &mut below, &std::thread::yield_now);
                });
            }
        });
        done += busy.done.load(Ordering::Relaxed);
    }
    println!("{done} operations in {round} rounds");
}
