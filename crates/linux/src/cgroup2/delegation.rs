//! Where this user may make groups.
//!
//! systemd hands a user's manager (`user@UID.service`) a subtree, usually with cpu, memory and
//! pids. The kernel lets a user move a process only if both its old group and its new one lie in
//! a subtree of theirs: a program started from a login session (`session-N.scope`) cannot be moved
//! into the manager's subtree afterwards, whatever the permissions say.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cgroup::{DELEGATE, Mount, membership};
use crate::error::{Absent, Result};
use crate::host;
use crate::procfs;
use crate::root::Root;

/// Whether groups can be made below `dir` and controllers handed down to them.
pub(super) fn is_ours(dir: &Path) -> bool {
    let writable = |path: &Path| host::with(|host| host.may_write(path));
    writable(dir) && writable(&dir.join("cgroup.procs")) && writable(&dir.join("cgroup.subtree_control"))
}

/// The highest directory that this user may make groups under and move its programs into: the
/// mount point as root, else the user manager's subtree if we run inside it, else our own group if
/// it was delegated to us.
pub fn find_base(mount: &Mount, root: &Root) -> Result<PathBuf> {
    if is_ours(&mount.point) {
        return Ok(mount.point.clone());
    }
    let own = membership(procfs::own_pid(root)?, root)?.v2.unwrap_or_else(|| "/".to_owned());
    let own_dir = mount.dir(&own);
    let uid = procfs::status(procfs::own_pid(root)?, root)?.uid;
    let manager_name = format!("user@{uid}.service");
    let manager_dir = own_dir.ancestors().find(|dir| dir.file_name() == Some(OsStr::new(&manager_name)));
    let candidates = manager_dir.into_iter().chain([own_dir.as_path()]);
    for dir in candidates {
        if is_ours(dir) {
            return Ok(dir.to_owned());
        }
    }
    let why = format!("this user may not make groups at {} (nor at any group above)", own_dir.display());
    Err(Absent::new("cgroup v2", why, format!("run as root, or {DELEGATE}")).into())
}

/// Whether this user has a systemd that answers.
pub fn check_user_manager() -> Result<(), Absent> {
    let absent = |why: String| {
        Absent::new("the user's systemd", why, "log in through it (loginctl enable-linger), or run as root")
    };
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").ok_or_else(|| absent("XDG_RUNTIME_DIR is not set".to_owned()))?;
    let directory = Path::new(&runtime).join("systemd");
    if !directory.is_dir() {
        return Err(absent(format!("{} does not exist", directory.display())));
    }
    let answer = Command::new("systemctl")
        .args(["--user", "is-system-running"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|e| absent(format!("systemctl cannot be executed: {e}")))?;
    match String::from_utf8_lossy(&answer.stdout).trim() {
        // Degraded only means that some unit has failed.
        "running" | "degraded" | "starting" => Ok(()),
        state => Err(absent(format!("systemctl --user says '{state}'"))),
    }
}

/// A command that runs `program` in a scope of its own which is delegated to this user: in there
/// groups can be made. Absent where the user's systemd does not answer.
pub fn delegated_scope(
    program: &OsStr,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<Command, Absent> {
    check_user_manager()?;
    let mut command = Command::new("systemd-run");
    command.args(["--user", "--scope", "--quiet", "-p", "Delegate=yes", "--"]).arg(program).args(arguments);
    Ok(command)
}
