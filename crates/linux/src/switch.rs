//! The fast path of taking turns.

use std::io;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::host::{self, OpenFile};

/// One kernel file that is switched between two values, kept open so that a switch is one
/// `pwrite(2)` without allocation: a gang switch must not wait for the allocator or a path walk.
#[derive(Debug)]
pub struct Switch {
    file: Box<dyn OpenFile>,
    /// For errors: `cpu.idle`, `cgroup.freeze` or `freezer.state` of a group.
    path: PathBuf,
    on: &'static str,
    off: &'static str,
}

impl Switch {
    pub(crate) fn open(path: PathBuf, on: &'static str, off: &'static str) -> Result<Self> {
        let file =
            host::with(|host| host.open(&path, true)).map_err(|e| Error::io("open for writing", &path, e))?;
        Ok(Switch { file, path, on, off })
    }

    /// Writes the value; returns as soon as the kernel took it, which for a freezer is before
    /// every thread stands still.
    pub fn set(&self, on: bool) -> Result<()> {
        let text = if on { self.on } else { self.off };
        let written = self.file.write(text.as_bytes()).and_then(|length| match length {
            length if length == text.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        });
        written.map_err(|error| Error::io(format!("write '{text}' to"), &self.path, error))
    }
}
