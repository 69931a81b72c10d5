//! Where the kernel's files are: `/` live, a directory in tests and recordings.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::host;

/// The directory below which `proc`, `sys` and the cgroup mounts are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Put before absolute paths that the kernel names, such as mount points.
    pub base: PathBuf,
    /// The directory that stands for `/proc`.
    pub proc: PathBuf,
    /// The directory that stands for `/sys`.
    pub sys: PathBuf,
}

impl Default for Root {
    fn default() -> Self {
        Root::live()
    }
}

impl Root {
    /// This machine.
    pub fn live() -> Self {
        Root::at("/")
    }

    /// A machine recorded or imitated below `base`.
    pub fn at(base: impl Into<PathBuf>) -> Self {
        let base = base.into();
        Root { proc: base.join("proc"), sys: base.join("sys"), base }
    }

    /// Whether this is the running machine, not a recording or an imitation.
    pub fn is_live(&self) -> bool {
        self.base == Path::new("/")
    }

    /// A path that the kernel calls absolute, as seen below this root.
    pub fn resolve(&self, absolute: &Path) -> PathBuf {
        match absolute.strip_prefix("/") {
            Ok(relative) => self.base.join(relative),
            Err(_) => self.base.join(absolute),
        }
    }
}

/// Kernel files are read whole; anything longer than this is not one of those that we know.
const MAX_BYTES: usize = 16 << 20;

pub(crate) fn read(path: &Path) -> Result<String> {
    let bytes = read_bytes(path)?;
    // Names of commands may hold any byte; none of the fields that we use depends on them.
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let bytes = host::with(|host| host.read(path)).map_err(|e| Error::io("read", path, e))?;
    if bytes.len() > MAX_BYTES {
        return Err(Error::parse(path, "", format!("it holds {} bytes, more than {MAX_BYTES}", bytes.len())));
    }
    Ok(bytes)
}

/// Writes to a file that exists. Kernel files are never created, and a missing one must stay an
/// error instead of becoming a regular file in a fake root.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let written = host::with(|host| host.write(path, text.as_bytes())).and_then(|length| match length {
        length if length == text.len() => Ok(()),
        length => Err(io::Error::other(format!("only {length} of {} bytes were taken", text.len()))),
    });
    written.map_err(|e| Error::io(format!("write '{}' to", text.trim()), path, e))
}

pub(crate) fn number<T: std::str::FromStr<Err: std::fmt::Display>>(path: &Path, text: &str) -> Result<T> {
    text.trim().parse().map_err(|e| Error::parse(path, text, e))
}
