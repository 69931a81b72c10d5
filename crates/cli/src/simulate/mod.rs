//! `coplace simulate`: what a policy would do on any machine, without running anything.

mod picture;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;

use crate::choices::toml_settings;
use crate::exit::{Failure, Outcome};
use crate::machine;
use picture::{Numbers, Panel};

/// Shows what a policy would do on any machine, without running anything
#[derive(clap::Args)]
#[command(
    long_about = "Shows the steps that a machine goes through as more and more programs share it: for each number of
programs the plan, and one letter a CPU. Where programs take turns their letters alternate.

MACHINE is `this`, a file of hwloc XML (lstopo machine.xml), a directory with a copy of /sys, or a
description: levels with their counts, widest first (pack, [numa], l3, l2, core, pu).

Example: the paper's machine with four packages of six cores
  coplace simulate --machine 'pack:4 [numa] l3:1 core:6 pu:1' --steps 30 --policy TA,CO"
)]
pub struct Args {
    /// The machine
    #[arg(long, default_value = "this")]
    machine: String,
    /// From 1 to this many programs
    #[arg(long, value_name = "N", required = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// One or several, separated by commas; all that divide the machine if not given
    #[arg(long, value_delimiter = ',', value_name = "POLICY", value_parser = crate::words::policy_letters)]
    policy: Vec<String>,
    /// A setting of the policies, in TOML: `allowed_widths=[2]` (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show also what happens as the programs end, in the order of their arrival
    #[arg(long)]
    down: bool,
    /// Write a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    programs: u32,
    /// Whether the number was reached by an arrival (else by an end).
    arriving: bool,
    narrowest_cpus: usize,
    widest_cpus: usize,
    /// Programs that share a CPU, at most.
    sharing: usize,
    plan: String,
    picture: String,
    report: Vec<String>,
}

#[derive(Serialize)]
struct Policy {
    policy: String,
    steps: Vec<Row>,
}

pub fn main(args: &Args) -> Outcome {
    let machine = Arc::new(machine::named(&args.machine)?);
    let settings = toml_settings(Default::default(), &args.set)?;
    let columns = picture::columns(&machine, machine.all_cpus());
    let names =
        if args.policy.is_empty() { vec!["TA".to_owned(), "CO".to_owned()] } else { args.policy.clone() };
    let mut panels = Vec::new();
    let mut policies = Vec::new();
    let mut numbers = Numbers::new();
    for name in &names {
        let policy = policy::by_name(name, &settings).map_err(Failure::bad_input)?;
        let words = policy.name();
        let mut steps = engine::steps(&machine, policy, args.steps);
        steps.retain(|step| step.arriving || args.down);
        for step in &steps {
            let mut apps: Vec<_> = step.plan.apps().into_iter().cloned().collect();
            // Names carry the number of arrival, so that the shorter and then the smaller came first.
            apps.sort_by(|a, b| a.as_str().len().cmp(&b.as_str().len()).then(a.cmp(b)));
            for app in apps {
                let next = numbers.len();
                numbers.entry(app).or_insert(next);
            }
        }
        let rows = steps
            .iter()
            .map(|step| {
                let (narrowest_cpus, widest_cpus, sharing) = picture::measures(&step.plan);
                Row {
                    programs: step.programs,
                    arriving: step.arriving,
                    narrowest_cpus,
                    widest_cpus,
                    sharing,
                    plan: step.plan.to_string(),
                    picture: picture::letters(&step.plan, &columns, &numbers),
                    report: step.report.clone(),
                }
            })
            .collect();
        policies.push(Policy { policy: words.clone(), steps: rows });
        panels.push(Panel {
            policy: words,
            plans: steps.into_iter().map(|step| (step.programs, step.plan)).collect(),
        });
    }
    if let Some(path) = &args.svg {
        let svg = picture::svg(&machine.name, &panels, &columns, &numbers);
        std::fs::write(path, svg).map_err(|error| Failure::writing(path, error))?;
    }
    if args.json {
        let value =
            serde_json::json!({ "machine": machine.name, "cpus": machine.all_cpus(), "policies": policies });
        println!("{value:#}");
    } else {
        policies.iter().for_each(show);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(policy: &Policy) {
    println!("{}", policy.policy);
    for row in &policy.steps {
        let width = match row.narrowest_cpus == row.widest_cpus {
            true => row.widest_cpus.to_string(),
            false => format!("{}-{}", row.narrowest_cpus, row.widest_cpus),
        };
        let turns = if row.sharing > 1 { format!(" ÷{}", row.sharing) } else { String::new() };
        println!("{:>4}  {:<9} {}  {}", row.programs, format!("{width}{turns}"), row.picture, row.plan);
    }
    println!();
}
