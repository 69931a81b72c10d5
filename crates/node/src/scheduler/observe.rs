//! What the scheduler sees of programs and of the machine, as events for the engine.

use engine::Event;
use linux::clock::now_ns;
use linux::{Root, procfs};
use protocol::{AppRecord, News};
use workload::AppId;

use super::{LOAD_STEP_MILLI, Scheduler, allowed, chosen, shown};
use crate::home::LOCK_PATIENCE_NS;
use crate::live::ExternalChange;
use crate::{identity, restore};

impl Scheduler {
    /// Lets the services see what stands here.
    pub(super) fn update_services(&mut self) {
        if self.services.is_empty() {
            return;
        }
        let usable = self.engine.snapshot(now_ns() - self.began_ns).usable;
        let mut scene = self.live.scene(&usable);
        scene.settled &= self.pending.is_empty();
        self.services.iter_mut().for_each(|service| service.observe(&scene));
    }

    /// Looks at all programs and turns what changed into events.
    pub(super) fn sample_apps(&mut self, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for news in self.live.sample(now) {
            match news {
                ExternalChange::Stopped(id) => {
                    self.note(News::Stopped { app: id.clone() });
                    self.live.mark_user_stopped(&id);
                    events.push(Event::Suspend(id));
                }
                ExternalChange::Continued(id) if self.stop_is_over(&id) => events.extend(self.resumed(id)),
                ExternalChange::Continued(_) => {}
                // While its `run` lives it says so itself, and asks for the account first.
                ExternalChange::Ended(id) if !self.owners.contains_key(&id) => {
                    events.extend(self.remove_if_ended(&id))
                }
                ExternalChange::Ended(_) => {}
                // As if it had been set free: it gets new ones.
                ExternalChange::GroupsRemoved(id) => {
                    self.registry.note_free(&id);
                    self.to_readopt = true;
                }
            }
        }
        events.extend(self.handle_orphans(now));
        events.extend(self.sample_nice());
        let (mut notes, mut reported) = (Vec::new(), Vec::new());
        let snapshot = self.engine.snapshot(now - self.began_ns);
        for known in &snapshot.apps {
            let Some(app) = self.live.apps().get(&known.id) else { continue };
            let Some(observation) = &app.observation else { continue };
            let (mut planned, note) = shown::planned_app(&shown::Shown {
                known,
                declared: &app.record.demand,
                expected: app.expected.as_ref(),
                observation,
            });
            notes.extend(note);
            let allowed = self.live.allowed();
            let came = allowed::within(&app.record.original_cpus, allowed);
            let came = came.as_ref().filter(|_| !broken!(WithinForgotten));
            chosen::apply_chosen(&mut planned, &observation.nature, &app.chosen, came, allowed);
            if app.chosen != app.chosen_reported {
                notes.push(News::Chose { app: known.id.clone(), chosen: chosen::choice(&app.chosen) });
                reported.push(known.id.clone());
            }
            if app.speedup != known.speedup
                && let Some(speedup) = &app.speedup
            {
                notes.push(News::Speedup { app: known.id.clone(), speedup: speedup.clone() });
                planned.speedup = app.speedup.clone();
            }
            planned.waits_passively = observation.waits_passively;
            let by_signal = observation.foreground && app.stops_by_signal();
            planned.stoppable = observation.protected.is_none() && app.has_harness() && !by_signal;
            if planned != *known {
                events.push(Event::Observed(planned));
            }
        }
        reported.iter().for_each(|id| self.live.choice_was_reported(id));
        notes.into_iter().for_each(|note| self.note(note));
        events
    }

    /// Whether a program that was seen running after a stop of its user's still runs; then the note of that stop goes.
    /// Its `run` takes the lock for a note of a new stop, and signals first: that one is not taken for the old.
    fn stop_is_over(&mut self, id: &AppId) -> bool {
        let until_ns = now_ns() + LOCK_PATIENCE_NS;
        // The next look asks again.
        let Some(_lock) = self.home.lock_programs_until(until_ns, || self.lease.beat()) else { return false };
        let Some(app) = self.live.apps().get(id) else { return false };
        let root = Root::live();
        let stats: Vec<_> = app.members().iter().filter_map(|process| process.stat(&root).ok()).collect();
        let runs = !stats.iter().all(procfs::Stat::is_stopped);
        if runs {
            self.registry.note_stopped(id, false);
        }
        runs
    }

    /// Programs whose `run` was killed while it held them: they have started by themselves, or ended.
    fn handle_orphans(&mut self, now: u64) -> Vec<Event> {
        let orphaned = |record: &&AppRecord| !record.started && !identity::is_alive(record.guardian);
        let records = self.live.apps().values().map(|app| &app.record);
        let held: Vec<AppRecord> = records.filter(orphaned).cloned().collect();
        let mut events = Vec::new();
        for record in held {
            if identity::is_alive(record.process) {
                self.live.mark_started(&record.id, now);
            } else {
                events.extend(self.remove_if_ended(&record.id));
            }
        }
        events
    }

    pub(super) fn remove_if_ended(&mut self, id: &AppId) -> Vec<Event> {
        let lives =
            self.live.apps().get(id).is_some_and(|app| app.observation.as_ref().is_some_and(|s| !s.ended));
        let rooted = self.live.apps().get(id).is_some_and(|app| identity::is_alive(app.record.process));
        if lives || rooted {
            return Vec::new();
        }
        let Some(app) = self.live.apps().get(id) else { return Vec::new() };
        let record = app.record.clone();
        let (learned, program, neighbours) = (app.learned(), app.program(), app.neighbours());
        if let Err(why) = self.remembered.learn(&record.terms.key, learned) {
            self.note_failed(Some(id), format!("what it turned out to be is not remembered: {why}"));
        }
        if let Err(why) = self.observed.add(&program, neighbours) {
            self.note_failed(Some(id), format!("what its neighbours cost it is not kept: {why}"));
        }
        let known = self.live.forget(id);
        restore::set_free_knowing(&record, known, &Root::live(), &self.home);
        if !broken!(RecordsKept) {
            self.registry.remove(id);
        }
        restore::remove_pages(&record);
        self.live.members_changed();
        self.note(News::Ended { app: id.clone() });
        vec![Event::Left(id.clone())]
    }

    /// What the machine and its other users leave to us.
    pub(super) fn sample_machine(&mut self) -> Vec<Event> {
        if self.options.leave_unmanaged {
            self.live.sample_unmanaged();
        }
        // Whoever sets free may be as slow as the machine, and come to it when we act again.
        self.to_readopt |= self.live.is_anybody_set_free() && !broken!(NobodyReadopted);
        let mut events = self.allow(None, false);
        let snapshot = self.engine.snapshot(now_ns() - self.began_ns);
        if let Ok(load) = procfs::loadavg(&Root::live()) {
            let average_15min_milli = (load.fifteen_minutes * 1000.0) as u64;
            if average_15min_milli.abs_diff(snapshot.load_average_15min_milli) >= LOAD_STEP_MILLI {
                events.push(Event::Load { average_15min_milli });
            }
        }
        events
    }
}
