//! What a guard has seen on record, for the case that somebody removes or damages the records of programs that are held:
//! a cleaner of temporary files, or a logout.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use linux::Root;
use linux::host::{self, OpenFile};
use protocol::{AppRecord, ProcessId};
use workload::AppId;

use crate::home::{Home, LOCK_PATIENCE_NS};
use crate::registry::{self, Registry, Traces};
use crate::restore;

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The number that the file system has for the directory of records.
    directory: Option<u64>,
    /// The directory itself: while it is held open no other one gets its number.
    _held: Option<Box<dyn OpenFile>>,
    names: BTreeSet<OsString>,
    records: Vec<AppRecord>,
    /// Of directories that are gone: nobody has set these programs free and taken them off the record.
    lost: Vec<AppRecord>,
}

impl Seen {
    /// Looks at what is on record. Records are read only where a name has come or gone.
    pub fn sample(&mut self, home: &Home) {
        let now = find_directory(home);
        if now != self.directory {
            self.lost.append(&mut self.records);
            self.names.clear();
            self.directory = now;
            self._held = host::with(|host| host.open(&home.apps(), false)).ok();
        }
        let names = names_on_record(home);
        if names == self.names {
            return;
        }
        let Ok(listing) = Registry::new(home).list() else { return };
        // Once more: what was set aside before it was read is not in the list, and what is set aside after it was is not
        // in the names of before.
        let names_after = names_on_record(home);
        let lost_files = listing.unreadable.iter().filter(|file| file.recovered.is_none());
        let damaged: BTreeSet<&OsStr> =
            lost_files.filter_map(|file| file.path.file_stem()).chain(set_aside(&names_after)).collect();
        let listed: BTreeSet<&AppId> = listing.records.iter().map(|record| &record.id).collect();
        self.records.retain(|record| {
            damaged.contains(OsStr::new(record.id.as_str())) && !listed.contains(&record.id)
        });
        self.records.extend(listing.records);
        self.names = names;
    }

    /// Looks, and sets free those whose records the scheduler has set aside: it found nothing on record of what was
    /// done to them.
    pub fn watch(&mut self, home: &Home, root: &Root) {
        self.sample(home);
        if set_aside(&self.names).next().is_none() {
            return;
        }
        let aside: BTreeSet<OsString> = set_aside(&self.names).map(OsStr::to_owned).collect();
        let is_aside = |record: &AppRecord| aside.contains(OsStr::new(record.id.as_str()));
        let affected = self.records.iter().filter(|record| is_aside(record)).cloned().collect();
        set_unrecorded_free(affected, home, root);
        Registry::new(home).remove_set_aside();
    }

    /// Sets free those whose records were removed or damaged while a scheduler that is lost now held them. Programs that
    /// are on record again have a scheduler or somebody else who sees to them.
    pub fn set_lost_free(&mut self, home: &Home, root: &Root) {
        self.sample(home);
        let known = self.lost.drain(..).chain(self.records.iter().cloned()).collect();
        set_unrecorded_free(known, home, root);
        Registry::new(home).remove_set_aside();
    }
}

/// Sets those free that are not on record.
fn set_unrecorded_free(programs: Vec<AppRecord>, home: &Home, root: &Root) {
    let listed = Registry::new(home).list().unwrap_or_default().records;
    let on_record: BTreeSet<ProcessId> = listed.into_iter().map(|record| record.process).collect();
    let until_ns = linux::clock::now_ns() + LOCK_PATIENCE_NS;
    for record in programs.into_iter().filter(|record| !on_record.contains(&record.process)) {
        let _lock = home.lock_programs_until(until_ns, || ());
        // What was done to it is unknown: all that looks like ours is undone.
        restore::set_free_by(&record, &Traces::default(), &home.group_name(), root);
    }
}

