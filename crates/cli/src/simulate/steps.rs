//! What a policy makes of 1, 2, 3 … resizable programs: the steps of a machine.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use plan::{Plan, Slot, Tree};
use serde::Serialize;
use topology::Machine;

use super::Args;
use super::picture::{self, Numbers, Panel};
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::policy_name::Chosen;

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
    /// Where everybody takes turns over different places: who has the machine in each turn.
    turns: Vec<Turn>,
    /// CPUs that each program is given in the long run.
    cpus_given: BTreeMap<String, f64>,
    report: Vec<String>,
}

#[derive(Serialize)]
struct Turn {
    slice_ns: u64,
    picture: String,
}

#[derive(Serialize)]
struct Policy {
    policy: String,
    steps: Vec<Row>,
}

pub fn main(args: &Args, machine: &Arc<Machine>, settings: &policy::Settings, most: u32) -> Outcome {
    let columns = picture::columns(machine, machine.all_cpus());
    let names =
        if args.policy.is_empty() { vec!["TA".to_owned(), "CO".to_owned()] } else { args.policy.clone() };
    let mut panels = Vec::new();
    let mut policies = Vec::new();
    let mut numbers = Numbers::new();
    let mut refused = Vec::new();
    for name in &names {
        let policy = Chosen::new(name, settings).map_err(Failure::bad_input)?.build();
        let title = policy.name();
        let mut steps = engine::steps(machine, policy, most);
        steps.retain(|step| step.arriving || args.down);
        refused.extend(first_refusal(&title, &steps));
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
                let (narrowest_cpus, widest_cpus, sharing) = picture::place_extents(&step.plan);
                Row {
                    programs: step.programs,
                    arriving: step.arriving,
                    narrowest_cpus,
                    widest_cpus,
                    sharing,
                    plan: step.plan.to_string(),
                    picture: picture::letters(&step.plan, &columns, &numbers),
                    turns: turns(&step.plan, &columns, &numbers),
                    cpus_given: step
                        .plan
                        .mean_cpus()
                        .into_iter()
                        .map(|(app, cpus)| (app.to_string(), cpus))
                        .collect(),
                    report: step.report.lines(),
                }
            })
            .collect();
        policies.push(Policy { policy: title.clone(), steps: rows });
        panels.push(Panel {
            policy: title,
            plans: steps.into_iter().map(|step| (step.programs, step.plan)).collect(),
        });
    }
    if let Some(path) = &args.svg {
        let svg = picture::svg(&machine.name, &panels, &columns, &numbers);
        std::fs::write(path, svg).map_err(|error| Failure::unwritable(path, error))?;
    }
    if args.json {
        let value =
            serde_json::json!({ "machine": machine.name, "cpus": machine.all_cpus(), "policies": policies });
        println!("{value:#}");
    } else {
        policies.iter().for_each(print_policy);
    }
    refused.iter().for_each(|line| eprintln!("coplace: {line}"));
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

/// A policy whose plans are not taken shows what stands in for them: say so.
fn first_refusal(policy: &str, steps: &[engine::StepOfMachine]) -> Option<String> {
    let refused = || steps.iter().filter(|step| !step.rejected.is_empty());
    let first = refused().next()?;
    let why: Vec<String> = first.rejected.iter().map(ToString::to_string).collect();
    Some(format!(
        "{policy}: {} of {} plans were refused, first with {} programs: {}",
        refused().count(),
        steps.len(),
        first.programs,
        why.join("; ")
    ))
}

/// The turns of levels: of the whole machine, and not all on the same place.
fn turns(plan: &Plan, columns: &[(u32, bool)], numbers: &Numbers) -> Vec<Turn> {
    let Some(Tree::InTurn { slots, .. }) = &plan.tree else { return Vec::new() };
    let widest = |slot: &Slot| slot.tree.runs().iter().map(|run| run.place.len()).max();
    if slots.iter().all(|slot| widest(slot) == widest(&slots[0])) {
        return Vec::new();
    }
    let turn = |slot: &Slot| {
        let plan = Plan { tree: Some(slot.tree.clone()), ..Plan::default() };
        Turn { slice_ns: slot.slice_ns, picture: picture::letters(&plan, columns, numbers) }
    };
    slots.iter().map(turn).collect()
}

fn print_policy(policy: &Policy) {
    println!("{}", policy.policy);
    for row in &policy.steps {
        let width = match row.narrowest_cpus == row.widest_cpus {
            true => row.widest_cpus.to_string(),
            false => format!("{}-{}", row.narrowest_cpus, row.widest_cpus),
        };
        let sharing = if row.sharing > 1 { format!(" ÷{}", row.sharing) } else { String::new() };
        let head = format!("{:>4}  {:<9} ", row.programs, format!("{width}{sharing}"));
        match &row.turns[..] {
            [] => println!("{head}{}  {}", row.picture, row.plan),
            [first, more @ ..] => {
                println!("{head}{} {:>9}  {}", first.picture, milliseconds(first.slice_ns), row.plan);
                for turn in more {
                    println!("{:16}{} {:>9}", "", turn.picture, milliseconds(turn.slice_ns));
                }
            }
        }
    }
    println!();
}

fn milliseconds(time_ns: u64) -> String {
    format!("{:.2} ms", time_ns as f64 / 1e6)
}
