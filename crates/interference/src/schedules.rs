//! All ways to put two instances each of n programs on n places of two, one by one.
//!
//! A schedule is a multiset of unordered pairs in which every program occurs twice: a multigraph in which every
//! program has two ends, where a loop is a pair of twins. de Blanche and Lundqvist (Terrible Twins, COSH 2016,
//! section 4.2) go through those of ten programs.
//!
//! # Counting
//!
//! With t(n) for all schedules and f(n) for those without twins:
//!
//! ```text
//! t(n) = n t(n-1) - (n-1)(n-2)/2 t(n-3)                            1, 1, 2, 5, 17, 73, 388, …
//! f(n) = Σ_k (-1)^k C(n, k) t(n-k)          k programs that are twins, by inclusion and exclusion
//! ```
//!
//! A schedule with k given pairs of twins is a schedule of the n - k others, which is why the second holds.
//! For ten programs t is 1,436,714, as in the paper, and f is 499,194. The paper's table 2 has 669,734 without
//! and 766,980 with twins.

use crate::matrix::Matrix;

/// The most programs that are gone through: 13 have 3 × 10⁹ schedules.
pub const MOST_PROGRAMS: usize = 12;

/// All schedules of so many programs; exact up to 20 programs.
pub fn count(programs: usize) -> u128 {
    let mut counts: Vec<u128> = vec![1, 1, 2];
    for n in 3..=programs {
        let (n128, choices) = (n as u128, ((n - 1) * (n - 2) / 2) as u128);
        counts.push(n128 * counts[n - 1] - choices * counts[n - 3]);
    }
    counts[programs]
}

/// Those without twins.
pub fn count_without_twins(programs: usize) -> u128 {
    let (mut plus, mut minus, mut choose) = (0, 0, 1u128);
    for k in 0..=programs {
        let term = choose * count(programs - k);
        if k % 2 == 0 {
            plus += term
        } else {
            minus += term
        }
        choose = choose * (programs - k) as u128 / (k + 1) as u128;
    }
    plus - minus
}

/// Goes through all schedules. `visit` gets the sum of `costs[a][b]` over the pairs, and the set of
/// programs that stand beside their twin, a bit each.
pub fn visit_all(costs: &[Vec<f64>], mut visit: impl FnMut(f64, u32)) {
    let mut left = vec![2u8; costs.len()];
    step(costs, &mut left, 0, 0, 0.0, 0, &mut visit);
}

/// `from`: where the partner of `program`'s second instance may begin, so that no schedule comes twice.
fn step(
    costs: &[Vec<f64>],
    left: &mut [u8],
    program: usize,
    from: usize,
    sum: f64,
    twins: u32,
    visit: &mut impl FnMut(f64, u32),
) {
    let Some(program) = (program..left.len()).find(|&at| left[at] > 0) else {
        visit(sum, twins);
        return;
    };
    if left[program] == 2 {
        left[program] = 0;
        step(costs, left, program + 1, 0, sum + costs[program][program], twins | 1 << program, visit);
        left[program] = 2;
    }
    left[program] -= 1;
    for partner in from.max(program + 1)..left.len() {
        if left[partner] > 0 {
            left[partner] -= 1;
            // The second instance goes to the same partner or a later one.
            let from = if left[program] > 0 { partner } else { 0 };
            step(costs, left, program, from, sum + costs[program][partner], twins, visit);
            left[partner] += 1;
        }
    }
    left[program] += 1;
}

/// A group of schedules: how many, and their mean slowdowns.
#[derive(Clone, Debug)]
pub struct Group {
    /// What it is called: the twins that its schedules have.
    pub name: &'static str,
    /// How many schedules it has.
    pub count: u64,
    /// The smallest mean slowdown among them.
    pub best: f64,
    /// The largest.
    pub worst: f64,
    sum: f64,
    /// Schedules in each bin of `Study::bin` from `Study::first` on.
    pub histogram: Vec<u64>,
}

