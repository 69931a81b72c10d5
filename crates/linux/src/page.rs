//! The node's side of the shared pages through which the preload library hears of team sizes and
//! tells what the program does. The layout and its rules are those of `include/coplace/page.h`; a
//! test compares the two.

mod access;
mod directory;
mod name;
mod rigid;

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use serde::{Deserialize, Serialize};

use crate::error::{Absent, Error, Result};
use crate::host;
use crate::procfs::Process;
use crate::root::Root;

use access::{Access, View};
pub use directory::PageDir;
pub use name::{NoPage, Owner, PageName};
pub use rigid::RigidReason;

/// The environment variable that names the directory of pages to the library.
pub const PAGES_VARIABLE: &str = "COPLACE_PAGES";
/// The length of a page's file; a shorter one is still being made.
pub const PAGE_BYTES: usize = 4096;
/// What a page begins with once it is ready: `coplace1` on a little-endian machine.
pub const MAGIC: u64 = 0x3165_6361_6c70_6f63;
/// The version of the layout; a page with another one is not opened ([`Absent`]).
pub const VERSION: u32 = 2;
/// In a page's `resizable`: its user vouches for the program, whatever it loads.
pub const RESIZABLE_BY_WORD: u64 = u64::MAX;
/// Team sizes counted one by one; all larger ones share one more entry.
pub const SIZES: usize = 111;

/// Threads of which it is kept that they chose their CPUs.
const CHOSE_CPUS: usize = 48;

/// Bits of the page's `state`.
pub mod state {
    /// The library is in the process and works.
    pub const LOADED: u32 = 1 << 0;
    /// A runtime is there and has read its CPU mask: from now on the mask may be narrowed.
    pub const RUNTIME_INITIALISED: u32 = 1 << 1;
    /// The runtime binds its threads (`OMP_PROC_BIND`, `OMP_PLACES`).
    pub const BINDS_THREADS: u32 = 1 << 2;
    /// Waiting threads spin far longer than by default (`OMP_WAIT_POLICY=active`, a large `GOMP_SPINCOUNT`).
    pub const SPINS_LONG: u32 = 1 << 3;
    /// The runtime sizes teams by load too (`OMP_DYNAMIC=true`), so the figures of teams are upper bounds.
    pub const RUNTIME_DYNAMIC: u32 = 1 << 4;
    /// The program has run its exit handlers; never set where a signal or `_exit` ended it.
    pub const EXITED: u32 = 1 << 5;
    /// The program, or who started it, chose its CPUs itself (`sched_setaffinity`, `taskset`); exec keeps it.
    pub const SET_OWN_MASK: u32 = 1 << 6;
    /// The program binds its threads to CPUs of the place that it is given, and anew when that changes: this
    /// is no choice of CPUs.
    pub const FOLLOWS_PLACE: u32 = 1 << 7;
}

#[repr(C)]
struct Size {
    regions: AtomicU64,
    ns: AtomicU64,
}

#[repr(C)]
struct Lane {
    now: AtomicU64,
    entered_ns: AtomicU64,
    left_ns: AtomicU64,
    regions: AtomicU64,
    shrunk: AtomicU64,
    resizes: AtomicU64,
    reserved: [AtomicU64; 2],
    size: [Size; SIZES + 1],
}

#[repr(C)]
struct Raw {
    magic: AtomicU64,
    version: AtomicU32,
    bytes: AtomicU32,
    pid: AtomicU32,
    generation: AtomicU32,
    start_time: AtomicU64,
    state: AtomicU32,
    rigid: AtomicU32,
    max_team: AtomicU32,
    requested: AtomicU32,
    nested: AtomicU32,
    applied_seq: AtomicU32,
    runtimes: AtomicU32,
    masters: AtomicU32,
    loaded_ns: AtomicU64,
    procs: AtomicU32,
    loads: AtomicU32,
    reserved_program: [AtomicU32; 12],
    /// `target` and `target_seq`, stored at once so that the program never sees one without the
    /// other.
    node: AtomicU64,
    resizable: AtomicU64,
    reserved_node: [AtomicU32; 12],
    chose_cpus: [AtomicU32; CHOSE_CPUS],
    lane: [Lane; 2],
}

const _: () = assert!(size_of::<Raw>() == PAGE_BYTES);

