//! What the measuring tool writes (docs/formats/reuse.md): lines of words, read strictly.

use std::fmt;
use std::num::ParseIntError;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::histogram::Histogram;
use crate::shards::Estimate;

const HEAD: &str = "coplace reuse 1";

/// Whose accesses a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All threads' as they followed one another: what a cache that they share sees.
    Program,
    /// One thread's alone, by the tool's number: what its private caches see.
    Thread(u32),
    /// Instruction fetches of all threads.
    Instructions,
}

/// How a program came to its end under the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// With this exit status.
    Exit(i32),
    /// Which one is not in the report: the tool ends itself by the same signal, which its parent sees.
    Signal(Option<i32>),
    /// The time was up; what was seen until then is here.
    TimeLimit,
    /// It became another program, whose accesses are elsewhere or were not looked at.
    Exec,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exit(0) => f.write_str("ended well"),
            Ended::Exit(status) => write!(f, "ended with status {status}"),
            Ended::Signal(Some(signal)) => write!(f, "was ended by signal {signal}"),
            Ended::Signal(None) => f.write_str("was ended by a signal"),
            Ended::TimeLimit => f.write_str("was cut off by the time limit"),
            Ended::Exec => f.write_str("became another program"),
        }
    }
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Every access.
    Exact,
    /// This share of the lines (at the end, with a fixed size).
    Share(f64),
}

/// One histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Whose accesses it is of.
    pub scope: Scope,
    /// Their reuse distances.
    pub histogram: Histogram,
    /// With its error, where it was sampled.
    pub estimate: Option<Estimate>,
}

/// One program image's run under the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its process under the tool.
    pub pid: u32,
    /// The program's file.
    pub program: String,
    /// Which accesses were counted.
    pub sampling: Sampling,
    /// Whether accesses of threads to their own stacks were counted.
    pub stack: bool,
    /// How it ended.
    pub ended: Ended,
    /// The program's first, then threads by number, then instructions.
    pub parts: Vec<Part>,
}

/// Why a text is no report.
#[derive(Debug, Error, PartialEq)]
pub enum ReportError {
    /// Its first line is another one.
    #[error("this is no report of the reuse tool: it does not begin with '{HEAD}'")]
    NoReport,
    /// Its last line is missing.
    #[error("the report is cut off: it has no last line 'end' (was the disk full, or the tool killed?)")]
    CutOff,
    /// A line does not say what a report has there.
    #[error("line {line} of the report is '{text}': {why}")]
    Wrong {
        /// Its number, from 1.
        line: usize,
        /// What it says.
        text: String,
        /// What is wrong with that.
        why: String,
    },
}

/// A part while it is read.
struct Open {
    scope: Scope,
    accesses: u64,
    groups: Vec<Histogram>,
}

impl Report {
    /// The histogram of this scope, if it was asked for.
    pub fn part(&self, scope: Scope) -> Option<&Part> {
        self.parts.iter().find(|part| part.scope == scope)
    }

    /// The whole program's histogram.
    pub fn program_part(&self) -> Option<&Part> {
        self.part(Scope::Program)
    }

    /// The histograms of single threads, by number.
    pub fn threads(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| matches!(part.scope, Scope::Thread(_)))
    }

    /// Reads what the reuse tool wrote.
    pub fn parse(text: &str) -> Result<Report, ReportError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, first)| first != HEAD) {
            return Err(ReportError::NoReport);
        }
        let mut report = Report {
            pid: 0,
            program: String::new(),
            sampling: Sampling::Exact,
            stack: true,
            ended: Ended::Exit(0),
            parts: Vec::new(),
        };
        let mut unit = 1.0;
        let mut open: Option<Open> = None;
        for (at, line) in lines {
            let wrong = |why: String| ReportError::Wrong { line: at + 1, text: line.to_owned(), why };
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words: Vec<&str> = rest.split(' ').collect();
            let number = |index: usize| -> Result<u64, ReportError> {
                let word = words.get(index).copied().unwrap_or_default();
                word.parse().map_err(|error: ParseIntError| wrong(format!("'{word}' is no number: {error}")))
            };
            match (key, &mut open) {
                ("pid", _) => report.pid = number(0)? as u32,
                ("program", _) => report.program = rest.to_owned(),
                ("threshold", _) => {
                    report.sampling = Sampling::Share(number(0)? as f64 / 2f64.powi(64));
                }
                ("unit", _) => unit = number(0)?.max(1) as f64,
                ("stack", _) => report.stack = rest == "yes",
                ("ended", _) => {
                    report.ended = match words[0] {
                        "exit" => Ended::Exit(number(1)? as i32),
                        "signal" => Ended::Signal(None),
                        "limit" => Ended::TimeLimit,
                        "exec" => Ended::Exec,
                        other => return Err(wrong(format!("'{other}' is no way to end"))),
                    }
                }
                ("histogram", _) => {
                    report.parts.extend(open.take().map(|open| open.close(report.sampling)));
                    let (scope, at) = match words[0] {
                        "program" => (Scope::Program, 1),
                        "thread" => (Scope::Thread(number(1)? as u32), 2),
                        "instructions" => (Scope::Instructions, 1),
                        other => return Err(wrong(format!("'{other}' has no histogram"))),
                    };
                    open = Some(Open { scope, accesses: number(at)?, groups: Vec::new() });
                }
                ("group", Some(open)) => open.groups.push(Histogram::new()),
                ("first" | "bin", Some(open)) => {
                    let Some(histogram) = open.groups.last_mut() else {
                        return Err(wrong("there is no group before it".into()));
                    };
                    match key {
                        "first" => histogram.record(None, number(0)? as f64 / unit),
                        _ => histogram.add_to_bin(bin(number(0)?).map_err(wrong)?, number(1)? as f64 / unit),
                    }
                }
                ("group" | "first" | "bin", None) => {
                    return Err(wrong("there is no histogram before it".into()));
                }
                ("end", _) => {
                    report.parts.extend(open.take().map(|open| open.close(report.sampling)));
                    report.parts.sort_by_key(|part| part.scope);
                    return Ok(report);
                }
                _ => return Err(wrong("nobody knows this line".into())),
            }
        }
        Err(ReportError::CutOff)
    }
}

