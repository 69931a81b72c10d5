//! From what was seen to who hurts whom, by how much, and what mends it. Pure.

use serde::Serialize;
use topology::CpuSet;

use super::runtimes::{self, Runtime};

/// One program as seen from outside over a while.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedProgram {
    pub pid: u32,
    pub name: String,
    pub command: Vec<String>,
    /// Whether it belongs to who asks.
    pub own: bool,
    pub processes: u32,
    /// All of them, the first one included.
    pub pids: Vec<u32>,
    /// Whom `attach` is told so that all of them come under coplace as one program.
    pub attach: Vec<u32>,
    /// Threads that wanted a CPU for more than half of the time.
    pub busy_threads: u32,
    /// How much of the time these ran or were ready to run, summed: as many as they are if none ever slept.
    pub awake_cpus: f64,
    /// CPUs that it used on average.
    pub used_cpus: f64,
    /// CPUs that it could have used: running or ready to run.
    pub wanted_cpus: f64,
    pub allowed: CpuSet,
    /// Name of the OpenMP runtime in it, as far as one can see.
    pub openmp: Option<String>,
    /// What else in it runs threads or ranks that wait for one another: an MPI library, a runtime of
    /// threads, a numerical library.
    pub runtime: Option<Runtime>,
    /// How its launcher was started, if one did.
    pub launched_by: Option<Vec<String>>,
    /// Its environment says that waiting threads sleep at once.
    pub passive: bool,
    /// Runs under coplace already.
    pub managed: bool,
    /// Its regions ask for numbers of threads of their own, so that coplace leaves them alone.
    pub keeps_its_number: bool,
    /// It may be stopped for a while without harm: no shell, no session leader, not traced.
    pub stoppable: bool,
}

impl ObservedProgram {
    /// How many times longer it takes at least, because its threads wait for a CPU.
    pub fn stretch(&self) -> f64 {
        if self.used_cpus > 0.0 { (self.wanted_cpus / self.used_cpus).max(1.0) } else { 1.0 }
    }

    /// A team that loses far more than the CPU time it does not get: while one of its threads waits
    /// for a CPU, the others spin for it.
    pub fn spins(&self) -> bool {
        // Ranks spin for messages whatever OpenMP is told; threads of no known runtime that are all
        // busy all the time are taken not to.
        let mpi = self.is_mpi();
        let waits_by_spinning = self.openmp.is_some() && !self.passive || mpi;
        self.busy_threads > 1 && waits_by_spinning && self.awake() >= AWAKE
    }

    /// For what part of the time its busy threads did not sleep. A team that waits by sleeping sleeps
    /// whenever a partner has no CPU.
    fn awake(&self) -> f64 {
        self.awake_cpus / f64::from(self.busy_threads.max(1))
    }

    fn is_mpi(&self) -> bool {
        self.runtime.is_some_and(Runtime::is_mpi)
    }

