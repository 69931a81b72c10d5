//! From a tree to a decision: who waits, who is suspended, what is remembered, and who was moved.

use std::collections::BTreeMap;

use plan::{App, Plan, Tree, display_ns};
use topology::CpuSet;
use workload::AppId;

use super::compose::Context;
use crate::{Decision, LevelMemory, Memory, Report};

pub(crate) fn decision(
    cx: &Context<'_>,
    tree: Option<Tree>,
    level: LevelMemory,
    wake_at_ns: Option<u64>,
    lines: Vec<String>,
) -> Decision {
    let mut plan = Plan { tree, ..Plan::default() };
    let mut places: BTreeMap<AppId, CpuSet> = BTreeMap::new();
    plan.for_each_run(&mut |run| {
        places
            .entry(run.app.clone())
            .and_modify(|place| *place = place.union(&run.place))
            .or_insert_with(|| run.place.clone());
    });
    let mut report = Report { lines, ..Report::default() };
    let still_ns = plan.tree.as_ref().map_or(0, plan::standstill_ns);
    if still_ns > cx.settings.max_still_ns {
        report.lines.push(format!(
            "Programs stand still for up to {} instead of {}: slices are no shorter than {}.",
            display_ns(still_ns),
            display_ns(cx.settings.max_still_ns),
            display_ns(cx.settings.min_slice_ns)
        ));
    }
    for app in &cx.snapshot.apps {
        let (before, now) = (cx.memory.places.get(&app.id), places.get(&app.id));
        if app.suspended {
            plan.suspended.insert(app.id.clone());
        } else if now.is_none() {
            plan.waiting.insert(app.id.clone());
        }
        match (before, now) {
            (Some(before), Some(now)) => {
                if let Some(why) = reason(cx, app, before, now, &level) {
                    report.moves.insert(app.id.clone(), why);
                }
            }
            // Who does not run comes back to where it stood.
            (Some(before), None) => {
                places.insert(app.id.clone(), before.clone());
            }
            (None, _) => {}
        }
    }
    Decision { plan, memory: Memory { level, places }, wake_at_ns, report }
}

/// Why a program lost CPUs; `None` where it lost none.
fn reason(cx: &Context<'_>, app: &App, before: &CpuSet, now: &CpuSet, level: &LevelMemory) -> Option<String> {
    if before.is_subset(now) {
        return None;
    }
    let gone = before.difference(&cx.snapshot.usable);
    let was = cx.memory.level.width;
    Some(if !gone.is_empty() {
        format!("CPUs {gone} are no longer usable")
    } else if level.moved_ns.get(&app.id) == Some(&cx.snapshot.now_ns) {
        "moved to a less crowded partition, so that over time all get the same".to_owned()
    } else if let (Some(was), Some(width)) = (was, level.width)
        && was != width
    {
        format!("partitions became {width} CPUs wide instead of {was}")
    } else {
        format!("CPUs {} went to programs that cannot stand elsewhere", before.difference(now))
    })
}
