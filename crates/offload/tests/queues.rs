//! Queues under strategies that do anything: no task is lost, none is doubled.

use std::collections::BTreeSet;

use coplace_offload::board::{Board, Overlap, Start};
use coplace_offload::dispatch::{Dispatcher, Event, Note};
use coplace_offload::lua::Script;
use coplace_offload::registry;
use coplace_offload::strategy::{Draft, Occasion, ShortTerm, Strategy};
use coplace_offload::task::{Governor, Kernel, Kind, Resource, ResourceId, Task, TaskId};
use policy::Failed;
use proptest::prelude::*;
use proptest::strategy::Strategy as Drawn;
use topology::CpuSet;

fn gpu() -> Kind {
    Kind::Device("gpu".into())
}

fn resources() -> Vec<Resource> {
    let resource = |name: &str, kind, cores: &[u32]| Resource {
        name: name.to_owned(),
        kind,
        cores: CpuSet::from_cpus(cores),
        threads: cores.len() as f64,
    };
    vec![
        resource("core0", Kind::Core, &[0]),
        resource("core1", Kind::Core, &[1]),
        resource("all-cores", Kind::AllCores, &[0, 1]),
        resource("gpu0", gpu(), &[1]),
    ]
}

fn board(overlap: Overlap) -> Board {
    Board::new(resources(), overlap, Governor::High)
}

/// A task with kernels for the kinds whose bits are set, or for a core if none is.
fn task(kinds: u8) -> Task {
    let all = [gpu(), Kind::AllCores, Kind::Core];
    let chosen = all.iter().enumerate().filter(|(at, _)| kinds & (1 << at) != 0).map(|(_, kind)| kind);
    let mut kernels: Vec<Kernel> =
        chosen.map(|kind| Kernel { on: kind.clone(), expected_ns: None }).collect();
    if kernels.is_empty() {
        kernels.push(Kernel { on: Kind::Core, expected_ns: None });
    }
    Task { program: "p".into(), arrived_ns: 0, kernels }
}

/// Does what a list of numbers says, sensible or not, and fails where one of them is 0.
struct Erratic {
    numbers: Vec<u8>,
    at: usize,
}

impl Erratic {
    fn next(&mut self) -> usize {
        self.at += 1;
        usize::from(self.numbers[self.at % self.numbers.len()])
    }
}

impl Strategy for Erratic {
    fn name(&self) -> &str {
        "erratic"
    }

