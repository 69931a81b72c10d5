//! The steps that a machine goes through as programs come and go.

use std::sync::Arc;

use plan::{App, Plan, Rejection, Report};
use policy::Policy;
use topology::Machine;
use workload::AppId;

use crate::{Engine, Event};

/// Time between two arrivals or ends: longer than hysteresis is usefully set to.
const APART_NS: u64 = 10_000_000_000;

/// A policy that is woken more often than this between two events is not going to settle.
const WAKES: usize = 64;

/// The machine with this many programs, once it has settled.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How many programs there are.
    pub programs: u32,
    /// Whether the number was reached by an arrival (else by an end).
    pub arriving: bool,
    /// The plan in force.
    pub plan: Plan,
    /// What the policy said about it.
    pub report: Report,
    /// Why the policy's own plan is not in force, if so.
    pub rejected: Vec<Rejection>,
}

/// The plans for 1 to `most` malleable programs `a1`, `a2` … that arrive one after another, and for
/// `most - 1` down to 1 as they end in the same order. Programs follow every resize, and the policy
/// is woken when it asks for it, so that each plan is the one that holds when nothing else happens.
pub fn steps(machine: &Arc<Machine>, policy: Box<dyn Policy>, most: u32) -> Vec<Step> {
    let all = machine.all_cpus().clone();
    let mut engine = Engine::new(Arc::clone(machine), all.clone(), all, policy);
    let name = |number: u32| AppId::new(&format!("a{number}")).expect("a letter and a number");
    let arrive =
        |number| (number, true, Event::Arrived(App::new(name(number), u64::from(number) * APART_NS)));
    let leave = |number| (most - number, false, Event::Left(name(number)));
    let events = (1..=most).map(arrive).chain((1..most).map(leave));
    let mut steps = Vec::new();
    for (at, (programs, arriving, event)) in events.enumerate() {
        let now_ns = (at as u64 + 1) * APART_NS;
        engine.handle(now_ns, event);
        settle(&mut engine, now_ns);
        let (plan, report) = (engine.plan().clone(), engine.report().clone());
        let rejected = engine.rejected().to_vec();
        steps.push(Step { programs, arriving, plan, report, rejected });
    }
    steps
}

/// Lets programs follow, and the policy have its second thoughts, until the next event.
fn settle(engine: &mut Engine, now_ns: u64) {
    for _ in 0..WAKES {
        let widths = engine.plan().widths();
        let followed = |app: &App| widths.get(&app.id).map(|&width| App { team: Some(width), ..app.clone() });
        let mut events: Vec<Event> = engine
            .apps()
            .iter()
            .filter_map(|app| followed(app).filter(|now| now != app).map(Event::Observed))
            .collect();
        let wake_at_ns = engine.wake_at_ns().filter(|&at| at < now_ns + APART_NS);
        let at_ns = match wake_at_ns {
            _ if !events.is_empty() => engine.snapshot(now_ns).now_ns,
            Some(at_ns) => at_ns,
            None => return,
        };
        if events.is_empty() {
            events.push(Event::Wake);
        }
        engine.handle_all(at_ns, events);
    }
}
