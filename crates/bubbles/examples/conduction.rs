//! Heat conduction, or advection, on a mesh that is cut into stripes, one for each thread, with a barrier
//! after each step: the paper's applications.
//!
//! `conduction WHAT HOW SIZE STEPS`, where WHAT is conduction or advection, and HOW is sequential, simple
//! (one list for all), fixed (each thread has its processor) or bubbles (halves of halves of the mesh).
//! Prints the seconds that the steps took, and VERIFIED if the mesh is the sequential one bit by bit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use coplace_bubbles::{Barrier, Bubble, Builder, Config, processors, run, schedulers};

/// Two meshes that take turns. Cells are atomics that are read and written as plain ones are: stripes
/// only share the rows between them, which the barrier keeps apart.
struct Mesh {
    size: usize,
    cells: [Vec<AtomicU64>; 2],
}

impl Mesh {
    fn new(size: usize) -> Mesh {
        let start = |at: usize| {
            let (row, column) = (at / size, at % size);
            let hot = row.abs_diff(size / 3) + column.abs_diff(size / 4) < size / 8;
            AtomicU64::new(if hot { 100.0_f64 } else { 0.0 }.to_bits())
        };
        Mesh { size, cells: [(0..size * size).map(start).collect(), (0..size * size).map(start).collect()] }
    }

    /// One step of the inner rows in `rows`, from mesh `from` to the other one.
    fn step(&self, what: What, from: usize, rows: Range<usize>) {
        let size = self.size;
        let (old, new) = (&self.cells[from], &self.cells[1 - from]);
        for row in rows {
            let line = |row: usize| &old[row * size..(row + 1) * size];
            let (above, here, below) = (line(row - 1), line(row), line(row + 1));
            let to = &new[row * size..(row + 1) * size];
            let value = |cell: &AtomicU64| f64::from_bits(cell.load(Ordering::Relaxed));
            for column in 1..size - 1 {
                let middle = value(&here[column]);
                let next = match what {
                    What::Conduction => {
                        let around = value(&above[column])
                            + value(&below[column])
                            + value(&here[column - 1])
                            + value(&here[column + 1]);
                        middle + 0.2 * (around - 4.0 * middle)
                    }
                    What::Advection => {
                        middle
                            - 0.3 * (middle - value(&here[column - 1]))
                            - 0.2 * (middle - value(&above[column]))
                    }
                };
                to[column].store(next.to_bits(), Ordering::Relaxed);
            }
        }
    }

    fn same(&self, other: &Mesh, which: usize) -> bool {
        let pairs = self.cells[which].iter().zip(&other.cells[which]);
        pairs.into_iter().all(|(one, two)| one.load(Ordering::Relaxed) == two.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Conduction,
    Advection,
}

fn sequential(what: What, mesh: &Mesh, steps: usize) -> f64 {
    let began = Instant::now();
    for step in 0..steps {
        mesh.step(what, step % 2, 1..mesh.size - 1);
    }
    began.elapsed().as_secs_f64()
}

/// A bubble of halves of halves down to single stripes, in which stripe `n` runs `work(n)`.
fn halves(stripes: Range<usize>, work: &Arc<dyn Fn(usize) + Send + Sync>) -> Bubble {
    let bubble = Bubble::new();
    if stripes.len() <= 2 {
        for stripe in stripes {
            let work = work.clone();
            drop(Builder::new().inside(&bubble).spawn(move || work(stripe)));
        }
    } else {
        let middle = stripes.start + stripes.len() / 2;
        for half in [stripes.start..middle, middle..stripes.end] {
            bubble.insert_bubble(&halves(half, work)).expect("a new bubble is in none");
        }
    }
    bubble
}

fn parallel(what: What, mesh: &Arc<Mesh>, steps: usize) -> f64 {
    let count = processors();
    let barrier = Arc::new(Barrier::new(count));
    let shared = mesh.clone();
    let work: Arc<dyn Fn(usize) + Send + Sync> = Arc::new(move |stripe| {
        let inner = shared.size - 2;
        let rows = 1 + stripe * inner / count..1 + (stripe + 1) * inner / count;
        for step in 0..steps {
            shared.step(what, step % 2, rows.clone());
            barrier.wait();
        }
    });
    let began = Instant::now();
    let all = halves(0..count, &work);
    all.wake();
    all.join();
    began.elapsed().as_secs_f64()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: conduction conduction|advection sequential|simple|fixed|bubbles SIZE STEPS");
        std::process::exit(2)
    };
    let [what, how, size, steps] = &words[..] else { usage() };
    let what = match what.as_str() {
        "conduction" => What::Conduction,
        "advection" => What::Advection,
        _ => usage(),
    };
    let (Ok(size), Ok(steps)) = (size.parse::<usize>(), steps.parse::<usize>()) else { usage() };
    if size < 8 {
        usage();
    }
    let scheduler = match how.as_str() {
        "sequential" => None,
        "simple" => schedulers::by_name("flat"),
        "fixed" => schedulers::by_name("fixed"),
        "bubbles" => schedulers::by_name("burst"),
        _ => usage(),
    };
    let wanted = Mesh::new(size);
    let alone = sequential(what, &wanted, steps);
    let Some(scheduler) = scheduler else {
        println!("{alone:.6} VERIFIED");
        return;
    };
    let mesh = Arc::new(Mesh::new(size));
    let shared = mesh.clone();
    let taken = run(&Config { scheduler, ..Config::default() }, move || parallel(what, &shared, steps));
    let taken = taken.expect("it is no thread of a run");
    let verdict = if mesh.same(&wanted, steps % 2) { "VERIFIED" } else { "WRONG" };
    println!("{taken:.6} {verdict}");
}
