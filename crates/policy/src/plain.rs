//! Plain data: what a script remembers from one decision to the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::CpuSet;

/// One value. No number is "not a number" or infinite, so that equality holds of all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plain {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Whole(i64),
    /// A finite number that is no integer.
    Number(f64),
    /// A string.
    Text(String),
    /// A set of CPUs.
    Cpus(CpuSet),
    /// A table whose keys are 1, 2, 3 …
    List(Vec<Plain>),
    /// A table whose keys are strings.
    Table(BTreeMap<String, Plain>),
}

impl Eq for Plain {}

impl Default for Plain {
    fn default() -> Plain {
        Plain::Table(BTreeMap::new())
    }
}

impl Plain {
    /// Whether it is a table without fields: nothing was remembered.
    pub fn is_empty(&self) -> bool {
        matches!(self, Plain::Table(fields) if fields.is_empty())
    }
}
