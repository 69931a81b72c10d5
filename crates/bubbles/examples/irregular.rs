//! Something is carried across a mesh of patches, and patches take small time steps where it is: an
//! application whose work moves. Each patch has a thread, and its cells for itself; after each step it
//! shows its edges to its neighbours.
//!
//! `irregular HOW SIDE CELLS STEPS`, where HOW is sequential, flat (one list for all), fixed (each thread has
//! its processor) or bubbles (quarters of quarters of the mesh); SIDE × SIDE patches of CELLS × CELLS cells.
//! Prints the seconds that the steps took, and VERIFIED if the mesh is the sequential one bit by bit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use coplace_bubbles::{Barrier, Bubble, Builder, Config, run, schedulers};

/// Small steps that a patch takes for each large one where something happens, and as many times shorter.
const SMALL: usize = 8;
/// Cells a large step that it is carried down, and to the right.
const DOWN: f64 = 0.35;
const RIGHT: f64 = 0.25;

/// One patch, with a row and a column of its upper and left neighbour.
struct Patch {
    cells: usize,
    /// Two that take turns.
    values: [Vec<f64>; 2],
    now: usize,
}

impl Patch {
    fn new(side: usize, cells: usize, number: usize) -> Patch {
        let width = cells + 1;
        let mut values = vec![0.0; width * width];
        for (at, value) in values.iter_mut().enumerate() {
            let row = (number / side * cells + at / width) as f64;
            let column = (number % side * cells + at % width) as f64;
            // A hill in the upper left quarter.
            let middle = (side * cells) as f64 / 4.0;
            let far = ((row - middle).powi(2) + (column - middle).powi(2)).sqrt() / middle;
            *value = 100.0 * (1.0 - 1.5 * far).max(0.0);
        }
        Patch { cells, values: [values.clone(), values], now: 0 }
    }

    /// Whether anything worth small steps is in it.
    fn is_lively(&self) -> bool {
        self.values[self.now].iter().any(|&value| value > 0.5)
    }

    /// A large step, given the neighbours' edges as they were before it.
    fn step(&mut self, above: &[AtomicU64], left: &[AtomicU64]) {
        let width = self.cells + 1;
        let old = &mut self.values[self.now];
        for at in 0..self.cells {
            old[at + 1] = f64::from_bits(above[at].load(Ordering::Relaxed));
            old[(at + 1) * width] = f64::from_bits(left[at].load(Ordering::Relaxed));
        }
        let small = if self.is_lively() { SMALL } else { 1 };
        let (down, right) = (DOWN / small as f64, RIGHT / small as f64);
        for _ in 0..small {
            let (one, two) = self.values.split_at_mut(1);
            let (old, new) = if self.now == 0 { (&one[0], &mut two[0]) } else { (&two[0], &mut one[0]) };
            new[..width].copy_from_slice(&old[..width]);
            for row in 1..width {
                let (above, here) = (&old[(row - 1) * width..row * width], &old[row * width..][..width]);
                let to = &mut new[row * width..][..width];
                to[0] = here[0];
                for column in 1..width {
                    let value = here[column];
                    to[column] = value - down * (value - above[column]) - right * (value - here[column - 1]);
                }
            }
            self.now = 1 - self.now;
        }
    }

    fn show(&self, edges: &Edges) {
        let (width, values) = (self.cells + 1, &self.values[self.now]);
        for at in 0..self.cells {
            edges.lower[at].store(values[self.cells * width + at + 1].to_bits(), Ordering::Relaxed);
            edges.right[at].store(values[(at + 1) * width + self.cells].to_bits(), Ordering::Relaxed);
        }
    }

    /// One number for all of its cells.
    fn digest(&self) -> u64 {
        let cells = self.values[self.now].iter();
        cells.fold(0, |sum: u64, value| sum.rotate_left(5).wrapping_mul(31) ^ value.to_bits())
    }
}

/// What others see of a patch.
struct Edges {
    lower: Vec<AtomicU64>,
    right: Vec<AtomicU64>,
}

/// The edges of all patches, for even and for odd steps, and for a patch at the rim an edge of nothing.
struct Shown {
    side: usize,
    edges: [Vec<Edges>; 2],
    rim: Vec<AtomicU64>,
}

