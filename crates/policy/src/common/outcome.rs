//! From a tree to a decision: who waits, who is suspended, what is remembered, and who was moved.

use std::collections::BTreeSet;

use plan::{App, MoveReason, Plan, Remark, Report, Tree};
use topology::CpuSet;

use super::context::Context;
use crate::{Decision, LevelMemory, Memory, Places};

pub(crate) fn decision(
    cx: &Context<'_>,
    tree: Option<Tree>,
    level: LevelMemory,
    wake_at_ns: Option<u64>,
    remarks: Vec<Remark>,
) -> Decision {
    let (mut waiting, mut suspended) = (Vec::new(), BTreeSet::new());
    let plan = Plan { tree, ..Plan::default() };
    let mut report = Report { remarks, ..Report::default() };
    let still_ns = plan.tree.as_ref().map_or(0, plan::standstill_ns);
    if still_ns > cx.settings.max_still_ns {
        report.remarks.push(Remark::Standstill {
            longest_ns: still_ns,
            allowed_ns: cx.settings.max_still_ns,
            shortest_slice_ns: cx.settings.min_slice_ns,
        });
    }
    let mut places = Places::with_capacity(cx.snapshot.apps.len());
    plan.for_each_run(&mut |run| places.add(&run.app, &run.place));
    for app in &cx.snapshot.apps {
        let (before, now) = (cx.memory.places.get(&app.id), places.get(&app.id));
        if app.suspended {
            suspended.insert(app.id.clone());
        } else if now.is_none() {
            waiting.push(app.id.clone());
        }
        match (before, now) {
            (Some(before), Some(now)) => {
                let why = reason(cx, app, before, now, &level);
                report.moves.extend(why.map(|why| (app.id.clone(), why)));
            }
            // Who does not run comes back to where it stood.
            (Some(before), None) => places.insert(app.id.clone(), before.clone()),
            (None, _) => {}
        }
    }
    let memory = Memory { level, places, ..Memory::default() };
    // A set that is made of all at once is made much faster.
    let plan = Plan { waiting: waiting.into_iter().collect(), suspended, ..plan };
    Decision { plan, memory, wake_at_ns, report }
}

/// Why a program lost CPUs; `None` where it lost none.
fn reason(
    cx: &Context<'_>,
    app: &App,
    before: &CpuSet,
    now: &CpuSet,
    level: &LevelMemory,
) -> Option<MoveReason> {
    if before.is_subset(now) {
        return None;
    }
    let gone = before.difference(&cx.snapshot.usable);
    let was = cx.memory.level.width;
    Some(if !gone.is_empty() {
        MoveReason::Unusable { cpus: gone }
    } else if level.moved_ns.get(&app.id) == Some(&cx.snapshot.now_ns) {
        MoveReason::Rotated
    } else if let (Some(was), Some(width)) = (was, level.width)
        && was != width
    {
        MoveReason::Level { from: was, to: width }
    } else if level.width.is_some() && before.len() != now.len() {
        MoveReason::Partition { from: before.len() as u32, to: now.len() as u32 }
    } else {
        MoveReason::Ceded { cpus: before.difference(now) }
    })
}
