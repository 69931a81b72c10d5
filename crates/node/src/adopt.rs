//! Rules by which programs that start without `coplace run` are taken in: by path, user or cgroup.
//!
//! Whatever a rule says, it never means system services, sshd, shells, launchers, the desktop, or
//! anything else that [`linux::protection`] names.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;

use linux::procfs::{self, Stat};
use linux::protection::{self, Reason};
use linux::{Process, Root, cgroup};
use workload::{AppId, Demand};

/// What a program must have used before a rule without a path means it: what ends sooner gains
/// nothing, and interactive programs hardly ever get there.
const WORTH_IT_NS: u64 = 1_000_000_000;
/// How soon a process that was no match is looked at again, and at longest: it may execute
/// something else, or use more.
const AGAIN_NS: u64 = 900_000_000;
const LONGEST_NS: u64 = 30_000_000_000;
/// Users below this are the system's own, but for root.
const FIRST_PERSON: u32 = 1000;
const NOBODY: u32 = 65_534;

/// A `[[adopt]]` of the configuration. What is given must hold, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The program's file; `*` and `?` as in a shell, `**` for any directories.
    pub path: Option<glob::Pattern>,
    /// Number of its real user (`Uid` in `/proc/PID/status`).
    pub uid: Option<u32>,
    /// The path of its cgroup in any hierarchy, as `/proc/PID/cgroup` names it.
    pub cgroup: Option<glob::Pattern>,
    /// Name to show it by.
    pub name: Option<AppId>,
    /// The demand of programs that it takes in; a default weight gives way to that of their nice value.
    pub demand: Demand,
}

/// A process that a rule means.
#[derive(Debug)]
pub struct Found {
    /// The topmost process of its tree that a rule means.
    pub process: Process,
    /// Number of its real user (`Uid` in `/proc/PID/status`).
    pub uid: u32,
    /// The name that the rule gives; `None`: it goes by that of its program.
    pub name: Option<AppId>,
    /// The demand that the rule gives.
    pub demand: Demand,
    /// Which rule, in words.
    pub rule: String,
}

/// When a process is looked at again, and how long the pause was before.
struct Later {
    at_ns: u64,
    pause_ns: u64,
}

/// Looks for programs that rules mean, and keeps in mind when to look at each process again.
#[derive(Default)]
pub struct Adopter {
    rules: Vec<Rule>,
    later: BTreeMap<Process, Later>,
}

impl Adopter {
    /// The first of `rules` that means a process counts.
    pub fn new(rules: Vec<Rule>) -> Adopter {
        Adopter { rules, later: BTreeMap::new() }
    }

    /// Without rules there is nothing to look for.
    pub fn is_idle(&self) -> bool {
        self.rules.is_empty()
    }

    /// Every process that a rule means and that is not managed; of a tree, the topmost one.
    pub fn scan(&mut self, managed: &BTreeSet<Process>, now_ns: u64, root: &Root) -> Vec<Found> {
        let Ok(everyone) = procfs::all(root) else { return Vec::new() };
        let by_pid: BTreeMap<u32, &Stat> = everyone.iter().map(|stat| (stat.pid, stat)).collect();
        self.later
            .retain(|process, _| by_pid.get(&process.pid).is_some_and(|stat| stat.process() == *process));
        let mut found: BTreeMap<u32, Found> = BTreeMap::new();
        for stat in &everyone {
            let process = stat.process();
            if stat.is_kernel_thread()
                || stat.has_ended()
                || self.later.get(&process).is_some_and(|later| later.at_ns > now_ns)
            {
                continue;
            }
            let above = ancestors(stat, &by_pid);
            if above.iter().any(|stat| stat.comm == "coplace" || managed.contains(&stat.process())) {
                continue;
            }
            match self.rules.iter().enumerate().find_map(|(at, rule)| rule.matches(at, stat, root)) {
                Some(match_) => drop(found.insert(stat.pid, match_)),
                None => {
                    let pause_ns = self
                        .later
                        .get(&process)
                        .map_or(AGAIN_NS, |later| (later.pause_ns * 2).min(LONGEST_NS));
                    self.later.insert(process, Later { at_ns: now_ns.saturating_add(pause_ns), pause_ns });
                }
            }
        }
        let inside = |pid: &u32| {
            by_pid.get(pid).is_some_and(|stat| {
                ancestors(stat, &by_pid).iter().skip(1).any(|above| found.contains_key(&above.pid))
            })
        };
        let inner: Vec<u32> = found.keys().copied().filter(inside).collect();
        found.retain(|pid, _| !inner.contains(pid));
        for found in found.values() {
            // Whether it could be taken in or not, it is not tried again at once.
            let later = Later { at_ns: now_ns.saturating_add(LONGEST_NS), pause_ns: LONGEST_NS };
            self.later.insert(found.process, later);
        }
        found.into_values().collect()
    }

