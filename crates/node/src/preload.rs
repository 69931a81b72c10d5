//! Where the preload library is: beside the binary or in it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use linux::binary::{Binary, Obstacle};
use rustix::fs::StatVfsMountFlags;

use crate::home::Home;

/// Names the library to use; empty: none.
pub const PRELOAD_VARIABLE: &str = "COPLACE_PRELOAD";
const FILE: &str = "libcoplace_preload.so";

/// Empty where coplace was built without a C compiler.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcoplace_preload.so"));

/// Why there is none: programs run without it, and count as rigid.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    /// The user has set [`PRELOAD_VARIABLE`] to an empty text.
    #[error("{PRELOAD_VARIABLE} is empty: programs run without the preload library")]
    SwitchedOff,
    /// The file that [`PRELOAD_VARIABLE`] names is missing, or is one that the loader might refuse.
    #[error("{path} cannot serve as the preload library: {why}; correct {PRELOAD_VARIABLE}", path = path.display())]
    Unusable {
        /// That file, without symbolic links if it is there.
        path: PathBuf,
        /// The reason as a clause: `it is not an ELF file` …
        why: String,
    },
    /// No usable library is installed with the executable, and none is in it.
    #[error(
        "this coplace was built without its preload library (no C compiler); set {PRELOAD_VARIABLE} to one"
    )]
    NotBuilt,
    /// In no directory could the executable's own library be written and loaded from.
    #[error("no place for the preload library: {}; set {PRELOAD_VARIABLE} to a copy of it", tried.join("; "))]
    NoPlace {
        /// Each directory with what was wrong there, as `DIRECTORY: WHY`.
        tried: Vec<String>,
    },
}

/// Finds the library: `$COPLACE_PRELOAD`; beside the executable; in `../lib/coplace` from it; else
/// it is written out, named by its content, to `$XDG_CACHE_HOME/coplace`, `~/.cache/coplace` or
/// `home`.
pub fn find(home: &Home) -> Result<PathBuf, Absent> {
    if let Some(path) = std::env::var_os(PRELOAD_VARIABLE) {
        if path.is_empty() {
            return Err(Absent::SwitchedOff);
        }
        let path = PathBuf::from(path);
        let path = path.canonicalize().unwrap_or(path);
        return check_usable(&path).map(|()| path.clone()).map_err(|why| Absent::Unusable { path, why });
    }
    if let Some(directory) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        let beside = [directory.join(FILE), directory.join("../lib/coplace").join(FILE)];
        let usable =
            beside.iter().filter_map(|path| path.canonicalize().ok()).find(|path| check_usable(path).is_ok());
        if let Some(path) = usable {
            return Ok(path);
        }
    }
    write_out(EMBEDDED, &caches(home))
}

fn caches(home: &Home) -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    // A guest may not write into root's home, and root's `path` is readable for all.
    cache.map(|path| path.join("coplace")).into_iter().chain([home.path().to_owned()]).collect()
}

fn write_out(bytes: &[u8], directories: &[PathBuf]) -> Result<PathBuf, Absent> {
    if bytes.is_empty() {
        return Err(Absent::NotBuilt);
    }
    let mut tried = Vec::new();
    for directory in directories {
        match write_into(bytes, directory) {
            Ok(path) => return Ok(path),
            Err(why) => tried.push(format!("{}: {why}", directory.display())),
        }
    }
    Err(Absent::NoPlace { tried })
}

fn write_into(bytes: &[u8], directory: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let directory = directory.canonicalize().map_err(|error| error.to_string())?;
    let path = directory.join(format!("libcoplace_preload-{:016x}.so", hash(bytes)));
    let meta = fs::symlink_metadata(&path);
    let is_ours = |meta: &fs::Metadata| meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    // The content is compared, not only its hash's name: the loader will execute it.
    if !(meta.is_ok_and(|meta| is_ours(&meta)) && fs::read(&path).is_ok_and(|there| there == bytes)) {
        replace(bytes, &path).map_err(|error| error.to_string())?;
    }
    check_usable(&path).map(|()| path)
}

fn replace(bytes: &[u8], path: &Path) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The loader complains on a program's stderr about a library that it cannot take, so nothing is
/// given to it that it might not take.
fn check_usable(path: &Path) -> Result<(), String> {
    // LD_PRELOAD is a list; neither separator can be quoted in it.
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n' | b';' | b'$'))
    {
        return Err("its path holds a blank, ':', ';' or '$', which LD_PRELOAD cannot express".into());
    }
    let flags = rustix::fs::statvfs(path).map_err(|error| error.to_string())?.f_flag;
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        return Err("it lies on a file system that is mounted noexec".into());
    }
    let mut header = [0; 20];
    let own =
        io::Read::read_exact(&mut fs::File::open("/proc/self/exe").map_err(|e| e.to_string())?, &mut header)
            .map(|()| header);
    io::Read::read_exact(&mut fs::File::open(path).map_err(|e| e.to_string())?, &mut header)
        .map_err(|error| error.to_string())?;
    match own {
        _ if &header[..4] != b"\x7fELF" => Err("it is not an ELF file".into()),
        // Class, byte order and machine must be those of the programs here, that is, ours.
        Ok(own) if own[4..6] != header[4..6] || own[18..20] != header[18..20] => {
            Err("it was built for another architecture".into())
        }
        _ => check_c_library(path),
    }
}

