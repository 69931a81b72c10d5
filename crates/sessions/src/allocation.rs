//! Nodes, and where the processes of a session stand on them.

use topology::CpuSet;

/// Nodes that a user was given, all alike. Each of their cores is a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// How many.
    pub nodes: usize,
    /// Of each.
    pub cores: u32,
}

impl Allocation {
    /// Cores of all nodes.
    pub fn slots(&self) -> u64 {
        self.nodes as u64 * u64::from(self.cores)
    }

    /// Every core of a node.
    pub fn all(&self) -> CpuSet {
        CpuSet::first(self.cores)
    }
}

/// How many processes a session has, and of how many threads each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its processes.
    pub processes: u32,
    /// Of each.
    pub threads: u32,
}

impl Shape {
    /// Slots that it needs for itself.
    pub fn slots(&self) -> u64 {
        u64::from(self.processes) * u64::from(self.threads)
    }
}

/// Where a session's processes begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// On as few nodes as possible.
    #[default]
    Compact,
    /// On as many nodes as possible, with as few processes on each.
    Spread,
}

/// A process and the cores that its threads may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The node that it stands on; it never leaves it.
    pub node: usize,
    /// At least one.
    pub cores: CpuSet,
}

/// Places for all processes of a session on cores of these sets, one for each node, each core once. `None`: they do
/// not suffice.
pub fn place(shape: Shape, layout: Layout, free: &[CpuSet]) -> Option<Vec<Process>> {
    let threads = shape.threads as usize;
    let mut rest: Vec<CpuSet> = free.to_vec();
    let mut processes = Vec::new();
    let mut node = 0;
    for _ in 0..shape.processes {
        let fits = |at: &usize| rest[*at].len() >= threads;
        let found = match layout {
            Layout::Compact => (0..rest.len()).find(fits),
            // The next node in a circle, so that all get as many.
            Layout::Spread => (0..rest.len()).map(|at| (node + at) % rest.len()).find(fits),
        }?;
        let cores = rest[found].take(threads);
        rest[found] = rest[found].difference(&cores);
        processes.push(Process { node: found, cores });
        node = found + 1;
    }
    Some(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Allocation = Allocation { nodes: 4, cores: 40 };

    fn on_nodes(processes: &[Process]) -> Vec<usize> {
        let mut counts = vec![0; FOUR.nodes];
        processes.iter().for_each(|process| counts[process.node] += 1);
        counts
    }

    #[test]
    fn sessions_are_compact_unless_they_are_spread() {
        let free = vec![FOUR.all(); 4];
        let analysis = Shape { processes: 32, threads: 1 };
        assert_eq!(on_nodes(&place(analysis, Layout::Compact, &free).unwrap()), [32, 0, 0, 0]);
        assert_eq!(on_nodes(&place(analysis, Layout::Spread, &free).unwrap()), [8; 4]);
        let hybrid = Shape { processes: 32, threads: 5 };
        assert_eq!(on_nodes(&place(hybrid, Layout::Compact, &free).unwrap()), [8; 4]);
    }

    #[test]
    fn what_does_not_fit_has_no_place() {
        let free = vec![CpuSet::first(3), CpuSet::first(3)];
        // Six cores, but no node has two for each of three processes.
        assert_eq!(place(Shape { processes: 3, threads: 2 }, Layout::Compact, &free), None);
        assert!(place(Shape { processes: 2, threads: 2 }, Layout::Compact, &free).is_some());
    }
}
