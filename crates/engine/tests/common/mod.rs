//! Tiny policies, and random events, for the engine's tests.

#![allow(dead_code)] // Each test file uses its own part of this.

use std::sync::{Arc, Mutex};

use coplace_engine::{Allowance, Arrival, Entry, Event, MemoryRoom, Recorded, Recorder, uncontrolled};
use plan::{App, Plan, Promise, Report, Run, Slot, Snapshot, Tree, TurnMode, WaitingBound};
use policy::{Decision, Memory, NarrowStart, Policy};
use proptest::prelude::*;
use topology::{CpuSet, Machine};
use workload::{AppId, Malleability};

pub fn id(name: &str) -> AppId {
    AppId::new(name).unwrap()
}

pub fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub fn machine() -> Arc<Machine> {
    Arc::new(Machine::synthetic("pack:2 core:4 pu:1").unwrap())
}

pub fn decision(plan: Plan, memory: Memory) -> Decision {
    Decision { plan, memory, wake_at_ns: None, report: Report::default() }
}

/// Everybody everywhere.
pub struct Everywhere;

impl Policy for Everywhere {
    fn letters(&self) -> &'static str {
        "EV"
    }
    fn words(&self) -> &'static str {
        "everywhere"
    }
    fn promise(&self) -> Promise {
        Promise::default()
    }
    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        decision(uncontrolled(snapshot), memory.clone())
    }
}

/// The first that may run does, with all others that must not be stopped; counts in its memory how
/// often it was asked, and lends the place by that, so that a memory that got lost shows in plans.
pub struct First;

impl Policy for First {
    fn letters(&self) -> &'static str {
        "FI"
    }
    fn words(&self) -> &'static str {
        "first come, first served"
    }
    fn promise(&self) -> Promise {
        Promise { waiting_bound: Some(WaitingBound::EarlierArrivals), ..Promise::default() }
    }
    fn narrow_start(&self, _: &App, snapshot: &Snapshot) -> Option<NarrowStart> {
        let others = snapshot.apps.len() as u32;
        (others > 0).then_some(NarrowStart { threads: 1, of: 4, others, time_milli: 500, alone_milli: 2000 })
    }
    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let mut memory = memory.clone();
        let mut chosen = snapshot.clone();
        let first = snapshot.apps.iter().find(|app| !app.suspended).map(|app| app.id.clone());
        let stays = |app: &App| {
            app.suspended || Some(&app.id) == first.as_ref() || (!app.stoppable && app.team.is_some())
        };
        chosen.apps.retain(stays);
        let mut plan = uncontrolled(&chosen);
        plan.waiting = snapshot.apps.iter().filter(|app| !stays(app)).map(|app| app.id.clone()).collect();
        memory.level.since_ns += 1;
        if let Some(Tree::Run(run)) = &mut plan.tree {
            run.lends = memory.level.since_ns.is_multiple_of(3);
        }
        Decision { wake_at_ns: Some(snapshot.now_ns), ..decision(plan, memory) }
    }
}

/// Returns plans that are wrong in a way that depends on the time alone, and now and then a good one.
pub struct Liar;

impl Policy for Liar {
    fn letters(&self) -> &'static str {
        "LI"
    }
    fn words(&self) -> &'static str {
        "lies"
    }
    fn promise(&self) -> Promise {
        Promise { equal_shapes: true, keeps_cpus: true, ..Promise::default() }
    }
    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let mut memory = memory.clone();
        memory.level.since_ns = u64::MAX;
        let mut plan = uncontrolled(snapshot);
        let first = snapshot.apps.first().map_or_else(|| id("ghost"), |app| app.id.clone());
        let on = |cpus: &str| Tree::Run(Run::new(first.clone(), set(cpus)));
        match snapshot.now_ns % 11 {
            0 => plan = Plan::default(),
            1 => drop(plan.waiting.insert(id("ghost"))),
            2 => drop(plan.suspended.insert(first)),
            3 => plan.tree = Some(on("0")),
            4 => plan.tree = Some(on("900")),
            5 => plan.tree = Some(Tree::SideBySide(vec![on("0-1"), on("1-2")])),
            6 => plan.tree = Some(on("")),
            7 => {
                let slots = vec![Slot { slice_ns: 0, tree: on("0") }, Slot { slice_ns: 1, tree: on("1") }];
                plan.tree = Some(Tree::InTurn { mode: TurnMode::Strict, slots });
            }
            8 => {
                let mut tree = on("0");
                for deep in 0..40 {
                    tree = match deep % 2 {
                        0 => Tree::SideBySide(vec![tree, on("1")]),
                        _ => Tree::InTurn {
                            mode: TurnMode::Filling,
                            slots: vec![Slot { slice_ns: 1, tree: on("2") }, Slot { slice_ns: 5, tree }],
                        },
                    };
                }
                plan.tree = Some(tree);
            }
            9 => {
                plan.tree = plan
                    .tree
                    .map(|tree| Tree::Mixed { owner: [(0, id("ghost"))].into(), parts: vec![tree, on("0")] })
            }
            _ => {}
        }
        Decision { wake_at_ns: Some(0), ..decision(plan, memory) }
    }
}