    /// A program was given back by its user: no rule takes it in again.
    pub fn exclude(&mut self, process: Process) {
        self.later.insert(process, Later { at_ns: u64::MAX, pause_ns: LONGEST_NS });
    }
}

/// The process itself, its parent, its parent's parent …
fn ancestors<'a>(stat: &'a Stat, by_pid: &BTreeMap<u32, &'a Stat>) -> Vec<&'a Stat> {
    let mut chain = vec![stat];
    let mut parent = stat.ppid;
    // Bounded: a torn /proc can name ancestors in a circle.
    while let Some(stat) = by_pid.get(&parent).filter(|_| parent > 1 && chain.len() < 64) {
        chain.push(stat);
        parent = stat.ppid;
    }
    chain
}

impl Rule {
    fn matches(&self, number: usize, stat: &Stat, root: &Root) -> Option<Found> {
        let status = procfs::status(stat.pid, root).ok()?;
        if self.uid.is_some_and(|uid| uid != status.uid) {
            return None;
        }
        let exe = self.path.as_ref().map(|pattern| (pattern, procfs::exe(stat.pid, root)));
        if exe.is_some_and(|(pattern, exe)| !exe.is_ok_and(|path: PathBuf| pattern.matches_path(&path))) {
            return None;
        }
        let membership = cgroup::membership(stat.pid, root).ok()?;
        let groups: BTreeSet<&str> =
            membership.v2.iter().chain(membership.v1.values()).map(String::as_str).collect();
        if self.cgroup.as_ref().is_some_and(|pattern| !groups.iter().any(|group| pattern.matches(group))) {
            return None;
        }
        if is_system(status.uid) || groups.iter().any(|group| is_service_or_desktop(group)) {
            return None;
        }
        match protection::protected(stat.process(), root) {
            None => {}
            // Who names a program's path means it wherever it runs.
            Some(Reason::ForegroundJob) if self.path.is_some() => {}
            Some(_) => return None,
        }
        let worth_it = self.path.is_some()
            || procfs::cpu_time_ns(stat.process(), root).is_ok_and(|used_ns| used_ns >= WORTH_IT_NS);
        worth_it.then(|| Found {
            process: stat.process(),
            uid: status.uid,
            name: self.name.clone(),
            demand: self.demand.clone(),
            rule: format!("rule {} of the configuration", number + 1),
        })
    }
}

fn is_system(uid: u32) -> bool {
    uid != 0 && uid < FIRST_PERSON || uid == NOBODY
}

