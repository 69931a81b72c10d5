//! Where this user may make groups.
//!
//! systemd hands a user's manager (`user@UID.service`) a subtree, usually with cpu, memory and
//! pids. The kernel lets a user move a process only if both its old group and its new one lie in
//! a subtree of theirs: a program started from a login session (`session-N.scope`) cannot be moved
//! into the manager's subtree afterwards, except by systemd itself ([`scope`]).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::scope;
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
/// mount point as root, else the scope of this user's programs or the user manager's subtree if we run
/// inside it, else our own group if it was delegated to us, else that scope, where there is one.
pub fn find_base(mount: &Mount, root: &Root) -> Result<PathBuf> {
    if is_ours(&mount.point) {
        return Ok(mount.point.clone());
    }
    let own = membership(procfs::own_pid(root)?, root)?.v2.unwrap_or_else(|| "/".to_owned());
    let own_dir = mount.dir(&own);
    let uid = procfs::status(procfs::own_pid(root)?, root)?.uid;
    let manager_name = format!("user@{uid}.service");
    let manager_dir = own_dir.ancestors().find(|dir| dir.file_name() == Some(OsStr::new(&manager_name)));
    let scope = scope::dir(mount, uid);
    let around = Some(scope.as_path()).filter(|scope| own_dir.starts_with(scope));
    let candidates = around.into_iter().chain(manager_dir).chain([own_dir.as_path(), &scope]);
    for dir in candidates {
        if is_ours(dir) {
            return Ok(dir.to_owned());
        }
    }
    let why = format!("this user may not make groups at {} (nor at any group above)", own_dir.display());
    Err(Absent::new("cgroup v2", why, format!("run as root, or {DELEGATE}")).into())
}
