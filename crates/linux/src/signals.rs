//! Stopping, continuing and ending processes.
//!
//! SIGSTOP is the way of taking turns that needs no rights beyond owning the process, and the
//! coarsest: parents are told, terminals react. Ask [`crate::protection`] before stopping.
//!
//! Whom somebody else has stopped (`kill -STOP`, a debugger's user, a batch system) is his to continue. We stop each
//! thread by a signal of its own, and everybody else stops processes; what comes to a process that stands already the
//! kernel keeps, for the thread or for the process, until a SIGCONT takes it away. So before we continue a process it
//! shows who else wants it to stand ([`stops_by_others`]). A stop that comes between that look and our SIGCONT, some ten
//! microseconds, is lost.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::clock;
use crate::error::{Error, Result};
use crate::host;
use crate::pidfd::PidFd;
use crate::procfs::{self, Process};
use crate::root::Root;

/// What sending to several processes came to.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// How many processes were sent the signal, as a whole or thread by thread.
    pub reached: usize,
    /// Those that had ended.
    pub gone: Vec<Process>,
    /// Those that could not be signalled although they are there, with the reason.
    pub failed: Vec<(Process, Error)>,
}

impl Sent {
    fn note(&mut self, process: Process, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.reached += 1,
            Err(error) if error.is_gone() => self.gone.push(process),
            Err(error) => self.failed.push((process, error)),
        }
    }

    /// Those that had ended before they could be taken hold of.
    fn note_missing(&mut self, wanted: &[Process], targets: &Targets) {
        let held = targets.processes();
        self.gone.extend(wanted.iter().filter(|process| !held.contains(process)));
    }
}

/// Processes with more threads than this get their stop in the kernel's own time: whoever stops
/// them is between two gangs and has no time for thousands of calls.
const MOST_THREADS: usize = 256;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

const STOP: u64 = bit(libc::SIGSTOP);
const KILL: u64 = bit(libc::SIGKILL);
/// Stops that a program may handle.
const POLITE: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// What others want of a process that we have stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopsByOthers {
    /// Nobody else has asked that it stand.
    None,
    /// It is to stand, whatever we do.
    Stands,
    /// These signals are to reach it. A SIGCONT takes them away.
    Asked(Vec<Signal>),
}

/// What others want of a process to each of whose threads we have sent a stop, as long as nobody has continued it since.
pub fn stops_by_others(process: Process, root: &Root) -> Result<StopsByOthers> {
    // In this order: of one that does not stand yet our stop may be pending for all, and is taken note of now.
    let stands = process.stat(root)?.is_stopped();
    let first = procfs::pending(process.pid, process.pid, root)?;
    let ours_came_later =
        || Ok::<bool, Error>(stands && first.own & STOP != 0 && is_pending_for_all(process, root)?);
    if first.shared & STOP != 0 || ours_came_later()? {
        return Ok(StopsByOthers::Stands);
    }
    let asked: Vec<Signal> =
        POLITE.into_iter().filter(|signal| first.shared & bit(signal.as_raw()) != 0).collect();
    Ok(if asked.is_empty() { StopsByOthers::None } else { StopsByOthers::Asked(asked) })
}

