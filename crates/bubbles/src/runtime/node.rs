//! Following the node: a program under coplace has a page (`include/coplace/page.h`), on which the node says
//! how many threads it is to have, and the program how many run. Our workers are those threads; a run is
//! one long parallel region, whose team changes while it lasts.

use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use topology::CpuSet;

use super::pool::Lists;

/// How often the page is looked at: well within any slice that the node gives.
const LOOK: Duration = Duration::from_millis(5);
const MAGIC: u64 = 0x3165_6361_6c70_6f63;
const VERSION: u32 = 1;
const BYTES: usize = 4096;
const RUNTIME_INITIALISED: u32 = 1 << 1;

/// The beginning of the page, as far as a program of bubbles has to do with it.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    version: AtomicU32,
    _bytes: AtomicU32,
    pid: AtomicU32,
    _generation: AtomicU32,
    _start_time: AtomicU64,
    state: AtomicU32,
    _rigid: AtomicU32,
    told: AtomicU32,
    requested: AtomicU32,
    _nested: AtomicU32,
    applied_seq: AtomicU32,
    runtimes: AtomicU32,
    masters: AtomicU32,
    _loaded_ns: AtomicU64,
    procs: AtomicU32,
    _reserved_program: [AtomicU32; 13],
    target: AtomicU32,
    target_seq: AtomicU32,
    _reserved_node: [AtomicU32; 14],
    _reserved: [AtomicU64; 24],
    /// Of the first lane.
    now: AtomicU64,
    _entered_ns: AtomicU64,
    _left_ns: AtomicU64,
    regions: AtomicU64,
}

const _: () = assert!(offset_of!(Page, target) == 128 && offset_of!(Page, now) == 384);

/// The page of this process.
pub(crate) struct Node {
    page: &'static Page,
    directory: PathBuf,
}

/// The node's page for this process, where it has one.
pub(crate) fn find() -> Option<Node> {
    let directory = PathBuf::from(std::env::var_os("COPLACE_PAGES")?);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(std::process::id().to_string()))
        .ok()?;
    if file.metadata().ok()?.len() < BYTES as u64 {
        return None;
    }
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of a file that is long enough; it stays for good.
    let page = unsafe {
        let at = libc::mmap(ptr::null_mut(), BYTES, access, shared, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        &*at.cast::<Page>()
    };
    let ours = page.magic.load(Ordering::Acquire) == MAGIC
        && page.version.load(Ordering::Relaxed) == VERSION
        && page.pid.load(Ordering::Relaxed) == std::process::id();
    ours.then_some(Node { page, directory })
}

/// The processors that this kernel thread is let use now. Asked of the kernel itself: the preload library
/// stands between us and the C library.
fn allowed() -> CpuSet {
    let mut bits = [0_u64; 16];
    // SAFETY: the kernel writes no more than the array has.
    let bytes =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&bits), bits.as_mut_ptr()) };
    set(&bits[..usize::try_from(bytes).unwrap_or(0) / 8])
}

fn set(bits: &[u64]) -> CpuSet {
    let is_set = |cpu: &u32| bits[*cpu as usize / 64] >> (cpu % 64) & 1 == 1;
    (0..64 * bits.len() as u32).filter(is_set).collect()
}

impl Node {
    /// The processors that the program had before the node gave it a place: the widest that it may get.
    pub fn processors(&self) -> Option<CpuSet> {
        let bytes = std::fs::read(self.directory.join("cpus")).ok()?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight")));
        Some(set(&words.collect::<Vec<_>>())).filter(|cpus| !cpus.is_empty())
    }

    fn publish(&self, running: usize) {
        let region = u64::from(running > 0) << 32;
        let now = region | running as u64;
        if self.page.now.load(Ordering::Relaxed) != now {
            self.page.now.swap(now, Ordering::SeqCst);
        }
    }

    fn target(&self, width: usize) -> usize {
        match self.page.target.load(Ordering::SeqCst) as usize {
            0 => width,
            target => target.min(width),
        }
    }

