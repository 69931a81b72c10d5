//! What was learned about a program beyond its speed-up curve: the page of the notebook that the
//! snapshot carries. The simulator and the live node fill the same fields; whatever is not known is
//! left out, and nobody guesses here.

use serde::{Deserialize, Serialize};

/// Where a piece of evidence comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Seen in this run of the program.
    Measured,
    /// Remembered from earlier runs of the same program.
    Remembered,
}

/// One value with how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// In the unit that the field says.
    pub value: u64,
    /// How far off it may be, in thousandths of the value.
    pub error_milli: u32,
    /// Whether this run showed it, or earlier ones.
    pub source: Source,
}

impl Known {
    /// What earlier runs showed; `error_milli` in thousandths of `value`.
    pub fn remembered(value: u64, error_milli: u32) -> Known {
        Known { value, error_milli, source: Source::Remembered }
    }

    /// What this run showed; `error_milli` in thousandths of `value`.
    pub fn measured(value: u64, error_milli: u32) -> Known {
        Known { value, error_milli, source: Source::Measured }
    }
}

/// What is known of one live program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// What is left of its work, as time on one CPU alone, in nanoseconds: what earlier runs took in
    /// all, less what this run has done. Of a program that never ran to its end it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<Known>,
    /// Share of a NUMA node's memory bandwidth that it asks for when it has the whole node, in
    /// thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_milli: Option<Known>,
    /// How much slower it is when all of a node's last-level cache belongs to others, in thousandths of
    /// its time with the cache to itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_milli: Option<Known>,
    /// Running time that it loses when it goes to another NUMA node and its memory follows, in
    /// nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub move_ns: Option<Known>,
    /// Load instructions that all its threads execute together in a second when it has a whole NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads_per_s: Option<Known>,
}

impl Evidence {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Evidence::default()
    }
}
