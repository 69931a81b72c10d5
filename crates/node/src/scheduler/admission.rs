//! Programs that are held before their first instruction until the engine admits them, and the memory that there is
//! for them.

use engine::{Actuator, Admitted, Arrival, Event, MemoryRoom};
use linux::clock::now_ns;
use linux::{Root, memory};
use plan::{App, Change, Plan, Speedup};
use protocol::{Account, AppRecord, AppState, AppStatus, News, ProcessId};
use workload::{AppId, Demand, WaitPolicy};

use super::{Scheduler, begin};
use crate::identity;
use crate::live::{Failure, Live, NotWhole};
use crate::registry::Registry;
use crate::service::Service;

/// A held program, with what is expected of it.
pub(super) struct Entry {
    pub record: AppRecord,
    pub expected: Expected,
    came_ns: u64,
}

/// What a program is taken for until it shows what it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    /// `None`: what its user says.
    pub demand: Option<Demand>,
    /// Memory at most.
    pub bytes: Option<u64>,
    pub speedup: Option<Speedup>,
}

/// The held programs that are not admitted yet, in order of arrival.
#[derive(Default)]
pub(super) struct Pending {
    entries: Vec<Entry>,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn records(&self) -> impl Iterator<Item = &AppRecord> {
        self.entries.iter().map(|entry| &entry.record)
    }

    pub fn find(&self, process: ProcessId) -> Option<&AppRecord> {
        self.records().find(|record| record.process == process)
    }

    pub fn get(&self, id: &AppId) -> Option<&AppRecord> {
        self.records().find(|record| record.id == *id)
    }

    pub fn id_of(&self, pid: u32) -> Option<AppId> {
        self.records().find(|record| record.process.pid == pid).map(|record| record.id.clone())
    }

    pub fn take(&mut self, id: &AppId) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.record.id == *id)?;
        Some(self.entries.remove(at))
    }

    fn status(&self, now_ns: u64, why: impl Fn(&AppId) -> Option<String>) -> Vec<AppStatus> {
        let status = |entry: &Entry| AppStatus {
            id: entry.record.id.clone(),
            pid: entry.record.process.pid,
            uid: entry.record.uid,
            command: entry.record.command.clone(),
            state: AppState::Waiting,
            place: Default::default(),
            threads: 0,
            team: None,
            rigid: None,
            resizing: None,
            attached: false,
            waiting: None,
            waits_for: why(&entry.record.id),
            speedup: None,
            memory: Default::default(),
            bubbles: String::new(),
            account: Account {
                id: Some(entry.record.id.clone()),
                response_ns: now_ns.saturating_sub(entry.came_ns),
                ..Default::default()
            },
        };
        self.entries.iter().map(status).collect()
    }
}

impl Scheduler {
    /// A program that is held: the engine admits it, or has it wait for memory.
    pub(super) fn enter(&mut self, record: AppRecord) -> Vec<Event> {
        let mut events = self.allow(Some(&record), true);
        let (app, expected) = self.describe(&record);
        let room = self.room([&record]);
        self.room.pressure_milli = room.pressure_milli;
        self.room.left_bytes.extend(room.left_bytes.clone());
        let arrival = Arrival {
            app,
            expected_bytes: expected.bytes,
            may_start_narrow: record.terms.may_start_narrow && record.terms.threads.is_none(),
            may_wait_passively: record.terms.waiting == WaitPolicy::Auto,
            room,
        };
        self.pending.entries.push(Entry { record, expected, came_ns: now_ns() });
        events.push(Event::Came(Box::new(arrival)));
        events
    }

    /// Why a held program waits for memory, as measured last.
    pub(super) fn shortage(&self, id: &AppId) -> Option<String> {
        self.engine.shortages(&self.room).get(id).map(ToString::to_string)
    }

    pub(super) fn pending_status(&self, now_ns: u64) -> Vec<AppStatus> {
        let shortages = self.engine.shortages(&self.room);
        self.pending.status(now_ns, |id| shortages.get(id).map(ToString::to_string))
    }

