//! The paper's machine (4 NUMA nodes of 4 processors) and application (16 stripes, a barrier after each
//! step), simulated: the lists and schedulers are the real ones, the time is counted.
//!
//! A step of a stripe costs 1 on the node where its memory is, and `1 + share · (factor − 1)` elsewhere,
//! `share` being the part of its time that it waits for memory; a little noise lets the order in which
//! processors become free change. Prints `HOW SPEED-UP` for each approach.
//! `conduction_simulated FACTOR SHARE SEED`

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use coplace_bubbles::hierarchy::{Bubble, Entity, Hierarchy, Kind, Levels, Lists, PRIORITY, World};
use coplace_bubbles::schedulers;
use topology::{Level, Machine};

struct Quiet;

impl World for Quiet {
    fn queued(&self, _unit: usize, _count: usize) {}
    fn recalled(&self, _thread: &Entity, _processor: usize, _preempt: bool) {}
    fn emptied(_lists: &Hierarchy<Quiet>, _bubble: &Bubble) {}
}

const STEPS: u64 = 2000;
const STRIPES: usize = 16;
/// A local step, in units of time.
const LOCAL: f64 = 1_000_000.0;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn speed_up(scheduler: &str, factor: f64, share: f64, seed: u64) -> f64 {
    let machine = Machine::synthetic("pack:4 [numa] core:4").expect("a machine");
    let levels = Levels::new(&machine, machine.all_cpus(), Lists::Distinct);
    let width = levels.width();
    let node = |processor: usize| processor / 4;
    let lists = Hierarchy::new(levels, schedulers::by_name(scheduler).expect("it is known"), Quiet);
    let threads: Vec<Entity> = (0..STRIPES).map(|_| Entity::new(Kind::Thread, PRIORITY)).collect();
    let number = |thread: *const Entity| {
        threads.iter().position(|one| std::ptr::eq(one, thread)).expect("it is one of ours")
    };
    // As the program says it: all stripes, and in that neighbours by fours.
    let all = Bubble::new(PRIORITY);
    let fours: Vec<Bubble> = (0..4).map(|_| Bubble::new(PRIORITY)).collect();
    for (at, four) in fours.iter().enumerate() {
        let mut wishes = four.wishes();
        wishes.burst = coplace_bubbles::hierarchy::BurstAt::Level(Level::Numa);
        four.set_wishes(wishes);
        lists.insert(&all, &four.entity).expect("it is in none");
        for thread in &threads[4 * at..4 * at + 4] {
            lists.insert(four, thread).expect("it is in none");
        }
    }
    lists.wake(&all.entity, 0);

    let mut random = Random(seed * 2 + 1);
    // Where a stripe's memory is: where it was first touched.
    let mut home: Vec<Option<usize>> = vec![None; STRIPES];
    let mut now = 0;
    for _ in 0..STEPS {
        // Processors become free in an order that noise decides.
        let mut free: BinaryHeap<Reverse<(u64, u64, usize)>> =
            (0..width).map(|processor| Reverse((now, random.below(1000), processor))).collect();
        let mut arrived = Vec::new();
        let mut end = now;
        while arrived.len() < STRIPES {
            let Reverse((time, _, processor)) = free.pop().expect("somebody has the rest");
            let found = lists.next(processor, false).or_else(|| lists.steal(processor));
            let Some(thread) = found else { continue };
            let stripe = number(thread);
            let here = *home[stripe].get_or_insert(node(processor)) == node(processor);
            let cost = LOCAL * if here { 1.0 } else { 1.0 + share * (factor - 1.0) };
            let noise = 1.0 + random.below(1000) as f64 / 50_000.0;
            let done = time + (cost * noise) as u64;
            end = end.max(done);
            lists.block(&threads[stripe], processor);
            arrived.push((done, stripe, processor));
            free.push(Reverse((done, random.below(1000), processor)));
        }
        // The last to arrive wakes the others in the order in which they came.
        arrived.sort_unstable();
        let last = arrived[STRIPES - 1].2;
        for &(_, stripe, _) in &arrived {
            lists.wake(&threads[stripe], last);
        }
        now = end;
    }
    STEPS as f64 * STRIPES as f64 * LOCAL / now as f64
}

fn main() {
    let words: Vec<f64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [factor, share, seed] = words[..] else {
        eprintln!("usage: conduction_simulated FACTOR SHARE SEED, for example 3 0.25 1");
        std::process::exit(2)
    };
    for (how, scheduler) in [("simple", "flat"), ("fixed", "fixed"), ("bubbles", "burst")] {
        println!("{how} {:.4}", speed_up(scheduler, factor, share, seed as u64));
    }
}
