//! How programs stand, for `coplace status`.

use protocol::{AppState, AppStatus, MemoryMoves};
use workload::AppId;

use super::{Live, Managed};
use crate::watch::Nature;

impl Live {
    pub fn status(&self, now_ns: u64) -> Vec<AppStatus> {
        let status = |(id, managed): (&AppId, &Managed)| {
            let observation = managed.observation.as_ref();
            let state = match () {
                () if self.plan.waiting.contains(id) => AppState::Waiting,
                () if managed.user_stopped => AppState::Suspended,
                () if managed.yields => AppState::Yielding,
                () if !managed.record.started || !managed.is_known() => AppState::Starting,
                () => AppState::Running,
            };
            AppStatus {
                id: id.clone(),
                pid: managed.record.process.pid,
                uid: managed.record.uid,
                command: managed.record.command.clone(),
                state,
                place: managed.placed.clone(),
                threads: managed.wish.as_ref().map_or(0, |wish| wish.1),
                team: observation.and_then(|observation| observation.team),
                rigid: observation.and_then(|observation| match &observation.nature {
                    Nature::Rigid(why) | Nature::StuckInRegion(why) => Some(why.clone()),
                    _ => None,
                }),
                resizing: observation.and_then(|observation| observation.finding.clone()),
                attached: managed.record.terms.attached,
                waiting: managed.waiting(),
                waits_for: None,
                speedup: managed.speedup.clone(),
                memory: MemoryMoves { brought: managed.rates.move_gain(), ..self.follower.figures(id) },
                bubbles: managed.watch.bubbles(),
                account: managed.ledger.read(now_ns),
            }
        };
        self.apps.iter().map(status).collect()
    }
}
