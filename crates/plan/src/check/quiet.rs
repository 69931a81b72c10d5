//! Since when nothing has changed.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{App, Snapshot};

/// What was seen last that a plan depends on, and since when it is so.
#[derive(Clone, Debug, Default)]
pub struct Quiet {
    last_digest: Option<u64>,
    since_ns: u64,
}

impl Quiet {
    /// For how long nothing has changed, now that there is `snapshot`.
    pub fn follow(&mut self, snapshot: &Snapshot) -> u64 {
        let digest_now = digest(snapshot);
        if self.last_digest != Some(digest_now) {
            (self.last_digest, self.since_ns) = (Some(digest_now), snapshot.now_ns);
        }
        snapshot.now_ns.saturating_sub(self.since_ns)
    }
}

/// Two snapshots of one digest are taken for the same; the hasher's keys are fixed.
fn digest(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&snapshot.allowed, &snapshot.usable, snapshot.apps.len()).hash(&mut hasher);
    for app in &snapshot.apps {
        let App { id, demand, team, waits_passively, stoppable, suspended, within, .. } = app;
        (id, app.accepts_width(), demand.min_threads, demand.max_threads).hash(&mut hasher);
        (demand.weight_milli, demand.coschedule, team, within).hash(&mut hasher);
        (waits_passively, stoppable, suspended).hash(&mut hasher);
    }
    hasher.finish()
}
