//! The directory in which one scheduler and its programs meet.
//!
//! One scheduler per home: a daemon, or the `coplace run` that leads. Who schedules is who holds
//! the lock file (flock, so that death releases it); everything else in the directory is written
//! by who holds the lock only, except the pages, which belong to the programs.

mod lock;
mod own;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use linux::clock::now_ns;
use linux::host::{self, FileInfo, FileKind, Lock, Locked};
use protocol::ProcessId;

use crate::identity;
pub use lock::{Claim, LockError, SchedulerLock};

/// Where root's scheduler lives, which serves all users.
const SYSTEM: &str = "/run/coplace";
/// Names this directory instead of the usual ones.
pub const RUNTIME_DIR_VARIABLE: &str = "COPLACE_RUNTIME_DIR";
/// `sockaddr_un` holds 108 bytes with the final zero.
const MAX_SOCKET_PATH: usize = 107;
/// For how long the programs' lock is waited for, and how long until it is tried again.
pub(crate) const LOCK_PATIENCE_NS: u64 = 200_000_000;
const LOCK_PAUSE_NS: u64 = 2_000_000;

/// Why a directory cannot serve as a home.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// It, or a directory in it, could not be made or looked at.
    #[error(
        "cannot use {path} for the scheduler's files: {error}; set {RUNTIME_DIR_VARIABLE} to a directory of yours"
    )]
    Io {
        /// That directory.
        path: PathBuf,
        /// What the file system said.
        error: io::Error,
    },
    /// What is there is not a directory that this user alone can write.
    #[error(
        "{path} is {what}; the scheduler's files need a directory that only its owner can write: remove it, or set {RUNTIME_DIR_VARIABLE} to another one"
    )]
    Unsafe {
        /// The home, or a directory in it.
        path: PathBuf,
        /// What is wrong, to follow "is": `a symbolic link`, `not a directory` …
        what: String,
    },
    /// With `/socket` it is longer than the address of a Unix socket can be.
    #[error(
        "the path {path} is too long for a Unix socket (at most {MAX_SOCKET_PATH} bytes with '/socket'); set {RUNTIME_DIR_VARIABLE} to a shorter one"
    )]
    TooLong {
        /// The home's directory, without `/socket`.
        path: PathBuf,
    },
}

/// Whose home it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Named by the environment; nobody else's is looked at.
    Explicit,
    /// Root's, used by root.
    System,
    /// Root's, used by somebody else: only the socket is ours to use.
    Guest,
    /// An ordinary user's own.
    Own,
}

