//! Who had how much CPU time so far, and how much an equal share would have been: by the plans that
//! were in force, so that shares even out over time without anybody measuring them.

use std::collections::BTreeMap;

use plan::{Plan, Snapshot};
use serde::{Deserialize, Serialize};
use workload::AppId;

/// CPU time of the programs that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Until when it is kept, in the snapshot's time.
    #[serde(default)]
    at_ns: u64,
    #[serde(default)]
    of: BTreeMap<AppId, Served>,
}

/// One program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// CPU time that plans gave to its threads, in nanoseconds.
    pub used_ns: u64,
    /// CPU time that its weight entitled it to, in nanoseconds.
    pub entitled_ns: u64,
    /// CPUs that the plan in force gives to its threads, in thousandths.
    given_milli: u64,
    /// What its weight entitles it to.
    share_milli: u64,
}

impl Account {
    /// Whether nobody stands in it.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Brought up to the snapshot's time, with those alone who are still there.
    pub(crate) fn until(&self, snapshot: &Snapshot) -> Account {
        let passed_ns = snapshot.now_ns.saturating_sub(self.at_ns);
        let over = |milli: u64| (u128::from(milli) * u128::from(passed_ns) / 1000) as u64;
        let of = snapshot.apps.iter().map(|app| {
            let old = self.of.get(&app.id).copied().unwrap_or_default();
            let served = Served {
                used_ns: old.used_ns + over(old.given_milli),
                entitled_ns: old.entitled_ns + over(old.share_milli),
                ..old
            };
            (app.id.clone(), served)
        });
        Account { at_ns: snapshot.now_ns, of: of.collect() }
    }

    /// From now on `plan` is in force.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let present = || snapshot.apps.iter().filter(|app| !app.suspended);
        let weight = |app: &plan::App| u64::from(app.demand.weight_milli.max(1));
        let weights: u64 = present().map(weight).sum();
        let shares = plan.mean_cpus();
        for app in present() {
            let Some(served) = self.of.get_mut(&app.id) else { continue };
            // Before its first region it has one thread, and then no more than its team.
            let most = app.team.map_or(1.0, f64::from);
            let cpus = shares.get(&app.id).copied().unwrap_or(0.0).min(most);
            served.given_milli = (cpus * 1000.0) as u64;
            served.share_milli = snapshot.usable.len() as u64 * 1000 * weight(app) / weights.max(1);
        }
    }

    /// What a program had so far; nothing where it is not known.
    pub fn served(&self, app: &AppId) -> Served {
        self.of.get(app).copied().unwrap_or_default()
    }
}
