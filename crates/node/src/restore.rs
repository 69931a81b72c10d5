//! Setting a program free: undoing everything that was ever done to it.
//!
//! What is undone is the list of acts that were put on record before they were done ([`crate::acts`]): setting free
//! folds their inverses, step by step. It works from what is written down and from what is seen, needs no scheduler, and may be done
//! twice or half a time before: guards, a scheduler that stops, `release` and adoption all use it.
//! First it makes the program run, then widens it, then tidies up.

mod masks;
mod pages;
mod stray;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use linux::host;
use linux::spread::spread;
use linux::{Process, Root, cgroup, procfs, signals};
use protocol::AppRecord;

pub use pages::remove_pages;
pub use stray::set_stray_free;

use crate::acts::{Act, Step};
use crate::error::Error;
use crate::home::{Home, LOCK_PATIENCE_NS};
use crate::identity;
use crate::registry::{Registry, Traces};

/// Scans after which a program that forks faster than it can be looked at is given up on.
const MOST_ROUNDS: u32 = 16;
/// How long a group may stay busy with processes that are on their way out.
const REMOVAL_NS: u64 = 200_000_000;

/// What setting free came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Living processes of the program.
    pub processes: usize,
    /// Of these: continued.
    pub continued: usize,
    /// Threads whose mask was widened.
    pub widened: usize,
    /// Threads that shared a CPU with others of their process, and were moved to one without.
    pub spread: usize,
    /// What could not be undone, and why.
    pub problems: Vec<Error>,
}

/// Sets the program free, by what the registry knows to have been done to it.
pub fn set_free(record: &AppRecord, root: &Root, home: &Home) -> Report {
    set_free_knowing(record, Known::default(), root, home)
}

/// What the scheduler of a program knows, whether or not it is on record.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Groups that it made for it. A guard to which the scheduler was lost for a while may have forgotten a program
    /// that had ended, and the scheduler come back and made another group for it.
    pub groups: Vec<PathBuf>,
    /// Its user has stopped it. On a full disk that cannot be put on record.
    pub user_stopped: bool,
    /// Its turns are taken by signals, and have stopped none of its processes: whoever stands, others have stopped.
    pub none_stopped: bool,
}

/// The same by the scheduler of the program.
pub fn set_free_knowing(record: &AppRecord, known: Known, root: &Root, home: &Home) -> Report {
    let registry = Registry::new(home);
    let mut traces = registry.traces(&record.id);
    traces.user_stopped |= known.user_stopped;
    if known.none_stopped && !broken!(UsersStopForgotten) {
        traces.stops_by_signal = Some(false);
    }
    known.groups.into_iter().for_each(|group| traces.note(Act::Grouped(group)));
    let mut report = set_free_by(record, &traces, &home.group_name(), root);
    if report.widened > 0 || report.processes > 0 && !traces.groups.is_empty() {
        report.spread = spread_threads(record, &registry, root);
    }
    report
}

/// Threads that shared a narrow place may stay on one CPU when they have more: where another program spins on the
/// other CPUs the kernel finds nothing to balance, and threads that spin for each other never sleep. Who is moved
/// is bound to one CPU for some microseconds, which is noted for that time, beside the traces: those may be a
/// scheduler's that comes back late, and does new things.
fn spread_threads(record: &AppRecord, registry: &Registry, root: &Root) -> usize {
    let Ok(members) = procfs::tree(identity::to_linux(record.process).pid, root) else { return 0 };
    if !registry.note_spread(&record.id) {
        return 0;
    }
    let moved = spread(&members, root);
    registry.spread_is_over(&record.id);
    moved
}

/// The same for who keeps the traces itself.
pub fn set_free_by(record: &AppRecord, traces: &Traces, group_name: &str, root: &Root) -> Report {
    let mut freeing = Freeing { record, traces, root, members: Vec::new(), report: Report::default() };
    let acts = freeing.acts(group_name);
    for step in Step::IN_ORDER {
        let undone: Vec<&Act> = acts.iter().filter(|act| act.undo_steps().contains(&step)).collect();
        freeing.undo(step, &undone);
    }
    freeing.report
}