impl Group {
    /// Mean over its schedules of their mean slowdown; `None` where there are none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The study of the twins paper on one matrix.
#[derive(Clone, Debug)]
pub struct Study {
    /// all, no twins, with twins, low twins, mid twins, high twins.
    pub groups: [Group; 6],
    /// Mean slowdown of the schedule in which every program stands beside its twin.
    pub all_twins: f64,
    /// How many schedules are worse than that one.
    pub worse_than_all_twins: u64,
    /// Sets of programs, as bits, whose twins are low, mid and high.
    pub sets: [u32; 3],
    /// Where the first bin begins.
    pub first: f64,
    /// How wide each is.
    pub bin: f64,
}

/// Mean slowdowns of all schedules of a whole matrix's programs, two instances each. Twins are low, mid and high by
/// what the two lose together: the lowest third (rounded to the nearest), the highest, and those between.
pub fn study(matrix: &Matrix, bins: usize) -> Study {
    let size = matrix.len();
    let of = |a: usize, b: usize| matrix.get(a, b).expect("the matrix is whole");
    // A schedule's mean slowdown is over 2 n instances.
    let costs: Vec<Vec<f64>> =
        (0..size).map(|a| (0..size).map(|b| (of(a, b) + of(b, a)) / (2 * size) as f64).collect()).collect();
    let mut by_twins: Vec<usize> = (0..size).collect();
    by_twins.sort_by(|&a, &b| of(a, a).total_cmp(&of(b, b)).then(a.cmp(&b)));
    let third = (size as f64 / 3.0).round() as usize;
    let set = |programs: &[usize]| programs.iter().fold(0u32, |set, program| set | 1 << program);
    let (low, rest) = by_twins.split_at(third.min(size));
    let (mid, high) = rest.split_at(rest.len().saturating_sub(third));
    let sets = [set(low), set(mid), set(high)];
    let all_twins: f64 = (0..size).map(|program| costs[program][program]).sum();
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    visit_all(&costs, |mean, _| (least, most) = (least.min(mean), most.max(mean)));
    let bin = ((most - least) / bins as f64).max(1e-9);
    let names = ["all", "no twins", "with twins", "low twins", "mid twins", "high twins"];
    let mut groups = names.map(|name| Group {
        name,
        count: 0,
        best: f64::INFINITY,
        worst: f64::NEG_INFINITY,
        sum: 0.0,
        histogram: vec![0; bins],
    });
    let mut worse_than_all_twins = 0;
    visit_all(&costs, |mean, twins| {
        let place = (((mean - least) / bin) as usize).min(bins - 1);
        let belongs =
            [true, twins == 0, twins != 0, twins & sets[0] != 0, twins & sets[1] != 0, twins & sets[2] != 0];
        for (group, _) in groups.iter_mut().zip(belongs).filter(|(_, belongs)| *belongs) {
            group.count += 1;
            group.best = group.best.min(mean);
            group.worst = group.worst.max(mean);
            group.sum += mean;
            group.histogram[place] += 1;
        }
        worse_than_all_twins += u64::from(mean > all_twins + 1e-12);
    });
    Study { groups, all_twins, worse_than_all_twins, sets, first: least, bin }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [u128; 11] = [1, 1, 2, 5, 17, 73, 388, 2461, 18_155, 152_531, 1_436_714];
    const WITHOUT: [u128; 11] = [1, 0, 1, 1, 6, 22, 130, 822, 6202, 52_552, 499_194];

    #[test]
    fn the_formulas_give_the_known_numbers() {
        for (n, (&all, &without)) in ALL.iter().zip(&WITHOUT).enumerate() {
            assert_eq!((count(n), count_without_twins(n)), (all, without), "{n} programs");
        }
    }

    #[test]
    fn enumeration_finds_as_many_as_the_formulas() {
        for n in 0..=8 {
            let (mut all, mut without) = (0u128, 0u128);
            visit_all(&vec![vec![0.0; n]; n], |_, twins| {
                all += 1;
                without += u128::from(twins == 0);
            });
            assert_eq!((all, without), (ALL[n], WITHOUT[n]), "{n} programs");
        }
    }

    #[test]
    fn every_schedule_uses_every_program_twice_and_comes_once() {
        // Costs that tell the multiset of pairs: powers of 4, as a pair occurs twice at most.
        let n = 4;
        let mut power = 1.0;
        let mut costs = vec![vec![0.0; n]; n];
        for (a, b) in (0..n).flat_map(|a| (a..n).map(move |b| (a, b))) {
            (costs[a][b], costs[b][a]) = (power, power);
            power *= 4.0;
        }
        let mut costs_found = Vec::new();
        visit_all(&costs, |sum, _| costs_found.push(sum as u64));
        let found = costs_found.len();
        costs_found.sort_unstable();
        costs_found.dedup();
        assert_eq!((found, costs_found.len()), (17, 17));
    }

    #[test]
    fn the_study_of_one_heavy_program_blames_its_twins() {
        let mut matrix = Matrix::unknown(["a", "b", "c", "d"].map(str::to_owned).into());
        for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))) {
            let wants = |program: usize| [0.1, 0.3, 0.6, 1.0][program];
            matrix.set(a, b, Some(f64::max(1.0, wants(a) + wants(b))));
        }
        let study = study(&matrix, 10);
        let [all, without, with, low, ..] = &study.groups;
        assert_eq!([all.count, without.count, with.count], [17, 6, 11]);
        assert!(without.mean() < all.mean() && without.worst <= all.worst && low.mean() > without.mean());
        assert_eq!((study.sets, study.worse_than_all_twins), ([0b0001, 0b0110, 0b1000], 0));
        assert_eq!(all.histogram.iter().sum::<u64>(), 17);
    }
}
