//! What a program must have and what it can use, worked out once per decision.
//!
//! A program that cannot change its number of threads needs one CPU for each of them (its
//! *floor*), because threads that spin for a partner which is not running make it a hundred
//! times slower. Only one whose threads sleep while they wait may be squeezed: its floor is 1.

use plan::{App, Snapshot};
use topology::CpuSet;

use crate::Places;

/// One live program of a decision.
#[derive(Clone, Debug)]
pub(crate) struct Need<'a> {
    pub app: &'a App,
    /// Where it stood last.
    pub before: Option<&'a CpuSet>,
    /// The CPUs that it may use where that is not simply `Snapshot::usable`.
    pub scope: Option<CpuSet>,
    /// Fewest CPUs that it may be given.
    pub floor: u32,
    /// Most CPUs that it can use.
    pub cap: u32,
    /// Fewest threads that it can be asked to run with.
    pub least_threads: u32,
    /// Its number of threads where nobody can change it.
    pub own_threads: Option<u32>,
    /// Its weight, at least 1, in thousandths.
    pub weight: u64,
    /// Too few CPUs are usable where it may stand: `scope` reaches into what is kept for unmanaged
    /// programs.
    pub overflows: bool,
}

impl<'a> Need<'a> {
    pub fn of(app: &'a App, snapshot: &Snapshot, usable: usize, allowed: usize) -> Need<'a> {
        let own_threads = (!app.accepts_width()).then(|| app.width(allowed as u32));
        let mut least = app.fewest_threads(allowed as u32);
        let mut floor = if app.waits_passively { 1 } else { least }.clamp(1, allowed.max(1) as u32);
        let (mut scope, mut overflows) = (None, false);
        if app.within.is_some() || floor as usize > usable {
            floor = snapshot.fewest_cpus(app) as u32;
            least = least.min(snapshot.wide_room(app).len() as u32);
            let overflow = snapshot.overflow_place(app);
            let room = overflow.unwrap_or_else(|| snapshot.room(app));
            overflows = !room.is_subset(&snapshot.usable);
            scope = Some(room);
            scope = scope.filter(|scope| *scope != snapshot.usable);
        }
        let cap = own_threads.or(app.demand.max_threads).unwrap_or(u32::MAX).max(least).max(floor);
        Need {
            app,
            before: None,
            scope,
            floor,
            cap,
            least_threads: least.min(allowed as u32),
            own_threads,
            weight: u64::from(app.demand.weight_milli.max(1)),
            overflows,
        }
    }

    /// The part of `place` that is open to it.
    pub fn open(&self, place: &CpuSet) -> CpuSet {
        match &self.scope {
            Some(scope) => scope.intersection(place),
            None => place.clone(),
        }
    }

    /// Whether `place` holds enough CPUs that are open to it.
    pub fn fits(&self, place: &CpuSet) -> bool {
        let have = match &self.scope {
            Some(scope) => scope.intersection(place).len(),
            None => place.len(),
        };
        have >= self.floor as usize
    }

    /// As many threads as it runs with on so many CPUs.
    pub fn threads_on(&self, cpus: usize) -> u32 {
        self.own_threads.unwrap_or_else(|| self.cap.min(cpus as u32).max(self.least_threads))
    }

    /// Whether its threads lose nothing when they do not run at the same time.
    pub fn runs_uncoordinated(&self) -> bool {
        self.app.waits_passively || !self.app.demand.coschedule
    }
}

/// Those of the live programs that take part, in order of arrival, without those that a user suspended.
pub(crate) fn needs<'a>(
    snapshot: &'a Snapshot,
    places: &'a Places,
    mut takes_part: impl FnMut(&App) -> bool,
) -> Vec<Need<'a>> {
    let (usable, allowed) = (snapshot.usable.len(), snapshot.allowed.len());
    let mut needs = Vec::new();
    needs.extend(
        snapshot
            .apps
            .iter()
            .filter(|app| !app.suspended && takes_part(app))
            .map(|app| Need { before: places.get(&app.id), ..Need::of(app, snapshot, usable, allowed) }),
    );
    needs
}
