//! Cells, by program and node, with the sums that a search asks for all the time.

/// How many cells each program has in each node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counts {
    nodes: usize,
    /// A row of `nodes` for each program.
    cells: Vec<usize>,
    /// Of each program in all nodes.
    totals: Vec<usize>,
    /// Of each node by all programs.
    used: Vec<usize>,
}

impl Clone for Counts {
    fn clone(&self) -> Counts {
        let Counts { nodes, cells, totals, used } = self;
        Counts { nodes: *nodes, cells: cells.clone(), totals: totals.clone(), used: used.clone() }
    }

    /// Without asking for memory: a search does it all the time.
    fn clone_from(&mut self, from: &Counts) {
        self.nodes = from.nodes;
        self.cells.clone_from(&from.cells);
        self.totals.clone_from(&from.totals);
        self.used.clone_from(&from.used);
    }
}

impl Counts {
    /// A row for each program, one number for each of so many nodes.
    pub fn of(nodes: usize, rows: impl IntoIterator<Item = Vec<usize>>) -> Counts {
        let mut counts = Counts { nodes, cells: Vec::new(), totals: Vec::new(), used: vec![0; nodes] };
        for row in rows {
            counts.used.iter_mut().zip(&row).for_each(|(used, cells)| *used += cells);
            counts.totals.push(row.iter().sum());
            counts.cells.extend(row);
        }
        counts
    }

    pub fn programs(&self) -> usize {
        self.totals.len()
    }

    pub fn row(&self, program: usize) -> &[usize] {
        &self.cells[program * self.nodes..][..self.nodes]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[usize]> {
        (0..self.programs()).map(|program| self.row(program))
    }

    pub fn get(&self, program: usize, node: usize) -> usize {
        self.cells[program * self.nodes + node]
    }

    pub fn total(&self, program: usize) -> usize {
        self.totals[program]
    }

    pub fn used(&self, node: usize) -> usize {
        self.used[node]
    }

    /// Programs that have cells in a node.
    pub fn present(&self, node: usize) -> usize {
        self.rows().filter(|row| row[node] > 0).count()
    }

    pub fn add(&mut self, program: usize, node: usize) {
        self.cells[program * self.nodes + node] += 1;
        self.totals[program] += 1;
        self.used[node] += 1;
    }

    pub fn remove(&mut self, program: usize, node: usize) {
        self.cells[program * self.nodes + node] -= 1;
        self.totals[program] -= 1;
        self.used[node] -= 1;
    }

    /// Takes all cells of a program.
    pub fn clear(&mut self, program: usize) {
        let row = &mut self.cells[program * self.nodes..][..self.nodes];
        self.used.iter_mut().zip(&*row).for_each(|(used, cells)| *used -= cells);
        row.fill(0);
        self.totals[program] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_every_change() {
        let mut counts = Counts::of(2, [vec![1, 2], vec![0, 3]]);
        counts.add(1, 0);
        counts.remove(0, 1);
        assert_eq!(counts, Counts::of(2, [vec![1, 1], vec![1, 3]]));
        assert_eq!((counts.total(1), counts.used(0), counts.present(0)), (4, 2, 2));
        counts.clear(0);
        assert_eq!(counts, Counts::of(2, [vec![0, 0], vec![1, 3]]));
    }
}
