//! `coplace lab matrix`: measures how much programs slow each other, pair by pair.

mod run;
mod samples;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use interference::{Grid, Knowledge, by_name};
use serde_json::{Value, json};

use self::run::{Fault, Halves, Program};
use self::samples::{Sample, Samples};
use super::heat;
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::simulate::output;
use crate::table::Table;
use crate::units;

/// Measures how much programs slow each other, pair by pair
#[derive(clap::Args)]
#[command(
    long_about = "Measures how much programs slow each other, pair by pair.

Runs every pair of programs, each program on half of the CPUs, and writes the matrix of slowdowns. A \
program is a command line, or NAME=COMMAND LINE; words are separated by blanks. In each round, both \
programs run alone and then together. The shorter one is restarted until the longer one has ended, so that \
pressure stays constant. A slowdown is time together ÷ time alone in the same round. The halves are \
swapped from round to round. A pair is settled, after at least three rounds, when the 95% interval of both \
slowdowns is within --error, or after --rounds rounds.

Every round is kept in FILE.csv.samples: the same command continues a measurement that was interrupted or \
ran out of --budget. With --budget, the pair about which the predictors are least sure comes next. What \
was not reached stays empty, for `coplace lab predict`.

Halves are cut from the CPUs in the order of cores, so that hardware threads of one core stay together. On \
a machine of several packages, name the CPUs of one with --cpus: programs in different packages hardly \
affect each other.

Programs should end within some seconds, and exit with 0. OMP_NUM_THREADS is set to the size of their half.",
    after_long_help = "Exit status: 0; 1 a program fails; 2 wrong usage; 130 interrupted.

Example: three programs, for ten minutes at most
  coplace lab matrix --out pairs.csv --budget 10min \"cg=./cg --size S\" \"ft=./ft --size S\" ./sort"
)]
pub struct Args {
    /// Command lines, or NAME=COMMAND LINE
    #[arg(required = true)]
    programs: Vec<String>,
    /// The matrix to write; every round is kept in FILE.csv.samples
    #[arg(long, value_name = "FILE.csv")]
    out: PathBuf,
    /// A pair is settled when the 95% interval of both slowdowns is within this part
    #[arg(long, value_name = "PART", default_value_t = 0.03)]
    error: f64,
    /// A pair is settled after this many rounds at the latest
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Start no round after this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ns)]
    budget: Option<u64>,
    /// The CPUs that are halved [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<topology::CpuSet>,
    /// End a run that takes longer; it has failed
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = units::parse_duration_ns)]
    longest: u64,
    /// Print the slowdowns as JSON, with the half width of their intervals and the number of rounds
    #[arg(long)]
    json: bool,
    /// Draw the heat map
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// A pair is settled with so many rounds at least.
const LEAST_ROUNDS: usize = 3;

pub fn main(args: &Args) -> Outcome {
    let programs = parse(&args.programs)?;
    if !(args.error.is_finite() && args.error > 0.0) {
        return Err(Failure::bad_input(format!(
            "--error {}: expected a part above 0, such as 0.03",
            args.error
        )));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Failure::ours)?;
    }
    let longest = Duration::from_nanos(args.longest);
    let halves = Halves { cpus: halves(args.cpus.as_ref())?, longest, interrupted };
    let mut kept = args.out.clone().into_os_string();
    kept.push(".samples");
    let mut samples = Samples::open(Path::new(&kept))?;
    let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    let began = Instant::now();
    let over = || args.budget.is_some_and(|budget| began.elapsed() >= Duration::from_nanos(budget));
    let mut failed: Vec<String> = Vec::new();
    let mut skipped = vec![false; names.len() * names.len()];
    while !over() {
        let Some((a, b)) = next_pair(args, &samples, &names, &skipped) else { break };
        if !args.quiet {
            let rounds = samples.of(&names[a], &names[b]).len() + 1;
            eprintln!("{} beside {}, round {rounds}", names[a], names[b]);
        }
        match round(&halves, &mut samples, [&programs[a], &programs[b]])? {
            Ok(()) => save(args, &samples, &names)?,
            Err(Fault::Stopped) => {
                save(args, &samples, &names)?;
                eprintln!("coplace: interrupted; the same command continues from here");
                return Ok(ExitCode::from(130));
            }
            Err(Fault::Failed(why)) => {
                skipped[a * names.len() + b] = true;
                failed.push(format!("{} beside {}: {why}", names[a], names[b]));
            }
        }
    }
    save(args, &samples, &names)?;
    if args.json {
        println!("{:#}", as_json(&samples, &names, &failed));
    } else {
        print(&samples, &names);
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(DOES_NOT_HOLD, format!("these pairs stay empty:\n  {}", failed.join("\n  "))))
}

