//! The child's side, between fork and exec: system calls only, no allocation, no lock, because
//! this process may have other threads.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;

use rustix::process::Pid;

use super::inherited;

/// Where it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Descriptors,
    Directory,
    Execute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub stage: Stage,
    pub errno: i32,
    /// Which of the candidates.
    pub candidate: u32,
}

impl Failure {
    fn bytes(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        bytes[0] = self.stage as u8;
        bytes[1..5].copy_from_slice(&self.errno.to_ne_bytes());
        bytes[5..].copy_from_slice(&self.candidate.to_ne_bytes());
        bytes
    }

    /// `None`: nothing was said, so the program was executed.
    pub fn parse(bytes: &[u8]) -> Option<Failure> {
        let bytes: &[u8; 9] = bytes.try_into().ok()?;
        let stage = [Stage::Descriptors, Stage::Directory, Stage::Execute][usize::from(bytes[0]).min(2)];
        let errno = i32::from_ne_bytes(bytes[1..5].try_into().ok()?);
        Some(Failure { stage, errno, candidate: u32::from_ne_bytes(bytes[5..].try_into().ok()?) })
    }
}

/// The program's environment, in memory that parent and child share at one address: so it can be
/// completed after the fork, when the scheduler has answered.
#[derive(Debug)]
pub struct Environment {
    base: *mut u8,
    bytes: usize,
}

/// A set of CPUs as the kernel writes it.
pub type CpuMask = [u64; 128];

/// Those of this thread; none where the kernel has more than fit, or does not say.
pub fn own_cpus() -> CpuMask {
    let mut cpus = [0; 128];
    // SAFETY: the kernel writes no more than it is told there is.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&cpus), cpus.as_mut_ptr()) };
    if got > 0 { cpus } else { [0; 128] }
}

/// Takes back the CPUs that the user gave where the kernel has added others. Before Linux 6.2 whoever is moved into a
/// group of a cpuset or out of one forgets them, and whoever moved it may have been kept from mending that: a program
/// makes as many threads as it sees CPUs now, and keeps them.
fn restrict_cpus(started_with: &CpuMask) {
    let now = own_cpus();
    let beyond = now.iter().zip(started_with).any(|(now, started_with)| now & !started_with != 0);
    if beyond && started_with.iter().any(|word| *word != 0) {
        // SAFETY: the kernel reads as many bytes as it is told there are. It refuses where none of them is in the
        // cpuset of now; then the cpuset holds.
        unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(started_with), started_with.as_ptr())
        };
    }
}

/// Room for what the scheduler adds.
const SPARE: usize = 1 << 20;

impl Environment {
    pub fn new(variables: &BTreeMap<OsString, OsString>) -> io::Result<Environment> {
        let bytes = needed(variables) + SPARE;
        // SAFETY: a fresh anonymous mapping touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Environment { base: base.cast(), bytes })
    }

