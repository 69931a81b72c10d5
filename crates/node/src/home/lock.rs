//! Who schedules in a home: who holds its lock.

use std::io;
use std::path::PathBuf;

use linux::host::{self, Lock, Locked};
use protocol::Role;
use serde::{Deserialize, Serialize};

use super::Home;

/// Why a process could not take the lock of a home's scheduler, or claim it for a daemon.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody schedules here already. `None`s: it has only just taken the lock.
    #[error("{} schedules in {home} already{}", describe_role(.role), describe_pid(.pid))]
    Held {
        /// The home's directory.
        home: PathBuf,
        /// The holder's process number; also `None` for a daemon that is only about to take the lock.
        pid: Option<u32>,
        /// As what it schedules, or is about to.
        role: Option<Role>,
    },
    /// The file of the lock or of the claim could not be opened, locked or written.
    #[error("cannot lock {path}: {error}")]
    Io {
        /// That file.
        path: PathBuf,
        /// What the file system said.
        error: io::Error,
    },
}

fn describe_role(role: &Option<Role>) -> &'static str {
    match role {
        Some(Role::Daemon) => "a coplace daemon",
        Some(Role::Observer) => "a coplace daemon that observes",
        Some(Role::Leader) => "a coplace run",
        None => "another coplace",
    }
}

fn describe_pid(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    role: Role,
}

/// A daemon's word that it is about to schedule.
#[derive(Debug)]
pub struct Claim {
    _lock: Box<dyn Lock>,
}

/// Whoever has this is the only scheduler of its home.
#[derive(Debug)]
pub struct SchedulerLock {
    lock: Box<dyn Lock>,
    role: Role,
}

impl SchedulerLock {
    /// As what its holder schedules; the lock file tells that to whoever finds the lock taken.
    pub fn role(&self) -> Role {
        self.role
    }
}

impl Drop for SchedulerLock {
    fn drop(&mut self) {
        let _ = self.lock.replace(b"");
    }
}

impl Home {
    /// Becomes the only scheduler here. Leaders give way to a daemon that is just taking over.
    pub fn lock_scheduler(&self, role: Role) -> Result<SchedulerLock, LockError> {
        let held = |pid, role| LockError::Held { home: self.path.clone(), pid, role };
        if role == Role::Leader && self.claim(true)?.is_none() {
            return Err(held(None, Some(Role::Daemon)));
        }
        let path = match broken!(LockTakenTwice) {
            true => self.path.join(format!("lock-{}", host::own_pid())),
            false => self.lock(),
        };
        let io_error = |error: io::Error| LockError::Io { path: path.clone(), error };
        let lock = match host::with(|host| host.lock(&path, false)).map_err(io_error)? {
            Locked::Held(lock) => lock,
            Locked::ByAnother(text) => {
                let holder: Option<Holder> = serde_json::from_slice(&text).ok();
                return Err(held(holder.as_ref().map(|h| h.pid), holder.map(|h| h.role)));
            }
        };
        let lock = SchedulerLock { lock, role };
        let text =
            serde_json::to_vec(&Holder { pid: host::own_pid(), role }).map_err(|e| io_error(e.into()))?;
        lock.lock.replace(&text).map_err(io_error)?;
        Ok(lock)
    }

    /// Announces that a daemon is about to schedule here: until the claim is dropped no leader
    /// takes the lock. `None`: another daemon is doing the same.
    pub fn claim_for_daemon(&self) -> Result<Option<Claim>, LockError> {
        self.claim(false)
    }

    fn claim(&self, shared: bool) -> Result<Option<Claim>, LockError> {
        let path = self.claim_path();
        match host::with(|host| host.lock(&path, shared)) {
            Ok(Locked::Held(lock)) => Ok(Some(Claim { _lock: lock })),
            Ok(Locked::ByAnother(_)) => Ok(None),
            Err(error) => Err(LockError::Io { path, error }),
        }
    }
}
