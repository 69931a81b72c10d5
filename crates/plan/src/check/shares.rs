//! Invariant 5: programs that ask for the same get the same, up to what the policy promises.

use super::Violation;
use super::cast::Cast;
use crate::{App, Plan, ShareBound, Snapshot};

/// Shares are sums of a few divisions; what differs by less is equal.
const ROUNDING: f64 = 1e-9;

/// Compares programs of equal demand (and so of equal weight) that are free to stand anywhere, take
/// a team of any size and are not suspended: for the others width or place is a matter of need.
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
    plan.for_each_given(&mut |_, given| {
        shares[numbers.next().expect("as many as there are runs")] += given / cpus;
    });
    let mut free: Vec<(&App, f64)> =
        snapshot.apps.iter().zip(shares).filter(|(app, _)| is_free(app)).collect();
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
