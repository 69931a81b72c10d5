//! How a page is reached: mapped where it is ours; by calls where it is another user's.
//!
//! Whoever maps a file that its owner cuts short is ended by SIGBUS, and whoever opens what a user's path leads to
//! may open anything. So another user's page is only opened once it is known to be a plain file of that user's on
//! a file system of the kernel's own, and a call that finds it cut short only says so.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{PAGE_BYTES, Raw};
use crate::host::Mapping;

#[derive(Debug)]
pub(super) enum Access {
    Mapped(Mapping),
    ByCalls(File),
}

/// A page as it is, or was a moment ago.
pub(super) enum View<'a> {
    Mapped(&'a Raw),
    Copy(Box<Raw>),
}

impl Deref for View<'_> {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        match self {
            View::Mapped(raw) => raw,
            View::Copy(raw) => raw,
        }
    }
}

impl Access {
    pub fn view(&self) -> View<'_> {
        match self {
            // SAFETY: the mapping is PAGE_BYTES long (asked for at opening), aligned to eight bytes, lives as long as
            // `self`, and Raw consists of atomics only, for which every bit pattern is valid and which
            // other processes may change at any time.
            Access::Mapped(map) => View::Mapped(unsafe { &*map.as_ptr().cast::<Raw>() }),
            Access::ByCalls(file) => {
                let mut bytes = [0; PAGE_BYTES];
                // Cut short: a page that nobody has written to says nothing, and wishes nothing.
                if file.read_exact_at(&mut bytes, 0).is_err() {
                    bytes = [0; PAGE_BYTES];
                }
                // SAFETY: as long as the array, and every bit pattern is valid.
                View::Copy(Box::new(unsafe { std::mem::transmute::<[u8; PAGE_BYTES], Raw>(bytes) }))
            }
        }
    }
}

/// File systems on which a call cannot be kept waiting, or answered, by somebody's program.
const LOCAL: [i64; 9] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xef53,      // ext2 to ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0x794c_7630, // overlayfs
    0xca45_1a4e, // bcachefs
];

/// A plain file of this user's, wherever the path leads. Nothing happens to what is not one: looking at it
/// opens neither devices nor pipes.
pub(super) fn open_of(path: &Path, owner: u32) -> io::Result<File> {
    let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    let metadata = found.metadata()?;
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
    if !metadata.is_file() || metadata.uid() != owner {
        return refuse("it is not a plain file of the program's user");
    }
    let system = rustix::fs::fstatfs(&found)?.f_type as i64;
    if !LOCAL.contains(&(system & 0xffff_ffff)) {
        return refuse("it lies on a file system that others could answer for");
    }
    OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}
