//! The files whose code a process has mapped, and the very file behind a mapping.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memmap2::MmapOptions;

use crate::Root;
use crate::error::Result;
use crate::procfs;
use crate::root::read;

/// A file of which a process has mapped code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapped {
    /// As the process sees it.
    pub path: PathBuf,
    /// Device and file number, as the kernel shows them in `maps`; on some file systems they are not those that
    /// `stat` tells.
    pub identity: Identity,
    /// It has no name any more, or another file has it.
    pub is_deleted: bool,
}

/// Device and file number as in `maps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    device: String,
    inode: u64,
}

/// A mapping's file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    /// Another file has its place.
    #[error("another file was put in its place")]
    Replaced,
    /// It could not be opened or looked at, for example because the process has ended or is another user's.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
}

/// All files of which this process has mapped code, each once.
pub fn code(pid: u32, root: &Root) -> Result<Vec<Mapped>> {
    let path = procfs::dir(pid, root).join("maps");
    let text = read(&path)?;
    let mut all: Vec<Mapped> = text.lines().filter_map(parse).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// A line of `maps`, if it is of code from a file.
fn parse(line: &str) -> Option<Mapped> {
    let mut fields = line.split_ascii_whitespace();
    let (_, rights, _, device, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?.parse().ok()?);
    // The name stands behind the five words and blanks, and may hold blanks itself.
    let name = line.get(line.find('/')?..)?;
    if rights.as_bytes().get(2) != Some(&b'x') || inode == 0 {
        return None;
    }
    let (name, is_deleted) = match name.strip_suffix(" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    // Memory under a name, in which programs make code while they run.
    if is_deleted && ["/memfd:", "/dev/zero", "/SYSV"].iter().any(|start| name.starts_with(start)) {
        return None;
    }
    let identity = Identity { device: device.to_owned(), inode };
    Some(Mapped { path: name.into(), identity, is_deleted })
}

/// Opens the file behind a mapping of that process.
pub fn open(pid: u32, mapped: &Mapped, root: &Root) -> std::result::Result<File, Gone> {
    if mapped.is_deleted {
        return Err(Gone::Replaced);
    }
    let inside = mapped.path.strip_prefix("/").unwrap_or(&mapped.path);
    let path = procfs::dir(pid, root).join("root").join(inside);
    let file = File::open(path)?;
    match is_same(&file, &mapped.identity)? {
        true => Ok(file),
        false => Err(Gone::Replaced),
    }
}

fn is_same(file: &File, identity: &Identity) -> std::io::Result<bool> {
    let metadata = file.metadata()?;
    let device =
        format!("{:02x}:{:02x}", rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    if metadata.ino() == identity.inode && device == identity.device {
        return Ok(true);
    }
    Ok(own_identity(file)?.as_ref() == Some(identity))
}

/// What `maps` says of a file, found by mapping it ourselves: overlays and subvolumes show other numbers there
/// than to `stat`. Nothing is read through the mapping.
fn own_identity(file: &File) -> std::io::Result<Option<Identity>> {
    let map = MmapOptions::new().len(1).map_raw_read_only(file)?;
    let start = format!("{:x}-", map.as_ptr() as usize);
    let text = fs::read_to_string(Path::new("/proc/self/maps"))?;
    let line = text.lines().find(|line| line.trim_start_matches('0').starts_with(&start));
    let mut fields = line.map(str::split_ascii_whitespace).into_iter().flatten().skip(3);
    Ok(match (fields.next(), fields.next().map(str::parse)) {
        (Some(device), Some(Ok(inode))) => Some(Identity { device: device.to_owned(), inode }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_files_is_listed() {
        let code = "7f00-7f10 r-xp 00001000 fe:01 1234                       /opt/a b/lib.so";
        let found = parse(code).unwrap();
        assert_eq!(found.path, PathBuf::from("/opt/a b/lib.so"));
        assert!(!found.is_deleted);
        assert!(parse("7f00-7f10 r-xp 0 fe:01 12 /tmp/x (deleted)").unwrap().is_deleted);
        assert_eq!(parse("7f00-7f10 rw-p 00001000 fe:01 1234 /lib.so"), None);
        assert_eq!(parse("7f00-7f10 r-xp 00000000 00:00 0 [vdso]"), None);
        assert_eq!(parse("7f00-7f10 r-xp 00000000 00:00 0"), None);
    }

    #[test]
    fn a_mapped_file_differs_from_its_successor() {
        let root = Root::live();
        let own = std::process::id();
        let exe = std::env::current_exe().unwrap();
        let mapped = code(own, &root).unwrap().into_iter().find(|each| each.path == exe).unwrap();
        open(own, &mapped, &root).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "something else").unwrap();
        let moved = Mapped { path: other.clone(), ..mapped };
        assert!(matches!(open(own, &moved, &root), Err(Gone::Replaced)));
        let file = File::open(&other).unwrap();
        let identity = own_identity(&file).unwrap().unwrap();
        assert!(is_same(&file, &identity).unwrap());
    }
}