impl Shown {
    fn new(side: usize, cells: usize) -> Shown {
        let zeros = || (0..cells).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let all = || (0..side * side).map(|_| Edges { lower: zeros(), right: zeros() }).collect();
        Shown { side, edges: [all(), all()], rim: zeros() }
    }

    fn step(&self, number: usize, patch: &mut Patch, step: usize) {
        let old = &self.edges[step % 2];
        let above = if number < self.side { &self.rim } else { &old[number - self.side].lower };
        let left = if number.is_multiple_of(self.side) { &self.rim } else { &old[number - 1].right };
        patch.step(above, left);
        patch.show(&self.edges[1 - step % 2][number]);
    }
}

/// Seconds, and the digest of each patch.
type Ended = (f64, Vec<u64>);

fn sequential(side: usize, cells: usize, steps: usize) -> Ended {
    let shown = Shown::new(side, cells);
    let mut patches: Vec<Patch> = (0..side * side).map(|number| Patch::new(side, cells, number)).collect();
    patches.iter().enumerate().for_each(|(number, patch)| patch.show(&shown.edges[0][number]));
    let began = Instant::now();
    for step in 0..steps {
        for (number, patch) in patches.iter_mut().enumerate() {
            shown.step(number, patch, step);
        }
    }
    (began.elapsed().as_secs_f64(), patches.iter().map(Patch::digest).collect())
}

/// A bubble of quarters of quarters of the mesh, in which the patch of number `n` runs `work(n)`.
fn quarters(
    side: usize,
    (top, left, length): (usize, usize, usize),
    work: &Arc<dyn Fn(usize) + Send + Sync>,
) -> Bubble {
    let bubble = Bubble::new();
    let half = length.div_ceil(2);
    for (top, left) in [(top, left), (top, left + half), (top + half, left), (top + half, left + half)] {
        if top >= side || left >= side {
            continue;
        }
        if half == 1 {
            let work = work.clone();
            drop(Builder::new().inside(&bubble).spawn(move || work(top * side + left)));
        } else {
            bubble.insert_bubble(&quarters(side, (top, left, half), work)).expect("a new bubble is in none");
        }
    }
    bubble
}

fn parallel(side: usize, cells: usize, steps: usize) -> Ended {
    let shown = Arc::new(Shown::new(side, cells));
    let ended: Arc<Vec<AtomicU64>> = Arc::new((0..side * side).map(|_| AtomicU64::new(0)).collect());
    let barrier = Arc::new(Barrier::new(side * side));
    let began = Arc::new(std::sync::OnceLock::new());
    let (digests, start) = (ended.clone(), began.clone());
    let work: Arc<dyn Fn(usize) + Send + Sync> = Arc::new(move |number| {
        let mut patch = Patch::new(side, cells, number);
        patch.show(&shown.edges[0][number]);
        barrier.wait();
        start.get_or_init(Instant::now);
        for step in 0..steps {
            shown.step(number, &mut patch, step);
            barrier.wait();
        }
        digests[number].store(patch.digest(), Ordering::Relaxed);
    });
    let all = quarters(side, (0, 0, side.next_power_of_two()), &work);
    all.wake();
    all.join();
    let seconds = began.get().map_or(0.0, |began| began.elapsed().as_secs_f64());
    (seconds, ended.iter().map(|digest| digest.load(Ordering::Relaxed)).collect())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: irregular sequential|flat|fixed|bubbles SIDE CELLS STEPS");
        std::process::exit(2)
    };
    let [how, numbers @ ..] = &arguments[..] else { usage() };
    let numbers: Vec<usize> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    let &[side, cells, steps] = &numbers[..] else { usage() };
    if side < 2 || cells == 0 {
        usage();
    }
    let scheduler = match how.as_str() {
        "sequential" => None,
        "flat" | "fixed" => schedulers::by_name(how),
        "bubbles" => schedulers::by_name("steal"),
        _ => usage(),
    };
    let wanted = sequential(side, cells, steps);
    let Some(scheduler) = scheduler else {
        println!("{:.6} VERIFIED", wanted.0);
        return;
    };
    let config = Config { scheduler, ..Config::default() };
    let (seconds, found) =
        run(&config, move || parallel(side, cells, steps)).expect("it is no thread of a run");
    println!("{seconds:.6} {}", if found == wanted.1 { "VERIFIED" } else { "WRONG" });
}
