//! A scope for the programs of a user who is not root, made by that user's own systemd.
//!
//! Where systemd runs the machine, a login session is a group of root's (`session-N.scope`), in which its user may make
//! no groups and out of which he may move no process. His systemd may: asked to, it makes a scope in its own subtree,
//! delegated to him, and has the system's systemd move the process there. All limits of the user (`user-UID.slice`)
//! hold there as well.
//!
//! One scope, `app.slice/coplace.scope`, is for all of a user's programs, so that they stand side by side. systemd
//! removes it with its last process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cgroup::{Mount, OUTSIDE, create_dir, dir_outside, membership, mounts, move_process};
use crate::clock;
use crate::error::{Absent, Result};
use crate::host;
use crate::root::{Root, read};

/// The unit, below the slice that systemd has for a user's applications.
const UNIT: &str = "coplace.scope";
const SLICE: &str = "app.slice";
/// How an administrator hands the remaining controllers down to users.
pub(crate) const DELEGATE_TO_USERS: &str = "as root: mkdir -p /etc/systemd/system/user@.service.d && \
    printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' > \
    /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload; then log in anew";
/// What is absent, in errors.
const WHAT: &str = "a scope for your programs";
/// How long systemd may take to move a process; a program waits for that before it starts.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Attempts, as the scope may end with its last process, or be made by somebody else, in between.
const MOST_TRIES: u32 = 5;
const PAUSE_NS: u64 = 20_000_000;

/// Where the scope of this user's programs is, whether or not there is one now.
pub(super) fn dir(mount: &Mount, uid: u32) -> PathBuf {
    mount.point.join(format!("user.slice/user-{uid}.slice/user@{uid}.service")).join(SLICE).join(UNIT)
}

/// Whether this is the directory of such a scope.
pub(crate) fn is_one(dir: &Path) -> bool {
    dir.ends_with(Path::new(SLICE).join(UNIT))
}

/// Brings a process that stands in a login session of this user into the scope of his programs, which is made if there
/// is none. It stays where it is if this user needs no scope for his groups, or if it stands elsewhere.
/// [`Error::Absent`](crate::Error::Absent) where his systemd does not answer, or the session has limits of its own,
/// which would not hold for the process any more. Waits for systemd, a few milliseconds as a rule.
pub fn enter(pid: u32, root: &Root) -> Result<()> {
    let uid = host::own_uid();
    let mounted = mounts(root)?;
    // Beside version 1 hierarchies version 2 has no controllers, and systemd moves nobody in it.
    let Some(mount) = mounted.v2.filter(|_| mounted.v1.is_empty() && uid != 0) else {
        return Ok(());
    };
    let Some(session) = membership(pid, root)?.v2.filter(|own| is_login_session(own, uid)) else {
        return Ok(());
    };
    if let Some(file) = own_limit(&mount.dir(&session)) {
        let why = format!("{session} has a limit of its own ({file})");
        return Err(Absent::new(WHAT, why, "set it for your slice instead").into());
    }
    let manager = Manager::find(uid)?;
    let scope = dir(&mount, uid);
    let mut last = None;
    for _ in 0..MOST_TRIES {
        let asked = match host::is_directory(&scope) {
            true => manager.attach(pid),
            false => manager.create_scope(pid),
        };
        match asked {
            Ok(()) if is_inside(pid, &mount, &scope, root)? => {
                return leave_the_top(pid, &scope, root);
            }
            Ok(()) => last = Some("it did not move the process".to_owned()),
            Err(error) => last = Some(error),
        }
        clock::sleep_until(clock::now_ns() + PAUSE_NS);
    }
    Err(Absent::new(WHAT, last.unwrap_or_default(), "see journalctl --user").into())
}

/// Whether this group is a login session itself, not something below it.
fn is_login_session(group: &str, uid: u32) -> bool {
    let session = group.strip_prefix(&format!("/user.slice/user-{uid}.slice/session-"));
    session.and_then(|rest| rest.strip_suffix(".scope")).is_some_and(|id| !id.contains('/'))
}

/// The first file of this group that says anything else than "no limit".
fn own_limit(group: &Path) -> Option<&'static str> {
    const UNLIMITED: [(&str, &str); 9] = [
        ("cpu.max", "max 100000"),
        ("cpu.weight", "100"),
        ("cpu.idle", "0"),
        ("cpuset.cpus", ""),
        ("memory.max", "max"),
        ("memory.high", "max"),
        ("memory.swap.max", "max"),
        ("io.max", ""),
        ("pids.max", "max"),
    ];
    let limits = |(file, none): &(&str, &str)| read(&group.join(file)).is_ok_and(|text| text.trim() != *none);
    UNLIMITED.iter().find(|known| limits(known)).map(|(file, _)| *file)
}

