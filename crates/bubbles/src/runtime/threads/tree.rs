//! The tree of bubbles as text, and what the lists hold.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::hierarchy::{self, Kind, Place};
use crate::runtime::records::bubble::Shared;
use crate::runtime::records::thread::Thread;
use crate::runtime::workers::pool::Lists;
use crate::runtime::workers::worker;

/// Lines of a tree that people still read.
const MOST_LINES: usize = 100;
/// Threads are counted up to here.
const MANY: usize = 1_000_000;

/// For people: a line for each bubble that has not gone, below that of the bubble around it.
pub(crate) fn tree(lists: &Lists) -> String {
    let found = Shared::living();
    let mut inside: BTreeMap<*const hierarchy::Bubble, Vec<usize>> = BTreeMap::new();
    for (at, (shared, ..)) in found.iter().enumerate() {
        inside.entry(shared.bubble.entity.holder()).or_default().push(at);
    }
    let mut text = String::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut below = |holder: *const hierarchy::Bubble, depth: usize, open: &mut Vec<(usize, usize)>| {
        open.extend(inside.remove(&holder).unwrap_or_default().into_iter().rev().map(|at| (at, depth)));
    };
    below(std::ptr::null(), 0, &mut open);
    let mut lines = 0;
    while let Some((at, depth)) = open.pop() {
        let (shared, _, name) = &found[at];
        below(&shared.bubble, depth + 1, &mut open);
        lines += 1;
        if lines > MOST_LINES {
            continue;
        }
        let threads = lists.threads_up_to(&shared.bubble, MANY);
        let unit =
            |unit: usize| lists.levels().units().get(unit).map_or("nowhere".into(), ToString::to_string);
        let place = match shared.bubble.entity.place() {
            Place::Queued(on) => format!(", waits on {}", unit(on)),
            Place::Burst(on) => format!(", let out on {}", unit(on)),
            Place::Active { .. } => ", being placed".to_owned(),
            Place::Inside => String::new(),
            Place::Nowhere => ", not woken".to_owned(),
        };
        let plural = if threads == 1 { "" } else { "s" };
        let _ = writeln!(text, "{:indent$}{name}: {threads} thread{plural}{place}", "", indent = 2 * depth);
    }
    if lines > MOST_LINES {
        let _ = writeln!(text, "… and {} more bubbles", lines - MOST_LINES);
    }
    text
}

/// What the lists hold and the processors run at this moment, for people: a line for each unit with
/// something on it. Others go on meanwhile.
pub fn placement() -> String {
    let worker = worker::enter();
    let lists = worker.lists();
    let mut text = String::new();
    for (number, unit) in lists.levels().units().iter().enumerate() {
        let mut parts: Vec<String> = lists.names(number, |entity| {
            match entity.kind() {
                // SAFETY: the runtime's entities are its threads and bubbles.
                Kind::Thread => unsafe { Thread::of(entity) }.name().unwrap_or("thread").to_owned(),
                Kind::Bubble => {
                    // SAFETY: as above; bubbles are never freed.
                    let bubble = unsafe { Shared::of_entity(entity) };
                    format!("{}[]", bubble.name().unwrap_or("bubble"))
                }
            }
        });
        if unit.children.is_empty() {
            let at = &lists.world.workers[unit.processors.start];
            if let Some(thread) = at.runs() {
                parts.push(format!("> {}", thread.name().unwrap_or("thread")));
            }
        }
        if !parts.is_empty() {
            let _ = writeln!(text, "{unit}: {}", parts.join(" "));
        }
    }
    worker::leave();
    text
}
