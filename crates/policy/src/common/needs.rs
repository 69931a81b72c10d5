//! What a program must have and what it can use, worked out once per decision.
//!
//! A program that cannot change its number of threads needs one CPU for each of them (its
//! *floor*), because threads that spin for a partner which is not running make it a hundred
//! times slower. Only one whose threads sleep while they wait may be squeezed: its floor is 1.

use plan::{App, Run, Snapshot};
use topology::CpuSet;

/// One live program of a decision.
#[derive(Clone, Debug)]
pub(crate) struct Need<'a> {
    pub app: &'a App,
    /// The CPUs that it may stand on.
    pub room: CpuSet,
    /// It may stand anywhere on the usable CPUs.
    pub roams: bool,
    /// Fewest CPUs that it may be given.
    pub floor: usize,
    /// Its team follows what it is asked for.
    pub obeys: bool,
}

impl<'a> Need<'a> {
    pub fn of(app: &'a App, snapshot: &Snapshot) -> Need<'a> {
        let floor = snapshot.fewest_cpus(app);
        let room = snapshot.overflow_place(app).unwrap_or_else(|| snapshot.room(app));
        let roams = room == snapshot.usable;
        Need { app, room, roams, floor, obeys: app.takes_orders() }
    }

    /// Its run on `place`, with as many threads as it may and can have there.
    pub fn run(&self, place: CpuSet) -> Run {
        let cpus = place.len() as u32;
        let most = self.app.demand.max_threads.unwrap_or(cpus).max(self.app.demand.min_threads);
        let threads = if self.obeys { most.min(cpus) } else { self.app.width(cpus).min(cpus) };
        Run { threads: threads.max(1), ..Run::new(self.app.id.clone(), place) }
    }

    /// Its run on one CPU shared with others.
    pub fn run_alone(&self, place: CpuSet) -> Run {
        let threads = self.app.demand.min_threads.clamp(1, place.len() as u32);
        Run { threads, ..Run::new(self.app.id.clone(), place) }
    }

    pub fn weight(&self) -> u64 {
        u64::from(self.app.demand.weight_milli.max(1))
    }
}

/// The live programs in order of arrival, without those that a user suspended.
pub(crate) fn needs(snapshot: &Snapshot) -> Vec<Need<'_>> {
    snapshot.apps.iter().filter(|app| !app.suspended).map(|app| Need::of(app, snapshot)).collect()
}