/// Offset of each field in the page by its name in the header.
#[doc(hidden)]
pub fn layout() -> Vec<(&'static str, usize)> {
    macro_rules! offsets {
        ($($name:ident),*) => { vec![$((stringify!($name), offset_of!(Raw, $name))),*] };
    }
    let mut fields = offsets!(
        magic,
        version,
        bytes,
        pid,
        generation,
        start_time,
        state,
        rigid,
        max_team,
        requested,
        nested,
        applied_seq,
        runtimes,
        masters,
        loaded_ns,
        procs,
        loads,
        resizable,
        lane
    );
    fields.push(("chose_cpus", offset_of!(Raw, chose_cpus)));
    fields.push(("target", offset_of!(Raw, node)));
    fields.push(("target_seq", offset_of!(Raw, node) + 4));
    macro_rules! lane_offsets {
        ($($name:ident),*) => {
            $(fields.push((concat!("lane[1].", stringify!($name)),
                offset_of!(Raw, lane) + size_of::<Lane>() + offset_of!(Lane, $name)));)*
        };
    }
    lane_offsets!(now, entered_ns, left_ns, regions, shrunk, resizes, size);
    fields
}

fn pack(target: u32, seq: u32) -> u64 {
    let (first, second) = (target.to_ne_bytes(), seq.to_ne_bytes());
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first);
    bytes[4..].copy_from_slice(&second);
    u64::from_ne_bytes(bytes)
}

fn unpack(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (half(0), half(4))
}

fn pack_found(loads: u32, generation: u32) -> u64 {
    u64::from(generation.wrapping_add(1)) << 32 | u64::from(loads)
}

/// What ran in teams of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeFigures {
    /// The team size; `SIZES + 1` stands for all larger ones too.
    pub threads: u32,
    /// Outermost regions that have ended.
    pub regions: u64,
    /// Wall-clock time in those regions.
    pub ns: u64,
}

/// One process's page: mapped, or, where it is another user's, read and written by calls.
#[derive(Debug)]
pub struct Page {
    access: Access,
    path: PathBuf,
}

impl Page {
    /// Maps a page of ours; `None` while the library is still making it.
    pub fn open(path: &Path) -> Result<Option<Page>> {
        let error = |e| Error::io("open the page", path, e);
        let mapping = host::with(|host| host.map(path, PAGE_BYTES)).map_err(error)?;
        mapping.map_or(Ok(None), |mapping| Page::of(path, Access::Mapped(mapping)))
    }

    /// The same for a page of that user.
    pub fn open_of(path: &Path, owner: u32) -> Result<Option<Page>> {
        if owner == host::own_uid() {
            return Page::open(path);
        }
        let error = |e| Error::io("open the page", path, e);
        let file = access::open_of(path, owner).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        if !metadata.is_file() || metadata.len() < PAGE_BYTES as u64 {
            return Ok(None);
        }
        Page::of(path, Access::ByCalls(file))
    }

    fn of(path: &Path, access: Access) -> Result<Option<Page>> {
        let page = Page { access, path: path.to_owned() };
        if !page.is_ready() {
            return Ok(None);
        }
        match page.raw().version.load(Ordering::Relaxed) {
            VERSION => Ok(Some(page)),
            other => Err(Absent::new(
                format!("the page {}", path.display()),
                format!("it has version {other}, this program speaks version {VERSION}"),
                "use the preload library of the same release",
            )
            .into()),
        }
    }

