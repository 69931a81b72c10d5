//! Whether a running program may be taken in, and what is known of it then.

use std::ffi::OsStr;

use std::path::{Path, PathBuf};

use linux::host::{self, FileKind};
use linux::job;
use linux::page::PAGES_VARIABLE;
use linux::procfs::{self, Stat};
use linux::protection::{self, Reason};
use linux::{Process, Root};
use protocol::{AppRecord, Terms};
use topology::CpuSet;
use workload::{AppId, Demand};

use crate::identity;

/// Why a process is not taken in; each says what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("there is no process {pid}: it has ended, or the number is wrong")]
    Gone { pid: u32 },
    #[error("process {pid} ({name}) has ended; only its parent has not taken note of it yet")]
    Ended { pid: u32, name: String },
    #[error("{tid} is a thread of process {pid} ({name}): name the process, all of its threads come with it")]
    Thread { tid: u32, pid: u32, name: String },
    #[error(
        "process {pid} ({name}) belongs to user {owner}; only that user and root may attach or release it"
    )]
    NotYours { pid: u32, name: String, owner: u32 },
    #[error(
        "process {pid} ({name}) runs with the rights of user {effective} (set-user-ID), and this scheduler is user {own}: only a daemon of root's can manage it"
    )]
    Foreign { pid: u32, name: String, effective: u32, own: u32 },
    #[error("process {pid} ({name}) is not taken in. {reason}{}", alternative(.reason))]
    Protected { pid: u32, name: String, reason: Reason },
    #[error(
        "process {pid} ({name}) launches parallel programs, and nothing that it launched runs here yet: attach it when its ranks run"
    )]
    LaunchedNothing { pid: u32, name: String },
    #[error("process {pid} ({name}) cannot be looked at: {error}")]
    Unseen { pid: u32, name: String, error: linux::Error },
}

fn alternative(reason: &Reason) -> &'static str {
    match reason {
        Reason::Shell { .. } | Reason::SessionLeader => {
            " Attach the program that it started, or start it by `coplace run` next time."
        }
        Reason::Traced { .. } => " Attach it when the tracer has let go of it.",
        Reason::Ourselves => " What it runs is under coplace already.",
        _ => "",
    }
}

/// A program that may be taken in.
#[derive(Debug)]
pub struct Candidate {
    /// The topmost one: of a parallel job its launcher, whichever of its processes was named.
    pub process: Process,
    /// Whether it is a parallel job.
    pub job: bool,
    pub uid: u32,
    pub name: AppId,
    pub command: Vec<String>,
    directory: PathBuf,
    /// Where the preload library in it has its pages; empty without one.
    pages: PathBuf,
    /// It is the foreground job of a terminal: signals that stop it would be seen by its shell.
    pub foreground: bool,
}

/// Looks at a process for `asker`; `own` is the user whose rights the scheduler has. A rank or a launcher stands
/// for its whole job: ranks wait for one another, and are of no use to anybody one by one.
pub fn inspect(pid: u32, asker: u32, own: u32, root: &Root) -> Result<Candidate, Refusal> {
    let inspected = check_attachable(pid, asker, own, root)?;
    let process = inspected.stat.process();
    let launcher = job::launcher_of(process, root);
    let foreground = match (&launcher, protection::protected(process, root)) {
        (Some(_), _) => false,
        // Only by signals would its shell notice that it stands still; see `watch`.
        (None, Some(Reason::ForegroundJob)) => true,
        (None, Some(reason)) => return Err(Refusal::Protected { pid, name: inspected.stat.comm, reason }),
        (None, None) => false,
    };
    let (inspected, process) = match launcher {
        Some(launcher) => (select_rank(inspected, launcher, asker, own, root)?, launcher),
        None => (inspected, process),
    };
    let pid = inspected.stat.pid;
    if !process.is_alive(root) {
        return Err(Refusal::Gone { pid });
    }
    let command_line = command(&inspected.stat, root);
    Ok(Candidate {
        process,
        job: launcher.is_some(),
        uid: inspected.uid,
        name: identity::name_of(
            command_line
                .first()
                .map_or(inspected.stat.comm.as_ref(), |argument| OsStr::new(argument.as_str())),
        ),
        directory: host::with(|host| host.read_link(&root.proc.join(pid.to_string()).join("cwd")))
            .unwrap_or_else(|_| "/".into()),
        pages: pages(pid, inspected.uid, root).unwrap_or_default(),
        command: if launcher.is_some() {
            launched(process, root).unwrap_or(command_line)
        } else {
            command_line
        },
        foreground,
    })
}

/// A process that its owner, or root, may have taken in.
struct Inspected {
    stat: Stat,
    uid: u32,
}

fn check_attachable(pid: u32, asker: u32, own: u32, root: &Root) -> Result<Inspected, Refusal> {
    let stat = match procfs::stat(pid, root) {
        Ok(stat) => stat,
        Err(error) if error.is_gone() => return Err(Refusal::Gone { pid }),
        Err(error) => return Err(Refusal::Unseen { pid, name: "?".into(), error }),
    };
    let name = stat.comm.clone();
    if stat.has_ended() {
        return Err(Refusal::Ended { pid, name });
    }
    if stat.is_kernel_thread() {
        return Err(Refusal::Protected { pid, name, reason: Reason::KernelThread });
    }
    let status = match procfs::status(pid, root) {
        Ok(status) => status,
        Err(error) if error.is_gone() => return Err(Refusal::Gone { pid }),
        Err(error) => return Err(Refusal::Unseen { pid, name, error }),
    };
    if status.tgid != pid {
        return Err(Refusal::Thread { tid: pid, pid: status.tgid, name });
    }
    if asker != 0 && asker != status.uid {
        return Err(Refusal::NotYours { pid, name, owner: status.uid });
    }
    if own != 0 && own != status.effective_uid {
        return Err(Refusal::Foreign { pid, name, effective: status.effective_uid, own });
    }
    Ok(Inspected { stat, uid: status.uid })
}

