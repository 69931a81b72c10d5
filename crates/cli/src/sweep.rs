//! `coplace sweep FILE`: simulations over a grid of machines, arrival rates and policies.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use sim::{COLUMNS, Model};
use toml::Spanned;
use topology::Machine;
use workload::{Generator, Scenario, ScenarioFile};

use crate::choices::toml_settings;
use crate::exit::{Failure, Outcome};
use crate::policy_name::{Chosen, resolve};
use crate::position::line_and_column;
use crate::simulate::scenario::{Batch, Ran, fit_to_machine, left_out, play, workload_of};
use crate::simulate::{How, output};
use crate::table::Table;

/// Simulates a grid of machines, arrival rates and policies
#[derive(clap::Args)]
#[command(
    long_about = "Simulates a grid of machines, arrival rates and policies.

A workload is simulated on every machine, at every arrival rate and under every policy of a file \
(docs/formats/sweep-file.md), on all cores; one row is printed for each combination. For each machine and \
rate, all policies are played on the same workloads, so that they can be compared.",
    after_long_help = "Exit status: 0; 2 wrong file (reported with line and column).

Example: grid.toml
  workload = \"set:B\"
  machines = [\"pack:2 core:8\", \"pack:4 [numa] l3:1 core:6\"]
  arrivals_per_minute = [3, 6, 9]
  policies = [\"TA\", \"EQ\", \"mine.lua\"]
  seeds = 10

  coplace sweep grid.toml --csv grid.csv"
)]
pub struct Args {
    /// The file that describes the grid (TOML)
    file: PathBuf,
    #[command(flatten)]
    how: How,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
    /// Write a line for every simulation (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    workload: Spanned<String>,
    machines: Spanned<Vec<Spanned<String>>>,
    policies: Spanned<Vec<Spanned<String>>>,
    arrivals_per_minute: Option<Spanned<Vec<Spanned<f64>>>>,
    #[serde(default = "default_seeds")]
    seeds: u64,
    #[serde(default = "default_first_seed")]
    first_seed: u64,
    #[serde(default)]
    settings: Option<Spanned<toml::Table>>,
}

fn default_seeds() -> u64 {
    10
}

fn default_first_seed() -> u64 {
    1
}

/// What a file asks for, all of it there and able.
struct Grid {
    workload: String,
    /// At no rate of its own where the workload is fixed.
    rates: Vec<Option<f64>>,
    machines: Vec<Arc<Machine>>,
    chosen: Vec<Chosen>,
    source: ScenarioFile,
    settings: policy::Settings,
    seeds: Vec<u64>,
    model: Model,
}

/// One machine at one rate, under all policies.
struct Cell {
    machine: Arc<Machine>,
    rate: Option<f64>,
    /// Jobs left out of each workload.
    skipped: Vec<usize>,
    ran: Vec<Ran>,
}

pub fn main(args: &Args) -> Outcome {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", args.file.display())))?;
    let grid = Grid::parse(&args.file, &text, &args.how)?;
    let places = grid.machines.iter().flat_map(|machine| grid.rates.iter().map(move |&rate| (machine, rate)));
    let batch = |(machine, rate): (&Arc<Machine>, Option<f64>)| {
        let scenarios = grid.scenarios(rate, machine, args.how.lenient)?;
        let setup = args.how.setup(Arc::clone(machine), grid.model.laws.clone(), grid.settings.clone());
        Ok::<_, Failure>(Batch { setup, scenarios })
    };
    let batches: Vec<Batch> = places.clone().map(batch).collect::<Result<_, _>>()?;
    let ran = play(&batches, &grid.chosen, args.how.workers)?;
    let cell = |((machine, rate), (ran, batch)): ((&Arc<Machine>, _), (Vec<Ran>, &Batch))| {
        let skipped = batch.scenarios.iter().map(|scenario| scenario.skipped).collect();
        Cell { machine: Arc::clone(machine), rate, skipped, ran }
    };
    let cells: Vec<Cell> = places.zip(ran.into_iter().zip(&batches)).map(cell).collect();
    for cell in &cells {
        if let Some(note) = left_out(&cell.skipped) {
            let (workload, machine) = (&grid.workload, &cell.machine.name);
            eprintln!("coplace: {note} of {workload} are wrong or unfit for {machine} and were left out");
        }
    }
    if let Some(path) = &args.csv {
        output::write(path, &csv(&grid, &cells))?;
    }
    if args.json {
        println!("{:#}", as_json(&grid, &cells));
    } else if args.csv.as_deref() != Some(Path::new("-")) {
        print!("{}", table(&grid, &cells));
    }
    Ok(ExitCode::SUCCESS)
}

