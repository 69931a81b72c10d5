//! The directory in which one scheduler and its programs meet.
//!
//! One scheduler per home: a daemon, or the `coplace run` that leads. Who schedules is who holds
//! the lock file (flock, so that death releases it); everything else in the directory is written
//! by who holds the lock only, except the pages, which belong to the programs.

mod own;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use protocol::{ProcessId, Role};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::identity;

/// Where root's scheduler lives, which serves all users.
const SYSTEM: &str = "/run/coplace";
/// Names this directory instead of the usual ones.
pub const RUNTIME_DIR_VARIABLE: &str = "COPLACE_RUNTIME_DIR";
/// `sockaddr_un` holds 108 bytes with the final zero.
const MAX_SOCKET_PATH: usize = 107;

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error(
        "cannot use {path} for the scheduler's files: {error}; set {RUNTIME_DIR_VARIABLE} to a directory of yours"
    )]
    Io { path: PathBuf, error: io::Error },
    #[error(
        "{path} is {what}; the scheduler's files need a directory that only its owner can write: remove it, or set {RUNTIME_DIR_VARIABLE} to another one"
    )]
    Unsafe { path: PathBuf, what: String },
    #[error(
        "the path {path} is too long for a Unix socket (at most {MAX_SOCKET_PATH} bytes with '/socket'); set {RUNTIME_DIR_VARIABLE} to a shorter one"
    )]
    TooLong { path: PathBuf },
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody schedules here already. `None`s: it has only just taken the lock.
    #[error("{} schedules in {home} already{}", role_words(.role), pid_words(.pid))]
    Held { home: PathBuf, pid: Option<u32>, role: Option<Role> },
    #[error("cannot lock {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

fn role_words(role: &Option<Role>) -> &'static str {
    match role {
        Some(Role::Daemon) => "a coplace daemon",
        Some(Role::Observer) => "a coplace daemon that observes",
        Some(Role::Leader) => "a coplace run",
        None => "another coplace",
    }
}

fn pid_words(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// Whose home it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Named by the environment; nobody else's is looked at.
    Given,
    /// Root's, used by root.
    System,
    /// Root's, used by somebody else: only the socket is ours to use.
    Guest,
    /// An ordinary user's own.
    Own,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
    kind: Kind,
}

impl Home {
    /// The home that this process belongs to, made if need be: `$COPLACE_RUNTIME_DIR`; else
    /// `/run/coplace` for root, and for anybody else while a daemon of root's answers there; else
    /// `/run/user/UID/coplace`, else `/tmp/coplace-UID`, and of these the one in which somebody lives.
    pub fn find() -> Result<Home, HomeError> {
        if let Some(path) = std::env::var_os(RUNTIME_DIR_VARIABLE).filter(|path| !path.is_empty()) {
            return Home::at(Path::new(&path));
        }
        if rustix::process::geteuid().is_root() {
            return Home::make(PathBuf::from(SYSTEM), Kind::System);
        }
        match Home::system_daemon() {
            Some(home) => Ok(home),
            None => Home::own(),
        }
    }

    /// A home at this very path (made if need be).
    pub fn at(path: &Path) -> Result<Home, HomeError> {
        let absolute =
            std::path::absolute(path).map_err(|error| HomeError::Io { path: path.to_owned(), error })?;
        Home::make(absolute, Kind::Given)
    }

    /// A home that is there already; nothing is made. `None` where it is not.
    pub fn existing(path: &Path) -> Option<Home> {
        let path = std::path::absolute(path).ok()?;
        let is_ours = |meta: fs::Metadata| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
        fs::symlink_metadata(&path).is_ok_and(is_ours).then_some(Home { path, kind: Kind::Given })
    }

    /// An ordinary user's own home, whoever answers elsewhere.
    fn own() -> Result<Home, HomeError> {
        let path = own::Places::usual().choose(rustix::process::geteuid().as_raw());
        Home::make(path, Kind::Own)
    }

    /// Root's home, while somebody answers there.
    fn system_daemon() -> Option<Home> {
        let home = Home { path: PathBuf::from(SYSTEM), kind: Kind::Guest };
        let root_owns = fs::symlink_metadata(&home.path).is_ok_and(|meta| meta.is_dir() && meta.uid() == 0);
        (root_owns && UnixStream::connect(home.socket()).is_ok()).then_some(home)
    }

    /// Root's daemon that has appeared since an ordinary user's home was chosen.
    pub fn superior(&self) -> Option<Home> {
        if self.kind == Kind::Own { Home::system_daemon() } else { None }
    }

    /// Another home of the same ordinary user, which goes before this one: somebody schedules there, or this
    /// one has gone with its login.
    pub fn better(&self) -> Option<Home> {
        if self.kind != Kind::Own {
            return None;
        }
        let path = own::Places::usual().before(&self.path, rustix::process::geteuid().as_raw())?;
        Home::make(path, Kind::Own).ok()
    }

