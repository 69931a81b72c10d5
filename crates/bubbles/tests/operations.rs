//! Random operations by several kernel threads on one hierarchy.
//!
//! `COPLACE_OPERATIONS` sets how many (300,000 unless it is set); `scripts/bubbles-long` runs ten
//! million of them under the sanitizers.

mod driver;

use std::sync::atomic::Ordering;

use driver::Busy;

fn operations() -> usize {
    std::env::var("COPLACE_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(300_000)
}

#[test]
fn nobody_is_in_two_hands_and_all_end() {
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
                    let mut state = round << 8 | processor as u64 | 1;
                    let mut random = |limit: u32| {
                        // Xorshift: a stream of its own for each round and processor.
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        (state >> 32) as u32 % limit
                    };
                    busy.work(processor, &mut random, &std::thread::yield_now);
                });
            }
        });
        done += busy.done.load(Ordering::Relaxed);
    }
}
