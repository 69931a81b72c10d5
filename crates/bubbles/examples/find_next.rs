//! What it takes to find the next thread, in cycles of the time-stamp counter, over the number of levels
//! and by scheduler: lines `what levels lists cycles`.
//!
//! `experiments/find-next` sets it beside the paper's table.

use coplace_bubbles::hierarchy::{Bubble, Entity, Hierarchy, Kind, Levels, Lists, PRIORITY, World, Yielded};
use coplace_bubbles::schedulers;
use topology::Machine;

struct Quiet;

impl World for Quiet {
    fn queued(&self, _unit: usize, _count: usize) {}
    fn recalled(&self, _thread: &Entity, _processor: usize, _preempt: bool) {}
    fn emptied(_lists: &Hierarchy<Quiet>, _bubble: &Bubble) {}
}

const MACHINES: [&str; 6] = [
    "pu:1",
    "pu:2",
    "core:2 pu:2",
    "l3:2 core:2 pu:2",
    "pack:2 l3:2 core:2 pu:2",
    "pack:2 l3:2 l2:2 core:2 pu:2",
];

#[cfg(target_arch = "x86_64")]
fn cycles() -> u64 {
    // SAFETY: it reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// A processor's threads give way to each other; cycles each.
fn turns(lists: &Hierarchy<Quiet>, processor: usize, count: u32) -> f64 {
    let mut running = lists.next(processor, false).expect("there are threads");
    let mut sample = |count: u32| {
        let began = cycles();
        for _ in 0..count {
            // SAFETY: the threads outlive the lists.
            if let Yielded::Next(next) = lists.yield_processor(unsafe { &*running }, processor, false) {
                running = next;
            }
        }
        (cycles() - began) as f64 / f64::from(count)
    };
    sample(count / 10);
    let middle = median((0..15).map(|_| sample(count / 15)).collect());
    // SAFETY: as above.
    lists.requeue(unsafe { &*running }, processor);
    middle
}

fn main() {
    let count: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3_000_000);
    for (at, machine) in MACHINES.iter().enumerate() {
        let machine = Machine::synthetic(machine).expect("a machine");
        for name in schedulers::NAMES {
            let levels = Levels::new(&machine, machine.all_cpus(), Lists::Distinct);
            let (width, units) = (levels.width(), levels.units().len());
            let lists = Hierarchy::new(levels, schedulers::by_name(name).expect("it is known"), Quiet);
            let threads: Vec<Entity> = (0..2 * width).map(|_| Entity::new(Kind::Thread, PRIORITY)).collect();
            let bubble = Bubble::new(PRIORITY);
            for thread in &threads {
                lists.insert(&bubble, thread).expect("it is in none");
            }
            lists.wake(&bubble.entity, 0);
            println!("{name} {} {units} {:.1}", at + 1, turns(&lists, 0, count));
        }
        // Two threads in no bubble, on the processor's own list: what NPTL's find_next is to a run queue.
        let levels = Levels::new(&machine, machine.all_cpus(), Lists::Distinct);
        let units = levels.units().len();
        let lists = Hierarchy::new(levels, schedulers::by_name("burst").expect("it is known"), Quiet);
        let threads = [Entity::new(Kind::Thread, PRIORITY), Entity::new(Kind::Thread, PRIORITY)];
        threads.iter().for_each(|thread| lists.wake(thread, 0));
        println!("threads {} {units} {:.1}", at + 1, turns(&lists, 0, count));
    }
}
