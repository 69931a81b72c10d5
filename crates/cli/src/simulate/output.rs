//! What simulations came to: a table, JSON, CSV (docs/formats/simulation-result.md).

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use sim::COLUMNS;
use sim::metrics::mean_and_error;

use super::scenario::{Asked, Ran};
use crate::exit::Failure;
use crate::table::Table;

pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| Failure::unwritable(path, error))
}

/// Values of one column, one for each seed.
pub fn values(ran: &Ran, column: usize) -> Vec<f64> {
    ran.figures.iter().map(|figures| figures.values[column]).collect()
}

/// A column's mean over the simulations of one policy, with its 95% confidence where there are several.
pub fn cell(ran: &Ran, name: &str, digits: usize, unit: &str) -> String {
    let at = COLUMNS.iter().position(|column| column.name == name).expect("a column of ours");
    let (mean, error) = mean_and_error(&values(ran, at));
    let spread = if error > 0.0 { format!(" ± {error:.digits$}") } else { String::new() };
    format!("{mean:.digits$}{spread}{unit}")
}

/// The figures of one policy's simulations.
pub fn policy(ran: &Ran) -> Value {
    let figures: serde_json::Map<String, Value> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let values = values(ran, at);
            let (mean, error) = mean_and_error(&values);
            let figure = json!({ "unit": column.unit, "mean": mean, "error": error, "values": values });
            (column.name.to_owned(), figure)
        })
        .collect();
    json!({
        "policy": ran.letters,
        "name": ran.name,
        "figures": figures,
        "rejected": ran.played.iter().map(|played| played.rejected).sum::<u64>(),
        "complaints": ran.played.iter().map(|played| played.complaints.len() as u64).sum::<u64>(),
    })
}

pub fn json(asked: &Asked, ran: &[Ran]) -> Value {
    let policies: Vec<Value> = ran.iter().map(policy).collect();
    json!({
        "format": "coplace simulation result",
        "version": 1,
        "kind": "simulated",
        "workload": asked.workload,
        "machine": asked.machine.name,
        "cpus": asked.machine.pu_count(),
        "seeds": asked.seeds,
        "jobs": asked.jobs,
        "skipped": asked.skipped.iter().sum::<usize>(),
        "columns": COLUMNS,
        "policies": policies,
    })
}

pub fn csv(asked: &Asked, ran: &[Ran]) -> String {
    let mut text = String::from(
        "policy,seed,job,program,arrived_s,started_s,ended_s,response_s,alone_s,slowdown,cpu_time_s,entitled_s,\
         reconfigurations,moves,migrations,done\n",
    );
    let seconds = |ns: f64| ns / 1e9;
    for ran in ran {
        for (played, seed) in ran.played.iter().zip(&asked.seeds) {
            for job in &played.jobs {
                // Names of programs come from files; a comma or a quote must not break the line.
                let program = job.program.replace('"', "\"\"");
                let _ = writeln!(
                    text,
                    "{},{seed},{},\"{program}\",{},{},{},{},{},{},{},{},{},{},{},{}",
                    ran.letters,
                    job.id,
                    seconds(job.arrived_ns as f64),
                    seconds(job.started_ns as f64),
                    seconds(job.ended_ns as f64),
                    seconds(job.response_ns()),
                    seconds(job.alone_ns),
                    job.slowdown(),
                    seconds(job.cpu_ns),
                    seconds(job.entitled_ns),
                    job.reconfigurations,
                    job.moves,
                    job.domain_moves,
                    job.done,
                );
            }
        }
    }
    text
}

pub fn table(asked: &Asked, ran: &[Ran]) -> String {
    let seeds = match asked.seeds[..] {
        [_] => String::new(),
        _ => format!(", {} workloads (mean ± 95% confidence)", asked.seeds.len()),
    };
    let mut text = format!(
        "Simulated: {}, {} jobs, on {} ({} CPUs){seeds}\n\n",
        asked.workload,
        asked.jobs,
        asked.machine.name,
        asked.machine.pu_count()
    );
    let mut table = Table::new(&[
        "policy",
        ">makespan",
        ">slowdown",
        ">median",
        ">95%",
        ">worst",
        ">resized",
        ">moved",
        ">CPUs used",
        ">fair (Jain)",
    ]);
    for ran in ran {
        let cell = |name: &str, digits: usize, unit: &str| cell(ran, name, digits, unit);
        table.row([
            ran.name.clone(),
            cell("makespan_s", 1, " s"),
            cell("mean_slowdown", 2, ""),
            cell("median_slowdown", 2, ""),
            cell("p95_slowdown", 1, ""),
            cell("max_slowdown", 1, ""),
            cell("reconfigurations", 0, ""),
            cell("moves", 0, ""),
            cell("utilisation", 2, ""),
            cell("jain", 2, ""),
        ]);
    }
    text += &table.to_string();
    for ran in ran {
        let (rejected, complaints) = ran
            .played
            .iter()
            .fold((0, 0), |sum, played| (sum.0 + played.rejected, sum.1 + played.complaints.len() as u64));
        if rejected + complaints > 0 {
            let _ = writeln!(
                text,
                "{}: {rejected} plans did not pass the checker, {complaints} promises were broken",
                ran.name
            );
        }
    }
    text
}
