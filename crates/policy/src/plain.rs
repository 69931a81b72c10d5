//! Plain data: what a script remembers from one decision to the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::CpuSet;

/// One value. No number is "not a number" or infinite, so that equality holds of all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plain {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
    Cpus(CpuSet),
    List(Vec<Plain>),
    Table(BTreeMap<String, Plain>),
}

impl Eq for Plain {}

impl Default for Plain {
    fn default() -> Plain {
        Plain::Table(BTreeMap::new())
    }
}

impl Plain {
    pub fn is_empty(&self) -> bool {
        matches!(self, Plain::Table(fields) if fields.is_empty())
    }
}
