//! How a program's threads are to wait for one another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What its runtimes are told at its start, where its own environment does not say it already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitPolicy {
    /// To sleep where nothing else helps against their spinning; else nothing.
    #[default]
    Auto,
    /// To sleep.
    Passive,
    /// To spin.
    Active,
    /// Nothing.
    AsIs,
}

impl WaitPolicy {
    /// Their names in files and options, in the order of the variants.
    pub const NAMES: [&'static str; 4] = ["auto", "passive", "active", "as-is"];

    const ALL: [WaitPolicy; 4] =
        [WaitPolicy::Auto, WaitPolicy::Passive, WaitPolicy::Active, WaitPolicy::AsIs];
}

impl fmt::Display for WaitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(WaitPolicy::NAMES[*self as usize])
    }
}

impl FromStr for WaitPolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let at = WaitPolicy::NAMES.iter().position(|known| *known == name);
        at.map(|at| WaitPolicy::ALL[at])
            .ok_or_else(|| format!("'{name}' is none of {}", WaitPolicy::NAMES.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_it_is_written_and_no_other() {
        for (name, waiting) in WaitPolicy::NAMES.into_iter().zip(WaitPolicy::ALL) {
            assert_eq!((name.parse(), waiting.to_string()), (Ok(waiting), name.to_owned()));
        }
        let wrong = "lazy".parse::<WaitPolicy>().unwrap_err();
        assert!(wrong.contains("'lazy'") && wrong.contains("as-is"), "{wrong}");
    }
}
