//! What must never be stopped or frozen.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::procfs::{self, Process, Stat};
use crate::root::Root;

const OUR_NAME: &str = "coplace";

/// Programs known by name, and why each kind is left alone: (reason, names).
const KINDS: &[(Kind, &[&str])] = &[
    (
        Kind::Shell,
        &[
            "sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "ash", "busybox", "nu",
            "pwsh", "elvish", "xonsh", "tmux", "screen", "zellij", "login", "su", "sudo", "doas", "script",
        ],
    ),
    (
        Kind::Launcher,
        &[
            "mpirun",
            "mpiexec",
            "mpiexec.hydra",
            "mpiexec.slurm",
            "orterun",
            "orted",
            "prte",
            "prterun",
            "prted",
            "hydra_pmi_proxy",
            "hydra_bstrap_proxy",
            "pmi_proxy",
            "mpd",
            "mpispawn",
            "mpirun_rsh",
            "srun",
            "salloc",
            "sbatch",
            "slurmstepd",
            "slurmd",
            "slurmctld",
            "aprun",
            "palsd",
            "jsrun",
            "flux-broker",
            "pbs_mom",
            "sge_execd",
            "sge_shepherd",
            "condor_starter",
            "torchrun",
        ],
    ),
    (
        Kind::Service,
        &[
            "systemd",
            "init",
            "sshd",
            "sshd-session",
            "dbus-daemon",
            "dbus-broker",
            "systemd-logind",
            "systemd-journald",
            "systemd-journal",
            "systemd-udevd",
            "munged",
            "dockerd",
            "containerd",
            "containerd-shim",
            "conmon",
            "runc",
            "crun",
            "podman",
            "crond",
            "cron",
            "atd",
            "NetworkManager",
            "Xorg",
            "Xwayland",
            "gnome-shell",
            "kwin_wayland",
            "kwin_x11",
            "plasmashell",
            "sway",
            "weston",
            "pipewire",
            "wireplumber",
            "pulseaudio",
            "qemu-system-x86",
        ],
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Shell,
    Launcher,
    Service,
}

/// Why a process must not be stopped or frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A thread of the kernel (`PF_KTHREAD`).
    KernelThread,
    /// Process 1, of the machine or of this container.
    Init,
    /// This process, or any other whose command is named `coplace`.
    Ourselves,
    /// It started us, directly or not.
    Ancestor,
    /// A debugger or strace is attached to it.
    Traced {
        /// `TracerPid` of its `/proc/PID/status`.
        tracer_pid: u32,
    },
    /// A shell, or a program that holds a terminal or changes users (tmux, login, sudo).
    Shell {
        /// The known name that its command or its file has.
        name: String,
    },
    /// A launcher of parallel programs (mpirun, srun, torchrun), or one of its daemons.
    Launcher {
        /// The known name that its command or its file has.
        name: String,
    },
    /// A daemon, a container runtime or a part of the desktop.
    Service {
        /// The known name that its command or its file has.
        name: String,
    },
    /// It leads its session. Said only of what somebody else started.
    SessionLeader,
    /// Its process group is in the foreground of its terminal. Said only of what somebody else started.
    ForegroundJob,
}

