//! Following a coplace node: the processors that it leaves to this program.
//!
//! Under `coplace run` a run says through the program's page how many processors it can use and how many it
//! does; the node wishes for a number there, and confines the program to CPUs. A kernel thread of ours that is
//! bound to nothing, and so is confined to what the node left to all, looks at both every [`POLL_INTERVAL`]. What it
//! finds narrows what the program itself chose by `set_processors`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use topology::CpuSet;

use super::page::Page;
use super::threads::tree::tree;
use super::workers::affinity;
use super::workers::pool::Lists;
use crate::hierarchy::Levels;

/// Much shorter than the shortest slice in which the node lets programs take turns.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// While a processor that was given up is not free yet.
const SOON: Duration = Duration::from_millis(1);
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// The page can tell of one run at a time.
static IN_USE: AtomicBool = AtomicBool::new(false);

pub(crate) struct Node {
    page: Page,
    over: Mutex<bool>,
    ended: Condvar,
}

impl Node {
    /// `None` where there is no node, or another run of this process follows it.
    pub fn find() -> Option<Node> {
        if IN_USE.swap(true, Ordering::SeqCst) {
            return None;
        }
        let page = Page::of_this_process();
        if page.is_none() {
            IN_USE.store(false, Ordering::SeqCst);
        }
        Some(Node { page: page?, over: Mutex::new(false), ended: Condvar::new() })
    }

    /// What the run may ever get: the node may have confined the program already.
    pub fn widest(&self, now: &CpuSet) -> CpuSet {
        match self.page.widest() {
            Some(cpus) => CpuSet::from_cpus(&cpus).union(now),
            None => now.clone(),
        }
    }

    /// Follows until `close`.
    pub fn follow(&self, lists: &'static Lists) {
        let (levels, world) = (lists.levels(), &lists.world);
        let mut running = levels.width();
        let mut granted = vec![true; levels.width()];
        let (mut reported, mut report_at) = (String::new(), Instant::now());
        self.page.begin(running);
        loop {
            let wish = self.page.wish();
            let partition = affinity::get();
            let now = grant(levels, &partition, wish.target);
            let changed = now != granted;
            if changed {
                bind(lists, &partition);
                world.grant(lists, &now);
                granted = now;
            }
            let used = world.workers.iter().filter(|worker| worker.is_in_use()).count();
            if used != running {
                self.page.runs_on(running, used);
                running = used;
            }
            self.page.applied(wish, changed, granted.contains(&false));
            if Instant::now() >= report_at {
                report_at = Instant::now() + REPORT_INTERVAL;
                let tree = tree(lists);
                // Who cannot be told is not told: the program does not depend on it.
                if tree != reported && self.page.write_tree(&tree).is_ok() {
                    reported = tree;
                }
            }
            let settled = used <= granted.iter().filter(|&&granted| granted).count();
            let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            let pause = if settled { POLL_INTERVAL } else { SOON };
            let wait = self.ended.wait_timeout_while(over, pause, |over| !*over);
            if *wait.unwrap_or_else(PoisonError::into_inner).0 {
                break;
            }
        }
        self.page.end(running);
    }

    pub fn close(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        IN_USE.store(false, Ordering::SeqCst);
    }
}

/// The processors of the partition, no more than are wished; the first of all where it has none of ours.
fn grant(levels: &Levels, partition: &CpuSet, target: usize) -> Vec<bool> {
    let inside = |processor: &usize| partition.contains(levels.cpu(*processor));
    let most = if target == 0 { levels.width() } else { target };
    let chosen: Vec<usize> = (0..levels.width()).filter(inside).take(most).collect();
    match chosen.is_empty() {
        true => (0..levels.width()).map(|processor| processor < most).collect(),
        false => (0..levels.width()).map(|processor| chosen.contains(&processor)).collect(),
    }
}

/// Workers whose CPU is the program's are bound to it. The kernel frees a thread whose CPU is taken away, and
/// older ones forget what it was bound to.
fn bind(lists: &Lists, partition: &CpuSet) {
    for worker in &lists.world.workers {
        let cpu = lists.levels().cpu(worker.number);
        let kernel_thread = worker.kernel_thread.load(Ordering::Acquire);
        if kernel_thread != 0 && partition.contains(cpu) {
            affinity::set_of(kernel_thread, &CpuSet::from_cpus(&[cpu]));
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::Machine;

    use super::*;
    use crate::hierarchy::Lists as WhichLists;

    #[test]
    fn processors_are_those_of_the_partition_up_to_the_wish() {
        let machine = Machine::synthetic("pack:2 core:2").unwrap();
        let levels = Levels::new(&machine, machine.all_cpus(), WhichLists::Distinct);
        for (partition, target, expected) in [
            ("0-3", 0, "0123"),
            ("0-3", 2, "01"),
            ("2-3", 0, "23"),
            ("2-3", 4, "23"),
            ("1,3", 1, "1"),
            ("7", 0, "0123"),
            ("7", 2, "01"),
        ] {
            let granted = grant(&levels, &partition.parse().unwrap(), target);
            let text: String = (0..4).filter(|&at| granted[at]).map(|at| at.to_string()).collect();
            assert_eq!(text, expected, "{partition} {target}");
        }
    }
}