fn bin(number: u64) -> Result<usize, String> {
    // 2^58 lines are all that addresses have.
    match number {
        1..4096 => Ok(number as usize),
        _ => Err(format!("{number} is no bin")),
    }
}

impl Open {
    fn close(mut self, sampling: Sampling) -> Part {
        match sampling {
            Sampling::Exact => {
                let histogram = self.groups.pop().unwrap_or_default();
                Part { scope: self.scope, histogram, estimate: None }
            }
            Sampling::Share(_) => {
                let estimate = Estimate::from_groups(self.groups, self.accesses as f64);
                Part { scope: self.scope, histogram: estimate.histogram.clone(), estimate: Some(estimate) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: &str = "coplace reuse 1\npid 7\nprogram ./a b\nunit 1\nstack no\nended exit 11\n\
        histogram program 6\ngroup\nfirst 2\nbin 1 3\nbin 200 1\nhistogram thread 1 0\ngroup\nend\n";

    #[test]
    fn a_report_is_read_with_all_its_fields() {
        let report = Report::parse(EXACT).unwrap();
        assert_eq!((report.pid, report.program.as_str(), report.stack), (7, "./a b", false));
        assert_eq!((report.ended, report.sampling), (Ended::Exit(11), Sampling::Exact));
        let histogram = &report.program_part().unwrap().histogram;
        assert_eq!((histogram.accesses(), histogram.first_touches()), (6.0, 2.0));
        assert_eq!(histogram.rows().last().unwrap().from_lines, Histogram::range_of(200).0);
        assert_eq!(report.threads().count(), 1);
    }

    #[test]
    fn a_sampled_report_is_an_estimate_of_all_accesses() {
        let text = "coplace reuse 1\nunit 1024\nthreshold 9223372036854775808\nended exit 3\n\
            histogram program 10\ngroup\nfirst 2048\ngroup\nbin 9 4096\nend\n";
        let report = Report::parse(text).unwrap();
        assert_eq!((report.sampling, report.ended), (Sampling::Share(0.5), Ended::Exit(3)));
        let part = report.program_part().unwrap();
        assert_eq!(part.histogram.accesses(), 10.0);
        assert_eq!(part.histogram.misses(8), 6.0);
        assert!(part.estimate.as_ref().unwrap().error(8) > 0.0);
    }

    #[test]
    fn a_malformed_report_is_refused_with_its_line() {
        assert_eq!(Report::parse("hello\n"), Err(ReportError::NoReport));
        assert_eq!(Report::parse(EXACT.strip_suffix("end\n").unwrap()), Err(ReportError::CutOff));
        for (good, bad, line) in [
            ("bin 1 3", "bin 1 x", 10),
            ("bin 1 3", "bin 0 3", 10),
            ("first 2", "furst 2", 9),
            ("histogram program 6", "histogram world 6", 7),
            ("histogram program 6\n", "", 7),
            ("ended exit 11", "ended happily", 6),
        ] {
            match Report::parse(&EXACT.replacen(good, bad, 1)) {
                Err(ReportError::Wrong { line: found, .. }) => assert_eq!(found, line, "{bad}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
    }
}
