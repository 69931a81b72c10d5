//! A workload under several policies, each played for every seed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sim::{Figures, Model, Outcome as Played, Record, Setup};
use topology::Machine;
use workload::{Generator, MixError, Scenario, ScenarioFile};

use super::{Args, How, output};
use crate::choices::toml_settings;
use crate::exit::{Failure, Outcome};
use crate::machine;
use crate::policy_name::Chosen;

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
    /// Of the workload that has most.
    pub jobs: usize,
    /// Of each workload.
    pub skipped: Vec<usize>,
}

/// A workload, and what a recorded one was recorded with.
pub struct Workload {
    pub file: ScenarioFile,
    machine: Option<Machine>,
    settings: toml::Table,
}

impl Workload {
    /// The recorded settings, with others over them.
    pub fn settings(&self, over: toml::Table) -> toml::Table {
        let mut settings = self.settings.clone();
        settings.extend(over);
        settings
    }
}

pub fn main(args: &Args, workload: &str) -> Outcome {
    let model = args.how.model()?;
    let source = workload_of(workload, &model, &args.how)?;
    let settings = toml_settings(source.settings(Default::default()), &args.set, args.neighbours.as_deref())?;
    let machine = Arc::new(match (&args.machine, source.machine) {
        (None, Some(recorded)) => recorded,
        (named, _) => machine::named(named.as_deref().unwrap_or("this"))?,
    });
    let (scenarios, seeds) = scenarios(args, workload, source.file, machine.pu_count() as u32)?;
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
        skipped: scenarios.iter().map(|scenario| scenario.skipped).collect(),
    };
    let setup = Setup {
        keep_plans: args.html.is_some(),
        until_ns: args.until,
        ..args.how.setup(machine, model.laws, settings)
    };
    let ran = play(&[Batch { setup, scenarios }], &chosen, args.how.workers)?.remove(0);
    if let Some(note) = left_out(&asked.skipped) {
        eprintln!("coplace: {note} of {workload} are wrong or unfit and were left out");
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

/// How many jobs were left out, and of how many workloads; `None`: none were.
pub fn left_out(skipped: &[usize]) -> Option<String> {
    let (all, of) = (skipped.iter().sum::<usize>(), skipped.iter().filter(|&&count| count > 0).count());
    let of =
        if skipped.len() > 1 { format!(", in {of} of {} workloads,", skipped.len()) } else { String::new() };
    (all > 0).then(|| format!("{all} jobs{of}"))
}

pub fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", path.display())))
}

/// The workload of that name: one of the paper's sets, or a file. What it takes from a record, and what
/// it assumes, it tells.
pub fn workload_of(workload: &str, model: &Model, how: &How) -> Result<Workload, Failure> {
    let lenient = how.lenient;
    let plain = |file| Workload { file, machine: None, settings: toml::Table::new() };
    if let Some(letter) = workload.strip_prefix("set:") {
        let set = Generator::set(letter, &model.profiles).ok_or_else(|| {
            Failure::bad_input(format!("there is no set '{letter}'; there are set:A, set:B, set:C and set:D"))
        })?;
        if set.mix.is_empty() {
            return Err(Failure::bad_input(format!("the model has no program that set {letter} draws from")));
        }
        return Ok(plain(ScenarioFile::Generated(set)));
    }
    let path = Path::new(workload);
    let text = workload::text::read(path).map_err(Failure::bad_input)?;
    let bad = |error: MixError| Failure::bad_input(error);
    if is_swf(path) {
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            eprintln!("coplace: {workload}: unpacked with gzip");
        }
        return Ok(plain(ScenarioFile::Fixed(Scenario::parse_swf(&text, path, lenient).map_err(bad)?)));
    }
    if sim::is_record(&text, path) {
        let record = Record::parse(&text, path, &model.laws, how.waiting()).map_err(bad)?;
        record.notes.iter().for_each(|note| eprintln!("coplace: {workload}: {note}"));
        let settings = toml::Table::try_from(&record.settings).map_err(Failure::ours)?;
        let file = ScenarioFile::Fixed(record.scenario);
        return Ok(Workload { file, machine: Some(record.machine), settings });
    }
    ScenarioFile::parse(&text, path, &model.profiles, lenient).map(plain).map_err(bad)
}

