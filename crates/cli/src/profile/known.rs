//! What is in the store, for people and for other stores.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::ExitCode;

use ::reuse::Ended;
use evidence::{Kind, Program, Sample, Store};
use serde_json::json;
use topology::Machine;
use workload::format_bytes;

use super::verdicts::verdicts;
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::table::Table;
use crate::units::format_ns;

/// The machine as samples name it: what times and caches depend on.
pub fn machine_description(machine: &Machine) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let mut text =
        format!("{}, {} CPUs", model.map_or(std::env::consts::ARCH, |(_, model)| model), machine.pu_count());
    let last = machine.caches.iter().map(|cache| cache.level).max();
    for cache in machine.caches.iter().filter(|cache| Some(cache.level) == last).take(1) {
        let size = cache.size_bytes.map_or("?".into(), format_bytes);
        text += &format!(", L{} {size}", cache.level);
    }
    text
}

pub fn list(store: &Store, json: bool) -> Outcome {
    let known = store.known().map_err(Failure::ours)?;
    if json {
        let all: Vec<_> = known
            .iter()
            .map(|k| {
                json!({ "program": k.program, "threads": k.threads, "machine": k.machine, "latest_ns": k.latest_ns,
                        "samples": k.kinds.iter().map(|(kind, n)| (kind.name(), n)).collect::<std::collections::BTreeMap<_, _>>() })
            })
            .collect();
        println!("{:#}", json!(all));
        return Ok(ExitCode::SUCCESS);
    }
    if known.is_empty() {
        println!("Nothing is known of any program yet: coplace profile -- PROGRAM");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["program", ">threads", "machine", "samples", ">latest"]);
    for entry in known {
        let kinds: Vec<String> = entry.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        table.row([
            entry.program.name,
            entry.threads.to_string(),
            entry.machine,
            kinds.join(", "),
            age(entry.latest_ns),
        ]);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// How long ago.
fn age(at_ns: i64) -> String {
    let seconds = (super::now_ns() - at_ns).max(0) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// The programs that a name means: by their whole command, else by the name of their file.
fn named(store: &Store, name: &str) -> Result<Vec<Program>, Failure> {
    let mut programs: Vec<Program> =
        store.known().map_err(Failure::ours)?.into_iter().map(|known| known.program).collect();
    programs.sort();
    programs.dedup();
    let whole: Vec<Program> = programs.iter().filter(|program| program.name == name).cloned().collect();
    let file = |program: &&Program| {
        let command = program.name.split(' ').next().unwrap_or_default();
        Path::new(command).file_name().is_some_and(|file| file == name)
    };
    let found = if whole.is_empty() { programs.iter().filter(file).cloned().collect() } else { whole };
    if found.is_empty() {
        return Err(Failure::new(
            DOES_NOT_HOLD,
            format!("nothing is known of {name}; see `coplace profile list`"),
        ));
    }
    Ok(found)
}

pub fn show(store: &Store, name: &str, json: bool) -> Outcome {
    let mut samples = Vec::new();
    for program in named(store, name)? {
        samples.extend(store.samples(Some(&program)).map_err(Failure::ours)?);
    }
    let groups = groups(&samples);
    if json {
        let verdicts: Vec<_> = groups
            .iter()
            .map(|group| {
                json!({ "program": group[0].program, "threads": group[0].threads, "machine": group[0].machine,
                        "verdicts": verdicts(group) })
            })
            .collect();
        println!("{:#}", json!({ "samples": samples, "verdicts": verdicts }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["program", ">threads", "what", "found", ">when"]);
    // Rounds and bursts are many; the verdicts sum them up.
    let few = |sample: &&Sample| !matches!(sample.kind, Kind::Slowdown | Kind::Burst);
    for sample in samples.iter().filter(few) {
        table.row([
            sample.program.name.clone(),
            sample.threads.to_string(),
            sample.kind.to_string(),
            describe_sample(sample),
            age(sample.at_ns),
        ]);
    }
    print!("{table}");
    for group in &groups {
        let Sample { program, threads, machine, .. } = group[0];
        println!("\n{}, {threads} threads, on {machine}", program.name);
        let mut table = Table::new(&["class by", "class", "evidence"]);
        for verdict in verdicts(group) {
            let class = verdict.class.map_or("–".into(), |class| class.to_string());
            table.row([verdict.by.into(), class, verdict.evidence]);
        }
        print!("{table}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Samples by program, threads and machine, in the order of their first.
fn groups(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let mut groups: Vec<Vec<&Sample>> = Vec::new();
    for sample in samples {
        let same = |group: &&mut Vec<&Sample>| {
            let first = group[0];
            (&first.program, first.threads, &first.machine)
                == (&sample.program, sample.threads, &sample.machine)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(sample),
            None => groups.push(vec![sample]),
        }
    }
    groups
}

/// A sample in a few words.
fn describe_sample(sample: &Sample) -> String {
    let value = &sample.value;
    match sample.kind {
        Kind::Alone => {
            let ns = |key: &str| format_ns((value[key].as_f64().unwrap_or(0.0) * 1e9) as u64);
            format!("{}, {} of user time", ns("seconds"), ns("user_seconds"))
        }
        Kind::Counters => {
            let metrics = value["metrics"].as_object().into_iter().flatten();
            let parts = metrics.map(|(name, metric)| {
                let unit = metric["unit"].as_str().filter(|unit| *unit != "1").unwrap_or_default();
                format!("{} {:.3e} {unit}", name.replace('_', " "), metric["value"].as_f64().unwrap_or(0.0))
            });
            parts.map(|text| text.trim_end().to_owned()).collect::<Vec<_>>().join(", ")
        }
        Kind::Slowdown => format!("beside a probe of {}", value["round"]["footprint_bytes"]),
        Kind::Burst => format!("beside a burst of {}", value["burst"]["footprint_bytes"]),
        Kind::Reuse => {
            let parts = value["programs"][0]["parts"].as_array();
            let caches = parts.and_then(|parts| parts.iter().find(|part| part["scope"] == "program"));
            let misses =
                caches.and_then(|part| part["caches"].as_array()).into_iter().flatten().map(|cache| {
                    let percent = cache["miss_ratio"].as_f64().unwrap_or(0.0) * 100.0;
                    format!("L{} misses {percent:.2}%", cache["level"])
                });
            let mut parts = misses.collect::<Vec<_>>();
            if value["programs"][0]["ended"] == json!(Ended::TimeLimit) {
                parts.push("cut off by the time limit".into());
            }
            parts.join(", ")
        }
    }
}

pub fn export(store: &Store) -> Outcome {
    let mut out = std::io::stdout().lock();
    for sample in store.samples(None).map_err(Failure::ours)? {
        let line = serde_json::to_string(&sample).map_err(Failure::ours)?;
        writeln!(out, "{line}").map_err(Failure::ours)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All of a file or, where a line is wrong, nothing.
pub fn import(store: &mut Store, file: &Path) -> Outcome {
    let failed =
        |error: std::io::Error| Failure::bad_input(format!("cannot read {}: {error}", file.display()));
    let mut samples: Vec<Sample> = Vec::new();
    for (index, line) in BufReader::new(File::open(file).map_err(failed)?).lines().enumerate() {
        let line = line.map_err(failed)?;
        let sample = serde_json::from_str(&line).map_err(|error| {
            Failure::bad_input(format!(
                "{}, line {}: {error}; nothing was imported",
                file.display(),
                index + 1
            ))
        })?;
        samples.push(sample);
    }
    let new = store.add_all(&samples).map_err(Failure::ours)?;
    println!("{new} of {} samples are new", samples.len());
    Ok(ExitCode::SUCCESS)
}

pub fn forget(store: &mut Store, name: &str) -> Outcome {
    let programs = named(store, name)?;
    if let [one, .., other] = &programs[..] {
        return Err(Failure::bad_input(format!(
            "'{name}' means several programs, such as '{}' and '{}': give the whole command",
            one.name, other.name
        )));
    }
    for program in &programs {
        store.forget(program).map_err(Failure::ours)?;
        println!("forgot {}", program.name);
    }
    Ok(ExitCode::SUCCESS)
}