    fn raw(&self) -> View<'_> {
        self.access.view()
    }

    /// The page's file, named after the process ([`PageName`]) or `default`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False for a moment while the program replaces itself (exec).
    pub fn is_ready(&self) -> bool {
        self.raw().magic.load(Ordering::Acquire) == MAGIC
    }

    /// Whose page it is, among these who live.
    pub fn owner(&self, living: &[Process], root: &Root) -> Owner {
        let name = self.path.file_name().and_then(|name| name.to_str()?.parse::<PageName>().ok());
        name.map_or(Owner::Nobody, |name| name::owner(name, self.process().start_time_ticks, living, root))
    }

    /// The process that the page belongs to, or belonged to, with the number that it has in its own PID
    /// namespace.
    pub fn process(&self) -> Process {
        let raw = self.raw();
        Process {
            pid: raw.pid.load(Ordering::Relaxed),
            start_time_ticks: raw.start_time.load(Ordering::Relaxed),
        }
    }

    /// How many times exec has started the page anew.
    pub fn generation(&self) -> u32 {
        self.raw().generation.load(Ordering::Relaxed)
    }

    /// The team size that we wish; 0 = no wish.
    pub fn target(&self) -> u32 {
        unpack(self.raw().node.load(Ordering::Relaxed)).0
    }

    /// The number of the latest wish, raised by one with each, wrapping; [`Page::applied_seq`] tells which
    /// one is followed.
    pub fn target_seq(&self) -> u32 {
        unpack(self.raw().node.load(Ordering::Relaxed)).1
    }

    /// Wishes for teams of `target` threads (0: no wish) and returns the wish's number. What
    /// [`Page::running`] says afterwards was read behind a full barrier, as the header requires.
    pub fn set_target(&self, target: u32) -> u32 {
        let raw = self.raw();
        let seq = unpack(raw.node.load(Ordering::Relaxed)).1.wrapping_add(1);
        let word = pack(target, seq);
        match &self.access {
            Access::Mapped(_) => raw.node.store(word, Ordering::SeqCst),
            // One that was cut short, or whose file system is full, has no wish: it keeps its threads, as one
            // that does not listen.
            Access::ByCalls(file) => {
                let _ = file.write_all_at(&word.to_ne_bytes(), offset_of!(Raw, node) as u64);
            }
        }
        fence(Ordering::SeqCst);
        seq
    }

    /// How often the program has loaded or unloaded objects.
    pub fn loads(&self) -> u32 {
        self.raw().loads.load(Ordering::Acquire)
    }

    /// Whether regions of it may get fewer threads than they ask for, as far as the node's word goes. (In C:
    /// `coplace_page_may_resize`.)
    pub fn may_resize(&self) -> bool {
        let raw = self.raw();
        let word = raw.resizable.load(Ordering::Acquire);
        let now = pack_found(raw.loads.load(Ordering::Relaxed), raw.generation.load(Ordering::Relaxed));
        word == RESIZABLE_BY_WORD || word == now
    }

    /// Says that it was found to compute the same with fewer threads, with what it had loaded then.
    pub fn set_resizable(&self, loads: u32, generation: u32) {
        self.store_resizable(pack_found(loads, generation));
    }

    /// Takes the user's word for it.
    pub fn set_resizable_by_user(&self) {
        self.store_resizable(RESIZABLE_BY_WORD);
    }

    /// Says that it may not be resized, or not any more: from its next region on it gets all the threads that
    /// it asks for.
    pub fn set_not_resizable(&self) {
        self.store_resizable(0);
    }

    fn store_resizable(&self, word: u64) {
        match &self.access {
            Access::Mapped(_) => self.raw().resizable.store(word, Ordering::SeqCst),
            // One that was cut short keeps its threads.
            Access::ByCalls(file) => {
                let _ = file.write_all_at(&word.to_ne_bytes(), offset_of!(Raw, resizable) as u64);
            }
        }
    }

    /// The number of the wish under which the latest outermost region was sized.
    pub fn applied_seq(&self) -> u32 {
        self.raw().applied_seq.load(Ordering::Acquire)
    }

    /// Threads that run in parallel regions now, nested ones included; 0 between regions. (In C:
    /// `coplace_page_running`.)
    pub fn running(&self) -> u32 {
        let raw = self.raw();
        let now = |lane: &Lane| lane.now.load(Ordering::SeqCst);
        let (first, others) = (now(&raw.lane[0]), now(&raw.lane[1]));
        let first = if first >> 32 == 0 { 0 } else { first as u32 };
        first.saturating_add(others as u32).saturating_add(raw.nested.load(Ordering::SeqCst))
    }

    /// The same, but between regions the size of the last team of the first thread that starts
    /// teams (0 before the first): its threads may still wait, spinning. (In C:
    /// `coplace_page_team`.)
    pub fn team(&self) -> u32 {
        match self.running() {
            0 => self.raw().lane[0].now.load(Ordering::SeqCst) as u32,
            running => running,
        }
    }

    /// Whether an outermost region runs now. (In C: `coplace_page_in_region`.)
    pub fn is_in_region(&self) -> bool {
        self.raw().lane.iter().any(|lane| lane.now.load(Ordering::Acquire) >> 32 != 0)
    }

    /// Whether the program's threads are down to the target, so that CPUs beyond it may be taken
    /// away: it can shrink, and what runs now fits.
    pub fn fits_target(&self) -> bool {
        let target = self.target();
        // What waits between regions sleeps soon, unless it was told to spin on.
        let threads = if self.has(state::SPINS_LONG) { self.team() } else { self.running() };
        target != 0 && self.rigid_bits() == 0 && threads <= target
    }

    /// Threads whose CPUs the program chose itself by a call.
    pub fn bound_threads(&self) -> BTreeSet<u32> {
        let raw = self.raw();
        raw.chose_cpus.iter().map(|tid| tid.load(Ordering::Relaxed)).filter(|tid| *tid != 0).collect()
    }

    /// The greatest number that `omp_get_max_threads` ever told the program; 0 = none yet.
    pub fn max_team(&self) -> u32 {
        self.raw().max_team.load(Ordering::Relaxed)
    }

    /// The team that the latest outermost region would have got without us.
    pub fn requested(&self) -> u32 {
        self.raw().requested.load(Ordering::Relaxed)
    }

    /// `omp_get_num_procs()` when the runtime was found; 0 = none yet.
    pub fn procs(&self) -> u32 {
        self.raw().procs.load(Ordering::Relaxed)
    }

    /// Distinct OpenMP runtimes in the process.
    pub fn runtimes(&self) -> u32 {
        self.raw().runtimes.load(Ordering::Relaxed)
    }

    /// Threads that ever started an outermost region.
    pub fn masters(&self) -> u32 {
        self.raw().masters.load(Ordering::Relaxed)
    }

    /// The bits of [`state`].
    pub fn state(&self) -> u32 {
        self.raw().state.load(Ordering::Acquire)
    }

    /// Whether a bit of [`state`] is set; of several, any of them.
    pub fn has(&self, bit: u32) -> bool {
        self.state() & bit != 0
    }

    /// The reasons of [`Page::rigid`] as the library's own bits (`COPLACE_RIGID_…`); 0 = none.
    pub fn rigid_bits(&self) -> u32 {
        self.raw().rigid.load(Ordering::Acquire)
    }

    /// Why the program cannot be resized; empty = it can.
    pub fn rigid(&self) -> Vec<RigidReason> {
        RigidReason::of(self.rigid_bits())
    }

    fn sum(&self, figure: impl Fn(&Lane) -> &AtomicU64) -> u64 {
        sum(&self.raw(), figure)
    }

    /// Outermost regions entered.
    pub fn regions(&self) -> u64 {
        self.sum(|lane| &lane.regions)
    }

    /// Of these: given fewer threads than the program would have got.
    pub fn shrunk(&self) -> u64 {
        self.sum(|lane| &lane.shrunk)
    }

    /// Of these: given, by our doing, another size than the one before.
    pub fn resizes(&self) -> u64 {
        self.sum(|lane| &lane.resizes)
    }

    /// `CLOCK_MONOTONIC` at the latest entry of a region; 0 = never.
    pub fn entered_ns(&self) -> u64 {
        self.raw().lane.iter().map(|lane| lane.entered_ns.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// `CLOCK_MONOTONIC` at the latest exit of a region; 0 = never.
    pub fn left_ns(&self) -> u64 {
        self.raw().lane.iter().map(|lane| lane.left_ns.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// `CLOCK_MONOTONIC` when the page was made.
    pub fn loaded_ns(&self) -> u64 {
        self.raw().loaded_ns.load(Ordering::Relaxed)
    }

    /// Regions and time by team size; sizes that never ran are left out.
    pub fn sizes(&self) -> Vec<SizeFigures> {
        let raw = self.raw();
        let figures = |index: usize| SizeFigures {
            threads: index as u32 + 1,
            regions: sum(&raw, |lane| &lane.size[index].regions),
            ns: sum(&raw, |lane| &lane.size[index].ns),
        };
        (0..=SIZES).map(figures).filter(|figures| figures.regions != 0).collect()
    }
}

fn sum(raw: &Raw, figure: impl Fn(&Lane) -> &AtomicU64) -> u64 {
    raw.lane.iter().map(|lane| figure(lane).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
}
