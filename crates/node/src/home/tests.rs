use std::os::unix::fs::symlink;

use protocol::Role;

use super::*;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_home_is_made_private_and_found_again() {
    let dir = scratch();
    let path = dir.path().join("a/b");
    let home = Home::at(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    assert_eq!(Home::at(&path).unwrap(), home);
    assert_eq!(home.group_name(), Home::at(&path).unwrap().group_name());
    assert_ne!(home.group_name(), Home::at(dir.path()).unwrap().group_name());
    assert!(home.may_schedule() && home.superior().is_none() && home.fallback().is_none());
}

#[test]
fn links_files_and_open_directories_are_refused_by_name() {
    let dir = scratch();
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    let link = dir.path().join("link");
    symlink(&target, &link).unwrap();
    let error = Home::at(&link).unwrap_err().to_string();
    assert!(error.contains("symbolic link") && error.contains("link"), "{error}");

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Home::at(&file).unwrap_err().to_string().contains("not a directory"));

    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Home::at(&open).unwrap_err().to_string().contains("mode 777"));

    let long = dir.path().join("x".repeat(120));
    assert!(matches!(Home::at(&long), Err(HomeError::TooLong { .. })));
    assert!(!long.exists());
}

#[test]
fn a_second_scheduler_learns_of_the_first_and_locks_after_it() {
    let dir = scratch();
    let home = Home::at(dir.path()).unwrap();
    let lock = home.lock_scheduler(Role::Leader).unwrap();
    match home.lock_scheduler(Role::Daemon) {
        Err(LockError::Held { pid, role, .. }) => {
            assert_eq!((pid, role), (Some(std::process::id()), Some(Role::Leader)));
        }
        other => panic!("{other:?}"),
    }
    drop(lock);
    assert_eq!(home.lock_scheduler(Role::Daemon).unwrap().role(), Role::Daemon);
}

#[test]
fn no_leader_gets_the_lock_while_a_daemon_claims_it() {
    let dir = scratch();
    let home = Home::at(dir.path()).unwrap();
    let claim = home.claim_for_daemon().unwrap().unwrap();
    assert!(home.claim_for_daemon().unwrap().is_none());
    assert!(matches!(home.lock_scheduler(Role::Leader), Err(LockError::Held { .. })));
    drop(home.lock_scheduler(Role::Daemon).unwrap());
    drop(claim);
    assert!(home.lock_scheduler(Role::Leader).is_ok());
}

#[test]
fn pages_of_dead_processes_are_swept_and_living_ones_kept() {
    let dir = scratch();
    let home = Home::at(dir.path()).unwrap();
    let mine = home.create_pages(identity::own()).unwrap();
    let dead = home.create_pages(ProcessId { pid: std::process::id(), start_time_ticks: 1 }).unwrap();
    let kept = home.create_pages(ProcessId { pid: std::process::id(), start_time_ticks: 2 }).unwrap();
    home.sweep_pages(|path| path == kept);
    assert!(mine.exists() && !dead.exists() && kept.exists());
}