    /// The command that starts it again: its launcher's, where it has one.
    fn start(&self) -> &[String] {
        self.launched_by.as_ref().unwrap_or(&self.command)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hurt {
    pub pid: u32,
    pub name: String,
    /// Lower bound of the slowdown now.
    pub slowdown_at_least: f64,
    /// Whether it is likely to be much more than that bound.
    pub spins: bool,
    /// Those that use the same CPUs, hungriest first.
    pub by: Vec<By>,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct By {
    pub pid: u32,
    pub name: String,
    pub used_cpus: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    pub hurt: Vec<Hurt>,
    /// Commands with what they do, best first.
    pub remedies: Vec<Remedy>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    pub what: String,
    pub command: String,
}

/// Threads that wait for one another and sleep less than the rest of this do not wait by sleeping.
const AWAKE: f64 = 0.9;
/// Waiting below this share is what any machine with a few daemons shows.
const STRETCH_WORTH_TELLING: f64 = 1.10;

pub fn judge(programs: &[ObservedProgram], cpus: &CpuSet) -> Verdict {
    let mut verdict = Verdict::default();
    for victim in programs
        .iter()
        .filter(|program| program.stretch() >= STRETCH_WORTH_TELLING && program.busy_threads > 0)
    {
        let room = victim.allowed.intersection(cpus).len();
        let mut by: Vec<By> = programs
            .iter()
            .filter(|other| other.pid != victim.pid && other.allowed.intersects(&victim.allowed))
            .filter(|other| other.used_cpus >= 0.1)
            .map(|other| By { pid: other.pid, name: other.name.clone(), used_cpus: other.used_cpus })
            .collect();
        by.sort_by(|a, b| b.used_cpus.total_cmp(&a.used_cpus).then(a.pid.cmp(&b.pid)));
        let alone_too_wide = victim.busy_threads as usize > room && victim.processes == 1;
        if by.is_empty() && !alone_too_wide {
            continue;
        }
        let mut why = format!(
            "{} busy {} got {:.1} of the {:.1} CPUs they wanted",
            victim.busy_threads,
            if victim.busy_threads == 1 { "thread" } else { "threads" },
            victim.used_cpus,
            victim.wanted_cpus
        );
        if alone_too_wide {
            why += &format!(", and the program may use only {room}");
        }
        if victim.spins() {
            why += &format!(
                "; its threads spin for one another while a partner is not running (they slept for {:.0}% of the time)",
                (1.0 - victim.awake().min(1.0)) * 100.0
            );
        }
        verdict.hurt.push(Hurt {
            pid: victim.pid,
            name: victim.name.clone(),
            slowdown_at_least: victim.stretch(),
            spins: victim.spins(),
            by,
            why,
        });
    }
    verdict.hurt.sort_by(|a, b| b.slowdown_at_least.total_cmp(&a.slowdown_at_least).then(a.pid.cmp(&b.pid)));
    verdict.remedies = remedies(programs, &verdict.hurt, cpus);
    verdict
}

fn remedies(programs: &[ObservedProgram], hurt: &[Hurt], cpus: &CpuSet) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let find = |pid: u32| programs.iter().find(|program| program.pid == pid);
    // Programs of a team of their own that get into each other's way: those coplace is for.
    let mut involved: Vec<&ObservedProgram> = Vec::new();
    for entry in hurt {
        for pid in std::iter::once(entry.pid).chain(entry.by.iter().map(|by| by.pid)) {
            if let Some(program) = find(pid)
                && program.own
                && !program.managed
                && program.stoppable
                && program.busy_threads > 0
                && !involved.iter().any(|known| known.pid == pid)
            {
                involved.push(program);
            }
        }
    }
    // Teams are what suffers most and what coplace helps most; single threads beside them get by.
    if involved.iter().filter(|program| program.busy_threads > 1).count() >= 2 {
        involved.retain(|program| program.busy_threads > 1);
    }
    involved.sort_by_key(|program| program.pid);
    for entry in hurt {
        let Some(program) = find(entry.pid) else { continue };
        if !program.own {
            continue;
        }
        let room = program.allowed.intersection(cpus).len();
        let wide = program.processes == 1 && program.busy_threads as usize > room;
        if wide && let Some(setting) = runtimes::setting(program.openmp.is_some(), program.runtime, room) {
            remedies.push(Remedy {
                what: format!("start {} with as many threads as it has CPUs", program.name),
                command: format!("{setting} {}", shell(&program.command)),
            });
        }
        if program.managed && program.keeps_its_number {
            remedies.push(Remedy {
                what: format!(
                    "if {} computes the same with fewer threads than it asks for: have its teams resized",
                    program.name
                ),
                command: format!("coplace run --tolerant 1 {}", shell(program.start())),
            });
        }
    }
    if involved.len() >= 2 {
        remedies.push(Remedy {
            what: "start them under coplace".into(),
            command: involved
                .iter()
                .map(|program| format!("coplace run {}{} &", rebind_option(program), shell(program.start())))
                .collect::<Vec<_>>()
                .join(" "),
        });
        remedies.push(Remedy {
            what: "or, as they run now: take them in (coplace release gives them back)".into(),
            command: format!("coplace daemon & coplace attach {}", join_pids(&to_attach(&involved))),
        });
        let spinning: Vec<&&ObservedProgram> =
            involved.iter().filter(|program| program.spins() && program.openmp.is_some()).collect();
        if !spinning.is_empty() {
            remedies.push(Remedy {
                what:
                    "or, where they are to share CPUs all the same: have their threads sleep while they wait"
                        .into(),
                command: spinning
                    .iter()
                    .map(|program| format!("OMP_WAIT_POLICY=passive {} &", shell(program.start())))
                    .collect::<Vec<_>>()
                    .join(" "),
            });
        }
        // The widest goes on, so that the machine is not left half empty.
        let first = involved
            .iter()
            .max_by(|a, b| a.used_cpus.total_cmp(&b.used_cpus).then(b.pid.cmp(&a.pid)))
            .expect("two at least");
        let others = involved.iter().filter(|program| program.pid != first.pid);
        let rest = join_pids(&others.flat_map(|program| &program.pids).copied().collect::<Vec<u32>>());
        remedies.push(Remedy {
            what: format!("or without coplace: let {} finish first", first.name),
            command: format!("kill -STOP {rest}; tail --pid={} -f /dev/null; kill -CONT {rest}", first.pid),
        });
    }
    remedies
}

/// Whom to attach. A parent that several of the programs have in common would make one program of them.
fn to_attach(involved: &[&ObservedProgram]) -> Vec<u32> {
    let shared = |pid: &u32| involved.iter().filter(|program| program.attach.contains(pid)).count() > 1;
    let each = |program: &ObservedProgram| match program.attach.iter().any(shared) {
        true => program.pids.clone(),
        false => program.attach.clone(),
    };
    involved.iter().flat_map(|program| each(program)).collect()
}

fn join_pids(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Binding that a launcher was asked for on its command line stays under `run` without this, and two jobs
/// that others use the CPUs of are mostly bound to the same ones.
fn rebind_option(program: &ObservedProgram) -> &'static str {
    let options = program.launched_by.iter().flatten().take_while(|argument| *argument != "--");
    let bound =
        options.filter(|argument| argument.starts_with('-')).any(|argument| argument.contains("bind"));
    if bound { "--rebind " } else { "" }
}

/// Arguments as a shell takes them.
pub fn shell(command: &[String]) -> String {
    let quote = |argument: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        match !argument.is_empty() && argument.chars().all(plain) {
            true => argument.clone(),
            false => format!("'{}'", argument.replace('\'', r"'\''")),
        }
    };
    command.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(pid: u32, threads: u32, used: f64, wanted: f64) -> ObservedProgram {
        ObservedProgram {
            pid,
            name: format!("p{pid}"),
            command: vec![format!("./p{pid}"), "a b".into()],
            own: true,
            processes: 1,
            pids: vec![pid],
            attach: vec![pid],
            runtime: None,
            launched_by: None,
            busy_threads: threads,
            awake_cpus: f64::from(threads),
            keeps_its_number: false,
            used_cpus: used,
            wanted_cpus: wanted,
            allowed: "0-1".parse().unwrap(),
            openmp: Some("libgomp".into()),
            passive: false,
            managed: false,
            stoppable: true,
        }
    }

    fn cpus() -> CpuSet {
        "0-3".parse().unwrap()
    }

    #[test]
    fn spinning_teams_on_shared_cpus_are_advised_with_both_names() {
        let verdict = judge(&[observed(10, 2, 1.0, 2.0), observed(11, 2, 1.0, 2.0)], &cpus());
        assert_eq!(verdict.hurt.len(), 2);
        assert_eq!(verdict.hurt[0].slowdown_at_least, 2.0);
        assert!(verdict.hurt[0].spins);
        assert_eq!(verdict.hurt[0].by[0].pid, 11);
        let commands: Vec<_> = verdict.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
        assert_eq!(
            commands,
            [
                "coplace run ./p10 'a b' & coplace run ./p11 'a b' &",
                "coplace daemon & coplace attach 10 11",
                "OMP_WAIT_POLICY=passive ./p10 'a b' & OMP_WAIT_POLICY=passive ./p11 'a b' &",
                "kill -STOP 11; tail --pid=10 -f /dev/null; kill -CONT 11"
            ]
        );
    }

    #[test]
    fn spinning_ranks_are_advised_by_their_launchers_command() {
        let job = |pid: u32| ObservedProgram {
            openmp: None,
            runtime: Some(Runtime::OpenMpi),
            processes: 2,
            pids: vec![pid, pid + 1],
            launched_by: Some(["mpirun", "-np", "2", "./lmp"].map(str::to_owned).to_vec()),
            passive: true,
            ..observed(pid, 2, 1.0, 2.0)
        };
        let verdict = judge(&[job(10), job(20)], &cpus());
        assert!(verdict.hurt.iter().all(|hurt| hurt.spins), "{verdict:?}");
        let commands: Vec<_> = verdict.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
        assert_eq!(commands[0], "coplace run mpirun -np 2 ./lmp & coplace run mpirun -np 2 ./lmp &");
        // One rank stands for its job; to be stopped are all.
        assert_eq!(commands[1], "coplace daemon & coplace attach 10 20");
        assert_eq!(commands[2], "kill -STOP 20 21; tail --pid=10 -f /dev/null; kill -CONT 20 21");
    }

    #[test]
    fn workers_are_attached_with_a_parent_that_has_no_others() {
        let pool = |pid: u32, parent: u32| ObservedProgram {
            processes: 2,
            pids: vec![pid, pid + 1],
            attach: vec![parent],
            ..observed(pid, 2, 1.0, 2.0)
        };
        let attach = |pools: [ObservedProgram; 2]| judge(&pools, &cpus()).remedies[1].command.clone();
        assert_eq!(attach([pool(10, 9), pool(20, 19)]), "coplace daemon & coplace attach 9 19");
        assert_eq!(attach([pool(10, 9), pool(20, 9)]), "coplace daemon & coplace attach 10 11 20 21");
    }

    #[test]
    fn advice_undoes_a_requested_binding_by_the_starting_command() {
        let job = |pid: u32, options: &[&str]| {
            let arguments = ["mpirun"].iter().chain(options).chain(&["./lmp", "--bind"]);
            ObservedProgram {
                launched_by: Some(arguments.map(|argument| (*argument).to_owned()).collect()),
                ..observed(pid, 2, 1.0, 2.0)
            }
        };
        let verdict = judge(&[job(10, &["--bind-to", "core"]), job(20, &["-np", "2", "--"])], &cpus());
        let command = &verdict.remedies[0].command;
        assert_eq!(
            command,
            "coplace run --rebind mpirun --bind-to core ./lmp --bind & coplace run mpirun -np 2 -- ./lmp --bind &"
        );
    }

    #[test]
    fn threads_that_sleep_while_they_wait_do_not_count_as_spinning() {
        let slept = |awake_cpus| ObservedProgram { awake_cpus, ..observed(10, 2, 1.0, 1.8) };
        let spins = |awake_cpus| {
            let verdict = judge(&[slept(awake_cpus), observed(11, 2, 1.0, 2.0)], &cpus());
            verdict.hurt.into_iter().find(|hurt| hurt.pid == 10).unwrap()
        };
        let never = spins(1.98);
        assert!(never.spins && never.why.contains("slept for 1% of the time"), "{}", never.why);
        assert!(!spins(1.7).spins);
        let unknown = ObservedProgram { openmp: None, ..slept(2.0) };
        assert!(!unknown.spins());
    }

    #[test]
    fn each_too_wide_program_is_advised_its_own_variable() {
        for (runtime, wanted) in [
            (Some(Runtime::Go), "GOMAXPROCS=2 ./p10 'a b'"),
            (Some(Runtime::OpenBlas), "OPENBLAS_NUM_THREADS=2 ./p10 'a b'"),
            (Some(Runtime::Numba), "NUMBA_NUM_THREADS=2 ./p10 'a b'"),
        ] {
            let wide = ObservedProgram { openmp: None, runtime, ..observed(10, 8, 2.0, 8.0) };
            assert_eq!(judge(&[wide], &cpus()).remedies[0].command, wanted);
        }
        let unknown = ObservedProgram { openmp: None, ..observed(10, 8, 2.0, 8.0) };
        assert_eq!(judge(&[unknown], &cpus()).remedies, []);
    }

    #[test]
    fn an_insisting_managed_program_is_advised_to_tolerate() {
        let insists = ObservedProgram { managed: true, keeps_its_number: true, ..observed(10, 2, 1.0, 2.0) };
        let verdict = judge(&[insists, observed(11, 2, 1.0, 2.0)], &cpus());
        assert_eq!(verdict.remedies[0].command, "coplace run --tolerant 1 ./p10 'a b'");
    }

    #[test]
    fn programs_on_cpus_of_their_own_do_not_hurt_each_other() {
        let mut apart = observed(11, 2, 2.0, 2.0);
        apart.allowed = "2-3".parse().unwrap();
        assert_eq!(judge(&[observed(10, 2, 2.0, 2.0), apart], &cpus()), Verdict::default());
    }

    #[test]
    fn a_team_wider_than_its_cpus_is_advised_to_be_narrower() {
        let verdict = judge(&[observed(10, 8, 2.0, 8.0)], &cpus());
        assert_eq!(verdict.remedies.len(), 1);
        assert_eq!(verdict.remedies[0].command, "OMP_NUM_THREADS=2 ./p10 'a b'");
    }

    #[test]
    fn advice_never_stops_shells_or_other_users_programs() {
        let mut shell = observed(10, 1, 1.0, 2.0);
        shell.stoppable = false;
        let mut other = observed(11, 1, 1.0, 2.0);
        other.own = false;
        let verdict = judge(&[shell, other], &cpus());
        assert_eq!(verdict.hurt.len(), 2);
        assert_eq!(verdict.remedies, []);
    }

    #[test]
    fn a_little_waiting_is_not_reported() {
        assert!(judge(&[observed(10, 2, 1.9, 2.0), observed(11, 1, 0.1, 0.1)], &cpus()).hurt.is_empty());
    }

    #[test]
    fn arguments_are_quoted_as_a_shell_reads_them() {
        let arguments = ["a-b", "", "it's", "x y", "$HOME"].map(str::to_owned);
        assert_eq!(shell(&arguments), r"a-b '' 'it'\''s' 'x y' '$HOME'");
    }
}
