//! Records that somebody has damaged. Each has a copy beside it, which counts then; where that is damaged as well, what
//! is left of the program's files is set aside, and goes once the guard has set free whom it was about.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use linux::host;
use protocol::AppRecord;
use workload::AppId;

use super::{NoRecord, Registry, RegistryError, Traces, read_whole, write_whole};

/// What a record's copy ends in.
pub(super) const COPY: &str = "copy";
/// What a record that nobody can read ends in once it is set aside.
const SET_ASIDE: &str = "unreadable";

/// A file that stands where a record stands and is none.
#[derive(Debug, thiserror::Error)]
#[error("{} is no record of a program ({why}): {}", path.display(), self.describe_consequence())]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: NoRecord,
    /// The program that came back from the copy.
    pub recovered: Option<AppId>,
}

/// Traces that tell nothing.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read ({why}): what was done to its program is undone as far as it shows", path.display())]
pub struct DamagedTraces {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: NoRecord,
}

impl Unreadable {
    /// Whether we may have written it, and no copy stands for it. Otherwise it stays where it is: a link, a directory or
    /// another user's file, and what could not be read this time.
    fn is_put_away(&self) -> bool {
        let was_ours = match &self.why {
            NoRecord::Damaged(_)
            | NoRecord::Describes(_)
            | NoRecord::ProcessOf(_)
            | NoRecord::TooLong { .. } => true,
            // Somebody has removed the record, and the copy is none.
            NoRecord::Io(error) => error.kind() == io::ErrorKind::NotFound,
            NoRecord::NotPlain | NoRecord::Foreign { .. } => false,
        };
        self.recovered.is_none() && was_ours
    }

    fn describe_consequence(&self) -> String {
        match &self.recovered {
            Some(id) => format!("{id} is known by its copy"),
            None if self.is_put_away() => {
                "it is put away, and a program that it was about runs as without coplace".into()
            }
            None => "it is left alone".into(),
        }
    }
}

impl Registry {
    pub(super) fn path_of_copy(&self, id: &AppId) -> PathBuf {
        self.directory.join(format!("{id}.{COPY}"))
    }

    pub(super) fn write_copy(&self, record: &AppRecord) -> Result<(), RegistryError> {
        write_whole(&self.path_of_copy(&record.id), record)
    }

    /// Whether a successor finds its record, or the copy.
    pub fn is_known(&self, id: &AppId) -> bool {
        [self.record_path(id), self.path_of_copy(id)].iter().any(|path| self.read_record(path).is_ok())
    }