/// By its name, without what tells how it is packed.
fn is_swf(path: &Path) -> bool {
    let ends =
        |path: &Path, wanted: &str| path.extension().is_some_and(|end| end.eq_ignore_ascii_case(wanted));
    ends(path, "swf") || ends(path, "gz") && path.file_stem().is_some_and(|stem| ends(Path::new(stem), "swf"))
}

/// The scenarios to be played, with their seeds: one of a fixed workload, several of a drawn one.
fn scenarios(
    args: &Args,
    workload: &str,
    source: ScenarioFile,
    cpus: u32,
) -> Result<(Vec<Scenario>, Vec<u64>), Failure> {
    let seeds: Vec<u64> = (args.seed..args.seed.saturating_add(args.seeds)).collect();
    let scenarios: Vec<Scenario> = match source {
        ScenarioFile::Fixed(scenario) => vec![scenario],
        ScenarioFile::Generated(generator) => seeds.iter().map(|&seed| generator.scenario(seed)).collect(),
    };
    let fixed = scenarios.len() == 1 && args.seeds == 1;
    let fitting = scenarios.into_iter().map(|scenario| fit_to_machine(scenario, cpus, args.how.lenient));
    let scenarios: Vec<Scenario> =
        fitting.collect::<Result<_, _>>().map_err(|why| Failure::bad_input(format!("{workload}: {why}")))?;
    let seeds = if fixed { seeds[..1].to_vec() } else { seeds[..scenarios.len()].to_vec() };
    Ok((scenarios, seeds))
}

/// The scenario as a machine of `cpus` CPUs can play it, or why it cannot.
pub fn fit_to_machine(mut scenario: Scenario, cpus: u32, lenient: bool) -> Result<Scenario, String> {
    if lenient {
        scenario = scenario.without_unfit(cpus);
    }
    scenario.fits(cpus).map_err(|error| error.to_string())?;
    scenario.speeds_up(cpus).map_err(|error| error.to_string())?;
    if scenario.jobs.is_empty() {
        return Err(format!("no job fits a machine of {cpus} CPUs"));
    }
    Ok(scenario)
}

/// Workloads that are played on one machine.
pub struct Batch {
    pub setup: Setup,
    pub scenarios: Vec<Scenario>,
}

/// Every policy on every scenario of every batch, on all cores; in order of all three.
pub fn play<'a>(
    batches: &'a [Batch],
    chosen: &[Chosen],
    workers: Option<u32>,
) -> Result<Vec<Vec<Ran>>, Failure> {
    let of_batch = |batch: &'a Batch| {
        let of_policy = move |policy| (0..batch.scenarios.len()).map(move |at| (batch, policy, at));
        (0..chosen.len()).flat_map(of_policy)
    };
    let tasks: Vec<(&Batch, usize, usize)> = batches.iter().flat_map(of_batch).collect();
    let all = tasks.len();
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
        let (Batch { setup, scenarios }, policy, at) = tasks[number];
        let scenario = &scenarios[at];
        // Plans are for pictures, and those are of the first workload.
        let setup = Setup { keep_plans: setup.keep_plans && at == 0, ..setup.clone() };
        sim::simulate(&setup, scenario, chosen[policy].build()).map_err(|error| match error {
            sim::SimError::TooWide(error) => Failure::bad_input(error),
            stuck @ sim::SimError::Stuck { .. } => Failure::ours(format!("{}: {stuck}", scenario.name)),
        })
    };
    let played = sim::many::in_order(all, workers, work, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let mut played = played?.into_iter();
    let mut named = |chosen: &Chosen, batch: &Batch| {
        let policy = chosen.build();
        let played: Vec<Played> = played.by_ref().take(batch.scenarios.len()).collect();
        let figures = played.iter().map(Figures::of).collect();
        Ran { name: policy.name(), letters: policy.letters().to_owned(), played, figures }
    };
    let of_batch = |batch: &Batch| -> Vec<Ran> { chosen.iter().map(|chosen| named(chosen, batch)).collect() };
    Ok(batches.iter().map(of_batch).collect())
}
