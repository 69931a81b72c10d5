//! The program's page, by which it and a coplace node speak (`include/coplace/page.h`).
//!
//! The preload library makes it where it is loaded; otherwise it is made here. A run is one parallel region
//! to the node, counted in lane 1, which all may write to by atomic addition, so that OpenMP's regions and the
//! library's own figures stand beside it undisturbed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const BYTES: usize = 4096;
const MAGIC: u64 = 0x3165_6361_6c70_6f63;
const VERSION: u32 = 2;
/// Bits of `state`.
const LOADED: u32 = 1 << 0;
const RUNTIME_INITIALISED: u32 = 1 << 1;
const SET_OWN_MASK: u32 = 1 << 6;
const FOLLOWS_PLACE: u32 = 1 << 7;

/// Where the header has its fields.
mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const BYTES: usize = 12;
    pub const PID: usize = 16;
    pub const START_TIME: usize = 24;
    pub const STATE: usize = 32;
    pub const MAX_TEAM: usize = 40;
    pub const APPLIED_SEQ: usize = 52;
    pub const RUNTIMES: usize = 56;
    pub const MASTERS: usize = 60;
    pub const LOADED_NS: usize = 64;
    pub const PROCS: usize = 72;
    pub const TARGET: usize = 128;
    pub const TARGET_SEQ: usize = 132;
    const LANE_1: usize = 2240;
    pub const NOW: usize = LANE_1;
    pub const ENTERED_NS: usize = LANE_1 + 8;
    pub const LEFT_NS: usize = LANE_1 + 16;
    pub const REGIONS: usize = LANE_1 + 24;
    pub const SHRUNK: usize = LANE_1 + 32;
    pub const RESIZES: usize = LANE_1 + 40;
}

/// What the node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Processors; 0: it wishes nothing.
    pub target: usize,
    pub number: u32,
}

/// The page of this process, mapped for as long as it is kept.
pub(crate) struct Page {
    start: NonNull<u8>,
    directory: PathBuf,
}