struct Freeing<'a> {
    record: &'a AppRecord,
    traces: &'a Traces,
    root: &'a Root,
    /// Everything of the program that is known to live.
    members: Vec<Process>,
    report: Report,
}

impl Freeing<'_> {
    fn problem(&mut self, what: impl Into<Error>) {
        self.report.problems.push(what.into());
    }

    /// Takes one step of the inverses of these acts, which are all that it undoes.
    fn undo(&mut self, step: Step, acts: &[&Act]) {
        let groups: Vec<&Path> = acts.iter().filter_map(|act| act.group()).collect();
        match step {
            Step::Thaw => {
                self.thaw(&groups);
                self.members = self.living_members(&groups);
                self.report.processes = self.members.len();
            }
            Step::Continue if acts.is_empty() => {}
            Step::Continue => self.continue_stopped(),
            Step::MoveBack => {
                self.move_back(&groups);
                let living = self.living_members(&[]);
                let members: BTreeSet<Process> = living.into_iter().chain(self.members.drain(..)).collect();
                self.members = members.into_iter().collect();
            }
            Step::Widen => self.restore_cpus(acts),
            Step::StopAsking => self.clear_targets(),
        }
    }

    /// What is to be undone: what was written down, and the groups in which the program is seen. Of groups those that
    /// exist.
    fn acts(&self, group_name: &str) -> Vec<Act> {
        let (mut groups, mut others) = (BTreeSet::new(), Vec::new());
        for act in self.traces.acts() {
            match act {
                Act::Grouped(group) => drop(groups.insert(group)),
                other => others.push(other),
            }
        }
        groups.extend(self.observed_groups(group_name));
        let groups = groups.into_iter().filter(|group| host::is_directory(group));
        groups.map(Act::Grouped).chain(others).collect()
    }

    /// The group directories of ours that it is seen in.
    fn observed_groups(&self, group_name: &str) -> Vec<PathBuf> {
        let membership = cgroup::mounts(self.root).and_then(|mounts| {
            cgroup::membership(self.record.process.pid, self.root).map(|membership| (mounts, membership))
        });
        let (Ok((mounts, membership)), true) = (membership, identity::is_alive(self.record.process)) else {
            return Vec::new();
        };
        let is_ours = |dir: &PathBuf| {
            let mut parts = dir.iter().rev().skip(1);
            parts.next().is_some_and(|part| part == group_name)
                && parts.next().is_some_and(|part| part == cgroup::TOP)
        };
        mounts.dirs(&membership).into_values().filter(is_ours).collect()
    }

    /// Makes everything in the groups run, at its usual importance, on all CPUs of the parent.
    fn thaw(&mut self, groups: &[&Path]) {
        for group in groups.iter().filter(|_| !broken!(NothingThawed)) {
            for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0"), ("cpu.idle", "0")] {
                self.write_if_exists(&group.join(file), value);
            }
            // Even if its members cannot be moved out they are not confined any more. In v2 an empty
            // list would mean the parent's as well, but is refused to a group with members (ENOSPC).
            let is_v2 = host::exists(&group.join("cgroup.controllers"));
            let above = if is_v2 { "cpuset.cpus.effective" } else { "cpuset.cpus" };
            if let Some(cpus) = group.parent().and_then(|parent| text_of(&parent.join(above))) {
                self.write_if_exists(&group.join("cpuset.cpus"), cpus.trim());
            }
        }
    }

    fn write_if_exists(&mut self, path: &Path, value: &str) {
        // The kernel takes a line break for an empty value, and nothing at all for no value.
        match host::with(|host| host.write(path, format!("{value}\n").as_bytes())) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::NotFound)
                    && error.raw_os_error() != Some(libc::ENODEV) =>
            {
                self.problem(linux::Error::io(format!("write {value} into"), path, error));
            }
            _ => {}
        }
    }

    /// Everything of the program that lives: its tree, whoever is in its groups, and, where there
    /// are no groups to tell, those that lost their parents and still carry its environment.
    fn living_members(&mut self, groups: &[&Path]) -> Vec<Process> {
        let mut known = vec![identity::to_linux(self.record.process)];
        for group in groups {
            known.extend(pids(group).into_iter().filter_map(|pid| Process::of(pid, self.root).ok()));
        }
        if self.traces.groups.is_empty()
            && let Some(pages) = self.record.pages.to_str()
            && let Ok(carriers) = procfs::with_variable("COPLACE_PAGES", pages, self.root)
        {
            known.extend(carriers);
        }
        let found = procfs::tree_with(&known, self.root);
        found.unwrap_or_else(|error| {
            self.problem(error);
            known
        })
    }

    fn continue_stopped(&mut self) {
        if broken!(NobodyContinued) {
            return;
        }
        let stopped = stopped_of(&self.members, self.root);
        // Whom somebody else has stopped is his to continue, as far as that shows: where stops are those of whole
        // processes, as an earlier version sent them, it does not. Of whom nothing is on record we have not stopped
        // anybody in that way, and the stops of a `run` that found no scheduler are its user's.
        let shows = self.traces.stops_threads || self.traces.stops_by_signal.is_none();
        let sent = match shows && !broken!(UsersStopForgotten) {
            true => signals::cont_ours(&stopped, self.root),
            false => signals::cont(&stopped, self.root),
        };
        self.report.continued = sent.reached;
        for (process, error) in sent.failed {
            self.problem(Error::NotContinued { pid: process.pid, error });
        }
    }

    fn move_back(&mut self, groups: &[&Path]) {
        let left = groups.iter().filter(|_| !broken!(NobodyMovedBack));
        for group in left.filter(|_| !broken!(NothingThawed)) {
            let home = self.return_dirs(group);
            for _ in 0..MOST_ROUNDS {
                let members = pids(group);
                if members.is_empty() {
                    break;
                }
                for pid in members {
                    let own = self.own_group(pid, group);
                    let homes: Vec<PathBuf> = own.into_iter().chain(home.iter().cloned()).collect();
                    if let Err(error) = move_to(pid, &homes, self.root) {
                        self.problem(error);
                    }
                }
            }
            self.remove(group);
        }
        // Somebody who was killed may have removed the group and not come to these.
        let gone = self.traces.groups.iter().filter(|group| !host::exists(group));
        gone.for_each(|group| self.remove_levels_above(group));
    }

    /// Where members of this group go, best first: where the program came from; beside the groups, where these are in
    /// one that was delegated; the directory below which groups are made; the top of the hierarchy.
    fn return_dirs(&self, group: &Path) -> Vec<PathBuf> {
        let mount = self.mount_of(group);
        let origin = mount.and_then(|point| self.traces.origins.get(point)).cloned();
        // coplace/<scheduler>/<application>
        let base = group.ancestors().nth(3);
        let bases = base.into_iter().flat_map(|base| [cgroup::dir_outside(base), base.to_owned()]);
        origin.into_iter().chain(bases).chain(mount.cloned()).filter(|dir| !dir.starts_with(group)).collect()
    }

    /// The group of this hierarchy from which a process of a program that was running came.
    fn own_group(&self, pid: u32, group: &Path) -> Option<PathBuf> {
        let before = self.traces.before.as_ref()?;
        let mount = self.mount_of(group)?;
        let process = Process::of(pid, self.root).ok()?;
        before.group_of(process, mount, self.root).filter(|dir| !dir.starts_with(group)).cloned()
    }

    /// The mount point of the hierarchy in which a group of ours is.
    fn mount_of(&self, group: &Path) -> Option<&PathBuf> {
        let points = self.traces.origins.keys().filter(|point| group.starts_with(point));
        points.max_by_key(|point| point.as_os_str().len())
    }

    fn remove(&mut self, group: &Path) {
        let began_ns = linux::clock::now_ns();
        loop {
            match host::with(|host| host.remove_directory(group)) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => {
                    let now_ns = linux::clock::now_ns();
                    if error.raw_os_error() != Some(libc::EBUSY) || now_ns - began_ns > REMOVAL_NS {
                        self.problem(linux::Error::io("remove", group, error));
                        return;
                    }
                    linux::clock::sleep_until(now_ns + 2_000_000);
                }
            }
        }
        self.remove_levels_above(group);
    }

    /// The levels above go with their last group; others may be in there.
    fn remove_levels_above(&self, group: &Path) {
        for level in group.ancestors().skip(1).take(2) {
            // Whoever has removed one may have been killed before the next.
            match host::with(|host| host.remove_directory(level)) {
                Err(error) if error.kind() != ErrorKind::NotFound => break,
                _ => {}
            }
        }
    }
}