    /// Writes the variables. The child reads them only when it is let go, or when this process
    /// is gone.
    pub fn fill(&mut self, variables: &BTreeMap<OsString, OsString>) -> io::Result<()> {
        if needed(variables) > self.bytes {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let pointers = self.base.cast::<*const u8>();
        let mut at = (variables.len() + 1) * size_of::<*const u8>();
        for (index, (name, value)) in variables.iter().enumerate() {
            // SAFETY: `needed` counted the pointer table and every byte written here.
            unsafe {
                let text = self.base.add(at);
                for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
                    ptr::copy_nonoverlapping(part.as_ptr(), self.base.add(at), part.len());
                    at += part.len();
                }
                pointers.add(index).write(text);
            }
        }
        // SAFETY: the table has room for its end.
        unsafe { pointers.add(variables.len()).write(ptr::null()) };
        Ok(())
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no reference into it leaves this module.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

fn needed(variables: &BTreeMap<OsString, OsString>) -> usize {
    let texts: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    texts + (variables.len() + 1) * size_of::<*const u8>()
}

/// Everything that the child needs, made before the fork.
pub struct Plan<'a> {
    pub candidates: &'a [CString],
    pub arguments: &'a [CString],
    pub directory: Option<&'a CStr>,
    pub environment: &'a Environment,
    /// Replacements of the standard descriptors.
    pub standard: [Option<RawFd>; 3],
    /// The CPUs that its user gave it; empty: unknown.
    pub cpus: &'a CpuMask,
    /// A byte, or its end, lets the program go.
    pub go: RawFd,
    pub failure: RawFd,
}

impl Plan<'_> {
    pub fn fork(&self) -> io::Result<Pid> {
        let end = [ptr::null()];
        let arguments: Vec<*const libc::c_char> =
            self.arguments.iter().map(|text| text.as_ptr()).chain(end).collect();
        // What execvp(3) does with a script that names no interpreter.
        let mut for_shell: Vec<*const libc::c_char> =
            [c"/bin/sh".as_ptr(), ptr::null()].into_iter().chain(arguments[1..].iter().copied()).collect();
        // Asked once: later the answer would be our own setting.
        static CHILDREN_IGNORED: OnceLock<bool> = OnceLock::new();
        let children_ignored = *CHILDREN_IGNORED.get_or_init(inherited::reset_child_signal);
        let mask = inherited::mask();
        // SAFETY: the sets are initialised by the calls; blocking all signals keeps handlers of this
        // process from running in the child, where they would write into our pipes.
        let pid = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            let pid = libc::fork();
            if pid == 0 {
                self.child(&arguments, &mut for_shell, children_ignored, &mask);
            }
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
            if pid < 0 {
                return Err(error);
            }
            pid
        };
        Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork answered 0 twice"))
    }

    /// # Safety
    /// Only in a freshly forked child, with all signals blocked.
    unsafe fn child(
        &self,
        arguments: &[*const libc::c_char],
        for_shell: &mut [*const libc::c_char],
        children_ignored: bool,
        mask: &libc::sigset_t,
    ) -> ! {
        // SAFETY: all pointers stem from values that the parent made before the fork and that this
        // copy of its memory keeps; only async-signal-safe functions are called.
        unsafe {
            restore_dispositions(children_ignored);
            for (fd, replacement) in self.standard.iter().enumerate() {
                let fd = fd as RawFd;
                match replacement {
                    Some(from) if libc::dup2(*from, fd) < 0 => self.fail(Stage::Descriptors, 0),
                    None if inherited::was_closed(fd) => drop(libc::close(fd)),
                    _ => {}
                }
            }
            // The held process would otherwise keep our locks and connections alive after our death.
            close_private(&[self.go, self.failure]);
            if let Some(directory) = self.directory
                && libc::chdir(directory.as_ptr()) != 0
            {
                self.fail(Stage::Directory, 0);
            }
            libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut());
            let mut byte = 0_u8;
            while libc::read(self.go, (&raw mut byte).cast(), 1) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
            restrict_cpus(self.cpus);
            self.execute(arguments, for_shell)
        }
    }

    /// Tries the candidates like execvp(3): what is missing is passed over, what is forbidden is
    /// remembered.
    ///
    /// # Safety
    /// As `child`.
    unsafe fn execute(&self, arguments: &[*const libc::c_char], for_shell: &mut [*const libc::c_char]) -> ! {
        let environment = self.environment.base.cast::<*const libc::c_char>();
        let (mut errno, mut blamed) = (libc::ENOENT, 0);
        for (index, candidate) in self.candidates.iter().enumerate() {
            // SAFETY: the arrays end in null; see `child`.
            let error = unsafe {
                libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment);
                *libc::__errno_location()
            };
            match error {
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => continue,
                libc::ENOEXEC => {
                    for_shell[1] = candidate.as_ptr();
                    // SAFETY: as above.
                    unsafe { libc::execve(for_shell[0], for_shell.as_ptr(), environment) };
                }
                _ => {}
            }
            (errno, blamed) = (error, index as u32);
            if error != libc::EACCES {
                break;
            }
        }
        // SAFETY: as `child`.
        unsafe {
            *libc::__errno_location() = errno;
            self.fail(Stage::Execute, blamed)
        }
    }

    /// # Safety
    /// As `child`.
    unsafe fn fail(&self, stage: Stage, candidate: u32) -> ! {
        // SAFETY: the buffer outlives the call, and _exit runs no handlers of the parent's.
        unsafe {
            let bytes = Failure { stage, errno: *libc::__errno_location(), candidate }.bytes();
            libc::write(self.failure, bytes.as_ptr().cast(), bytes.len());
            libc::_exit(if stage == Stage::Execute { 126 } else { 125 })
        }
    }
}

/// Handlers are ours, so they go, and a signal that was ignored before we caught it is ignored again; what else is
/// ignored came from our parent, except where the Rust runtime or we changed it.
///
/// # Safety
/// Only in a child in which no handler is to run any more.
unsafe fn restore_dispositions(children_ignored: bool) {
    // SAFETY: sigaction with valid or null pointers; zeroed is SIG_DFL without flags.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            let mut action: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, ptr::null(), &mut action) == 0;
            let is_caught = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
            let is_changed = is_caught || [libc::SIGPIPE, libc::SIGXFSZ].contains(&signal);
            if known && is_changed {
                let mut as_before = default;
                if inherited::was_ignored(signal) {
                    as_before.sa_sigaction = libc::SIG_IGN;
                }
                libc::sigaction(signal, &as_before, ptr::null_mut());
            }
        }
        if children_ignored {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
    }
}

/// Closes every descriptor that is to be closed at exec anyway, but for `keep`.
///
/// # Safety
/// Only in a child that uses none of them.
unsafe fn close_private(keep: &[RawFd]) {
    let close_if_private = |fd: RawFd| {
        // SAFETY: takes no pointers; a number that is no descriptor is refused.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC != 0 && !keep.contains(&fd) {
                libc::close(fd);
            }
        }
    };
    // SAFETY: the path is a constant with its final zero.
    let list = unsafe {
        libc::open(c"/proc/self/fd".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
    };
    if list < 0 {
        // Without /proc: as many as a process has unless it asks for more.
        (3..1024).for_each(close_if_private);
        return;
    }
    // Directory entries begin with a u64 and are aligned to it.
    let mut buffer = [0_u64; 512];
    loop {
        // SAFETY: the buffer is as long as stated and outlives the call.
        let got =
            unsafe { libc::syscall(libc::SYS_getdents64, list, buffer.as_mut_ptr(), size_of_val(&buffer)) };
        if got <= 0 {
            break;
        }
        // SAFETY: the kernel wrote `got` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), got as usize) };
        let mut at = 0;
        // struct linux_dirent64: u64 inode, i64 offset, u16 length, u8 type, the name.
        while at + 19 < bytes.len() {
            let length = usize::from(u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]));
            let name = &bytes[at + 19..(at + length).min(bytes.len())];
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let (count, fd) =
                digits.fold((0, 0), |(count, fd), digit| (count + 1, fd * 10 + RawFd::from(digit - b'0')));
            if count > 0 && fd != list {
                close_if_private(fd);
            }
            at += length.max(19);
        }
    }
    // SAFETY: opened above.
    unsafe { libc::close(list) };
}