    /// Where a guest goes when root's daemon has gone.
    pub fn fallback(&self) -> Option<Home> {
        if self.kind == Kind::Guest { Home::own().ok() } else { None }
    }

    fn make(path: PathBuf, kind: Kind) -> Result<Home, HomeError> {
        if path.join("socket").as_os_str().len() > MAX_SOCKET_PATH {
            return Err(HomeError::TooLong { path });
        }
        let home = Home { path, kind };
        // All may come in to the system's home, to the socket; nobody into anybody else's.
        let mode = if kind == Kind::System { 0o755 } else { 0o700 };
        make_directory(&home.path, mode)?;
        if kind == Kind::System {
            // Whatever the umask took away.
            let open = fs::Permissions::from_mode(mode);
            fs::set_permissions(&home.path, open)
                .map_err(|error| HomeError::Io { path: home.path.clone(), error })?;
        }
        make_directory(&home.apps(), 0o700)?;
        make_directory(&home.all_pages(), 0o700)?;
        Ok(home)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Held by a daemon while it takes over, so that no run becomes the leader before it.
    fn claim_path(&self) -> PathBuf {
        self.path.join("claim")
    }

    pub fn lease(&self) -> PathBuf {
        self.path.join("lease")
    }

    /// The registry's directory.
    pub fn apps(&self) -> PathBuf {
        self.path.join("apps")
    }

    /// What programs turned out to be.
    pub fn remembered(&self) -> PathBuf {
        self.path.join("remembered.json")
    }

    pub fn guard_lock(&self) -> PathBuf {
        self.path.join("guard.lock")
    }

    /// To be held by whoever sets free, or takes in anew, programs that another may be about, too.
    pub fn lock_programs(&self) -> io::Result<Option<File>> {
        let file = open_lock(&self.path.join("programs.lock"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn all_pages(&self) -> PathBuf {
        self.path.join("pages")
    }

    /// Makes the directory for the preload library's pages of one program. It carries the process
    /// and not the program's name, because the name is made unique only afterwards. A guest's lie
    /// in its own home: it may write nothing here.
    pub fn make_pages(&self, process: ProcessId) -> Result<PathBuf, HomeError> {
        if self.kind == Kind::Guest {
            return Home::own()?.make_pages(process);
        }
        let path = self.all_pages().join(format!("{}.{}", process.pid, process.start_time_ticks));
        make_directory(&path, 0o700)?;
        Ok(path)
    }

    /// Removes page directories of processes that ended without anybody removing them. Those that
    /// `keep` names stay (a root that has ended while its descendants live).
    pub fn sweep_pages(&self, keep: impl Fn(&Path) -> bool) {
        let Ok(entries) = fs::read_dir(self.all_pages()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let process = path.file_name().and_then(|name| name.to_str()).and_then(|name| {
                let (pid, start) = name.split_once('.')?;
                Some(ProcessId { pid: pid.parse().ok()?, start_time_ticks: start.parse().ok()? })
            });
            if process.is_some_and(|process| !identity::lives(process)) && !keep(&path) {
                // Whoever else removes it at the same time has done our work.
                let _ = fs::remove_dir_all(&path);
            }
        }
    }

    /// A short name, the same for the same home at all times, for cgroups: `coplace-` and a hash.
    pub fn group_name(&self) -> String {
        let canonical = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        // FNV-1a: std's hashers promise no stability between versions.
        let hash =
            canonical.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        format!("coplace-{:08x}", (hash ^ hash >> 32) as u32)
    }

    /// Whether this process may schedule here.
    pub fn may_schedule(&self) -> bool {
        self.kind != Kind::Guest
    }

    /// Whether all users may connect to the scheduler here.
    pub fn is_for_everybody(&self) -> bool {
        self.kind == Kind::System
    }

    /// Whether a peer of this user may speak to the scheduler here (its uid by SO_PEERCRED).
    pub fn admits(&self, uid: u32) -> bool {
        self.is_for_everybody() || uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    /// Becomes the only scheduler here. Leaders give way to a daemon that is just taking over.
    pub fn lock_scheduler(&self, role: Role) -> Result<SchedulerLock, LockError> {
        let held = |pid, role| LockError::Held { home: self.path.clone(), pid, role };
        if role == Role::Leader && self.claim(true)?.is_none() {
            return Err(held(None, Some(Role::Daemon)));
        }
        let path = self.lock();
        let io_error = |error: io::Error| LockError::Io { path: path.clone(), error };
        let mut file = open_lock(&path).map_err(io_error)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(io_error)?;
                let holder: Option<Holder> = serde_json::from_str(&text).ok();
                return Err(held(holder.as_ref().map(|h| h.pid), holder.map(|h| h.role)));
            }
            Err(error) => return Err(io_error(error.into())),
        }
        let lock = SchedulerLock { file, home: self.clone(), role };
        let text =
            serde_json::to_vec(&Holder { pid: std::process::id(), role }).map_err(|e| io_error(e.into()))?;
        let mut file = &lock.file;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(&text))
            .map_err(io_error)?;
        Ok(lock)
    }

    /// Announces that a daemon is about to schedule here: until the claim is dropped no leader
    /// takes the lock. `None`: another daemon is doing the same.
    pub fn claim_for_daemon(&self) -> Result<Option<Claim>, LockError> {
        self.claim(false)
    }

    fn claim(&self, shared: bool) -> Result<Option<Claim>, LockError> {
        let path = self.claim_path();
        let io_error = |error: io::Error| LockError::Io { path: path.clone(), error };
        let file = open_lock(&path).map_err(io_error)?;
        let how = match shared {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&file, how) {
            Ok(()) => Ok(Some(Claim(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(io_error(error.into())),
        }
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Makes a directory of ours, or finds out why the one that is there cannot be trusted.
fn make_directory(path: &Path, mode: u32) -> Result<(), HomeError> {
    let io_error = |error| HomeError::Io { path: path.to_owned(), error };
    match DirBuilder::new().recursive(true).mode(mode).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error(error)),
    }
    let meta = fs::symlink_metadata(path).map_err(io_error)?;
    let uid = rustix::process::geteuid().as_raw();
    let bad = |what: String| Err(HomeError::Unsafe { path: path.to_owned(), what });
    if meta.file_type().is_symlink() {
        bad("a symbolic link".into())
    } else if !meta.is_dir() {
        bad("not a directory".into())
    } else if meta.uid() != uid {
        bad(format!("owned by user {} and not by user {uid}", meta.uid()))
    } else if meta.mode() & 0o022 != 0 {
        bad(format!("writable for others (mode {:o})", meta.mode() & 0o7777))
    } else {
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    role: Role,
}

/// A daemon's word that it is about to schedule.
#[derive(Debug)]
pub struct Claim(File);

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing alone would leave it to a child that is between fork and exec.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Whoever has this is the only scheduler of its home.
#[derive(Debug)]
pub struct SchedulerLock {
    file: File,
    home: Home,
    role: Role,
}

impl SchedulerLock {
    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn role(&self) -> Role {
        self.role
    }
}

impl Drop for SchedulerLock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        // Closing alone would leave the lock to a child that is between fork and exec.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_home_is_made_private_and_found_again() {
        let dir = scratch();
        let path = dir.path().join("a/b");
        let home = Home::at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(Home::at(&path).unwrap(), home);
        assert_eq!(home.group_name(), Home::at(&path).unwrap().group_name());
        assert_ne!(home.group_name(), Home::at(dir.path()).unwrap().group_name());
        assert!(home.may_schedule() && home.superior().is_none() && home.fallback().is_none());
    }

    #[test]
    fn a_symbolic_link_a_file_and_a_directory_open_to_others_are_refused_by_name() {
        let dir = scratch();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        let link = dir.path().join("link");
        symlink(&target, &link).unwrap();
        let error = Home::at(&link).unwrap_err().to_string();
        assert!(error.contains("symbolic link") && error.contains("link"), "{error}");

        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Home::at(&file).unwrap_err().to_string().contains("not a directory"));

        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Home::at(&open).unwrap_err().to_string().contains("mode 777"));

        let long = dir.path().join("x".repeat(120));
        assert!(matches!(Home::at(&long), Err(HomeError::TooLong { .. })));
        assert!(!long.exists());
    }

    #[test]
    fn the_second_scheduler_learns_who_is_the_first_and_gets_the_lock_after_it() {
        let dir = scratch();
        let home = Home::at(dir.path()).unwrap();
        let lock = home.lock_scheduler(Role::Leader).unwrap();
        match home.lock_scheduler(Role::Daemon) {
            Err(LockError::Held { pid, role, .. }) => {
                assert_eq!((pid, role), (Some(std::process::id()), Some(Role::Leader)));
            }
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert_eq!(home.lock_scheduler(Role::Daemon).unwrap().role(), Role::Daemon);
    }

    #[test]
    fn no_leader_takes_the_lock_while_a_daemon_claims_it() {
        let dir = scratch();
        let home = Home::at(dir.path()).unwrap();
        let claim = home.claim_for_daemon().unwrap().unwrap();
        assert!(home.claim_for_daemon().unwrap().is_none());
        assert!(matches!(home.lock_scheduler(Role::Leader), Err(LockError::Held { .. })));
        drop(home.lock_scheduler(Role::Daemon).unwrap());
        drop(claim);
        assert!(home.lock_scheduler(Role::Leader).is_ok());
    }

    #[test]
    fn pages_of_dead_processes_are_swept_and_those_of_living_ones_kept() {
        let dir = scratch();
        let home = Home::at(dir.path()).unwrap();
        let mine = home.make_pages(identity::own()).unwrap();
        let dead = home.make_pages(ProcessId { pid: std::process::id(), start_time_ticks: 1 }).unwrap();
        let kept = home.make_pages(ProcessId { pid: std::process::id(), start_time_ticks: 2 }).unwrap();
        home.sweep_pages(|path| path == kept);
        assert!(mine.exists() && !dead.exists() && kept.exists());
    }
}
