//! What a run under the reuse tool showed, as a table, JSON and CSV.

use std::collections::BTreeMap;
use std::fmt;

use probe::classes::{Flows, QUIET_BYTES_PER_S};
use probe::tool::{Cost, Run};
use reuse::{Ended, LINE_BYTES, Part, Report, Sampling, Scope};
use serde_json::{Value, json};
use topology::Machine;
use workload::show_bytes;

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

    /// Accesses a second of a native run, of the program that was started.
    fn per_second(&self, part: &Part) -> Option<f64> {
        self.native.map(|native| part.histogram.accesses() / native.seconds)
    }

    /// What flows into the caches in a native run, and the threads that it is for; not known without such a
    /// run, of a machine with other than three levels, and of a program that was cut off.
    fn flows(&self, report: &Report) -> Option<(Flows, usize)> {
        let [l1, l2, llc] = self.caches[..] else { return None };
        let whole = matches!(report.ended, Ended::Exit(_));
        let native = self.native.filter(|_| whole && report.stack)?;
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
        let parts: Vec<Value> = report.parts.iter().map(|part| self.part_json(part)).collect();
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

    fn part_json(&self, part: &Part) -> Value {
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
            "accesses_per_s": self.per_second(part),
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

    fn show(&self, report: &Report, out: &mut String) {
        use fmt::Write;
        let Some(program) = report.program_part() else { return };
        let histogram = &program.histogram;
        let accesses = histogram.accesses();
        let _ = writeln!(
            out,
            "{}: {} accesses to {} of memory{}{}",
            report.program,
            count(accesses),
            show_bytes(histogram.first_touches() as u64 * LINE_BYTES),
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
                    format!("to {}", show_bytes(to * LINE_BYTES)),
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
        self.show_caches(report, out);
    }

    fn show_caches(&self, report: &Report, out: &mut String) {
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
            let per_s = self.native.map(|native| program.histogram.misses(lines) / native.seconds);
            table.row([
                format!("L{}", cache.level),
                show_bytes(cache.bytes),
                percent(program.histogram.miss_ratio(lines)),
                program.estimate.as_ref().map_or(String::new(), |estimate| percent(estimate.error(lines))),
                per_s.map_or(String::new(), count),
                if worst.is_nan() { String::new() } else { percent(worst) },
                fetches.map_or(String::new(), percent),
            ]);
        }
        match self.caches.is_empty() {
            true => *out += "This machine does not tell the sizes of its caches.\n",
            false => *out += &table.to_string(),
        }
        if let Some((native, per_s)) = self.native.zip(self.per_second(program)) {
            let _ = writeln!(
                out,
                "native {:.2} s, {} accesses/s; under the tool {:.1} times the CPU time",
                native.seconds,
                count(per_s),
                self.cost.user_seconds / native.user_seconds.max(1e-3)
            );
        }
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
            self.show(report, &mut text);
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
fn count(number: f64) -> String {
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

    #[test]
    fn counts_have_three_digits() {
        assert_eq!(
            [7.0, 9_999.0, 12_345.0, 1.5e6, 250e9].map(count),
            ["7", "9999", "12.3 k", "1.50 M", "250 G"]
        );
    }
}
