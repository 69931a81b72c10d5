//! Looks at the running programs from outside: CPU time that threads got and waited for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use linux::page::{PageDir, RigidReason};
use linux::procfs::{self, Process, Stat, TaskRuntime, Tid};
use linux::{Result, Root, job, protection};

use super::judge::ObservedProgram;
use super::runtimes;

/// Threads' run and wait times of all processes that can be looked at.
struct Sample {
    taken_at: Instant,
    threads: BTreeMap<(Process, Tid), TaskRuntime>,
}

/// What was observed, busiest first, and how many processes could not be looked at.
pub struct Observation {
    pub programs: Vec<ObservedProgram>,
    pub hidden: u32,
    /// The kernel keeps no times of waiting (no CONFIG_SCHED_INFO): nothing can be said.
    pub blind: bool,
}

/// Watches for `duration`; changes nothing.
pub fn observe(duration: Duration, root: &Root) -> Result<Observation> {
    let before = sample(root)?.0;
    std::thread::sleep(duration);
    let (after, hidden) = sample(root)?;
    let interval_ns = after.taken_at.duration_since(before.taken_at).as_nanos() as f64;
    let stats: BTreeMap<Process, Stat> =
        procfs::all(root)?.into_iter().map(|stat| (stat.process(), stat)).collect();
    let mut programs: BTreeMap<Process, ObservedProgram> = BTreeMap::new();
    for (&(process, tid), now) in &after.threads {
        // A thread that began meanwhile is counted from its beginning.
        let then = before.threads.get(&(process, tid)).copied().unwrap_or_default();
        let run_ns = now.run_ns.saturating_sub(then.run_ns);
        let wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
        if run_ns + wait_ns == 0 {
            continue;
        }
        let Some(stat) = stats.get(&process) else { continue };
        let observed = programs.entry(process).or_insert_with(|| describe(stat, &stats, root));
        observed.used_cpus += run_ns as f64 / interval_ns;
        observed.wanted_cpus += (run_ns + wait_ns) as f64 / interval_ns;
        let awake = (run_ns + wait_ns) as f64 / interval_ns;
        if awake > 0.5 {
            observed.busy_threads += 1;
            observed.awake_cpus += awake.min(1.0);
        }
    }
    let mut observed = join(programs, |process| kin(process, &stats, root));
    observed.retain(|observed| observed.wanted_cpus >= 0.05);
    // Files are read of those only whose threads get into somebody's way.
    for observed in
        observed.iter_mut().filter(|observed| observed.busy_threads > 1 && observed.openmp.is_none())
    {
        let file = procfs::exe(observed.pid, root).ok();
        observed.runtime = observed.runtime.take().or_else(|| runtimes::linked_in(&file?));
    }
    observed.sort_by(|a, b| b.wanted_cpus.total_cmp(&a.wanted_cpus).then(a.pid.cmp(&b.pid)));
    Ok(Observation { programs: observed, hidden, blind: lacks_accounting(root)? })
}

/// Whether even we, who certainly ran, are said to have never run. That nobody else ran meanwhile says
/// nothing: the machine may be idle.
fn lacks_accounting(root: &Root) -> Result<bool> {
    let own = procfs::own_pid(root)?;
    Ok(!procfs::task_runtime_ns(own, own, root).is_ok_and(|runtime| runtime.run_ns > 0))
}

fn sample(root: &Root) -> Result<(Sample, u32)> {
    let mut threads = BTreeMap::new();
    let mut hidden = 0;
    let taken = Instant::now();
    let own = procfs::own_pid(root)?;
    for stat in procfs::all(root)? {
        if stat.is_kernel_thread() || stat.has_ended() || stat.pid == own {
            continue;
        }
        let Ok(tids) = procfs::threads(stat.pid, root) else { continue };
        for tid in tids {
            match procfs::task_runtime_ns(stat.pid, tid, root) {
                Ok(runtime) => {
                    threads.insert((stat.process(), tid), runtime);
                }
                Err(error) if error.is_denied() => {
                    hidden += 1;
                    break;
                }
                // It ended meanwhile, or the kernel keeps no such times.
                Err(_) => {}
            }
        }
    }
    Ok((Sample { taken_at: taken, threads }, hidden))
}

