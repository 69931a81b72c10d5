//! A workload under several policies, each played for every seed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use policy::Settings;
use sim::{Figures, Model, Outcome as Played, Setup};
use topology::Machine;
use workload::{Generator, MixError, Scenario, ScenarioFile};

use super::{Args, output};
use crate::exit::{Failure, Outcome};
use crate::words::Chosen;

/// One policy's simulations.
pub struct Ran {
    /// "equal parts (EQ)"
    pub name: String,
    pub letters: String,
    /// One for each seed.
    pub played: Vec<Played>,
    pub figures: Vec<Figures>,
}

/// What was asked for, as results tell it.
pub struct Asked {
    pub workload: String,
    pub machine: Arc<Machine>,
    pub seeds: Vec<u64>,
    pub jobs: usize,
    pub skipped: usize,
}

pub fn main(args: &Args, workload: &str, machine: Arc<Machine>, settings: Settings) -> Outcome {
    let model = match &args.model {
        None => Model::built_in(),
        Some(path) => Model::parse(&read(path)?, path).map_err(Failure::bad_input)?,
    };
    let (scenarios, seeds) = scenarios(args, workload, &model, machine.pu_count() as u32)?;
    let letters = if args.policy.is_empty() {
        ["BP", "EQ", "TA", "CO"].map(str::to_owned).to_vec()
    } else {
        args.policy.clone()
    };
    // Settings that a policy refuses are bad input now, before anything is played.
    let chosen = letters.iter().map(|letters| Chosen::new(letters, &settings));
    let chosen: Vec<Chosen> = chosen.collect::<Result<_, _>>().map_err(Failure::bad_input)?;
    let asked = Asked {
        workload: workload.to_owned(),
        machine: Arc::clone(&machine),
        seeds,
        jobs: scenarios.iter().map(|scenario| scenario.jobs.len()).max().unwrap_or(0),
        skipped: scenarios.iter().map(|scenario| scenario.skipped).max().unwrap_or(0),
    };
    let setup = Setup {
        machine,
        laws: model.laws,
        settings,
        waiting: args.waiting.into(),
        keep_plans: args.html.is_some(),
        knowledge: args.notebook.into(),
    };
    let ran = play(&setup, &scenarios, &chosen, args.workers)?;
    if asked.skipped > 0 {
        eprintln!("coplace: {} jobs of {workload} are wrong or unfit and were left out", asked.skipped);
    }
    if let Some(path) = &args.csv {
        output::write(path, &output::csv(&asked, &ran))?;
    }
    if let Some(path) = &args.html {
        output::write(path, &super::page::render(&asked, &ran))?;
    }
    if args.json {
        println!("{:#}", output::json(&asked, &ran));
    } else if args.csv.as_deref() != Some(Path::new("-")) {
        print!("{}", output::table(&asked, &ran));
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", path.display())))
}

/// The workload of that name: one of the paper's sets, or a file.
pub fn workload_of(workload: &str, model: &Model, lenient: bool) -> Result<ScenarioFile, Failure> {
    if let Some(letter) = workload.strip_prefix("set:") {
        let set = Generator::set(letter, &model.profiles).ok_or_else(|| {
            Failure::bad_input(format!("there is no set '{letter}'; there are set:A, set:B, set:C and set:D"))
        })?;
        if set.mix.is_empty() {
            return Err(Failure::bad_input(format!("the model has no program that set {letter} draws from")));
        }
        return Ok(ScenarioFile::Generated(set));
    }
    let path = Path::new(workload);
    let text = read(path)?;
    let bad = |error: MixError| Failure::bad_input(error);
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("swf")) {
        return Ok(ScenarioFile::Fixed(Scenario::parse_swf(&text, path, lenient).map_err(bad)?));
    }
    ScenarioFile::parse(&text, path, &model.profiles, lenient).map_err(bad)
}

/// The scenarios to be played, with their seeds: one of a fixed workload, several of a drawn one.
fn scenarios(
    args: &Args,
    workload: &str,
    model: &Model,
    cpus: u32,
) -> Result<(Vec<Scenario>, Vec<u64>), Failure> {
    let seeds: Vec<u64> = (args.seed..args.seed.saturating_add(args.seeds)).collect();
    let mut scenarios: Vec<Scenario> = match workload_of(workload, model, args.lenient)? {
        ScenarioFile::Fixed(scenario) => vec![scenario],
        ScenarioFile::Generated(generator) => seeds.iter().map(|&seed| generator.scenario(seed)).collect(),
    };
    let fixed = scenarios.len() == 1 && args.seeds == 1;
    for scenario in &mut scenarios {
        if args.lenient {
            *scenario = std::mem::replace(scenario, Scenario::new("", Vec::new())).without_unfit(cpus);
        }
        scenario.fits(cpus).map_err(|error| Failure::bad_input(format!("{workload}: {error}")))?;
        scenario.speeds_up(cpus).map_err(|error| Failure::bad_input(format!("{workload}: {error}")))?;
        if scenario.jobs.is_empty() {
            return Err(Failure::bad_input(format!("{workload}: no job fits a machine of {cpus} CPUs")));
        }
    }
    let seeds = if fixed { seeds[..1].to_vec() } else { seeds[..scenarios.len()].to_vec() };
    Ok((scenarios, seeds))
}

/// Every policy on every scenario, on all cores; in order of both.
pub fn play(
    setup: &Setup,
    scenarios: &[Scenario],
    chosen: &[Chosen],
    workers: Option<u32>,
) -> Result<Vec<Ran>, Failure> {
    let all = scenarios.len() * chosen.len();
    let bar = ProgressBar::new(all as u64);
    if !std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{elapsed:>4} {bar:30} {pos}/{len} simulations, {eta} left")
        .expect("the template is one of ours");
    bar.set_style(style.progress_chars("━╸ "));
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.map_or_else(available, |workers| workers as usize);
    let work = |number: usize| {
        let (policy, scenario) = (&chosen[number / scenarios.len()], &scenarios[number % scenarios.len()]);
        // Plans are for pictures, and those are of the first workload.
        let setup =
            Setup { keep_plans: setup.keep_plans && number.is_multiple_of(scenarios.len()), ..setup.clone() };
        sim::simulate(&setup, scenario, policy.make()).map_err(|error| match error {
            sim::SimError::TooWide(error) => Failure::bad_input(error),
            stuck @ sim::SimError::Stuck { .. } => Failure::ours(format!("{}: {stuck}", scenario.name)),
        })
    };
    let played = sim::many::in_order(all, workers, work, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let mut played = played?.into_iter();
    let named = |chosen: &Chosen| {
        let policy = chosen.make();
        let played: Vec<Played> = played.by_ref().take(scenarios.len()).collect();
        let figures = played.iter().map(Figures::of).collect();
        Ran { name: policy.name(), letters: policy.letters().to_owned(), played, figures }
    };
    Ok(chosen.iter().map(named).collect())
}
