//! `coplace lab slowdown`: a program beside DistGen at several footprints, and DistGen beside the program.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use probe::distgen::Order;
use probe::latency::Latency;
use probe::slowdown::{
    NoVerdict, Patience, Plan, Point, Reach, Round, SlowdownError, Verdict, curve, llc_bytes, private_bytes,
    round, verdict,
};
use probe::spread::Spread;
use probe::tool::{self, RunError};
use serde_json::{Value, json};
use topology::{CpuSet, Machine};
use workload::{Random, format_bytes, parse_bytes};

use super::matrix::halves;
use crate::exit::{DOES_NOT_HOLD, Failure, INTERRUPTED, Outcome};
use crate::simulate::output;
use crate::table::Table;
use crate::units::parse_duration_ns;

/// Measures what a program and a probe of the memory lose beside each other
#[derive(clap::Args)]
#[command(
    long_about = "Measures what a program and a probe of the memory lose beside each other.

Runs the program alternately alone and beside `coplace lab distgen` (the probe), with the probe as large \
as private caches, a part of the last-level cache, all of it and more, and shows how much each slows the \
other. Where the program's curve rises shows what it depends on: at the size of private caches, it shares \
a core with the probe; where the probe nearly fills the last-level cache, it has data there; beyond that, \
it needs the memory's bandwidth.

Before and after the two run beside each other, the command measures whether their CPUs share a cache: \
whether a line passes from one to the other faster than from memory. While they do not (the host of a \
virtual machine may move its CPUs), it waits (--patience).

The program runs on the first half of the CPUs with as many threads, the probe on the second half, cut in \
the order of cores. On a machine of several packages, name the CPUs of one with --cpus. A slowdown is the \
median over all rounds of time beside ÷ time alone in the same round, with a 95% interval.

Programs should take a second or more, and exit with 0.",
    after_long_help = "Exit status: 0; 1 the program fails; 2 wrong usage; 130 interrupted (what was \
measured until then is shown and written).

Examples: as short as possible; curves beside one, two and four threads of the probe
  coplace lab slowdown --rounds 3 --footprints 512K,16M,128M -- ./cg --size S
  coplace lab slowdown --probe-threads 1,2,4 --json cg.json -- ./cg --size S"
)]
pub struct Args {
    /// Footprints of all the probe's threads together, such as 512K,16M,128M [default: from half a
    /// second-level cache to four times the last-level cache]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = parse_bytes)]
    footprints: Vec<u64>,
    /// Number of rounds, each with every footprint once
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Threads of the probe; several numbers, such as 1,2,4, give one curve each, measured by turns [default:
    /// one for each of its CPUs]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    probe_threads: Vec<u32>,
    /// The order of the probe's reads: stream, random or linked
    #[arg(long, default_value = "stream")]
    order: Order,
    /// The CPUs that are halved [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = parse_duration_ns)]
    longest: u64,
    /// How long to wait in all while program and probe share no cache; 0: not at all
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = parse_patience)]
    patience: u64,
    /// Seed of the order of footprints in a round
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the result with every round as JSON (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub fn main(args: &Args) -> Outcome {
    tool::exists(&args.program[0]).map_err(|error: RunError| Failure::bad_input(error))?;
    let machine = Machine::discover().machine;
    let footprints = match args.footprints.is_empty() {
        false => args.footprints.clone(),
        true => footprints(&machine).ok_or_else(|| {
            Failure::bad_input(
                "this machine does not report the sizes of its caches: give those of the probe, as in \
                 --footprints 512K,16M,128M",
            )
        })?,
    };
    let [cpus, probe_cpus] = halves(args.cpus.as_ref())?;
    let plan = |probe_cpus: Vec<u32>| Plan {
        name: args.program[0].to_string_lossy().into_owned(),
        command: args.program.clone(),
        threads: cpus.len() as u32,
        cpus: cpus.clone(),
        probe_cpus,
        order: args.order,
        longest: Duration::from_nanos(args.longest),
    };
    let with = |threads: &u32| plan(probe_cpus.iter().copied().cycle().take(*threads as usize).collect());
    let plans: Vec<Plan> = match &args.probe_threads[..] {
        [] => vec![plan(probe_cpus.clone())],
        numbers => numbers.iter().map(with).collect(),
    };
    let interrupted = interrupts()?;
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); plans.len()];
    let count = args.rounds;
    let report = |progress: Progress| {
        if !args.quiet {
            eprintln!("coplace: {progress}");
        }
    };
    let patience = Duration::from_nanos(args.patience);
    let series = Series { footprints, rounds: count, seed: args.seed, patience };
    let ended = measure(&plans, &series, report, &interrupted, |of, round| {
        rounds[of].push(round);
        Ok(())
    })?;
    let was: usize = rounds.iter().map(Vec::len).sum();
    let wanted = count as usize * series.footprints.len() * plans.len();
    if was == 0 {
        return Err(Failure::new(INTERRUPTED, "interrupted before there was anything to write"));
    }
    let llc = llc_bytes(&machine);
    let whole = was == wanted;
    let curves = || plans.iter().zip(&rounds);
    if let Some(path) = &args.json {
        let mut values: Vec<Value> = curves().map(|(plan, rounds)| value(plan, rounds, llc, whole)).collect();
        let json = if values.len() == 1 { values.remove(0) } else { json!(values) };
        output::write(path, &format!("{json:#}\n"))?;
    }
    if args.json.as_ref().is_none_or(|path| path != Path::new("-")) {
        for (plan, rounds) in curves() {
            if plans.len() > 1 {
                println!("beside a probe of {} threads", plan.probe_cpus.len());
            }
            print!("{}", render(rounds, llc));
        }
    }
    match ended {
        Ended::Whole => Ok(ExitCode::SUCCESS),
        Ended::Stopped => {
            let why = format!("interrupted after {was} of {wanted} comparisons, which are kept");
            Err(Failure::new(INTERRUPTED, why))
        }
    }
}