fn describe(stat: &Stat, stats: &BTreeMap<Process, Stat>, root: &Root) -> ObservedProgram {
    let pid = stat.pid;
    let launcher = job::launcher_of(stat.process(), root);
    let command_line = procfs::cmdline(pid, root).unwrap_or_default();
    let command: Vec<String> = match command_line.is_empty() {
        true => vec![stat.comm.clone()],
        false => command_line.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
    };
    let status = procfs::status(pid, root).unwrap_or_default();
    let environment = procfs::environ(pid, root).unwrap_or_default();
    let variable = |name: &str| {
        environment.iter().find(|(key, _)| key.as_bytes() == name.as_bytes()).map(|(_, value)| value)
    };
    // Empty where it may not be read.
    let maps = std::fs::read_to_string(root.proc.join(pid.to_string()).join("maps")).unwrap_or_default();
    ObservedProgram {
        pid,
        name: stat.comm.clone(),
        command,
        own: status.uid == rustix::process::getuid().as_raw(),
        processes: 1,
        pids: vec![pid],
        attach: vec![pid],
        busy_threads: 0,
        used_cpus: 0.0,
        wanted_cpus: 0.0,
        allowed: status.cpus_allowed,
        awake_cpus: 0.0,
        openmp: runtimes::openmp(&maps),
        runtime: runtimes::other_runtime(&maps),
        launched_by: launcher
            .filter(|launcher| job::is_typed(*launcher, root))
            .map(|launcher| read_command_line(launcher.pid, root)),
        passive: variable("OMP_WAIT_POLICY").is_some_and(|v| v.eq_ignore_ascii_case("passive"))
            || variable("GOMP_SPINCOUNT").is_some_and(|v| v.as_bytes() == b"0"),
        managed: variable("COPLACE_PAGES").is_some() || descends_from_coplace(stat, stats),
        keeps_its_number: has_fixed_team(variable("COPLACE_PAGES"), status.uid),
        // A rank may lead a session of its own, in which nobody else is.
        stoppable: status.tracer_pid == 0
            && !is_shell(&stat.comm)
            && (launcher.is_some() || !stat.is_session_leader())
            && launcher != Some(stat.process()),
    }
}

/// Whether the preload library in it says that its regions ask for numbers of threads of their own.
fn has_fixed_team(pages: Option<&OsString>, uid: u32) -> bool {
    let Some(pages) = pages.filter(|pages| !pages.is_empty()) else { return false };
    let pages = PageDir::open_of(pages, uid).pages().unwrap_or_default();
    pages.iter().any(|(_, page)| page.rigid().contains(&RigidReason::ExplicitNumThreads))
}

fn is_shell(comm: &str) -> bool {
    matches!(comm, "sh" | "bash" | "dash" | "zsh" | "fish" | "ksh" | "tcsh" | "csh")
}

fn descends_from_coplace(stat: &Stat, stats: &BTreeMap<Process, Stat>) -> bool {
    let by_pid: BTreeMap<u32, &Stat> = stats.values().map(|stat| (stat.pid, stat)).collect();
    let mut parent = stat.ppid;
    // Longer chains than this are a loop of reused pids.
    for _ in 0..64 {
        match by_pid.get(&parent) {
            Some(stat) if stat.comm == "coplace" => return true,
            Some(stat) => parent = stat.ppid,
            None => return false,
        }
    }
    false
}

fn read_command_line(pid: u32, root: &Root) -> Vec<String> {
    let command_line = procfs::cmdline(pid, root).unwrap_or_default();
    command_line.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// What makes several processes one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kin {
    /// The ranks of a parallel job, by its launcher. Each stands for all of them.
    Job(Process),
    /// Workers of one parent, as far as they run the same program with one thread each. Attaching the parent
    /// takes all of them in, where that is one that may be attached.
    Workers { parent: Process, attachable: bool },
}

fn kin(process: Process, stats: &BTreeMap<Process, Stat>, root: &Root) -> Option<Kin> {
    match job::launcher_of(process, root) {
        Some(launcher) if launcher == process || protection::is_launcher(process, root) => return None,
        Some(launcher) => return Some(Kin::Job(launcher)),
        None => {}
    }
    // An adopted orphan says nothing about who belongs together.
    let stat = stats.get(&process).filter(|stat| stat.ppid > 1 && stat.num_threads <= 4)?;
    let parent = Process::of(stat.ppid, root).ok()?;
    Some(Kin::Workers { parent, attachable: protection::protected(parent, root).is_none() })
}

