//! What is decided for a program once, because its variables are read once: how many threads it starts
//! with, and whether they sleep while they wait.
//!
//! Both are for programs that cannot be resized. A narrow start is the policy's choice where their curve
//! is known. Waiting is made passive where a plan cannot help against spinning: threads of one program
//! that are more than its CPUs, and programs that share CPUs with others that take no turns with them. It
//! is given no fewer CPUs for that: nobody knows whether the program listens.

use plan::{App, Plan, Run, Tree};
use policy::NarrowStart;
use protocol::{AppRecord, FromScheduler, Role};
use workload::{AppId, Demand, Malleability, WaitPolicy};

use super::Scheduler;

impl Scheduler {
    /// Lets the policy choose a narrow start for a program that is about to come.
    pub(super) fn narrow(&mut self, record: &mut AppRecord, app: &mut App) -> Option<Demand> {
        let free = record.terms.may_start_narrow && !record.started && self.role != Role::Observer;
        if !free || record.terms.threads.is_some() {
            return None;
        }
        let snapshot = self.engine.snapshot(linux::clock::now_ns() - self.began_ns);
        let NarrowStart { threads, why, slower_alone } =
            self.engine.policy().narrow_start(app, &snapshot).filter(|start| start.threads > 0)?;
        let id = &record.id;
        record.terms.narrow = Some(format!(
            "{id} starts with {threads} of {} threads, as the policy chose: {why}; when its neighbours leave it cannot \
             use more, and takes {slower_alone:.2} times as long as with all",
            app.width(snapshot.allowed.len() as u32)
        ));
        record.terms.threads = Some(threads);
        record.demand.max_threads = Some(threads);
        record.demand.min_threads = record.demand.min_threads.min(threads);
        app.demand =
            Demand { malleability: Malleability::Rigid, max_threads: Some(threads), ..record.demand.clone() };
        // A successor that cannot read it decides again, as long as the program is held.
        if let Err(error) = self.registry.write(record) {
            self.note(error.to_string());
        }
        Some(app.demand.clone())
    }

    /// The word by which a program starts, with what was decided for it.
    pub(super) fn start_word(&mut self, id: AppId) -> FromScheduler {
        let terms = self.live.apps().get(&id).map(|app| app.record.terms.clone()).unwrap_or_default();
        let known = self.engine.apps().iter().find(|app| app.id == id);
        let acts = self.role != Role::Observer && !self.engine.policy().hands_off();
        let passive = known
            .filter(|_| acts && terms.waiting == WaitPolicy::Auto)
            .and_then(|app| nothing_else_helps(self.engine.plan(), app));
        if let Some(why) = &passive {
            self.note(format!("the waiting of {id} is made passive: {why}"));
        }
        self.live.was_let_go(&id, passive.clone());
        FromScheduler::Start { id, threads: terms.threads.filter(|_| terms.narrow.is_some()), passive }
    }
}

/// Why the plan leaves threads of `app` waiting for one another while some of them have no CPU; `None`
/// where it does not, and where they need not run at the same time or follow the plan.
fn nothing_else_helps(plan: &Plan, app: &App) -> Option<String> {
    if app.takes_orders() || !app.demand.coschedule {
        return None;
    }
    let mut runs: Vec<(&Run, bool)> = Vec::new();
    gather(plan.tree.as_ref()?, false, &mut runs);
    let its = runs.iter().filter(|(run, _)| run.app == app.id && run.threads > 1);
    its.clone()
        .find(|(run, _)| run.threads as usize > run.place.len())
        .map(|(run, _)| match run.place.len() {
            1 => format!("it runs {} threads on 1 CPU", run.threads),
            cpus => format!("it runs {} threads on {cpus} CPUs", run.threads),
        })
        .or_else(|| {
            let (run, _) = its.clone().find(|(_, mixed)| *mixed)?;
            let beside = |(other, mixed): &&(&Run, bool)| {
                *mixed && other.app != app.id && other.place.intersects(&run.place)
            };
            let (other, _) = runs.iter().find(beside)?;
            Some(format!("it shares CPUs with {}, and they take no turns", other.app))
        })
}

/// Every run of the tree, and whether it runs mixed with others.
fn gather<'a>(tree: &'a Tree, mixed: bool, runs: &mut Vec<(&'a Run, bool)>) {
    match tree {
        Tree::Run(run) => runs.push((run, mixed)),
        Tree::SideBySide(parts) => parts.iter().for_each(|part| gather(part, mixed, runs)),
        Tree::Mixed { parts, .. } => parts.iter().for_each(|part| gather(part, true, runs)),
        Tree::InTurn { slots, .. } => slots.iter().for_each(|slot| gather(&slot.tree, mixed, runs)),
    }
}

/// The demand of a program that proved rigid last time, where its user says nothing about that.
pub(super) fn as_remembered(demand: &Demand, rigid: Option<u32>) -> Option<Demand> {
    let width = rigid.filter(|width| *width > 1)?;
    let said = demand.max_threads.is_some() || demand.malleability != Malleability::Malleable;
    (!said).then(|| Demand { malleability: Malleability::Rigid, max_threads: Some(width), ..demand.clone() })
}

/// What a narrow start costs that was asked for, for `explain`.
pub(super) fn as_asked(id: &AppId, threads: u32, cpus: u32) -> String {
    let cost = match cpus > threads {
        true => format!(
            ": when its neighbours leave it cannot use the other {}, and may take up to {:.1} times as long as with all",
            cpus - threads,
            f64::from(cpus) / f64::from(threads)
        ),
        false => String::new(),
    };
    format!("{id} was started with {threads} of {cpus} threads, as asked{cost}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_made_passive_only_where_turns_and_places_do_not_help() {
        let why = |plan: &str, app: &str| {
            nothing_else_helps(&plan.parse().unwrap(), &app.parse().unwrap()).unwrap_or_default()
        };
        let rigid = "r rigid max 4 team 4";
        assert_eq!(why("mixed [r on 0-1 x 4]", rigid), "it runs 4 threads on 2 CPUs");
        let shared = "mixed [r on 0-3, s on 0-3]";
        assert_eq!(why(shared, rigid), "it shares CPUs with s, and they take no turns");
        let in_a_slot = "in_turn [20ms a on 0-3, 20ms mixed [r on 0-3, s on 3]]";
        assert_eq!(why(in_a_slot, rigid), "it shares CPUs with s, and they take no turns");
        for (plan, app) in [
            ("r on 0-3", rigid),
            ("in_turn [20ms r on 0-3, 20ms s on 0-3]", rigid),
            ("side_by_side [r on 0-3, mixed [s on 4-5, t on 4-5]]", rigid),
            ("mixed [r on 0-3, s on 4-5, t on 4-5]", rigid),
            // What is told how many threads to have follows the plan, ...
            (shared, "r"),
            (shared, "r max 4"),
            // ... what needs no partner does not wait for one, and a single thread has none.
            (shared, "r rigid max 4 uncoordinated"),
            ("mixed [r on 0 x 1, s on 0 x 1]", "r rigid max 1"),
            ("s on 0-3 waiting [r]", rigid),
        ] {
            assert_eq!(why(plan, app), "", "{plan}: {app}");
        }
    }
}