/// The programs, by name, whose records were set aside.
fn set_aside(names: &BTreeSet<OsString>) -> impl Iterator<Item = &OsStr> {
    names.iter().filter_map(|name| registry::set_aside_program(name))
}

fn names_on_record(home: &Home) -> BTreeSet<OsString> {
    let names = host::with(|host| host.names(&home.apps())).unwrap_or_default();
    names.into_iter().map(|entry| entry.name).collect()
}

/// `None`: there is none.
fn find_directory(home: &Home) -> Option<u64> {
    let apps = home.apps();
    let names = host::with(|host| host.names(home.path())).ok()?;
    names.into_iter().find(|entry| Some(entry.name.as_os_str()) == apps.file_name()).map(|entry| entry.inode)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::registry::tests::record;

    fn scratch_home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        (dir, home)
    }

    fn lost(seen: &Seen) -> Vec<&str> {
        seen.lost.iter().map(|record| record.id.as_str()).collect()
    }

    #[test]
    fn records_of_a_removed_directory_are_remembered() {
        let (dir, home) = scratch_home();
        let registry = Registry::new(&home);
        let mut seen = Seen::default();
        seen.sample(&home);
        registry.write(&record("a", 1)).unwrap();
        registry.write(&record("b", 2)).unwrap();
        seen.sample(&home);
        assert!(lost(&seen).is_empty());
        fs::remove_dir_all(home.apps()).unwrap();
        // Before the next look somebody has put another program on record.
        registry.write(&record("c", 3)).unwrap();
        seen.sample(&home);
        assert_eq!(lost(&seen), ["a", "b"]);
        assert_eq!(seen.records.len(), 1);
        drop(dir);
        seen.sample(&home);
        assert_eq!(lost(&seen), ["a", "b", "c"]);
        seen.sample(&home);
        assert_eq!(lost(&seen), ["a", "b", "c"]);
    }

    #[test]
    fn a_record_that_is_taken_away_alone_is_forgotten() {
        let (_dir, home) = scratch_home();
        let registry = Registry::new(&home);
        let mut seen = Seen::default();
        for (name, arrived_ns) in [("a", 1), ("b", 2)] {
            registry.write(&record(name, arrived_ns)).unwrap();
        }
        seen.sample(&home);
        registry.remove(&record("a", 1).id);
        seen.sample(&home);
        assert!(lost(&seen).is_empty());
        assert_eq!(seen.records, [record("b", 2)]);
    }

    #[test]
    fn a_damaged_record_stays_as_it_was_seen() {
        let (_dir, home) = scratch_home();
        let registry = Registry::new(&home);
        let mut seen = Seen::default();
        registry.write(&record("a", 1)).unwrap();
        seen.sample(&home);
        for file in ["a.json", "a.copy"] {
            fs::write(home.apps().join(file), "nonsense").unwrap();
        }
        registry.write(&record("b", 2)).unwrap();
        seen.sample(&home);
        assert_eq!(seen.records, [record("a", 1), record("b", 2)]);
        registry.list().unwrap().unreadable.iter().for_each(|file| registry.set_aside(file));
        registry.sweep();
        seen.sample(&home);
        assert_eq!(seen.records, [record("a", 1), record("b", 2)]);
        seen.watch(&home, &Root::live());
        seen.sample(&home);
        assert_eq!(seen.records, [record("b", 2)]);
        assert_eq!(fs::read_dir(home.apps()).unwrap().count(), 2, "b's record and its copy");
    }

    #[test]
    fn a_record_that_came_back_from_its_copy_counts_once() {
        let (_dir, home) = scratch_home();
        let registry = Registry::new(&home);
        let mut seen = Seen::default();
        registry.write(&record("a", 1)).unwrap();
        seen.sample(&home);
        fs::write(home.apps().join("a.json"), "nonsense").unwrap();
        registry.write(&record("b", 2)).unwrap();
        seen.sample(&home);
        assert_eq!(seen.records, [record("a", 1), record("b", 2)]);
    }
}
