//! What every pair costs, in whole numbers, and how the relaxation of the problem into halves answers.

/// Costs are whole numbers of that, or, where they are very large, of what makes the largest so many.
pub(super) const UNIT: f64 = 1e-6;
const MOST_UNITS: f64 = 1e11;
/// A float from where on the next one is one more, above what any cost has of units.
const WHOLE: f64 = 3.0 * (1_u64 << 51) as f64;
/// No cost counts as more.
const FORBIDDEN: f64 = 1e9;
/// Costs looked at together.
const LANES: usize = 8;

/// Costs as whole numbers (that a float holds exactly), by rows: even, and if two sums of them differ, then by more
/// than there are programs. Nobody may have itself.
pub(super) struct Costs {
    pub(super) count: usize,
    /// Of a row, a multiple of `LANES`; what fills it up nobody may have, either.
    pub(super) width: usize,
    cells: Vec<f64>,
}

impl Costs {
    pub(super) fn new(count: usize, cost: impl Fn(usize, usize) -> f64) -> Costs {
        let width = count.next_multiple_of(LANES);
        let mut cells = Vec::with_capacity(count * width);
        let mut most: f64 = 0.0;
        for row in 0..count {
            cells.extend((0..count).map(|column| {
                let cost = cost(row, column).min(FORBIDDEN);
                most = most.max(cost.abs());
                cost
            }));
            cells.resize((row + 1) * width, f64::INFINITY);
        }
        let unit = UNIT.max(most / MOST_UNITS);
        let factor = 2.0 * (count as f64 + 1.0);
        for (row, cells) in cells.chunks_exact_mut(width.max(1)).enumerate() {
            for cell in &mut cells[..count] {
                // To the nearest, without a call for each: beside that number there is no room for fractions.
                *cell = factor * ((*cell / unit + WHOLE) - WHOLE);
            }
            cells[row] = f64::INFINITY;
        }
        Costs { count, width, cells }
    }

    /// Those among some of them.
    pub(super) fn among(&self, some: &[usize]) -> Costs {
        let width = some.len().next_multiple_of(LANES);
        let mut cells = Vec::with_capacity(some.len() * width);
        for (row, &one) in some.iter().enumerate() {
            cells.extend(some.iter().map(|&other| self.row(one)[other]));
            cells.resize((row + 1) * width, f64::INFINITY);
        }
        Costs { count: some.len(), width, cells }
    }

    /// What the largest and the least differ by.
    pub(super) fn range(&self) -> i64 {
        let others = self.cells.iter().filter(|cost| cost.is_finite());
        let (least, most) = others.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &cost| {
            (if cost < least { cost } else { least }, if cost > most { cost } else { most })
        });
        (most - least).max(0.0) as i64
    }

    /// The whole row, with what fills it up.
    pub(super) fn row(&self, vertex: usize) -> &[f64] {
        &self.cells[vertex * self.width..][..self.width]
    }

    /// Of two that are not the same.
    pub(super) fn of(&self, u: usize, v: usize) -> i64 {
        self.row(u)[v] as i64
    }

    /// What each costs others on average, whole; as long as a row.
    pub(super) fn means(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.width];
        for cells in self.cells.chunks_exact(self.width.max(1)) {
            let add = |(sum, cost): (&mut f64, &f64)| *sum += if cost.is_finite() { *cost } else { 0.0 };
            sums.iter_mut().zip(cells).for_each(add);
        }
        sums.iter_mut().for_each(|sum| *sum = (*sum / self.count as f64).floor());
        sums
    }

    /// The `N` others of least cost - price, the least first; `prices` is as long as a row. Where there are fewer, the
    /// rest is the vertex itself, infinite. The nearer those are that are `likely`, the sooner it is done.
    pub(super) fn nearest<const N: usize>(
        &self,
        vertex: usize,
        prices: &[f64],
        likely: &[u32],
    ) -> [(f64, usize); N] {
        let row = self.row(vertex);
        let mut best = [(f64::INFINITY, vertex); N];
        let keep = |best: &mut [(f64, usize); N], value: f64, other: usize| {
            // Not by copy_within, which would be a call for a few numbers.
            let mut at = N - 1;
            while at > 0 && best[at - 1].0 > value {
                best[at] = best[at - 1];
                at -= 1;
            }
            best[at] = (value, other);
        };
        for other in likely.iter().map(|&other| other as usize) {
            let value = row[other] - prices[other];
            if value < best[N - 1].0 {
                keep(&mut best, value, other);
            }
        }
        // Each begins beside itself: of many that are alike not all take the same.
        let own = vertex / LANES * LANES;
        for part in [own..row.len(), 0..own] {
            let first = part.start;
            let chunks = row[part.clone()].chunks_exact(LANES).zip(prices[part].chunks_exact(LANES));
            for (chunk, (costs, prices)) in chunks.enumerate() {
                // Lane by lane, so that the compiler takes several at a time; most chunks hold none of the least.
                let values: [f64; LANES] = std::array::from_fn(|lane| costs[lane] - prices[lane]);
                let bound = best[N - 1].0;
                if !values.iter().fold(false, |any, &value| any | (value < bound)) {
                    continue;
                }
                for (lane, &value) in values.iter().enumerate() {
                    let other = first + chunk * LANES + lane;
                    if value < best[N - 1].0 && best.iter().all(|&(_, known)| known != other) {
                        keep(&mut best, value, other);
                    }
                }
            }
        }
        best
    }
}

/// The optimum, as far as it consists of pairs.
pub(super) struct Halves {
    pub pairs: Vec<(usize, usize)>,
    /// One of each circle of odd length.
    pub left: Vec<usize>,
    /// Steps of circles, along which those who are left can find each other.
    pub tight: Vec<(usize, usize)>,
    /// price(u) + price(v) <= cost for everybody, and equal for pairs and steps of circles.
    pub prices: Vec<i64>,
}