fn parse_patience(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_duration_ns(text) }
}

/// Says whether somebody wants to stop, from now on.
pub fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Failure::ours)?;
    }
    Ok(interrupted)
}

pub enum Ended {
    Whole,
    Stopped,
}

/// What is measured of every plan.
pub struct Series {
    pub footprints: Vec<u64>,
    pub rounds: u32,
    /// Of the order of footprints in a round.
    pub seed: u64,
    /// How long to wait, in all, while program and probe share no cache.
    pub patience: Duration,
}

/// A word on the way.
pub enum Progress {
    Round { number: u32, of: u32 },
    Waits(Latency),
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Round { number, of } => write!(f, "round {number} of {of}"),
            Progress::Waits(Latency { core_to_core_ns, memory_ns }) => write!(
                f,
                "program and probe share no cache now (a line takes {core_to_core_ns:.0} ns between them, from memory {memory_ns:.0}): waiting"
            ),
        }
    }
}

/// Every footprint of every plan once a round, in an order of the seed; each goes to `keep` as soon as it is there,
/// with the number of its plan.
pub fn measure(
    plans: &[Plan],
    series: &Series,
    report: impl Fn(Progress),
    interrupted: &AtomicBool,
    mut keep: impl FnMut(usize, Round) -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    let stopped = || interrupted.load(Ordering::Relaxed);
    let mut random = Random::for_purpose(series.seed, "order of footprints");
    let mut patience = Patience { left: series.patience, waits: &|latency| report(Progress::Waits(latency)) };
    for number in 0..series.rounds {
        report(Progress::Round { number: number + 1, of: series.rounds });
        let all = |of: usize| series.footprints.iter().map(move |&footprint| (of, footprint));
        let mut order: Vec<(usize, u64)> = (0..plans.len()).flat_map(all).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (of, footprint) in order {
            match round(&plans[of], footprint, number % 2 == 1, &mut patience, &stopped) {
                Ok(found) => keep(of, found)?,
                Err(SlowdownError::Stopped) => return Ok(Ended::Stopped),
                Err(error @ SlowdownError::Program(_)) => return Err(Failure::new(DOES_NOT_HOLD, error)),
                Err(error @ SlowdownError::Probe(_)) => return Err(Failure::ours(error)),
            }
        }
    }
    Ok(Ended::Whole)
}

