//! Looks at the running programs from outside: CPU time that threads got and waited for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use linux::page::{PageDir, RigidReason};
use linux::procfs::{self, Process, Stat, TaskRuntime, Tid};
use linux::{Result, Root};

use super::judge::Seen;
use super::runtimes;

/// Threads' run and wait times of all processes that can be looked at.
struct Sample {
    taken: Instant,
    threads: BTreeMap<(Process, Tid), TaskRuntime>,
}

/// What was seen, busiest first, and how many processes could not be looked at.
pub struct Look {
    pub seen: Vec<Seen>,
    pub hidden: u32,
    /// The kernel keeps no times of waiting (no CONFIG_SCHED_INFO): nothing can be said.
    pub blind: bool,
}

/// Watches for `duration`; changes nothing.
pub fn look(duration: Duration, root: &Root) -> Result<Look> {
    let before = sample(root)?.0;
    std::thread::sleep(duration);
    let (after, hidden) = sample(root)?;
    let interval_ns = after.taken.duration_since(before.taken).as_nanos() as f64;
    let stats: BTreeMap<Process, Stat> =
        procfs::all(root)?.into_iter().map(|stat| (stat.process(), stat)).collect();
    let mut programs: BTreeMap<Process, Seen> = BTreeMap::new();
    for (&(process, tid), now) in &after.threads {
        // A thread that began meanwhile is counted from its beginning.
        let then = before.threads.get(&(process, tid)).copied().unwrap_or_default();
        let run_ns = now.run_ns.saturating_sub(then.run_ns);
        let wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
        if run_ns + wait_ns == 0 {
            continue;
        }
        let Some(stat) = stats.get(&process) else { continue };
        let seen = programs.entry(process).or_insert_with(|| describe(stat, &stats, root));
        seen.used_cpus += run_ns as f64 / interval_ns;
        seen.wanted_cpus += (run_ns + wait_ns) as f64 / interval_ns;
        let awake = (run_ns + wait_ns) as f64 / interval_ns;
        if awake > 0.5 {
            seen.busy_threads += 1;
            seen.awake_cpus += awake.min(1.0);
        }
    }
    let mut seen = join_ranks(programs, &stats);
    seen.retain(|seen| seen.wanted_cpus >= 0.05);
    // Files are read of those only whose threads get into somebody's way.
    for seen in seen.iter_mut().filter(|seen| seen.busy_threads > 1 && seen.openmp.is_none()) {
        let file = procfs::exe(seen.pid, root).ok();
        seen.runtime = seen.runtime.take().or_else(|| runtimes::linked_in(&file?));
    }
    seen.sort_by(|a, b| b.wanted_cpus.total_cmp(&a.wanted_cpus).then(a.pid.cmp(&b.pid)));
    Ok(Look { seen, hidden, blind: keeps_no_times(root)? })
}

/// Whether even we, who certainly ran, are said to have never run. That nobody else ran meanwhile says
/// nothing: the machine may be idle.
fn keeps_no_times(root: &Root) -> Result<bool> {
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
    Ok((Sample { taken, threads }, hidden))
}

fn describe(stat: &Stat, stats: &BTreeMap<Process, Stat>, root: &Root) -> Seen {
    let pid = stat.pid;
    let words = procfs::cmdline(pid, root).unwrap_or_default();
    let command: Vec<String> = match words.is_empty() {
        true => vec![stat.comm.clone()],
        false => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let status = procfs::status(pid, root).unwrap_or_default();
    let environment = procfs::environ(pid, root).unwrap_or_default();
    let variable = |name: &str| {
        environment.iter().find(|(key, _)| key.as_bytes() == name.as_bytes()).map(|(_, value)| value)
    };
    // Empty where it may not be read.
    let maps = std::fs::read_to_string(root.proc.join(pid.to_string()).join("maps")).unwrap_or_default();
    Seen {
        pid,
        name: stat.comm.clone(),
        command,
        own: status.uid == rustix::process::getuid().as_raw(),
        processes: 1,
        pids: vec![pid],
        busy_threads: 0,
        used_cpus: 0.0,
        wanted_cpus: 0.0,
        allowed: status.cpus_allowed,
        awake_cpus: 0.0,
        openmp: runtimes::openmp(&maps),
        runtime: runtimes::other(&maps),
        launched_by: launcher(stat, stats, root),
        passive: variable("OMP_WAIT_POLICY").is_some_and(|v| v.eq_ignore_ascii_case("passive"))
            || variable("GOMP_SPINCOUNT").is_some_and(|v| v.as_bytes() == b"0"),
        managed: variable("COPLACE_PAGES").is_some() || descends_from_coplace(stat, stats),
        keeps_its_number: keeps_its_number(variable("COPLACE_PAGES"), status.uid),
        stoppable: !stat.is_session_leader() && status.tracer_pid == 0 && !is_shell(&stat.comm),
    }
}

/// Whether the preload library in it says that its regions ask for numbers of threads of their own.
fn keeps_its_number(pages: Option<&OsString>, uid: u32) -> bool {
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

/// How the launcher was started that a process descends from.
fn launcher(stat: &Stat, stats: &BTreeMap<Process, Stat>, root: &Root) -> Option<Vec<String>> {
    let mut parent = stat.ppid;
    let mut found = None;
    // The topmost one: mpirun starts daemons that start ranks.
    for _ in 0..8 {
        let stat = stats.values().find(|stat| stat.pid == parent)?;
        match linux::protection::protected_own(stat.process(), root) {
            Some(linux::protection::Reason::Launcher { .. }) => found = Some(stat.pid),
            _ if found.is_some() => break,
            _ => {}
        }
        parent = stat.ppid;
    }
    let words = procfs::cmdline(found?, root).ok()?;
    Some(words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Busy single-threaded processes of one parent that run the same program are one program: the
/// ranks of an MPI job, the workers of a pool.
fn join_ranks(programs: BTreeMap<Process, Seen>, stats: &BTreeMap<Process, Stat>) -> Vec<Seen> {
    let mut ranks: BTreeMap<(u32, String), Seen> = BTreeMap::new();
    let mut rest = Vec::new();
    for (process, seen) in programs {
        let Some(stat) = stats.get(&process).filter(|_| seen.busy_threads == 1) else {
            rest.push(seen);
            continue;
        };
        // An adopted orphan says nothing about who belongs together.
        if stat.ppid <= 1 || stat.num_threads > 4 || seen.openmp.is_some() {
            rest.push(seen);
            continue;
        }
        ranks
            .entry((stat.ppid, seen.command.first().cloned().unwrap_or_default()))
            .and_modify(|all| {
                all.processes += 1;
                all.pids.extend(&seen.pids);
                all.busy_threads += 1;
                all.used_cpus += seen.used_cpus;
                all.wanted_cpus += seen.wanted_cpus;
                all.awake_cpus += seen.awake_cpus;
                all.allowed = all.allowed.union(&seen.allowed);
            })
            .or_insert(seen);
    }
    rest.extend(ranks.into_values());
    rest
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

    #[test]
    fn an_idle_machine_is_told_from_a_kernel_that_keeps_no_times() {
        let look_after = |run_ns| {
            let base = alone_after(run_ns);
            look(Duration::ZERO, &Root::at(base.path())).unwrap()
        };
        let idle = look_after(1_000_000);
        assert!(!idle.blind && idle.seen.is_empty());
        assert!(look_after(0).blind);
    }
}
