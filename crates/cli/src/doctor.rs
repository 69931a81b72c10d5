//! `coplace doctor`: what this machine lets coplace do, what is chosen and why, how to get more.

use std::fmt;
use std::process::ExitCode;

use linux::Root;
use linux::capabilities::{Mechanism, State, Survey, survey};
use linux::cgroup::Version;
use linux::cgroup2::scope;
use node::home::Home;
use node::mechanism::{Mechanisms, Reason};
use probe::latency::Latency;
use serde::Serialize;
use topology::{CpuSet, Machine};
use workload::format_bytes;

use crate::accounts::GROUPS;
use crate::config::Config;
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::machine;

/// Shows what this machine lets coplace do, and how to get more
#[derive(clap::Args)]
#[command(
    long_about = "Shows what this machine lets coplace do, and how to get more.

Shows the machine, every mechanism and whether this user may use it here, which mechanisms are used for \
placement and for turns and why, and how to get the others. It tries everything that can be tried without \
harm, and changes nothing.",
    after_long_help = "Exit status: 0 programs can be placed and can take turns here; 1 they cannot, or \
not as configured.

Example:
  coplace doctor --json | jq '.mechanisms[] | select(.available | not) | {name, remedy}'"
)]
pub struct Args {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    purpose: &'static str,
    available: bool,
    /// Placement or turns, where this is what is used for it.
    chosen_for: Option<&'static str>,
    detail: String,
    remedy: Option<String>,
}

/// A last-level cache that several CPUs share, as the machine tells.
#[derive(Serialize)]
struct SharedCache {
    /// Those that we may use.
    cpus: CpuSet,
    size_bytes: Option<u64>,
    /// Between the first of them and the last. None where it cannot be told.
    latency: Option<Latency>,
    /// Whether these two share it at this moment.
    shared: Option<bool>,
}

#[derive(Serialize)]
struct Diagnosis {
    machine: machine::Summary,
    allowed: Option<CpuSet>,
    caches: Vec<SharedCache>,
    mechanisms: Vec<Row>,
    placement: Option<String>,
    turns: Option<String>,
    /// Why each was taken and better ones were not.
    reasons: Vec<String>,
    preload: Result<String, String>,
    home: Result<String, String>,
    config: Option<String>,
    /// What keeps coplace from working, or from working as configured.
    faults: Vec<String>,
}