/// Groups of a service manager: units that are services, and what belongs to a desktop's session.
fn is_service_or_desktop(group: &str) -> bool {
    let parts: Vec<&str> = group.split('/').filter(|part| !part.is_empty()).collect();
    // Everything of a user stands below user@UID.service, which is none itself.
    let inner =
        parts.iter().position(|part| part.starts_with("user@")).map_or(&parts[..], |at| &parts[at + 1..]);
    let service = |part: &&str| part.ends_with(".service") || *part == "init.scope";
    let desktop = |part: &&str| {
        matches!(*part, "session.slice" | "background.slice")
            || part.starts_with("app-") && part.ends_with(".scope")
    };
    inner.iter().any(|part| service(part) || desktop(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::killed::Killed;
    use std::process::Command;

    /// A copy of `sleep` at a path of its own.
    fn sleeper(directory: &std::path::Path) -> (Killed, Process) {
        let program = directory.join("solver");
        if !program.exists() {
            std::fs::copy("/bin/sleep", &program).unwrap();
        }
        // A process that another test forked meanwhile may hold the copy open for writing until it executes.
        let child = loop {
            match Command::new(&program).arg("100").spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                child => break Killed(child.unwrap()),
            }
        };
        let process = Process::of(child.0.id(), &Root::live()).unwrap();
        (child, process)
    }

    fn by_path(directory: &std::path::Path) -> Rule {
        let pattern = format!("{}/*", directory.canonicalize().unwrap().display());
        Rule { path: Some(glob::Pattern::new(&pattern).unwrap()), ..Rule::default() }
    }

    #[test]
    fn a_path_rule_adopts_once_and_never_managed_or_released_ones() {
        let directory = tempfile::tempdir().unwrap();
        let (_child, process) = sleeper(directory.path());
        let root = Root::live();
        let scan = |adopter: &mut Adopter, managed: &[Process], at_ns: u64| -> Vec<Process> {
            let managed = managed.iter().copied().collect();
            adopter.scan(&managed, at_ns, &root).iter().map(|found| found.process).collect()
        };
        let mut adopter = Adopter::new(vec![by_path(directory.path())]);
        assert_eq!(scan(&mut adopter, &[process], 0), []);
        assert_eq!(scan(&mut adopter, &[], 0), [process]);
        assert_eq!(scan(&mut adopter, &[], 1), []);
        adopter.exclude(process);
        assert_eq!(scan(&mut adopter, &[], u64::MAX - 1), []);
    }

    #[test]
    fn a_rule_without_a_path_waits_until_a_program_has_used_the_cpu() {
        let directory = tempfile::tempdir().unwrap();
        let (_child, process) = sleeper(directory.path());
        let uid = procfs::status(process.pid, &Root::live()).unwrap().uid;
        let mut adopter = Adopter::new(vec![Rule { uid: Some(uid), ..Rule::default() }]);
        let found = adopter.scan(&BTreeSet::new(), 0, &Root::live());
        assert!(found.iter().all(|found| found.process != process), "{found:?}");
        let mut other = by_path(directory.path());
        other.uid = Some(uid + 1);
        assert!(Adopter::new(vec![other]).scan(&BTreeSet::new(), 0, &Root::live()).is_empty());
    }

    #[test]
    fn no_rule_means_shells_services_or_the_desktop() {
        let shell =
            Killed(Command::new("sh").args(["-c", "sleep 5 > /dev/null 2>&1; true"]).spawn().unwrap());
        let everything = Rule { path: Some(glob::Pattern::new("/**").unwrap()), ..Rule::default() };
        let found = Adopter::new(vec![everything]).scan(&BTreeSet::new(), 0, &Root::live());
        assert!(found.iter().all(|found| found.process.pid != shell.0.id()), "{found:?}");
        for (group, excluded) in [
            ("/", false),
            ("/system.slice/sshd.service", true),
            ("/init.scope", true),
            ("/user.slice/user-1000.slice/session-2.scope", false),
            (
                "/user.slice/user-1000.slice/user@1000.service/session.slice/org.gnome.Shell@wayland.service",
                true,
            ),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-77.scope", true),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/run-u12.scope", false),
            ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", false),
        ] {
            assert_eq!(is_service_or_desktop(group), excluded, "{group}");
        }
        assert!(is_system(33) && is_system(65_534) && !is_system(0) && !is_system(1000));
    }
}
