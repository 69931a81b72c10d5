//! `coplace simulate`: what a policy would do on any machine, without running anything.

pub mod output;
mod page;
mod picture;
pub mod scenario;
mod steps;

use std::path::PathBuf;
use std::sync::Arc;

use policy::Settings;
use sim::{Laws, Model, Setup};
use topology::Machine;

use crate::choices::toml_settings;
use crate::exit::{Failure, Outcome};
use crate::machine;

/// Shows what policies would do with a workload, on any machine
#[derive(clap::Args)]
#[command(
    long_about = "Shows what policies would do with a workload, on any machine.

Plays the workload on a modelled machine under one or several policies, without running any program, and \
shows makespan, slowdowns, reconfigurations and fairness. The policies are the real ones; the machine and \
its programs are modelled (docs/simulator.md). With --steps instead of a workload, shows the plans for 1, \
2, 3 ... programs.

WORKLOAD is a file of simulated programs (TOML); a file in the Standard Workload Format (.swf, .swf.gz); a \
record of live programs (`coplace record`, `coplace mix --trace`, `coplace daemon --trace`); or set:A to \
set:D, workloads of 40 jobs drawn like those of the sets of Schönherr, Juurlink and Richling (2013); \
--seeds says how many.

MACHINE is `this`; a file of hwloc XML (lstopo machine.xml); a directory with a copy of /sys; or a \
description: levels with their counts, widest first (pack, [numa], l3, l2, core, pu).",
    after_long_help = "Exit status: 0; 1 the checker refused a plan of --steps; 2 wrong input.

Example: ten workloads of set B under four policies
  coplace simulate set:B --seeds 10 --machine 'pack:4 [numa] l3:1 core:6' --policy BP,EQ,TA,CO
Example: what would equal parts have made of a recorded mix?
  coplace mix mix.toml --policy TA --trace t.jsonl
  coplace simulate t.jsonl --policy TA,EQ
Example: the steps of a machine
  coplace simulate --machine 'pack:4 [numa] l3:1 core:6 pu:1' --steps 30 --policy TA,CO
Example: equilibrium over levels on two processors of two cores
  coplace simulate --machine 'pack:2 core:2' --steps 8 --policy LV"
)]
pub struct Args {
    /// The workload: a TOML or SWF file, a record, or set:A to set:D
    #[arg(value_name = "WORKLOAD", required_unless_present = "steps", conflicts_with_all = ["steps", "down", "svg"])]
    workload: Option<String>,
    /// The machine [default: the recorded one for a record, otherwise `this`]
    #[arg(long)]
    machine: Option<String>,
    /// Show the plans for 1 to N programs that arrive one after another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: Option<u32>,
    /// Policies, separated by commas [default: BP,EQ,TA,CO; with --steps TA,CO]
    #[arg(long, value_delimiter = ',', value_name = "POLICY", value_parser = crate::policy_name::policy_letters)]
    policy: Vec<String>,
    /// A setting for all policies, in TOML, such as `allowed_widths=[2]`; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// For TA and CO, what decides which programs share memory and caches: `twins`, `profile` or `load_rates`
    /// (both with --notebook full), or a file with a slowdown matrix (.csv) or profiles (.toml)
    #[arg(long, value_name = "twins|profile|load_rates|FILE")]
    neighbours: Option<String>,
    /// Draw N workloads, with the seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop after this much simulated time (`90s`, `10min`); jobs that have not ended by then count with what they have done
    #[arg(long, value_name = "TIME", value_parser = crate::units::parse_duration_ns, conflicts_with = "steps")]
    until: Option<u64>,
    #[command(flatten)]
    how: How,
    /// With --steps: also show what happens as the programs end, in the order of their arrival
    #[arg(long, requires = "steps")]
    down: bool,
    /// With --steps: write a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Write a line for every job of every simulation (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE", conflicts_with = "steps")]
    csv: Option<PathBuf>,
    /// Write a page with pictures: programs over time, what ran where, slowdowns, policies side by side
    #[arg(long, value_name = "FILE", conflicts_with = "steps")]
    html: Option<PathBuf>,
}

/// How workloads are played, by one simulation or by many.
#[derive(clap::Args)]
pub struct How {
    /// How threads wait in OpenMP's runtime
    #[arg(long, value_enum, default_value_t = Waiting::Spinning)]
    waiting: Waiting,
    /// What the modelled node knows about its programs, for the policies that use it
    #[arg(long, value_enum, default_value_t = Notebook::None)]
    notebook: Notebook,
    /// A file with another model of programs and laws (docs/simulator.md)
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Leave out and count jobs that are wrong, too wide, or slower on more CPUs without saying so
    #[arg(long)]
    pub lenient: bool,
    /// Simulations at a time; the result does not depend on it [default: all CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: Option<u32>,
}

impl How {
    /// The built-in model, or that of a file.
    pub fn model(&self) -> Result<Model, Failure> {
        match &self.model {
            None => Ok(Model::built_in()),
            Some(path) => Model::parse(&scenario::read(path)?, path).map_err(Failure::bad_input),
        }
    }

    pub fn waiting(&self) -> workload::Waiting {
        self.waiting.into()
    }

    pub fn setup(&self, machine: Arc<Machine>, laws: Laws, settings: Settings) -> Setup {
        let (waiting, knowledge) = (self.waiting.into(), self.notebook.into());
        Setup { machine, laws, settings, waiting, keep_plans: false, knowledge, until_ns: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Waiting {
    /// They spin for a while, then sleep (the default of GNU's runtime)
    Spinning,
    /// They sleep (OMP_WAIT_POLICY=passive)
    Passive,
    /// They spin forever (OMP_WAIT_POLICY=active)
    Active,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Notebook {
    /// Nothing, and it learns nothing
    None,
    /// Nothing at first; it learns from the rates of their regions
    Empty,
    /// What runs of each program alone have shown, and how long they took
    Full,
}

impl From<Notebook> for sim::Knowledge {
    fn from(notebook: Notebook) -> sim::Knowledge {
        match notebook {
            Notebook::None => sim::Knowledge::None,
            Notebook::Empty => sim::Knowledge::Empty,
            Notebook::Full => sim::Knowledge::Full,
        }
    }
}

impl From<Waiting> for workload::Waiting {
    fn from(waiting: Waiting) -> workload::Waiting {
        match waiting {
            Waiting::Spinning => workload::Waiting::Spinning,
            Waiting::Passive => workload::Waiting::Passive,
            Waiting::Active => workload::Waiting::Active,
        }
    }
}

pub fn main(args: &Args) -> Outcome {
    if let Some(workload) = &args.workload {
        return scenario::main(args, workload);
    }
    let machine = Arc::new(machine::named(args.machine.as_deref().unwrap_or("this"))?);
    let settings = toml_settings(Default::default(), &args.set, args.neighbours.as_deref())?;
    steps::main(args, &machine, &settings, args.steps.unwrap_or(1))
}