pub fn by_letters(letters: &str) -> Option<Box<dyn Policy>> {
    match letters {
        "EV" => Some(Box::new(Everywhere)),
        "FI" => Some(Box::new(First)),
        "LI" => Some(Box::new(Liar)),
        _ => None,
    }
}

pub fn any_policy() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["EV", "FI", "LI"])
}

pub fn any_id() -> impl Strategy<Value = AppId> {
    prop::sample::select(vec!["a", "b", "c", "d", "e"]).prop_map(id)
}

pub fn any_cpus() -> impl Strategy<Value = CpuSet> {
    prop::collection::btree_set(0u32..10, 0..8).prop_map(|cpus| cpus.into_iter().collect())
}

pub fn any_app() -> impl Strategy<Value = App> {
    let kind = prop::sample::select(vec![
        Malleability::Rigid,
        Malleability::Moldable,
        Malleability::Malleable,
        Malleability::Evolving,
    ]);
    let threads = || prop::option::of(1u32..12);
    (
        any_id(),
        0u64..50,
        kind,
        1u32..10,
        threads(),
        threads(),
        any::<[bool; 3]>(),
        prop::option::of(any_cpus()),
    )
        .prop_map(|(id, arrived_ns, kind, min, max, team, [passive, stoppable, pinned], within)| {
            let mut app = App::new(id, arrived_ns);
            app.demand.malleability = kind;
            app.demand.min_threads = min;
            app.demand.max_threads = max.map(|max| max.max(min));
            app.team = team;
            app.waits_passively = passive;
            app.stoppable = stoppable;
            app.within = within.filter(|_| pinned);
            app
        })
}

pub fn any_room() -> impl Strategy<Value = MemoryRoom> {
    (0u32..200, prop::collection::btree_map(any_id(), 0u64..10, 0..4))
        .prop_map(|(pressure_milli, left_bytes)| MemoryRoom { pressure_milli, left_bytes })
}

pub fn any_arrival() -> impl Strategy<Value = Arrival> {
    (any_app(), prop::option::of(0u64..12), any::<[bool; 2]>(), any_room()).prop_map(
        |(app, expected_bytes, [may_start_narrow, may_wait_passively], room)| Arrival {
            app,
            expected_bytes,
            may_start_narrow,
            may_wait_passively,
            room,
        },
    )
}

pub fn any_allowance() -> impl Strategy<Value = Allowance> {
    (any_cpus(), prop::option::of(1u32..9000), prop::collection::btree_map(0u32..8, 0u32..1000, 0..8))
        .prop_map(|(allowed, paid_milli_cpus, unmanaged_milli)| Allowance {
            allowed,
            paid_milli_cpus,
            unmanaged_milli,
        })
}

/// Events in the form in which they are recorded; [`event`] makes them happen.
pub fn any_event() -> impl Strategy<Value = Recorded> {
    prop_oneof![
        4 => any_app().prop_map(Recorded::Arrived),
        4 => any_arrival().prop_map(|arrival| Recorded::Came(Box::new(arrival))),
        2 => any_room().prop_map(Recorded::Memory),
        1 => any_allowance().prop_map(Recorded::Allowance),
        2 => any_id().prop_map(Recorded::Left),
        3 => any_app().prop_map(Recorded::Observed),
        1 => any_id().prop_map(Recorded::Suspend),
        1 => any_id().prop_map(Recorded::Resume),
        1 => (any_cpus(), any_cpus()).prop_map(|(allowed, usable)| Recorded::Machine { allowed, usable }),
        1 => (0u64..20_000).prop_map(|average_15min_milli| Recorded::Load { average_15min_milli }),
        1 => any_policy().prop_map(|letters| Recorded::Policy(letters.to_owned())),
        1 => Just(Recorded::Wake),
    ]
}

/// Instants, each with the time since the one before and what happens in it.
pub fn any_history() -> impl Strategy<Value = Vec<(u64, Vec<Recorded>)>> {
    prop::collection::vec((0u64..40, prop::collection::vec(any_event(), 1..4)), 1..30)
}

pub fn event(recorded: &Recorded) -> Event {
    recorded.event(by_letters).unwrap()
}

/// Lines as they are written, to look at afterwards.
#[derive(Clone, Default)]
pub struct Tape(pub Arc<Mutex<Vec<u8>>>);

impl Tape {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
    pub fn entries(&self) -> Vec<Entry> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl std::io::Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A recorder whose disk is full after so many entries.
pub struct Full(pub usize);

impl Recorder for Full {
    fn record(&mut self, _: &Entry) -> std::io::Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(())
    }
}