// SAFETY: what is mapped is only used by atomic operations.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// The page of this process in the directory that the environment names; `None` without one, and where
    /// it cannot be had: then the program runs as if there were no node.
    pub fn of_this_process() -> Option<Page> {
        let directory = directory(std::env::var_os("COPLACE_PAGES")?)?;
        Page::open(directory, std::process::id(), start_time()?).ok().flatten()
    }

    /// `None` where a page is there that is not this process's to write to.
    fn open(directory: PathBuf, pid: u32, start_time: u64) -> io::Result<Option<Page>> {
        let path = directory.join(file_name(pid));
        let mut how = OpenOptions::new();
        how.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let (file, is_new) = match how.open(&path) {
            Ok(file) => (file, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (how.create_new(true).open(&path)?, true)
            }
            Err(error) => return Err(error),
        };
        if is_new && let Err(error) = fill(&file, &directory, pid, start_time) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        if file.metadata()?.size() != BYTES as u64 {
            return Ok(None);
        }
        // SAFETY: a new mapping of a file of that size; `file` is open.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = Page { start: NonNull::new(start.cast()).expect("nothing is mapped at 0"), directory };
        if is_new {
            page.long(at::MAGIC).store(MAGIC, Ordering::Release);
        }
        let is_ours = page.long(at::MAGIC).load(Ordering::Acquire) == MAGIC
            && page.word(at::VERSION).load(Ordering::Relaxed) == VERSION
            && page.word(at::PID).load(Ordering::Relaxed) == pid
            && page.long(at::START_TIME).load(Ordering::Relaxed) == start_time;
        Ok(is_ours.then_some(page))
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset < BYTES);
        // SAFETY: within the mapping, aligned, and only used atomically by whoever maps it.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < BYTES);
        // SAFETY: as above.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    pub fn wish(&self) -> Wish {
        let number = self.word(at::TARGET_SEQ).load(Ordering::SeqCst);
        Wish { target: self.word(at::TARGET).load(Ordering::SeqCst) as usize, number }
    }

    /// A run begins, on as many processors.
    pub fn begin(&self, width: usize) {
        let width = width as u32;
        self.word(at::MAX_TEAM).fetch_max(width, Ordering::Relaxed);
        self.word(at::PROCS).fetch_max(width, Ordering::Relaxed);
        self.word(at::RUNTIMES).fetch_add(1, Ordering::Relaxed);
        self.word(at::MASTERS).fetch_add(1, Ordering::Relaxed);
        self.long(at::REGIONS).fetch_add(1, Ordering::Relaxed);
        self.long(at::ENTERED_NS).store(monotonic_ns(), Ordering::Relaxed);
        self.long(at::NOW).fetch_add(1 << 32 | u64::from(width), Ordering::SeqCst);
        self.word(at::STATE).fetch_or(RUNTIME_INITIALISED | FOLLOWS_PLACE, Ordering::SeqCst);
    }

    /// Processors on which something runs: `from` until now, `to` from now on.
    pub fn runs_on(&self, from: usize, to: usize) {
        self.long(at::NOW).fetch_add((to as u64).wrapping_sub(from as u64), Ordering::SeqCst);
    }

    /// This wish is in force; it changed what is used, perhaps to less than all.
    pub fn applied(&self, wish: Wish, changed: bool, shrunk: bool) {
        self.long(at::RESIZES).fetch_add(u64::from(changed), Ordering::Relaxed);
        self.long(at::SHRUNK).fetch_add(u64::from(changed && shrunk), Ordering::Relaxed);
        self.word(at::APPLIED_SEQ).store(wish.number, Ordering::Release);
    }

    /// The run is over, `last` processors having been in use.
    pub fn end(&self, last: usize) {
        self.long(at::NOW).fetch_sub(1 << 32 | last as u64, Ordering::SeqCst);
        self.long(at::LEFT_NS).store(monotonic_ns(), Ordering::Relaxed);
        self.word(at::RUNTIMES).fetch_sub(1, Ordering::Relaxed);
        let _ = fs::remove_file(self.tree_path());
    }

    /// What the program could use before the node confined it, as its first process left it for us; `None`
    /// where that is not known, or the program chose its CPUs itself.
    pub fn widest(&self) -> Option<Vec<u32>> {
        if self.word(at::STATE).load(Ordering::Relaxed) & SET_OWN_MASK != 0 {
            return None;
        }
        let bytes = fs::read(self.directory.join("cpus")).ok()?;
        let is_set = |cpu: &u32| bytes[*cpu as usize / 8] & 1 << (cpu % 8) != 0;
        Some((0..8 * bytes.len() as u32).filter(is_set).collect())
    }

    fn tree_path(&self) -> PathBuf {
        self.directory.join(format!("{}.bubbles", file_name(self.word(at::PID).load(Ordering::Relaxed))))
    }

    /// Leaves the tree of bubbles where the node finds it, whole at any time.
    pub fn write_tree(&self, text: &str) -> io::Result<()> {
        let path = self.tree_path();
        let draft = path.with_extension("draft");
        let mut how = OpenOptions::new();
        how.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        how.open(&draft)?.write_all(text.as_bytes())?;
        fs::rename(draft, path)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
    }
}

/// A relative path would mean another directory after the program's next change of directory.
fn directory(named: OsString) -> Option<PathBuf> {
    let directory = PathBuf::from(named);
    (directory.is_absolute() && directory.is_dir()).then_some(directory)
}

/// The PID namespace that every machine begins with.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// As the preload library names it: many containers have a process 2.
fn file_name(pid: u32) -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let number = link.to_str().and_then(|text| text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    match number.unwrap_or(FIRST_PID_NAMESPACE) {
        FIRST_PID_NAMESPACE => pid.to_string(),
        namespace => format!("{pid}-{namespace}"),
    }
}

