//! Signals that reach `coplace run`, as a queue that can be polled. It tells who sent them: what
//! the terminal sends reaches the program by itself, what a process sends us does not.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use node::launch::was_ignored;

/// Signals of job control.
pub const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// Signals that are meant for the program: all that would end a process and tell of no fault of its own. Real-time
/// signals are, too.
const MEANT_FOR_PROGRAM: [i32; 12] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGXCPU,
];

/// The writing end, for the handler.
static QUEUE: AtomicI32 = AtomicI32::new(-1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub signal: i32,
    /// From the kernel: the terminal's driver sends to the whole process group.
    pub from_terminal: bool,
}

pub struct Signals {
    queue: OwnedFd,
    /// Kept open for the handler.
    _writer: OwnedFd,
    caught: Vec<i32>,
}

impl Signals {
    /// Catches what may be meant for the program, also where this process ignores it (under nohup, or in the background of
    /// a script): the program may have a handler of its own, and is started with it ignored. Stops by the terminal that
    /// are ignored stay so: they would stop us and not the program.
    pub fn catch() -> io::Result<Signals> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (queue, writer) = rustix::pipe::pipe_with(flags)?;
        QUEUE.store(writer.as_raw_fd(), Ordering::Release);
        let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
        let stops = STOPS.iter().copied().filter(|signal| !was_ignored(*signal));
        let caught: Vec<i32> = MEANT_FOR_PROGRAM.into_iter().chain(real_time).chain(stops).collect();
        caught.iter().for_each(|signal| catch(*signal));
        Ok(Signals { queue, _writer: writer, caught })
    }

    /// What has arrived since the last call, in order.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let mut bytes = [0; 2];
        // Two bytes are written at once, so they are read at once.
        while let Ok(2) = rustix::io::read(&self.queue, &mut bytes) {
            arrivals.push(Arrival { signal: i32::from(bytes[0]), from_terminal: bytes[1] == 1 });
        }
        arrivals
    }

    /// Stops this process as the signal would have stopped it, until it is continued. Returns what
    /// has arrived since, without the stops: they were the same keystroke.
    pub fn stop_by(&self, signal: i32) -> Vec<Arrival> {
        default(signal);
        // SAFETY: raise takes no pointers; the disposition is the default.
        unsafe { libc::raise(signal) };
        if self.caught.contains(&signal) {
            catch(signal);
        }
        let mut arrivals = self.arrivals();
        arrivals.retain(|arrival| !STOPS.contains(&arrival.signal));
        arrivals
    }

    /// From now on the terminal may stop this process as any other.
    pub fn leave_job_control(&self) {
        self.caught.iter().filter(|signal| STOPS.contains(signal)).for_each(|signal| default(*signal));
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.caught.iter().for_each(|signal| restore_disposition(*signal));
        QUEUE.store(-1, Ordering::Release);
    }
}

extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO; write is
    // async-signal-safe; errno is the interrupted code's and is put back.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let from_terminal = u8::from((*info).si_code == SI_KERNEL);
        let bytes = [signal as u8, from_terminal];
        // A full queue means that thousands of signals are unread already.
        libc::write(QUEUE.load(Ordering::Acquire), bytes.as_ptr().cast(), bytes.len());
        *errno = before;
    }
}

/// `si_code` of signals that no process sent.
const SI_KERNEL: i32 = 0x80;

fn catch(signal: i32) {
    // SAFETY: a zeroed sigaction is valid; the handler only calls async-signal-safe functions.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

fn default(signal: i32) {
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// As it was when this process began.
fn restore_disposition(signal: i32) {
    let before = if was_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither disposition runs code of ours.
    unsafe { libc::signal(signal, before) };
}

/// A write beyond the limit of a file's size (`ulimit -f`) is an error for us, which is reported, and not our end.
/// Programs are started with the signal as it was.
pub fn ignore_file_limits() {
    // SAFETY: that a signal is ignored involves no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process by the signal that ended the program, so that the shell sees what it would
/// have seen; without a second core file. Returns only for signals that do not end a process.
pub fn die_by(signal: i32) {
    // SAFETY: plain system calls; the set is initialised before it is used.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
        // A core pattern that is a program is asked whatever the limit says.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