    fn call(&mut self, draft: &mut Draft, _: Occasion) -> Result<(), Failed> {
        for _ in 0..self.next() % 4 {
            let resource = ResourceId(self.next() % 5);
            let waiting: Vec<TaskId> = draft.board().waiting().collect();
            let queued: Vec<TaskId> = draft.board().queue(resource).collect();
            let pick = self.next();
            // Some of these are refused; that changes nothing.
            let _ = match pick % 3 {
                0 if !queued.is_empty() => draft.withdraw(queued[pick % queued.len()]),
                _ if !waiting.is_empty() => draft.assign(waiting[pick % waiting.len()], resource),
                _ => draft.withdraw(TaskId(pick as u64)),
            };
        }
        if self.next() == 0 { Err(Failed("it fails".into())) } else { Ok(()) }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    End(u8),
    Tick,
    Governor(bool),
    Swap(Vec<u8>),
}

fn step() -> impl Drawn<Value = Step> {
    prop_oneof![
        4 => (0..8_u8).prop_map(Step::Arrive),
        4 => any::<u8>().prop_map(Step::End),
        1 => Just(Step::Tick),
        1 => any::<bool>().prop_map(Step::Governor),
        1 => proptest::collection::vec(any::<u8>(), 1..40).prop_map(Step::Swap),
    ]
}

proptest! {
    #[test]
    fn no_event_loses_or_doubles_a_task(
        steps in proptest::collection::vec(step(), 1..120),
        numbers in proptest::collection::vec(any::<u8>(), 1..60),
        overlap in any::<bool>(),
    ) {
        let overlap = if overlap { Overlap::Allowed } else { Overlap::Refused };
        let mut dispatcher = Dispatcher::new(board(overlap), Box::new(Erratic { numbers, at: 0 }));
        let mut present: BTreeSet<TaskId> = BTreeSet::new();
        let mut begun: BTreeSet<TaskId> = BTreeSet::new();
        let (mut arrived, mut now_ns) = (0, 0);
        for step in steps {
            now_ns += 1;
            let starts: Vec<Start> = match step {
                Step::Arrive(kinds) => {
                    present.insert(TaskId(arrived));
                    arrived += 1;
                    dispatcher.handle(Event::Arrived(task(kinds)), now_ns)
                }
                Step::End(pick) => {
                    // Whatever is there may end: its program may have gone.
                    let Some(id) = present.iter().nth(usize::from(pick) % present.len().max(1)).copied() else {
                        continue;
                    };
                    present.remove(&id);
                    dispatcher.handle(Event::Ended(id), now_ns)
                }
                Step::Tick => dispatcher.handle(Event::Tick, now_ns),
                Step::Governor(low) => {
                    let governor = if low { Governor::Low } else { Governor::High };
                    dispatcher.handle(Event::Governor(governor), now_ns)
                }
                Step::Swap(numbers) => dispatcher.swap(Box::new(Erratic { numbers, at: 0 }), now_ns),
            };
            prop_assert_eq!(dispatcher.board().check(), Ok(()));
            prop_assert_eq!(dispatcher.board().task_count(), present.len());
            for start in starts {
                prop_assert!(begun.insert(start.task), "task {} starts twice", start.task.0);
                let kernel = &dispatcher.board().task(start.task).expect("it is there").kernels[start.rank];
                prop_assert_eq!(&kernel.on, &resources()[start.on.0].kind);
            }
        }
        // Under a strategy that works everything that is left is done.
        let mut starts = dispatcher.swap(Box::new(ShortTerm), now_ns);
        for _ in 0..10_000 {
            let Some((_, id)) = dispatcher.board().all_running().next() else { break };
            prop_assert!(present.remove(&id));
            starts.extend(dispatcher.handle(Event::Ended(id), now_ns));
        }
        prop_assert!(present.is_empty() && dispatcher.board().task_count() == 0, "{present:?} are left");
    }
}

fn script(text: &str) -> Box<Script> {
    Box::new(Script::new("mine.lua", text).unwrap())
}

fn why(text: &str) -> String {
    Script::new("mine.lua", text).err().expect("it is wrong").to_string()
}

/// What a strategy fails at with three tasks.
fn failure(text: &str) -> String {
    let mut dispatcher = Dispatcher::new(board(Overlap::Refused), script(text));
    (0..3).for_each(|_| drop(dispatcher.handle(Event::Arrived(task(7)), 0)));
    assert_eq!(dispatcher.board().check(), Ok(()));
    assert_eq!(dispatcher.strategy().name(), "short-term", "it was replaced");
    assert!(dispatcher.board().all_running().count() > 0, "and the one that replaced it works");
    let notes = dispatcher.take_notes();
    assert_eq!(notes.len(), 1);
    let Note::Replaced { why, .. } = &notes[0];
    why.to_string()
}

#[test]
fn a_failing_strategy_gives_way_to_the_one_before() {
    let idle = script("function resource_free(node, resource) end");
    let mut dispatcher = Dispatcher::new(board(Overlap::Refused), idle);
    assert!(dispatcher.handle(Event::Arrived(task(7)), 0).is_empty());
    let broken = "function task_arrived(node, task)\n  assign(task, node.resources[1])\n  error('no')\nend";
    assert!(dispatcher.swap(script(broken), 1).is_empty());
    // What it did in the call in which it fails is taken back.
    assert!(dispatcher.handle(Event::Arrived(task(7)), 2).is_empty());
    assert_eq!(dispatcher.board().waiting_count(), 2);
    let notes = dispatcher.take_notes();
    let Note::Replaced { strategy, why, by } = &notes[0];
    assert_eq!((strategy.as_str(), by.as_str(), notes.len()), ("mine.lua", "mine.lua", 1));
    assert!(why.to_string().starts_with("mine.lua:3: no"), "{why}");
}

#[test]
fn a_strategy_that_runs_away_is_replaced() {
    let of_call = |body: &str| failure(&format!("function resource_free(node, resource)\n{body}\nend"));
    assert!(of_call("while true do end").contains("instructions"));
    assert!(of_call("local t = {}\nfor at = 1, 1e9 do t[at] = {} end").contains("stopped"));
    assert!(of_call("local s = 'x'\nwhile true do s = s .. s end").contains("stopped"));
}

#[test]
fn what_a_strategy_keeps_counts_against_its_memory() {
    let hoards = "kept = {}\nfunction resource_free(node, resource)\n  for at = 1, 4000 do\n    table.insert(kept, { at })\n  \
                  end\nend";
    let mut dispatcher = Dispatcher::new(board(Overlap::Refused), script(hoards));
    dispatcher.handle(Event::Arrived(task(7)), 0);
    for now_ns in 1..200 {
        dispatcher.handle(Event::Tick, now_ns);
    }
    assert_eq!(dispatcher.strategy().name(), "short-term");
    let tidy = hoards.replace("kept = {}", "kept = nil").replace("  for at", "  kept = {}\n  for at");
    let mut dispatcher = Dispatcher::new(board(Overlap::Refused), script(&tidy));
    dispatcher.handle(Event::Arrived(task(7)), 0);
    for now_ns in 1..400 {
        dispatcher.handle(Event::Tick, now_ns);
    }
    assert_eq!(dispatcher.take_notes(), []);
    assert_eq!(dispatcher.strategy().name(), "mine.lua");
}

#[test]
fn wrong_calls_name_the_line_and_what_is_wrong() {
    let of_call = |body: &str| failure(&format!("function task_arrived(node, task)\n{body}\nend"));
    for (body, expected) in [
        (
            "assign(task, node.resources[1]) assign(task, node.resources[2])",
            "task 0 is not in the global queue",
        ),
        ("assign(task, task)", "assign takes a resource there"),
        ("assign(nil, node.resources[1])", "assign takes a task, not a nil"),
        ("withdraw(task)", "task 0 is in no queue of a resource"),
        ("task:rank_on('GPU')", "'GPU' is no kind of resource"),
        ("io.open('x')", "no 'io' here"),
    ] {
        let why = of_call(body);
        assert!(why.contains("mine.lua:2: ") && why.contains(expected), "{body}: {why}");
    }
    let misfit = "function task_arrived(node, task)\n  for _, resource in ipairs(node.resources) do\n    \
                  if not task:rank_on(resource.kind) then assign(task, resource) end\n  end\nend";
    let mut dispatcher = Dispatcher::new(board(Overlap::Refused), script(misfit));
    dispatcher.handle(Event::Arrived(task(4)), 0);
    let Note::Replaced { why, .. } = &dispatcher.take_notes()[0];
    assert!(why.to_string().contains("task 0 has no kernel for all-cores, which is all-cores"), "{why}");
}

#[test]
fn files_that_are_no_strategy_are_refused() {
    assert!(why("words = 'x'").contains("neither a function task_arrived"));
    assert!(why("resource_free = 3").contains("resource_free is a integer, not a function"));
    assert!(why("function resource_free(node").starts_with("mine.lua:1: "));
    assert!(why("tick_s = 'often'\nfunction resource_free() end").contains("tick_s is to be a number"));
    assert!(why("tick_s = 0\nfunction resource_free() end").contains("at least 0.001 s"));
    assert!(why("tick_s = 0 / 0\nfunction resource_free() end").contains("at least 0.001 s"));
}

#[test]
fn swaps_under_load_lose_no_task() {
    let names = ["short-term", "long-term", "banking", "constraint", "adaptive"];
    let mut dispatcher = Dispatcher::new(board(Overlap::Refused), Box::new(ShortTerm));
    let (mut ended, mut now_ns) = (0, 0);
    for number in 0..1000_u64 {
        now_ns += 10_000_000;
        dispatcher.handle(Event::Arrived(task(7)), now_ns);
        let strategy = registry::strategy(names[number as usize % names.len()], None).unwrap();
        dispatcher.swap(strategy, now_ns);
        let running = dispatcher.board().all_running().next();
        if let Some((_, id)) = running.filter(|_| number % 2 == 0) {
            dispatcher.handle(Event::Ended(id), now_ns);
            ended += 1;
        }
        assert_eq!(dispatcher.board().check(), Ok(()));
    }
    assert_eq!(dispatcher.board().task_count(), 1000 - ended);
    assert_eq!(dispatcher.take_notes(), []);
}

/// Waiting tasks go where they end earliest by what is known; what was learned wrongly shows in that.
#[test]
fn what_ran_before_a_swap_teaches_nothing() {
    const S: u64 = 1_000_000_000;
    let quick = || Task {
        program: "p".into(),
        arrived_ns: 0,
        kernels: vec![
            Kernel { on: gpu(), expected_ns: Some(S) },
            Kernel { on: Kind::Core, expected_ns: Some(10 * S) },
        ],
    };
    let mut dispatcher = Dispatcher::new(board(Overlap::Allowed), Box::new(ShortTerm));
    dispatcher.handle(Event::Arrived(task(1)), 0);
    let (_, first) = dispatcher.board().all_running().next().expect("it runs on the device");
    // An hour later another strategy takes over, and at once the task ends.
    dispatcher.swap(registry::strategy("adaptive", None).unwrap(), 3600 * S);
    dispatcher.handle(Event::Ended(first), 3601 * S);
    let starts = dispatcher.handle(Event::Arrived(quick()), 3602 * S);
    assert_eq!(starts[0].on, ResourceId(3), "the device still counts as fast");
}
