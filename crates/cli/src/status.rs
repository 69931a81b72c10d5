//! `coplace status`: what runs where, with how many threads, in turn with whom.

use std::process::ExitCode;

use protocol::{AppStatus, Brought, FromScheduler, Role, Status, ToScheduler};

use crate::advise::shell;
use crate::exit::{Failure, Outcome};
use crate::table::Table;
use crate::{scheduler, units};

/// Shows what runs where, with how many threads, and which programs take turns
#[derive(clap::Args)]
#[command(
    long_about = "Shows what runs where, with how many threads, and which programs take turns.

All of it is shown as the scheduler sees it.",
    after_long_help = "Exit status: 0; 1 no scheduler runs.

Example:
  coplace status --json | jq '.apps[] | {id, place, threads}'"
)]
pub struct Args {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    let answer = scheduler::ask(&ToScheduler::Status, |m| matches!(m, FromScheduler::Status { .. }))?;
    let FromScheduler::Status { status } = answer else {
        return Err(Failure::ours("the scheduler answered something other than its status"));
    };
    if args.json {
        println!("{:#}", serde_json::to_value(&status).map_err(Failure::ours)?);
    } else {
        print!("{}", render(&status));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(status: &Status) -> String {
    let role = match status.role {
        Role::Daemon => "daemon",
        Role::Observer => "daemon that only observes",
        Role::Leader => "a `coplace run` or `mix` that leads",
    };
    let mut out = format!("policy     {}\n", status.policy);
    out += &format!("plan       {}\n", status.plan);
    let usable = match status.usable == status.allowed {
        true => String::new(),
        false => format!(" ({} usable beside what else runs)", status.usable),
    };
    out += &format!("CPUs       {}{usable}\n", status.allowed);
    out += &format!("mechanisms {}, turns by {}\n", status.placement, status.turns);
    out += &format!(
        "scheduler  {role} (process {}), up {}, used {} of CPU time\n",
        status.pid,
        units::format_ns(status.uptime_ns),
        units::format_ns(status.cpu_time_ns)
    );
    if status.switches > 0 {
        out += &format!(
            "switches   {}, late by {} (median), {} (95th percentile)\n",
            status.switches,
            units::format_ns(status.jitter_median_ns),
            units::format_ns(status.jitter_p95_ns)
        );
    }
    for service in &status.services {
        out += &format!("beside     {service}\n");
    }
    if status.apps.is_empty() {
        return out + "\nno program is under coplace\n";
    }
    let mut table = Table::new(&[
        "program",
        ">pid",
        "state",
        "CPUs",
        ">threads",
        ">turns",
        ">since",
        ">slowdown",
        "command",
    ]);
    for app in &status.apps {
        let slowdown =
            app.account.slowdown.map_or("–".into(), |(value, error)| format!("{value:.2} ±{error:.2}"));
        table.row([
            app.id.to_string(),
            app.pid.to_string(),
            state(app),
            app.place.to_string(),
            app.team.map_or(app.threads.to_string(), |team| format!("{team}/{}", app.threads)),
            app.account.turns.to_string(),
            units::format_ns(app.account.response_ns),
            slowdown,
            clip(&shell(&app.command), 48),
        ]);
    }
    out += "\n";
    out += &table.to_string();
    for app in &status.apps {
        if let Some(why) = &app.waits_for {
            out += &format!("\n{} waits: {why}\n", app.id);
        }
        if let Some(waiting) = &app.waiting {
            out += &format!("\n{}'s threads were told to wait {waiting}\n", app.id);
        }
        if !app.bubbles.is_empty() {
            out += &format!("\n{}'s bubbles\n", app.id);
            app.bubbles.lines().for_each(|line| out += &format!("  {line}\n"));
        }
        let memory = app.memory;
        if memory.bytes > 0 || memory.failed_pages > 0 {
            out += &format!(
                "\n{}: {} of memory followed it to other nodes, which took {}{}{}\n",
                app.id,
                workload::format_bytes(memory.bytes),
                units::format_ns(memory.cost_ns),
                match memory.failed_pages {
                    0 => String::new(),
                    pages => format!("; {pages} pages could not be moved"),
                },
                memory.brought.map_or(String::new(), describe_move_gain)
            );
        }
    }
    out
}

/// What moving brought, for people.
fn describe_move_gain(rates: Brought) -> String {
    let per_s = |milli: u64| milli as f64 / 1000.0;
    let change = (rates.after_milli as f64 / rates.before_milli.max(1) as f64 - 1.0) * 100.0;
    format!(
        "; with {} threads it entered {:.1} regions a second before and {:.1} since ({change:+.0}%)",
        rates.threads,
        per_s(rates.before_milli),
        per_s(rates.after_milli)
    )
}

fn state(app: &AppStatus) -> String {
    if app.rigid.is_some() { format!("{}, rigid", app.state) } else { app.state.to_string() }
}

/// At most `most` characters.
pub fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_reports_a_memory_move_with_rates_before_and_after() {
        let shown =
            |before_milli, after_milli| describe_move_gain(Brought { threads: 2, before_milli, after_milli });
        assert_eq!(
            shown(1_000_000, 1_300_000),
            "; with 2 threads it entered 1000.0 regions a second before and 1300.0 since (+30%)"
        );
        assert!(shown(2_000, 1_500).ends_with("2.0 regions a second before and 1.5 since (-25%)"));
    }
}
