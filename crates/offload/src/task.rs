//! Resources, and tasks with a kernel for each kind of resource on which they can run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use topology::CpuSet;

/// A kind of resource: what a kernel is written for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// One core of the node.
    Core,
    /// All its cores together.
    AllCores,
    /// A device, such as `gpu`; kernels for it run on every device of that kind.
    Device(String),
}

/// A text that names no kind of resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no kind of resource: it is core, all-cores, or a device's kind of up to 32 lower-case letters, digits and hyphens"
)]
pub struct NoKind(String);

const CORE: &str = "core";
const ALL_CORES: &str = "all-cores";

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Core => CORE,
            Kind::AllCores => ALL_CORES,
            Kind::Device(kind) => kind,
        })
    }
}

impl FromStr for Kind {
    type Err = NoKind;

    fn from_str(text: &str) -> Result<Kind, NoKind> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        match text {
            CORE => Ok(Kind::Core),
            ALL_CORES => Ok(Kind::AllCores),
            _ if (1..=32).contains(&text.len()) && text.chars().all(is_name) => {
                Ok(Kind::Device(text.to_owned()))
            }
            _ => Err(NoKind(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Kind {
    type Error = NoKind;

    fn try_from(text: String) -> Result<Kind, NoKind> {
        text.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        kind.to_string()
    }
}

/// A resource by its place in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId(pub usize);

/// Something on which one kernel runs at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Unique in a node, such as `core0` or `gpu0`.
    pub name: String,
    /// What kernels for it are written for.
    pub kind: Kind,
    /// Cores of the node that a kernel on it may keep busy; of a device those of its host thread.
    pub cores: CpuSet,
    /// Threads that a kernel on it keeps busy; of a device those of its host, which may be a fraction.
    pub threads: f64,
}

/// A task by its number; numbers are given in order of arrival and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// Code of a task for one kind of resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Where it can run.
    pub on: Kind,
    /// How long its program expects it to take there, with nobody beside it, ns; `None`: it does not say.
    pub expected_ns: Option<u64>,
}

/// A step of a program: a collection of kernels that compute the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What it is called in reports.
    pub program: String,
    /// When it came, ns since the node's beginning.
    pub arrived_ns: u64,
    /// The one that its program ranks highest first; one at most for each kind of resource.
    pub kernels: Vec<Kernel>,
}

impl Task {
    /// The rank (0 is the best) of its kernel for such a resource.
    pub fn rank_on(&self, kind: &Kind) -> Option<usize> {
        self.kernels.iter().position(|kernel| kernel.on == *kind)
    }
}

/// How much of the node may be used; what follows from it is up to the strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Governor {
    /// All that there is.
    #[default]
    High,
    /// Less, for instance to save energy.
    Low,
}

impl Governor {
    /// As it is written in scenarios and seen by strategies.
    pub fn as_str(self) -> &'static str {
        match self {
            Governor::High => "high",
            Governor::Low => "low",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_they_are_read() {
        for text in ["core", "all-cores", "gpu", "opencl-2"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for text in ["", "GPU", "a b", "ä", &"x".repeat(33)] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
