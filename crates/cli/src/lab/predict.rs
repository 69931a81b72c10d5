//! `coplace lab predict`: how much programs will slow each other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use interference::pairing::Problem;
use interference::{Grid, Judged, Knowledge, judge, predictors};
use serde_json::{Value, json};

use super::heat;
use crate::exit::{Failure, Outcome};
use crate::known::{Sources, describe_unknown, grid, unknown_programs};
use crate::simulate::output;
use crate::table::Table;

/// Predicts how much programs slow each other
#[derive(clap::Args)]
#[command(
    long_about = "Predicts how much programs slow each other.

With names, predicts each of these programs in the company of all others; without names, every empty cell \
of the matrix. A slowdown is response time ÷ time alone: 1 is undisturbed. An error is relative: with ± \
5%, two out of three values lie within 5%.

What is known is given by --matrix (measured pairs), --elsewhere (those of other machines) and --profiles \
(class, bandwidth, curves). A program of which nothing is known is predicted as an average program, and \
the output says so. --predictor list names the predictors; --judge tries them all on what is known.",
    after_long_help = "Exit status: 0; 2 wrong file or name (reported with line and column).

Example: what a and b lose beside each other
  coplace lab predict a b --matrix pairs.csv

Example: complete a matrix, as CSV and as a picture
  coplace lab predict --matrix pairs.csv --csv whole.csv --svg whole.svg"
)]
pub struct Args {
    /// Programs that run side by side
    programs: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Hide each known pair once, and show how far off every predictor was (cross-validation)
    #[arg(long, conflicts_with_all = ["programs", "csv", "svg"])]
    judge: bool,
    /// With --judge: number of parts into which the pairs are divided
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    folds: u32,
    /// With --judge: percentage of all pairs that is shown
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    shown: f64,
    /// With --judge: seed that decides which pairs are hidden when
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the whole matrix (- for stdout)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the heat map
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn main(args: &Args) -> Outcome {
    let predictor = args.sources.predictor()?;
    if args.programs.is_empty() && args.sources.matrix.is_none() && args.sources.observed.is_none() {
        return Err(Failure::bad_input("name programs that run side by side, or a --matrix to complete"));
    }
    let knowledge = args.sources.knowledge(&args.programs)?;
    if args.judge {
        return judge_all(args, &knowledge);
    }
    let grid = grid(&knowledge, predictor);
    let mut chosen: Vec<usize> =
        args.programs.iter().filter_map(|name| knowledge.matrix.find(name)).collect();
    let named = !chosen.is_empty();
    if !named {
        chosen = (0..knowledge.matrix.len()).collect();
    }
    if let Some(path) = &args.csv {
        let mut whole = knowledge.matrix.clone();
        for (a, b) in cells(&(0..whole.len()).collect::<Vec<_>>()) {
            whole.set(a, b, grid.get(a, b).map(|cell| cell.value));
        }
        output::write(path, &whole.of(&chosen).to_csv())?;
    }
    if let Some(path) = &args.svg {
        output::write(path, &heat::render(&knowledge.matrix.of(&chosen), &grid.of(&chosen), "Slowdowns"))?;
    }
    let mut distinct = chosen.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if args.json {
        println!("{:#}", json!({ "cells": as_json(&knowledge, &grid, &distinct) }));
    } else if named {
        print_beside_all(args, &knowledge, &grid, &chosen)?;
    } else if args.csv.as_ref().is_none_or(|path| path.as_os_str() != "-") {
        print_completed(&knowledge, &grid, predictor.name());
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(programs: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    programs.iter().flat_map(move |&a| programs.iter().map(move |&b| (a, b)))
}

fn as_json(knowledge: &Knowledge, grid: &Grid, programs: &[usize]) -> Vec<Value> {
    let matrix = &knowledge.matrix;
    let cell = |(a, b): (usize, usize)| {
        let predicted = grid.get(a, b);
        json!({
            "program": matrix.name(a),
            "beside": matrix.name(b),
            "value": predicted.map(|cell| cell.value),
            "error": predicted.map(|cell| cell.error),
            "known": matrix.get(a, b).is_some(),
        })
    };
    cells(programs).map(cell).collect()
}

/// Each of the programs beside all others.
fn print_beside_all(
    args: &Args,
    knowledge: &Knowledge,
    grid: &Grid,
    chosen: &[usize],
) -> Result<(), Failure> {
    if chosen.len() == 1 {
        println!("{} alone is not slowed down.", args.programs[0]);
        return Ok(());
    }
    let company: Vec<usize> = (0..chosen.len()).collect();
    let predicted = |a: usize, b: usize| grid.get(chosen[a], chosen[b]);
    if let Some((a, b)) = cells(&company).find(|&(a, b)| a != b && predicted(a, b).is_none()) {
        return Err(Failure::bad_input(format!(
            "this predictor cannot tell of {} beside {}; leave --predictor out to use all that is known",
            args.programs[a], args.programs[b]
        )));
    }
    let problem = Problem::new(&args.programs, &[], |a, b| predicted(a, b).map_or(1.0, |cell| cell.value));
    let mut table = Table::new(&["program", "beside", ">slowdown", ">error", ""]);
    for &program in &company {
        let others: Vec<usize> = company.iter().copied().filter(|other| *other != program).collect();
        let measured = others.iter().all(|&o| knowledge.matrix.get(chosen[program], chosen[o]).is_some());
        let loss = |other: usize| predicted(program, other).map_or(0.0, |cell| cell.value * cell.error);
        let slowdown = problem.slowdown(program, &company);
        let error = others.iter().map(|&other| loss(other) * loss(other)).sum::<f64>().sqrt() / slowdown;
        let source = match (measured, others.len()) {
            (false, _) => "predicted",
            (true, 1) => "measured",
            (true, _) => "measured pairs, added up",
        };
        let names: Vec<&str> = others.iter().map(|&other| args.programs[other].as_str()).collect();
        table.row([
            args.programs[program].clone(),
            names.join(", "),
            format!("{slowdown:.2}"),
            format!("± {:.0}%", 100.0 * error),
            source.into(),
        ]);
    }
    print!("{table}");
    if let Some(message) = describe_unknown(&unknown_programs(knowledge, &args.programs)) {
        println!("\n{message}");
    }
    Ok(())
}

fn print_completed(knowledge: &Knowledge, grid: &Grid, predictor: &str) {
    let matrix = &knowledge.matrix;
    let all: Vec<usize> = (0..matrix.len()).collect();
    let unknown: Vec<(usize, usize)> = cells(&all).filter(|&(a, b)| matrix.get(a, b).is_none()).collect();
    println!(
        "{} programs, {} of {} pairs (each way) measured; the others by `{predictor}`.",
        matrix.len(),
        matrix.len() * matrix.len() - unknown.len(),
        matrix.len() * matrix.len()
    );
    let mut table = Table::new(&["program", "beside", ">slowdown", ">error"]);
    for &(a, b) in &unknown {
        let (value, error) = grid.get(a, b).map_or(("–".into(), "–".into()), |cell| {
            (format!("{:.2}", cell.value), format!("± {:.0}%", 100.0 * cell.error))
        });
        table.row([matrix.name(a).into(), matrix.name(b).into(), value, error]);
    }
    if !unknown.is_empty() {
        print!("\n{table}");
    }
    if let Some(message) = describe_unknown(&unknown_programs(knowledge, matrix.names())) {
        println!("\n{message}");
    }
}

/// Above what a program counts as slowed down by its neighbour.
const SLOWED: f64 = 1.1;

fn judge_all(args: &Args, knowledge: &Knowledge) -> Outcome {
    let pairs = knowledge.matrix.known_pairs().len();
    if pairs < args.folds as usize {
        return Err(Failure::bad_input(format!(
            "{pairs} pairs are known both ways; that is too few for {} parts (--folds)",
            args.folds
        )));
    }
    if !(args.shown > 0.0 && args.shown <= 100.0) {
        return Err(Failure::bad_input(format!("--shown {}: above 0 and at most 100 percent", args.shown)));
    }
    let all = predictors();
    let parts = judge::hidden(knowledge, args.folds as usize, args.shown, args.seed);
    let tasks: Vec<(usize, usize)> =
        (0..all.len()).flat_map(|p| (0..parts.len()).map(move |f| (p, f))).collect();
    let one =
        |&(predictor, fold): &(usize, usize)| judge::one(all[predictor], &parts[fold].0, &parts[fold].1);
    let results = map_parallel(&tasks, one);
    let mut judged = vec![Judged::default(); all.len()];
    for (&(predictor, _), result) in tasks.iter().zip(&results) {
        judged[predictor] = std::mem::take(&mut judged[predictor]).and(result);
    }
    let numbers = |judged: &Judged| {
        json!({
            "cells": judged.predicted.len(),
            "silent": judged.silent,
            "mean_error": judged.mean_error(),
            "within_5_percent": judged.within(0.05),
            "within_30_percent": judged.within(0.3),
            "covered": judged.covered(),
        })
    };
    if args.json {
        let rows: Vec<Value> = all
            .iter()
            .zip(&judged)
            .map(|(predictor, judged)| {
                let mut row = numbers(judged);
                row["predictor"] = json!(predictor.name());
                row["slowed"] = numbers(&judged.slowed_by(SLOWED));
                row
            })
            .collect();
        println!(
            "{:#}",
            json!({ "folds": args.folds, "shown": args.shown, "seed": args.seed, "predictors": rows })
        );
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "Each of {pairs} pairs hidden once, {}% of all shown; {} parts, seed {}.\n",
        args.shown, args.folds, args.seed
    );
    let heads = [
        "predictor",
        ">mean error",
        ">within 5%",
        ">within 30%",
        ">slowed: mean",
        ">within 5%",
        ">within 30%",
        "knows",
    ];
    let mut table = Table::new(&heads);
    for (predictor, judged) in all.iter().zip(&judged) {
        let percent =
            |part: Option<f64>| part.map_or("–".to_owned(), |part| format!("{:.1}%", 100.0 * part));
        let slowed = judged.slowed_by(SLOWED);
        table.row([
            predictor.name().into(),
            percent(judged.mean_error()),
            percent(judged.within(0.05)),
            percent(judged.within(0.3)),
            percent(slowed.mean_error()),
            percent(slowed.within(0.05)),
            percent(slowed.within(0.3)),
            predictor.about().into(),
        ]);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// On all cores; the results in the order of the tasks.
fn map_parallel<T: Sync, R: Send>(tasks: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(tasks.len().max(1));
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(at) else { return done };
            done.push((at, work(task)));
        }
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("a predictor does not panic")).collect()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}
