//! Invariants 6 and 7: what must hold from one plan to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use topology::CpuSet;
use workload::AppId;

use super::quiet::Quiet;
use super::shapes::{Signatures, shared, unit_of};
use super::{Case, Violation};
use crate::{MoveReason, Plan, Promise, Remark, Report, Run, Snapshot, Tree, WaitingBound};

/// A sequence of plans so far, as far as judging the next one needs it.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    last: Option<Arc<Plan>>,
    /// In the snapshot's order, as far as that stays.
    live: Vec<AppId>,
    /// How many programs that ran have ended.
    ended: u64,
    /// Who waits, in order of the names, and how many had ended when it began to.
    waiting: Vec<(AppId, u64)>,
    /// Only followed while a promise asks for it.
    quiet: Quiet,
}

impl Sequence {
    /// Judges `plan` as the successor of the one before, and takes it into the sequence.
    pub fn check_step(
        &mut self,
        plan: &Plan,
        snapshot: &Snapshot,
        promise: &Promise,
        report: &Report,
    ) -> Vec<Violation> {
        let found = self.check_case(&Case::of(plan, snapshot), promise, report);
        self.follow(Arc::new(plan.clone()));
        found
    }

    /// Judges a plan as the successor of the one before; [`Sequence::follow`] takes it into the sequence.
    pub fn check_case(&mut self, case: &Case<'_>, promise: &Promise, report: &Report) -> Vec<Violation> {
        let mut found = Vec::new();
        self.waits(case, promise, &mut found);
        if let Some(settled) = promise.settled
            && self.quiet.follow(case.snapshot) >= settled.after_ns
        {
            case.check_shares(settled.bound, &mut found);
        }
        if promise.equal_shapes {
            left_over(case, &report.remarks, &mut found);
        }
        if let Some(last) = self.last.as_ref().filter(|_| promise.keeps_cpus) {
            keeps(last, case, promise, &report.moves, &mut found);
        }
        found
    }

    /// The plan that was judged last, and its successors are judged by.
    pub fn follow(&mut self, plan: Arc<Plan>) {
        self.last = Some(plan);
    }

    /// Another policy decides from here on: nobody has waited for it yet, and nothing has settled.
    pub fn forget_waits(&mut self) {
        self.waiting.clear();
        self.quiet = Quiet::default();
    }

    fn waits(&mut self, case: &Case<'_>, promise: &Promise, found: &mut Vec<Violation>) {
        let mut gone = self.update_live(case);
        if let Some(last) = self.last.as_ref().filter(|_| !gone.is_empty()) {
            last.for_each_run(&mut |run| self.ended += u64::from(gone.remove(&run.app)));
        }
        let before = std::mem::take(&mut self.waiting);
        self.waiting = still_waiting(before, &case.plan.waiting, self.ended);
        let terminations = |since: u64| u32::try_from(self.ended - since).unwrap_or(u32::MAX);
        let mut find = |app: &AppId, since, promised| {
            let (app, terminations) = (app.clone(), terminations(since));
            found.push(Violation::WaitsTooLong { app, terminations, promised });
        };
        match promise.waiting_bound {
            None => {}
            Some(WaitingBound::Terminations(bound)) => {
                let late = |since: &u64| terminations(*since) >= bound;
                let late = self.waiting.iter().filter(|(_, since)| late(since));
                late.for_each(|(app, since)| find(app, *since, format!("after {bound}")));
            }
            Some(WaitingBound::EarlierArrivals) => {
                // Who is suspended does not end, so that nobody can be promised to follow it.
                let apps = &case.snapshot.apps;
                let ahead = apps.iter().take_while(|app| app.suspended).count();
                let first: BTreeSet<&AppId> = apps.iter().take(ahead + 1).map(|app| &app.id).collect();
                let is_first = |app| first.contains(app) || ahead == apps.len() && !case.cast.is_live(app);
                let late = self.waiting.iter().filter(|(app, _)| is_first(app));
                late.for_each(|(app, since)| {
                    find(app, *since, "once all who arrived before have ended".to_owned());
                });
            }
        }
    }