/// Makes one program of processes that belong together, known by the one that wants the most.
fn join(
    programs: BTreeMap<Process, ObservedProgram>,
    kin: impl Fn(Process) -> Option<Kin>,
) -> Vec<ObservedProgram> {
    let mut families: BTreeMap<(Kin, String), Vec<ObservedProgram>> = BTreeMap::new();
    let mut joined = Vec::new();
    for (process, observed) in programs {
        let family = match kin(process) {
            Some(kin @ Kin::Job(_)) => Some((kin, String::new())),
            Some(kin) if observed.busy_threads == 1 && observed.openmp.is_none() => {
                Some((kin, observed.command.first().cloned().unwrap_or_default()))
            }
            _ => None,
        };
        match family {
            Some(family) => families.entry(family).or_default().push(observed),
            None => joined.push(observed),
        }
    }
    joined.extend(families.into_iter().map(|((kin, _), members)| merge_members(kin, members)));
    joined
}

fn merge_members(kin: Kin, mut members: Vec<ObservedProgram>) -> ObservedProgram {
    let known_by = (0..members.len()).max_by(|&a, &b| {
        members[a].wanted_cpus.total_cmp(&members[b].wanted_cpus).then(members[b].pid.cmp(&members[a].pid))
    });
    let mut all = members.swap_remove(known_by.expect("a family has a member"));
    for other in members {
        all.processes += other.processes;
        all.pids.extend(other.pids);
        all.busy_threads += other.busy_threads;
        all.used_cpus += other.used_cpus;
        all.wanted_cpus += other.wanted_cpus;
        all.awake_cpus += other.awake_cpus;
        all.allowed = all.allowed.union(&other.allowed);
    }
    all.pids.sort_unstable();
    all.attach = match kin {
        Kin::Job(_) => vec![all.pid],
        Kin::Workers { parent, attachable: true } if all.processes > 1 => vec![parent.pid],
        Kin::Workers { .. } => all.pids.clone(),
    };
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which nobody but us is there, and we ran for this long.
    fn alone_after(run_ns: u64) -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        let task = base.path().join("proc/42/task/42");
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("schedstat"), format!("{run_ns} 0 7\n")).unwrap();
        std::os::unix::fs::symlink("42", base.path().join("proc/self")).unwrap();
        base
    }

    fn one(pid: u32, threads: u32, wanted_cpus: f64) -> (Process, ObservedProgram) {
        let observed = ObservedProgram {
            pid,
            name: format!("p{pid}"),
            command: vec!["./p".into()],
            own: true,
            processes: 1,
            pids: vec![pid],
            attach: vec![pid],
            busy_threads: threads,
            awake_cpus: f64::from(threads),
            used_cpus: wanted_cpus / 2.0,
            wanted_cpus,
            allowed: "0-1".parse().unwrap(),
            openmp: None,
            runtime: None,
            launched_by: None,
            passive: false,
            managed: false,
            keeps_its_number: false,
            stoppable: true,
        };
        (Process { pid, start_time_ticks: 1 }, observed)
    }

    #[test]
    fn ranks_count_as_one_program_only_where_they_are_alike() {
        let parent = Process { pid: 5, start_time_ticks: 1 };
        let programs =
            || BTreeMap::from([one(10, 0, 0.1), one(11, 2, 2.0), one(12, 2, 1.5), one(13, 1, 1.0)]);
        let merged = |kin: Kin| -> Vec<(u32, Vec<u32>, Vec<u32>, u32)> {
            let of = |process: Process| (process.pid != 13).then_some(kin);
            let merged = |observed: ObservedProgram| {
                (observed.pid, observed.pids, observed.attach, observed.busy_threads)
            };
            join(programs(), of).into_iter().map(merged).collect()
        };
        let other = (13, vec![13], vec![13], 1);
        assert_eq!(merged(Kin::Job(parent)), [other.clone(), (11, vec![10, 11, 12], vec![11], 4)]);
        // These have more than a thread each, or none.
        assert_eq!(merged(Kin::Workers { parent, attachable: true }).len(), 4);
        let workers = || BTreeMap::from([one(10, 1, 1.0), one(11, 1, 1.0)]);
        for (attachable, attach) in [(true, vec![5]), (false, vec![10, 11])] {
            let joined = join(workers(), |_| Some(Kin::Workers { parent, attachable }));
            assert_eq!((joined.len(), &joined[0].attach), (1, &attach));
        }
    }

    #[test]
    fn an_idle_machine_differs_from_a_kernel_without_accounting() {
        let observed_after = |run_ns| {
            let base = alone_after(run_ns);
            observe(Duration::ZERO, &Root::at(base.path())).unwrap()
        };
        let idle = observed_after(1_000_000);
        assert!(!idle.blind && idle.programs.is_empty());
        assert!(observed_after(0).blind);
    }
}
