//! `coplace lab twins`: what keeping twins apart is worth on a matrix.

use std::path::PathBuf;
use std::process::ExitCode;

use interference::schedules::{self, Group, Study, count, count_without_twins, study};
use interference::uniform::{irwin_hall, repeated, simulate};
use serde_json::{Value, json};

use crate::chart::{self, Axes, Line};
use crate::exit::{Failure, Outcome};
use crate::known::{Sources, grid};
use crate::simulate::output;
use crate::table::Table;

/// Shows what it is worth to keep two instances of one program apart
#[derive(clap::Args)]
#[command(
    long_about = "Shows what it is worth to keep two instances of one program apart.

Goes through every way to put two instances each of n programs on n places of two, and compares those in \
which no program is beside its twin with all others: the study of de Blanche and Lundqvist, Terrible Twins \
(COSH 2016), for any matrix. Twins are low, mid or high by what the two lose together: low the lowest \
third, high the highest third, mid the rest.

With --count N, only the assignments of N programs are counted; with --uniform N, the paper's statistical \
argument is shown instead.",
    after_long_help = "Exit status: 0; 2 wrong file or name (reported with line and column).

Example: all programs of a matrix, then three of them
  coplace lab twins --matrix pairs.csv --svg twins.svg
  coplace lab twins --matrix pairs.csv cg ep ft"
)]
pub struct Args {
    /// Programs of the matrix, 12 at most [default: all]
    programs: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Only count the assignments of N programs, and those without twins
    #[arg(long, value_name = "N", conflicts_with_all = ["programs", "matrix", "svg"],
          value_parser = clap::value_parser!(u32).range(1..=20))]
    count: Option<u32>,
    /// Show the statistical argument instead: the sum of what N programs demand, each uniform between 0 and
    /// 1, if they are different and if they are instances of one; drawn, and in closed form
    #[arg(long, value_name = "N", conflicts_with_all = ["programs", "matrix", "svg", "count"],
          value_parser = clap::value_parser!(u32).range(1..=12))]
    uniform: Option<u32>,
    /// With --uniform: seed of the draws
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of bins of the histogram
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    bins: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw the histogram
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn main(args: &Args) -> Outcome {
    if let Some(programs) = args.count {
        let (all, without) = (count(programs as usize), count_without_twins(programs as usize));
        if args.json {
            println!(
                "{:#}",
                json!({ "programs": programs, "schedules": all as u64, "without_twins": without as u64 })
            );
        } else {
            println!(
                "{all} schedules of two instances each of {programs} programs, {without} of them without twins"
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(programs) = args.uniform {
        uniform(args, programs);
        return Ok(ExitCode::SUCCESS);
    }
    if args.sources.matrix.is_none() {
        return Err(Failure::bad_input("--matrix must name the matrix whose schedules are compared"));
    }
    let predictor = args.sources.predictor()?;
    let knowledge = args.sources.knowledge(&[])?;
    let chosen: Vec<usize> = if args.programs.is_empty() {
        (0..knowledge.matrix.len()).collect()
    } else {
        let find = |name: &String| {
            knowledge.matrix.find(name).ok_or_else(|| {
                let all = knowledge.matrix.names().join(", ");
                Failure::bad_input(format!("the matrix has no program '{name}'; it has {all}"))
            })
        };
        args.programs.iter().map(find).collect::<Result<_, _>>()?
    };
    let most = schedules::MOST_PROGRAMS;
    if chosen.len() > most {
        return Err(Failure::bad_input(format!(
            "{} programs have {} schedules; name at most {most} of the matrix's programs",
            chosen.len(),
            if chosen.len() <= 20 { count(chosen.len()).to_string() } else { "too many".into() }
        )));
    }
    let mut matrix = knowledge.matrix.of(&chosen);
    let unknown = matrix.len() * matrix.len() - matrix.known().count();
    if unknown > 0 {
        let grid = grid(&knowledge, predictor).of(&chosen);
        for a in 0..matrix.len() {
            for b in 0..matrix.len() {
                matrix.set(a, b, grid.get(a, b).map(|cell| cell.value));
            }
        }
        if !matrix.is_whole() {
            return Err(Failure::bad_input("this predictor cannot tell of all pairs; leave --predictor out"));
        }
    }
    let study = study(&matrix, args.bins as usize);
    if let Some(path) = &args.svg {
        output::write(path, &picture(&study))?;
    }
    if args.json {
        println!("{:#}", as_json(&study, matrix.names(), unknown));
    } else {
        print(&study, matrix.names(), unknown);
    }
    Ok(ExitCode::SUCCESS)
}

/// Sums that are drawn.
const DRAWS: u32 = 1_000_000;
/// Where distributions are shown, as parts of the largest sum.
const STEPS: u32 = 10;

fn uniform(args: &Args, programs: u32) {
    let bounds: Vec<f64> =
        (1..STEPS).map(|step| f64::from(programs) * f64::from(step) / f64::from(STEPS)).collect();
    let (apart, alike) = simulate(programs, &bounds, DRAWS, args.seed);
    let rows = bounds.iter().zip(apart.iter().zip(&alike));
    if args.json {
        let row = |(&bound, (apart, alike)): (&f64, (&f64, &f64))| {
            json!({
                "at_most": bound,
                "different": { "drawn": apart, "exact": irwin_hall(programs, bound) },
                "same": { "drawn": alike, "exact": repeated(programs, bound) },
            })
        };
        println!(
            "{:#}",
            json!({ "programs": programs, "draws": DRAWS, "rows": rows.map(row).collect::<Vec<_>>() })
        );
        return;
    }
    println!(
        "What {programs} programs demand together, each uniform between 0 and 1: how often it is at most so \
         much.\n"
    );
    let heads = [">at most", ">different: drawn", ">exact", ">the same: drawn", ">exact"];
    let mut table = Table::new(&heads);
    for (&bound, (apart, alike)) in rows {
        let [apart, exactly_apart, alike, exactly_alike] =
            [*apart, irwin_hall(programs, bound), *alike, repeated(programs, bound)]
                .map(|part| format!("{part:.4}"));
        table.row([format!("{bound:.1}"), apart, exactly_apart, alike, exactly_alike]);
    }
    print!("{table}");
}

fn members(set: u32, names: &[String]) -> Vec<&str> {
    names.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, name)| name.as_str()).collect()
}

fn as_json(study: &Study, names: &[String], predicted: usize) -> Value {
    let group = |group: &Group| {
        json!({
            "name": group.name,
            "schedules": group.count,
            "best": (group.count > 0).then_some(group.best),
            "mean": group.mean(),
            "worst": (group.count > 0).then_some(group.worst),
            "histogram": group.histogram,
        })
    };
    json!({
        "programs": names,
        "predicted_cells": predicted,
        "groups": study.groups.iter().map(group).collect::<Vec<_>>(),
        "all_twins": study.all_twins,
        "worse_than_all_twins": study.worse_than_all_twins,
        "low": members(study.sets[0], names),
        "mid": members(study.sets[1], names),
        "high": members(study.sets[2], names),
        "first_bin": study.first,
        "bin": study.bin,
    })
}

fn print(study: &Study, names: &[String], predicted: usize) {
    println!("Two instances each of {} programs on {} places of two.", names.len(), names.len());
    if predicted > 0 {
        println!("{predicted} slowdowns were not measured and are predicted.");
    }
    let mut table = Table::new(&["schedules", ">number", ">best", ">mean", ">worst"]);
    for group in &study.groups {
        let show = |value: f64| if group.count > 0 { format!("{value:.4}") } else { "–".to_owned() };
        table.row([
            group.name.into(),
            group.count.to_string(),
            show(group.best),
            show(group.mean().unwrap_or(0.0)),
            show(group.worst),
        ]);
    }
    println!("\n{table}");
    println!(
        "All beside their twins: {:.4}; {} schedules are worse.\nLow twins: {}. High twins: {}.",
        study.all_twins,
        study.worse_than_all_twins,
        members(study.sets[0], names).join(", "),
        members(study.sets[2], names).join(", ")
    );
}

fn picture(study: &Study) -> String {
    let lines: Vec<Line> = study
        .groups
        .iter()
        .filter(|group| group.count > 0)
        .map(|group| {
            let share = |count: u64| 100.0 * count as f64 / group.count as f64;
            let start = |at: usize| study.first + at as f64 * study.bin;
            let bins = group.histogram.iter().enumerate().map(|(at, &count)| (start(at), share(count)));
            Line { name: group.name.into(), points: bins.collect(), steps: true }
        })
        .collect();
    let axes = Axes { title: "Schedules", x: "mean slowdown", y: "% of the group's schedules", log_x: true };
    chart::lines(&axes, &lines)
}
