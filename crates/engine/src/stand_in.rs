//! The plan that is always valid.

use std::collections::BTreeMap;

use plan::{App, Plan, Run, Snapshot, Tree};

/// Everybody runs on everything that it may use, left to the kernel, as without coplace.
pub fn uncontrolled(snapshot: &Snapshot) -> Plan {
    let (suspended, running): (Vec<&App>, Vec<&App>) = snapshot.apps.iter().partition(|app| app.suspended);
    let mut parts: Vec<Tree> = running.into_iter().map(|app| Tree::Run(run(app, snapshot))).collect();
    let oversubscribed = |tree: &Tree| tree.runs().iter().any(|run| run.threads as usize > run.place.len());
    let tree = match parts.len() {
        0 => None,
        1 if !oversubscribed(&parts[0]) => parts.pop(),
        _ => Some(Tree::Mixed { owner: BTreeMap::new(), parts }),
    };
    Plan { tree, suspended: suspended.into_iter().map(|app| app.id.clone()).collect(), ..Plan::default() }
}

fn run(app: &App, snapshot: &Snapshot) -> Run {
    let place = snapshot.overflow_place(app).unwrap_or_else(|| snapshot.room(app));
    let cpus = place.len() as u32;
    let mut run = Run::new(app.id.clone(), place);
    run.threads = if app.accepts_width() {
        let least = app.demand.min_threads.min(snapshot.wide_room(app).len() as u32);
        app.demand.max_threads.map_or(cpus, |most| most.min(cpus)).max(least).max(1)
    } else {
        app.width(cpus)
    };
    run
}