/// musl's loader takes the names of glibc's libraries for its own, so that a library built against
/// glibc gets into its programs; the other way round glibc's looks for a file of musl's name, and the
/// program does not even start.
fn check_c_library(path: &Path) -> Result<(), String> {
    let needs = |path: &Path| {
        let needed = Binary::read(path).map(|binary| binary.needed).unwrap_or_default();
        needed.into_iter().find(|name| name.starts_with("libc."))
    };
    let is_glibc = |name: &String| name.starts_with("libc.so.");
    // Linked statically, coplace says nothing about the programs here; the shell is one of them.
    let programs = [Path::new("/proc/self/exe"), Path::new("/bin/sh")].into_iter().find_map(needs);
    match (needs(path), programs) {
        (Some(its), Some(theirs)) if is_glibc(&theirs) && !is_glibc(&its) => Err(format!(
            "it was built against another C library ({its}, which is musl's) than the programs here ({theirs})"
        )),
        _ => Ok(()),
    }
}

/// What a program is to have in its environment so that the library is loaded into it and finds
/// `pages`. One of another architecture gets no library, as the loader would complain on its stderr;
/// the variable of the pages stays, because by it a program's processes are recognised. `variable` tells
/// what the program's environment holds, `program` is its file.
pub fn environment<'a>(
    program: &Path,
    library: &Path,
    pages: &Path,
    variable: impl Fn(&str) -> Option<&'a OsStr>,
) -> Vec<(OsString, OsString)> {
    let mut additions = vec![(linux::page::PAGES_VARIABLE.into(), pages.into())];
    let binary = Binary::read(program).ok();
    if binary.as_ref().is_some_and(|binary| binary.obstacle == Some(Obstacle::Architecture)) {
        return additions;
    }
    additions.push(("LD_PRELOAD".into(), appended(variable("LD_PRELOAD"), library)));
    // GCC's address sanitizer ends a program into which any other library is preloaded, unless told
    // not to mind.
    if binary.is_some_and(|binary| binary.has_address_sanitizer()) {
        let mut options = variable("ASAN_OPTIONS").unwrap_or_default().to_owned();
        if !options.is_empty() {
            options.push(":");
        }
        options.push("verify_asan_link_order=0");
        additions.push(("ASAN_OPTIONS".into(), options));
    }
    additions
}