/// All of a new page but its magic: the wish that processes begin with among it.
fn fill(mut file: &File, directory: &Path, pid: u32, start_time: u64) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(at::VERSION, &VERSION.to_ne_bytes());
    put(at::BYTES, &(BYTES as u32).to_ne_bytes());
    put(at::PID, &pid.to_ne_bytes());
    put(at::START_TIME, &start_time.to_ne_bytes());
    put(at::STATE, &LOADED.to_ne_bytes());
    put(at::LOADED_NS, &monotonic_ns().to_ne_bytes());
    let first = fs::read(directory.join("default")).unwrap_or_default();
    if first.len() == BYTES && first[..8] == MAGIC.to_ne_bytes() && first[8..12] == VERSION.to_ne_bytes() {
        put(at::TARGET, &first[at::TARGET..at::TARGET + 4]);
    }
    file.write_all(&bytes)
}

/// Field 22 of /proc/self/stat. The name in field 2 may hold blanks and brackets.
fn start_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(19)?.parse().ok()
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written by the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_node_expects_them() {
        let ours = [
            ("magic", at::MAGIC),
            ("version", at::VERSION),
            ("bytes", at::BYTES),
            ("pid", at::PID),
            ("start_time", at::START_TIME),
            ("state", at::STATE),
            ("max_team", at::MAX_TEAM),
            ("applied_seq", at::APPLIED_SEQ),
            ("runtimes", at::RUNTIMES),
            ("masters", at::MASTERS),
            ("loaded_ns", at::LOADED_NS),
            ("procs", at::PROCS),
            ("target", at::TARGET),
            ("target_seq", at::TARGET_SEQ),
            ("lane[1].now", at::NOW),
            ("lane[1].entered_ns", at::ENTERED_NS),
            ("lane[1].left_ns", at::LEFT_NS),
            ("lane[1].regions", at::REGIONS),
            ("lane[1].shrunk", at::SHRUNK),
            ("lane[1].resizes", at::RESIZES),
        ];
        let nodes = linux::page::layout();
        for field in ours {
            assert!(nodes.contains(&field), "{field:?} is not in {nodes:?}");
        }
        assert_eq!((linux::page::MAGIC, linux::page::VERSION), (MAGIC, VERSION));
    }

    #[test]
    fn the_page_carries_figures_to_the_node_and_wishes_back() {
        let home = tempfile::tempdir().unwrap();
        let (pid, started) = (std::process::id(), start_time().unwrap());
        let pages = linux::page::PageDir::create(home.path().join("pages"), 3, false).unwrap();
        let ours = Page::open(pages.path().to_owned(), pid, started).unwrap().unwrap();
        let name = linux::page::PageName::of(pid, &linux::Root::live());
        let nodes = pages.page(name).unwrap().unwrap();
        assert_eq!((ours.wish().target, nodes.process().start_time_ticks), (3, started));
        assert!(!nodes.has(linux::page::state::RUNTIME_INITIALISED));

        ours.begin(8);
        assert_eq!((nodes.max_team(), nodes.procs(), nodes.running(), nodes.masters()), (8, 8, 8, 1));
        assert!(nodes.is_in_region() && nodes.has(linux::page::state::RUNTIME_INITIALISED));
        let number = nodes.set_target(2);
        assert_eq!(ours.wish(), Wish { target: 2, number });
        assert!(!nodes.fits_target());
        ours.runs_on(8, 2);
        ours.applied(ours.wish(), true, true);
        assert!(nodes.fits_target());
        assert_eq!((nodes.applied_seq(), nodes.resizes(), nodes.shrunk()), (number, 1, 1));

        ours.write_tree("a tree\n").unwrap();
        let tree = pages.path().join(format!("{name}.bubbles"));
        assert_eq!(fs::read_to_string(&tree).unwrap(), "a tree\n");
        // A second run beside OpenMP, or after the first, takes the same page.
        let again = Page::open(pages.path().to_owned(), pid, started).unwrap().unwrap();
        assert_eq!(again.wish().number, number);
        ours.end(2);
        assert!(!nodes.is_in_region() && nodes.running() == 0 && !tree.exists());
        // That of a process which had our number before is not touched.
        assert!(Page::open(pages.path().to_owned(), pid, started + 1).unwrap().is_none());
    }
}
