//! The programs under a scheduler, on disk: one small file each, so that a successor can adopt
//! them and a guard can set them free. Written by who holds the scheduler's lock.

mod error;
mod notes;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use linux::affinity::Own;
use linux::host::{self, FileKind};
use protocol::{AppRecord, ProcessId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

use crate::home::{Home, create_with_parents};
use crate::identity;
use crate::prior_state::PriorState;

pub use error::{NoRecord, RegistryError};
pub use unreadable::{DamagedTraces, Unreadable, set_aside_program};

/// Our files are nobody else's to read.
const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// A file that is being written has this and its writer's number in place of its extension.
const DRAFT: &str = "new-";
/// What a record ends in.
const RECORD: &str = "json";
/// What a file of traces ends in.
const TRACES: &str = "traces";
/// A file larger than this is none of ours.
const MAX_FILE: u64 = 16 << 20;

/// What was done to a program, written down before it is done, so that it can be undone by
/// somebody who was not there. What is unknown is undone the cautious way: see `restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traces {
    /// Its user (or anybody who is not the scheduler) stopped it: it is to stay stopped.
    pub user_stopped: bool,
    /// Whether the scheduler stops it by SIGSTOP. `None`: unknown, so what is stopped is continued.
    pub stops_by_signal: Option<bool>,
    /// Whether it does so by a signal to each thread, and none to the process: then it shows whom others have stopped.
    pub stops_threads: bool,
    /// Every place to which affinity confined its threads. A mask equal to one is changed back to the
    /// original CPUs, any other is the program's own. `None`: unknown, so all narrower are the scheduler's.
    pub places: Option<BTreeSet<CpuSet>>,
    /// Masks that look like the scheduler's, by `places`, and are the program's own.
    pub own: Vec<Own>,
    /// Whether its threads may be bound to a CPU each for some microseconds (`linux::spread`). One
    /// that is found with such a mask was left there by a scheduler that died meanwhile.
    #[serde(default)]
    pub spreads: bool,
    /// Cgroup directories that were made for it, outermost first.
    pub groups: Vec<PathBuf>,
    /// For each hierarchy (by its mount point) the group directory that its processes came from.
    pub origins: BTreeMap<PathBuf, PathBuf>,
    /// What a program that was running had when it was taken in: given back exactly.
    pub before: Option<PriorState>,
}

/// What `list` found.
#[derive(Debug, Default)]
pub struct Listing {
    /// In order of arrival; those that came back from their copies among them.
    pub records: Vec<AppRecord>,
    /// What stands where records stand and is none.
    pub unreadable: Vec<Unreadable>,
}

/// The files of programs in a home's directory `apps`: the record and its copy, the traces and the notes of each.
#[derive(Clone, Debug)]
pub struct Registry {
    directory: PathBuf,
}

impl Registry {
    /// The registry of this home; nothing is read or made yet.
    pub fn new(home: &Home) -> Registry {
        Registry { directory: home.apps() }
    }

    fn record_path(&self, id: &AppId) -> PathBuf {
        self.directory.join(format!("{id}.{RECORD}"))
    }

    fn traces_path(&self, id: &AppId) -> PathBuf {
        self.directory.join(format!("{id}.{TRACES}"))
    }

    /// Whether it is on record.
    pub fn has(&self, id: &AppId) -> bool {
        host::exists(&self.record_path(id)) || host::exists(&self.path_of_copy(id))
    }

    /// Puts a program on record, also where somebody has removed the directory: what is not on record nobody sets free.
    pub fn write(&self, record: &AppRecord) -> Result<(), RegistryError> {
        let path = self.record_path(&record.id);
        let is_new = !host::exists(&path);
        match write_whole(&path, record) {
            Err(error) if error.is_not_found() => {
                let failed =
                    |error: io::Error| RegistryError::Write { path: path.clone(), error: error.into() };
                create_with_parents(&self.directory, DIRECTORY_MODE).map_err(failed)?;
                write_whole(&path, record)?;
            }
            written => written?,
        }
        let copied = self.write_copy(record);
        if copied.is_err() && is_new {
            let _ = host::with(|host| host.remove_file(&path));
        }
        copied
    }

