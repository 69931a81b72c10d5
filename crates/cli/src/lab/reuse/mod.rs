//! `coplace lab reuse`: stack reuse distances of an unmodified program.

mod picture;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::reuse::{Ended, Rate};
use probe::tool::{self, Missing, Options, RunError, Tool, Until};
use topology::Machine;

use super::slowdown::interrupts;
use crate::exit::{DOES_NOT_HOLD, Failure, INTERRUPTED, Outcome};
use crate::units::parse_duration_ns;
pub use summary::Summary;

/// Finds the distances at which a program reuses its memory
#[derive(clap::Args)]
#[command(
    long_about = "Finds the distances at which a program reuses its memory.

Runs the program, unchanged, under a Valgrind tool that finds the stack reuse distance of each access: how \
many bytes of other lines the program touched since it last touched this one. A cache larger than the \
distance still has the line, so the distances show what a cache of any size would miss. First the program \
runs once natively (its output is discarded), for the accesses per second: a program whose accesses are \
distant but rare hurts no other.

Exact, a run takes some 20 to 52 times its native CPU time; with --sample 0.01 some 3 to 10 times, less \
than Valgrind alone takes (experiments/reuse). Threads that wait by spinning are measured spinning, so \
OMP_WAIT_POLICY=passive is set unless it is set already.",
    after_long_help = "Exit status: 0 the results are shown, also if the time limit was reached; 1 \
valgrind or the tool is missing; 2 the program cannot be measured; 130 interrupted in the native run \
(under the tool, what was seen until then is shown).

Examples:
  coplace lab reuse -- ./cg --size S
  coplace lab reuse --sample 0.01 --svg cg.svg --json cg.json -- ./cg --size L
  coplace lab reuse --limit 60s --children -- ./pipeline.sh"
)]
pub struct Args {
    /// Examine only this share of the lines, such as 0.01
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "sample_size")]
    sample: Option<f64>,
    /// Examine at most this many lines at a time
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(64..=1 << 28))]
    sample_size: Option<u32>,
    /// Leave out what threads do in their own stacks
    #[arg(long)]
    without_stack: bool,
    /// Count instruction fetches, too, separately
    #[arg(long)]
    fetches: bool,
    /// Measure only the whole program, without a histogram for each thread
    #[arg(long)]
    without_threads: bool,
    /// Also measure the programs that it forks and executes
    #[arg(long)]
    children: bool,
    /// Stop after this time, and show what was seen until then
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    limit: Option<u64>,
    /// Do not run the program natively first; then accesses per second are unknown
    #[arg(long)]
    without_native: bool,
    /// The machine whose caches to compare with, as for `coplace simulate`
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Write the results as JSON (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the histograms as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the histogram and the miss-ratio curve
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write every access, 8 bytes each (docs/formats/reuse.md)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => {
            Err(format!("'{text}' is not a share of the lines (above 0, at most 1; write for example 0.01)"))
        }
    }
}

pub fn main(args: &Args) -> Outcome {
    let missing = |missing: Missing| Failure::new(DOES_NOT_HOLD, missing);
    let tool = Tool::find().map_err(missing)?;
    let machine = if args.machine == "this" {
        Machine::discover().machine
    } else {
        crate::machine::named(&args.machine)?
    };
    // Under the tool a Ctrl-C ends the program, and the tool then reports what it has seen; we are still needed.
    let interrupted = interrupts()?;
    let failed = |error: RunError| match error {
        RunError::NotFound { .. } | RunError::Narrow { .. } | RunError::Foreign { .. } => {
            Failure::bad_input(error)
        }
        RunError::Interrupted => Failure::new(INTERRUPTED, "interrupted before anything was seen"),
        other => Failure::ours(other),
    };
    // Not after a native run that may last.
    tool::check(&args.program[0]).map_err(failed)?;
    let native = match args.without_native {
        true => None,
        false => {
            let until =
                Until { limit: args.limit.map(Duration::from_nanos), stopped: Some(interrupted.clone()) };
            let (status, cost) = tool::native(&args.program, until, None).map_err(failed)?;
            if status.code().is_none() {
                eprintln!(
                    "coplace: natively the program did not end by itself ({status}): accesses per second are \
                     unknown"
                );
            }
            status.code().is_some().then_some(cost)
        }
    };
    let options = Options {
        sample: args.sample.map(Rate::Fixed).or(args.sample_size.map(Rate::Size)),
        without_stack: args.without_stack,
        fetches: args.fetches,
        without_threads: args.without_threads,
        children: args.children,
        limit: args.limit.map(Duration::from_nanos),
        trace: args.trace.clone(),
        omp_threads: None,
        quiet: false,
    };
    let run = tool.run(&args.program, &options).map_err(failed)?;
    let summary = Summary::new(&run, native, &machine);
    for (path, text) in [
        (&args.csv, summary.csv()),
        (&args.svg, picture::render(&summary)),
        (&args.json, format!("{:#}\n", summary.json())),
    ] {
        match path {
            Some(path) if path.as_os_str() == "-" => print!("{text}"),
            Some(path) => fs::write(path, text).map_err(|error| Failure::unwritable(path, error))?,
            None => {}
        }
    }
    if args.json.as_ref().is_none_or(|path| path.as_os_str() != "-") {
        print!("{summary}");
    }
    for report in run.reports.iter().filter(|report| report.ended != Ended::Exit(0)) {
        eprintln!("coplace: {} (process {}) {}", report.program, report.pid, report.ended);
    }
    Ok(ExitCode::SUCCESS)
}
