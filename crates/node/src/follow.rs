//! Memory follows a program to the NUMA nodes of its place: a thread of its own moves pages in
//! bounded batches with pauses, so that neither the program nor the scheduler waits for long.
//!
//! New pages come from the node of the CPU that touches them first, which the place decides; they
//! are not bound harder than that: a program must not fail for want of memory that is there on
//! another node.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linux::numa::{self, Node, Range};
use linux::{Process, Root, clock};
use protocol::MemoryMoves;
use topology::CpuSet;
use workload::AppId;

/// Pages of a batch: 8 MiB of small pages, a few milliseconds.
const BATCH_PAGES: u64 = 2_048;
/// After each batch the program has its memory to itself for as long as the batch took, and at
/// least this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);

struct Job {
    app: AppId,
    processes: Vec<Process>,
    to: Vec<u32>,
}

/// What was moved, and how many jobs are under way.
type Figures = Arc<Mutex<BTreeMap<AppId, (MemoryMoves, u32)>>>;

/// Moves programs' pages; without several nodes it does nothing.
pub struct Follower {
    nodes: Vec<Node>,
    jobs: Option<Sender<Job>>,
    figures: Figures,
}

impl Follower {
    pub fn start(root: &Root) -> Follower {
        let figures = Figures::default();
        let nodes = numa::nodes(root).unwrap_or_default();
        if nodes.is_empty() {
            return Follower { nodes, jobs: None, figures };
        }
        let (sender, receiver) = channel();
        let (theirs, root) = (Arc::clone(&figures), root.clone());
        let thread = std::thread::Builder::new()
            .name("memory".into())
            .spawn(move || run_worker(&receiver, &theirs, &root));
        Follower { nodes, jobs: thread.is_ok().then_some(sender), figures }
    }

    /// A program moved to another place: where that touches other nodes its pages follow. Returns
    /// whether they do.
    pub fn start_following(&self, app: &AppId, processes: &[Process], from: &CpuSet, to: &CpuSet) -> bool {
        let Some(jobs) = &self.jobs else { return false };
        let (before, now) = (numa::touched_nodes(&self.nodes, from), numa::touched_nodes(&self.nodes, to));
        // Who only lost a node keeps its pages on the rest of its place's nodes and moves the others.
        if now.is_empty() || before.iter().all(|node| now.contains(node)) {
            return false;
        }
        lock(&self.figures).entry(app.clone()).or_default().1 += 1;
        let job = Job { app: app.clone(), processes: processes.to_vec(), to: now };
        // The thread ends only with us.
        jobs.send(job).is_ok()
    }

    /// Whether pages of it are on their way.
    pub fn is_moving(&self, app: &AppId) -> bool {
        lock(&self.figures).get(app).is_some_and(|(_, under_way)| *under_way > 0)
    }

    pub fn figures(&self, app: &AppId) -> MemoryMoves {
        lock(&self.figures).get(app).map(|(moves, _)| *moves).unwrap_or_default()
    }

    pub fn forget(&self, app: &AppId) {
        lock(&self.figures).remove(app);
    }
}

fn lock(figures: &Figures) -> MutexGuard<'_, BTreeMap<AppId, (MemoryMoves, u32)>> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_worker(jobs: &Receiver<Job>, figures: &Figures, root: &Root) {
    let mut next = jobs.recv().ok();
    let mut later: Vec<Job> = Vec::new();
    while let Some(job) = next {
        for process in &job.processes {
            let ranges = numa::data_ranges(*process, root).unwrap_or_default();
            for batch in ranges.into_iter().flat_map(batches) {
                loop {
                    match jobs.try_recv() {
                        Ok(newer) => later.push(newer),
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => return,
                    }
                }
                // It has moved on: what was begun leads to the wrong place.
                if later.iter().any(|newer| newer.app == job.app) {
                    break;
                }
                let began_ns = clock::now_ns();
                let Ok(done) = numa::move_range(*process, batch, &job.to, root) else { break };
                let took_ns = clock::now_ns() - began_ns;
                let mut figures = lock(figures);
                let (sum, _) = figures.entry(job.app.clone()).or_default();
                sum.bytes += done.moved * numa::page_bytes();
                sum.cost_ns += took_ns;
                sum.failed_pages += done.failed;
                drop(figures);
                std::thread::sleep(Duration::from_nanos(took_ns).max(SHORTEST_PAUSE));
            }
        }
        if let Some((_, under_way)) = lock(figures).get_mut(&job.app) {
            *under_way = under_way.saturating_sub(1);
        }
        next = match later.is_empty() {
            true => jobs.recv().ok(),
            false => Some(later.remove(0)),
        };
    }
}

fn batches(range: Range) -> impl Iterator<Item = Range> {
    let bytes = BATCH_PAGES * numa::page_bytes();
    let starts = (range.from..range.to).step_by(bytes as usize);
    starts.map(move |from| Range { from, to: range.to.min(from + bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_bounded_batches_that_cover_it() {
        let page = numa::page_bytes();
        let range = Range { from: page, to: page * (2 * BATCH_PAGES + 11) };
        let cut: Vec<Range> = batches(range).collect();
        assert_eq!(cut.len(), 3);
        assert!(cut.iter().all(|batch| batch.to - batch.from <= BATCH_PAGES * page));
        assert_eq!((cut[0].from, cut[2].to), (range.from, range.to));
        assert!(cut.windows(2).all(|pair| pair[0].to == pair[1].from));
    }

    #[test]
    fn on_one_node_nothing_follows() {
        let directory = tempfile::tempdir().unwrap();
        let follower = Follower::start(&Root::at(directory.path()));
        let app = AppId::new("a").unwrap();
        assert!(!follower.start_following(&app, &[], &"0".parse().unwrap(), &"1".parse().unwrap()));
        assert!(!follower.is_moving(&app));
        assert_eq!(follower.figures(&app), MemoryMoves::default());
    }
}