/// The rank that a job is known by: the one that was named, or its first. Each of them must be one that may be
/// taken in; the launcher itself, which may be a daemon of root's, is never touched.
fn select_rank(
    named: Inspected,
    launcher: Process,
    asker: u32,
    own: u32,
    root: &Root,
) -> Result<Inspected, Refusal> {
    let (pid, name) = (named.stat.pid, named.stat.comm.clone());
    let ranks = job::ranks(launcher, root).map_err(|error| Refusal::Unseen {
        pid: launcher.pid,
        name: name.clone(),
        error,
    })?;
    let mut first = None;
    for rank in &ranks {
        let inspected = match check_attachable(rank.pid, asker, own, root) {
            // It has ended meanwhile.
            Err(Refusal::Gone { .. } | Refusal::Ended { .. }) => continue,
            other => other?,
        };
        if let Some(reason) = protection::protected_own(*rank, root) {
            return Err(Refusal::Protected { pid: rank.pid, name: inspected.stat.comm, reason });
        }
        first = first.or(Some(inspected));
    }
    match ranks.iter().any(|rank| rank.pid == pid) {
        true => Ok(named),
        false => first.ok_or(Refusal::LaunchedNothing { pid, name }),
    }
}

fn launched(launcher: Process, root: &Root) -> Option<Vec<String>> {
    procfs::stat(launcher.pid, root).ok().map(|stat| command(&stat, root))
}

fn command(stat: &Stat, root: &Root) -> Vec<String> {
    let command_line = procfs::cmdline(stat.pid, root).unwrap_or_default();
    match command_line.is_empty() {
        true => vec![stat.comm.clone()],
        false => command_line.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
    }
}

/// The pages of a process that carries the preload library, in a directory of its user's.
fn pages(pid: u32, uid: u32, root: &Root) -> Option<PathBuf> {
    let variables = procfs::environ(pid, root).ok()?;
    let (_, path) = variables.into_iter().find(|(name, _)| name == PAGES_VARIABLE)?;
    let path = PathBuf::from(path);
    let theirs = |path: &Path| {
        host::with(|host| host.inspect(path))
            .is_ok_and(|info| info.kind == FileKind::Directory && info.uid == uid && info.mode & 0o022 == 0)
    };
    (path.is_absolute() && theirs(&path) && path.join(pid.to_string()).is_file()).then_some(path)
}

impl Candidate {
    /// Whether its teams can be resized: the preload library is in it.
    pub fn has_pages(&self) -> bool {
        !self.pages.as_os_str().is_empty()
    }

    pub fn record(self, id: AppId, demand: Demand, original_cpus: CpuSet, now_ns: u64) -> AppRecord {
        AppRecord {
            id,
            uid: self.uid,
            process: identity::from_linux(self.process),
            guardian: identity::own(),
            command: self.command,
            directory: self.directory,
            pages: self.pages,
            original_cpus,
            demand,
            arrived_ns: now_ns,
            started: true,
            terms: Terms { attached: true, ..Terms::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::killed::Killed;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn sleep() -> Killed {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        // Its arguments are there a moment after it has begun.
        while procfs::cmdline(child.id(), &Root::live()).unwrap().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Killed(child)
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn refused(pid: u32, asker: u32) -> String {
        inspect(pid, asker, own(), &Root::live()).unwrap_err().to_string()
    }

    #[test]
    fn an_own_ordinary_program_is_a_candidate_with_its_command() {
        let program = sleep();
        let found = inspect(program.0.id(), own(), own(), &Root::live()).unwrap();
        assert_eq!((found.name.as_str(), found.command.len()), ("sleep", 2));
        assert!(!found.has_pages());
    }

    #[test]
    fn unattachable_programs_are_refused_with_reason_and_remedy() {
        let root = Root::live();
        assert!(refused(4_000_000, own()).contains("no process 4000000"));
        assert!(refused(1, 0).contains("first process"));
        let program = sleep();
        assert!(refused(program.0.id(), own() + 1).contains(&format!("belongs to user {}", own())));
        let mut dead = Command::new("true").spawn().unwrap();
        let ended = || procfs::stat(dead.id(), &root).is_ok_and(|stat| stat.has_ended());
        while !ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(refused(dead.id(), own()).contains("has ended"));
        dead.wait().unwrap();
        let shell =
            Killed(Command::new("sh").args(["-c", "sleep 5 > /dev/null 2>&1; true"]).spawn().unwrap());
        assert!(refused(shell.0.id(), own()).contains("Attach the program that it started"));
        let mut leader = Command::new("sleep");
        // SAFETY: setsid only makes the child the leader of a session.
        unsafe { leader.arg("100").pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
        let leader = Killed(leader.spawn().unwrap());
        assert!(refused(leader.0.id(), own()).contains("leads its session"));
        assert!(refused(std::process::id(), own()).contains("coplace itself"));
        if let Some(kernel) = procfs::all(&root).unwrap().into_iter().find(Stat::is_kernel_thread) {
            assert!(refused(kernel.pid, 0).contains("thread of the kernel"));
        }
    }

    #[test]
    fn a_thread_is_refused_by_naming_its_process() {
        let (keep_alive, released) = std::sync::mpsc::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            released.recv().is_err()
        });
        let own_pid = std::process::id();
        let tid = receiver.recv().unwrap();
        assert!(refused(tid, own()).contains(&format!("thread of process {own_pid}")));
        drop(keep_alive);
        assert!(thread.join().unwrap());
    }
}