pub fn main(args: &Args) -> Outcome {
    let diagnosis = diagnose(&Root::live())?;
    if args.json {
        println!("{:#}", serde_json::to_value(&diagnosis).map_err(Failure::ours)?);
    } else {
        print!("{}", render(&diagnosis));
    }
    Ok(if diagnosis.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn diagnose(root: &Root) -> Result<Diagnosis, Failure> {
    let mut faults = Vec::new();
    let config = Config::load().unwrap_or_else(|error| {
        faults.push(error.to_string());
        Config::default()
    });
    let machine = Machine::discover();
    // As programs are brought there: what can be done shows there only.
    let scope = scope::enter(std::process::id(), root);
    let survey = survey(root);
    let home = Home::find();
    let name = home
        .as_ref()
        .map_or_else(|_| "coplace-doctor".to_owned(), |home| format!("{}-doctor", home.group_name()));
    let chosen = Mechanisms::choose(config.placement.into(), config.turns.into(), &name, root);
    let preload = match &home {
        Ok(home) => {
            node::preload::find(home).map(|path| path.display().to_string()).map_err(|e| e.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let home = home.map(|home| home.path().display().to_string()).map_err(|error| error.to_string());
    faults.extend(home.as_ref().err().cloned());
    let (placement, turns, mut reasons) = match &chosen {
        Ok(chosen) => (
            Some(chosen.describe_placement()),
            Some(chosen.describe_turns()),
            describe_reasons(&chosen.reasons),
        ),
        Err(error) => {
            faults.push(error.to_string());
            (None, None, Vec::new())
        }
    };
    for (mechanism, without) in
        [(Mechanism::Affinity, "programs cannot be placed"), (Mechanism::Stop, "programs cannot take turns")]
    {
        if let Some(State::Absent(absent)) = survey.state(mechanism) {
            faults.push(format!("{without}: {absent}"));
        }
    }
    reasons.extend(scope.err().map(|error| error.to_string()));
    if let Some(group) = Home::group_to_join() {
        let group = GROUPS.name_of(group);
        reasons.push(format!(
            "root's daemon is for members of group {group}, and this user is none: as root: usermod -aG {group} USER; \
             then log in anew"
        ));
    }
    reasons.dedup();
    let mechanisms = rows(&survey, chosen.as_ref().ok());
    let allowed = linux::procfs::own_pid(root)
        .and_then(|pid| linux::procfs::status(pid, root))
        .ok()
        .map(|status| status.cpus_allowed);
    Ok(Diagnosis {
        caches: shared_caches(&machine.machine, allowed.as_ref()),
        machine: machine::summary(&machine),
        allowed,
        mechanisms,
        placement,
        turns,
        reasons,
        preload,
        home,
        config: config.source.map(|path| path.display().to_string()),
        faults,
    })
}

fn shared_caches(machine: &Machine, allowed: Option<&CpuSet>) -> Vec<SharedCache> {
    let may = |cpu: &u32| allowed.is_none_or(|allowed| allowed.contains(*cpu));
    let mut found: Vec<SharedCache> = Vec::new();
    for cpu in machine.all_cpus().iter().filter(may) {
        let Some(cache) = machine.last_level_cache_of(cpu) else { continue };
        let cpus: CpuSet = cache.cpus.iter().filter(may).collect();
        if cpus.lowest() != Some(cpu) || cpus.len() < 2 {
            continue;
        }
        let latency = cpus.iter().last().and_then(|last| Latency::between(&[cpu], &[last]));
        let shared = latency.map(|latency| !latency.is_apart());
        found.push(SharedCache { cpus, size_bytes: cache.size_bytes, latency, shared });
    }
    found
}

impl fmt::Display for SharedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size_bytes.map_or_else(|| "a last-level cache".to_owned(), format_bytes);
        write!(f, "CPUs {}: {size}", self.cpus)?;
        let Some(Latency { core_to_core_ns, memory_ns }) = self.latency else { return Ok(()) };
        write!(f, "; a line takes {core_to_core_ns:.0} ns between them, from memory {memory_ns:.0}")?;
        match self.shared {
            Some(false) => write!(
                f,
                ": they do not share it now, whatever the machine tells (the host of a virtual one moves its CPUs)"
            ),
            _ => Ok(()),
        }
    }
}

fn describe_reasons(reasons: &[Reason]) -> Vec<String> {
    reasons.iter().map(ToString::to_string).collect()
}

fn rows(survey: &Survey, chosen: Option<&Mechanisms>) -> Vec<Row> {
    let serves = |mechanism: Mechanism| {
        let uses = &chosen?.uses;
        let placed = |by| (uses.cpus == by).then_some("placement");
        let stopped = |by| (uses.freezing == by).then_some("strict turns");
        let filled = |by| (uses.idling == by).then_some("filling turns");
        match mechanism {
            Mechanism::CpusetV1 => placed(Some(Version::V1)),
            Mechanism::CpusetV2 => placed(Some(Version::V2)),
            Mechanism::Affinity => placed(None),
            Mechanism::FreezerV1 => stopped(Some(Version::V1)),
            Mechanism::FreezerV2 => stopped(Some(Version::V2)),
            Mechanism::Stop => stopped(None),
            Mechanism::IdleV1 => filled(Some(Version::V1)),
            Mechanism::IdleV2 => filled(Some(Version::V2)),
            _ => None,
        }
    };
    survey
        .entries
        .iter()
        .map(|entry| {
            let (available, detail, remedy) = match &entry.state {
                State::Available { detail } => (true, detail.clone(), None),
                State::Absent(absent) => (false, absent.why.clone(), Some(absent.remedy.clone())),
            };
            Row {
                name: entry.mechanism.to_string(),
                purpose: entry.mechanism.purpose(),
                available,
                chosen_for: serves(entry.mechanism).filter(|_| available),
                detail,
                remedy,
            }
        })
        .collect()
}

fn render(diagnosis: &Diagnosis) -> String {
    let mut out = format!("Machine\n{}", diagnosis.machine);
    if let Some(allowed) = &diagnosis.allowed {
        out += &format!("  allowed     CPUs {allowed}\n");
    }
    for cache in &diagnosis.caches {
        out += &format!("  shared      {cache}\n");
    }
    out += "\nMechanisms\n";
    for row in &diagnosis.mechanisms {
        let mark = match (row.available, row.chosen_for) {
            (true, Some(_)) => "●",
            (true, None) => "○",
            (false, _) => "·",
        };
        let used = row.chosen_for.map_or(String::new(), |what| format!(", used for {what}"));
        out += &format!("  {mark} {:<36} {}{used}\n", row.name, row.purpose);
        out += &format!("      {}{}\n", if row.available { "" } else { "no: " }, row.detail);
        // Two mechanisms of one hierarchy lack the same thing; told once it is found.
        if let Some(remedy) = &row.remedy {
            out += &format!("      to get it: {remedy}\n");
        }
    }
    out += "  ● used  ○ there  · not there\n\nChosen\n";
    out += &format!("  placement   {}\n", diagnosis.placement.as_deref().unwrap_or("none"));
    out += &format!("  turns       {}\n", diagnosis.turns.as_deref().unwrap_or("none"));
    for reason in &diagnosis.reasons {
        out += &format!("  because     {reason}\n");
    }
    let shown = |result: &Result<String, String>| match result {
        Ok(text) => text.clone(),
        Err(why) => format!("none: {why}"),
    };
    out += &format!("  preload     {}\n", shown(&diagnosis.preload));
    out += &format!("  files in    {}\n", shown(&diagnosis.home));
    out += &format!("  configured  {}\n", diagnosis.config.as_deref().unwrap_or("by no file: all defaults"));
    if diagnosis.faults.is_empty() {
        out += "\nPrograms can be placed and take turns here.\n";
    }
    for fault in &diagnosis.faults {
        out += &format!("\nFault: {fault}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_is_shared_in_name_only_is_reported() {
        let shown = |core_to_core_ns| {
            let latency = Latency { core_to_core_ns, memory_ns: 136.0 };
            let shared = Some(!latency.is_apart());
            let cpus = CpuSet::first(2);
            SharedCache { cpus, size_bytes: Some(32 << 20), latency: Some(latency), shared }.to_string()
        };
        assert_eq!(shown(25.6), "CPUs 0-1: 32.0 MiB; a line takes 26 ns between them, from memory 136");
        assert!(shown(180.0).contains("they do not share it now"), "{}", shown(180.0));
    }

    #[test]
    fn caches_with_two_or_more_allowed_cpus_are_listed() {
        let machine = Machine::synthetic("pack:2 l3:1(size=32MB) core:2 pu:1").unwrap();
        let found = |allowed: &str| -> Vec<String> {
            let allowed: CpuSet = allowed.parse().unwrap();
            shared_caches(&machine, Some(&allowed)).iter().map(|cache| cache.cpus.to_string()).collect()
        };
        assert_eq!(found("0-3"), ["0-1", "2-3"]);
        assert_eq!(found("0,2-3"), ["2-3"]);
        assert!(found("1").is_empty());
    }
}
