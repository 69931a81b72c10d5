//! Invariant 5: programs that ask for the same get the same, up to what the policy promises.

use super::Violation;
use super::cast::Cast;
use crate::{App, Plan, ShareBound, Snapshot};

/// Shares are sums of a few divisions; what differs by less is equal.
const ROUNDING: f64 = 1e-9;

/// Holds what `plan` gives to programs that are free to stand anywhere, take a team of any size and are
/// not suspended against `bound`: for the others width or place is a matter of need.
pub fn check(
    plan: &Plan,
    snapshot: &Snapshot,
    cast: &Cast<'_>,
    bound: ShareBound,
    found: &mut Vec<Violation>,
) {
    if !snapshot.apps.iter().any(is_free) {
        return;
    }
    let cpus = snapshot.machine.all_cpus().len().max(1) as f64;
    let mut shares = vec![0.0; cast.len()];
    let mut numbers = cast.runs.iter().map(|&(_, number)| number);
    plan.for_each_mean(&mut |_, cpus_of_run| {
        shares[numbers.next().expect("as many as there are runs")] += cpus_of_run / cpus;
    });
    match bound {
        ShareBound::EarliestFirst => earliest_first(plan, snapshot, &shares, found),
        ShareBound::AsWritten => {}
        ShareBound::Ratio(_) | ShareBound::Difference(_) | ShareBound::Floor(_) => {
            compare_equals(snapshot, &shares, bound, found);
        }
    }
}

/// Compares programs of equal demand (and so of equal weight).
fn compare_equals(snapshot: &Snapshot, shares: &[f64], bound: ShareBound, found: &mut Vec<Violation>) {
    let mut free: Vec<(&App, f64)> =
        snapshot.apps.iter().zip(shares.iter().copied()).filter(|(app, _)| is_free(app)).collect();
    let all = Together::of(snapshot);
    while let Some(&(first, _)) = free.first() {
        let (equals, others): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|(app, _)| app.demand == first.demand);
        free = others;
        let by_share = |a: &&(&App, f64), b: &&(&App, f64)| a.1.total_cmp(&b.1);
        let (Some(&(poorer, smaller)), Some(&(richer, larger))) =
            (equals.iter().min_by(by_share), equals.iter().max_by(by_share))
        else {
            continue;
        };
        let within = match bound {
            ShareBound::Ratio(ratio) => larger <= smaller * ratio + ROUNDING,
            ShareBound::Difference(difference) => larger - smaller <= difference + ROUNDING,
            ShareBound::Floor(factor) => larger * all.part_of(poorer) <= smaller * factor + ROUNDING,
            ShareBound::EarliestFirst | ShareBound::AsWritten => true,
        };
        if !within {
            let (richer, poorer) = (richer.id.clone(), poorer.id.clone());
            found.push(Violation::Unfair { richer, larger, poorer, smaller, bound });
        }
    }
}

/// Everybody who is there and not suspended.
struct Together {
    programs: f64,
    weights: f64,
}

impl Together {
    fn of(snapshot: &Snapshot) -> Together {
        let mut all = Together { programs: 0.0, weights: 0.0 };
        for app in snapshot.apps.iter().filter(|app| !app.suspended) {
            all.programs += 1.0;
            all.weights += weight(app);
        }
        all
    }

    /// The part of one of them, by number or by weight, whichever is less.
    fn part_of(&self, app: &App) -> f64 {
        (1.0 / self.programs).min(weight(app) / self.weights)
    }
}

fn weight(app: &App) -> f64 {
    f64::from(app.demand.weight_milli.max(1))
}

/// Whether the earliest of those who may be stopped has all that it can use of what others leave, and
/// no other free program has anything.
fn earliest_first(plan: &Plan, snapshot: &Snapshot, shares: &[f64], found: &mut Vec<Violation>) {
    let bound = ShareBound::EarliestFirst;
    let mut in_order =
        snapshot.apps.iter().zip(shares.iter().copied()).filter(|(app, _)| app.stoppable && !app.suspended);
    let Some((first, has)) = in_order.next() else { return };
    if is_free(first) {
        let mut left = snapshot.usable.clone();
        plan.for_each_run(&mut |run| {
            if run.app != first.id {
                left = left.difference(&run.place);
            }
        });
        let most = first.demand.max_threads.map_or(usize::MAX, |most| most.max(1) as usize);
        let least = left.len().min(most) as f64 / snapshot.machine.all_cpus().len().max(1) as f64;
        if has + ROUNDING < least {
            found.push(Violation::TooLittle { app: first.id.clone(), share: has, least, bound });
        }
    }
    for (app, larger) in in_order.filter(|(app, share)| is_free(app) && *share > ROUNDING) {
        let (richer, poorer) = (app.id.clone(), first.id.clone());
        found.push(Violation::Unfair { richer, larger, poorer, smaller: has, bound });
    }
}

fn is_free(app: &App) -> bool {
    app.accepts_width()
        && app.demand.min_threads <= 1
        && app.stoppable
        && app.within.is_none()
        && !app.suspended
}
