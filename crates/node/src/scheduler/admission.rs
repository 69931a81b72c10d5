//! Memory: a program is admitted when what it is expected to need at most is there; until then it
//! waits before its first instruction, unknown to the policy, and its user is told.
//!
//! Expected is what its user says (`--mem`, `mem`), else what it needed last time. A program about
//! which nothing is known waits only while what runs is short of memory already. Who expects
//! something is admitted in order of arrival, so that a large program is not passed by small ones
//! for ever; and whoever is first when nothing else runs under coplace is admitted whatever it
//! expects, for nothing here could free memory for it. So waiting ends, given that programs end.

use engine::Event;
use linux::clock::now_ns;
use linux::{Root, memory};
use protocol::{AppRecord, AppStatus, FromScheduler, ProcessId};
use workload::{AppId, show_bytes};

use super::Scheduler;
use crate::identity;

/// Nothing new starts while somebody waits for memory for more than this share of ten seconds.
const PRESSURE_PERCENT: f64 = 10.0;

pub(super) struct Entry {
    pub record: AppRecord,
    expected_bytes: Option<u64>,
    why: String,
    came_ns: u64,
}

/// Programs that wait for memory, in order of arrival.
#[derive(Default)]
pub(super) struct Gate {
    entries: Vec<Entry>,
}

/// What there is for another program.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes that are there and that no admitted program is expected to take yet.
    left_bytes: u64,
    /// For what share of the time somebody waits for memory.
    pressure_percent: f64,
    /// Whether anything runs under coplace that might give memory back.
    occupied: bool,
}

/// Why a program must wait; `None`: it is admitted.
fn must_wait(expected_bytes: Option<u64>, room: Room) -> Option<String> {
    if !room.occupied {
        return None;
    }
    if room.pressure_percent >= PRESSURE_PERCENT {
        return Some(format!(
            "what runs is short of memory already (it waited for some during {:.0}% of the last ten seconds)",
            room.pressure_percent
        ));
    }
    let expected = expected_bytes.filter(|expected| *expected > room.left_bytes)?;
    Some(format!(
        "it is expected to need {} of memory, and {} are left",
        show_bytes(expected),
        show_bytes(room.left_bytes)
    ))
}

impl Gate {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn find(&self, process: ProcessId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.record.process == process)
    }

    pub fn get(&self, id: &AppId) -> Option<&AppRecord> {
        self.entries.iter().map(|entry| &entry.record).find(|record| record.id == *id)
    }

    pub fn take(&mut self, id: &AppId) -> Option<AppRecord> {
        let at = self.entries.iter().position(|entry| entry.record.id == *id)?;
        Some(self.entries.remove(at).record)
    }

    pub fn id_of(&self, pid: u32) -> Option<AppId> {
        self.entries.iter().find(|entry| entry.record.process.pid == pid).map(|entry| entry.record.id.clone())
    }

    pub fn why(&self, id: &AppId) -> Option<&str> {
        self.entries.iter().find(|entry| entry.record.id == *id).map(|entry| entry.why.as_str())
    }

    pub fn status(&self, now_ns: u64) -> impl Iterator<Item = AppStatus> {
        self.entries.iter().map(move |entry| AppStatus {
            id: entry.record.id.clone(),
            pid: entry.record.process.pid,
            uid: entry.record.uid,
            command: entry.record.command.clone(),
            state: "waiting".into(),
            place: Default::default(),
            threads: 0,
            team: None,
            rigid: None,
            resizing: None,
            attached: false,
            waiting: None,
            waits_for: Some(entry.why.clone()),
            speedup: None,
            memory: Default::default(),
            bubbles: String::new(),
            account: protocol::Account {
                id: Some(entry.record.id.clone()),
                response_ns: now_ns.saturating_sub(entry.came_ns),
                ..Default::default()
            },
        })
    }
}

impl Scheduler {
    /// A program that came: admitted, or told to wait.
    pub(super) fn enter(&mut self, record: AppRecord) -> Vec<Event> {
        let recalled = self.remembered.recall(&record.terms.key);
        let expected_bytes = record.terms.memory_bytes.or(recalled.peak_bytes);
        let ahead = self.ahead(expected_bytes, &self.gate.entries);
        let why = ahead.or_else(|| must_wait(expected_bytes, self.room(&record)));
        let Some(why) = why else { return self.take_in(record) };
        self.note(format!("{} waits: {why}", record.id));
        if let Some(peer) = self.owners.get(&record.id) {
            let message = FromScheduler::Waits { id: record.id.clone(), why: why.clone() };
            self.server.send(*peer, &message);
        }
        self.gate.entries.push(Entry { record, expected_bytes, why, came_ns: now_ns() });
        Vec::new()
    }

    /// Who expects something does not pass by others who do.
    fn ahead(&self, expected_bytes: Option<u64>, before: &[Entry]) -> Option<String> {
        let first = before.iter().find(|entry| entry.expected_bytes.is_some())?;
        expected_bytes.map(|_| format!("{} came before it and waits for memory", first.record.id))
    }

    fn room(&self, record: &AppRecord) -> Room {
        let root = Root::live();
        // What cannot be read keeps nobody waiting.
        let machine = memory::available_bytes(&root).unwrap_or(u64::MAX);
        let limit = memory::limit_left_bytes(record.process.pid, &root).ok().flatten();
        let reserved: u64 = self
            .live
            .apps()
            .values()
            .filter_map(|app| {
                let expected = app.expected_bytes?;
                Some(expected.saturating_sub(app.resident_bytes()))
            })
            .sum();
        let there = limit.map_or(machine, |limit| limit.min(machine));
        Room {
            left_bytes: there.saturating_sub(reserved),
            pressure_percent: memory::pressure(&root).map_or(0.0, |pressure| pressure.some_percent),
            occupied: !self.live.apps().is_empty(),
        }
    }

    /// Admits who may come in by now.
    pub(super) fn look_at_gate(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut at = 0;
        while at < self.gate.entries.len() {
            let entry = &self.gate.entries[at];
            // Who was left alone by its `run` starts by itself, or has ended.
            let orphaned = !identity::lives(entry.record.guardian);
            if orphaned && !identity::lives(entry.record.process) {
                let record = self.gate.entries.remove(at).record;
                self.owners.remove(&record.id);
                self.registry.remove(&record.id);
                crate::restore::remove_pages(&record);
                continue;
            }
            let why = self
                .ahead(entry.expected_bytes, &self.gate.entries[..at])
                .or_else(|| must_wait(entry.expected_bytes, self.room(&entry.record)));
            match why {
                Some(why) if !orphaned => {
                    self.gate.entries[at].why = why;
                    at += 1;
                }
                _ => {
                    let record = self.gate.entries.remove(at).record;
                    self.note(format!("{} is admitted", record.id));
                    events.extend(self.take_in(record));
                }
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_what_it_is_expected_to_need_and_nobody_waits_for_what_cannot_come() {
        let room = Room { left_bytes: 2 << 30, pressure_percent: 0.0, occupied: true };
        assert_eq!(must_wait(None, room), None);
        assert_eq!(must_wait(Some(2 << 30), room), None);
        let why = must_wait(Some(3 << 30), room).unwrap();
        assert_eq!(why, "it is expected to need 3.0 GiB of memory, and 2.0 GiB are left");
        assert_eq!(must_wait(Some(3 << 30), Room { occupied: false, ..room }), None);
        let short = Room { pressure_percent: 40.0, ..room };
        assert!(must_wait(None, short).unwrap().contains("during 40%"));
        assert_eq!(must_wait(None, Room { occupied: false, ..short }), None);
    }
}