    /// Whoever was there and is not any more.
    fn update_live(&mut self, case: &Case<'_>) -> BTreeSet<AppId> {
        let apps = &case.snapshot.apps;
        // Mostly those who stay are in the same order as before, and newcomers behind them: then no name is looked up.
        let mut in_order = 0;
        let is_gone = |app: &mut AppId| {
            let is_next = apps.get(in_order).is_some_and(|next| next.id == *app);
            in_order += usize::from(is_next);
            !is_next && !case.cast.is_live(app)
        };
        let gone = self.live.extract_if(.., is_gone).collect();
        if in_order == self.live.len() {
            self.live.extend(apps[in_order..].iter().map(|app| app.id.clone()));
        } else {
            self.live = apps.iter().map(|app| app.id.clone()).collect();
        }
        gone
    }
}

/// Those who wait now, in order of the names, each with what had ended when it began to: of those who waited `before`
/// that is known, and the others begin now.
fn still_waiting(before: Vec<(AppId, u64)>, now: &BTreeSet<AppId>, ended: u64) -> Vec<(AppId, u64)> {
    let mut before = before.into_iter().peekable();
    let mut since = |app: &AppId| {
        while before.next_if(|(known, _)| known < app).is_some() {}
        before.next_if(|(known, _)| known == app)
    };
    now.iter().map(|app| since(app).unwrap_or_else(|| (app.clone(), ended))).collect()
}

/// CPUs that the shape in force leaves over, and nobody uses, must be reported.
fn left_over(case: &Case<'_>, remarks: &[Remark], found: &mut Vec<Violation>) {
    let Some(offered) = case.offered() else { return };
    let used = case.plan.place();
    let in_force: BTreeSet<usize> =
        case.partitioned().runs.iter().filter_map(|run| offered.find(&run.place)).map(|(at, _)| at).collect();
    let left: BTreeSet<CpuSet> =
        in_force.into_iter().map(|at| offered.shape(at).left_over.difference(&used)).collect();
    let reported = remarks.iter().filter_map(Remark::unused).fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let unreported = left.into_iter().map(|cpus| cpus.difference(&reported)).filter(|cpus| !cpus.is_empty());
    found.extend(unreported.map(|cpus| Violation::LeftOverUnexplained { cpus }));
}

/// Largest number of partitions for which the best exchange is computed; with more, only whether
/// exchanging two of them, or taking a free one, would keep more.
const EXACT: usize = 8;

/// Whether `plan` keeps as many CPUs as any exchange of partitions of one shape would.
fn keeps(
    last: &Plan,
    case: &Case<'_>,
    promise: &Promise,
    reasons: &BTreeMap<AppId, MoveReason>,
    found: &mut Vec<Violation>,
) {
    let Case { plan, snapshot, cast, .. } = case;
    let partitioned = case.partitioned();
    if partitioned.runs.is_empty() {
        return;
    }
    let is_free = |run: &Run| partitioned.free[cast.number(&run.app)];
    // Where each program ran before, by its number.
    let mut before: Vec<Option<CpuSet>> = vec![None; cast.len()];
    last.for_each_run(&mut |run| {
        if let Some(number) = cast.known(&run.app) {
            before[number].get_or_insert_default().add_all(&run.place);
        }
    });
    // Programs in different slots do not compete for partitions.
    let slots: Vec<&Tree> = match &plan.tree {
        Some(Tree::InTurn { slots, .. }) => slots.iter().map(|slot| &slot.tree).collect(),
        other => other.iter().collect(),
    };
    let offered = promise.equal_shapes.then(|| case.offered()).flatten();
    let signatures = Signatures::of(&snapshot.machine);
    let signature_of = |place: &CpuSet| signatures.signature(unit_of(&snapshot.machine, place), place);
    for slot in slots {
        let runs = slot.runs();
        let used = slot.place();
        // Partitions that are exchangeable as wholes: everybody on them stands on exactly them, and
        // nobody there must stand where it does.
        let mut groups: BTreeMap<&CpuSet, Vec<&Run>> = BTreeMap::new();
        for run in &runs {
            groups.entry(&run.place).or_default().push(run);
        }
        let overlapping = shared(groups.keys().copied());
        let exchangeable =
            |place: &CpuSet| groups[place].iter().all(|run| is_free(run)) && !place.intersects(&overlapping);
        let mut alike: BTreeMap<(usize, Option<u64>), Vec<&CpuSet>> = BTreeMap::new();
        for &place in groups.keys().filter(|place| exchangeable(place)) {
            alike.entry((place.len(), signature_of(place))).or_default().push(place);
        }
        for ((width, signature), places) in alike {
            let old = |run: &Run| before[cast.number(&run.app)].as_ref();
            let value = |group: &CpuSet, on: &CpuSet| -> usize {
                groups[group].iter().map(|run| old(run).map_or(0, |old| old.common_len(on))).sum()
            };
            // What one program keeps at most, anywhere.
            let most = |run: &Run| old(run).map_or(0, |old| old.len().min(width));
            let runs = || places.iter().flat_map(|place| &groups[*place]).copied();
            let kept: usize = places.iter().map(|place| value(place, place)).sum();
            if kept == runs().map(most).sum::<usize>() {
                continue;
            }
            let mut candidates: Vec<&CpuSet> = places.clone();
            let is_free = |place: &&CpuSet| place.len() == width && !place.intersects(&used);
            let shapes = offered.iter().flat_map(|offered| offered.shapes());
            let free: BTreeSet<&CpuSet> = shapes.flat_map(|shape| &shape.places).filter(is_free).collect();
            candidates.extend(free.into_iter().filter(|place| signature_of(place) == signature));
            let matrix: Vec<Vec<usize>> = places
                .iter()
                .map(|group| candidates.iter().map(|candidate| value(group, candidate)).collect())
                .collect();
            let possible = most_kept(&matrix);
            let lost = |run: &Run| most(run) - old(run).map_or(0, |old| old.common_len(&run.place));
            let explained: usize = runs().filter(|run| reasons.contains_key(&run.app)).map(lost).sum();
            if possible > kept + explained {
                let moved: Vec<&str> =
                    runs().filter(|run| lost(run) > 0).map(|run| run.app.as_str()).collect();
                found.push(Violation::NeedlessMove { kept, possible, moved: moved.join(", ") });
            }
        }
    }
}