    /// Why nothing is known of what was done to it, where its traces cannot be read.
    pub fn traces_damage(&self, id: &AppId) -> Option<DamagedTraces> {
        let path = self.traces_path(id);
        match read_whole::<Traces>(&path) {
            Err(NoRecord::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(DamagedTraces { path, why: read.err()? }),
        }
    }

    /// For who takes a program in: a record that was damaged, or has no copy (as of an earlier version, or of a writer
    /// that died in the middle), is written again.
    pub fn write_missing(&self, record: &AppRecord, unreadable: &[Unreadable]) -> Result<(), RegistryError> {
        let is_damaged = unreadable.iter().any(|file| file.recovered.as_ref() == Some(&record.id));
        match is_damaged || !host::exists(&self.path_of_copy(&record.id)) {
            true => self.write(record),
            false => Ok(()),
        }
    }

    /// For who holds the scheduler's lock: puts a file away, unless a copy stands for it or somebody else wrote it.
    pub fn set_aside(&self, file: &Unreadable) {
        if file.is_put_away() {
            // Where that fails it is found, and named, by the next scheduler again.
            let _ = host::with(|host| host.rename(&file.path, &file.path.with_extension(SET_ASIDE)));
            let _ = host::with(|host| host.remove_file(&file.path.with_extension(COPY)));
        }
    }

    /// For the guard: removes what was set aside.
    pub fn remove_set_aside(&self) {
        for entry in host::with(|host| host.names(&self.directory)).unwrap_or_default() {
            if set_aside_program(&entry.name).is_some() {
                // Whoever else removes it at the same time has done our work.
                let _ = host::with(|host| host.remove_file(&self.directory.join(&entry.name)));
            }
        }
    }
}

/// Takes out those whose process another record before them has: one process is one program.
pub(super) fn take_doubles(records: &mut Vec<AppRecord>) -> Vec<(AppId, NoRecord)> {
    let mut known = BTreeMap::new();
    let mut doubles = Vec::new();
    records.retain(|record| {
        let process = (record.process.pid, record.process.start_time_ticks);
        let first: &mut AppId = known.entry(process).or_insert_with(|| record.id.clone());
        let is_first = *first == record.id;
        if !is_first {
            doubles.push((record.id.clone(), NoRecord::ProcessOf(first.clone())));
        }
        is_first
    });
    doubles
}

/// The name of the program whose record the file of this name was, if that was set aside.
pub fn set_aside_program(name: &OsStr) -> Option<&OsStr> {
    let path = Path::new(name);
    path.file_stem().filter(|_| path.extension() == Some(OsStr::new(SET_ASIDE)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{record, scratch};
    use super::*;

    fn names(registry: &Registry) -> Vec<String> {
        let entries = fs::read_dir(&registry.directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_damaged_record_comes_back_from_its_copy() {
        let (_dir, registry) = scratch();
        let cg = record("cg.2", 1);
        registry.write(&cg).unwrap();
        fs::write(registry.record_path(&cg.id), "nonsense {").unwrap();
        let listing = registry.list().unwrap();
        assert_eq!(listing.records, std::slice::from_ref(&cg));
        assert_eq!(listing.unreadable[0].recovered, Some(cg.id.clone()));
        assert!(registry.is_known(&cg.id));
        registry.set_aside(&listing.unreadable[0]);
        assert!(registry.has(&cg.id));
        registry.write_missing(&cg, &listing.unreadable).unwrap();
        let listing = registry.list().unwrap();
        assert_eq!((listing.records, listing.unreadable.len()), (vec![cg], 0));
    }

    #[test]
    fn the_copy_of_another_program_brings_nothing_back() {
        let (_dir, registry) = scratch();
        let (a, b) = (record("a", 1), record("b", 2));
        registry.write(&a).unwrap();
        registry.write(&b).unwrap();
        fs::write(registry.record_path(&a.id), "").unwrap();
        fs::copy(registry.path_of_copy(&b.id), registry.path_of_copy(&a.id)).unwrap();
        let listing = registry.list().unwrap();
        assert_eq!((listing.records, listing.unreadable[0].recovered.clone()), (vec![b], None));
    }

    #[test]
    fn a_copy_stands_for_a_record_that_was_removed_or_renamed() {
        let (_dir, registry) = scratch();
        let (a, b) = (record("a", 1), record("b", 2));
        registry.write(&a).unwrap();
        registry.write(&b).unwrap();
        registry.write_traces(&a.id, &Traces::default()).unwrap();
        fs::remove_file(registry.record_path(&a.id)).unwrap();
        fs::rename(registry.record_path(&b.id), registry.directory.join("zz.json")).unwrap();
        registry.sweep();
        assert!(registry.traces_path(&a.id).exists());
        let listing = registry.list().unwrap();
        assert_eq!(listing.records, [a.clone(), b.clone()]);
        listing.unreadable.iter().for_each(|file| registry.set_aside(file));
        registry.write_missing(&a, &listing.unreadable).unwrap();
        registry.write_missing(&b, &listing.unreadable).unwrap();
        registry.remove_set_aside();
        assert_eq!(names(&registry), ["a.copy", "a.json", "a.traces", "b.copy", "b.json"]);
    }

    #[test]
    fn a_second_record_of_one_process_is_put_away() {
        let (_dir, registry) = scratch();
        let a = record("a", 1);
        registry.write(&a).unwrap();
        registry.write(&AppRecord { id: AppId::new("ghost").unwrap(), ..a.clone() }).unwrap();
        let listing = registry.list().unwrap();
        assert_eq!(listing.records, std::slice::from_ref(&a));
        listing.unreadable.iter().for_each(|file| registry.set_aside(file));
        registry.remove_set_aside();
        assert_eq!(names(&registry), ["a.copy", "a.json"]);
        assert!(registry.list().unwrap().unreadable.is_empty());
    }

    #[test]
    fn damaged_traces_are_named() {
        let (_dir, registry) = scratch();
        let cg = record("cg", 1);
        registry.write(&cg).unwrap();
        assert!(registry.traces_damage(&cg.id).is_none());
        registry.write_traces(&cg.id, &Traces::default()).unwrap();
        assert!(registry.traces_damage(&cg.id).is_none());
        fs::write(registry.traces_path(&cg.id), "{\"user_st").unwrap();
        let named = registry.traces_damage(&cg.id).unwrap().to_string();
        assert!(named.contains("cg.traces cannot be read (EOF while parsing"), "{named}");
    }

    #[test]
    fn a_record_without_a_copy_gets_one_when_taken_in() {
        let (_dir, registry) = scratch();
        let cg = record("cg", 1);
        registry.write(&cg).unwrap();
        fs::remove_file(registry.path_of_copy(&cg.id)).unwrap();
        registry.write_missing(&cg, &[]).unwrap();
        assert_eq!(names(&registry), ["cg.copy", "cg.json"]);
    }

    #[test]
    fn what_no_copy_stands_for_is_set_aside_and_removed() {
        let (_dir, registry) = scratch();
        let (a, good) = (record("a", 1), record("good", 2));
        registry.write(&a).unwrap();
        registry.write(&good).unwrap();
        registry.write_traces(&a.id, &Traces::default()).unwrap();
        fs::write(registry.record_path(&a.id), "{\"id\":").unwrap();
        fs::write(registry.path_of_copy(&a.id), "").unwrap();
        fs::copy(registry.record_path(&good.id), registry.directory.join("renamed.json")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", registry.directory.join("link.json")).unwrap();
        fs::create_dir(registry.directory.join("directory.json")).unwrap();
        assert!(registry.has(&a.id) && !registry.is_known(&a.id));
        let listing = registry.list().unwrap();
        listing.unreadable.iter().for_each(|file| registry.set_aside(file));
        registry.sweep();
        let kept = ["directory.json", "good.copy", "good.json", "link.json"];
        assert_eq!(names(&registry), [&["a.unreadable"], &kept[..], &["renamed.unreadable"]].concat());
        registry.remove_set_aside();
        assert_eq!(names(&registry), kept);
    }

    #[test]
    fn an_unreadable_record_names_its_consequence() {
        let file = |why, recovered| Unreadable { path: "/h/apps/a.json".into(), why, recovered }.to_string();
        let id = AppId::new("a").unwrap();
        assert_eq!(
            file(NoRecord::NotPlain, None),
            "/h/apps/a.json is no record of a program (it is not a plain file): it is left alone"
        );
        assert!(file(NoRecord::TooLong { bytes: 9 }, None).contains("(it has 9 bytes): it is put away"));
        assert!(file(NoRecord::Describes(id.clone()), Some(id)).ends_with("a is known by its copy"));
    }

    #[test]
    fn a_failed_copy_leaves_no_new_record() {
        let (_dir, registry) = scratch();
        let (known, fresh) = (record("known", 1), record("fresh", 2));
        registry.write(&known).unwrap();
        for id in [&known.id, &fresh.id] {
            let _ = fs::remove_file(registry.path_of_copy(id));
            fs::create_dir(registry.path_of_copy(id)).unwrap();
        }
        assert!(registry.write(&known).is_err() && registry.write(&fresh).is_err());
        assert!(registry.record_path(&known.id).exists() && !registry.record_path(&fresh.id).exists());
    }

    #[test]
    fn only_what_was_set_aside_names_a_program() {
        assert_eq!(set_aside_program(OsStr::new("cg.2.unreadable")), Some(OsStr::new("cg.2")));
        assert_eq!(set_aside_program(OsStr::new("cg.json")), None);
    }
}