impl Grid {
    fn parse(path: &Path, text: &str, how: &How) -> Result<Grid, Failure> {
        let at = |offset: usize, message: &str| {
            let (line, column) = line_and_column(text, offset);
            Failure::bad_input(format!("{}:{line}:{column}: {message}", path.display()))
        };
        let file: File = toml::from_str(text)
            .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message()))?;
        for (list, key) in [(&file.machines, "machines"), (&file.policies, "policies")] {
            if list.get_ref().is_empty() {
                return Err(at(list.span().start, &format!("{key} is empty; name at least one")));
            }
        }
        if file.seeds == 0 {
            return Err(at(text.find("seeds").unwrap_or(0), "seeds is 0; at least one workload is needed"));
        }
        let model = how.model()?;
        let workload = match file.workload.get_ref() {
            set if set.starts_with("set:") => set.clone(),
            name => path.with_file_name(name).to_string_lossy().into_owned(),
        };
        let source = workload_of(&workload, &model, how)
            .map_err(|error| at(file.workload.span().start, &error.message))?;
        let table = file.settings.as_ref().map(|table| table.get_ref().clone()).unwrap_or_default();
        let settings = toml_settings(source.settings(table), &[], None)
            .map_err(|error| at(file.settings.as_ref().map_or(0, |s| s.span().start), &error.message))?;
        let machines = file.machines.get_ref().iter().map(|spec| {
            let near = path.with_file_name(spec.get_ref());
            let found =
                if near.exists() { near.to_string_lossy().into_owned() } else { spec.get_ref().clone() };
            crate::machine::named(&found).map(Arc::new).map_err(|error| at(spec.span().start, &error.message))
        });
        let chosen = file.policies.get_ref().iter().map(|name| {
            Chosen::new(&resolve(path, name.get_ref()), &settings).map_err(|why| at(name.span().start, &why))
        });
        let (machines, chosen) = (machines.collect::<Result<_, _>>()?, chosen.collect::<Result<_, _>>()?);
        let source = source.file;
        let rates = match (&file.arrivals_per_minute, &source) {
            (None, _) => vec![None],
            (Some(rates), ScenarioFile::Fixed(_)) => {
                let why = "the workload is fixed, with arrivals of its own; rates are for set:A to set:D and \
                           files that say how to draw one ([generate])";
                return Err(at(rates.span().start, why));
            }
            (Some(rates), _) if rates.get_ref().is_empty() => {
                return Err(at(
                    rates.span().start,
                    "arrivals_per_minute is empty; leave it out, or name a rate",
                ));
            }
            (Some(rates), ScenarioFile::Generated(_)) => {
                let rate = |rate: &Spanned<f64>| match *rate.get_ref() {
                    value if value.is_finite() && (1e-3..=1e6).contains(&value) => Ok(Some(value)),
                    value => {
                        Err(at(rate.span().start, &format!("{value} arrivals a minute: 0.001 to 1000000")))
                    }
                };
                rates.get_ref().iter().map(rate).collect::<Result<_, _>>()?
            }
        };
        let seeds = match &source {
            ScenarioFile::Fixed(_) => vec![file.first_seed],
            ScenarioFile::Generated(_) => {
                (file.first_seed..file.first_seed.saturating_add(file.seeds)).collect()
            }
        };
        Ok(Grid {
            workload: file.workload.into_inner(),
            rates,
            machines,
            chosen,
            source,
            settings,
            seeds,
            model,
        })
    }

    fn scenarios(
        &self,
        rate: Option<f64>,
        machine: &Machine,
        lenient: bool,
    ) -> Result<Vec<Scenario>, Failure> {
        let scenarios = match &self.source {
            ScenarioFile::Fixed(scenario) => vec![scenario.clone()],
            ScenarioFile::Generated(generator) => {
                let arrivals_per_minute = rate.unwrap_or(generator.arrivals_per_minute);
                let generator = Generator { arrivals_per_minute, ..generator.clone() };
                self.seeds.iter().map(|&seed| generator.scenario(seed)).collect()
            }
        };
        let fitting = |scenario| {
            fit_to_machine(scenario, machine.pu_count() as u32, lenient)
                .map_err(|why| Failure::bad_input(format!("{} on {}: {why}", self.workload, machine.name)))
        };
        scenarios.into_iter().map(fitting).collect()
    }

    /// The rate of a cell; a drawn workload has one also where the file names none.
    fn rate(&self, cell: &Cell) -> Option<f64> {
        match &self.source {
            ScenarioFile::Fixed(_) => None,
            ScenarioFile::Generated(generator) => cell.rate.or(Some(generator.arrivals_per_minute)),
        }
    }
}

