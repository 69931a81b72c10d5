//! `coplace lab pair`: who should stand beside whom.

use std::path::PathBuf;
use std::process::ExitCode;

use interference::pairing::{Assignment, MOST_TO_ENUMERATE, Objective, Problem, Wanted, enumerate, place};
use interference::{Grid, Knowledge};
use serde_json::{Value, json};
use workload::Random;

use crate::chart;
use crate::exit::{Failure, Outcome};
use crate::known::{Sources, describe_unknown, grid, unknown_programs};
use crate::simulate::output;
use crate::table::Table;

/// Assigns programs to places so that they slow each other least
#[derive(clap::Args)]
#[command(
    long_about = "Assigns programs to places so that they slow each other least.

With two programs to a place, the best assignment is found exactly; with more, a search finds one and \
reports how much better the best can be at most. A name that occurs twice stands for two instances. \
Without names, each program of the matrix occurs once. What was not measured is predicted. If the \
predictions are no better than guesses, or nothing is known, twins (two instances of one program) are kept \
apart.",
    after_long_help = "Exit status: 0; 2 wrong file or name (reported with line and column).

Example: six programs on three places
  coplace lab pair a b c d e f --places 3 --matrix pairs.csv

Example: two instances each of two programs of which nothing is known
  coplace lab pair a a b b --places 2"
)]
pub struct Args {
    /// Programs; a name that occurs twice stands for two instances
    programs: Vec<String>,
    /// Number of places [default: enough for two programs each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    places: Option<u32>,
    #[command(flatten)]
    sources: Sources,
    /// What to minimise
    #[arg(long, value_enum, default_value_t = Goal::Mean)]
    objective: Goal,
    /// Seconds that each program takes alone, in the order of the programs; for makespan and energy
    #[arg(long, value_name = "SECONDS", value_delimiter = ',')]
    seconds: Vec<f64>,
    /// What an occupied place draws until its last program has ended, in watts; for energy
    #[arg(long, value_name = "WATTS", default_value_t = 50.0)]
    idle_watts: f64,
    /// What a program draws while it runs, in watts; for energy
    #[arg(long, value_name = "WATTS", default_value_t = 20.0)]
    busy_watts: f64,
    /// Seed of the random assignments that are compared with, and of the search with more than two to a place
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also go through all assignments (12 programs at most), to show how good this one is
    #[arg(long)]
    exact: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a picture of this assignment beside random ones and the worst
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Goal {
    /// The mean slowdown
    Mean,
    /// The worst slowdown
    Worst,
    /// The makespan (--seconds)
    Makespan,
    /// The energy (--seconds, --idle-watts, --busy-watts)
    Energy,
}

/// Random assignments that are compared with.
const RANDOM: usize = 200;

pub fn main(args: &Args) -> Outcome {
    let predictor = args.sources.predictor()?;
    if args.programs.is_empty() && args.sources.matrix.is_none() {
        return Err(Failure::bad_input("name programs, or a --matrix whose programs are to be paired"));
    }
    let knowledge = args.sources.knowledge(&args.programs)?;
    let names = if args.programs.is_empty() { knowledge.matrix.names() } else { &args.programs };
    check(args, names)?;
    let all = grid(&knowledge, predictor);
    let chosen: Vec<usize> = names.iter().filter_map(|name| knowledge.matrix.find(name)).collect();
    let grid = all.of(&chosen);
    let untold = (0..names.len())
        .flat_map(|a| (0..names.len()).map(move |b| (a, b)))
        .find(|&(a, b)| a != b && grid.get(a, b).is_none());
    if let Some((a, b)) = untold {
        return Err(Failure::bad_input(format!(
            "this predictor cannot tell of {} beside {}; leave --predictor out to use all that is known",
            names[a], names[b]
        )));
    }
    let problem = Problem::new(names, &args.seconds, |a, b| grid.get(a, b).map_or(1.0, |cell| cell.value));
    let wanted = Wanted {
        places: args.places.map_or(names.len().div_ceil(2), |places| places as usize),
        objective: match args.objective {
            Goal::Mean => Objective::Mean,
            Goal::Worst => Objective::Worst,
            Goal::Makespan => Objective::Makespan,
            Goal::Energy => Objective::Energy { idle_w: args.idle_watts, busy_w: args.busy_watts },
        },
        seed: args.seed,
    };
    let (assignment, trusted) = place(&problem, &grid, &wanted);
    let mut random = Random::for_purpose(args.seed, "random assignments");
    let mut mean = |draw: fn(&Problem, &Wanted, &mut Random) -> Assignment| {
        (0..RANDOM).map(|_| draw(&problem, &wanted, &mut random).cost).sum::<f64>() / RANDOM as f64
    };
    let (drawn, apart) = (mean(Problem::random), mean(Problem::random_apart));
    let exact = match args.exact {
        true => Some(enumerate(&problem, wanted.places, &wanted.objective).ok_or_else(|| {
            let why = format!(
                "--exact goes through at most {MOST_TO_ENUMERATE} programs, and there are {}",
                names.len()
            );
            Failure::bad_input(why)
        })?),
        false => None,
    };
    let shown = Shown {
        names,
        grid: &grid,
        problem: &problem,
        assignment: &assignment,
        goal: args.objective,
        trusted,
        random: drawn,
        random_apart: apart,
        greedy: problem.greedy(&wanted).cost,
        exact,
        worst: problem.worst(&wanted).cost,
    };
    if let Some(path) = &args.svg {
        let bars = [("this", assignment.cost), ("random", shown.random), ("worst", shown.worst)];
        let bars: Vec<(String, f64, f64)> = bars.map(|(name, cost)| (name.to_owned(), cost, 0.0)).into();
        output::write(path, &chart::bars(shown.objective(), &bars))?;
    }
    if args.json {
        println!("{:#}", shown.json());
    } else {
        shown.print(&knowledge);
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Args, names: &[String]) -> Result<(), Failure> {
    if !args.seconds.is_empty() && args.seconds.len() != names.len() {
        return Err(Failure::bad_input(format!(
            "--seconds tells of {} programs, and there are {}",
            args.seconds.len(),
            names.len()
        )));
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if let Some(seconds) = args.seconds.iter().find(|seconds| !positive(**seconds)) {
        return Err(Failure::bad_input(format!("--seconds {seconds}: expected a number above 0")));
    }
    if !(positive(args.idle_watts) && positive(args.busy_watts)) {
        return Err(Failure::bad_input("--idle-watts and --busy-watts must be above 0"));
    }
    Ok(())
}

struct Shown<'a> {
    names: &'a [String],
    grid: &'a Grid,
    problem: &'a Problem,
    assignment: &'a Assignment,
    goal: Goal,
    trusted: bool,
    random: f64,
    random_apart: f64,
    greedy: f64,
    worst: f64,
    exact: Option<f64>,
}

impl Shown<'_> {
    fn objective(&self) -> &'static str {
        match self.goal {
            Goal::Mean => "mean slowdown",
            Goal::Worst => "worst slowdown",
            Goal::Makespan => "makespan in s",
            Goal::Energy => "energy in J",
        }
    }

