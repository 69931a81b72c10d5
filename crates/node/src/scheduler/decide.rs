//! From events to acts: the engine decides, programs follow, and the history keeps what happened.

use engine::{Event, Starts};
use linux::Root;
use linux::clock::now_ns;
use plan::Plan;
use protocol::{AppRecord, FromScheduler, HistoryEntry, News, Role};
use workload::AppId;

use super::admission::Hands;
use super::{HISTORY, Scheduler, begin};
use crate::restore;

impl Scheduler {
    /// Lets the engine decide on these events and carry out what changes.
    pub(super) fn decide(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut hands = Hands {
            live: &mut self.live,
            pending: &mut self.pending,
            registry: &self.registry,
            services: &mut self.services,
            observes: self.role == Role::Observer,
            news: Vec::new(),
        };
        // What failed is among the failures, and part of the next step's difference.
        let (step, _) = self.engine.run_step(now_ns() - self.began_ns, events, &mut hands);
        hands.news.into_iter().for_each(|news| self.note(news));
        if !step.rejected.is_empty() {
            self.note(News::Rejected { why: step.rejected.clone() });
        }
        if step.replaced {
            self.note(News::Plan { plan: Plan::clone(&step.plan), report: step.report.clone() });
        }
        self.follow_starts(step.starts);
        self.note_failures();
        self.notify_readers();
    }

    /// Tells programs that start what was decided for them.
    fn follow_starts(&mut self, starts: Starts) {
        for (app, shortage) in starts.queued {
            let why = shortage.to_string();
            if let Some(peer) = self.owners.get(&app) {
                self.server.send(*peer, &FromScheduler::Waits { id: app.clone(), why: why.clone() });
            }
            self.note(News::Waits { app, why });
        }
        for (app, passive) in starts.let_go {
            let why = passive.map(|reason| reason.to_string());
            self.live.may_start(&app, why.clone());
            if let Some(why) = why {
                self.note(News::Passive { app, why });
            }
        }
        self.let_go();
    }

    /// Programs that may start are let go, where somebody is there to do that.
    pub(super) fn let_go(&mut self) {
        let ready = self.live.apps().values().filter(|app| !app.record.started && app.is_awaiting_start());
        let ready = ready.filter(|_| !broken!(HeldForEver));
        let ready: Vec<AppId> = ready.map(|app| app.record.id.clone()).collect();
        for id in ready {
            if let Some(peer) = self.owners.get(&id).copied() {
                let start = self.start_message(id);
                self.server.send(peer, &start);
            }
        }
    }

    pub(super) fn note(&mut self, news: News) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(HistoryEntry { at_ns: now_ns() - self.began_ns, news });
    }

    pub(super) fn note_failed(&mut self, app: Option<&AppId>, why: impl ToString) {
        self.note(News::Failed { app: app.cloned(), why: why.to_string() });
    }

    /// The same of what others did to our files, also on stderr: who reads `explain` later may ask another scheduler.
    pub(super) fn note_damage(&mut self, app: Option<&AppId>, damage: &impl ToString) {
        let why = damage.to_string();
        eprintln!("coplace: {why}");
        self.note_failed(app, why);
    }

    /// Programs that nothing on record tells of, because somebody has damaged or removed that.
    pub(super) fn set_strays_free(&mut self, was_lost: bool, until_ns: u64) {
        let on_record = |process| {
            self.live.apps().values().any(|app| app.record.process == process)
                || self.pending.find(process).is_some()
        };
        let strays = self.home.processes_with_pages();
        let strays: Vec<_> = strays.into_iter().filter(|(process, _)| !on_record(*process)).collect();
        for (process, pages) in strays {
            let _lock = self.lock_programs(until_ns);
            if restore::set_stray_free(process, &pages, was_lost, &Root::live(), &self.home).is_some() {
                let pid = process.pid;
                let what =
                    format!("process {pid} was under coplace, and is on record no more: it is set free");
                self.note_damage(None, &what);
            }
        }
    }

    /// What went wrong with the programs since this was last asked; what fails again and again is said once.
    pub(super) fn note_failures(&mut self) {
        for news in self.live.take_failures().into_iter().map(News::from) {
            if !self.history.iter().any(|entry| entry.news == news) {
                self.note(news);
            }
        }
    }

    /// A program that runs already.
    pub(super) fn begin_managing(&mut self, record: AppRecord) -> Vec<Event> {
        let mut events = self.allow(Some(&record), true);
        let (app, expected) = self.describe(&record);
        let cpus = self.live.allowed().len() as u32;
        begin::news_of(&record, &expected, cpus).into_iter().for_each(|news| self.note(news));
        let id = record.id.clone();
        self.live.add(record, now_ns());
        self.live.set_expected(&id, expected.demand, expected.bytes, expected.speedup);
        self.live.members_changed();
        events.push(Event::Arrived(app));
        if self.live.apps().get(&id).is_some_and(|app| app.user_stopped) {
            events.push(Event::Suspend(id));
        }
        events
    }
}
