//! From a tree to a decision: who waits, who is suspended, what is remembered, and who was moved.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use plan::{App, Plan, Tree, display_ns};
use topology::CpuSet;
use workload::{AppId, ByApp};

use super::compose::Context;
use crate::{Decision, LevelMemory, Memory, Report};

pub(crate) fn decision(
    cx: &Context<'_>,
    tree: Option<Tree>,
    level: LevelMemory,
    wake_at_ns: Option<u64>,
    lines: Vec<String>,
) -> Decision {
    let (mut waiting, mut suspended) = (BTreeSet::new(), BTreeSet::new());
    let plan = Plan { tree, ..Plan::default() };
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
    let mut places_now: ByApp<'_, Cow<'_, CpuSet>> = ByApp::default();
    places_now.reserve(cx.needs.len());
    plan.for_each_run(&mut |run| match places_now.entry(&run.app) {
        Entry::Vacant(none) => {
            none.insert(Cow::Borrowed(&run.place));
        }
        Entry::Occupied(mut place) => place.get_mut().to_mut().add_all(&run.place),
    });
    // Programs and old places both in order of name: one walk instead of searches.
    let mut old = cx.memory.places.iter().peekable();
    let mut places: Vec<(AppId, CpuSet)> = Vec::with_capacity(cx.by_name.len());
    for app in cx.by_name.iter().map(|&index| &cx.snapshot.apps[index]) {
        let now: Option<CpuSet> = places_now.get(&app.id).map(|place| CpuSet::clone(place));
        while old.next_if(|(id, _)| **id < app.id).is_some() {}
        let before = old.next_if(|(id, _)| **id == app.id).map(|(_, place)| place);
        if app.suspended {
            suspended.insert(app.id.clone());
        } else if now.is_none() {
            waiting.insert(app.id.clone());
        }
        if let (Some(before), Some(now)) = (before, &now)
            && let Some(why) = reason(cx, app, before, now, &level)
        {
            report.moves.insert(app.id.clone(), why);
        }
        // Who does not run comes back to where it stood.
        places.extend(now.or_else(|| before.cloned()).map(|place| (app.id.clone(), place)));
    }
    let memory = Memory { level, places: places.into_iter().collect(), ..Memory::default() };
    let plan = Plan { waiting, suspended, ..plan };
    Decision { plan, memory, wake_at_ns, report }
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
    } else if level.width.is_some() && before.len() != now.len() {
        format!("from a partition of {} CPUs to one of {}", before.len(), now.len())
    } else {
        format!("CPUs {} went to programs that cannot stand elsewhere", before.difference(now))
    })
}
