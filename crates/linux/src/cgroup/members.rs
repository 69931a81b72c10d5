//! Moving process trees into groups and back to where they were.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use topology::CpuSet;

use super::{Mount, Origin, Origins, TOP, check_name, membership, mounts};
use crate::affinity;
use crate::error::{Error, Result};
use crate::host;
use crate::procfs::{self, Process, Tid};
use crate::root::{Root, number, read, write};

const MAX_ROUNDS: u32 = 32;

/// What moving a process tree came to.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// The members of the tree, newly found ones included.
    pub processes: Vec<Process>,
    /// Scans of the tree that were made: 1 … 32; always 1 when moving back.
    pub rounds: u32,
    /// Whether the last two scans agreed: no process was left out.
    pub settled: bool,
    /// Living processes that could not be moved, with the reason; when moving back, one entry for each
    /// directory that a process could not leave.
    pub failed: Vec<(Process, Error)>,
}

/// One directory of a group: v1 has one a hierarchy, v2 has one.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Those of the v1 hierarchy that we use; none for v2, which has all in one.
    pub controllers: Vec<&'static str>,
    pub mount: Mount,
    pub base: PathBuf,
    pub dir: PathBuf,
}

impl Place {
    fn dir_of(&self, process: Process, root: &Root) -> Result<PathBuf> {
        let membership = membership(process.pid, root)?;
        let path = match self.controllers.first() {
            None => membership.v2,
            Some(controller) => membership.v1.get(*controller).cloned(),
        };
        Ok(self.mount.dir(path.as_deref().unwrap_or("/")))
    }
}

/// A group's directories and who was moved into them.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    pub places: Vec<Place>,
    pub origins: Origins,
}

/// The path of an application's group below its base.
pub(crate) fn group_path(scheduler: &str, app: &str) -> Result<PathBuf> {
    check_name("a scheduler", scheduler)?;
    check_name("an application", app)?;
    Ok(Path::new(TOP).join(scheduler).join(app))
}

