//! The world of this machine: system calls.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use memmap2::MmapOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use topology::{Allowance, CpuSet, MAX_CPUS, Machine};

use super::{
    FileInfo, FileKind, Host, Listener, Lock, Locked, Mapping, Named, OpenFile, OpenProcess, Started, Stream,
    Thread,
};
use crate::clock::{self, Priority};
use crate::procfs::Tid;

const BITS: usize = libc::c_ulong::BITS as usize;

/// Files are read whole; of a longer one no more than this and a byte.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The Linux kernel of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

impl OpenFile for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        FileExt::write_at(self, bytes, 0)
    }
}

#[derive(Debug)]
struct Handle(OwnedFd);

impl OpenProcess for Handle {
    fn send(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }

    fn wait_exit(&self, timeout_ns: u64) -> io::Result<bool> {
        let deadline_ns = clock::now_ns().saturating_add(timeout_ns);
        loop {
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            let left = Timespec {
                tv_sec: (left_ns / 1_000_000_000).min(i32::MAX as u64) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as _,
            };
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Ok(ended) => return Ok(ended > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[derive(Debug)]
struct FileLock(File);

impl Lock for FileLock {
    fn read(&self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut file) = (Vec::new(), &self.0);
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.0;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(bytes)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone would leave it to a child that is between fork and exec.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Started for Child {
    fn pid(&self) -> u32 {
        self.id()
    }

    fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.try_wait()?.is_some())
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        let never = [read, write].contains(&Some(Duration::ZERO));
        self.set_nonblocking(never)?;
        if !never {
            self.set_read_timeout(read)?;
            self.set_write_timeout(write)?;
        }
        Ok(())
    }

    fn peer_uid(&self) -> io::Result<u32> {
        Ok(socket_peercred(self)?.uid.as_raw())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(AsFd::as_fd(self))
    }
}

impl Listener for UnixListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(UnixListener::accept(self)?.0))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(AsFd::as_fd(self))
    }
}

impl Thread for JoinHandle<()> {
    fn is_finished(&self) -> bool {
        JoinHandle::is_finished(self)
    }

    fn join(self: Box<Self>) {
        let _ = JoinHandle::join(*self);
    }
}

