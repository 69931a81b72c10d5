//! `coplace advise`: who hurts whom now, by how much, and what mends it. Reads, never writes.

mod judge;
mod observe;
mod runtimes;

pub use judge::shell;

use std::process::ExitCode;
use std::time::Duration;

use linux::Root;
use topology::CpuSet;

use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::table::Table;
use judge::{Verdict, judge};
use observe::Observation;

/// Shows which running programs hurt each other now, and what helps
#[derive(clap::Args)]
#[command(
    long_about = "Shows which running programs hurt each other now, and what helps.

Observes the programs from outside for a moment: how many CPUs their threads used, and how many they \
wanted (running or ready to run, from the kernel's schedstat). It changes nothing, and needs neither \
special rights nor a scheduler. Programs of other users are counted as far as /proc shows them.

The slowdown shown is a lower bound: it counts only the time for which threads waited for a CPU. A team \
whose threads spin for a partner that is not running loses more, often ten times as much.",
    after_long_help = "Exit status: 0 no program hurts another; 1 some do, or this kernel does not keep \
the times that are needed.

Example:
  coplace advise --seconds 5"
)]
pub struct Args {
    /// How long to observe, in seconds, from 0.1 to 3600
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = parse_seconds)]
    seconds: f64,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.1 to 3600".into()),
    }
}

pub fn main(args: &Args) -> Outcome {
    let root = Root::live();
    let observation =
        observe::observe(Duration::from_secs_f64(args.seconds), &root).map_err(Failure::ours)?;
    if observation.blind {
        let why = "this kernel does not keep the times that are needed (/proc/PID/schedstat is empty)";
        return Err(Failure::new(DOES_NOT_HOLD, why));
    }
    let cpus: CpuSet = procfs_cpus(&root)?;
    let verdict = judge(&observation.programs, &cpus);
    if args.json {
        let value = serde_json::json!({
            "seconds": args.seconds, "cpus": cpus, "programs": observation.programs, "hidden_processes": observation.hidden,
            "hurt": verdict.hurt, "remedies": verdict.remedies,
        });
        println!("{value:#}");
    } else {
        print!("{}", render(&observation, &verdict, &cpus, args.seconds));
    }
    Ok(if verdict.hurt.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn procfs_cpus(root: &Root) -> Result<CpuSet, Failure> {
    let times = linux::procfs::cpu_times(root).map_err(Failure::ours)?;
    Ok(times.cpus.keys().copied().collect())
}

fn render(observation: &Observation, verdict: &Verdict, cpus: &CpuSet, seconds: f64) -> String {
    let mut out = String::new();
    let wanted: f64 = observation.programs.iter().map(|program| program.wanted_cpus).sum();
    out += &format!("{:.1} CPUs wanted, {} there, seen over {seconds} s\n\n", wanted, cpus.len());
    let mut table = Table::new(&["program", ">pid", ">threads", ">CPUs used", ">wanted", "on", "what"]);
    for program in observation.programs.iter().take(12) {
        let mut what = Vec::new();
        what.extend(program.openmp.clone());
        what.extend(program.runtime.map(|runtime| <&str>::from(runtime).to_owned()));
        if program.processes > 1 {
            what.push(format!("{} processes", program.processes));
        }
        if program.managed {
            what.push("under coplace".into());
        }
        table.row([
            program.name.clone(),
            program.pid.to_string(),
            program.busy_threads.to_string(),
            format!("{:.2}", program.used_cpus),
            format!("{:.2}", program.wanted_cpus),
            program.allowed.to_string(),
            what.join(", "),
        ]);
    }
    if !observation.programs.is_empty() {
        out += &table.to_string();
        out.push('\n');
    }
    if observation.hidden > 0 {
        out += &format!("{} processes of other users could not be observed\n\n", observation.hidden);
    }
    if verdict.hurt.is_empty() {
        out += "no program hurts another\n";
    }
    for hurt in &verdict.hurt {
        let by: Vec<String> = hurt.by.iter().take(4).map(|by| format!("{} ({})", by.name, by.pid)).collect();
        let by = if by.is_empty() { "itself".to_owned() } else { by.join(", ") };
        let more = if hurt.spins { ", probably far more" } else { "" };
        out += &format!(
            "{} ({}) takes at least {:.1} times as long{more}, because of {by}:\n  {}\n",
            hurt.name, hurt.pid, hurt.slowdown_at_least, hurt.why
        );
    }
    if !verdict.remedies.is_empty() {
        out += "\nWhat mends it\n";
        for remedy in &verdict.remedies {
            out += &format!("  {}:\n    {}\n", remedy.what, remedy.command);
        }
    }
    out
}
