//! Where an ordinary user's own home is: the same for all that he starts, whatever their environment says.
//!
//! A cron job, `su`, a service and a login of one user differ in `XDG_RUNTIME_DIR`, so that it is not asked.
//! There are two places. The first, made by a login, may come and go while programs run; so whoever comes goes
//! where somebody lives already, and a leader in the second place gives way to one in the first.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use protocol::ProcessId;
use serde::Deserialize;

use super::{Home, Kind};
use crate::identity;
use crate::lease::Lease;

/// Directories in which users have what is theirs.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Holds a directory for each user who is logged in.
    logins: PathBuf,
    /// Is open to everybody.
    temporary: PathBuf,
}

impl Places {
    pub fn default_places() -> Places {
        Places { logins: "/run/user".into(), temporary: "/tmp".into() }
    }

    /// Where this user's home may be, best first. One whose directory is not his is none.
    fn of(&self, uid: u32) -> Vec<PathBuf> {
        let login = self.logins.join(uid.to_string());
        let is_his = fs::symlink_metadata(&login).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid);
        let temporary = self.temporary.join(format!("coplace-{uid}"));
        is_his.then(|| login.join("coplace")).into_iter().chain([temporary]).collect()
    }

    /// The one to go to: the first in which somebody lives, else the first.
    pub fn choose(&self, uid: u32) -> PathBuf {
        let places = self.of(uid);
        let inhabited = places.iter().find(|path| is_inhabited(path, uid));
        inhabited.or(places.first()).expect("there is always the temporary one").clone()
    }

    /// The one that goes before this one, if it does: somebody schedules in a better one, or this one is gone.
    pub fn preferred_to(&self, own: &Path, uid: u32) -> Option<PathBuf> {
        if !own.is_dir() {
            return Some(self.choose(uid)).filter(|path| path != own);
        }
        let better =
            |path: &PathBuf| path != own && find_existing(path, uid).is_some_and(|home| schedules(&home));
        self.of(uid).into_iter().take_while(|path| path != own).find(better)
    }
}

/// Without making anything; what is not the user's own is nobody's.
fn find_existing(path: &Path, uid: u32) -> Option<Home> {
    let meta = fs::symlink_metadata(path).ok()?;
    (meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0)
        .then(|| Home { path: path.to_owned(), kind: Kind::Own })
}

fn schedules(home: &Home) -> bool {
    UnixStream::connect(home.socket()).is_ok()
        || Lease::read(home).is_some_and(|lease| identity::is_alive(lease.holder))
}

/// Somebody schedules there, or did a moment ago and has left programs that live.
fn is_inhabited(path: &Path, uid: u32) -> bool {
    find_existing(path, uid).is_some_and(|home| schedules(&home) || has_programs(&home))
}

/// As much of a record as tells whose it is.
#[derive(Deserialize)]
struct Record {
    process: ProcessId,
}

fn has_programs(home: &Home) -> bool {
    let records = fs::read_dir(home.apps()).into_iter().flatten().flatten();
    records.filter(|entry| entry.path().extension().is_some_and(|end| end == "json")).any(|entry| {
        let record =
            fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        record.is_some_and(|record| identity::is_alive(record.process))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Role;
    use std::os::unix::fs::symlink;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn places() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { logins: dir.path().join("user"), temporary: dir.path().join("tmp") };
        fs::create_dir_all(&places.temporary).unwrap();
        fs::create_dir_all(&places.logins).unwrap();
        (dir, places)
    }

    fn log_in(places: &Places) -> PathBuf {
        let login = places.logins.join(uid().to_string());
        fs::create_dir(&login).unwrap();
        login.join("coplace")
    }

    fn temporary(places: &Places) -> PathBuf {
        places.temporary.join(format!("coplace-{}", uid()))
    }

    fn home(path: &Path) -> Home {
        Home::create(path.to_owned(), Kind::Own).unwrap()
    }

    #[test]
    fn a_login_s_directory_goes_before_the_temporary_one() {
        let (_dir, places) = places();
        assert_eq!(places.choose(uid()), temporary(&places));
        let login = log_in(&places);
        assert_eq!(places.choose(uid()), login);
        assert!(!login.exists(), "choosing makes nothing");
    }

    #[test]
    fn programs_in_the_temporary_home_are_found_after_a_login() {
        let (_dir, places) = places();
        let old = home(&temporary(&places));
        let lease = Lease::acquire(&old).unwrap();
        let login = log_in(&places);
        assert_eq!(places.choose(uid()), temporary(&places), "somebody schedules there");
        drop(lease);
        assert_eq!(places.choose(uid()), login, "nobody does any more");
        // Between two leaders only the programs tell.
        let record = |process| serde_json::json!({ "process": process, "id": "cg" }).to_string();
        fs::write(old.apps().join("cg.json"), record(identity::own())).unwrap();
        assert_eq!(places.choose(uid()), temporary(&places));
        let dead = ProcessId { start_time_ticks: 1, ..identity::own() };
        fs::write(old.apps().join("cg.json"), record(dead)).unwrap();
        assert_eq!(places.choose(uid()), login);
    }

    #[test]
    fn of_two_schedulers_the_one_in_the_login_s_directory_stays() {
        let (_dir, places) = places();
        let old = home(&temporary(&places));
        let _old = Lease::acquire(&old).unwrap();
        let login = log_in(&places);
        assert_eq!(places.preferred_to(old.path(), uid()), None);
        let new = home(&login);
        assert_eq!(places.preferred_to(old.path(), uid()), None, "nobody schedules there yet");
        let _lock = new.lock_scheduler(Role::Leader).unwrap();
        let _new = Lease::acquire(&new).unwrap();
        assert_eq!(places.preferred_to(old.path(), uid()), Some(login.clone()));
        assert_eq!(places.preferred_to(&login, uid()), None);
        assert_eq!(places.choose(uid()), login);
    }

    #[test]
    fn a_home_that_went_with_the_login_is_left() {
        let (_dir, places) = places();
        let login = log_in(&places);
        home(&login);
        assert_eq!(places.preferred_to(&login, uid()), None);
        fs::remove_dir_all(login.parent().unwrap()).unwrap();
        assert_eq!(places.preferred_to(&login, uid()), Some(temporary(&places)));
    }

    #[test]
    fn a_foreign_directory_or_a_link_is_no_login() {
        let (dir, places) = places();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        symlink(&target, places.logins.join(uid().to_string())).unwrap();
        assert_eq!(places.of(uid()), [temporary(&places)]);
        fs::create_dir(places.logins.join("4242")).unwrap();
        assert_eq!(places.of(4242).len(), 1 + usize::from(uid() == 4242));
    }
}
