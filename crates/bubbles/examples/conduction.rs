//! Heat conduction, or advection, on a mesh that is cut into stripes, one for each thread, with a barrier
//! after each step: the paper's applications.
//!
//! `conduction WHAT HOW SIZE STEPS [PIECES]`, where WHAT is conduction or advection, and HOW is sequential, simple
//! (one list for all), fixed (each thread has its processor) or bubbles (halves of halves of the mesh), or several of
//! them with commas. They take turns on one and the same mesh, each PIECES times (once, if nothing is said) so many
//! STEPS, so that what a machine does to one of them it does to the others, too. Prints the seconds of each piece, and
//! VERIFIED if the mesh is in the end the sequential one bit by bit.

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
            // Nowhere 0: what decays towards that becomes so small that processors calculate many times slower.
            AtomicU64::new(if hot { 100.0_f64 } else { 1.0 }.to_bits())
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

fn sequential(what: What, mesh: &Mesh, steps: Range<usize>) {
    for step in steps {
        mesh.step(what, step % 2, 1..mesh.size - 1);
    }
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

fn parallel(what: What, mesh: &Arc<Mesh>, steps: Range<usize>) {
    let count = processors();
    let barrier = Arc::new(Barrier::new(count));
    let shared = mesh.clone();
    let work: Arc<dyn Fn(usize) + Send + Sync> = Arc::new(move |stripe| {
        let inner = shared.size - 2;
        let rows = 1 + stripe * inner / count..1 + (stripe + 1) * inner / count;
        for step in steps.clone() {
            shared.step(what, step % 2, rows.clone());
            barrier.wait();
        }
    });
    let all = halves(0..count, &work);
    all.wake();
    all.join();
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

/// The ways, and the scheduler of each.
const WAYS: [(&str, Option<&str>); 4] =
    [("sequential", None), ("simple", Some("flat")), ("fixed", Some("fixed")), ("bubbles", Some("burst"))];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!(
            "usage: conduction conduction|advection sequential|simple|fixed|bubbles[,...] SIZE STEPS [PIECES]"
        );
        std::process::exit(2)
    };
    let number = |argument: &String| argument.parse::<usize>().unwrap_or_else(|_| usage());
    let (what, hows, size, steps, pieces) = match &arguments[..] {
        [what, hows, size, steps] => (what, hows, number(size), number(steps), 1),
        [what, hows, size, steps, pieces] => (what, hows, number(size), number(steps), number(pieces)),
        _ => usage(),
    };
    let what = match what.as_str() {
        "conduction" => What::Conduction,
        "advection" => What::Advection,
        _ => usage(),
    };
    let way = |how| *WAYS.iter().find(|way| way.0 == how).unwrap_or_else(|| usage());
    let ways: Vec<(&str, Option<&str>)> = hows.split(',').map(way).collect();
    if size < 8 {
        usage();
    }
    let mesh = Arc::new(Mesh::new(size));
    let mut done = 0;
    for piece in 0..pieces {
        // Forward and backward in turn, each the first as often as the others: nobody always follows the same one.
        for at in 0..ways.len() {
            let at = if piece % 2 == 0 { at } else { ways.len() - 1 - at };
            let (how, scheduler) = ways[(piece / 2 + at) % ways.len()];
            let now = done..done + steps;
            done = now.end;
            let seconds = match scheduler {
                None => timed(|| sequential(what, &mesh, now)),
                Some(name) => {
                    let shared = mesh.clone();
                    let scheduler = schedulers::by_name(name).expect("it is one of ours");
                    let config = Config { scheduler, ..Config::default() };
                    run(&config, move || timed(|| parallel(what, &shared, now)))
                        .expect("it is no thread of a run")
                }
            };
            println!("{how} {seconds:.6}");
        }
    }
    let wanted = Mesh::new(size);
    sequential(what, &wanted, 0..done);
    println!("{}", if mesh.same(&wanted, done % 2) { "VERIFIED" } else { "WRONG" });
}