    /// Tells the node that there is a team now that can be resized.
    pub fn begin(&self, width: usize) {
        let page = self.page;
        page.runtimes.fetch_max(1, Ordering::Relaxed);
        page.masters.fetch_max(1, Ordering::Relaxed);
        page.told.fetch_max(width as u32, Ordering::Relaxed);
        page.requested.store(width as u32, Ordering::Relaxed);
        page.procs.fetch_max(width as u32, Ordering::Relaxed);
        page.regions.fetch_add(1, Ordering::Relaxed);
        self.publish(width);
        page.state.fetch_or(RUNTIME_INITIALISED, Ordering::Release);
    }

    /// Takes processors away and gives them back as the node wishes, until the run is over.
    pub fn follow(&self, lists: &'static Lists) {
        let width = lists.levels().width();
        let mut in_use = vec![true; width];
        while !lists.world.is_over() {
            let wanted = self.wanted(lists, &in_use);
            if wanted != in_use {
                let more = wanted.iter().filter(|&&used| used).count();
                // Said before it is so. Who wished for fewer meanwhile has not seen it and is to be obeyed.
                self.publish(more.max(self.running(lists)));
                if self.target(width) >= more {
                    super::use_processors(lists, &|at| wanted[at]);
                    in_use = wanted;
                }
            }
            self.page.applied_seq.store(self.page.target_seq.load(Ordering::Relaxed), Ordering::Release);
            self.publish(self.running(lists));
            std::thread::park_timeout(LOOK);
        }
        self.publish(0);
    }

    /// Which processors are to be used: as many as the node wishes, those first that it lets us use and that
    /// are in use already.
    fn wanted(&self, lists: &Lists, in_use: &[bool]) -> Vec<bool> {
        let (levels, allowed) = (lists.levels(), allowed());
        let mut order: Vec<usize> = (0..in_use.len()).collect();
        order.sort_by_key(|&at| (!allowed.contains(levels.cpu(at)), !in_use[at], at));
        let mut wanted = vec![false; in_use.len()];
        for &at in &order[..self.target(in_use.len()).max(1)] {
            wanted[at] = true;
        }
        wanted
    }

    /// Workers that run threads or may begin to at any moment.
    fn running(&self, lists: &Lists) -> usize {
        let runs = |worker: &&super::worker::Worker| {
            !worker.retired.load(Ordering::SeqCst) || worker.runs().is_some()
        };
        lists.world.workers.iter().filter(runs).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_laid_out_as_its_header_says() {
        let fields = [
            ("version", offset_of!(Page, version)),
            ("pid", offset_of!(Page, pid)),
            ("state", offset_of!(Page, state)),
            ("told", offset_of!(Page, told)),
            ("requested", offset_of!(Page, requested)),
            ("applied_seq", offset_of!(Page, applied_seq)),
            ("runtimes", offset_of!(Page, runtimes)),
            ("masters", offset_of!(Page, masters)),
            ("procs", offset_of!(Page, procs)),
            ("target", offset_of!(Page, target)),
            ("target_seq", offset_of!(Page, target_seq)),
            ("lane[0].now", offset_of!(Page, now)),
            ("lane[0].regions", offset_of!(Page, regions)),
        ];
        let same = |(name, offset): &(&str, usize)| {
            format!(
                "_Static_assert(__builtin_offsetof(struct coplace_page, {name}) == {offset}, \"{name}\");\n"
            )
        };
        let mut source = String::from("#include <coplace/page.h>\n");
        fields.iter().for_each(|field| source += &same(field));
        source += &format!(
            "_Static_assert(COPLACE_PAGE_MAGIC == {MAGIC}ull && COPLACE_PAGE_VERSION == {VERSION}, \"page\");\n\
             _Static_assert(COPLACE_STATE_RUNTIME_INITIALISED == {RUNTIME_INITIALISED}, \"state\");\n"
        );
        let path = std::env::temp_dir().join(format!("coplace-page-{}.c", std::process::id()));
        std::fs::write(&path, source).expect("it can be written");
        let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
        let output = std::process::Command::new(cc).args(["-fsyntax-only", include]).arg(&path).output();
        std::fs::remove_file(&path).expect("it is there");
        let output = output.expect("a C compiler, which the project needs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
