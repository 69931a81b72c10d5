//! `coplace lab bubbles`: what a recorded run of bubbles came to, and would under another scheduler.

mod picture;

use std::path::PathBuf;
use std::process::ExitCode;

use bubbles::schedulers;
use bubbles::trace::{Trace, replay};
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::simulate::output;
use crate::table::Table;
use crate::{machine, units};

/// Shows what a program of bubbles did, and replays it under other schedulers
#[derive(clap::Args)]
#[command(
    long_about = "Shows what a program of bubbles did, and replays it under other schedulers.

The program records itself if COPLACE_BUBBLES_TRACE names a file. A replay does not run it, and may be on \
another machine.",
    after_long_help = "Example: what a program did, and what it would have done
  COPLACE_BUBBLES_TRACE=run.trace ./program
  coplace lab bubbles trace run.trace --svg run.svg
  coplace lab bubbles replay run.trace --machine 'pack:2 core:4'"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Trace(TraceArgs),
    Replay(ReplayArgs),
}

/// Shows what a recorded run did, and draws it
#[derive(clap::Args)]
struct TraceArgs {
    /// The trace that the program wrote
    file: PathBuf,
    /// Draw a row for each processor, with bubbles in colours
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Replays a recorded run under other schedulers, without running the program
#[derive(clap::Args)]
#[command(
    long_about = "Replays a recorded run under other schedulers, without running the program.

Lists, bubbles and schedulers are those of the library; time is only counted, so the result is simulated. \
Threads compute as long as they did wherever they run, and wait for the threads for which they waited.",
    after_long_help = "Exit status: 0; 2 the trace is wrong or incomplete.

Example: all schedulers on a machine of two packages
  coplace lab bubbles replay run.trace --machine 'pack:2 core:4'"
)]
struct ReplayArgs {
    /// The trace that the program wrote
    file: PathBuf,
    /// The schedulers, separated by commas [default: all]
    #[arg(long = "scheduler", value_name = "NAME", value_delimiter = ',', value_parser = schedulers::NAMES)]
    schedulers: Vec<String>,
    /// The machine, as for `coplace simulate` [default: that of the trace]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Draw what the first scheduler did
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write what the first scheduler did, as a trace
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    match &args.what {
        What::Trace(args) => show(args),
        What::Replay(args) => replayed(args),
    }
}

fn read(path: &std::path::Path) -> Result<Trace, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", path.display())))?;
    Trace::parse(&text).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))
}

fn show(args: &TraceArgs) -> Outcome {
    let trace = read(&args.file)?;
    if let Some(path) = &args.svg {
        output::write(path, &picture::render(&trace, "recorded"))?;
    }
    print(&[("recorded", &trace)], args.json);
    if trace.lost > 0 && !args.json {
        println!("\n{} earlier events had no room (COPLACE_BUBBLES_EVENTS).", trace.lost);
    }
    Ok(ExitCode::SUCCESS)
}

fn replayed(args: &ReplayArgs) -> Outcome {
    let trace = read(&args.file)?;
    let machine = match args.machine.as_ref().or(trace.machine.as_ref()) {
        Some(machine) => machine::named(machine)?,
        None => {
            let what = "the trace does not say on which machine it was recorded: name one with --machine";
            return Err(Failure::bad_input(what));
        }
    };
    let names = match args.schedulers.is_empty() {
        true => schedulers::NAMES.map(str::to_owned).to_vec(),
        false => args.schedulers.clone(),
    };
    let mut played = Vec::new();
    for name in &names {
        let scheduler = schedulers::by_name(name).expect("clap takes known names only");
        let one = replay(&trace, &machine, scheduler)
            .map_err(|error| Failure::bad_input(format!("{}, {name}: {error}", args.file.display())))?;
        played.push(one);
    }
    if let Some(path) = &args.svg {
        output::write(path, &picture::render(&played[0], "replayed, simulated"))?;
    }
    if let Some(path) = &args.out {
        output::write(path, &played[0].to_string())?;
    }
    let mut rows = vec![("recorded", &trace)];
    rows.extend(played.iter().map(|_| "replayed").zip(&played));
    print(&rows, args.json);
    Ok(ExitCode::SUCCESS)
}

fn print(rows: &[(&str, &Trace)], as_json: bool) {
    if as_json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(how, trace)| {
                let sum = trace.summary();
                json!({
                    "how": how, "scheduler": trace.scheduler, "processors": trace.processors,
                    "took_ns": sum.end_ns, "busy": sum.busy, "threads": sum.threads, "bubbles": sum.bubbles,
                    "switches": sum.switches, "bursts": sum.bursts, "stolen": sum.stolen, "lost": trace.lost,
                })
            })
            .collect();
        println!("{:#}", json!({ "runs": rows }));
        return;
    }
    let heads =
        ["run", "scheduler", ">took", ">busy", ">threads", ">bubbles", ">switches", ">bursts", ">stolen"];
    let mut table = Table::new(&heads);
    for (how, trace) in rows {
        let sum = trace.summary();
        let busy = sum.busy.iter().sum::<f64>() / sum.busy.len().max(1) as f64;
        table.row([
            (*how).to_owned(),
            trace.scheduler.clone(),
            units::format_ns(sum.end_ns),
            format!("{:.0}%", 100.0 * busy),
            sum.threads.to_string(),
            sum.bubbles.to_string(),
            sum.switches.to_string(),
            sum.bursts.to_string(),
            sum.stolen.to_string(),
        ]);
    }
    print!("{table}");
}
