//! A node with resources, and the tasks that come to it, as a TOML file (`docs/formats/offload-scenario.md`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use topology::CpuSet;

use crate::board::Overlap;
use crate::task::{Governor, Kernel, Kind, Resource, Task};

/// Most cores, resources and tasks of a scenario.
const MOST: usize = 100_000;
/// The longest time that a scenario may name, s.
const LONGEST_S: f64 = 1e9;

/// What is wrong with a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is no TOML, or has a key or value that means nothing; with line and column.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// It says something that cannot be.
    #[error("{0}")]
    Impossible(String),
}

fn impossible<T>(why: String) -> Result<T, ScenarioError> {
    Err(ScenarioError::Impossible(why))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cores: u32,
    #[serde(default)]
    overlap: bool,
    #[serde(default)]
    governor: Governor,
    resource: Vec<ResourceEntry>,
    task: Vec<TaskEntry>,
    #[serde(default)]
    change: Vec<ChangeEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceEntry {
    kind: Kind,
    #[serde(default = "one")]
    count: u32,
    #[serde(default)]
    host_threads: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    program: String,
    #[serde(default = "one")]
    count: u32,
    #[serde(default)]
    arrives_s: f64,
    #[serde(default)]
    every_s: f64,
    kernels: Vec<KernelEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelEntry {
    on: Kind,
    takes_s: f64,
    expected_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeEntry {
    at_s: f64,
    governor: Governor,
}

fn one() -> u32 {
    1
}

/// A task that comes, and how long each of its kernels takes with nobody beside it, in the order of its kernels, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coming {
    /// As the strategy sees it.
    pub task: Task,
    /// In the order of the task's kernels.
    pub duration_ns: Vec<u64>,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Cores of the node.
    pub cores: u32,
    /// Whether kernels share cores.
    pub overlap: Overlap,
    /// At the beginning.
    pub governor: Governor,
    /// In the order in which free ones are offered.
    pub resources: Vec<Resource>,
    /// In order of arrival.
    pub tasks: Vec<Coming>,
    /// When the governor changes, ns, and to what, in order.
    pub changes: Vec<(u64, Governor)>,
}

fn ns(what: &str, seconds: f64) -> Result<u64, ScenarioError> {
    match (0.0..=LONGEST_S).contains(&seconds) {
        true => Ok((seconds * 1e9).round() as u64),
        false => impossible(format!("{what} is {seconds}; it is a time from 0 to {LONGEST_S:.0} s")),
    }
}

impl Scenario {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let file: File = toml::from_str(text)?;
        if file.cores == 0 || file.cores as usize > MOST {
            return impossible(format!("cores is {}; a node has 1 to {MOST}", file.cores));
        }
        let resources = resources(&file)?;
        let kinds: BTreeSet<&Kind> = resources.iter().map(|resource| &resource.kind).collect();
        let mut tasks = Vec::new();
        for entry in &file.task {
            comings(entry, &kinds, &mut tasks)?;
        }
        if tasks.is_empty() {
            return impossible("there is no task: add a [[task]]".to_owned());
        }
        // Those that come together stay in the file's order.
        tasks.sort_by_key(|coming: &Coming| coming.task.arrived_ns);
        let changes = file.change.iter().map(|change| Ok((ns("at_s", change.at_s)?, change.governor)));
        let mut changes: Vec<(u64, Governor)> = changes.collect::<Result<_, ScenarioError>>()?;
        changes.sort_by_key(|(at_ns, _)| *at_ns);
        let overlap = if file.overlap { Overlap::Allowed } else { Overlap::Refused };
        Ok(Scenario { cores: file.cores, overlap, governor: file.governor, resources, tasks, changes })
    }
}

fn resources(file: &File) -> Result<Vec<Resource>, ScenarioError> {
    let mut found: Vec<Resource> = Vec::new();
    let mut counts: BTreeMap<Kind, u32> = BTreeMap::new();
    let all = CpuSet::first(file.cores);
    for entry in &file.resource {
        if found.len() + entry.count as usize > MOST {
            return impossible(format!("there are more than {MOST} resources"));
        }
        let threads = entry.host_threads;
        if !(0.0..=f64::from(file.cores)).contains(&threads) {
            return impossible(format!("host_threads is {threads}; it is from 0 to the number of cores"));
        }
        if threads != 0.0 && !matches!(entry.kind, Kind::Device(_)) {
            return impossible(format!("host_threads belongs to a device, not to {}", entry.kind));
        }
        for _ in 0..entry.count {
            let number = counts.entry(entry.kind.clone()).or_default();
            let at = *number;
            *number += 1;
            let (cores, threads) = match &entry.kind {
                Kind::Core if at >= file.cores => {
                    return impossible(format!(
                        "there are more resources of kind core than the {} cores",
                        file.cores
                    ));
                }
                Kind::Core => (CpuSet::from_cpus(&[at]), 1.0),
                Kind::AllCores => (all.clone(), f64::from(file.cores)),
                // Its host thread has a core, counted from the last one down.
                Kind::Device(_) => (CpuSet::from_cpus(&[file.cores - 1 - at % file.cores]), threads),
            };
            let name = match &entry.kind {
                Kind::AllCores if at == 0 => entry.kind.to_string(),
                kind => format!("{kind}{at}"),
            };
            found.push(Resource { name, kind: entry.kind.clone(), cores, threads });
        }
    }
    if found.is_empty() {
        impossible("there is no resource: add a [[resource]]".to_owned())
    } else {
        Ok(found)
    }
}

fn comings(entry: &TaskEntry, kinds: &BTreeSet<&Kind>, found: &mut Vec<Coming>) -> Result<(), ScenarioError> {
    let program = &entry.program;
    if found.len() + entry.count as usize > MOST {
        return impossible(format!("there are more than {MOST} tasks"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = entry.kernels.iter().find(|kernel| !seen.insert(&kernel.on)) {
        return impossible(format!("{program} has two kernels for {}", twice.on));
    }
    if !entry.kernels.iter().any(|kernel| kinds.contains(&kernel.on)) {
        return impossible(format!("{program} has no kernel for any resource of this node"));
    }
    let mut duration_ns = Vec::new();
    let mut kernels = Vec::new();
    for kernel in &entry.kernels {
        let takes = ns("takes_s", kernel.takes_s)?;
        if takes == 0 {
            return impossible(format!("a kernel of {program} takes no time"));
        }
        duration_ns.push(takes);
        let expected_ns = Some(kernel.expected_s.map_or(Ok(takes), |seconds| ns("expected_s", seconds))?);
        kernels.push(Kernel { on: kernel.on.clone(), expected_ns });
    }
    let (first_ns, every_ns) = (ns("arrives_s", entry.arrives_s)?, ns("every_s", entry.every_s)?);
    let last_s = entry.arrives_s + f64::from(entry.count.saturating_sub(1)) * entry.every_s;
    ns("the arrival of the last task", last_s)?;
    for number in 0..u64::from(entry.count) {
        let arrived_ns = first_ns + number * every_ns;
        let task = Task { program: program.clone(), arrived_ns, kernels: kernels.clone() };
        found.push(Coming { task, duration_ns: duration_ns.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "cores = 2\n[[resource]]\nkind = 'core'\ncount = 2\n[[resource]]\nkind = 'gpu'\n\
                        host_threads = 0.5\n[[task]]\nprogram = 'p'\ncount = 2\nevery_s = 0.5\n\
                        kernels = [{ on = 'gpu', takes_s = 1 }, { on = 'core', takes_s = 2, expected_s = 3 }]\n";

    #[test]
    fn a_scenario_is_read_with_its_defaults() {
        let scenario = Scenario::parse(GOOD).unwrap();
        let names: Vec<&str> = scenario.resources.iter().map(|resource| resource.name.as_str()).collect();
        assert_eq!(names, ["core0", "core1", "gpu0"]);
        assert_eq!((scenario.overlap, scenario.governor), (Overlap::Refused, Governor::High));
        let arrivals: Vec<u64> = scenario.tasks.iter().map(|coming| coming.task.arrived_ns).collect();
        assert_eq!(arrivals, [0, 500_000_000]);
        assert_eq!(scenario.tasks[0].duration_ns, [1_000_000_000, 2_000_000_000]);
        assert_eq!(scenario.tasks[0].task.kernels[1].expected_ns, Some(3_000_000_000));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (from, to, expected) in [
            ("cores = 2", "cores = 0", "cores is 0"),
            ("count = 2\n[[", "count = 3\n[[", "more resources of kind core"),
            ("host_threads = 0.5", "host_threads = 9", "host_threads is 9"),
            ("on = 'gpu'", "on = 'GPU'", "no kind of resource"),
            ("on = 'gpu'", "on = 'core'", "two kernels for core"),
            ("takes_s = 1 ", "takes_s = 0 ", "takes no time"),
            ("takes_s = 1 ", "takes_s = -1 ", "takes_s is -1"),
            ("every_s = 0.5", "every_s = 1e10", "every_s is 10000000000"),
            (
                "count = 2\nevery_s = 0.5",
                "count = 20\nevery_s = 1e8",
                "the arrival of the last task is 1900000000",
            ),
            ("count = 2\nevery", "count = 200000\nevery", "more than 100000 tasks"),
            ("program = 'p'", "programm = 'p'", "programm"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = Scenario::parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let foreign = GOOD.replace("on = 'gpu'", "on = 'fpga'").replace("on = 'core'", "on = 'dsp'");
        assert!(Scenario::parse(&foreign).unwrap_err().to_string().contains("no kernel for any resource"));
    }
}