fn text_of(path: &Path) -> Option<String> {
    String::from_utf8(host::with(|host| host.read(path)).ok()?).ok()
}

fn pids(group: &Path) -> Vec<u32> {
    let text = text_of(&group.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process that this pid namespace cannot see.
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid != 0).collect()
}

/// Into the first directory that takes it. A process that has ended is where it should be.
fn move_to(pid: u32, dirs: &[PathBuf], root: &Root) -> Result<(), Error> {
    let mut last = Ok(());
    for dir in dirs {
        match cgroup::move_process(pid, dir, root) {
            Err(linux::Error::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {
                return Ok(());
            }
            Err(error) => last = Err(Error::NotMovedBack { pid, to: dir.clone(), error }),
            Ok(()) => return Ok(()),
        }
    }
    last
}

/// Continues those of its processes that stand stopped: its user has continued it. Who takes turns by signals runs out
/// of turn once.
pub fn continue_all(record: &AppRecord, root: &Root) {
    let members = procfs::tree(identity::to_linux(record.process).pid, root).unwrap_or_default();
    // Who cannot be signalled has ended, or is somebody else's.
    let _ = signals::cont(&stopped_of(&members, root), root);
}

/// Who was never stopped gets no SIGCONT: a launcher would hand it on to its whole job.
fn stopped_of(members: &[Process], root: &Root) -> Vec<Process> {
    let stands = |process: &Process| signals::is_stopping(*process, root) || broken!(AllContinued);
    members.iter().copied().filter(stands).collect()
}

/// What a scheduler that died left in the registry: set free whoever `may` still be freed, and
/// forget who has ended.
pub fn set_all_free(root: &Root, home: &Home, mut may: impl FnMut() -> bool) -> BTreeMap<String, Report> {
    let registry = Registry::new(home);
    let mut reports = BTreeMap::new();
    // For all of them together: each is to be free within a second.
    let until_ns = linux::clock::now_ns() + LOCK_PATIENCE_NS;
    for record in registry.list().unwrap_or_default().records {
        if !may() {
            return reports;
        }
        // A scheduler that hangs with the lock finds itself late when it comes back.
        let _lock = home.lock_programs_until(until_ns, || ());
        // It may have come back before we had the lock: what we do then it would not see.
        if !may() {
            return reports;
        }
        // What is given up meanwhile is nobody's to undo.
        if !registry.has(&record.id) {
            continue;
        }
        // Before, as we may be killed in the middle of it; and after, as the scheduler may not wait for us.
        registry.note_free(&record.id);
        let report = set_free(&record, root, home);
        registry.note_free(&record.id);
        if report.processes == 0 && may() {
            registry.remove(&record.id);
            remove_pages(&record);
        }
        reports.insert(record.id.to_string(), report);
    }
    reports
}

#[cfg(test)]
mod tests;