/// From private caches to four times the last one.
fn footprints(machine: &Machine) -> Option<Vec<u64>> {
    let llc = llc_bytes(machine)?;
    Some(vec![private_bytes(machine)?, llc / 4, llc / 2, llc / 8 * 7, 2 * llc, 4 * llc])
}

/// Everything, as JSON.
fn value(plan: &Plan, rounds: &[Round], llc: Option<u64>, whole: bool) -> Value {
    let (curve, verdict) = (curve(rounds), llc.map(|llc| verdict(rounds, llc)));
    json!({
        "program": plan.command.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" "),
        "threads": plan.threads,
        "cpus": plan.cpus,
        "probe_cpus": plan.probe_cpus,
        "llc_bytes": llc,
        "whole": whole,
        "verdict": verdict.and_then(Result::ok),
        "why_none": verdict.and_then(Result::err).map(|why| why.to_string()),
        "curve": curve,
        "rounds": rounds,
    })
}

fn render(rounds: &[Round], llc: Option<u64>) -> String {
    let curve: Vec<Point> = curve(rounds);
    let mut table =
        Table::new(&["probe", ">program beside it", ">95%", ">probe beside the program", ">95%", ""]);
    let number = |spread: &Spread| format!("{:.3}", spread.median);
    let interval = |spread: &Spread| match spread.confidence >= 0.95 {
        true => format!("{:.3} … {:.3}", spread.low, spread.high),
        false => format!("({:.3} … {:.3})", spread.low, spread.high),
    };
    for point in &curve {
        let (suffers, causes) = (&point.suffers, &point.causes);
        let mark = match llc.and_then(|llc| Reach::of(point.footprint_bytes, llc)) {
            Some(Reach::Private) => "in private caches",
            Some(Reach::Within) => "nearly fills the last-level cache",
            Some(Reach::Beyond) => "beyond it",
            None => "",
        };
        table.row([
            format_bytes(point.footprint_bytes),
            number(suffers),
            interval(suffers),
            number(causes),
            interval(causes),
            mark.into(),
        ]);
    }
    let mut out = table.to_string();
    if curve.iter().any(|point| point.suffers.confidence < 0.95) {
        out += "In parentheses: the whole range, since a 95% interval needs more rounds.\n";
    }
    let apart = rounds.iter().filter(|round| round.is_apart()).count();
    let _ = match apart {
        0 => Ok(()),
        _ if apart == rounds.len() => {
            writeln!(out, "Program and probe shared no cache: the curve is that of the memory alone.")
        }
        _ => writeln!(
            out,
            "In {apart} of {} comparisons program and probe shared no cache: left out here.",
            rounds.len()
        ),
    };
    let verdict = llc.map_or(Err(NoVerdict::Rounds), |llc| verdict(rounds, llc));
    let _ = match verdict {
        Ok(verdict) => writeln!(out, "class {}: {}", verdict.class, describe_losses(&verdict)),
        Err(why) => writeln!(out, "{why}"),
    };
    out
}

/// What decided about the class.
pub fn describe_losses(verdict: &Verdict) -> String {
    let percent = |loss: f64| format!("{:.1}%", loss * 100.0);
    format!(
        "it loses {} beside a probe that nearly fills the last-level cache, {} beside one as large as \
         that cache or larger; the former probe loses {} beside the program{}",
        percent(verdict.within),
        percent(verdict.beyond),
        percent(verdict.takes),
        if verdict.sure { "" } else { "; the intervals allow other classes" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprints_span_private_to_several_last_level_caches() {
        let machine = crate::machine::named("this").unwrap();
        if let Some(found) = footprints(&machine) {
            let llc = llc_bytes(&machine).unwrap();
            assert!(
                found.is_sorted()
                    && found[0] < llc / 4
                    && *found.last().unwrap() == 4 * llc
                    && found.contains(&(llc / 8 * 7))
            );
        }
        let bare = crate::machine::named("package:1 core:2").unwrap();
        assert_eq!((footprints(&bare), llc_bytes(&bare)), (None, None));
    }
}