    /// Puts on record what was done to a program, or is about to be, in place of what stood there.
    pub fn write_traces(&self, id: &AppId, traces: &Traces) -> Result<(), RegistryError> {
        write_whole(&self.traces_path(id), traces)
    }

    /// What is known to have been done to it; of a damaged file nothing is known.
    pub fn traces(&self, id: &AppId) -> Traces {
        let mut traces: Traces = read_whole(&self.traces_path(id)).unwrap_or_default();
        traces.user_stopped |= self.is_noted_as_stopped(id);
        traces.spreads |= self.is_noted_as_spread(id);
        traces
    }

    /// All turns are over, and whoever stands is stopped by others.
    pub fn note_nobody_stopped(&self, id: &AppId) {
        // Without what is noted beside it, which others take back.
        let Ok(traces) = read_whole::<Traces>(&self.traces_path(id)) else { return };
        if traces.stops_by_signal == Some(true) {
            // Where that cannot be written whoever stands is continued by the next scheduler.
            let _ = self.write_traces(id, &Traces { stops_by_signal: Some(false), ..traces });
        }
    }

    /// Forgets a program. One that is not there is forgotten already.
    pub fn remove(&self, id: &AppId) {
        // The record after the traces: without it nobody would look for them; and after its copy, which would stand for
        // it. The notes last: what others note of who is on record is removed by us, and of who is not by themselves.
        let files = [self.traces_path(id), self.path_of_copy(id), self.record_path(id)];
        for path in files.into_iter().chain(self.note_paths(id)) {
            let _ = host::with(|host| host.remove_file(&path));
        }
    }

    /// Removes what processes were about to write when they died, and what is said of programs that are not on record.
    pub fn sweep(&self) {
        for entry in host::with(|host| host.names(&self.directory)).unwrap_or_default() {
            let path = self.directory.join(&entry.name);
            let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            let abandoned = end.strip_prefix(DRAFT).is_some_and(|writer| !writer_lives(writer));
            // A scheduler that was late may have written about a program that was forgotten meanwhile.
            let orphaned = (end == TRACES || notes::ENDINGS.contains(&end))
                && !host::exists(&path.with_extension(RECORD))
                && !host::exists(&path.with_extension(unreadable::COPY));
            if abandoned || orphaned {
                // Whoever else removes it at the same time has done our work.
                let _ = host::with(|host| host.remove_file(&path));
            }
        }
    }

    /// Reads all records; there are none where the directory is missing. Fails where it cannot be listed.
    pub fn list(&self) -> Result<Listing, RegistryError> {
        let read_error =
            |error: io::Error| RegistryError::Read { path: self.directory.clone(), error: error.into() };
        let mut listing = Listing::default();
        let names = match host::with(|host| host.names(&self.directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listing),
            other => other.map_err(read_error)?,
        };
        let is_record =
            |path: &PathBuf| path.extension().is_some_and(|end| end == RECORD || end == unreadable::COPY);
        let paths = names.into_iter().map(|entry| self.directory.join(entry.name)).filter(is_record);
        // Where somebody has removed the record, its copy stands there alone.
        let paths: BTreeSet<PathBuf> = paths.map(|path| path.with_extension(RECORD)).collect();
        for path in paths {
            let read = self.read_record(&path).map(|record| listing.records.push(record));
            let Err(why) = read else { continue };
            let copy_path = path.with_extension(unreadable::COPY);
            let recovered = match self.read_record(&copy_path) {
                Ok(copy) => {
                    let id = copy.id.clone();
                    listing.records.push(copy);
                    Some(id)
                }
                // It ended between the two looks.
                Err(_) if !host::exists(&path) && !host::exists(&copy_path) => continue,
                Err(_) => None,
            };
            let path = if recovered.is_none() && !host::exists(&path) { copy_path } else { path };
            listing.unreadable.push(Unreadable { path, why, recovered });
        }
        listing.records.sort_by(|a, b| (a.arrived_ns, &a.id).cmp(&(b.arrived_ns, &b.id)));
        let doubles = unreadable::take_doubles(&mut listing.records);
        listing.unreadable.extend(doubles.into_iter().map(|(id, why)| Unreadable {
            path: self.record_path(&id),
            why,
            recovered: None,
        }));
        Ok(listing)
    }

