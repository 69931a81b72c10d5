//! The world, as one small interface: time, files, processes, threads, and memory that is shared with programs.
//!
//! Everything that coplace does to a machine or learns from it goes through [`Host`], call by call. [`Kernel`] is the
//! Linux kernel below. A test puts a model of a kernel into its thread instead ([`enter`]), and everything that runs in
//! that thread then runs in the model's world and at the model's time: the code of control groups, masks, traces and
//! leases is the same in both.
//!
//! What no test has to model (terminals, starting programs, the counters of the hardware) is not here.

mod kernel;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use memmap2::MmapRaw;
use rustix::event::PollFd;
use rustix::process::Signal;
use topology::{Allowance, CpuSet, Machine};

use crate::clock::Priority;
use crate::procfs::Tid;

pub use kernel::Kernel;

/// What a path leads to; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// A link counts as a link, wherever it leads.
    pub kind: FileKind,
    /// The user that owns it.
    pub uid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Length as the file system states it: 0 for files of `/proc` and of control groups.
    pub bytes: u64,
}

/// The kinds of files that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket, a pipe or a device.
    Other,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// The name alone, without the directory.
    pub name: OsString,
    /// Tells the file from a later one of this name.
    pub inode: u64,
}

/// One file that is kept open.
pub trait OpenFile: std::fmt::Debug + Send {
    /// Fills `bytes` from an offset, or fails.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// One write at the beginning; how much of it was taken.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// A process that cannot come to mean another one.
pub trait OpenProcess: std::fmt::Debug + Send {
    /// Sends a signal to the process; fails with ESRCH once it has ended and been waited for.
    fn send(&self, signal: Signal) -> io::Result<()>;
    /// Waits for its end for at most so long; whether it has ended. A zombie counts as ended.
    fn wait_exit(&self, timeout_ns: u64) -> io::Result<bool>;
    /// Readable when it has ended; `None` in a model.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Held until it is dropped or its process dies.
pub trait Lock: std::fmt::Debug + Send {
    /// What the lock's file holds.
    fn read(&self) -> io::Result<Vec<u8>>;
    /// Gives the lock's file this content in place: who reads it meanwhile may find only a part, or nothing.
    fn replace(&self, bytes: &[u8]) -> io::Result<()>;
}

/// What came of trying to lock.
#[derive(Debug)]
pub enum Locked {
    /// This process has it now.
    Held(Box<dyn Lock>),
    /// Somebody else has it, and left this in the file.
    ByAnother(Vec<u8>),
}

/// A process that this one has started.
pub trait Started: std::fmt::Debug + Send {
    /// Its process id, also after it has ended.
    fn pid(&self) -> u32;
    /// Whether it has ended, without waiting. One that has is reaped.
    fn has_ended(&mut self) -> io::Result<bool>;
}

/// One end of a connection between two processes of this machine.
pub trait Stream: Read + Write + std::fmt::Debug + Send {
    /// How long reading and writing may wait; `None`: for ever, `Some(ZERO)`: not at all.
    fn set_patience(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()>;
    /// The user of the process at the other end when it connected.
    fn peer_uid(&self) -> io::Result<u32>;
    /// For [`Host::poll`]; `None` in a model.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A socket at which other processes of this machine connect.
pub trait Listener: std::fmt::Debug + Send {
    /// The next who connects; `WouldBlock` where nobody does.
    fn accept(&self) -> io::Result<Box<dyn Stream>>;
    /// For [`Host::poll`]; `None` in a model.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A thread of this process.
pub trait Thread: std::fmt::Debug + Send {
    /// Whether it has ended, be it by a panic; does not wait.
    fn is_finished(&self) -> bool;
    /// Waits for its end. One that panicked has said so itself.
    fn join(self: Box<Self>);
}

/// Memory that is shared with whoever else has mapped the same file.
#[derive(Debug)]
pub enum Mapping {
    /// The kernel's: shared, readable and writable.
    File(MmapRaw),
    /// A model's: the words of the whole file.
    Model(Arc<[AtomicU64]>),
}

impl Mapping {
    /// Its first word; aligned for any atomic number.
    pub fn as_ptr(&self) -> *mut u8 {
        match self {
            Mapping::File(map) => map.as_mut_ptr(),
            Mapping::Model(words) => words.as_ptr().cast_mut().cast(),
        }
    }

    /// Its length in bytes, at least what [`Host::map`] was asked for.
    pub fn bytes(&self) -> usize {
        match self {
            Mapping::File(map) => map.len(),
            Mapping::Model(words) => size_of_val(&**words),
        }
    }

    /// One of its words of eight bytes.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!((index + 1) * size_of::<AtomicU64>() <= self.bytes(), "there are not so many words");
        // SAFETY: within the mapping by the assertion, which is aligned to eight bytes at least, lives as long as
        // `self`, and is only ever used through atomics.
        unsafe { AtomicU64::from_ptr(self.as_ptr().cast::<u64>().add(index)) }
    }
}

/// The calls. Paths are absolute; errors are those of the system calls.
pub trait Host {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    fn now_ns(&self) -> u64;
    /// Sleeps until a time of `CLOCK_MONOTONIC` in nanoseconds, through all interruptions.
    fn sleep_until(&self, deadline_ns: u64);

    /// The calling process, by its number in its own pid namespace.
    fn own_pid(&self) -> u32;
    /// The effective user.
    fn own_uid(&self) -> u32;
    /// Of the calling thread.
    fn raise_priority(&self) -> Priority;
    /// Starts a thread of this process. The kernel shows the first 15 bytes of its name.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>>;
    /// Waits until one of these has something, at most so long. It may come back earlier.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout_ns: u64);
    /// CPU time of the calling process.
    fn own_cpu_ns(&self) -> u64;
    /// CPU time of a process with its ended threads; `None` where there is none.
    fn cpu_ns_of(&self, pid: u32) -> Option<u64>;
    /// `sched_getaffinity(2)`: the CPUs, by `os_index`, on which a thread may run (0: the calling one).
    fn affinity(&self, tid: Tid) -> io::Result<CpuSet>;
    /// `sched_setaffinity(2)` on a thread (0: the calling one); EINVAL if it may run on none of these CPUs.
    fn set_affinity(&self, tid: Tid, mask: &CpuSet) -> io::Result<()>;
    /// `kill(2)`, but to one process only: 0, which would mean a group, is ESRCH.
    fn send(&self, pid: u32, signal: Signal) -> io::Result<()>;
    /// `tgkill(2)`; ESRCH if this process has no such thread.
    fn send_to_thread(&self, pid: u32, tid: Tid, signal: Signal) -> io::Result<()>;
    /// `pidfd_open(2)` (Linux 5.3): a handle on the process that has this pid now.
    fn open_process(&self, pid: u32) -> io::Result<Box<dyn OpenProcess>>;
    /// The file that the calling process runs.
    fn own_executable(&self) -> io::Result<PathBuf>;
    /// Starts `coplace guard` for a home, in a session of its own.
    fn start_guard(&self, program: &Path, home: &Path) -> io::Result<Box<dyn Started>>;

    /// The machine as programs find it.
    fn machine(&self) -> Machine;
    /// What of it whoever starts programs may use, with these CPUs at most.
    fn allowance(&self, configured: Option<&CpuSet>) -> io::Result<Allowance>;

    /// Whoever listens at this path.
    fn connect(&self, path: &Path) -> io::Result<Box<dyn Stream>>;
    /// The path must be free.
    fn listen(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Listener>>;

    /// A whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Writes to a file that exists, in one call; how much of it was taken.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<usize>;
    /// Makes a file with this content, or gives one that is there this content. Not whole after a crash.
    fn create(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()>;
    /// Whole or not at all, also in a crash.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// The names in a directory, in any order.
    fn names(&self, directory: &Path) -> io::Result<Vec<Named>>;
    /// What a symbolic link holds, which may be no path at all: `pid:[4026531836]`.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// `lstat(2)`; `NotFound` where nothing is.
    fn inspect(&self, path: &Path) -> io::Result<FileInfo>;
    /// Whether `access(2)` lets this process write there; `false` where nothing is.
    fn may_write(&self, path: &Path) -> bool;
    /// Makes one directory, not those above it; `AlreadyExists` where something is. The umask narrows `mode`.
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Removes an empty directory, or a control group; EBUSY if that has members or groups below it.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// `unlink(2)`: the name goes, and whoever has the file open keeps it.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// A directory with all that is in it.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Opens a file that exists, as it is: for writing only if `writes`, else for reading only.
    fn open(&self, path: &Path, writes: bool) -> io::Result<Box<dyn OpenFile>>;
    /// `None`: it is no plain file, or a shorter one.
    fn map(&self, path: &Path, bytes: usize) -> io::Result<Option<Mapping>>;
    /// Never waits. The file is made where it is missing.
    fn lock(&self, path: &Path, shared: bool) -> io::Result<Locked>;
}

thread_local! {
    static MODEL: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// From now on this thread lives in the model's world; `None`: in this machine's again.
pub fn enter(model: Option<Rc<dyn Host>>) {
    MODEL.with(|current| *current.borrow_mut() = model);
}

/// Does something in the world in which this thread lives.
pub fn with<T>(act: impl FnOnce(&dyn Host) -> T) -> T {
    // A thread that is about to end lives in no model any more.
    let model = MODEL.try_with(|model| model.borrow().clone()).ok().flatten();
    match model {
        Some(model) => act(&*model),
        None => act(&Kernel),
    }
}

/// Whether this thread lives in a model, where a thread that waits must let the others run.
fn is_model() -> bool {
    MODEL.try_with(|model| model.borrow().is_some()).unwrap_or(false)
}

/// Between two looks of a thread in a model at what another one is to do: to let go of a lock, to notify it, to send it
/// something.
const LOCK_PAUSE_NS: u64 = 20_000;
const WAIT_PAUSE_NS: u64 = 1_000_000;
const RECEIVE_PAUSE_NS: u64 = 5_000_000;

fn yield_to_others(pause_ns: u64, until_ns: u64) {
    with(|host| host.sleep_until(until_ns.min(host.now_ns() + pause_ns)));
}

/// What a poisoned mutex guards is taken as it stands: whoever holds it has to go on letting programs go.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) if is_model() => yield_to_others(LOCK_PAUSE_NS, u64::MAX),
            Err(TryLockError::WouldBlock) => return mutex.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Waits until it is notified, or until that time; it may come back earlier.
pub fn wait<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    until_ns: Option<u64>,
) -> MutexGuard<'a, T> {
    if is_model() {
        drop(guard);
        yield_to_others(WAIT_PAUSE_NS, until_ns.unwrap_or(u64::MAX));
        return lock(mutex);
    }
    match until_ns {
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(until_ns) => {
            let left = Duration::from_nanos(until_ns.saturating_sub(with(|host| host.now_ns())));
            condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

/// The next that is sent; `None` when nobody sends any more.
pub fn receive<T>(receiver: &Receiver<T>) -> Option<T> {
    while is_model() {
        match receiver.try_recv() {
            Ok(next) => return Some(next),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => yield_to_others(RECEIVE_PAUSE_NS, u64::MAX),
        }
    }
    receiver.recv().ok()
}

/// Whether there is anything at a path; the last part of it is not followed, so that a link counts wherever it leads.
pub fn exists(path: &Path) -> bool {
    with(|host| host.inspect(path).is_ok())
}

/// Whether a path is a directory; a link to one is not.
pub fn is_directory(path: &Path) -> bool {
    with(|host| host.inspect(path).is_ok_and(|info| info.kind == FileKind::Directory))
}

/// The user by whose rights this process acts.
pub fn own_uid() -> u32 {
    with(|host| host.own_uid())
}

/// The calling process, by its number in its own pid namespace; [`crate::procfs::own_pid`] gives the number
/// that `/proc` shows.
pub fn own_pid() -> u32 {
    with(|host| host.own_pid())
}

/// Replaces a file as a whole: readers see the old one or the new one, also after a crash, and a full disk leaves the
/// old one. `draft` is where it is written first.
pub fn replace(path: &Path, draft: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    with(|host| {
        let written = host.create(draft, bytes, mode).and_then(|()| host.rename(draft, path));
        written.inspect_err(|_| drop(host.remove_file(draft)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_or_stay_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let (path, draft) = (dir.path().join("file"), dir.path().join("draft"));
        replace(&path, &draft, b"one", 0o600).unwrap();
        replace(&path, &draft, b"two", 0o600).unwrap();
        assert_eq!(with(|host| host.read(&path)).unwrap(), b"two");
        std::fs::create_dir(dir.path().join("blocked")).unwrap();
        replace(&dir.path().join("blocked"), &draft, b"three", 0o600).unwrap_err();
        let names = with(|host| host.names(dir.path())).unwrap();
        let mut names: Vec<OsString> = names.into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, ["blocked", "file"]);
    }

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = |shared| with(|host| host.lock(&path, shared)).unwrap();
        let Locked::Held(held) = lock(false) else { panic!("nobody has it") };
        held.replace(b"me").unwrap();
        assert!(matches!(lock(true), Locked::ByAnother(left) if left == b"me"));
        drop(held);
        let (one, two) = (lock(true), lock(true));
        assert!(matches!((&one, &two), (Locked::Held(_), Locked::Held(_))));
        assert!(matches!(lock(false), Locked::ByAnother(_)));
    }

    #[test]
    fn a_mapping_is_the_files_and_too_short_a_file_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        with(|host| {
            host.create(&path, &[0; 16], 0o600).unwrap();
            assert!(host.map(&path, 24).unwrap().is_none());
            let map = host.map(&path, 16).unwrap().unwrap();
            map.word(1).store(u64::from_ne_bytes(*b"abcdefgh"), std::sync::atomic::Ordering::SeqCst);
            assert_eq!(&host.read(&path).unwrap()[8..], b"abcdefgh");
            assert!(host.map(dir.path(), 1).unwrap().is_none());
        });
    }
}
