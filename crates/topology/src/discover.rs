//! From wherever a machine is described to the machine.

use std::path::{Path, PathBuf};

use crate::machine::{Level, Machine};
use crate::{CpuSet, SyntheticError, hwloc};

/// A machine, and what should be known about how it was found: one sentence a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// What was found.
    pub machine: Machine,
    /// What was missing, contradicted something else or was left out; empty for a synthetic description.
    pub notes: Vec<String>,
}

/// Why nothing describes a machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Below a root directory neither sysfs nor `/proc/cpuinfo` names a CPU.
    #[error("{}: no CPUs are described there; it should be laid out as /sys is", path.display())]
    NoCpus {
        /// Its `sys/devices/system/cpu`, which may not exist.
        path: PathBuf,
    },
    /// A file that should describe a machine cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file, as it was given.
        path: PathBuf,
        /// What the kernel answered.
        source: std::io::Error,
    },
    /// A text is not what hwloc writes about a machine.
    #[error("{}: not an hwloc XML file: {why}; write one with: lstopo file.xml", file_name(path.as_deref()))]
    NotHwloc {
        /// The file that it comes from; `None` where it comes from no file.
        path: Option<PathBuf>,
        /// What is wrong with it, as a clause.
        why: String,
    },
    /// A synthetic description is wrong.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// What was written: not `this`, no path that exists, and not in the form of a description.
    #[error(
        "'{0}' is no file, and no machine description: write 'this', a file from lstopo, a directory \
         with a copy of /sys, or for example 'pack:2 core:4 pu:2'"
    )]
    Unknown(String),
}

/// Where the kernel lets this thread run; `None` where it has more CPUs than fit into the answer.
fn own_mask() -> Option<CpuSet> {
    let mask = rustix::thread::sched_getaffinity(None).ok()?;
    let cpus: CpuSet =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).map(|cpu| cpu as u32).collect();
    Some(cpus).filter(|cpus| !cpus.is_empty())
}

fn file_name(path: Option<&Path>) -> String {
    path.map_or_else(|| "the text".to_owned(), |path| path.display().to_string())
}

impl Machine {
    /// The machine that this runs on: from sysfs, and where that leaves something open (as in virtual
    /// machines and on unusual processors) with what hwloc knows beyond it, where hwloc is installed.
    /// Where even sysfs is missing, a flat machine with as many CPUs as can be used.
    pub fn discover() -> Discovery {
        let mut discovery =
            Machine::from_sysfs_with(Path::new("/"), own_mask().as_ref()).unwrap_or_else(|error| {
                let count = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
                let (mut machine, _) = Machine::from_groups(Level::Node, &CpuSet::first(count), []);
                machine.name = "this".into();
                machine.source = "count of CPUs".into();
                Discovery { machine, notes: vec![format!("{error}; {count} CPUs are taken to be alike")] }
            });
        // hwloc takes longer for its look than all else that coplace does at its start.
        if discovery.machine.is_whole() {
            return discovery;
        }
        match hwloc::live_xml() {
            Ok(xml) => match Machine::from_hwloc_xml(&xml) {
                Ok(refinement) => {
                    discovery.machine.refine(&refinement.machine);
                    discovery.machine.source += " and hwloc";
                    discovery.notes.extend(refinement.notes);
                }
                Err(error) => discovery.notes.push(format!("hwloc is not used: {error}")),
            },
            Err(why) => discovery.notes.push(format!("hwloc is not used: {why}")),
        }
        discovery
    }

    /// What people write to name a machine: `this`, an hwloc XML file, a directory with a copy of
    /// sysfs, or a synthetic description.
    pub fn load(spec: &str) -> Result<Discovery, MachineError> {
        if spec == "this" {
            return Ok(Machine::discover());
        }
        let path = Path::new(spec);
        if path.is_dir() {
            return Machine::from_sysfs(path);
        }
        if path.exists() {
            let unreadable = |source| MachineError::Unreadable { path: path.to_owned(), source };
            let bytes = std::fs::read(path).map_err(unreadable)?;
            let named = |why| MachineError::NotHwloc { path: Some(path.to_owned()), why };
            let text = String::from_utf8(bytes).map_err(|_| named("it is not text".into()))?;
            let mut discovery = Machine::from_hwloc_xml(&text).map_err(|error| match error {
                MachineError::NotHwloc { why, .. } => named(why),
                other => other,
            })?;
            if discovery.machine.name.is_empty() {
                let stem = path.file_stem().unwrap_or_default();
                discovery.machine.name = stem.to_string_lossy().into_owned();
            }
            return Ok(discovery);
        }
        // A path that does not exist must not be answered with a lecture on descriptions.
        if !spec.contains(':') || spec.contains('/') {
            return Err(MachineError::Unknown(spec.to_owned()));
        }
        Ok(Discovery { machine: Machine::synthetic(spec)?, notes: Vec::new() })
    }
}