    /// The record of the program after which the file is named.
    fn read_record(&self, path: &Path) -> Result<AppRecord, NoRecord> {
        let record: AppRecord = read_whole(path)?;
        match self.record_path(&record.id) == path.with_extension(RECORD) {
            true => Ok(record),
            false => Err(NoRecord::Describes(record.id)),
        }
    }
}

/// All of it or nothing: readers see the old file or the new one, and a full disk leaves the old.
pub(crate) fn write_whole(path: &Path, value: &impl Serialize) -> Result<(), RegistryError> {
    let text = serde_json::to_vec(value).map_err(io::Error::from);
    let written = text.and_then(|mut text| {
        text.push(b'\n');
        write_text(path, &text)
    });
    written.map_err(|error| RegistryError::Write { path: path.to_owned(), error: error.into() })
}

/// Whether there is still the writer of a draft of this name; others may have its number meanwhile.
fn writer_lives(writer: &str) -> bool {
    let (pid, start) = writer.split_once('-').unwrap_or((writer, ""));
    let process = pid.parse().ok().zip(start.parse().ok());
    process.is_some_and(|(pid, start_time_ticks)| identity::is_alive(ProcessId { pid, start_time_ticks }))
}

/// The same of text.
pub(crate) fn write_text(path: &Path, text: &[u8]) -> io::Result<()> {
    host::replace(path, &path_of_draft(path), text, MODE)
}

/// The name of a file as long as this process writes it; [`Registry::sweep`] removes it once the process is dead.
fn path_of_draft(path: &Path) -> PathBuf {
    let own = identity::own();
    path.with_extension(format!("{DRAFT}{}-{}", own.pid, own.start_time_ticks))
}