/// The value of LD_PRELOAD with the library after what the user has there.
pub fn appended(present: Option<&OsStr>, library: &Path) -> OsString {
    let mut value = present.unwrap_or_default().to_owned();
    let there = value
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'))
        .any(|one| one == library.as_os_str().as_bytes());
    if there {
        return value;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_behind_the_users_preloads_and_once() {
        let ours = Path::new("/c/lib.so");
        assert_eq!(appended(None, ours), "/c/lib.so");
        assert_eq!(appended(Some(OsStr::new("")), ours), "/c/lib.so");
        let both = appended(Some(OsStr::new("/a.so b.so")), ours);
        assert_eq!(both, "/a.so b.so:/c/lib.so");
        assert_eq!(appended(Some(&both), ours), both);
    }

    #[test]
    fn only_a_suitable_program_gets_the_preload_library() {
        let dir = tempfile::tempdir().unwrap();
        let (library, pages) = (Path::new("/c/lib.so"), Path::new("/p"));
        let names = |additions: Vec<(OsString, OsString)>| -> Vec<OsString> {
            additions.into_iter().map(|(name, _)| name).collect()
        };
        let made = environment(Path::new("/bin/sh"), library, pages, |_| None);
        assert_eq!(names(made), ["COPLACE_PAGES", "LD_PRELOAD"]);
        let other = dir.path().join("other");
        let mut bytes = fs::read("/bin/sh").unwrap();
        bytes[18] ^= 0x55;
        fs::write(&other, bytes).unwrap();
        assert_eq!(names(environment(&other, library, pages, |_| None)), ["COPLACE_PAGES"]);
        // A file that cannot be read is the kernel's business.
        assert_eq!(environment(Path::new("/no/such"), library, pages, |_| None).len(), 2);
    }

    #[test]
    fn address_sanitizer_is_set_to_accept_the_library() {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let built = std::process::Command::new("cc")
            .args(["-fsanitize=address", "-o"])
            .arg(&program)
            .arg(&source)
            .output()
            .unwrap();
        if !built.status.success() {
            coplace_skipped::skipped_here("cc has no address sanitizer");
            return;
        }
        let library = write_out(EMBEDDED, &[dir.path().to_owned()]).unwrap();
        let set = |name: &str| (name == "ASAN_OPTIONS").then(|| OsStr::new("detect_leaks=0"));
        let additions = environment(&program, &library, dir.path(), set);
        assert!(
            additions.contains(&("ASAN_OPTIONS".into(), "detect_leaks=0:verify_asan_link_order=0".into()))
        );
        let made = std::process::Command::new(&program).envs(additions).output().unwrap();
        assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
    }

    #[test]
    fn the_embedded_library_is_written_once_and_mended_when_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let places = [PathBuf::from("/proc/no/such"), dir.path().join("cache")];
        let path = write_out(EMBEDDED, &places).unwrap();
        assert_eq!(fs::read(&path).unwrap(), EMBEDDED);
        let before = fs::metadata(&path).unwrap().ino();
        assert_eq!(write_out(EMBEDDED, &places).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), before);
        fs::write(&path, "damaged").unwrap();
        write_out(EMBEDDED, &places).unwrap();
        assert_eq!(fs::read(&path).unwrap(), EMBEDDED);
        assert_eq!(fs::read_dir(dir.path().join("cache")).unwrap().count(), 1);
    }

    #[test]
    fn a_library_that_the_loader_refuses_is_a_named_absence() {
        let dir = tempfile::tempdir().unwrap();
        let error = write_out(EMBEDDED, &[dir.path().join("a b")]).unwrap_err().to_string();
        assert!(error.contains("blank"), "{error}");
        assert!(matches!(write_out(b"", &[]), Err(Absent::NotBuilt)));
        let other = dir.path().join("other.so");
        fs::write(&other, "not a library at all").unwrap();
        assert!(check_usable(&other).unwrap_err().contains("ELF"));
        let mut foreign = EMBEDDED.to_vec();
        foreign[18] ^= 0x55;
        fs::write(&other, &foreign).unwrap();
        assert!(check_usable(&other).unwrap_err().contains("architecture"));
        assert!(check_usable(&dir.path().join("missing")).is_err());
    }

    /// What the loader says when a program starts with that library.
    fn complaint(library: &Path) -> String {
        let made = std::process::Command::new("true").env("LD_PRELOAD", library).output().unwrap();
        String::from_utf8_lossy(&made.stderr).into_owned()
    }

    #[test]
    fn a_library_of_another_libc_is_refused_before_the_loader() {
        let dir = tempfile::tempdir().unwrap();
        let ours = write_out(EMBEDDED, &[dir.path().to_owned()]).unwrap();
        let needed = Binary::read(&ours).unwrap().needed;
        if !needed.contains(&"libc.so.6".to_owned()) {
            coplace_skipped::skipped_here(format!("this is no machine of glibc's ({needed:?})"));
            return;
        }
        // musl's name instead of glibc's, wherever that stands among the strings.
        let (from, to) = (b"\0libc.so.6\0", b"\0libc.so\0\0\0");
        let mut bytes = EMBEDDED.to_vec();
        let at: Vec<usize> =
            (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
        at.iter().for_each(|at| bytes[*at..*at + to.len()].copy_from_slice(to));
        let forged = dir.path().join("forged.so");
        fs::write(&forged, bytes).unwrap();
        let mut musl = vec![forged];
        let (source, built) = (dir.path().join("p.c"), dir.path().join("built.so"));
        fs::write(&source, "#include <stdlib.h>\nvoid *f(void) { return malloc(1); }").unwrap();
        let mut gcc = std::process::Command::new("musl-gcc");
        match gcc.args(["-shared", "-fPIC", "-o"]).args([&built, &source]).output() {
            Ok(output) if output.status.success() => musl.push(built),
            _ => coplace_skipped::skipped_part(
                "the loader's refusal of a library built by musl-gcc",
                "there is no musl-gcc (apt-get install musl-tools)",
            ),
        }
        for library in musl {
            let why = check_usable(&library).unwrap_err();
            assert!(why.contains("libc.so, which is musl's") && why.contains("libc.so.6"), "{why}");
            assert!(complaint(&library).contains("libc.so"), "the loader minds it no more");
        }
        assert_eq!((check_usable(&ours), complaint(&ours).as_str()), (Ok(()), ""));
    }

    #[test]
    fn the_library_loads_silently_into_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let path = write_out(EMBEDDED, &[dir.path().to_owned()]).unwrap();
        let made = std::process::Command::new("true").env("LD_PRELOAD", &path).output().unwrap();
        assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
    }
}
