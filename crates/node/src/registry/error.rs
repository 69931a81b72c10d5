//! Why files of a home could not be read or written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use workload::AppId;

/// Why the registry, or what is remembered of programs, could not be written or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file could not be replaced; the one that was there before still stands.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What writing it, or its draft beside it, ended with.
        error: Arc<io::Error>,
    },
    /// The registry's directory is there and cannot be listed.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The directory.
        path: PathBuf,
        /// What listing it ended with.
        error: Arc<io::Error>,
    },
}

impl RegistryError {
    pub(super) fn is_not_found(&self) -> bool {
        let (RegistryError::Write { error, .. } | RegistryError::Read { error, .. }) = self;
        error.kind() == io::ErrorKind::NotFound
    }
}

/// Why a file is none that we wrote.
#[derive(Debug, thiserror::Error)]
pub enum NoRecord {
    /// It cannot be inspected or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a symbolic link, a directory, or whatever else is no file.
    #[error("it is not a plain file")]
    NotPlain,
    /// It belongs to somebody who is neither this user nor root.
    #[error("it belongs to user {uid}")]
    Foreign {
        /// Whose it is.
        uid: u32,
    },
    /// It has more than the 16 MiB that a file of ours can have.
    #[error("it has {bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// Its text is not that of a record.
    #[error(transparent)]
    Damaged(#[from] serde_json::Error),
    /// Its process is that of another record already.
    #[error("its process is {0}'s")]
    ProcessOf(AppId),
    /// It holds the record of this program, whose file has another name.
    #[error("it describes {0}")]
    Describes(AppId),
}