pub(crate) fn read_whole<T: DeserializeOwned>(path: &Path) -> Result<T, NoRecord> {
    let info = host::with(|host| host.inspect(path))?;
    if info.kind != FileKind::File {
        return Err(NoRecord::NotPlain);
    }
    if info.uid != host::own_uid() && info.uid != 0 {
        return Err(NoRecord::Foreign { uid: info.uid });
    }
    if info.bytes > MAX_FILE {
        return Err(NoRecord::TooLong { bytes: info.bytes });
    }
    let text = host::with(|host| host.read(path))?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use protocol::ProcessId;
    use workload::Demand;

    pub(crate) fn record(name: &str, arrived_ns: u64) -> AppRecord {
        let process = ProcessId { pid: 7, start_time_ticks: 8 + arrived_ns };
        AppRecord {
            id: AppId::new(name).unwrap(),
            uid: 1000,
            process,
            guardian: process,
            command: vec!["./cg".into(), "a b".into()],
            directory: "/".into(),
            pages: "/nowhere".into(),
            original_cpus: CpuSet::first(4),
            demand: Demand::default(),
            arrived_ns,
            started: false,
            terms: Default::default(),
        }
    }

    pub(super) fn scratch() -> (tempfile::TempDir, Registry) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let registry = Registry::new(&home);
        (dir, registry)
    }

    #[test]
    fn records_come_back_in_order_of_arrival_and_go_when_removed() {
        let (_dir, registry) = scratch();
        let (late, early) = (record("a", 2), record("b.2", 1));
        registry.write(&late).unwrap();
        registry.write(&early).unwrap();
        registry.write_traces(&late.id, &Traces::default()).unwrap();
        assert_eq!(registry.list().unwrap().records, [early.clone(), late.clone()]);
        registry.remove(&late.id);
        registry.remove(&late.id);
        assert_eq!(registry.list().unwrap().records, [early]);
        assert_eq!(fs::read_dir(&registry.directory).unwrap().count(), 2, "a record and its copy");
    }

    #[test]
    fn a_record_is_written_though_its_directory_was_removed() {
        let (dir, registry) = scratch();
        fs::remove_dir_all(dir.path()).unwrap();
        let cg = record("cg", 1);
        registry.write(&cg).unwrap();
        assert_eq!(registry.list().unwrap().records, [cg]);
    }

    #[test]
    fn traces_come_back_and_damaged_ones_count_as_unknown() {
        let (_dir, registry) = scratch();
        let id = AppId::new("cg").unwrap();
        assert_eq!(registry.traces(&id), Traces::default());
        let traces = Traces {
            user_stopped: true,
            stops_by_signal: Some(true),
            stops_threads: true,
            places: Some([CpuSet::first(1)].into()),
            spreads: true,
            own: Vec::new(),
            groups: vec!["/sys/fs/cgroup/x/cg".into()],
            origins: [("/sys/fs/cgroup".into(), "/sys/fs/cgroup/user".into())].into(),
            before: Some(PriorState::default()),
        };
        registry.write_traces(&id, &traces).unwrap();
        assert_eq!(registry.traces(&id), traces);
        fs::write(registry.traces_path(&id), "{\"user_st").unwrap();
        assert_eq!(registry.traces(&id), Traces::default());
    }

    #[test]
    fn drafts_of_the_dead_and_orphaned_traces_are_swept() {
        let (_dir, registry) = scratch();
        let own = identity::own();
        let draft = |start: u64| registry.directory.join(format!("cg.new-{}-{start}", own.pid));
        let (ours, before) = (draft(own.start_time_ticks), draft(own.start_time_ticks - 1));
        fs::write(&before, "{").unwrap();
        fs::write(&ours, "{").unwrap();
        let (known, unknown) = (AppId::new("known.2").unwrap(), AppId::new("unknown").unwrap());
        registry.write(&record("known.2", 1)).unwrap();
        registry.write_traces(&known, &Traces::default()).unwrap();
        registry.write_traces(&unknown, &Traces::default()).unwrap();
        registry.sweep();
        assert!(!before.exists() && ours.exists());
        assert!(registry.traces_path(&known).exists() && !registry.traces_path(&unknown).exists());
    }

    #[test]
    fn damaged_and_foreign_files_are_named_and_left_alone() {
        let (_dir, registry) = scratch();
        registry.write(&record("good", 1)).unwrap();
        let damaged = registry.directory.join("damaged.json");
        fs::write(&damaged, "{\"id\":").unwrap();
        let renamed = registry.directory.join("renamed.json");
        fs::copy(registry.record_path(&AppId::new("good").unwrap()), &renamed).unwrap();
        let link = registry.directory.join("link.json");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let listing = registry.list().unwrap();
        assert_eq!(listing.records.len(), 1);
        let unreadable: Vec<_> = listing.unreadable.iter().map(|file| file.path.clone()).collect();
        assert_eq!(unreadable, [damaged.clone(), link.clone(), renamed]);
        assert!(damaged.exists() && fs::symlink_metadata(link).is_ok());
    }

    #[test]
    fn a_failed_write_is_one_error_with_its_path_and_no_remains() {
        let (dir, registry) = scratch();
        let first = record("cg", 1);
        registry.write(&first).unwrap();
        // Nothing can be renamed over a directory: the write fails at its last step, whoever runs it.
        let blocked = record("blocked", 2);
        fs::create_dir(registry.record_path(&blocked.id)).unwrap();
        let error = registry.write(&blocked).unwrap_err().to_string();
        assert!(error.contains("blocked.json"), "{error}");
        let left: BTreeSet<_> =
            fs::read_dir(&registry.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["blocked.json".into(), "cg.copy".into(), "cg.json".into()].into());
        // No directory can be where a file is.
        let place = dir.path().to_owned();
        drop(dir);
        fs::write(&place, "").unwrap();
        assert!(registry.write(&first).is_err());
        fs::remove_file(place).unwrap();
    }
}
