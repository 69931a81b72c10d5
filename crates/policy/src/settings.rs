//! What a user may set; the configuration file's `[policy]` table.

use plan::{TurnMode, display_ns};
use serde::{Deserialize, Serialize};
use topology::CpuSet;

use crate::Neighbours;

/// Settings of all policies; each reads those it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long a gang runs before the next one's turn, where the still bound allows it. Programs of large working
    /// sets lose up to 15% in turns of 20 ms, and of 60 ms twice what they lose of 100 (experiments/real-programs), the
    /// longest that two may have in `max_still_ns`.
    pub slice_ns: u64,
    /// Shortest slice that the mechanism at hand keeps coordinated.
    pub min_slice_ns: u64,
    /// How long a program may stand still while others have their turn.
    pub max_still_ns: u64,
    /// `strict`: who is not in turn stands still; `filling`: it uses what the gang leaves idle.
    pub turn_mode: TurnMode,
    /// CO, LV: partition widths that may be used, in CPUs; all that the machine has if not given.
    pub allowed_widths: Option<Vec<u32>>,
    /// CO, LV: programs beyond the switching point before partitions become narrower.
    pub upper_threshold: u32,
    /// CO, LV: programs below the switching point before partitions become wider.
    pub lower_threshold: u32,
    /// CO, LV: how long a partition width is held at least.
    pub hold_ns: u64,
    /// CO: one width for the whole machine, or each node of the hierarchy for itself.
    pub level_decision: LevelDecision,
    /// TA, CO: by what those who share memory or caches are chosen. Not given: by where they stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Neighbours>,
    /// CO: how often programs are moved to even out partitions. Not given: counts are evened out at
    /// every event, and whoever is alone in its partition stays so.
    pub rebalance_every_ns: Option<u64>,
    /// CO: rebalancing moves nobody to another NUMA node, where its memory would be remote.
    #[serde(skip_serializing_if = "is_false")]
    pub rebalance_within_nodes: bool,
    /// LV: how long nobody must have come or left before levels are balanced.
    pub settle_ns: u64,
    /// LV: how long a program keeps its partition while its team is still too wide for the new one.
    pub grace_ns: u64,
    /// fixed: the plan's text form.
    pub plan: Option<String>,
    /// fixed: where programs run that the plan does not name; they wait if not given.
    pub others: Option<CpuSet>,
    /// adaptive: what it does without, to see what each part of it brings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<Lever>,
    /// A Lua policy: the text of its file, so that whoever decides needs no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

/// Where it is decided which level of partitions programs are at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LevelDecision {
    /// Once for the whole machine.
    #[default]
    Global,
    /// In each partition for itself.
    Local,
}

/// A part of `adaptive` that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lever {
    /// Widths by speed-up curves.
    Widths,
    /// Neighbours by what they ask of memory and caches.
    Neighbours,
    /// Programs stay in the NUMA nodes where their memory is.
    Homes,
    /// CPU time evens out over a program's life.
    Parity,
}

/// The slices that a live node takes. No turn is longer, so that no program stands for its neighbours' whole lives.
pub const SLICE_RANGE_NS: std::ops::RangeInclusive<u64> = 1_000_000..=10_000_000_000;

/// A time in the settings that no live node takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the setting {setting} is {}, which is outside {} to {}", display_ns(*value_ns), display_ns(*range_ns.start()), display_ns(*range_ns.end()))]
pub struct TimeOutOfRange {
    /// Its name in the settings.
    pub setting: &'static str,
    /// What was asked for, in nanoseconds.
    pub value_ns: u64,
    /// What a live node takes, in nanoseconds.
    pub range_ns: std::ops::RangeInclusive<u64>,
}

impl Settings {
    /// Whether a live node can go by these times. A simulation may use any.
    pub fn check_live_times(&self) -> Result<(), TimeOutOfRange> {
        let at_most = 0..=*SLICE_RANGE_NS.end();
        for (setting, value_ns, range_ns) in [
            ("slice_ns", self.slice_ns, SLICE_RANGE_NS),
            ("min_slice_ns", self.min_slice_ns, at_most.clone()),
            ("max_still_ns", self.max_still_ns, at_most),
        ] {
            if !range_ns.contains(&value_ns) {
                return Err(TimeOutOfRange { setting, value_ns, range_ns });
            }
        }
        Ok(())
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            slice_ns: 100_000_000,
            min_slice_ns: 5_000_000,
            max_still_ns: 200_000_000,
            turn_mode: TurnMode::Strict,
            allowed_widths: None,
            upper_threshold: 0,
            lower_threshold: 0,
            hold_ns: 0,
            level_decision: LevelDecision::Global,
            neighbours: None,
            rebalance_every_ns: None,
            rebalance_within_nodes: false,
            settle_ns: 500_000_000,
            grace_ns: 1_000_000_000,
            plan: None,
            others: None,
            without: Vec::new(),
            script: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_node_takes_no_turns_of_minutes() {
        let settings = Settings::default();
        assert_eq!(settings.check_live_times(), Ok(()));
        let minute = 60_000_000_000;
        for (setting, long) in [
            ("slice_ns", Settings { slice_ns: minute, ..settings.clone() }),
            ("min_slice_ns", Settings { min_slice_ns: minute, ..settings.clone() }),
            ("max_still_ns", Settings { max_still_ns: minute, ..settings.clone() }),
        ] {
            let error = long.check_live_times().unwrap_err();
            assert_eq!((error.setting, error.value_ns), (setting, minute));
        }
        let none = Settings { slice_ns: 0, ..settings };
        assert!(none.check_live_times().unwrap_err().to_string().contains("slice_ns"));
    }
}
