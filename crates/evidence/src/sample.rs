//! What is kept.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which program: two runs are of the same one if all but the name agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Hash of the executed file's content.
    pub binary: String,
    /// The first argument that is no option: a script, a tool, an input.
    pub main_argument: String,
    /// Hash of all arguments.
    pub arguments: String,
    /// The command as people know it.
    pub name: String,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A run with the machine to itself: `seconds`, `user_seconds`.
    Alone,
    /// Stack reuse distances, as `coplace lab reuse --json` writes them.
    Reuse,
    /// A round of `coplace lab slowdown`, and what it needs to be read.
    Slowdown,
    /// A run with hardware counters: what they counted, and the metrics made of it.
    Counters,
    /// A short burst of the probe beside the program on a live node, and what it needs to be read.
    Burst,
}

impl Kind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Kind; 5] = [Kind::Alone, Kind::Reuse, Kind::Slowdown, Kind::Counters, Kind::Burst];

    /// The name by which the store, files and commands know it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Alone => "alone",
            Kind::Reuse => "reuse",
            Kind::Slowdown => "slowdown",
            Kind::Counters => "counters",
            Kind::Burst => "burst",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        found
            .ok_or_else(|| format!("'{text}' is no kind of sample (alone, reuse, slowdown, counters, burst)"))
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The program that was measured.
    pub program: Program,
    /// Threads that it ran with.
    pub threads: u32,
    /// The machine in words.
    pub machine: String,
    /// What was measured, which says what `value` holds.
    pub kind: Kind,
    /// When it was taken, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The measurement, as JSON; its fields are those of the kind (`docs/commands/profile.md`).
    pub value: Value,
}