/// Zero and negative numbers mean groups to kill(2): never lets them through.
fn positive(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

fn result(rc: libc::c_long) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Host for Kernel {
    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn sleep_until(&self, deadline_ns: u64) {
        clock::sleep_on_monotonic(deadline_ns);
    }

    fn own_pid(&self) -> u32 {
        std::process::id()
    }

    fn own_uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn raise_priority(&self) -> Priority {
        clock::raise_own_priority()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
        Ok(Box::new(std::thread::Builder::new().name(name.to_owned()).spawn(body)?))
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout_ns: u64) {
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000).min(i32::MAX as u64) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as _,
        };
        // An interrupted or failed poll only means looking a little earlier.
        let _ = poll(fds, Some(&timeout));
    }

    fn own_cpu_ns(&self) -> u64 {
        clock::process_cpu_clock_ns()
    }

    fn cpu_ns_of(&self, pid: u32) -> Option<u64> {
        clock::cpu_clock_ns_of(pid)
    }

    fn affinity(&self, tid: Tid) -> io::Result<CpuSet> {
        // The kernel refuses a buffer shorter than its own masks, whose length it does not tell.
        let mut words = vec![0 as libc::c_ulong; 1024 / BITS];
        loop {
            // SAFETY: the buffer is `size_of_val` bytes long and outlives the call, which fills at most
            // that many bytes of it.
            let length = unsafe {
                libc::syscall(
                    libc::SYS_sched_getaffinity,
                    tid as libc::pid_t,
                    size_of_val(words.as_slice()),
                    words.as_mut_ptr(),
                )
            };
            if length >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) || words.len() * BITS >= MAX_CPUS as usize {
                return Err(error);
            }
            words.resize(words.len() * 2, 0);
        }
        let cpus = (0..words.len() * BITS).filter(|cpu| words[cpu / BITS] >> (cpu % BITS) & 1 == 1);
        Ok(cpus.map(|cpu| cpu as u32).collect())
    }

    fn set_affinity(&self, tid: Tid, mask: &CpuSet) -> io::Result<()> {
        let length = mask.iter().last().map_or(0, |cpu| cpu as usize / BITS + 1);
        let mut words = vec![0 as libc::c_ulong; length.max(1)];
        for cpu in mask.iter() {
            words[cpu as usize / BITS] |= 1 << (cpu as usize % BITS);
        }
        // SAFETY: the buffer is `size_of_val` bytes long, outlives the call and is only read.
        result(unsafe {
            libc::syscall(
                libc::SYS_sched_setaffinity,
                tid as libc::pid_t,
                size_of_val(words.as_slice()),
                words.as_ptr(),
            )
        })
    }

    fn send(&self, pid: u32, signal: Signal) -> io::Result<()> {
        Ok(kill_process(positive(pid)?, signal)?)
    }

    fn send_to_thread(&self, pid: u32, tid: Tid, signal: Signal) -> io::Result<()> {
        let (pid, tid) = (positive(pid)?, positive(tid)?);
        // SAFETY: takes numbers only.
        result(unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                pid.as_raw_nonzero().get(),
                tid.as_raw_nonzero().get(),
                signal.as_raw(),
            )
        })
    }

    fn open_process(&self, pid: u32) -> io::Result<Box<dyn OpenProcess>> {
        Ok(Box::new(Handle(pidfd_open(positive(pid)?, PidfdFlags::empty())?)))
    }

    fn own_executable(&self) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    fn start_guard(&self, program: &Path, home: &Path) -> io::Result<Box<dyn Started>> {
        let mut command = Command::new(program);
        command.arg0("coplace").arg("guard").arg("--home").arg(home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Descriptors that a shell or make gave to the scheduler would be held open by the guard.
        // SAFETY: setsid and close_range are system calls that allocate nothing. The runtime's own pipe
        // for errors is above 2 and only marked to be closed at exec, so it still tells of a failure.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
                Ok(())
            });
        }
        Ok(Box::new(command.spawn()?))
    }

    fn machine(&self) -> Machine {
        Machine::discover().machine
    }

    fn allowance(&self, configured: Option<&CpuSet>) -> io::Result<Allowance> {
        let own = self.affinity(self.own_pid())?;
        Allowance::without_mask(Path::new("/"), &own, configured).map_err(io::Error::other)
    }

    fn connect(&self, path: &Path) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(UnixStream::connect(path)?))
    }

    fn listen(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Listener>> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(Box::new(listener))
    }

    /// `fs::read` goes by a file's size, which the kernel's own files say is 0, and comes back for more
    /// and more; these are read many times a second.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            match file.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(length) => bytes.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if bytes.len() > MAX_BYTES {
                return Ok(bytes);
            }
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<usize> {
        let file = OpenOptions::new().write(true).truncate(true).open(path)?;
        Ok(rustix::io::write(&file, bytes)?)
    }

    fn create(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
        options.open(path)?.write_all(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<Named>> {
        let named = |entry: fs::DirEntry| Named { name: entry.file_name(), inode: entry.ino() };
        fs::read_dir(directory)?.map(|entry| entry.map(named)).collect()
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn inspect(&self, path: &Path) -> io::Result<FileInfo> {
        let meta = fs::symlink_metadata(path)?;
        let kind = match meta.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Directory,
            kind if kind.is_symlink() => FileKind::Link,
            _ => FileKind::Other,
        };
        Ok(FileInfo { kind, uid: meta.uid(), mode: meta.mode() & 0o7777, bytes: meta.len() })
    }

    fn may_write(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(mode).create(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn open(&self, path: &Path, writes: bool) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(OpenOptions::new().read(!writes).write(writes).open(path)?))
    }

    fn map(&self, path: &Path, bytes: usize) -> io::Result<Option<Mapping>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(None),
            file => file?,
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() < bytes as u64 {
            return Ok(None);
        }
        Ok(Some(Mapping::File(MmapOptions::new().len(bytes).map_raw(&file)?)))
    }

    fn lock(&self, path: &Path, shared: bool) -> io::Result<Locked> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(path)?;
        let how = match shared {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&file, how) {
            Ok(()) => Ok(Locked::Held(Box::new(FileLock(file)))),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                Ok(Locked::ByAnother(bytes))
            }
            Err(error) => Err(error.into()),
        }
    }
}