/// Most CPUs that can be kept by giving each row (who stands together) one column (a partition) of
/// its own. Row i stands on column i now. Exact for few rows; else a lower bound that is above what
/// is kept now whenever exchanging two rows, or one row's moving to a free column, keeps more.
fn most_kept(matrix: &[Vec<usize>]) -> usize {
    let now: usize = (0..matrix.len()).map(|row| matrix[row][row]).sum();
    let upper: usize = matrix.iter().map(|row| row.iter().max().copied().unwrap_or(0)).sum();
    if upper <= now {
        return now;
    }
    if matrix.len() <= EXACT {
        return best_assignment(matrix);
    }
    let mut best = now;
    for (row, values) in matrix.iter().enumerate() {
        let most = values.iter().max().copied().unwrap_or(0);
        if values[row] == most {
            continue;
        }
        for column in (0..values.len()).filter(|&column| column != row) {
            let (without, with) = match matrix.get(column) {
                Some(other) => (values[row] + other[column], values[column] + other[row]),
                None => (values[row], values[column]),
            };
            best = best.max(now + with - without.min(with));
        }
    }
    best
}

/// Exact assignment: over subsets of rows, column by column.
fn best_assignment(matrix: &[Vec<usize>]) -> usize {
    let rows = matrix.len();
    let columns = matrix.first().map_or(0, Vec::len);
    let mut best: Vec<Option<usize>> = vec![None; 1 << rows];
    best[0] = Some(0);
    for column in 0..columns {
        for assigned in (0..1usize << rows).rev() {
            let Some(so_far) = best[assigned] else { continue };
            for (row, values) in matrix.iter().enumerate().filter(|(row, _)| assigned >> row & 1 == 0) {
                let next = assigned | 1 << row;
                best[next] = best[next].max(Some(so_far + values[column]));
            }
        }
    }
    best[(1 << rows) - 1].unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_assignment_of_a_known_matrix_is_found() {
        assert_eq!(best_assignment(&[vec![7, 5, 1], vec![8, 2, 2], vec![9, 6, 3]]), 8 + 5 + 3);
        assert_eq!(best_assignment(&[vec![0, 0, 4], vec![0, 1, 3]]), 4 + 1);
    }

    #[test]
    fn beyond_the_exact_size_one_profitable_exchange_is_found() {
        let mut matrix = vec![vec![0; 10]; 9];
        assert_eq!(most_kept(&matrix), 0);
        matrix[2][5] = 1;
        matrix[5][2] = 1;
        assert_eq!(most_kept(&matrix), 2);
        matrix[8][9] = 3;
        assert_eq!(most_kept(&matrix), 3);
    }
}
