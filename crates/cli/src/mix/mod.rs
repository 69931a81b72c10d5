//! `coplace mix FILE`: several programs from a file, and what each one lost.

mod alone;
pub mod drain;
mod drive;
mod entry;
mod foreign;
mod output;
mod plans;
mod preview;
mod progress;
mod result;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use node::home::Home;
use workload::Mix;

use crate::choices::Choices;
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::timeline;
use result::MixResult;

/// Runs several programs from a file, and shows what each one lost to the others
#[derive(clap::Args)]
#[command(
    long_about = "Runs several programs from a file, and shows what each one lost to the others.

The programs are started at their arrival times under one scheduler (docs/formats/mix-file.md describes \
the file). The table shows for each program its response time, its slowdown against running alone, its \
turns and its changes of width, and then makespan, mean slowdown (ANTT) and throughput (STP).

What the programs print is shown on stderr with their names, the table on stdout. The first Ctrl-C lets \
every program run and sends it SIGTERM (and SIGKILL after 5 s); the second kills every program.

The scheduling options override the file and the configuration, and are refused if a daemon schedules.",
    after_long_help = "Exit status: 0 every program ended well; 1 one did not, or the mix was interrupted; \
2 wrong file.

Example: two.toml
  [[program]]
  command = \"./solver --size L\"
  [[program]]
  command = \"./train\"
  arrive_s = 2

  coplace mix two.toml --policy CO --slice 50ms --html two.html"
)]
pub struct Args {
    /// The file of programs (TOML)
    file: PathBuf,
    #[command(flatten)]
    choices: Choices,
    /// Write the result as JSON (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    json: Option<PathBuf>,
    /// Write the result as CSV, one line for each program (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    csv: Option<PathBuf>,
    /// Write a page with a picture of what ran where, which zooms in to single turns
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Write the picture alone
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    svg: Option<PathBuf>,
    /// Record events and plans in FILE, for `coplace replay`; refused if a daemon schedules
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    trace: Option<PathBuf>,
    /// Write what the programs print to DIR/NAME.out and .err instead of showing it
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    output: Option<PathBuf>,
    /// First run each program alone, to compute slowdowns
    #[arg(long)]
    measure_alone: bool,
    /// Only show what would be started, and the plan after each arrival
    #[arg(long)]
    dry_run: bool,
    /// Start further programs even after one has failed
    #[arg(long)]
    keep_going: bool,
    /// Show no progress, no output of the programs, no picture
    #[arg(short, long)]
    quiet: bool,
}

pub fn main(args: &Args) -> Outcome {
    let mut mix = Mix::load(&args.file).map_err(Failure::bad_input)?;
    let mut choices = args.choices.clone();
    if let Some(policy) = &mix.policy {
        let policy = crate::policy_name::resolve(&args.file, policy);
        crate::policy_name::policy_letters(&policy)
            .map_err(|why| Failure::bad_input(format!("{}: mix.policy: {why}", args.file.display())))?;
        choices.policy.get_or_insert(policy);
    }
    let mut options = choices.options()?;
    // Rules are about the programs of the machine; a mix is about its own.
    options.adopt.clear();
    options.remembered = Home::find().ok().filter(Home::may_schedule).map(|home| home.remembered());
    if args.dry_run {
        return preview::show(&mix, &options);
    }
    // A result that cannot be written is told before the programs have run for an hour.
    let results = [&args.json, &args.csv, &args.html, &args.svg, &args.trace];
    for path in results.into_iter().flatten().filter(|path| !is_stdout(path)) {
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| Failure::unwritable(path, error))?;
    }
    let alone_foreign_shares = match args.measure_alone {
        true => alone::measure(&mut mix, args.quiet)?,
        false => Vec::new(),
    };
    let how = drive::How {
        title: args.file.file_stem().map_or("mix".into(), |stem| stem.to_string_lossy().into_owned()),
        options,
        insists: !args.choices.is_empty(),
        output: args.output.clone(),
        trace: args.trace.clone(),
        alone_foreign_shares,
        keep_going: args.keep_going,
        quiet: args.quiet,
    };
    let driven = drive::drive(&mix, how)?;
    report(args, &driven.result)?;
    if let Some(why) = &driven.refused {
        eprintln!("coplace: a plan of {} was not carried out, {why}", driven.result.policy);
    }
    let well = driven.result.failed_count() == 0 && !driven.interrupted;
    if driven.interrupted {
        eprintln!("coplace: interrupted; every program was ended");
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn report(args: &Args, result: &MixResult) -> Result<(), Failure> {
    let write = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
        None => Ok(()),
        Some(path) if is_stdout(path) => {
            std::io::stdout().write_all(text().as_bytes()).map_err(|error| Failure::unwritable(path, error))
        }
        Some(path) => std::fs::write(path, text()).map_err(|error| Failure::unwritable(path, error)),
    };
    write(&args.json, &|| format!("{:#}\n", result.json()))?;
    write(&args.csv, &|| result.csv())?;
    write(&args.html, &|| timeline::html::render(&result.timeline()))?;
    write(&args.svg, &|| timeline::picture::render(&result.timeline(), 1000))?;
    let to_stdout =
        [&args.json, &args.csv, &args.html, &args.svg].into_iter().flatten().any(|path| is_stdout(path));
    if to_stdout {
        return Ok(());
    }
    let mut text = String::new();
    if !args.quiet {
        let (columns, colour) = progress::terminal();
        text = timeline::terminal::render(&result.timeline(), columns, colour) + "\n";
    }
    text += &result.table();
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::ours(format!("cannot write: {error}")))
}
