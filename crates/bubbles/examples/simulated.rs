//! The paper's machine (4 NUMA nodes of 4 processors), simulated: the lists and schedulers are the real ones,
//! the time is counted.
//!
//! `conduction`: 16 stripes of equal work, a barrier after each step. `irregular`: 8 × 8 patches, of which
//! those near something that moves over the mesh take 8 times as long.
//!
//! A step costs its work on the node where the thread's memory is (where it first ran), and
//! `1 + share · (factor − 1)` times that elsewhere, `share` being the part of its time that it waits for
//! memory; a little noise lets the order in which processors become free change. Prints `HOW SPEED-UP` for
//! each approach. `simulated conduction|irregular FACTOR SHARE SEED`

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use coplace_bubbles::hierarchy::{
    Bubble, BurstAt, Entity, Hierarchy, Kind, Levels, Lists, PRIORITY, Wishes, World,
};
use coplace_bubbles::schedulers;
use topology::{Level, Machine};
use workload::Random;

struct Quiet;

impl World for Quiet {
    fn queued(&self, _unit: usize, _count: usize) {}
    fn recalled(&self, _thread: &Entity, _processor: usize, _preempt: bool) {}
    fn emptied(_lists: &Hierarchy<Quiet>, _bubble: &Bubble) {}
}

const STEPS: usize = 2000;
/// A step of the least work, in units of time.
const UNIT: f64 = 1_000_000.0;
/// Patches along an edge of the mesh.
const SIDE: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum What {
    Conduction,
    Irregular,
}

impl What {
    fn threads(self) -> usize {
        match self {
            What::Conduction => 16,
            What::Irregular => SIDE * SIDE,
        }
    }

    /// Threads that belong together: neighbours, a quarter of all.
    fn quarters(self) -> Vec<Vec<usize>> {
        let quarter = |thread: usize| match self {
            What::Conduction => thread / 4,
            What::Irregular => thread / SIDE / (SIDE / 2) * 2 + thread % SIDE / (SIDE / 2),
        };
        let members = |number| (0..self.threads()).filter(|&thread| quarter(thread) == number).collect();
        (0..4).map(members).collect()
    }

    fn work(self, step: usize, thread: usize) -> f64 {
        if self == What::Conduction {
            return 1.0;
        }
        // Along the diagonal, once.
        let at = 1.5 + 5.0 * step as f64 / STEPS as f64;
        let (row, column) = ((thread / SIDE) as f64 - at, (thread % SIDE) as f64 - at);
        if row * row + column * column < 4.0 { 8.0 } else { 1.0 }
    }
}

fn speed_up(what: What, scheduler: &str, factor: f64, share: f64, seed: u64) -> f64 {
    let machine = Machine::synthetic("pack:4 [numa] core:4").expect("a machine");
    let levels = Levels::new(&machine, machine.all_cpus(), Lists::Distinct);
    let width = levels.width();
    let node = |processor: usize| processor / 4;
    let lists = Hierarchy::new(levels, schedulers::by_name(scheduler).expect("it is known"), Quiet);
    let threads: Vec<Entity> = (0..what.threads()).map(|_| Entity::new(Kind::Thread, PRIORITY)).collect();
    let number = |thread: *const Entity| {
        threads.iter().position(|one| std::ptr::eq(one, thread)).expect("it is one of ours")
    };
    // As the program says it: all of it, and in that quarters, which want a NUMA node each.
    let all = Bubble::new(PRIORITY);
    let quarters: Vec<Bubble> = (0..4).map(|_| Bubble::new(PRIORITY)).collect();
    for (quarter, members) in quarters.iter().zip(what.quarters()) {
        quarter.set_wishes(Wishes { burst: BurstAt::Level(Level::Numa), ..quarter.wishes() });
        lists.insert(&all, &quarter.entity).expect("it is in none");
        for member in members {
            lists.insert(quarter, &threads[member]).expect("it is in none");
        }
    }
    lists.wake(&all.entity, 0);

    let mut random = Random::new(seed);
    let mut home: Vec<Option<usize>> = vec![None; threads.len()];
    let (mut now, mut worked) = (0, 0.0);
    for step in 0..STEPS {
        // Who becomes free when, in an order that noise decides, and what it ran until then.
        let mut free: BinaryHeap<_> =
            (0..width).map(|processor| Reverse((now, random.below(1000), processor, None))).collect();
        let mut arrived = Vec::new();
        while arrived.len() < threads.len() {
            let Reverse((time, _, processor, ran)) = free.pop().expect("somebody has the rest");
            if let Some(thread) = ran {
                lists.block(&threads[thread], processor);
                arrived.push((thread, processor));
                now = time;
            }
            let found = lists.next(processor, false).or_else(|| lists.steal(processor));
            let Some(thread) = found.map(number) else { continue };
            let here = *home[thread].get_or_insert(node(processor)) == node(processor);
            let work = UNIT * what.work(step, thread);
            worked += work;
            let cost = work * if here { 1.0 } else { 1.0 + share * (factor - 1.0) };
            let noise = 1.0 + random.below(1000) as f64 / 50_000.0;
            free.push(Reverse((time + (cost * noise) as u64, random.below(1000), processor, Some(thread))));
        }
        // The last to arrive wakes the others in the order in which they came.
        let last = arrived[arrived.len() - 1].1;
        for &(thread, _) in &arrived {
            lists.wake(&threads[thread], last);
        }
    }
    worked / now as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<f64> = arguments.iter().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let what = match arguments.first().map(String::as_str) {
        Some("conduction") => Some(What::Conduction),
        Some("irregular") => Some(What::Irregular),
        _ => None,
    };
    let (Some(what), &[factor, share, seed]) = (what, &numbers[..]) else {
        eprintln!("usage: simulated conduction|irregular FACTOR SHARE SEED, for example conduction 3 0.25 1");
        std::process::exit(2)
    };
    for (how, scheduler) in [("simple", "flat"), ("fixed", "fixed"), ("bubbles", "burst")] {
        println!("{how} {:.4}", speed_up(what, scheduler, factor, share, seed as u64));
    }
}
