//! What a run under the reuse tool showed, as a table, JSON and CSV.

use std::collections::BTreeMap;
use std::fmt;

use probe::classes::{Flows, QUIET_BYTES_PER_S};
use probe::tool::{Cost, Run};
use reuse::{Ended, LINE_BYTES, Part, Report, Sampling, Scope};
use serde_json::{Value, json};
use topology::Machine;
use workload::format_bytes;

use crate::table::Table;

/// A cache of the machine that the program is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    pub level: u8,
    pub bytes: u64,
}

pub struct Summary<'r> {
    pub reports: &'r [Report],
    /// By level: L1, L2 …; empty where the machine does not tell.
    pub caches: Vec<Cache>,
    native: Option<Cost>,
    cost: Cost,
}

impl<'r> Summary<'r> {
    pub fn new(run: &'r Run, native: Option<Cost>, machine: &Machine) -> Summary<'r> {
        // Cores of several kinds: the smallest of each level, to be on the safe side.
        let mut sizes: BTreeMap<u8, u64> = BTreeMap::new();
        for cache in &machine.caches {
            if let Some(bytes) = cache.size_bytes {
                let size = sizes.entry(cache.level).or_insert(bytes);
                *size = bytes.min(*size);
            }
        }
        let caches = sizes.into_iter().map(|(level, bytes)| Cache { level, bytes }).collect();
        Summary { reports: &run.reports, caches, native, cost: run.cost }
    }

    /// What the native run took, where the accesses are those of a whole run as well: of a program that was cut
    /// off, crashed or became another one they are fewer than the native time was for.
    fn native_cost(&self, report: &Report) -> Option<Cost> {
        self.native.filter(|_| matches!(report.ended, Ended::Exit(_)))
    }

    /// Accesses a second of a native run.
    pub fn per_second(&self, report: &Report, part: &Part) -> Option<f64> {
        self.native_cost(report).map(|native| part.histogram.accesses() / native.seconds)
    }

    /// What flows into the caches in a native run, and the threads that it is for; not known without such a
    /// run, of a machine with other than three levels, and of a program that was cut off.
    fn flows(&self, report: &Report) -> Option<(Flows, usize)> {
        let [l1, l2, llc] = self.caches[..] else { return None };
        let native = self.native_cost(report).filter(|_| report.stack)?;
        let flows = Flows::of_report(report, native.seconds, [l1.bytes, l2.bytes, llc.bytes])?;
        Some((flows, report.threads().count().max(1)))
    }

    pub fn json(&self) -> Value {
        let reports: Vec<Value> = self.reports.iter().map(|report| self.report_json(report)).collect();
        json!({
            "line_bytes": LINE_BYTES,
            "caches": self.caches.iter()
                .map(|cache| json!({ "level": cache.level, "size_bytes": cache.bytes })).collect::<Vec<_>>(),
            "native_seconds": self.native.map(|native| native.seconds),
            "native_user_seconds": self.native.map(|native| native.user_seconds),
            "tool_seconds": self.cost.seconds,
            "tool_user_seconds": self.cost.user_seconds,
            "programs": reports,
        })
    }

    fn report_json(&self, report: &Report) -> Value {
        let parts: Vec<Value> = report.parts.iter().map(|part| self.part_json(report, part)).collect();
        json!({
            "program": report.program,
            "pid": report.pid,
            "ended": report.ended,
            "sampling": report.sampling,
            "stack": report.stack,
            "flows_bytes_per_s": self.flows(report).map(|(flows, _)| flows),
            "class": self.flows(report).map(|(flows, threads)| flows.class(threads as f64 * QUIET_BYTES_PER_S)),
            "parts": parts,
        })
    }

    fn part_json(&self, report: &Report, part: &Part) -> Value {
        let histogram = &part.histogram;
        let caches: Vec<Value> = self
            .caches
            .iter()
            .map(|cache| {
                let lines = cache.bytes / LINE_BYTES;
                json!({
                    "level": cache.level,
                    "miss_ratio": histogram.miss_ratio(lines),
                    "error": part.estimate.as_ref().map(|estimate| estimate.error(lines)),
                    "misses": histogram.misses(lines),
                })
            })
            .collect();
        json!({
            "scope": part.scope,
            "accesses": histogram.accesses(),
            "first_touches": histogram.first_touches(),
            "accesses_per_s": self.per_second(report, part),
            "caches": caches,
            "rows": histogram.rows().collect::<Vec<_>>(),
            "curve": histogram.curve(),
        })
    }

    pub fn csv(&self) -> String {
        let mut out = String::from("pid,scope,from_lines,to_lines,accesses\n");
        for report in self.reports {
            for part in &report.parts {
                out += &part.histogram.csv_rows(&format!("{},{},", report.pid, scope_name(part.scope)));
            }
        }
        out
    }

    fn render_report(&self, report: &Report, out: &mut String) {
        use fmt::Write;
        let Some(program) = report.program_part() else { return };
        let histogram = &program.histogram;
        let accesses = histogram.accesses();
        let _ = writeln!(
            out,
            "{}: {} accesses to {} of memory{}{}",
            report.program,
            count(accesses),
            format_bytes(histogram.first_touches() as u64 * LINE_BYTES),
            match report.sampling {
                Sampling::Exact => String::new(),
                Sampling::Share(share) => format!(", from a sample of {:.2}% of the lines", share * 100.0),
            },
            if report.stack { "" } else { ", without those of the stack" },
        );
        if accesses == 0.0 {
            return;
        }
        let mut table = Table::new(&["distance", ">accesses", ">share", ">a cache of that size misses"]);
        let mut from = 1;
        let mut shown = false;
        while histogram.misses(from - 1) > histogram.first_touches() {
            let to = from * 2 - 1;
            let here = histogram.between(from, to);
            shown |= here > 0.0;
            if shown {
                table.row([
                    format!("to {}", format_bytes(to * LINE_BYTES)),
                    count(here),
                    percent(here / accesses),
                    percent(histogram.miss_ratio(to)),
                ]);
            }
            from = to + 1;
        }
        table.row([
            "first touches".into(),
            count(histogram.first_touches()),
            percent(histogram.first_touches() / accesses),
            String::new(),
        ]);
        let _ = writeln!(out, "{table}");
        self.render_caches(report, out);
    }

    fn render_caches(&self, report: &Report, out: &mut String) {
        use fmt::Write;
        let heads =
            ["cache", ">size", ">misses of the program", ">±", ">misses/s", ">worst thread", ">instructions"];
        let mut table = Table::new(&heads);
        let Some(program) = report.program_part() else { return };
        for cache in &self.caches {
            let lines = cache.bytes / LINE_BYTES;
            let worst =
                report.threads().map(|part| part.histogram.miss_ratio(lines)).fold(f64::NAN, f64::max);
            let fetches = report.part(Scope::Instructions).map(|part| part.histogram.miss_ratio(lines));
            let per_s =
                self.native_cost(report).map(|native| program.histogram.misses(lines) / native.seconds);
            table.row([
                format!("L{}", cache.level),
                format_bytes(cache.bytes),
                percent(program.histogram.miss_ratio(lines)),
                program.estimate.as_ref().map_or(String::new(), |estimate| percent(estimate.error(lines))),
                per_s.map_or("–".into(), count),
                if worst.is_nan() { String::new() } else { percent(worst) },
                fetches.map_or(String::new(), percent),
            ]);
        }
        match self.caches.is_empty() {
            true => *out += "This machine does not tell the sizes of its caches.\n",
            false => *out += &table.to_string(),
        }
        let _ = match (self.native, self.per_second(report, program)) {
            (Some(native), Some(per_s)) => writeln!(
                out,
                "native {:.2} s, {} accesses/s; under the tool {:.1} times the CPU time",
                native.seconds,
                count(per_s),
                self.cost.user_seconds / native.user_seconds.max(1e-3)
            ),
            (Some(native), None) => writeln!(
                out,
                "native {:.2} s, – accesses/s: under the tool it {}, so its accesses are not those of a whole run",
                native.seconds, report.ended
            ),
            (None, _) => Ok(()),
        };
        if let Some((flows, threads)) = self.flows(report) {
            let _ = writeln!(
                out,
                "class {}: {:.2} GB/s into L1, {:.2} into L2, {:.2} into the last level",
                flows.class(threads as f64 * QUIET_BYTES_PER_S),
                flows.into_l1 / 1e9,
                flows.into_l2 / 1e9,
                flows.into_llc / 1e9
            );
        }
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, report) in self.reports.iter().enumerate() {
            let mut text = String::new();
            self.render_report(report, &mut text);
            write!(f, "{}{text}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

pub fn scope_name(scope: Scope) -> String {
    match scope {
        Scope::Program => "program".into(),
        Scope::Thread(number) => format!("thread {number}"),
        Scope::Instructions => "instructions".into(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Three digits with a fitting thousand.
pub fn count(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n >= 1e9 => (n / 1e9, " G"),
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e4 => (n / 1e3, " k"),
        n => return format!("{n:.0}"),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use reuse::Histogram;

    fn run(ended: Ended) -> Run {
        let mut histogram = Histogram::new();
        histogram.record(None, 1_000.0);
        histogram.record(Some(2_000), 9_000.0);
        let part = Part { scope: Scope::Program, histogram, estimate: None };
        let report = Report {
            pid: 1,
            program: "p".into(),
            sampling: Sampling::Exact,
            stack: true,
            ended,
            parts: vec![part],
        };
        let cost = Cost { seconds: 4.0, user_seconds: 4.0 };
        Run { reports: vec![report], status: ExitStatus::from_raw(0), cost }
    }

    #[test]
    fn rates_are_given_of_whole_runs_only() {
        let machine = Machine::synthetic("pack:1 core:2").unwrap();
        let native = Some(Cost { seconds: 2.0, user_seconds: 2.0 });
        let cache = Cache { level: 1, bytes: 1_000 * LINE_BYTES };
        let shown = |ended: Ended| {
            let run = run(ended);
            let mut summary = Summary::new(&run, native, &machine);
            summary.caches = vec![cache];
            let json = summary.json();
            (json["programs"][0]["parts"][0]["accesses_per_s"].as_f64(), summary.to_string())
        };
        for ended in [Ended::Exit(0), Ended::Exit(3)] {
            let (per_s, text) = shown(ended);
            assert_eq!(per_s, Some(5_000.0), "{ended:?}");
            assert!(text.contains("5000 accesses/s") && text.contains("2.0 times the CPU time"), "{text}");
            assert!(!text.contains('–'), "{text}");
        }
        for (ended, why) in [
            (Ended::TimeLimit, "cut off by the time limit"),
            (Ended::Signal(Some(11)), "ended by signal 11"),
            (Ended::Exec, "became another program"),
        ] {
            let (per_s, text) = shown(ended);
            assert_eq!(per_s, None, "{ended:?}");
            let misses = text.lines().find(|line| line.starts_with("L1")).expect("a row of the cache");
            assert!(misses.contains('–'), "{text}");
            assert!(text.contains("– accesses/s") && text.contains(why), "{text}");
            assert!(!text.contains("times the CPU time"), "{text}");
        }
    }

    #[test]
    fn counts_have_three_digits() {
        assert_eq!(
            [7.0, 9_999.0, 12_345.0, 1.5e6, 250e9].map(count),
            ["7", "9999", "12.3 k", "1.50 M", "250 G"]
        );
    }
}
