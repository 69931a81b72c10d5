//! Programs are taken in, and taken back where somebody has set them free.

use std::collections::BTreeSet;

use linux::affinity::Chosen;
use protocol::AppRecord;
use workload::AppId;

use super::{Failure, Live, Managed};
use crate::account::Ledger;
use crate::clock::Members;
use crate::error::Error;
use crate::home::Home;
use crate::mechanism::{Harness, Joining};
use crate::prior_state::PriorState;
use crate::rates::Rates;
use crate::registry::Traces;
use crate::rotor::Rotation;
use crate::watch::Watch;
use crate::{identity, restore};

impl Live {
    /// Takes a program in; it runs on (or is held, or stands as its user has stopped it) as before.
    pub fn add(&mut self, record: AppRecord, now_ns: u64) {
        let watch = Watch::new(&record, now_ns, &self.analyst, &self.root);
        // A scheduler before us may have known that.
        let user_stopped = self.registry.traces(&record.id).user_stopped;
        let harness = self.harness_for(&record, user_stopped);
        let mut ledger = Ledger::new(record.id.clone(), record.arrived_ns);
        if record.started {
            ledger.mark_running(now_ns);
        }
        let managed = Managed {
            placed: record.original_cpus.clone(),
            newcomers: false,
            harness,
            watch,
            observation: None,
            ledger,
            rates: Rates::default(),
            speedup: None,
            wish: None,
            expected: None,
            expected_bytes: None,
            user_stopped,
            yields: false,
            terminating: false,
            may_start: record.started,
            let_go: record.started,
            stopped_samples: 0,
            widest: 0,
            outgrew: false,
            unplaced: None,
            chosen: Chosen::Nothing,
            chosen_reported: Chosen::Nothing,
            record,
        };
        self.apps.insert(managed.record.id.clone(), managed);
    }

    fn harness_for(&mut self, record: &AppRecord, user_stopped: bool) -> Option<Harness> {
        let mechanisms = self.mechanisms.as_ref()?;
        if !record.original_cpus.is_empty() && !record.original_cpus.intersects(&self.allowed) {
            let (its, shared_out) = (record.original_cpus.clone(), self.allowed.clone());
            self.failures.push(Failure::of(&record.id, Error::ElsewhereOnly { its, shared_out }));
            return None;
        }
        // What was undone before now is known to us.
        self.registry.consume_free_note(&record.id);
        let process = identity::to_linux(record.process);
        let members = linux::procfs::tree(process.pid, &self.root).unwrap_or_else(|_| vec![process]);
        let keep = |traces: &_| self.registry.write_traces(&record.id, traces);
        let before = match record.terms.attached {
            true => PriorState::read(&members, &self.root).map(Some).map_err(Error::from),
            false => Ok(None),
        };
        let taken = before.and_then(|before| {
            let traces = Traces { user_stopped, before, ..Traces::default() };
            let program = Joining {
                group: record.id.as_str(),
                processes: &members,
                launcher: record.is_launcher_to_be().then_some(process),
                original: &record.original_cpus,
            };
            Harness::attach(mechanisms, &program, traces, keep)
        });
        match taken {
            Ok(harness) => Some(harness),
            Err(error) => {
                self.failures.push(Failure::of(&record.id, Error::Unmanaged(Box::new(error))));
                None
            }
        }
    }

    /// Whether somebody has noted that a program was set free, and it was not taken back yet.
    pub fn is_anybody_set_free(&self) -> bool {
        self.apps.keys().any(|id| self.registry.is_noted_as_free(id))
    }

    /// Takes those programs in anew that somebody has set free meanwhile, and tells which, each with whether its user
    /// has stopped it unseen; the plan stays.
    pub fn readopt(&mut self, home: &Home, beat: impl Fn()) -> Vec<(AppId, bool)> {
        let ids: Vec<AppId> =
            self.apps.keys().filter(|id| self.registry.consume_free_note(id)).cloned().collect();
        if ids.is_empty() {
            return Vec::new();
        }
        // Handles on groups that are gone are not to be turned any more.
        self.clock.set(Rotation::new(None), Members::new(), BTreeSet::new());
        let known: BTreeSet<AppId> = ids.iter().filter(|id| self.apps[*id].user_stopped).cloned().collect();
        self.note_stops_by_others();
        let mut back = Vec::new();
        for id in ids {
            beat();
            let (record, known) = (self.apps[&id].record.clone(), known.contains(&id));
            // Its `run` may have said so to nobody.
            let user_stopped = self.apps[&id].user_stopped || self.registry.traces(&id).user_stopped;
            restore::set_free_knowing(&record, self.apps[&id].known(), &self.root, home);
            let harness = self.harness_for(&record, user_stopped);
            let managed = self.apps.get_mut(&id).expect("none was removed");
            managed.harness = harness;
            managed.placed = record.original_cpus;
            // The processes that belong to it are told to the new harness at the next look.
            managed.observation = None;
            managed.user_stopped = user_stopped;
            if let Err(error) = managed.watch.set_target(0) {
                self.failures.push(Failure::of(&id, error));
            }
            back.push((id, user_stopped && !known));
        }
        // Kept from running in here for long, it finds others set free, and takes them in before it does anything.
        if !self.is_anybody_set_free() {
            self.settle();
            // What fails here is among the failures, and done again with the next plan.
            let _ = self.turn_wheels();
        }
        back
    }
}
