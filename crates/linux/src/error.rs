//! What can go wrong, with the path and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::procfs::Process;

/// The result of most functions of this crate; some fail with another error, such as [`Absent`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A kernel feature or a right that this machine or this user does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what} is not available: {why}; {remedy}")]
pub struct Absent {
    /// The feature or right, as the subject of the message.
    pub what: String,
    /// How its absence showed, as a clause that follows a colon.
    pub why: String,
    /// What a person can do about it, as a clause that follows a semicolon.
    pub remedy: String,
}

impl Absent {
    /// Made of the three parts of its message, which end without a full stop.
    pub fn new(what: impl Into<String>, why: impl fmt::Display, remedy: impl Into<String>) -> Self {
        Absent { what: what.into(), why: why.to_string(), remedy: remedy.into() }
    }
}

/// Why something could not be found out or done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Something could not be done with a file or directory.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried; reads after "cannot", for example `read` or `write '0-1' to`.
        action: String,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer; without a `raw_os_error` where we found the fault ourselves.
        source: Arc<io::Error>,
    },

    /// A text that was read, or a name that was given, is not as it should be.
    #[error("{}: cannot understand '{text}': {why}", path.display())]
    Parse {
        /// Where the text was read; `coplace` for a name.
        path: PathBuf,
        /// The offending part, cut to 120 characters; empty if there is none to show.
        text: String,
        /// What was expected, or what is wrong with it.
        why: String,
    },

    /// A system call on a process or thread failed.
    #[error("{call} failed for {subject}: {source}{}", hint(source))]
    Call {
        /// Name of the system call, for example `pidfd_open`.
        call: &'static str,
        /// What it was called for, for example `thread 12`.
        subject: String,
        /// The kernel's answer.
        source: Arc<io::Error>,
    },

    /// The process has ended, or its pid means another one by now.
    #[error("process {} that started at tick {} has ended", .0.pid, .0.start_time_ticks)]
    Gone(Process),

    /// This machine or this user does not have what that takes.
    #[error(transparent)]
    Absent(#[from] Absent),

    /// Something was waited for in vain.
    #[error("{}: {what} did not happen within {} ms", path.display(), waited_ns / 1_000_000)]
    Timeout {
        /// What was waited for, as a gerund: `stopping` or `removing the group`.
        what: String,
        /// The file or directory in which it would have shown.
        path: PathBuf,
        /// How long, in nanoseconds; at least the timeout that was asked for.
        waited_ns: u64,
    },
}

impl Error {
    /// Makes an [`Error::Io`]; `action` reads after "cannot".
    pub fn io(action: impl Into<String>, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Io { action: action.into(), path: path.into(), source: source.into() }
    }

    pub(crate) fn call(call: &'static str, subject: impl Into<String>, source: io::Error) -> Self {
        Error::Call { call, subject: subject.into(), source: source.into() }
    }

    pub(crate) fn parse(path: impl Into<PathBuf>, text: &str, why: impl fmt::Display) -> Self {
        // A line is enough to find the fault; a whole /proc/stat in a message hides it.
        let text = text.trim().chars().take(120).collect();
        Error::Parse { path: path.into(), text, why: why.to_string() }
    }

    /// Whether the error only says that the process or thread has ended meanwhile.
    pub fn is_gone(&self) -> bool {
        match self {
            Error::Gone(_) => true,
            Error::Io { source, .. } | Error::Call { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
            }
            _ => false,
        }
    }

    /// Whether the error says that this user may not do that.
    pub fn is_denied(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
    }

    /// Whether the error says that a control group is not there any more.
    pub fn is_group_gone(&self) -> bool {
        let Error::Io { path, source, .. } = self else { return false };
        match source.raw_os_error() {
            // A file of it that was kept open.
            Some(libc::ENODEV) => true,
            Some(libc::ENOENT) => is_of_a_group(path),
            _ => false,
        }
    }

    /// What the kernel answered, if it was asked.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } | Error::Call { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Whether a path names a file of a control group.
fn is_of_a_group(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["cgroup.", "cpuset.", "cpu.", "freezer."].iter().any(|controller| name.starts_with(controller))
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => " (run as root, or in a cgroup delegated to this user)",
        Some(libc::EROFS) => " (mounted read-only, as in many containers; remount it read-write)",
        Some(libc::EMFILE) => " (too many open files; raise ulimit -n)",
        _ => "",
    }
}
