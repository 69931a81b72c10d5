//! What kind of program a file is, as far as it decides whether a library can be preloaded into it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that the kernel follows.
const MOST_SCRIPTS: usize = 4;
/// Program headers and needed libraries beyond this are not looked at.
const MOST_ENTRIES: u64 = 512;

/// Why the dynamic loader does not take our library into a program. The program runs as if it were
/// not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It has no `PT_INTERP` program header, so no dynamic loader runs.
    #[error("it is linked statically, so that nothing can be preloaded")]
    Static,
    /// Its ELF class, byte order or machine differs from that of the running coplace.
    #[error("it was built for another architecture than coplace and its preload library")]
    Architecture,
    /// The file's mode has the set-user-ID or set-group-ID bit.
    #[error(
        "it gets rights from its file (set-user-ID or set-group-ID), and the loader preloads nothing into such"
    )]
    SetId,
}

/// An executable file, after the scripts that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// `None` if the library can be preloaded; [`Obstacle::SetId`] only if nothing else stands in the way.
    pub obstacle: Option<Obstacle>,
    /// The libraries that it names.
    pub needed: Vec<String>,
}

impl Binary {
    /// An error if there is no such file, or it is no ELF file, or one that is damaged.
    pub fn read(path: &Path) -> io::Result<Binary> {
        let mut path = path.to_owned();
        for _ in 0..MOST_SCRIPTS {
            match interpreter_of_script(&path)? {
                Some(interpreter) => path = interpreter,
                None => break,
            }
        }
        let file = File::open(&path)?;
        let mut binary = read_elf(&file)?;
        let set_id = file.metadata()?.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
        binary.obstacle = binary.obstacle.or(set_id.then_some(Obstacle::SetId));
        Ok(binary)
    }

    /// Whether it was built with GCC's address sanitizer as a library, which insists on being the
    /// first of all.
    pub fn has_address_sanitizer(&self) -> bool {
        self.needed.iter().any(|name| name.starts_with("libasan.so"))
    }
}

fn interpreter_of_script(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut line = Vec::new();
    let mut start = BufReader::new(io::Read::take(File::open(path)?, 256));
    start.read_until(b'\n', &mut line)?;
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(None) };
    let first = rest.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    Ok(Some(PathBuf::from(std::ffi::OsStr::from_bytes(first))))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an ELF file, or a damaged one")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// A part of the file and where the loader puts it.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// Of our own class and byte order only (64 bits, little-endian on all that coplace runs on): a file
/// of another is foreign, whatever is in it.
fn read_elf(file: &File) -> io::Result<Binary> {
    let (mut header, mut own) = ([0; 64], [0; 20]);
    file.read_exact_at(&mut header, 0).map_err(|_| damaged())?;
    File::open("/proc/self/exe")?.read_exact_at(&mut own, 0)?;
    if &header[..4] != b"\x7fELF" {
        return Err(damaged());
    }
    if header[4..6] != own[4..6] || header[18..20] != own[18..20] {
        return Ok(Binary { obstacle: Some(Obstacle::Architecture), needed: Vec::new() });
    }
    let segments = segments(file, &header)?;
    let has_loader = segments.iter().any(|segment| segment.kind == PT_INTERP);
    let needed = needed(file, &segments).unwrap_or_default();
    Ok(Binary { obstacle: (!has_loader).then_some(Obstacle::Static), needed })
}

fn segments(file: &File, header: &[u8; 64]) -> io::Result<Vec<Segment>> {
    let (table, size, count) = (u64_at(header, 32), u16_at(header, 54), u16_at(header, 56));
    let mut segments = Vec::new();
    for index in 0..u64::from(count).min(MOST_ENTRIES) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table + index * u64::from(size)).map_err(|_| damaged())?;
        segments.push(Segment {
            kind: u64_at(&entry, 0) as u32,
            offset: u64_at(&entry, 8),
            address: u64_at(&entry, 16),
            bytes: u64_at(&entry, 32),
        });
    }
    Ok(segments)
}

fn needed(file: &File, segments: &[Segment]) -> Option<Vec<String>> {
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let mut entries = Vec::new();
    for index in 0..(dynamic.bytes / 16).min(MOST_ENTRIES) {
        let mut entry = [0; 16];
        file.read_exact_at(&mut entry, dynamic.offset + index * 16).ok()?;
        entries.push((u64_at(&entry, 0), u64_at(&entry, 8)));
    }
    let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
    let part = segments.iter().find(|segment| {
        segment.kind == PT_LOAD && (segment.address..segment.address + segment.bytes).contains(&strings)
    })?;
    let strings = strings - part.address + part.offset;
    let name = |&(tag, at): &(u64, u64)| {
        let mut text = vec![0; 256];
        let read = file.read_at(&mut text, strings + at).ok()?;
        let end = text[..read].iter().position(|byte| *byte == 0)?;
        (tag == DT_NEEDED).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    };
    Some(entries.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_ordinary_program_loads_the_library_and_names_its_needs() {
        let sh = Binary::read(Path::new("/bin/sh")).unwrap();
        assert_eq!(sh.obstacle, None);
        assert!(sh.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", sh.needed);
        assert!(!sh.has_address_sanitizer());
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#! /bin/sh -e\nexit 0\n").unwrap();
        assert_eq!(Binary::read(&script).unwrap(), Binary::read(Path::new("/bin/sh")).unwrap());
        fs::write(&script, "no such thing").unwrap();
        assert!(Binary::read(&script).unwrap_err().to_string().contains("ELF"));
    }

    #[test]
    fn foreign_privileged_and_static_programs_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        fs::copy("/bin/sh", &copy).unwrap();
        let bytes = fs::read(&copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(Binary::read(&copy).unwrap().obstacle, Some(Obstacle::SetId));
        let mut foreign = bytes.clone();
        foreign[18] ^= 0x55;
        fs::write(&copy, &foreign).unwrap();
        assert_eq!(Binary::read(&copy).unwrap().obstacle, Some(Obstacle::Architecture));
        // Without the segment that names a loader the kernel starts it by itself.
        let mut alone = bytes.clone();
        let (table, size) = (u64_at(&bytes, 32) as usize, usize::from(u16_at(&bytes, 54)));
        for index in 0..usize::from(u16_at(&bytes, 56)) {
            let at = table + index * size;
            if alone[at] == PT_INTERP as u8 {
                alone[at] = 0;
            }
        }
        fs::write(&copy, &alone).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Binary::read(&copy).unwrap().obstacle, Some(Obstacle::Static));
        fs::write(&copy, &bytes[..40]).unwrap();
        assert!(Binary::read(&copy).is_err());
    }
}