    fn room<'a>(&self, records: impl IntoIterator<Item = &'a AppRecord>) -> MemoryRoom {
        let root = Root::live();
        // What cannot be read keeps nobody waiting.
        let machine = memory::available_bytes(&root).unwrap_or(u64::MAX);
        let pressure = memory::pressure(&root).map_or(0.0, |pressure| pressure.some_percent);
        let reserved: u64 = self
            .live
            .apps()
            .values()
            .filter_map(|app| Some(app.expected_bytes?.saturating_sub(app.resident_bytes())))
            .sum();
        let left = |record: &AppRecord| {
            let limit = memory::limit_left_bytes(record.process.pid, &root).ok().flatten();
            limit.map_or(machine, |limit| limit.min(machine)).saturating_sub(reserved)
        };
        MemoryRoom {
            pressure_milli: (pressure * 10.0) as u32,
            left_bytes: records.into_iter().map(|record| (record.id.clone(), left(record))).collect(),
        }
    }

    /// What is there by now for those that wait for memory; who was left alone by its `run` starts by itself, or has
    /// ended.
    pub(super) fn admit_pending(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let orphaned = |record: &&AppRecord| !identity::is_alive(record.guardian);
        let orphans: Vec<AppId> =
            self.pending.records().filter(orphaned).map(|record| record.id.clone()).collect();
        for id in orphans {
            let Some(Entry { record, .. }) = self.pending.take(&id) else { continue };
            if identity::is_alive(record.process) {
                events.extend(self.begin_managing(record));
            } else {
                self.owners.remove(&id);
                self.registry.remove(&id);
                crate::restore::remove_pages(&record);
                events.push(Event::Left(id));
            }
        }
        if !self.pending.is_empty() {
            self.room = self.room(self.pending.records());
            if self.engine.shortages(&self.room).len() < self.engine.queue().count() {
                events.push(Event::Memory(self.room.clone()));
            }
        }
        events
    }
}

/// Carries out what the engine decides, once the services have left the CPUs.
pub(super) struct Hands<'a> {
    pub live: &'a mut Live,
    pub pending: &'a mut Pending,
    pub registry: &'a Registry,
    pub services: &'a mut [Box<dyn Service>],
    /// An observer takes programs in and does nothing to them.
    pub observes: bool,
    /// What happened, for the history.
    pub news: Vec<News>,
}

impl Actuator for Hands<'_> {
    type Error = NotWhole;

    fn admit(&mut self, admitted: &[Admitted], apps: &[App]) {
        for admitted in admitted {
            let Some(Entry { mut record, mut expected, .. }) = self.pending.take(&admitted.app) else {
                continue;
            };
            let app = || admitted.app.clone();
            if admitted.queued {
                self.news.push(News::Admitted { app: app() });
            }
            if let Some(start) = &admitted.narrow {
                record.terms.narrow = Some(start.to_string());
                record.terms.threads = Some(start.threads);
                record.demand.max_threads = Some(start.threads);
                record.demand.min_threads = record.demand.min_threads.min(start.threads);
                // A successor that cannot read it decides again, as long as the program is held.
                if let Err(error) = self.registry.write(&record) {
                    self.news.push(News::Failed { app: Some(app()), why: error.to_string() });
                }
                expected.demand =
                    apps.iter().find(|known| known.id == admitted.app).map(|app| app.demand.clone());
            }
            self.news.extend(begin::news_of(&record, &expected, self.live.allowed().len() as u32));
            self.live.add(record, now_ns());
            self.live.set_expected(&admitted.app, expected.demand, expected.bytes, expected.speedup);
            self.live.members_changed();
        }
    }

    fn carry_out(&mut self, plan: &Plan, change: &Change) -> Result<(), NotWhole> {
        self.services.iter_mut().for_each(|service| service.withdraw());
        if self.observes { Ok(()) } else { self.live.carry_out(plan, change) }
    }
}

impl From<Failure> for News {
    fn from(Failure { app, error }: Failure) -> News {
        News::Failed { app, why: error.to_string() }
    }
}