impl Reason {
    /// A sentence for people.
    pub fn sentence(&self) -> String {
        match self {
            Reason::KernelThread => "It is a thread of the kernel.".to_owned(),
            Reason::Init => "It is the first process, on which all others depend.".to_owned(),
            Reason::Ourselves => "It is coplace itself: nobody could wake it again.".to_owned(),
            Reason::Ancestor => "It started coplace and waits for it.".to_owned(),
            Reason::Traced { tracer_pid } => {
                format!(
                    "Process {tracer_pid} traces it (a debugger or strace), which must see no stops but its own."
                )
            }
            Reason::Shell { name } => {
                format!("{name} is a shell or holds a terminal: its user would be locked out.")
            }
            Reason::Launcher { name } => {
                format!(
                    "{name} launches parallel programs: stopped, it misses its partners' messages, and they end the job."
                )
            }
            Reason::Service { name } => format!("{name} is a service that other programs rely on."),
            Reason::SessionLeader => "It leads its session: its terminal or login depends on it.".to_owned(),
            Reason::ForegroundJob => {
                "It is the foreground job of a terminal: stopped, its shell would put it in the background."
                    .to_owned()
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())
    }
}

/// Whether a process that somebody else started must never be stopped or frozen, and why. `None`
/// for one that may be, and for one that has ended.
pub fn protected(process: Process, root: &Root) -> Option<Reason> {
    let stat = process.stat(root).ok()?;
    fixed_reason(&stat, root).or_else(|| {
        if stat.is_session_leader() {
            Some(Reason::SessionLeader)
        } else if stat.tty_nr != 0 && stat.tpgid > 0 && stat.tpgid == stat.pgrp {
            Some(Reason::ForegroundJob)
        } else {
            None
        }
    })
}

/// The same for a process that we started ourselves: its place in the session and on the terminal
/// is our own doing, so neither protects it; and a shell that works through a script has no user
/// who types into it.
pub fn protected_own(process: Process, root: &Root) -> Option<Reason> {
    let stat = process.stat(root).ok()?;
    let reason = fixed_reason(&stat, root);
    reason.filter(|reason| !matches!(reason, Reason::Shell { .. }) || !runs_script(&stat, root))
}

/// Whether it launches parallel programs: cheaper than to ask for every reason.
pub fn is_launcher(process: Process, root: &Root) -> bool {
    process.stat(root).is_ok_and(|stat| launcher(&stat, root).is_some())
}

/// Whether a process that executes this file launches parallel programs; links are followed.
pub fn is_launcher_file(path: &Path) -> bool {
    let (_, names) = KINDS.iter().find(|(kind, _)| *kind == Kind::Launcher).expect("there are launchers");
    let is_known = |path: &Path| path.file_name().is_some_and(|file| names.iter().any(|name| file == *name));
    is_known(path) || path.canonicalize().is_ok_and(|file| is_known(&file))
}

/// Whether it executes coplace, or has not yet executed what coplace started it for.
pub fn is_ours(process: Process, root: &Root) -> bool {
    process.stat(root).is_ok_and(|stat| stat.comm == OUR_NAME)
}

/// By which name it launches parallel programs, if it does.
pub(crate) fn launcher(stat: &Stat, root: &Root) -> Option<String> {
    match reason_by_name(stat, root) {
        Some(Reason::Launcher { name }) => Some(name),
        _ => None,
    }
}

/// Whether it is a shell that works through a script: it waits for what it starts.
pub fn is_script_shell(process: Process, root: &Root) -> bool {
    process.stat(root).is_ok_and(|stat| SHELLS.contains(&&*stat.comm) && runs_script(&stat, root))
}

/// Shells proper, without what holds terminals or changes users.
const SHELLS: &[&str] =
    &["sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "ash", "busybox", "nu", "xonsh"];

/// Whether a shell was given a script or commands (`sh x.sh`, `sh -c …`) and no wish to be interactive.
fn runs_script(stat: &Stat, root: &Root) -> bool {
    let exe = procfs::exe(stat.pid, root).ok();
    let exe = exe.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let arguments = procfs::cmdline(stat.pid, root).unwrap_or_default();
    let arguments: Vec<_> = arguments.iter().skip(1).map(|argument| argument.to_string_lossy()).collect();
    let options = arguments.iter().take_while(|argument| argument.starts_with('-'));
    let short = |letter: char| {
        options.clone().any(|argument| !argument.starts_with("--") && argument.contains(letter))
    };
    let interactive =
        short('i') || options.clone().any(|argument| argument == "--interactive" || argument == "--login");
    exe.is_some_and(|exe| SHELLS.contains(&exe))
        && !interactive
        && (short('c') || arguments.len() > options.clone().count() && !short('s'))
}

fn fixed_reason(stat: &Stat, root: &Root) -> Option<Reason> {
    if stat.is_kernel_thread() {
        return Some(Reason::KernelThread);
    }
    if stat.pid <= 1 {
        return Some(Reason::Init);
    }
    if let Some(reason) = session_reason(stat, root) {
        return Some(reason);
    }
    if let Ok(status) = procfs::status(stat.pid, root)
        && status.tracer_pid != 0
    {
        return Some(Reason::Traced { tracer_pid: status.tracer_pid });
    }
    reason_by_name(stat, root)
}

fn session_reason(stat: &Stat, root: &Root) -> Option<Reason> {
    let own = procfs::own_pid(root).ok()?;
    if stat.pid == own || stat.comm == OUR_NAME {
        return Some(Reason::Ourselves);
    }
    let mut pid = own;
    // Bounded: a fake or torn /proc can name ancestors in a circle.
    for _ in 0..1_000 {
        pid = procfs::stat(pid, root).ok()?.ppid;
        if pid == stat.pid {
            return Some(Reason::Ancestor);
        }
        if pid <= 1 {
            break;
        }
    }
    None
}

/// By the command's name, and by its file's: a script is named after itself but run by its shell.
fn reason_by_name(stat: &Stat, root: &Root) -> Option<Reason> {
    let exe = procfs::exe(stat.pid, root).ok();
    let exe = exe.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    // Login shells and renamed services: "-bash", "sshd: user".
    let comm = stat.comm.trim_start_matches('-').split(':').next().unwrap_or("");
    for (kind, names) in KINDS {
        // The kernel cuts comm to 15 bytes.
        let matches = |name: &&&str| exe == Some(**name) || comm == &name[..name.len().min(15)];
        if let Some(name) = names.iter().find(matches) {
            let name = (*name).to_owned();
            return Some(match kind {
                Kind::Shell => Reason::Shell { name },
                Kind::Launcher => Reason::Launcher { name },
                Kind::Service => Reason::Service { name },
            });
        }
    }
    None
}