/// systemd moves it after it has answered.
fn is_inside(pid: u32, mount: &Mount, scope: &Path, root: &Root) -> Result<bool> {
    let until_ns = clock::now_ns() + PATIENCE_NS;
    loop {
        let own = membership(pid, root)?.v2.unwrap_or_default();
        if mount.dir(&own).starts_with(scope) {
            return Ok(true);
        }
        if clock::now_ns() > until_ns {
            return Ok(false);
        }
        clock::sleep_until(clock::now_ns() + 1_000_000);
    }
}

/// Groups with controllers are made in the scope, so that nobody may stand in it itself.
fn leave_the_top(pid: u32, scope: &Path, root: &Root) -> Result<()> {
    let leaf = dir_outside(scope);
    create_dir(&leaf)?;
    move_process(pid, &leaf, root)
}

/// The user's systemd, asked over the bus of that user.
struct Manager {
    address: String,
}

impl Manager {
    /// [`Absent`] where there is no such bus.
    fn find(uid: u32) -> Result<Manager, Absent> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
        let runtime = runtime.map_or_else(|| format!("/run/user/{uid}").into(), PathBuf::from);
        let bus = runtime.join("bus");
        if !host::exists(&bus) {
            let why = format!("your systemd cannot be asked ({} does not exist)", bus.display());
            return Err(Absent::new(WHAT, why, "log in through PAM, with dbus-user-session installed"));
        }
        Ok(Manager { address: format!("unix:path={}", bus.display()) })
    }

    /// Waits for the answer; what went wrong is for people.
    fn call(&self, method: &str, arguments: &[&str]) -> std::result::Result<(), String> {
        let mut busctl = Command::new("busctl");
        busctl.arg(format!("--address={}", self.address)).args(["--quiet", "--timeout=2", "call"]);
        busctl.args(["org.freedesktop.systemd1", "/org/freedesktop/systemd1"]);
        busctl.args(["org.freedesktop.systemd1.Manager", method]).args(arguments);
        let output = busctl.stdin(Stdio::null()).output().map_err(|error| format!("busctl: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    fn create_scope(&self, pid: u32) -> std::result::Result<(), String> {
        let pid = pid.to_string();
        let properties: [&[&str]; 5] = [
            &["Description", "s", "Programs under coplace"],
            &["PIDs", "au", "1", &pid],
            &["Delegate", "b", "true"],
            &["Slice", "s", SLICE],
            &["CollectMode", "s", "inactive-or-failed"],
        ];
        let count = properties.len().to_string();
        let begin: &[&str] = &["ssa(sv)a(sa(sv))", UNIT, "fail", &count];
        self.call("StartTransientUnit", &[begin, &properties.concat(), &["0"]].concat())
    }

    fn attach(&self, pid: u32) -> std::result::Result<(), String> {
        self.call("AttachProcessesToUnit", &["ssau", UNIT, &format!("/{OUTSIDE}"), "1", &pid.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_login_session_is_not_what_is_below_or_beside_it() {
        assert!(is_login_session("/user.slice/user-1000.slice/session-12.scope", 1000));
        assert!(is_login_session("/user.slice/user-1000.slice/session-c2.scope", 1000));
        for other in [
            "/user.slice/user-1001.slice/session-12.scope",
            "/user.slice/user-1000.slice/session-12.scope/below",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope",
            "/system.slice/slurmstepd.scope/job_7/step_0/user",
            "/",
        ] {
            assert!(!is_login_session(other, 1000), "{other}");
        }
    }

    #[test]
    fn a_limit_of_the_session_is_named() {
        let group = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(group.path().join(file), text).unwrap();
        assert_eq!(own_limit(group.path()), None);
        write("cpu.max", "max 100000\n");
        write("memory.max", "max\n");
        write("cpuset.cpus", "\n");
        assert_eq!(own_limit(group.path()), None);
        write("cpu.max", "50000 100000\n");
        assert_eq!(own_limit(group.path()), Some("cpu.max"));
    }

    #[test]
    fn the_scope_is_in_the_slice_of_the_users_manager() {
        let mount = Mount { point: "/sys/fs/cgroup".into(), shows: "/".into() };
        let scope = dir(&mount, 1000);
        assert_eq!(
            scope,
            Path::new("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/coplace.scope")
        );
        assert!(is_one(&scope) && !is_one(scope.parent().unwrap()) && !is_one(&scope.join(OUTSIDE)));
        assert_eq!(crate::cgroup::without_ours(&scope.join(OUTSIDE)), scope);
    }
}