/// `NAME=COMMAND LINE` or a command line, which is its name then.
fn parse(arguments: &[String]) -> Result<Vec<Program>, Failure> {
    let mut programs: Vec<Program> = Vec::new();
    for text in arguments {
        let named = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains([' ', '/']));
        let (name, line) = named.unwrap_or((text.trim(), text));
        let command: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        if command.is_empty() {
            return Err(Failure::bad_input(format!("'{text}' has no command; write for example cg=./cg")));
        }
        if programs.iter().any(|program| program.name == name) {
            return Err(Failure::bad_input(format!("'{name}' comes twice; name every program once")));
        }
        programs.push(Program { name: name.to_owned(), command });
    }
    Ok(programs)
}

/// Two halves of the CPUs, in the order of cores.
pub fn halves(wanted: Option<&topology::CpuSet>) -> Result<[Vec<u32>; 2], Failure> {
    let allowed = rustix::thread::sched_getaffinity(None).map_err(Failure::ours)?;
    let may = |cpu: &u32| allowed.is_set(*cpu as usize);
    let machine = crate::machine::named("this")?;
    let mut cpus: Vec<u32> = machine.all_cpus().iter().filter(may).collect();
    if let Some(wanted) = wanted {
        if let Some(cpu) = wanted.iter().find(|cpu| !cpus.contains(cpu)) {
            return Err(Failure::bad_input(format!(
                "--cpus {wanted}: this process may not run on CPU {cpu}"
            )));
        }
        cpus.retain(|&cpu| wanted.contains(cpu));
    }
    if cpus.len() < 2 {
        return Err(Failure::bad_input("one CPU cannot be halved; a pair needs at least two"));
    }
    // Cores by their first CPU; the two of one core stay together.
    let core = |cpu: u32| machine.core_of(cpu).and_then(|core| core.cpus.lowest()).unwrap_or(cpu);
    cpus.sort_by_key(|&cpu| (core(cpu), cpu));
    // An odd one stays idle, so that both halves are alike.
    cpus.truncate(cpus.len() / 2 * 2);
    let second = cpus.split_off(cpus.len() / 2);
    Ok([cpus, second])
}

/// The pair that is measured next: with a budget the one of which least is known; else in order. `None` where all
/// are settled.
fn next_pair(args: &Args, samples: &Samples, names: &[String], skipped: &[bool]) -> Option<(usize, usize)> {
    let settled = |a: usize, b: usize| {
        let enough = |program: usize, beside: usize| {
            samples.settled(&names[program], &names[beside]).is_some_and(|settled| {
                settled.count >= args.rounds as usize
                    || settled.count >= LEAST_ROUNDS && settled.half_width <= args.error
            })
        };
        skipped[a * names.len() + b] || enough(a, b) && enough(b, a)
    };
    let pairs = (0..names.len()).flat_map(|a| (a..names.len()).map(move |b| (a, b)));
    let mut open: Vec<(usize, usize)> = pairs.filter(|&(a, b)| !settled(a, b)).collect();
    if args.budget.is_none() {
        return open.first().copied();
    }
    // Pairs that were begun are brought to an end first.
    let begun = |&(a, b): &(usize, usize)| !samples.of(&names[a], &names[b]).is_empty();
    if let Some(pair) = open.iter().copied().find(begun) {
        return Some(pair);
    }
    let grid: Grid = by_name("combined")?.predict(&Knowledge::of(samples.matrix(names)));
    let doubt = |&(a, b): &(usize, usize)| {
        let error = |a: usize, b: usize| grid.get(a, b).map_or(1.0, |cell| cell.error);
        error(a, b) + error(b, a)
    };
    open.sort_by(|one, other| doubt(other).total_cmp(&doubt(one)));
    open.first().copied()
}