/// A home, by its absolute path and by whose it is.
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
        if host::own_uid() == 0 {
            return Home::create(PathBuf::from(SYSTEM), Kind::System);
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
        Home::create(absolute, Kind::Explicit)
    }

    /// A home that is there already; nothing is made. `None` where it is not.
    pub fn find_existing(path: &Path) -> Option<Home> {
        let path = std::path::absolute(path).ok()?;
        let is_ours = |info: FileInfo| info.kind == FileKind::Directory && info.uid == host::own_uid();
        host::with(|host| host.inspect(&path))
            .is_ok_and(is_ours)
            .then_some(Home { path, kind: Kind::Explicit })
    }

    /// An ordinary user's own home, whoever answers elsewhere.
    fn own() -> Result<Home, HomeError> {
        let path = own::Places::default_places().choose(host::own_uid());
        Home::create(path, Kind::Own)
    }

    /// Root's home, while somebody answers there.
    fn system_daemon() -> Option<Home> {
        let home = Home { path: PathBuf::from(SYSTEM), kind: Kind::Guest };
        let root_owns = fs::symlink_metadata(&home.path).is_ok_and(|meta| meta.is_dir() && meta.uid() == 0);
        (root_owns && UnixStream::connect(home.socket()).is_ok()).then_some(home)
    }

    /// The group whose members alone may use root's daemon, where this user is none of them.
    pub fn group_to_join() -> Option<u32> {
        let socket = Path::new(SYSTEM).join("socket");
        let meta = fs::symlink_metadata(&socket).ok().filter(|meta| meta.uid() == 0)?;
        let refused =
            UnixStream::connect(&socket).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        refused.then_some(meta.gid())
    }

    /// Root's daemon that has appeared since an ordinary user's home was chosen.
    pub fn superior(&self) -> Option<Home> {
        if self.kind == Kind::Own { Home::system_daemon() } else { None }
    }

    /// Another home of the same ordinary user, which goes before this one: somebody schedules there, or this
    /// one has gone with its login.
    pub fn preferred(&self) -> Option<Home> {
        if self.kind != Kind::Own {
            return None;
        }
        let path = own::Places::default_places().preferred_to(&self.path, host::own_uid())?;
        Home::create(path, Kind::Own).ok()
    }

    /// Where a guest goes when root's daemon has gone.
    pub fn fallback(&self) -> Option<Home> {
        if self.kind == Kind::Guest { Home::own().ok() } else { None }
    }

    fn create(path: PathBuf, kind: Kind) -> Result<Home, HomeError> {
        if path.join("socket").as_os_str().len() > MAX_SOCKET_PATH {
            return Err(HomeError::TooLong { path });
        }
        let home = Home { path, kind };
        // All may come in to the system's home, to the socket; nobody into anybody else's.
        let mode = if kind == Kind::System { 0o755 } else { 0o700 };
        create_directory(&home.path, mode)?;
        if kind == Kind::System {
            // Whatever the umask took away.
            let open = fs::Permissions::from_mode(mode);
            fs::set_permissions(&home.path, open)
                .map_err(|error| HomeError::Io { path: home.path.clone(), error })?;
        }
        create_directory(&home.apps(), 0o700)?;
        create_directory(&home.all_pages(), 0o700)?;
        Ok(home)
    }

    /// Creates again what somebody has removed while programs run here: a cleaner of temporary files, or a logout.
    pub fn create_again(&self) -> Result<(), HomeError> {
        Home::create(self.path.clone(), self.kind).map(drop)
    }

    /// The home's directory, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The Unix socket at which the scheduler listens. One that was killed leaves it behind.
    pub fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// The file whose lock makes its holder the only scheduler here: [`Home::lock_scheduler`].
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Held by a daemon while it takes over, so that no run becomes the leader before it.
    fn claim_path(&self) -> PathBuf {
        self.path.join("claim")
    }

    /// The file in which the scheduler beats: [`Lease`](crate::lease::Lease).
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

    /// To be held by whoever sets free, or takes in anew, programs that another may be about, too.
    pub fn lock_programs(&self) -> io::Result<Option<Box<dyn Lock>>> {
        lock(&self.path.join("programs.lock"))
    }

    /// The same, waited for until then. Whoever hangs with it keeps nobody from acting: `None`, as where nothing can be
    /// locked.
    pub fn lock_programs_until(
        &self,
        until_ns: u64,
        mut while_waiting: impl FnMut(),
    ) -> Option<Box<dyn Lock>> {
        loop {
            match self.lock_programs() {
                Ok(None) if now_ns() < until_ns => {
                    while_waiting();
                    linux::clock::sleep_until(now_ns() + LOCK_PAUSE_NS);
                }
                other => return other.ok().flatten(),
            }
        }
    }

    /// Exclusive for the guard, or `None` if there is one.
    pub fn lock_guard(&self) -> io::Result<Option<Box<dyn Lock>>> {
        lock(&self.path.join("guard.lock"))
    }

    fn all_pages(&self) -> PathBuf {
        self.path.join("pages")
    }

    /// Makes the directory for the preload library's pages of one program. It carries the process
    /// and not the program's name, because the name is made unique only afterwards. A guest's lie
    /// in its own home: it may write nothing here.
    pub fn create_pages(&self, process: ProcessId) -> Result<PathBuf, HomeError> {
        if self.kind == Kind::Guest {
            return Home::own()?.create_pages(process);
        }
        let path = self.all_pages().join(format!("{}.{}", process.pid, process.start_time_ticks));
        create_directory(&path, 0o700)?;
        Ok(path)
    }

    /// Removes page directories of processes that ended without anybody removing them. Those that
    /// `keep` names stay (a root that has ended while its descendants live).
    pub fn sweep_pages(&self, keep: impl Fn(&Path) -> bool) {
        let directory = self.all_pages();
        for entry in host::with(|host| host.names(&directory)).unwrap_or_default() {
            let path = directory.join(&entry.name);
            let process = entry.name.to_str().and_then(process_of_pages);
            if process.is_some_and(|process| !identity::is_alive(process)) && !keep(&path) {
                // Whoever else removes it at the same time has done our work.
                let _ = host::with(|host| host.remove_tree(&path));
            }
        }
    }

    /// Processes that live and have pages here, whether or not they are on record, each with its directory.
    pub fn processes_with_pages(&self) -> Vec<(ProcessId, PathBuf)> {
        let directory = self.all_pages();
        let names = host::with(|host| host.names(&directory)).unwrap_or_default();
        let found = names.into_iter().filter_map(|entry| {
            let process = process_of_pages(entry.name.to_str()?)?;
            identity::is_alive(process).then(|| (process, directory.join(&entry.name)))
        });
        found.collect()
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
    pub fn may_connect(&self, uid: u32) -> bool {
        self.is_for_everybody() || uid == 0 || uid == host::own_uid()
    }
}

/// `None`: somebody else has it.
fn lock(path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
    Ok(match host::with(|host| host.lock(path, false))? {
        Locked::Held(lock) => Some(lock),
        Locked::ByAnother(_) => None,
    })
}

/// Makes a directory of ours with those above it, or finds out why the one that is there cannot be trusted.
fn create_directory(path: &Path, mode: u32) -> Result<(), HomeError> {
    let io_error = |error| HomeError::Io { path: path.to_owned(), error };
    create_with_parents(path, mode).map_err(io_error)?;
    let info = host::with(|host| host.inspect(path)).map_err(io_error)?;
    let uid = host::own_uid();
    let bad = |what: String| Err(HomeError::Unsafe { path: path.to_owned(), what });
    match info.kind {
        FileKind::Link => bad("a symbolic link".into()),
        FileKind::File | FileKind::Other => bad("not a directory".into()),
        FileKind::Directory if info.uid != uid => {
            bad(format!("owned by user {} and not by user {uid}", info.uid))
        }
        FileKind::Directory if info.mode & 0o022 != 0 => {
            bad(format!("writable for others (mode {:o})", info.mode))
        }
        FileKind::Directory => Ok(()),
    }
}

pub(crate) fn create_with_parents(path: &Path, mode: u32) -> io::Result<()> {
    match host::with(|host| host.create_directory(path, mode)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().ok_or(error)?;
            create_with_parents(above, mode)?;
            match host::with(|host| host.create_directory(path, mode)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        }
        made => made,
    }
}

/// The process whose directory of pages has this name.
fn process_of_pages(name: &str) -> Option<ProcessId> {
    let (pid, start) = name.split_once('.')?;
    Some(ProcessId { pid: pid.parse().ok()?, start_time_ticks: start.parse().ok()? })
}

#[cfg(test)]
mod tests;
