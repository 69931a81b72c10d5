//! Invariant 5: programs that ask for the same get the same, up to what the policy promises.

use super::Violation;
use crate::{App, Plan, ShareBound, Snapshot};

/// Shares are sums of a few divisions; what differs by less is equal.
const ROUNDING: f64 = 1e-9;

/// Compares programs of equal demand (and so of equal weight) that are free to stand anywhere, take
/// a team of any size and are not suspended: for the others width or place is a matter of need.
pub fn check(plan: &Plan, snapshot: &Snapshot, bound: ShareBound, found: &mut Vec<Violation>) {
    let shares = plan.cpu_shares(snapshot.machine.all_cpus().len());
    let share = |app: &App| shares.get(&app.id).copied().unwrap_or(0.0);
    let mut free: Vec<&App> = snapshot.apps.iter().filter(|app| is_free(app)).collect();
    while let Some(first) = free.first().copied() {
        let (equals, others): (Vec<&App>, Vec<&App>) =
            free.into_iter().partition(|app| app.demand == first.demand);
        free = others;
        let by_share = |a: &&&App, b: &&&App| share(a).total_cmp(&share(b));
        let (Some(poorer), Some(richer)) = (equals.iter().min_by(by_share), equals.iter().max_by(by_share))
        else {
            continue;
        };
        let (smaller, larger) = (share(poorer), share(richer));
        let within = match bound {
            ShareBound::Ratio(ratio) => larger <= smaller * ratio + ROUNDING,
            ShareBound::Difference(difference) => larger - smaller <= difference + ROUNDING,
        };
        if !within {
            let (richer, poorer) = (richer.id.clone(), poorer.id.clone());
            found.push(Violation::Unfair { richer, larger, poorer, smaller, bound });
        }
    }
}

fn is_free(app: &App) -> bool {
    app.takes_orders()
        && app.demand.min_threads <= 1
        && app.stoppable
        && app.within.is_none()
        && !app.suspended
}