/// The names of the subdirectories of `path`; none if it does not exist.
pub(crate) fn subgroups(path: &Path) -> Result<Vec<String>> {
    let names = match host::with(|host| host.names(path)) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("list", path, e)),
    };
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|entry| host::is_directory(&path.join(&entry.name)))
        .filter_map(|entry| entry.name.into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// Repeats the making of a group's levels as long as somebody else removes the upper ones, empty
/// as they are at that moment, in between.
pub(crate) fn create_levels<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..MAX_ROUNDS {
        match make() {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
    make()
}

/// Makes one level of a group; that it exists already is as good.
pub(crate) fn create_dir(path: &Path) -> Result<()> {
    match host::with(|host| host.create_directory(path, 0o777)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("make the group", path, e)),
        _ => Ok(()),
    }
}

fn enter(process: Process, dir: &Path, root: &Root) -> Result<()> {
    // The pid is checked right before it is used; a pid comes round again only after thousands of
    // others.
    if !process.is_alive(root) {
        return Err(Error::Gone(process));
    }
    move_process(process.pid, dir, root)
}

/// Moves a process into the group of this directory. Its threads keep the masks that they have beside their cpuset,
/// which before Linux 6.2 another cpuset makes the kernel forget: who had bound its threads would find them anywhere.
pub fn move_process(pid: u32, dir: &Path, root: &Root) -> Result<()> {
    let masks = own_masks(pid, root);
    write(&dir.join("cgroup.procs"), &pid.to_string())?;
    for (tid, mask) in masks {
        if affinity::get(tid).is_ok_and(|now| now != mask) {
            // It has ended, or none of these CPUs is in its new cpuset: then it has what there is.
            let _ = affinity::set(tid, &mask);
        }
    }
    Ok(())
}

/// The threads that may use less than their cpuset holds, and what.
fn own_masks(pid: u32, root: &Root) -> Vec<(Tid, CpuSet)> {
    let Some(cpuset) = cpuset_of(pid, root) else { return Vec::new() };
    let threads = procfs::threads(pid, root).unwrap_or_default();
    let masks = threads.into_iter().filter_map(|tid| Some((tid, affinity::get(tid).ok()?)));
    masks.filter(|(_, mask)| *mask != cpuset).collect()
}

/// The CPUs that the cpuset of a process holds; `None` where there are no cpusets.
fn cpuset_of(pid: u32, root: &Root) -> Option<CpuSet> {
    let (mounts, own) = (mounts(root).ok()?, membership(pid, root).ok()?);
    let number_in = |path: PathBuf| number(&path, &read(&path).ok()?).ok();
    if let (Some(mount), Some(path)) = (mounts.v1.get("cpuset"), own.v1.get("cpuset")) {
        return number_in(mount.dir(path).join("cpuset.effective_cpus"));
    }
    let (mount, path) = (mounts.v2?, own.v2?);
    // Without the controller it is that of the next group above that has it.
    let groups = mount.dir(&path);
    let groups = groups.ancestors().take_while(|group| group.starts_with(&mount.point));
    groups
        .map(|group| group.join("cpuset.cpus.effective"))
        .find(|path| host::exists(path))
        .and_then(number_in)
}

impl Members {
    /// Moves these processes and all their descendants in, again and again until a scan finds none
    /// outside: a child forked before its parent was moved is born outside. Those of `outside` stay where they are.
    pub fn add(&mut self, processes: &[Process], outside: &BTreeSet<Process>, root: &Root) -> Result<Moved> {
        let mut moved = Moved { processes: processes.to_vec(), ..Moved::default() };
        let mut done = BTreeSet::new();
        while moved.rounds < MAX_ROUNDS && !moved.settled {
            moved.rounds += 1;
            moved.processes = procfs::tree_fast(&moved.processes, root)?;
            moved.processes.retain(|process| !outside.contains(process));
            moved.settled = true;
            for process in moved.processes.clone() {
                if done.insert(process) {
                    moved.settled = false;
                    match self.add_one(process, root) {
                        Ok(()) => {}
                        Err(_) if !process.is_alive(root) => {}
                        Err(error) => moved.failed.push((process, error)),
                    }
                }
            }
        }
        Ok(moved)
    }

    fn add_one(&mut self, process: Process, root: &Root) -> Result<()> {
        let dirs: Vec<PathBuf> =
            self.places.iter().map(|place| place.dir_of(process, root)).collect::<Result<_>>()?;
        let all_in = dirs.iter().zip(&self.places).all(|(dir, place)| *dir == place.dir);
        // Remembered before the first write: a failure half-way must be reversible as well. Born
        // inside: its origin is its parent's, which `release` finds.
        if !all_in && self.origins.find(process).is_none() {
            self.origins.entries.push(Origin { process, dirs: dirs.clone() });
        }
        for (dir, place) in dirs.iter().zip(&self.places) {
            if *dir != place.dir {
                enter(process, &place.dir, root)?;
            }
        }
        Ok(())
    }

    /// Moves processes back to where they were; children born inside go where the first member
    /// came from, and where that is gone to the group's base.
    pub fn release(&mut self, processes: &[Process], root: &Root) -> Moved {
        let mut moved = Moved { processes: processes.to_vec(), rounds: 1, settled: true, ..Moved::default() };
        for process in processes {
            let origin = self.origins.find(*process).or(self.origins.entries.first()).cloned();
            for (index, place) in self.places.iter().enumerate() {
                if place.dir_of(*process, root).is_ok_and(|dir| dir != place.dir) {
                    continue;
                }
                let home = origin.as_ref().and_then(|origin| origin.dirs.get(index));
                let back = home
                    .map_or(Err(Error::Gone(*process)), |home| enter(*process, home, root))
                    .or_else(|_| enter(*process, &place.base, root))
                    // A v2 base with controllers takes no processes; its root always does.
                    .or_else(|_| enter(*process, &place.mount.point, root));
                if let Err(error) = back
                    && process.is_alive(root)
                {
                    moved.failed.push((*process, error));
                }
            }
            self.origins.entries.retain(|origin| origin.process != *process);
        }
        moved
    }

    /// The living members of any of the directories, in ascending order of pid.
    pub fn processes(&self, root: &Root) -> Result<Vec<Process>> {
        let mut pids = BTreeSet::new();
        for place in &self.places {
            let path = place.dir.join("cgroup.procs");
            let text = match read(&path) {
                // In a group that somebody has removed stands nobody.
                Err(error) if error.is_group_gone() => continue,
                text => text?,
            };
            for line in text.lines() {
                // 0 is a process that this pid namespace cannot see.
                pids.extend(line.trim().parse::<u32>().ok().filter(|pid| *pid != 0));
            }
        }
        Ok(pids.into_iter().filter_map(|pid| Process::of(pid, root).ok()).collect())
    }

    /// Empties and removes the directories, then the levels above that nobody uses any more.
    /// Thawing is the caller's part: a frozen process can be moved, but never told.
    pub fn remove(&mut self, root: &Root) -> Result<()> {
        let mut left = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let members = self.processes(root)?;
            if members.is_empty() {
                break;
            }
            left = self.release(&members, root).failed;
        }
        // What hinders one is no reason to leave the others.
        let removed: Vec<Result<()>> = self.places.iter().map(|place| remove(place, &left)).collect();
        removed.into_iter().collect()
    }
}

/// Removes a group's directory and the levels above it that nobody uses any more. `left`: who could not be moved out.
fn remove(place: &Place, left: &[(Process, Error)]) -> Result<()> {
    let waited = super::wait_until("removing the group", &place.dir, 1_000_000_000, || {
        match host::with(|host| host.remove_directory(&place.dir)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            // Zombies and threads on their way out hold a group for a moment.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            Err(e) => Err(Error::io("remove the group", &place.dir, e)),
        }
    });
    if let Err(error) = waited {
        let Some((_, why)) = left.first() else { return Err(error) };
        let source = io::Error::new(io::ErrorKind::ResourceBusy, why.clone());
        return Err(Error::io("empty and remove the group", &place.dir, source));
    }
    for level in place.dir.ancestors().skip(1).take_while(|level| *level != place.base) {
        match host::with(|host| host.remove_directory(level)) {
            // Another application or scheduler may still be in there.
            Err(error) if error.kind() != io::ErrorKind::NotFound => break,
            _ => {}
        }
    }
    Ok(())
}
