//! What happened, a JSON object a line, so that it can be played again.

use std::io::{self, Write};
use std::sync::Arc;

use plan::{Limits, Plan, Rejection, Snapshot};
use policy::{Memory, Policy, Settings};
use serde::{Deserialize, Serialize};
use topology::CpuSet;

use crate::event::{Event, Recorded};
use crate::{Engine, Held, Starts};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// How the engine stood when the recording began.
    Begin {
        /// Machine, programs and plan in force.
        snapshot: Snapshot,
        /// The policy's letters.
        policy: String,
        /// What this policy is made with, and those that follow unless other settings do.
        #[serde(default)]
        settings: Box<Settings>,
        /// What the mechanisms of the machine can do.
        limits: Limits,
        /// What the policy remembers.
        #[serde(default)]
        memory: Memory,
        /// In text form, as everywhere in a trace.
        #[serde(default = "idle")]
        plan: String,
        /// Plans are not carried out.
        #[serde(default)]
        observes: bool,
        /// Programs that have not started.
        #[serde(default, skip_serializing_if = "Held::is_empty")]
        held: Box<Held>,
    },
    /// What the policies that follow are made with.
    Settings(Box<Settings>),
    /// What the engine met.
    Event {
        /// When, in nanoseconds of CLOCK_MONOTONIC.
        now_ns: u64,
        /// What happened.
        event: Recorded,
    },
    /// What was decided after the events before it.
    Plan {
        /// When, in nanoseconds of CLOCK_MONOTONIC.
        now_ns: u64,
        /// What is in force.
        plan: String,
        /// About programs that start.
        #[serde(default, skip_serializing_if = "Starts::is_empty")]
        starts: Starts,
        /// The usable CPUs, where the events were about them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usable: Option<CpuSet>,
    },
    /// A policy's plan that was not taken, with what it had seen: the making of a test case. It
    /// stands as a tree, because what is wrong with it may be what the text form cannot say.
    Rejected {
        /// What the policy saw.
        snapshot: Snapshot,
        /// Its plan.
        plan: Plan,
        /// Why it was not taken.
        why: Vec<Rejection>,
    },
}

fn idle() -> String {
    Plan::default().to_string()
}

/// Where entries go.
pub trait Recorder: Send {
    /// The first error ends the recording, not the engine.
    fn record(&mut self, entry: &Entry) -> io::Result<()>;
}

/// A line an entry, flushed, so that what happened before a crash can be read.
impl<W: Write + Send> Recorder for W {
    fn record(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.write_all(&line)?;
        self.flush()
    }
}

/// Why a trace cannot be played again.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReplayError {
    /// A line is no entry, or names what there is not.
    #[error("line {line} of the trace: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The first entry is no [`Entry::Begin`].
    #[error("line {line} of the trace stands before its beginning; the first line must be a 'begin'")]
    NoBeginning {
        /// Its number, from 1.
        line: usize,
    },
}

/// Without a last line that was being written when the scheduler was killed.
pub fn whole_lines(text: &str) -> &str {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    let rest = &text[end..];
    if serde_json::from_str::<serde_json::Value>(rest).is_ok() { text } else { &text[..end] }
}

/// The entries of a trace with their lines, from 1; the first one that is none ends them.
pub fn entries(text: &str) -> impl Iterator<Item = Result<(usize, Entry), ReplayError>> {
    let lines = text.lines().enumerate().filter(|(_, json)| !json.trim().is_empty());
    lines.map(|(at, json)| match serde_json::from_str(json) {
        Ok(entry) => Ok((at + 1, entry)),
        Err(error) => Err(ReplayError::Line { line: at + 1, why: describe_wrong_json(&error) }),
    })
}

/// What is wrong with one line: every one is the first of its own text, and the column alone says where.
fn describe_wrong_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(what) => format!("{what}, in column {}", error.column()),
        None => text,
    }
}

/// What one line of a trace says was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The plan in force.
    pub plan: Plan,
    /// What was decided about programs that start.
    pub starts: Starts,
    /// `None`: the events before were not about CPUs.
    pub usable: Option<CpuSet>,
}

/// One decision of a trace, and what it is when played again.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Line of the trace, from 1.
    pub line: usize,
    /// When it was made, in nanoseconds of CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// What the trace has.
    pub recorded: Decided,
    /// What comes out now.
    pub again: Decided,
}

impl Replayed {
    /// Whether the two are not the same.
    pub fn differs(&self) -> bool {
        self.recorded != self.again
    }
}

/// Plays a trace again from its beginning; `policy` makes a policy of its letters and settings. The
/// plans are the same when engine and policies are those that were recorded.
pub fn replay(
    text: &str,
    policy: impl Fn(&str, &Settings) -> Option<Box<dyn Policy>>,
) -> Result<Vec<Replayed>, ReplayError> {
    let mut engine: Option<Engine> = None;
    let mut pending: Vec<Event> = Vec::new();
    let mut plans = Vec::new();
    for entry in entries(text) {
        let (line, entry) = entry?;
        let wrong = |why: String| ReplayError::Line { line, why };
        let parse = |text: &str| text.parse::<Plan>().map_err(|error| wrong(error.to_string()));
        if let Entry::Begin { snapshot, policy: letters, settings, limits, memory, plan, observes, held } =
            entry
        {
            let policy =
                policy(&letters, &settings).ok_or_else(|| wrong(format!("there is no policy {letters}")))?;
            let (allowed, usable) = (snapshot.allowed.clone(), snapshot.usable.clone());
            let fresh = Engine::new(Arc::clone(&snapshot.machine), allowed, usable, policy);
            let plan = Arc::new(parse(&plan)?);
            engine = Some(Engine {
                snapshot,
                settings: *settings,
                limits,
                memory,
                carried: Arc::clone(&plan),
                plan,
                observes,
                held: *held,
                ..fresh
            });
            pending.clear();
            continue;
        }
        let engine = engine.as_mut().ok_or(ReplayError::NoBeginning { line })?;
        match entry {
            Entry::Settings(settings) => engine.settings = *settings,
            Entry::Event { event, .. } => {
                let again = |letters: &str| policy(letters, &engine.settings);
                pending.push(event.event(again).map_err(|error| wrong(error.to_string()))?);
            }
            Entry::Plan { now_ns, plan, starts, usable } => {
                let step = engine.handle_all(now_ns, std::mem::take(&mut pending));
                let again = Decided {
                    plan: Plan::clone(&step.plan),
                    starts: step.starts,
                    usable: usable.as_ref().map(|_| engine.snapshot(now_ns).usable),
                };
                let recorded = Decided { plan: parse(&plan)?, starts, usable };
                plans.push(Replayed { line, now_ns, recorded, again });
            }
            Entry::Begin { .. } | Entry::Rejected { .. } => {}
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_dropped_and_a_whole_unended_one_is_kept() {
        assert_eq!(whole_lines("{}\n{}\n"), "{}\n{}\n");
        assert_eq!(whole_lines("{}\n{}"), "{}\n{}");
        assert_eq!(whole_lines("{}\n{\"pl"), "{}\n");
        assert_eq!(whole_lines("{\"pl"), "");
    }

    #[test]
    fn a_wrong_line_is_named_with_its_column() {
        let text = "{\"rejected\":7}\n";
        let wrong = entries(text).next().unwrap().unwrap_err().to_string();
        assert!(wrong.starts_with("line 1 of the trace: invalid type"), "{wrong}");
        assert!(wrong.ends_with(", in column 13"), "{wrong}");
    }
}
