//! Measuring what is missing.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use ::reuse::Rate;
use evidence::{Kind, Program, Sample, Store};
use probe::counters::{CountError, Definitions, Processor};
use probe::distgen::Order;
use probe::slowdown::Plan;
use probe::tool::{self, Cost, Options, RunError, Tool};
use serde_json::{Value, json};
use topology::Machine;

use super::{Args, known};
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::lab::{Summary, slowdown};

/// Share of the lines that are looked at.
const SAMPLE: f64 = 0.01;
/// Of slowdowns; each has three footprints of the probe.
const ROUNDS: u32 = 5;
const LONGEST: Duration = Duration::from_secs(600);

/// A program at so many threads on this machine.
struct Subject<'a> {
    words: &'a [OsString],
    program: Program,
    threads: u32,
    machine: Machine,
    machine_words: String,
}

pub fn main(store: &mut Store, args: &Args) -> Outcome {
    let subject = subject(args)?;
    let there = store.samples(Some(&subject.program)).map_err(Failure::ours)?;
    let of = |kind: Kind| -> Vec<&Sample> {
        let same = |s: &&Sample| {
            s.kind == kind && s.threads == subject.threads && s.machine == subject.machine_words
        };
        there.iter().filter(same).collect()
    };
    let wanted = |kind: Kind| {
        (args.only.is_empty() || args.only.contains(&kind)) && (args.again || of(kind).is_empty())
    };
    let mut missing = Vec::new();
    let mut native = of(Kind::Alone).last().and_then(|sample| cost(&sample.value));
    // Distances say nothing of time without a run alone.
    if wanted(Kind::Alone) || (wanted(Kind::Reuse) && native.is_none()) {
        let (status, cost) = tool::native(subject.words, None, Some(subject.threads)).map_err(failed)?;
        if !status.success() {
            let why = format!("{}: {status}; nothing was kept", subject.program.name);
            return Err(Failure::new(DOES_NOT_HOLD, why));
        }
        let value = json!({ "seconds": cost.seconds, "user_seconds": cost.user_seconds });
        subject.add(store, Kind::Alone, value)?;
        native = Some(cost);
    }
    if wanted(Kind::Reuse) {
        match Tool::find() {
            Ok(tool) => {
                let run = tool.run(subject.words, &subject.options()).map_err(failed)?;
                let value = Summary::new(&run, native, &subject.machine).json();
                subject.add(store, Kind::Reuse, value)?;
            }
            Err(why) => missing.push(format!("no reuse distances: {why}")),
        }
    }
    if wanted(Kind::Counters) {
        match subject.count() {
            Ok(value) => subject.add(store, Kind::Counters, value)?,
            Err(CountError::Run(error)) => return Err(failed(error)),
            Err(why) => missing.push(format!("no counters: {why}")),
        }
    }
    if wanted(Kind::Slowdown) {
        match subject.slowdowns(store)? {
            Slowdowns::Whole => {}
            Slowdowns::Stopped => {
                eprintln!("coplace: interrupted; what was measured is kept");
                return Ok(ExitCode::from(130));
            }
            Slowdowns::Absent(why) => missing.push(format!("no slowdowns: {why}")),
        }
    }
    known::show(store, &subject.program.name, false)?;
    for why in &missing {
        eprintln!("coplace: {why}");
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn subject(args: &Args) -> Result<Subject<'_>, Failure> {
    let words = &args.program;
    let name: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let key = node::remember::key_of(&tool::check(&words[0]).map_err(failed)?, words);
    let machine = Machine::discover().machine;
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    Ok(Subject {
        words,
        program: super::program(key, name.join(" ")),
        threads: args.threads.unwrap_or((cpus / 2).max(1)),
        machine_words: known::machine_words(&machine),
        machine,
    })
}

enum Slowdowns {
    Whole,
    Stopped,
    Absent(String),
}

impl Subject<'_> {
    fn add(&self, store: &mut Store, kind: Kind, value: Value) -> Result<(), Failure> {
        let sample = Sample {
            program: self.program.clone(),
            threads: self.threads,
            machine: self.machine_words.clone(),
            kind,
            at_ns: super::now_ns(),
            value,
        };
        store.add(&sample).map_err(Failure::ours)
    }

    fn options(&self) -> Options {
        Options {
            sample: Some(Rate::Fixed(SAMPLE)),
            omp_threads: Some(self.threads),
            quiet: true,
            ..Options::default()
        }
    }

    fn count(&self) -> Result<Value, CountError> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let definitions = Definitions::of(&Processor::parse(&cpuinfo));
        let counted = definitions.count(self.words, Some(self.threads))?;
        let metrics: serde_json::Map<String, Value> = definitions
            .metrics(&counted)
            .into_iter()
            .map(|(name, (value, unit))| (name, json!({ "value": value, "unit": unit })))
            .collect();
        let flows = definitions.flows(&counted);
        Ok(json!({ "counted": counted, "metrics": metrics, "flows_bytes_per_s": flows }))
    }

    fn slowdowns(&self, store: &mut Store) -> Result<Slowdowns, Failure> {
        let Some(llc) = slowdown::llc_bytes(&self.machine) else {
            return Ok(Slowdowns::Absent(
                "this machine does not tell the size of its last-level cache".into(),
            ));
        };
        let allowed = rustix::thread::sched_getaffinity(None).map_err(Failure::ours)?;
        let cpus: Vec<u32> =
            self.machine.all_cpus().iter().filter(|&cpu| allowed.is_set(cpu as usize)).collect();
        if cpus.len() <= self.threads as usize {
            let why = format!("{} threads leave no CPU to the probe: take fewer --threads", self.threads);
            return Ok(Slowdowns::Absent(why));
        }
        let (own, probe) = cpus.split_at(self.threads as usize);
        let plan = Plan {
            name: self.program.name.clone(),
            command: self.words.to_vec(),
            threads: self.threads,
            cpus: own.to_vec(),
            probe_cpus: probe.to_vec(),
            order: Order::Stream,
            longest: LONGEST,
        };
        let told = |number| eprintln!("coplace: slowdowns, round {number} of {ROUNDS}");
        let ended = slowdown::measure(&plan, &[llc / 2, llc, 2 * llc], ROUNDS, 1, told, |round| {
            let value = json!({ "round": round, "llc_bytes": llc, "probe_threads": plan.probe_cpus.len() });
            self.add(store, Kind::Slowdown, value)
        })?;
        Ok(match ended {
            slowdown::Ended::Whole => Slowdowns::Whole,
            slowdown::Ended::Stopped => Slowdowns::Stopped,
        })
    }
}

fn cost(value: &Value) -> Option<Cost> {
    Some(Cost { seconds: value["seconds"].as_f64()?, user_seconds: value["user_seconds"].as_f64()? })
}

fn failed(error: RunError) -> Failure {
    match error {
        RunError::NotFound { .. } | RunError::Narrow { .. } | RunError::Foreign { .. } => {
            Failure::bad_input(error)
        }
        other => Failure::ours(other),
    }
}