    /// Slowdown of a program where it stands, and its relative error.
    fn predicted(&self, program: usize, place: &[usize]) -> (f64, f64) {
        let slowdown = self.problem.slowdown(program, place);
        let others = place.iter().filter(|other| **other != program);
        let off =
            others.filter_map(|&other| self.grid.get(program, other)).map(|cell| cell.value * cell.error);
        (slowdown, off.map(|off| off * off).sum::<f64>().sqrt() / slowdown)
    }

    /// Of a program the neighbour that would have slowed it most.
    fn spared(&self, program: usize, place: &[usize]) -> Option<(usize, f64)> {
        let others = (0..self.names.len()).filter(|other| !place.contains(other));
        let predicted = others.filter_map(|other| Some((other, self.grid.get(program, other)?.value)));
        predicted.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    fn method(&self) -> &'static str {
        if self.trusted { "predictions" } else { "twins rule" }
    }

    fn json(&self) -> Value {
        let place = |place: &Vec<usize>| {
            let programs = place.iter().map(|&program| {
                let (slowdown, error) = self.predicted(program, place);
                json!({ "program": self.names[program], "slowdown": slowdown, "error": error })
            });
            json!({ "programs": programs.collect::<Vec<_>>() })
        };
        json!({
            "objective": self.objective(),
            "cost": self.assignment.cost,
            "bound": self.assignment.bound,
            "gap": self.assignment.gap(),
            "exact": self.exact,
            "greedy": self.greedy,
            "random": self.random,
            "random_without_twins": self.random_apart,
            "worst": self.worst,
            "placed_by": self.method(),
            "places": self.assignment.places.iter().map(place).collect::<Vec<_>>(),
        })
    }

    fn print(&self, knowledge: &Knowledge) {
        let mut table = Table::new(&[">place", "program", ">slowdown", ">error", "spared"]);
        for (number, place) in self.assignment.places.iter().enumerate() {
            if place.is_empty() {
                table.row([
                    (number + 1).to_string(),
                    "(empty)".into(),
                    "–".into(),
                    "–".into(),
                    String::new(),
                ]);
            }
            for &program in place {
                let (slowdown, error) = self.predicted(program, place);
                let spared = match self.spared(program, place) {
                    Some((other, value)) if value > slowdown + 0.005 => {
                        format!("{value:.2} beside {}", self.names[other])
                    }
                    _ => String::new(),
                };
                table.row([
                    (number + 1).to_string(),
                    self.names[program].clone(),
                    format!("{slowdown:.2}"),
                    format!("± {:.0}%", 100.0 * error),
                    spared,
                ]);
            }
        }
        print!("{table}");
        let gap = self.assignment.gap();
        let gap = match (self.trusted, gap) {
            (false, _) => String::new(),
            (true, gap) if gap < 1e-6 => " (nothing is better)".to_owned(),
            (true, gap) => format!(" (the best is at most {:.1}% better)", 100.0 * gap),
        };
        println!(
            "\n{}: {:.3}{gap}; one by one as they come {:.3}, random {:.3}, random without twins {:.3}, worst {:.3}.",
            self.objective(),
            self.assignment.cost,
            self.greedy,
            self.random,
            self.random_apart,
            self.worst
        );
        if let Some(exact) = self.exact {
            println!("The best of all assignments has {exact:.3}.");
        }
        if !self.trusted {
            println!(
                "Placed by the twins rule alone: the predictions' errors are as large as their spread, so\n\
                 they do not show which programs go well together. Measured pairs (--matrix) or profiles would."
            );
        }
        if let Some(message) = describe_unknown(&unknown_programs(knowledge, self.names)) {
            println!("{message}");
        }
    }
}
