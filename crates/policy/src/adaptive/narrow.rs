//! Whether a program that cannot be resized had better start with as few threads as an equal part has
//! CPUs: it then runs all the time, where as wide as it would be otherwise it runs in turn.
//!
//! ```text
//! part          = usable CPUs × its weight ÷ everybody's
//! T(k)          = left ÷ S(k)                                 narrow, for good
//! in turn       = S(w) × min(1, part ÷ w)                     wide, while others are there
//! T(w)          = time at "in turn" until the others have left, then at S(w)
//! others leave  = the last of left ÷ S(its equal part)
//! narrow where    1.1 × T(k) ≤ T(w)
//! ```
//!
//! What is not known of how much is left, of it and of the others, and of the others' curves is assumed as
//! for divisions ([`super::model`]). Its own curve must be known: what a narrow start costs when the
//! neighbours leave cannot be taken back.

use plan::{App, Snapshot};

use super::model::{UNKNOWN_LEFT_S, curve_of};
use crate::NarrowStart;

/// By how much the time that it is expected to take must be shorter.
const WORTH_IT: f64 = 1.1;

pub(super) fn start(newcomer: &App, snapshot: &Snapshot) -> Option<NarrowStart> {
    let curve = newcomer.speedup.as_ref().filter(|_| !newcomer.accepts_width())?;
    let others = || snapshot.apps.iter().filter(|app| !app.suspended && app.id != newcomer.id);
    let weight = |app: &App| f64::from(app.demand.weight_milli.max(1));
    let weights = weight(newcomer) + others().map(weight).sum::<f64>();
    let room = snapshot.room(newcomer).len();
    let part = |app: &App| (snapshot.usable.len() as f64 * weight(app) / weights).max(1.0);
    let (wide, own) = (newcomer.width(room as u32), part(newcomer).min(room as f64));
    let narrow = own as u32;
    if others().next().is_none() || narrow >= wide || narrow < newcomer.demand.min_threads {
        return None;
    }
    let speed = |threads: u32| curve.milli(threads) as f64 / 1000.0;
    let left_s = |app: &App| app.evidence.left_ns.map_or(UNKNOWN_LEFT_S, |left| left.value as f64 / 1e9);
    let lasts_s = |app: &App| left_s(app) / curve_of(app.speedup.as_ref(), part(app));
    let company_s = others().map(lasts_s).fold(0.0, f64::max);
    // More threads than CPUs are no faster than as many.
    let alone = speed(wide.min(room as u32));
    let in_turn = alone * (own / f64::from(wide)).min(1.0);
    let (left_s, done) = (left_s(newcomer), in_turn * company_s);
    let wide_s = if left_s <= done { left_s / in_turn } else { company_s + (left_s - done) / alone };
    let narrow_s = left_s / speed(narrow);
    let milli = |factor: f64| (factor * 1000.0).round() as u32;
    (WORTH_IT * narrow_s <= wide_s).then(|| NarrowStart {
        threads: narrow,
        of: wide,
        others: others().count() as u32,
        time_milli: milli(narrow_s / wide_s),
        alone_milli: milli(alone / speed(narrow)),
    })
}
