//! `coplace replay FILE`: a record played again; the plans must be the same.

use std::path::PathBuf;
use std::process::ExitCode;

use engine::Starts;
use engine::trace::{Decided, Replayed, replay, whole_lines};
use policy::{Policy, Settings};
use serde_json::json;

use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::{policy_name, units};

/// Plays a record again, and shows where its decisions differ
#[derive(clap::Args)]
#[command(
    long_about = "Plays a record again, and shows where its decisions differ.

The same events go through the same engine at the same times, without running any program. The record is \
one of `coplace record`, `coplace daemon --trace` or `coplace mix --trace`. The decisions must be the \
same; if one differs, both versions are shown. A Lua policy is played as it was recorded, whatever its \
file contains now.

With --policy, another policy decides on the recorded events. What the programs did stays as it was under \
the recorded policy; `coplace simulate` shows what they would have done under the other one.",
    after_long_help = "Exit status: 0 all plans are the same; 1 some are not (0 with --policy); 2 the \
record cannot be played.

Example: what would your own policy have decided?
  coplace replay monday.jsonl --policy mine.lua"
)]
pub struct Args {
    /// The record to play
    file: PathBuf,
    /// Let this policy decide instead
    #[arg(long, value_name = "POLICY", value_parser = policy_name::policy_letters)]
    policy: Option<String>,
    /// Show all plans, not only those that differ
    #[arg(long)]
    all: bool,
    /// Print the decisions as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", args.file.display())))?;
    let script =
        args.policy.as_deref().map(policy_name::script).transpose().map_err(Failure::bad_input)?.flatten();
    let make = |recorded: &str, settings: &Settings| -> Option<Box<dyn Policy>> {
        match &args.policy {
            None => policy::by_name(recorded, settings).ok(),
            Some(name) => {
                policy::by_name(name, &Settings { script: script.clone(), ..settings.clone() }).ok()
            }
        }
    };
    let file = args.file.display();
    let whole = whole_lines(&text);
    let plans = replay(whole, make).map_err(|error| Failure::bad_input(format!("{file}: {error}")))?;
    if whole.len() < text.len() {
        let line = whole.lines().count() + 1;
        eprintln!("coplace: {file}: line {line}, the last one, is cut off, and is left out");
    }
    if plans.is_empty() {
        let what =
            "there is no plan in it; record programs as they come and end, with 'coplace record' or --trace";
        return Err(Failure::bad_input(format!("{file}: {what}")));
    }
    let differ = plans.iter().filter(|plan| plan.differs()).count();
    if args.json {
        let shown: Vec<_> = plans.iter().filter(|plan| args.all || plan.differs()).map(as_json).collect();
        println!("{:#}", json!({ "plans": plans.len(), "differ": differ, "shown": shown }));
    } else {
        plans.iter().filter(|plan| args.all || plan.differs()).for_each(print_plan);
        match differ {
            0 => println!("{} plans, all the same", plans.len()),
            _ => println!("{differ} of {} plans differ", plans.len()),
        }
    }
    let held = differ == 0 || args.policy.is_some();
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn as_json(plan: &Replayed) -> serde_json::Value {
    let mut value = json!({
        "line": plan.line,
        "now_ns": plan.now_ns,
        "recorded": plan.recorded.plan.to_string(),
        "again": plan.again.plan.to_string(),
    });
    if !plan.recorded.starts.is_empty() || !plan.again.starts.is_empty() {
        value["recorded_starts"] = json!(plan.recorded.starts);
        value["starts_again"] = json!(plan.again.starts);
    }
    if plan.recorded.usable.is_some() {
        value["recorded_usable"] = json!(plan.recorded.usable);
        value["usable_again"] = json!(plan.again.usable);
    }
    value
}

fn print_plan(plan: &Replayed) {
    println!("line {}, at {}", plan.line, units::format_ns(plan.now_ns));
    let (recorded, again) = (render_decided(&plan.recorded), render_decided(&plan.again));
    for (recorded, again) in recorded.into_iter().zip(again) {
        match (recorded, again) {
            (recorded, again) if recorded != again => {
                println!("  recorded: {}", recorded.as_deref().unwrap_or("nothing"));
                println!("  again:    {}", again.as_deref().unwrap_or("nothing"));
            }
            (_, Some(again)) => println!("  {again}"),
            (_, None) => {}
        }
    }
}

/// The plan, who starts, and which CPUs are usable, where that was decided.
fn render_decided(decided: &Decided) -> [Option<String>; 3] {
    let starts = render_starts(&decided.starts);
    [
        Some(decided.plan.to_string()),
        (!starts.is_empty()).then(|| starts.join("; ")),
        decided.usable.as_ref().map(|usable| format!("usable CPUs: {usable}")),
    ]
}

fn render_starts(starts: &Starts) -> Vec<String> {
    let admitted = starts.admitted.iter().map(|admitted| match &admitted.narrow {
        Some(start) => format!("{} is admitted and {start}", admitted.app),
        None => format!("{} is admitted", admitted.app),
    });
    let queued = starts.queued.iter().map(|(app, why)| format!("{app} waits: {why}"));
    let let_go = starts.let_go.iter().map(|(app, passive)| match passive {
        Some(why) => format!("{app} is let go, waiting passively: {why}"),
        None => format!("{app} is let go"),
    });
    admitted.chain(queued).chain(let_go).collect()
}