/// Both alone, then together, on halves that swap from round to round.
fn round(halves: &Halves, samples: &mut Samples, pair: [&Program; 2]) -> Result<Result<(), Fault>, Failure> {
    let half = samples.of(&pair[0].name, &pair[1].name).len() % 2;
    let measured = || -> Result<([f64; 2], [f64; 2]), Fault> {
        let first = halves.time_alone(pair[0], half)?;
        let second = halves.time_alone(pair[1], 1 - half)?;
        Ok(([first, second], halves.time_together(pair, half)?))
    };
    let (alone, together) = match measured() {
        Ok(times) => times,
        Err(fault) => return Ok(Err(fault)),
    };
    let twins = pair[0].name == pair[1].name;
    let sample = |at: usize| Sample {
        program: pair[at].name.clone(),
        beside: pair[1 - at].name.clone(),
        alone_s: alone[at],
        together_s: together[at],
    };
    if twins {
        // One round is one sample: what both lost.
        let mean = |times: [f64; 2]| (times[0] * times[1]).sqrt();
        samples.add(Sample { alone_s: mean(alone), together_s: mean(together), ..sample(0) })?;
    } else {
        samples.add(sample(0))?;
        samples.add(sample(1))?;
    }
    Ok(Ok(()))
}

fn save(args: &Args, samples: &Samples, names: &[String]) -> Result<(), Failure> {
    let matrix = samples.matrix(names);
    // Whole or not at all: whoever reads it meanwhile finds the one before.
    let mut beside = args.out.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, matrix.to_csv()).map_err(|error| Failure::unwritable(&beside, error))?;
    std::fs::rename(&beside, &args.out).map_err(|error| Failure::unwritable(&args.out, error))?;
    if let Some(path) = &args.svg {
        let grid = Grid::new(matrix.len(), |(a, b)| {
            let settled = samples.settled(&names[a], &names[b])?;
            Some(interference::Estimate { value: settled.slowdown, error: settled.half_width / 2.0 })
        });
        output::write(path, &heat::render(&matrix, &grid, "Measured slowdowns"))?;
    }
    Ok(())
}

fn cells(names: &[String]) -> impl Iterator<Item = (&String, &String)> {
    names.iter().flat_map(move |a| names.iter().map(move |b| (a, b)))
}

fn as_json(samples: &Samples, names: &[String], failed: &[String]) -> Value {
    let cell = |(program, beside): (&String, &String)| {
        let settled = samples.settled(program, beside);
        json!({
            "program": program,
            "beside": beside,
            "value": settled.map(|settled| settled.slowdown),
            "half_width": settled.map(|settled| settled.half_width).filter(|width| width.is_finite()),
            "rounds": settled.map_or(0, |settled| settled.count),
        })
    };
    json!({ "cells": cells(names).map(cell).collect::<Vec<_>>(), "failed": failed })
}

fn print(samples: &Samples, names: &[String]) {
    let mut table = Table::new(&["program", "beside", ">slowdown", ">95%", ">rounds"]);
    for (program, beside) in cells(names) {
        let (value, width, count) = match samples.settled(program, beside) {
            None => ("–".into(), "–".into(), 0),
            Some(settled) if settled.count == 1 => (format!("{:.2}", settled.slowdown), "–".into(), 1),
            Some(settled) => (
                format!("{:.2}", settled.slowdown),
                format!("± {:.1}%", 100.0 * settled.half_width),
                settled.count,
            ),
        };
        table.row([program.clone(), beside.clone(), value, width, count.to_string()]);
    }
    print!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_names_and_commands() {
        let parsed = parse(&["cg=./cg --size A".into(), "./a b=c".into()]).unwrap();
        assert_eq!((parsed[0].name.as_str(), parsed[0].command[2].to_str()), ("cg", Some("A")));
        assert_eq!(parsed[1].name, "./a b=c");
        assert!(parse(&["cg=".into()]).is_err() && parse(&["a".into(), "a".into()]).is_err());
    }
}
