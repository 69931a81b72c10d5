//! Notes beside a program's record, by whoever does not hold the scheduler's lock: a guard, or the program's own `run`.
//! Each is an empty file, which says something by being there.

use std::path::{Path, PathBuf};

use linux::host;
use workload::AppId;

use super::{MODE, Registry};

const FREE: &str = "free";
const STOPPED: &str = "stopped";
const SPREAD: &str = "spread";
/// What the files of notes end in.
pub(super) const ENDINGS: [&str; 3] = [FREE, STOPPED, SPREAD];

impl Registry {
    fn note_path(&self, id: &AppId, ending: &str) -> PathBuf {
        self.directory.join(format!("{id}.{ending}"))
    }

    pub(super) fn note_paths(&self, id: &AppId) -> [PathBuf; 3] {
        ENDINGS.map(|ending| self.note_path(id, ending))
    }

    pub(super) fn is_noted_as_spread(&self, id: &AppId) -> bool {
        host::exists(&self.note_path(id, SPREAD))
    }

    /// For whoever sets it free while a scheduler may come back and write its own traces: its threads may be bound to a
    /// CPU each for a moment. Whether that is on record now.
    pub fn note_spread(&self, id: &AppId) -> bool {
        self.write_note(id, &self.note_path(id, SPREAD))
    }

    /// Of who is not on record nothing is noted, nor left where that ended meanwhile.
    fn write_note(&self, id: &AppId, path: &Path) -> bool {
        if !self.has(id) || host::with(|host| host.create(path, b"", MODE)).is_err() {
            return false;
        }
        let known = self.has(id);
        if !known {
            let _ = host::with(|host| host.remove_file(path));
        }
        known
    }

    /// The moment is over.
    pub fn spread_is_over(&self, id: &AppId) {
        // Where it stays, a thread that binds itself from now on may be widened once.
        let _ = host::with(|host| host.remove_file(&self.note_path(id, SPREAD)));
    }

    /// Whether its `run` has noted that its user has stopped it.
    pub fn is_noted_as_stopped(&self, id: &AppId) -> bool {
        host::exists(&self.note_path(id, STOPPED))
    }

    /// For whoever sets it free or takes it in: its user has stopped it, as its `run` knows, or not any more. A
    /// scheduler is told as well, but there may be none at the moment.
    pub fn note_stopped(&self, id: &AppId, stopped: bool) {
        if stopped {
            // Who is not on record is continued by nobody.
            self.write_note(id, &self.note_path(id, STOPPED));
        } else {
            let _ = host::with(|host| host.remove_file(&self.note_path(id, STOPPED)));
        }
    }

    /// For a scheduler that is late and comes back: somebody has undone what was done to a program.
    pub fn note_free(&self, id: &AppId) {
        // Who is not on record is nobody's to take back. Where this cannot be written nothing else can, and the
        // scheduler says so.
        self.write_note(id, &self.note_path(id, FREE));
    }

    /// Whether that was noted, and nobody has counted it yet.
    pub fn is_noted_as_free(&self, id: &AppId) -> bool {
        host::exists(&self.note_path(id, FREE))
    }

    /// Whether that was noted; it counts once.
    pub fn consume_free_note(&self, id: &AppId) -> bool {
        host::with(|host| host.remove_file(&self.note_path(id, FREE))).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Traces;
    use super::super::tests::{record, scratch};
    use super::*;

    #[test]
    fn a_noted_stop_stands_in_the_traces_until_withdrawn() {
        let (_dir, registry) = scratch();
        let id = AppId::new("cg").unwrap();
        registry.note_stopped(&id, true);
        assert!(!registry.traces(&id).user_stopped, "it is not on record");
        registry.write(&record("cg", 1)).unwrap();
        registry.note_stopped(&id, true);
        assert!(registry.traces(&id).user_stopped);
        registry.write_traces(&id, &Traces::default()).unwrap();
        assert!(registry.traces(&id).user_stopped, "whatever a scheduler writes");
        registry.note_stopped(&id, false);
        assert!(!registry.traces(&id).user_stopped);
        registry.note_stopped(&id, true);
        registry.remove(&id);
        assert_eq!(fs::read_dir(&registry.directory).unwrap().count(), 0);
    }
}
