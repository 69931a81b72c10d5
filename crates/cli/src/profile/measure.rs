//! Measuring what is missing.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::reuse::{Ended, Rate};
use evidence::{Kind, Program, Sample, Store};
use probe::counters::{CountError, Definitions, Processor};
use probe::distgen::Order;
use probe::slowdown::{Plan, class_footprints, llc_bytes};
use probe::tool::{self, Cost, Options, RunError, Tool, Until};
use serde_json::{Value, json};
use topology::Machine;

use super::{Args, known, verdicts};
use crate::exit::{DOES_NOT_HOLD, Failure, INTERRUPTED, Outcome};
use crate::lab::slowdown::interrupts;
use crate::lab::{Summary, slowdown};

/// Share of the lines that are looked at.
const SAMPLE: f64 = 0.01;
/// Of slowdowns, each with every footprint that a class takes.
const ROUNDS: u32 = 5;
/// With a machine whose CPUs share a cache at times only.
const PATIENCE: Duration = Duration::from_secs(60);
/// A native run, and one under the tool, where the user says nothing.
const LONGEST: Duration = Duration::from_secs(600);
const LONGEST_UNDER_TOOL: Duration = Duration::from_secs(7_200);

/// A program at so many threads on this machine.
struct Subject<'a> {
    command: &'a [OsString],
    program: Program,
    threads: u32,
    machine: Machine,
    machine_description: String,
    /// Why the tool cannot run it.
    narrow: Option<String>,
    /// Of each run.
    limit: Option<Duration>,
    interrupted: Arc<AtomicBool>,
}

