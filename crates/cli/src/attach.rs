//! `coplace attach PID…` and `coplace release PID|NAME…`: running programs under coplace, and back.

use std::process::ExitCode;

use linux::Root;
use node::home::{Home, LockError};
use node::registry::Registry;
use node::restore;
use protocol::{Client, ClientError, FromScheduler, Role, ToScheduler, Which};
use workload::AppId;

use crate::demand::DemandArgs;
use crate::exit::{BAD_INPUT, Failure, Outcome};
use crate::scheduler;

/// Moving a program between cgroups waits for every CPU of a busy machine, several times over.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Brings running programs under coplace
#[derive(clap::Args)]
#[command(
    long_about = "Brings running programs under coplace.

Each program is attached with all of its processes and threads: from now on it is placed and takes turns \
with the others. Its teams are resized only if it carries the preload library. `coplace release` gives it \
back as it was.

A scheduler is needed: a `coplace daemon`, or a `coplace run` that leads. If one is just starting, the \
command waits for it for up to 5 s.

A rank of an MPI job, or its launcher, stands for the whole job, which is one program. Shells, session \
leaders, services and traced programs are refused, and so are programs of other users unless root attaches \
them.",
    after_long_help = "Exit status: 0 all were attached; 1 no scheduler runs; 2 one was refused (the \
others were attached).

Example:
  coplace attach $(pgrep -x solver)"
)]
pub struct AttachArgs {
    /// Numbers of the processes to attach
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
    /// The name to show [default: the program's file name]
    #[arg(long, value_name = "NAME")]
    name: Option<AppId>,
    #[command(flatten)]
    demand: DemandArgs,
}

/// Gives programs back as they were before they came under coplace
#[derive(clap::Args)]
#[command(
    long_about = "Gives programs back as they were before they came under coplace.

They run on as without coplace. An attached program gets back the CPU mask of every thread and the cgroups \
of every process; a mask that a thread chose itself in the meantime stays. If a program was started by \
`coplace run`, its `run` stays beside it until it ends.

If no scheduler runs, programs that are still on record are set free and forgotten.",
    after_long_help = "Exit status: 0 all were given back as they were; 1 something could not be undone \
(it is named), or no scheduler runs and a program is not on record; 2 a program is not under coplace, or \
belongs to another user.

Example:
  coplace release 4711 cg"
)]
pub struct ReleaseArgs {
    /// The number of any process of the program, or its name in `coplace status`
    #[arg(required = true, value_name = "PID|NAME", value_parser = parse_which)]
    programs: Vec<Which>,
}

fn parse_which(text: &str) -> Result<Which, String> {
    match text.parse::<u32>() {
        Ok(0) => Err("process numbers start at 1".into()),
        Ok(pid) => Ok(Which::Pid(pid)),
        Err(_) if text.starts_with(|c: char| c.is_ascii_digit()) => {
            Err("neither a process number nor a name".into())
        }
        Err(_) => text.parse().map(Which::Id).map_err(|error| format!("{error}")),
    }
}

pub fn attach(args: &AttachArgs) -> Outcome {
    args.demand.check()?;
    let mut client = scheduler::connect_soon()?;
    client.set_patience(PATIENCE);
    let demand = args.demand.demand(None);
    let mut refused = false;
    for &pid in &args.pids {
        let request = ToScheduler::Attach { pid, name: args.name.clone(), demand: demand.clone() };
        match client.ask(&request, &mut Vec::new(), |m| matches!(m, FromScheduler::Attached { .. })) {
            Ok(FromScheduler::Attached { id, notes }) => {
                println!("{id} (process {pid}) is under coplace");
                notes.iter().for_each(|note| println!("  {note}"));
            }
            Ok(_) => {
                return Err(Failure::ours("the scheduler answered something other than what it was asked"));
            }
            Err(ClientError::Refused(why)) => {
                refused = true;
                eprintln!("coplace: {why}");
            }
            Err(error) => return Err(Failure::ours(error)),
        }
    }
    Ok(if refused { ExitCode::from(BAD_INPUT) } else { ExitCode::SUCCESS })
}

pub fn release(args: &ReleaseArgs) -> Outcome {
    let mut client = match scheduler::connect() {
        Ok(client) => client,
        // What was attached is on record even while nobody schedules, and free already.
        Err(failure) => match release_unscheduled(args) {
            Unscheduled::Done(outcome) => return outcome,
            Unscheduled::Unknown => return Err(failure),
            Unscheduled::Begins => scheduler::connect_soon()?,
        },
    };
    client.set_patience(PATIENCE);
    let mut worst = 0;
    for which in &args.programs {
        match release_one(&mut client, which) {
            Ok(status) => worst = worst.max(status),
            Err(ClientError::Refused(why)) => {
                worst = BAD_INPUT;
                eprintln!("coplace: {why}");
            }
            Err(error) => return Err(Failure::ours(error)),
        }
    }
    Ok(ExitCode::from(worst))
}

fn release_one(client: &mut Client, which: &Which) -> Result<u8, ClientError> {
    let request = ToScheduler::Release { which: which.clone() };
    let answer = client.ask(&request, &mut Vec::new(), |m| matches!(m, FromScheduler::Released { .. }))?;
    match answer {
        FromScheduler::Released { id, processes, problems } => Ok(report_released(&id, processes, &problems)),
        _ => Err(ClientError::Unexpected),
    }
}

fn report_released(id: &AppId, processes: usize, problems: &[String]) -> u8 {
    let of = if processes == 1 { "its process" } else { "its processes" };
    println!("{id} was given back with {of} ({processes})");
    problems.iter().for_each(|problem| eprintln!("coplace: {id}: {problem}"));
    u8::from(!problems.is_empty())
}

/// What became of programs that no scheduler looks after.
enum Unscheduled {
    Done(Outcome),
    /// One of them is not known.
    Unknown,
    /// Somebody has just begun to schedule, and takes them in.
    Begins,
}

/// Forgets programs that no scheduler looks after.
fn release_unscheduled(args: &ReleaseArgs) -> Unscheduled {
    let Ok(home) = Home::find() else { return Unscheduled::Unknown };
    // Nobody begins to schedule meanwhile.
    let _lock = match home.lock_scheduler(Role::Leader) {
        Ok(lock) => lock,
        Err(LockError::Held { .. }) => return Unscheduled::Begins,
        Err(LockError::Io { .. }) => return Unscheduled::Unknown,
    };
    let registry = Registry::new(&home);
    let records = registry.list().map(|listing| listing.records).unwrap_or_default();
    let mut worst = 0;
    for which in &args.programs {
        let known = records.iter().find(|record| match which {
            Which::Pid(pid) => record.process.pid == *pid,
            Which::Id(id) => record.id == *id,
        });
        let Some(known) = known else { return Unscheduled::Unknown };
        let report = restore::set_free(known, &Root::live(), &home);
        registry.remove(&known.id);
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        worst = worst.max(report_released(&known.id, report.processes, &problems));
    }
    Unscheduled::Done(Ok(ExitCode::from(worst)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_a_number_or_by_its_name() {
        assert_eq!(parse_which("4711"), Ok(Which::Pid(4711)));
        assert_eq!(parse_which("cg.2"), Ok(Which::Id("cg.2".parse().unwrap())));
        for wrong in ["0", "12x", "-1", ""] {
            assert!(parse_which(wrong).is_err(), "{wrong}");
        }
    }
}
