//! How a run ended, for people in one line and for programs as JSON.

use std::ffi::OsString;
use std::path::Path;

use node::launch::Ended;
use protocol::Account;
use serde::Serialize;
use workload::AppId;

use crate::exit::Failure;

/// Below this a program did not wait, it started.
const WAITED_NS: u64 = 100_000_000;
/// Neighbours beyond these are counted.
const NAMED: usize = 4;

/// `coplace: cg 12.4 s on 1 to 2 CPUs beside mg, ft; slowdown 1.9 ± 0.1`
pub fn line(name: &AppId, took_ns: u64, account: Option<&Account>) -> String {
    let mut line = format!("coplace: {name} {}", seconds(took_ns));
    let Some(account) = account else { return line + ", without a scheduler" };
    if account.waited_ns >= WAITED_NS {
        line += &format!(" ({} of it waiting)", seconds(account.waited_ns));
    }
    let widths = account.width_ns.iter().filter(|(_, ns)| **ns > 0).map(|(width, _)| *width);
    if let (Some(least), Some(most)) = (widths.clone().min(), widths.max()) {
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        line += &format!(" on {range} CPU{}", if most == 1 { "" } else { "s" });
    }
    line += &describe_neighbours(account);
    if let Some((slowdown, error)) = account.slowdown {
        line += &format!("; slowdown {slowdown:.1} ± {error:.1}");
    }
    line
}

/// Longest together first.
fn describe_neighbours(account: &Account) -> String {
    let mut neighbours: Vec<_> = account.neighbours_ns.iter().filter(|(_, ns)| **ns > 0).collect();
    neighbours.sort_by_key(|(id, ns)| (std::cmp::Reverse(**ns), (*id).clone()));
    let names: Vec<&str> = neighbours.iter().take(NAMED).map(|(id, _)| id.as_str()).collect();
    match neighbours.len().saturating_sub(NAMED) {
        _ if names.is_empty() => String::new(),
        0 => format!(" beside {}", names.join(", ")),
        more => format!(" beside {} and {more} more", names.join(", ")),
    }
}

fn seconds(ns: u64) -> String {
    let seconds = crate::units::seconds(ns);
    let digits = if seconds < 1.0 { 2 } else { 1 };
    format!("{seconds:.digits$} s")
}

/// What `--json` writes.
#[derive(Serialize)]
pub struct Result<'a> {
    name: &'a AppId,
    command: Vec<String>,
    /// `None`: it was ended by a signal.
    exit_status: Option<i32>,
    signal: Option<i32>,
    response_ns: u64,
    /// Whether a scheduler had it when it was started; if not, why.
    managed: bool,
    unmanaged_because: Option<String>,
    /// For how long of its life nobody scheduled, as between one leader and the next.
    unscheduled_ns: u64,
    /// Whether this run scheduled for all when its program ended: the lead has passed on then.
    led: bool,
    account: Option<&'a Account>,
}

impl<'a> Result<'a> {
    pub fn new(name: &'a AppId, command: &[OsString], ended: Ended, response_ns: u64) -> Result<'a> {
        let (exit_status, signal) = match ended {
            Ended::Status(status) => (Some(status), None),
            Ended::Signal(signal) => (None, Some(signal)),
        };
        let command = command.iter().map(|text| text.to_string_lossy().into_owned()).collect();
        Result {
            name,
            command,
            exit_status,
            signal,
            response_ns,
            managed: true,
            unmanaged_because: None,
            unscheduled_ns: 0,
            led: false,
            account: None,
        }
    }

    /// `unscheduled_ns`: none where it never came under a scheduler.
    pub fn scheduled(
        self,
        unmanaged_because: Option<String>,
        unscheduled_ns: Option<u64>,
        led: bool,
        account: Option<&'a Account>,
    ) -> Result<'a> {
        let unscheduled_ns = unscheduled_ns.unwrap_or(self.response_ns);
        Result {
            managed: unmanaged_because.is_none(),
            unmanaged_because,
            unscheduled_ns,
            led,
            account,
            ..self
        }
    }
}

pub fn write_json(path: &Path, result: &Result<'_>) -> std::result::Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(result).map_err(|error| Failure::unwritable(path, error))?;
    text.push(b'\n');
    std::fs::write(path, text).map_err(|error| Failure::unwritable(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> AppId {
        AppId::new(name).unwrap()
    }

    #[test]
    fn the_summary_has_time_widths_neighbours_and_slowdown() {
        let account = Account {
            width_ns: [(1, 5), (2, 7), (4, 0)].into(),
            neighbours_ns: [(id("ft"), 3), (id("mg"), 9), (id("gone"), 0)].into(),
            slowdown: Some((1.94, 0.06)),
            ..Account::default()
        };
        assert_eq!(
            line(&id("cg"), 12_440_000_000, Some(&account)),
            "coplace: cg 12.4 s on 1 to 2 CPUs beside mg, ft; slowdown 1.9 ± 0.1"
        );
    }

    #[test]
    fn the_line_leaves_out_what_is_not_known() {
        let account = Account { width_ns: [(1, 5)].into(), waited_ns: 300_000_000, ..Account::default() };
        assert_eq!(
            line(&id("cg"), 450_000_000, Some(&account)),
            "coplace: cg 0.45 s (0.30 s of it waiting) on 1 CPU"
        );
        assert_eq!(line(&id("cg"), 1_000_000_000, None), "coplace: cg 1.0 s, without a scheduler");
    }

    #[test]
    fn many_neighbours_are_counted() {
        let account = Account {
            neighbours_ns: (1..=6).map(|n| (id(&format!("p{n}")), n)).collect(),
            ..Account::default()
        };
        assert_eq!(line(&id("cg"), 0, Some(&account)), "coplace: cg 0.00 s beside p6, p5, p4, p3 and 2 more");
    }
}
