//! The file of `coplace mix`: which programs, when, where and with what demand.
//!
//! ```toml
//! [mix]
//! policy = "TA"                       # default for the whole mix
//!
//! [[program]]
//! name = "cg"                         # default: the command's file name
//! command = ["./cg", "--size", "M"]   # or one string, split as a shell would, without expansions
//! arrive_s = 0.0                      # seconds after the mix begins
//! repeat = 1                          # how many instances
//! repeat_every_s = 0.0                # seconds between their arrivals
//! directory = "."                     # relative to this file
//! stdin = "in.txt"                    # files, relative to `directory`
//! stdout = "cg.out"
//! stderr = "cg.err"
//! alone_s = 4.1                       # run time alone, for the slowdown
//! mem = "2G"                          # memory that it needs at most; it waits until that is there
//! threads = 2                         # a narrow start, by its own variables, for good
//! may_start_narrow = false            # its results are good with any number of threads: a policy may start it with fewer
//! waiting = "auto"                    # auto, passive, active, as-is: how its threads wait for one another
//!
//! [program.environment]
//! OMP_WAIT_POLICY = "passive"
//!
//! [program.demand]
//! malleability = "rigid"              # rigid, moldable, malleable, evolving
//! min_threads = 1
//! max_threads = 2
//! weight_milli = 1000                 # 2000 = twice the share of another
//! coschedule = true
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::reader::{MixError, Reader, Table};
use crate::{AppId, Demand, Malleability, WaitPolicy};

/// A workload as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Policy that the file asks for, as written; whether it exists is for the caller to say.
    pub policy: Option<String>,
    /// In the file's order.
    pub programs: Vec<Program>,
}

/// One `[[program]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Unique in the mix: where names repeat in the file, later ones got `.2`, `.3` …
    pub name: AppId,
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// When its first instance comes, in nanoseconds from the mix's beginning.
    pub arrive_ns: u64,
    /// Instances, at least 1.
    pub repeat: u32,
    /// Time between the arrivals of two instances, in nanoseconds.
    pub repeat_every_ns: u64,
    /// Relative ones are joined to the file's directory.
    pub directory: PathBuf,
    /// Joined to `directory`.
    pub stdin: Option<PathBuf>,
    /// Where its standard output goes; joined to `directory`.
    pub stdout: Option<PathBuf>,
    /// Where its standard error goes; joined to `directory`.
    pub stderr: Option<PathBuf>,
    /// Variables that it gets besides those of the caller.
    pub environment: BTreeMap<String, String>,
    /// Run time alone.
    pub alone_ns: Option<u64>,
    /// Memory that it needs at most.
    pub memory_bytes: Option<u64>,
    /// Threads that its own variables tell it to have from its start.
    pub threads: Option<u32>,
    /// Its results are good with any number of threads: a policy may start it with fewer.
    pub may_start_narrow: bool,
    /// How its runtimes are told to wait.
    pub waiting: WaitPolicy,
    /// What it asks for.
    pub demand: Demand,
}

/// One program to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub id: AppId,
    /// When it comes, in nanoseconds from the mix's beginning.
    pub arrive_ns: u64,
    /// Index into [`Mix::programs`].
    pub program: usize,
}

impl Mix {
    /// Reads the file `path` and parses it.
    pub fn load(path: &Path) -> Result<Mix, MixError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| MixError::whole(path, &error.to_string()))?;
        Mix::parse(&text, path)
    }

    /// `path` is named in errors, and its directory is where relative paths begin; it is not read.
    pub fn parse(text: &str, path: &Path) -> Result<Mix, MixError> {
        let reader = Reader::new(text, path);
        let document = reader.document()?;
        let document = reader.root(&document, &["mix", "program"])?;
        let policy = match document.table("mix", &["policy"])? {
            Some(mix) => mix.string("policy")?.map(|policy| policy.value),
            None => None,
        };
        let mut names = Names::default();
        let mut programs = Vec::new();
        for table in document.tables("program", PROGRAM_KEYS)? {
            programs.push(program(&table, path, &mut names)?);
        }
        if programs.is_empty() {
            return Err(MixError::whole(path, "there is no program: add a [[program]] with a command"));
        }
        Ok(Mix { policy, programs })
    }

    /// Every instance of every program by arrival; those that arrive together in the file's order.
    pub fn instances(&self) -> Vec<Instance> {
        let mut names = Names::default();
        self.programs.iter().for_each(|program| names.reserve(&program.name));
        let mut instances = Vec::new();
        for (index, program) in self.programs.iter().enumerate() {
            for repeat in 0..program.repeat {
                let id = if repeat == 0 { program.name.clone() } else { names.fresh(&program.name) };
                let later = program.repeat_every_ns.saturating_mul(repeat.into());
                instances.push(Instance {
                    id,
                    arrive_ns: program.arrive_ns.saturating_add(later),
                    program: index,
                });
            }
        }
        instances.sort_by_key(|instance| instance.arrive_ns);
        instances
    }
}

const PROGRAM_KEYS: &[&str] = &[
    "name",
    "command",
    "arrive_s",
    "repeat",
    "repeat_every_s",
    "directory",
    "stdin",
    "stdout",
    "stderr",
    "alone_s",
    "mem",
    "threads",
    "may_start_narrow",
    "waiting",
    "environment",
    "demand",
];

/// More instances than any machine has been given; far below what would exhaust memory.
pub(crate) const MAX_REPEAT: u64 = 100_000;