pub fn main(store: &mut Store, args: &Args) -> Outcome {
    let subject = subject(args)?;
    let there = store.samples(Some(&subject.program)).map_err(Failure::ours)?;
    let of = |kind: Kind| -> Vec<&Sample> {
        let same = |s: &&Sample| {
            s.kind == kind && s.threads == subject.threads && s.machine == subject.machine_description
        };
        there.iter().filter(same).collect()
    };
    // Rounds that were cut short, or measured before a class took those in private caches, are no knowledge yet.
    let is_known = |kind: Kind| match kind {
        Kind::Slowdown => verdicts::has_slowdowns(&of(kind)),
        _ => !of(kind).is_empty(),
    };
    let wanted =
        |kind: Kind| (args.only.is_empty() || args.only.contains(&kind)) && (args.again || !is_known(kind));
    let mut missing = Vec::new();
    let mut native = of(Kind::Alone).last().and_then(|sample| cost(&sample.value));
    let mut is_endless = false;
    // Distances say nothing of time without a run alone.
    if wanted(Kind::Alone) || (wanted(Kind::Reuse) && native.is_none()) {
        match tool::alone(subject.command, &subject.until(), Some(subject.threads)) {
            Ok(cost) => {
                let value = json!({ "seconds": cost.seconds, "user_seconds": cost.user_seconds });
                subject.add(store, Kind::Alone, value)?;
                native = Some(cost);
            }
            Err(error @ RunError::TooLong { .. }) => {
                is_endless = true;
                missing.push(format!("no time alone: {error}"));
            }
            Err(RunError::Failed { status, .. }) => {
                let why = format!("{}: {status}; nothing was kept", subject.program.name);
                return Err(Failure::new(DOES_NOT_HOLD, why));
            }
            Err(error) => return Err(run_failure(error)),
        }
    }
    if wanted(Kind::Reuse)
        && let Some(why) = subject.reuse(store, native)?
    {
        missing.push(why);
    }
    let endless =
        |kind: Kind| is_endless.then(|| format!("no {kind}: the program does not end within the limit"));
    if wanted(Kind::Counters) {
        match endless(Kind::Counters) {
            Some(why) => missing.push(why),
            None => missing.extend(subject.counters(store)?),
        }
    }
    if wanted(Kind::Slowdown) {
        match endless(Kind::Slowdown) {
            Some(why) => missing.push(why),
            None => missing.extend(subject.slowdowns(store)?),
        }
    }
    known::show(store, &subject.program.name, false)?;
    for why in &missing {
        eprintln!("coplace: {why}");
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn subject(args: &Args) -> Result<Subject<'_>, Failure> {
    let command = &args.program;
    let name: Vec<String> = command.iter().map(|message| message.to_string_lossy().into_owned()).collect();
    let narrow = match tool::check(&command[0]) {
        Ok(_) => None,
        // All but the tool can run it.
        Err(error @ RunError::Narrow { .. }) => Some(error.to_string()),
        Err(error) => return Err(run_failure(error)),
    };
    let key = node::remember::key_of(&tool::exists(&command[0]).map_err(run_failure)?, command);
    let machine = Machine::discover().machine;
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    Ok(Subject {
        command,
        program: super::program(key, name.join(" ")),
        threads: args.threads.unwrap_or((cpus / 2).max(1)),
        machine_description: known::machine_description(&machine),
        machine,
        narrow,
        limit: args.limit.map(Duration::from_nanos),
        interrupted: interrupts()?,
    })
}

impl Subject<'_> {
    fn add(&self, store: &mut Store, kind: Kind, value: Value) -> Result<(), Failure> {
        let sample = Sample {
            program: self.program.clone(),
            threads: self.threads,
            machine: self.machine_description.clone(),
            kind,
            at_ns: super::now_ns(),
            value,
        };
        store.add(&sample).map_err(Failure::ours)
    }

    /// Of a native run.
    fn until(&self) -> Until {
        Until { limit: Some(self.limit.unwrap_or(LONGEST)), stopped: Some(Arc::clone(&self.interrupted)) }
    }

    /// Why there are no distances, or not all.
    fn reuse(&self, store: &mut Store, native: Option<Cost>) -> Result<Option<String>, Failure> {
        if let Some(why) = &self.narrow {
            return Ok(Some(format!("no reuse distances: {why}")));
        }
        let tool = match Tool::find() {
            Ok(tool) => tool.stopping(Arc::clone(&self.interrupted)),
            Err(why) => return Ok(Some(format!("no reuse distances: {why}"))),
        };
        let limit = self.limit.unwrap_or(LONGEST_UNDER_TOOL);
        let options = Options {
            sample: Some(Rate::Fixed(SAMPLE)),
            omp_threads: Some(self.threads),
            quiet: true,
            limit: Some(limit),
            ..Options::default()
        };
        let run = match tool.run(self.command, &options) {
            Ok(run) => run,
            Err(error @ RunError::NoReport { .. }) => {
                return Ok(Some(format!("no reuse distances: {error}")));
            }
            Err(error) => return Err(run_failure(error)),
        };
        let ended = run.reports[0].ended;
        let cut_off = ended == Ended::TimeLimit;
        let well = run.status.success() && ended == Ended::Exit(0);
        if !well && !cut_off {
            return Ok(Some(format!(
                "no reuse distances: under the tool {} {ended} ({}); nothing of that run was kept",
                self.program.name, run.status
            )));
        }
        self.add(store, Kind::Reuse, Summary::new(&run, native, &self.machine).json())?;
        Ok(cut_off.then(|| {
            let limit_s = limit.as_secs_f64();
            format!("reuse distances of the first {limit_s} s only: it {ended}, and suggests no class")
        }))
    }

    /// Why there are none.
    fn counters(&self, store: &mut Store) -> Result<Option<String>, Failure> {
        match self.count() {
            Ok(value) => self.add(store, Kind::Counters, value).map(|()| None),
            Err(CountError::Run(error @ (RunError::Failed { .. } | RunError::TooLong { .. }))) => {
                Ok(Some(format!("no counters: {error}; nothing of that run was kept")))
            }
            Err(CountError::Run(error)) => Err(run_failure(error)),
            Err(why) => Ok(Some(format!("no counters: {why}"))),
        }
    }

    fn count(&self) -> Result<Value, CountError> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let definitions = Definitions::of(&Processor::parse(&cpuinfo));
        let counted = definitions.count(self.command, &self.until(), Some(self.threads))?;
        let metrics: serde_json::Map<String, Value> = definitions
            .metrics(&counted)
            .into_iter()
            .map(|(name, (value, unit))| (name, json!({ "value": value, "unit": unit })))
            .collect();
        let flows = definitions.flows(&counted);
        Ok(json!({ "counted": counted, "metrics": metrics, "flows_bytes_per_s": flows }))
    }

    /// Why there are none.
    fn slowdowns(&self, store: &mut Store) -> Result<Option<String>, Failure> {
        let Some((footprints, llc)) = class_footprints(&self.machine).zip(llc_bytes(&self.machine)) else {
            let why = "no slowdowns: this machine does not report the size of its last-level cache";
            return Ok(Some(why.into()));
        };
        let allowed = rustix::thread::sched_getaffinity(None).map_err(Failure::ours)?;
        let may = |cpu: &u32| allowed.is_set(*cpu as usize);
        // Behind one cache: program and probe would not meet otherwise.
        let cache = self
            .machine
            .all_cpus()
            .iter()
            .find(may)
            .and_then(|first| self.machine.last_level_cache_of(first))
            .map_or_else(|| self.machine.all_cpus().clone(), |cache| cache.cpus.clone());
        let cpus: Vec<u32> = cache.iter().filter(may).collect();
        if cpus.len() <= self.threads as usize {
            let threads = self.threads;
            let why = format!(
                "no slowdowns: {threads} threads leave the probe no CPU behind the same last-level cache: \
                 use fewer --threads"
            );
            return Ok(Some(why));
        }
        let (own, probe) = cpus.split_at(self.threads as usize);
        let plan = Plan {
            name: self.program.name.clone(),
            command: self.command.to_vec(),
            threads: self.threads,
            cpus: own.to_vec(),
            probe_cpus: probe.to_vec(),
            order: Order::Stream,
            longest: self.limit.unwrap_or(LONGEST),
        };
        let progress = |message| eprintln!("coplace: slowdowns, {message}");
        let number = super::now_ns();
        let series =
            slowdown::Series { footprints: footprints.to_vec(), rounds: ROUNDS, seed: 1, patience: PATIENCE };
        let ended = slowdown::measure(
            std::slice::from_ref(&plan),
            &series,
            progress,
            &self.interrupted,
            |_, round| {
                let value = json!({ "round": round, "llc_bytes": llc, "probe_threads": plan.probe_cpus.len(),
                                "series": number });
                self.add(store, Kind::Slowdown, value)
            },
        )?;
        match ended {
            slowdown::Ended::Whole => Ok(None),
            slowdown::Ended::Stopped => Err(run_failure(RunError::Interrupted)),
        }
    }
}

fn cost(value: &Value) -> Option<Cost> {
    Some(Cost { seconds: value["seconds"].as_f64()?, user_seconds: value["user_seconds"].as_f64()? })
}

fn run_failure(error: RunError) -> Failure {
    match error {
        RunError::NotFound { .. } | RunError::Narrow { .. } | RunError::Foreign { .. } => {
            Failure::bad_input(error)
        }
        RunError::Interrupted => Failure::new(INTERRUPTED, "interrupted; what was measured is kept"),
        other => Failure::ours(other),
    }
}
