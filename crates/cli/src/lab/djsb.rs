//! `coplace lab djsb`: how interactive an allocation is under the policies of sessions, in simulated time.

use std::process::ExitCode;

use serde_json::{Value, json};
use sessions::allocation::{Allocation, Layout, Shape};
use sessions::djsb::{Benchmark, NORMALISATION, Outcome as Measured};
use sessions::session::{Pause, Share, WhenFull};
use sessions::simulate::Memory;

use crate::exit::{Failure, Outcome};
use crate::table::Table;
use crate::units::parse_duration_ns;

/// Measures how interactive an allocation is under each policy for sessions (simulated)
#[derive(clap::Args)]
#[command(
    long_about = "Measures how interactive an allocation is under each policy for sessions, in simulated time.

A long simulation has an allocation, and a short analysis is started beside it, as in the Dynamic Job Scheduler \
Benchmark. Shown are the efficiencies of both (expected over real slowdown), the wait coefficient, and their \
product, the dynamicity ratio; higher is better. docs/commands/lab.md defines them.",
    after_long_help = "Exit status: 0; 2 a session is larger than the allocation, or an option makes no sense.

Example: the paper's allocation of four nodes, with the analysis spread over all of them
  coplace lab djsb --spread

Example: MPI processes of several threads
  coplace lab djsb --simulation 32x5 --analysis 8x4"
)]
pub struct Args {
    /// Nodes and cores of each
    #[arg(long, value_name = "NODESxCORES", default_value = "4x40", value_parser = parse_pair)]
    allocation: (u32, u32),
    /// Processes of the simulation, and threads of each
    #[arg(long, value_name = "PROCESSESxTHREADS", default_value = "160x1", value_parser = parse_pair)]
    simulation: (u32, u32),
    /// Processes of the analysis, and threads of each
    #[arg(long, value_name = "PROCESSESxTHREADS", default_value = "32x1", value_parser = parse_pair)]
    analysis: (u32, u32),
    /// Policies, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_policy, value_name = "POLICY")]
    when_full: Vec<Named>,
    /// Start the analysis on as many nodes as possible
    #[arg(long)]
    spread: bool,
    /// Time of the simulation alone
    #[arg(long, value_name = "TIME", default_value = "100s", value_parser = parse_duration_ns)]
    simulation_time: u64,
    /// Time of the analysis alone
    #[arg(long, value_name = "TIME", default_value = "21s", value_parser = parse_duration_ns)]
    analysis_time: u64,
    /// When the analysis is started, after the simulation
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration_ns)]
    after: u64,
    /// Threads that use up the memory bandwidth of a node
    #[arg(long, value_name = "N", default_value_t = 24.5)]
    saturating: f64,
    /// Normalisation constant of the wait coefficient, as a part of the simulation's time alone
    #[arg(long, value_name = "PART", default_value_t = NORMALISATION)]
    normalisation: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// More cores are not simulated.
const MOST_SLOTS: u32 = 100_000;

/// A policy with the name by which it was asked for.
#[derive(Clone, Copy, Debug)]
struct Named {
    name: &'static str,
    policy: WhenFull,
}

/// Each policy, and the paper's name for it.
const POLICIES: [(Named, &str); 6] = [
    (Named { name: "wait", policy: WhenFull::Wait }, "wait"),
    (Named { name: "pause", policy: WhenFull::Pause(Pause::Needed) }, "surpass"),
    (Named { name: "pause-all", policy: WhenFull::Pause(Pause::All) }, "surpass-all"),
    (Named { name: "share", policy: WhenFull::Share(Share::Free) }, "overbook"),
    (Named { name: "share-pinned", policy: WhenFull::Share(Share::Pinned) }, "overbook-pinned"),
    (Named { name: "move-aside", policy: WhenFull::MoveAside }, "sidestep"),
];

fn parse_policy(text: &str) -> Result<Named, String> {
    let found = POLICIES.iter().find(|(named, alias)| named.name == text || *alias == text);
    found.map(|(named, _)| *named).ok_or_else(|| {
        let names: Vec<&str> = POLICIES.iter().map(|(named, _)| named.name).collect();
        format!("a policy is {}", names.join(", "))
    })
}

/// `32x5`.
fn parse_pair(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{text}' is not two numbers from 1 to 10000, as in 32x5");
    let (one, other) = text.split_once('x').ok_or_else(wrong)?;
    let number =
        |text: &str| text.parse().ok().filter(|number| (1..=10_000).contains(number)).ok_or_else(wrong);
    Ok((number(one)?, number(other)?))
}

pub fn main(args: &Args) -> Outcome {
    let seconds = |ns: u64| ns as f64 / 1e9;
    if args.saturating.is_nan() || args.saturating <= 0.0 {
        return Err(Failure::bad_input("--saturating is a number of threads above 0"));
    }
    if args.normalisation.is_nan() || args.normalisation <= 0.0 {
        return Err(Failure::bad_input("--normalisation is a part of the simulation's time, above 0"));
    }
    let (nodes, cores) = args.allocation;
    if nodes * cores > MOST_SLOTS {
        return Err(Failure::bad_input(format!(
            "--allocation {nodes}x{cores}: at most {MOST_SLOTS} cores are simulated"
        )));
    }
    let shape = |(processes, threads): (u32, u32)| Shape { processes, threads };
    let policies: Vec<Named> = match args.when_full.is_empty() {
        true => POLICIES.iter().map(|(named, _)| *named).collect(),
        false => args.when_full.clone(),
    };
    let mut results = Vec::new();
    for named in policies {
        let benchmark = Benchmark {
            allocation: Allocation { nodes: nodes as usize, cores },
            memory: Memory { saturating: args.saturating },
            simulation: shape(args.simulation),
            analysis: shape(args.analysis),
            layout: if args.spread { Layout::Spread } else { Layout::Compact },
            when_full: named.policy,
            simulation_s: seconds(args.simulation_time),
            analysis_s: seconds(args.analysis_time),
            requested_s: seconds(args.after),
            normalisation_s: args.normalisation * seconds(args.simulation_time),
        };
        results.push((named.name, benchmark.run().map_err(Failure::bad_input)?));
    }
    match args.json {
        true => println!("{:#}", to_json(&results)?),
        false => print!(
            "{}\nsimulated; efficiencies are expected over real slowdown, higher is better\n",
            render(&results)
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(results: &[(&str, Measured)]) -> Result<Value, Failure> {
    let with_name = |(name, measured): &(&str, Measured)| {
        let mut value = serde_json::to_value(measured).map_err(Failure::ours)?;
        value["policy"] = json!(name);
        Ok(value)
    };
    let all = results.iter().map(with_name).collect::<Result<Vec<Value>, Failure>>()?;
    Ok(json!({ "results": all }))
}

fn render(results: &[(&str, Measured)]) -> Table {
    let mut table = Table::new(&[
        "policy",
        ">simulation efficiency",
        ">analysis efficiency",
        ">wait coefficient",
        ">dynamicity ratio",
        ">analysis waits",
        ">runs",
        ">simulation takes",
    ]);
    let number = |value: f64| format!("{value:.2}");
    let time = |value: f64| format!("{value:.1} s");
    for (name, measured) in results {
        table.row([
            (*name).to_owned(),
            number(measured.simulation_efficiency),
            number(measured.analysis_efficiency),
            number(measured.wait_coefficient),
            number(measured.dynamicity_ratio),
            time(measured.wait_s),
            time(measured.execution_s),
            time(measured.simulation_s),
        ]);
    }
    table
}
