//! Who schedules in a home: who holds its lock.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use protocol::Role;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::{Home, open_lock};

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

impl Home {
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