/// Whether each thread has a SIGSTOP of ours pending: it was not ours by which they stand.
fn is_pending_for_all(process: Process, root: &Root) -> Result<bool> {
    for tid in procfs::threads(process.pid, root)?.into_iter().take(MOST_THREADS) {
        match procfs::pending(process.pid, tid, root) {
            Ok(pending) if pending.own & STOP == 0 => return Ok(false),
            Ok(_) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Stops a process thread by thread. The first that takes note of it stops them all.
fn stop_threads(process: Process, root: &Root) -> Result<()> {
    for tid in procfs::threads(process.pid, root)?.into_iter().take(MOST_THREADS) {
        // The process was there a moment ago; its pid cannot have passed on to another since, unless it ended and
        // was waited for meanwhile, and all other numbers were used.
        match host::with(|host| host.send_to_thread(process.pid, tid, Signal::STOP)) {
            Ok(()) => {}
            Err(source) if source.raw_os_error() == Some(libc::ESRCH) => {}
            Err(source) => return Err(Error::call("tgkill", format!("thread {tid}"), source)),
        }
    }
    Ok(())
}

/// One process with the surest way of signalling it.
#[derive(Debug)]
enum Target {
    Handle(PidFd),
    /// Before Linux 5.3, and when descriptors run out: the identity is checked before each signal.
    Checked(Process),
}

impl Target {
    fn process(&self) -> Process {
        match self {
            Target::Handle(handle) => handle.process(),
            Target::Checked(process) => *process,
        }
    }

    fn send(&self, signal: Signal, root: &Root) -> Result<()> {
        match self {
            Target::Handle(handle) => handle.send(signal),
            Target::Checked(process) => send_checked(*process, signal, root),
        }
    }

    /// Continues a process that we have stopped; `None`: somebody else wants it to stand. What others have sent it that
    /// it may handle reaches it then.
    fn continue_ours(&self, root: &Root) -> Option<Result<()>> {
        // Of one of which nothing can be read it is not known that it is to stand.
        let asked = match stops_by_others(self.process(), root) {
            Ok(StopsByOthers::Stands) => return None,
            Ok(StopsByOthers::Asked(signals)) => signals,
            Ok(StopsByOthers::None) | Err(_) => Vec::new(),
        };
        let mut signals = [Signal::CONT].into_iter().chain(asked);
        Some(signals.try_for_each(|signal| self.send(signal, root)))
    }
}

fn send_checked(process: Process, signal: Signal, root: &Root) -> Result<()> {
    if !process.is_same(root) {
        return Err(Error::Gone(process));
    }
    host::with(|host| host.send(process.pid, signal)).map_err(|source| match source.raw_os_error() {
        Some(libc::ESRCH) => Error::Gone(process),
        _ => Error::call("kill", format!("process {}", process.pid), source),
    })
}

/// A set of processes held ready to be signalled: on the fast path one system call each.
///
/// It knows which of them it has stopped, and continues no other: launchers report or hand on a SIGCONT, and
/// programs that react to it take it for their user's.
#[derive(Debug, Default)]
pub struct Targets {
    targets: Vec<Target>,
    stopped: BTreeSet<Process>,
    /// Those that somebody else has stopped, when they were last to stop or to go on.
    others: BTreeSet<Process>,
}

impl Targets {
    /// Takes hold of the processes; those that have ended are left out.
    pub fn open(processes: &[Process], root: &Root) -> Self {
        let open = |process: &Process| match PidFd::open(*process, root) {
            Ok(handle) => Some(Target::Handle(handle)),
            Err(error) if error.is_gone() => None,
            Err(_) => Some(Target::Checked(*process)),
        };
        Targets { targets: processes.iter().filter_map(open).collect(), ..Targets::default() }
    }

    /// Those held, including any that have ended since.
    pub fn processes(&self) -> Vec<Process> {
        self.targets.iter().map(Target::process).collect()
    }

    /// Adds processes that are not held yet (children that appeared since) and lets go of those
    /// that have ended.
    pub fn update(&mut self, processes: &[Process], root: &Root) {
        self.targets.retain(|target| target.process().is_same(root));
        let held: BTreeSet<Process> = self.processes().into_iter().collect();
        let new: Vec<Process> = processes.iter().copied().filter(|process| !held.contains(process)).collect();
        self.targets.extend(Targets::open(&new, root).targets);
        let held: BTreeSet<Process> = self.processes().into_iter().collect();
        self.stopped.retain(|process| held.contains(process));
        self.others.retain(|process| held.contains(process));
    }

    /// Whether one of them stands stopped by this.
    pub fn has_stopped_any(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// Whether all of them were found stopped by somebody else when they were last to stop or to go on.
    pub fn are_stopped_by_others(&self) -> bool {
        !self.targets.is_empty() && self.targets.iter().all(|target| self.others.contains(&target.process()))
    }

    /// Lets go of these processes for good, running.
    pub fn release(&mut self, leaving: &[Process], root: &Root) {
        self.continue_where(|process| leaving.contains(&process), root);
        self.forget(leaving);
    }

    /// Lets go of these processes as they are.
    pub fn forget(&mut self, leaving: &[Process]) {
        self.targets.retain(|target| !leaving.contains(&target.process()));
        self.stopped.retain(|process| !leaving.contains(process));
        self.others.retain(|process| !leaving.contains(process));
    }

    /// Sends a signal to all of them; what it stops or continues is not kept in mind.
    fn send(&self, signal: Signal, root: &Root) -> Sent {
        let mut sent = Sent::default();
        for target in &self.targets {
            sent.note(target.process(), target.send(signal, root));
        }
        sent
    }

    /// Stops every process, each thread at once; those that stand already are somebody else's to continue.
    ///
    /// The kernel gives a signal for a process to its first thread, and only when that runs do the
    /// others learn of it. Where it sleeps while the others compute, as in a team whose first thread
    /// waits, it has to get a CPU from them first, which takes a tick or several. So each thread is
    /// sent one of its own; SIGCONT takes back what is left of them.
    pub fn stop(&mut self, root: &Root) -> Sent {
        self.stop_except(|_| false, root)
    }

    /// The same without those that `spared` names.
    pub fn stop_except(&mut self, spared: impl Fn(Process) -> bool, root: &Root) -> Sent {
        let mut sent = Sent::default();
        for process in self.processes().into_iter().filter(|process| !spared(*process)) {
            let stands = match process.stat(root) {
                Ok(stat) => stat.is_stopped(),
                Err(error) => {
                    sent.note(process, Err(error));
                    continue;
                }
            };
            if stands && !self.stopped.contains(&process) {
                self.others.insert(process);
                continue;
            }
            self.others.remove(&process);
            let one = stop_threads(process, root);
            // Of one that could be reached in part only a thread may stop them all: it is ours to continue.
            self.stopped.insert(process);
            sent.note(process, one);
        }
        sent
    }

    /// Continues those that were stopped by this, unless somebody else wants them to stand.
    pub fn cont(&mut self, root: &Root) -> Sent {
        self.continue_where(|_| true, root)
    }

    fn continue_where(&mut self, which: impl Fn(Process) -> bool, root: &Root) -> Sent {
        let mut sent = Sent::default();
        for target in self.targets.iter().filter(|target| which(target.process())) {
            let process = target.process();
            if !self.stopped.remove(&process) {
                continue;
            }
            match target.continue_ours(root) {
                Some(outcome) => sent.note(process, outcome),
                None => drop(self.others.insert(process)),
            }
        }
        sent
    }
}

/// Sends a signal to each of the processes, never to another that got its pid.
pub fn send(processes: &[Process], signal: Signal, root: &Root) -> Sent {
    let targets = Targets::open(processes, root);
    let mut sent = targets.send(signal, root);
    sent.note_missing(processes, &targets);
    sent
}

/// Stops them as [`Targets::stop`] does, for [`cont_ours`] to continue; those that stand already are left
/// alone and appear nowhere in the result.
pub fn stop(processes: &[Process], root: &Root) -> Sent {
    let mut targets = Targets::open(processes, root);
    let mut sent = targets.stop(root);
    sent.note_missing(processes, &targets);
    sent
}

/// Sends SIGCONT to each of the processes, whoever stopped it.
pub fn cont(processes: &[Process], root: &Root) -> Sent {
    send(processes, Signal::CONT, root)
}

/// Continues those that somebody has stopped thread by thread, as [`Targets`] does, and nobody else; whom somebody else
/// has stopped stands.
pub fn cont_ours(processes: &[Process], root: &Root) -> Sent {
    let targets = Targets::open(processes, root);
    let mut sent = Sent::default();
    for target in &targets.targets {
        if let Some(outcome) = target.continue_ours(root) {
            sent.note(target.process(), outcome);
        }
    }
    sent.note_missing(processes, &targets);
    sent
}

/// Ends the processes with a signal, continuing them after it, because a stopped process acts on
/// nothing but SIGKILL. (One frozen by the v1 freezer acts not even on that: thaw it.)
pub fn kill(processes: &[Process], signal: Signal, root: &Root) -> Sent {
    let targets = Targets::open(processes, root);
    let mut sent = targets.send(signal, root);
    targets.send(Signal::CONT, root);
    sent.note_missing(processes, &targets);
    sent
}

/// Whether a process stands stopped, or a SIGSTOP is on its way to it or to one of its threads: it sleeps in
/// the kernel and has not taken note of it yet.
pub fn is_stopping(process: Process, root: &Root) -> bool {
    let tids = procfs::threads(process.pid, root).unwrap_or_default();
    // In this order: a stop that is not pending any more has been carried out when the state is read.
    let stops = |tid: &u32| {
        procfs::pending(process.pid, *tid, root).is_ok_and(|pending| pending.any() & STOP != 0)
            || procfs::thread_stat(process.pid, *tid, root).is_ok_and(|stat| stat.is_stopped())
    };
    process.is_same(root) && tids.iter().any(stops)
}

/// Whether a SIGKILL is on its way to the process: a version 1 freezer holds back even that.
pub fn is_killed(process: Process, root: &Root) -> bool {
    procfs::status(process.pid, root).is_ok_and(|status| status.pending.any() & KILL != 0)
}

/// Whether every thread of the process stands stopped (by a signal; a tracer's stop does not
/// count). [`Error::Gone`] if it has ended, reaped or not.
pub fn is_stopped(process: Process, root: &Root) -> Result<bool> {
    let stat = process.stat(root)?;
    if stat.has_ended() {
        return Err(Error::Gone(process));
    }
    if !stat.is_stopped() {
        return Ok(false);
    }
    for tid in procfs::threads(process.pid, root)? {
        match procfs::thread_stat(process.pid, tid, root) {
            Ok(stat) if stat.is_stopped() || stat.has_ended() => {}
            Ok(_) => return Ok(false),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until every process stands stopped or has ended, and returns how long that took in
/// nanoseconds; the error names one that still ran at the timeout.
pub fn wait_all_stopped(processes: &[Process], timeout_ns: u64, root: &Root) -> Result<u64> {
    let start_ns = clock::now_ns();
    let mut pause_ns = 20_000;
    loop {
        let mut running = None;
        for process in processes {
            match is_stopped(*process, root) {
                Ok(true) => {}
                Ok(false) => running = Some(process),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        let waited_ns = clock::now_ns() - start_ns;
        let Some(running) = running else { return Ok(waited_ns) };
        if waited_ns >= timeout_ns {
            let path = procfs::dir(running.pid, root).join("stat");
            return Err(Error::Timeout { what: "stopping".to_owned(), path, waited_ns });
        }
        clock::sleep_until(clock::now_ns() + pause_ns);
        pause_ns = (pause_ns * 2).min(1_000_000);
    }
}