fn table(grid: &Grid, cells: &[Cell]) -> String {
    let mut text = format!(
        "Simulated: {}, {} workloads each (mean ± 95% confidence)\n\n",
        grid.workload,
        grid.seeds.len()
    );
    let heads = [
        "machine",
        ">arrivals/min",
        "policy",
        ">makespan",
        ">slowdown",
        ">worst",
        ">resized",
        ">CPUs used",
        ">refused",
    ];
    let mut table = Table::new(&heads);
    for cell in cells {
        for ran in &cell.ran {
            let figure = |name: &str, digits: usize, unit: &str| output::cell(ran, name, digits, unit);
            table.row([
                cell.machine.name.clone(),
                grid.rate(cell).map_or_else(|| "–".to_owned(), |rate| rate.to_string()),
                ran.letters.clone(),
                figure("makespan_s", 1, " s"),
                figure("mean_slowdown", 2, ""),
                figure("max_slowdown", 1, ""),
                figure("reconfigurations", 0, ""),
                figure("utilisation", 2, ""),
                ran.played.iter().map(|played| played.rejected).sum::<u64>().to_string(),
            ]);
        }
    }
    let _ = write!(text, "{table}");
    text
}

fn as_json(grid: &Grid, cells: &[Cell]) -> Value {
    let cells: Vec<Value> = cells
        .iter()
        .flat_map(|cell| {
            cell.ran.iter().map(|ran| {
                let mut value = output::policy(ran);
                value["machine"] = json!(cell.machine.name);
                value["cpus"] = json!(cell.machine.pu_count());
                value["arrivals_per_minute"] = json!(grid.rate(cell));
                value["skipped"] = json!(cell.skipped.iter().sum::<usize>());
                value
            })
        })
        .collect();
    json!({
        "format": "coplace sweep",
        "version": 1,
        "kind": "simulated",
        "workload": grid.workload,
        "seeds": grid.seeds,
        "columns": COLUMNS,
        "cells": cells,
    })
}

fn csv(grid: &Grid, cells: &[Cell]) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let mut text = format!("machine,cpus,arrivals_per_minute,policy,seed,{}\n", names.join(","));
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    for cell in cells {
        let rate = grid.rate(cell).map_or_else(String::new, |rate| rate.to_string());
        for ran in &cell.ran {
            for (figures, seed) in ran.figures.iter().zip(&grid.seeds) {
                let values: Vec<String> = figures.values.iter().map(f64::to_string).collect();
                let (machine, policy) = (quoted(&cell.machine.name), quoted(&ran.letters));
                let cpus = cell.machine.pu_count();
                let _ = writeln!(text, "{machine},{cpus},{rate},{policy},{seed},{}", values.join(","));
            }
        }
    }
    text
}