fn program(table: &Table<'_>, path: &Path, names: &mut Names) -> Result<Program, MixError> {
    let command = table.command("command")?;
    let name = match table.string("name")? {
        Some(name) => {
            AppId::new(&name.value).map_err(|error| table.error_at(name.at, "name", &error.to_string()))?
        }
        None => default_name(&command[0]),
    };
    let name = names.fresh(&name);
    let repeat = table.whole("repeat", 1..=MAX_REPEAT)?.map_or(1, |repeat| repeat.value as u32);
    let base = path.parent().unwrap_or(Path::new(""));
    let directory = match table.path("directory")? {
        Some(directory) => base.join(directory),
        None => base.to_owned(),
    };
    // "" would be no directory at all to those who change into it.
    let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
    let file = |key| Ok::<_, MixError>(table.path(key)?.map(|file| directory.join(file)));
    let (stdin, stdout, stderr) = (file("stdin")?, file("stdout")?, file("stderr")?);
    let alone_ns = match table.seconds("alone_s")? {
        Some(alone) if alone.value == 0 => {
            return Err(table.error_at(
                alone.at,
                "alone_s",
                "must be above 0; leave it out if it is not known",
            ));
        }
        alone => alone.map(|alone| alone.value),
    };
    let memory_bytes = match table.string("mem")? {
        Some(mem) => {
            Some(crate::parse_bytes(&mem.value).map_err(|what| table.error_at(mem.at, "mem", &what))?)
        }
        None => None,
    };
    let threads = table.whole("threads", 1..=u64::from(topology::MAX_CPUS))?.map(|at| at.value as u32);
    let waiting = match table.string("waiting")? {
        Some(word) => word.value.parse().map_err(|what: String| table.error_at(word.at, "waiting", &what))?,
        None => WaitPolicy::default(),
    };
    let mut demand = demand(table)?;
    if let Some(threads) = threads {
        demand.max_threads = Some(demand.max_threads.map_or(threads, |most| most.min(threads)));
        demand.min_threads = demand.min_threads.min(threads);
    }
    Ok(Program {
        name,
        command,
        arrive_ns: table.seconds("arrive_s")?.map_or(0, |time| time.value),
        repeat,
        repeat_every_ns: table.seconds("repeat_every_s")?.map_or(0, |time| time.value),
        stdin,
        stdout,
        stderr,
        directory,
        environment: table.environment("environment")?,
        alone_ns,
        memory_bytes,
        threads,
        may_start_narrow: table.boolean("may_start_narrow")?.unwrap_or(false),
        waiting,
        demand,
    })
}

const DEMAND_KEYS: &[&str] = &["malleability", "min_threads", "max_threads", "weight_milli", "coschedule"];

pub(crate) fn demand(table: &Table<'_>) -> Result<Demand, MixError> {
    let mut demand = Demand::default();
    let Some(table) = table.table("demand", DEMAND_KEYS)? else { return Ok(demand) };
    if let Some(word) = table.string("malleability")? {
        demand.malleability = match word.value.as_str() {
            "rigid" => Malleability::Rigid,
            "moldable" => Malleability::Moldable,
            "malleable" => Malleability::Malleable,
            "evolving" => Malleability::Evolving,
            other => {
                let what = format!("'{other}' is none of rigid, moldable, malleable, evolving");
                return Err(table.error_at(word.at, "malleability", &what));
            }
        };
    }
    let threads = 1..=u64::from(topology::MAX_CPUS);
    let min = table.whole("min_threads", threads.clone())?;
    let max = table.whole("max_threads", threads)?;
    if let Some(min) = &min {
        demand.min_threads = min.value as u32;
    }
    demand.max_threads = max.map(|max| max.value as u32);
    if let (Some(min), Some(max)) = (min, demand.max_threads)
        && demand.min_threads > max
    {
        let what = format!("{} is more than max_threads = {max}; lower it or raise that", demand.min_threads);
        return Err(table.error_at(min.at, "min_threads", &what));
    }
    if let Some(weight) = table.whole("weight_milli", 1..=1_000_000)? {
        demand.weight_milli = weight.value as u32;
    }
    if let Some(coschedule) = table.boolean("coschedule")? {
        demand.coschedule = coschedule;
    }
    Ok(demand)
}

/// The command's file name, with what a name cannot hold replaced by `_`.
pub(crate) fn default_name(command: &str) -> AppId {
    let base = command.trim_end_matches('/').rsplit('/').next().unwrap_or(command);
    let mut name: String = base
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    name.truncate(AppId::MAX_LENGTH);
    AppId::new(&name).unwrap_or_else(|_| unreachable!("every character of '{name}' was checked"))
}

/// Gives out names that do not repeat.
#[derive(Default)]
pub(crate) struct Names {
    used: BTreeSet<AppId>,
    next: BTreeMap<AppId, u32>,
}

impl Names {
    fn reserve(&mut self, name: &AppId) {
        self.used.insert(name.clone());
    }

    /// `name` itself, or the first free one of `name.2`, `name.3` …
    pub(crate) fn fresh(&mut self, name: &AppId) -> AppId {
        if self.used.insert(name.clone()) {
            return name.clone();
        }
        let next = self.next.entry(name.clone()).or_insert(2);
        loop {
            let candidate = name.numbered(*next);
            *next += 1;
            if self.used.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
}
