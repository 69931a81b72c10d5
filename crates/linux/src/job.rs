//! Parallel jobs: what one launcher started together is one program, and stands below it.

use crate::procfs::{self, Process};
use crate::protection;
use crate::root::Root;

/// Launchers that serve many jobs of a node or a user, or only ask for CPUs: what stands below them are
/// programs of their own.
const SERVE_MANY: &[&str] =
    &["slurmd", "slurmctld", "pbs_mom", "sge_execd", "palsd", "mpd", "flux-broker", "salloc", "sbatch"];
/// Those that start ranks, but mostly one script, which may start anything: only what they started themselves
/// is their job.
const START_SCRIPTS: &[&str] = &["slurmstepd", "sge_shepherd", "condor_starter"];
/// A rank stands at most so far below its launcher: wrappers between them are few.
const DEEPEST: usize = 12;

/// The launcher below which all processes of this one's parallel job on this machine stand; `None` where no
/// launcher started it. A launcher belongs to its own job.
pub fn launcher_of(process: Process, root: &Root) -> Option<Process> {
    let mut chain = Vec::new();
    let mut at = process;
    while chain.len() < DEEPEST {
        let Ok(stat) = at.stat(root) else { break };
        chain.push((at, protection::launcher(&stat, root)));
        // A parent is older: where it is not, its number has passed on meanwhile.
        let parent = Process::of(stat.ppid, root).ok().filter(|_| stat.ppid > 1);
        let Some(parent) = parent.filter(|parent| parent.start_time_ticks <= at.start_time_ticks) else {
            break;
        };
        at = parent;
    }
    let names: Vec<Option<&str>> = chain.iter().map(|link| link.1.as_deref()).collect();
    topmost(&names).map(|index| chain[index].0)
}

/// Of a process and those above it, each with its name if it is a launcher: the topmost launcher of its job.
fn topmost(chain: &[Option<&str>]) -> Option<usize> {
    let mut found = None;
    for (index, name) in chain.iter().enumerate() {
        let Some(name) = name else {
            if found.is_some() {
                break;
            }
            continue;
        };
        let below_is_its_own = index <= 1 || found == Some(index - 1);
        if SERVE_MANY.contains(name) || START_SCRIPTS.contains(name) && !below_is_its_own {
            break;
        }
        found = Some(index);
    }
    found
}

/// Whether a launcher is one that people start themselves, so that its command starts the job again.
pub fn is_typed(launcher: Process, root: &Root) -> bool {
    const STARTED_BY_OTHERS: &[&str] =
        &["orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy", "mpispawn"];
    let name = launcher.stat(root).ok().and_then(|stat| protection::launcher(&stat, root));
    name.is_some_and(|name| {
        !STARTED_BY_OTHERS.contains(&name.as_str()) && !START_SCRIPTS.contains(&name.as_str())
    })
}

/// Of these processes those that launch others.
pub fn launchers(processes: &[Process], root: &Root) -> Vec<Process> {
    processes.iter().filter(|process| protection::is_launcher(**process, root)).copied().collect()
}

/// The living processes of the job that a launcher started, without launchers, in ascending order of pid.
pub fn ranks(launcher: Process, root: &Root) -> crate::Result<Vec<Process>> {
    let tree = procfs::tree_with(&[launcher], root)?;
    Ok(tree.into_iter().filter(|process| !protection::is_launcher(*process, root)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_rank_belongs_to_the_topmost_launcher_above_it() {
        let mpirun = Some("mpirun");
        for (chain, wanted) in [
            (&[None, mpirun, None][..], Some(1)),
            (&[None, Some("hydra_pmi_proxy"), Some("mpiexec.hydra"), None], Some(2)),
            // With a wrapper between, and the launcher itself.
            (&[None, None, Some("prted"), None, mpirun], Some(2)),
            (&[mpirun, None], Some(0)),
            (&[None, None, None], None),
            // A job in a batch script is the launcher's; another program in the script is nobody's.
            (&[None, mpirun, None, Some("slurmstepd"), Some("slurmd")], Some(1)),
            (&[None, None, Some("slurmstepd"), Some("slurmd")], None),
            (&[None, Some("slurmstepd"), Some("slurmd")], Some(1)),
            (&[None, Some("slurmd")], None),
            (&[None, None, Some("salloc")], None),
        ] {
            assert_eq!(topmost(chain), wanted, "{chain:?}");
        }
    }

    #[test]
    fn a_job_is_found_from_any_rank_and_without_launchers_in_it() {
        let base = tempfile::tempdir().unwrap();
        let root = Root::at(base.path());
        let make = |pid: u32, comm: &str, ppid: u32, started: u64| {
            let dir = root.proc.join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let line = format!("{pid} ({comm}) S {ppid} 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {started}");
            fs::write(dir.join("stat"), format!("{line}{}\n", " 0".repeat(30))).unwrap();
        };
        make(1, "init", 0, 1);
        make(10, "bash", 1, 2);
        make(11, "mpirun", 10, 3);
        make(12, "hydra_pmi_proxy", 11, 4);
        for pid in [13, 14] {
            make(pid, "ring", 12, 5);
        }
        let of = |pid: u32| Process::of(pid, &root).unwrap();
        for pid in [11, 12, 13, 14] {
            assert_eq!(launcher_of(of(pid), &root), Some(of(11)), "{pid}");
        }
        assert_eq!(launcher_of(of(10), &root), None);
        assert_eq!(ranks(of(11), &root).unwrap(), [of(13), of(14)]);
        // A parent that is younger than its child is another process with its number.
        make(12, "hydra_pmi_proxy", 11, 9);
        assert_eq!(launcher_of(of(13), &root), None);
    }
}
