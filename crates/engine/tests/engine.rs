//! What the engine does with events, plans good and bad, and actuators that fail.

mod common;

use common::{
    Everywhere, First, Full, Liar, Tape, any_history, any_policy, by_letters, decision, event, id, machine,
    set,
};
use coplace_engine::{
    Actuator, Arrival, Engine, Entry, Event, MemoryRoom, PassiveReason, steps, uncontrolled,
};
use plan::check::Sequence;
use plan::{
    App, AppChange, Change, Limits, Plan, Promise, Rejection, Remark, Snapshot, Violation, check_plan,
};
use policy::{Decision, Memory, Policy};
use proptest::prelude::*;
use workload::Malleability;

fn engine(policy: impl Policy + 'static) -> Engine {
    let machine = machine();
    let all = machine.all_cpus().clone();
    Engine::new(machine, all.clone(), all, Box::new(policy))
}

fn arrived(text: &str) -> Event {
    Event::Arrived(text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_plan_in_force_is_valid_whatever_a_policy_returns(
        policy in any_policy(), history in any_history(),
    ) {
        let machine = machine();
        let all = machine.all_cpus().clone();
        let mut engine = Engine::new(machine, all.clone(), all, by_letters(policy).unwrap());
        let mut states = engine.plan().states();
        let mut now_ns = 0;
        for (later, events) in history {
            now_ns += later;
            let step = engine.handle_all(now_ns, events.iter().map(event).collect());
            let found = check_plan(&step.plan, &engine.snapshot(now_ns), &Promise::default());
            prop_assert_eq!(&found, &vec![], "{}", step.plan);
            step.change.apply(&mut states);
            prop_assert_eq!(&states, &step.plan.states());
            prop_assert!(step.wake_at_ns.is_none_or(|at| at > now_ns));
            prop_assert_eq!(&*step.plan, engine.plan());
            let honest = engine.policy().letters() != "LI";
            prop_assert!(!honest || step.rejected.is_empty(), "{:?}", step.rejected);
        }
    }

    #[test]
    fn the_stand_in_is_valid_for_any_programs_on_any_cpus(history in any_history()) {
        let mut engine = engine(Everywhere);
        for (_, events) in history {
            engine.handle_all(0, events.iter().map(event).collect());
            let snapshot = engine.snapshot(0);
            prop_assert_eq!(check_plan(&uncontrolled(&snapshot), &snapshot, &Promise::default()), vec![]);
        }
    }

    #[test]
    fn waiting_ends_as_promised_over_any_history(history in any_history()) {
        let mut engine = engine(First);
        let mut sequence = Sequence::default();
        for (_, events) in history {
            let events = events.iter().map(event).filter(|event| !matches!(event, Event::Policy(_)));
            let step = engine.handle_all(0, events.collect());
            prop_assert_eq!(&step.complaints, &vec![]);
            let (snapshot, report) = (engine.snapshot(0), Default::default());
            let found = sequence.check_step(&step.plan, &snapshot, &First.promise(), &report);
            prop_assert_eq!(found, vec![]);
        }
    }
}

#[test]
fn an_invalid_plan_is_dropped_for_the_old_valid_one() {
    let mut engine = engine(Everywhere);
    engine.handle(0, arrived("a"));
    let good = engine.handle(1, arrived("b")).plan;
    let step = engine.handle_all(2, vec![Event::Policy(Box::new(Liar))]);
    assert_eq!(step.plan, good);
    assert!(step.change.is_empty());
    assert!(
        step.rejected.iter().any(|why| matches!(why, Rejection::Broken(Violation::SuspendedUnasked { .. })))
    );
    assert_eq!(engine.rejected(), &step.rejected[..]);
    let remarks = &engine.report().remarks;
    assert!(
        matches!(&remarks[..], [Remark::Rejected { policy, .. }, ..] if policy == "lies (LI)"),
        "{remarks:?}"
    );
}

#[test]
fn without_a_valid_old_plan_all_programs_run_unmanaged() {
    let mut engine = engine(First);
    engine.handle(0, arrived("a"));
    let waits = engine.handle(1, arrived("b")).plan;
    assert_eq!(waits.waiting.len(), 1);
    let step = engine.handle_all(4, vec![Event::Policy(Box::new(Liar)), Event::Left(id("a"))]);
    assert_eq!(step.plan.to_string(), "b on 0-7");
    let step = engine.handle(15, arrived("c rigid max 9 arrived 1ns"));
    assert_eq!(step.plan.to_string(), "mixed [b on 0-7, c on 0-7 x 9]");
}

#[test]
fn the_cause_of_an_invalid_plan_is_recorded_once_as_a_case() {
    let tape = Tape::default();
    let mut engine = engine(Liar);
    engine.record_to(Box::new(tape.clone()));
    engine.handle(4, arrived("a"));
    engine.handle(15, Event::Wake);
    let rejected: Vec<Entry> =
        tape.entries().into_iter().filter(|entry| matches!(entry, Entry::Rejected { .. })).collect();
    let [Entry::Rejected { snapshot, plan, why }] = &rejected[..] else { panic!("{rejected:?}") };
    let found = check_plan(plan, snapshot, &Liar.promise());
    assert_eq!(found.into_iter().map(Rejection::Broken).collect::<Vec<_>>(), *why);
    assert_eq!(Liar.decide(snapshot, &Memory::default()).plan, *plan);
}

#[test]
fn another_policy_finds_the_programs_as_they_are() {
    let mut engine = engine(Everywhere);
    engine.handle_all(0, vec![arrived("a team 3"), arrived("b rigid max 2")]);
    let before = engine.apps().to_vec();
    let step = engine.handle(5, Event::Policy(Box::new(First)));
    assert_eq!(engine.apps(), before);
    assert_eq!(step.plan.to_string(), "a on 0-7 waiting [b]");
}

#[test]
fn an_observation_leaves_arrival_suspension_and_membership() {
    let mut engine = engine(Everywhere);
    engine.handle_all(0, vec![arrived("a arrived 5ns"), Event::Suspend(id("a"))]);
    let app: App = "a rigid team 3 arrived 9ns".parse().unwrap();
    let ghost: App = "ghost team 3".parse().unwrap();
    engine.handle_all(1, vec![Event::Observed(app), Event::Observed(ghost), Event::Left(id("nobody"))]);
    assert_eq!(engine.apps(), ["a rigid team 3 arrived 5ns suspended".parse().unwrap()]);
}

#[test]
fn programs_keep_arrival_order_and_a_repeat_is_the_same() {
    let mut engine = engine(Everywhere);
    engine.handle_all(0, vec![arrived("b arrived 7ns"), arrived("a arrived 3ns"), arrived("b arrived 1ns")]);
    let order: Vec<&str> = engine.apps().iter().map(|app| app.id.as_str()).collect();
    assert_eq!(order, ["b", "a"]);
}

#[test]
fn unknown_cpus_and_empty_sets_are_ignored() {
    let mut engine = engine(Everywhere);
    engine.handle(0, Event::Machine { allowed: set("2-90"), usable: set("0-3") });
    let snapshot = engine.snapshot(0);
    assert_eq!((snapshot.allowed, snapshot.usable), (set("2-7"), set("2-3")));
    engine.handle(1, Event::Machine { allowed: set(""), usable: set("0-3") });
    assert_eq!(engine.snapshot(1).allowed, set("2-7"));
    engine.handle(2, Event::Machine { allowed: set("4-5"), usable: set("0-3") });
    assert_eq!(engine.snapshot(2).usable, set("4-5"));
}

#[test]
fn time_that_runs_backwards_stands_still() {
    let mut engine = engine(Everywhere);
    engine.handle(100, arrived("a"));
    engine.handle(50, Event::Wake);
    assert_eq!(engine.snapshot(0).now_ns, 100);
}

#[test]
fn events_of_one_instant_are_decided_about_once() {
    let tape = Tape::default();
    let mut engine = engine(Everywhere);
    engine.record_to(Box::new(tape.clone()));
    engine.handle_all(0, vec![arrived("a"), arrived("b"), Event::Left(id("a"))]);
    let plans = tape.entries().into_iter().filter(|entry| matches!(entry, Entry::Plan { .. })).count();
    assert_eq!(plans, 1);
}

/// Fails so often; keeps what it was told.
struct Shaky {
    failures: u32,
    carried_out: Vec<Change>,
}

impl Actuator for Shaky {
    type Error = &'static str;
    fn carry_out(&mut self, _: &Plan, change: &Change) -> Result<(), &'static str> {
        self.carried_out.push(change.clone());
        if self.failures > 0 {
            self.failures -= 1;
            return Err("shaky");
        }
        Ok(())
    }
}

#[test]
fn a_change_that_failed_is_tried_again() {
    let mut engine = engine(Everywhere);
    let mut shaky = Shaky { failures: 1, carried_out: Vec::new() };
    let (_, done) = engine.run_step(0, vec![arrived("a")], &mut shaky);
    assert_eq!(done, Err("shaky"));
    let (step, done) = engine.run_step(1, vec![Event::Wake], &mut shaky);
    assert_eq!(done, Ok(()));
    assert_eq!(step.change, shaky.carried_out[0]);
    let (step, _) = engine.run_step(2, vec![Event::Wake], &mut shaky);
    assert!(step.change.is_empty());
    assert_eq!(shaky.carried_out.len(), 2, "an actuator is not asked to do nothing");
}

#[test]
fn another_program_of_the_same_name_is_carried_out_anew() {
    let mut engine = engine(Everywhere);
    let mut sure = Shaky { failures: 0, carried_out: Vec::new() };
    let (first, _) = engine.run_step(0, vec![arrived("a")], &mut sure);
    let (step, _) = engine.run_step(1, vec![Event::Left(id("a")), arrived("a arrived 1ns")], &mut sure);
    assert!(!step.replaced, "the plan is the same");
    assert_eq!(step.change, first.change);
    assert!(matches!(step.change.apps[&id("a")][..], [AppChange::Started(_)]));
    assert_eq!(sure.carried_out.len(), 2);
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let mut engine = engine(Everywhere);
    engine.record_to(Box::new(Full(2)));
    engine.handle(0, arrived("a"));
    let step = engine.handle(1, arrived("b"));
    assert_eq!(step.plan.to_string(), "mixed [a on 0-7, b on 0-7]");
    let error = engine.take_recording_error().expect("the disk was full");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(engine.take_recording_error().is_none());
}

#[test]
fn a_plan_that_the_world_cannot_carry_out_is_refused() {
    struct Turns;
    impl Policy for Turns {
        fn letters(&self) -> &'static str {
            "TU"
        }
        fn words(&self) -> &'static str {
            "turns"
        }
        fn promise(&self) -> Promise {
            Promise::default()
        }
        fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
            let text = if snapshot.apps.len() < 2 { "a on 0" } else { "in_turn [a on 0, b on 0]" };
            decision(text.parse().unwrap(), memory.clone())
        }
    }
    let mut able = engine(Turns);
    able.handle(0, arrived("a"));
    assert!(able.handle(0, arrived("b")).rejected.is_empty());
    let mut unable = engine(Turns).with_limits(Limits { in_turn: false, ..Limits::default() });
    unable.handle(0, arrived("a"));
    let step = unable.handle(0, arrived("b"));
    assert_eq!(step.rejected, [Rejection::Refused(plan::Refusal::NoTurns)]);
    assert_eq!(step.plan.to_string(), "mixed [a on 0-7, b on 0-7]");
}

#[test]
fn steps_go_up_to_the_number_and_down_again() {
    let steps = steps(&machine(), Box::new(First), 3);
    let shown: Vec<(u32, bool)> = steps.iter().map(|step| (step.programs, step.arriving)).collect();
    assert_eq!(shown, [(1, true), (2, true), (3, true), (2, false), (1, false)]);
    assert!(steps[2].plan.to_string().ends_with("waiting [a2, a3]"));
    assert_eq!(steps[4].plan.apps().into_iter().collect::<Vec<_>>(), [&id("a3")]);
}

/// Decides as `First` does, but fails where it sees two programs.
struct FailsAtTwo;

impl Policy for FailsAtTwo {
    fn letters(&self) -> &str {
        "mine.lua"
    }
    fn words(&self) -> &str {
        "mine"
    }
    fn promise(&self) -> Promise {
        Promise::default()
    }
    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        First.decide(snapshot, memory)
    }
    fn try_decide(&self, snapshot: &Snapshot, memory: &Memory) -> Result<Decision, policy::Failed> {
        match snapshot.apps.len() {
            2 => Err(policy::Failed("mine.lua:7: two".into())),
            _ => Ok(self.decide(snapshot, memory)),
        }
    }
}

#[test]
fn a_failing_policy_leaves_the_plan_and_its_memory() {
    let (mut failing, mut steady) = (engine(FailsAtTwo), engine(First));
    let tape = Tape::default();
    failing.record_to(Box::new(tape.clone()));
    steady.handle(0, arrived("a"));
    failing.handle(0, arrived("a"));
    let step = failing.handle(1, arrived("b"));
    assert_eq!(step.rejected, [Rejection::Failed("mine.lua:7: two".into())]);
    assert_eq!(step.plan.to_string(), "mixed [a on 0-7, b on 0-7]");
    assert_eq!(step.report.lines(), ["mine (mine.lua) came to no plan: mine.lua:7: two"]);
    assert_eq!(step.wake_at_ns, None);
    let left = |engine: &mut Engine| engine.handle(2, Event::Left(id("b"))).plan;
    assert_eq!(left(&mut failing), left(&mut steady), "First counts in its memory how often it has decided");
    let rejected = tape.entries().into_iter().filter(|entry| matches!(entry, Entry::Rejected { .. }));
    assert_eq!(rejected.count(), 1);
}

#[test]
fn recorders_begin_separately_and_survive_one_that_fails() {
    let mut engine = engine(Everywhere);
    let (first, second) = (Tape::default(), Tape::default());
    engine.record_to(Box::new(first.clone()));
    engine.handle(0, arrived("a"));
    engine.record_to(Box::new(Full(1)));
    engine.record_to(Box::new(second.clone()));
    engine.handle(1, arrived("b"));
    assert!(engine.take_recording_error().is_some());
    assert_eq!(first.entries().len(), 5, "a beginning, two events and two plans");
    assert!(matches!(&second.entries()[0], Entry::Begin { snapshot, .. } if snapshot.apps.len() == 1));
    assert_eq!(second.entries()[1..], first.entries()[3..]);
}

fn held(app: &str, expected_bytes: Option<u64>, left_bytes: u64) -> Event {
    let app: App = app.parse().unwrap();
    let room = MemoryRoom { pressure_milli: 0, left_bytes: [(app.id.clone(), left_bytes)].into() };
    Event::Came(Box::new(Arrival {
        app,
        expected_bytes,
        may_start_narrow: true,
        may_wait_passively: true,
        room,
    }))
}

#[test]
fn a_held_program_is_admitted_once_its_memory_is_there() {
    let mut engine = engine(Everywhere);
    engine.handle(0, held("a", Some(9), 1));
    let step = engine.handle(1, held("b", Some(9), 1));
    assert_eq!(step.starts.queued.keys().collect::<Vec<_>>(), [&id("b")]);
    assert_eq!(step.plan.to_string(), "a on 0-7", "the policy knows nothing of it");
    let room = |left| MemoryRoom { pressure_milli: 0, left_bytes: [(id("b"), left)].into() };
    assert_eq!(engine.shortages(&room(8)).len(), 1);
    assert!(engine.shortages(&room(9)).is_empty());
    assert!(engine.handle(2, Event::Memory(room(8))).starts.is_empty());
    let step = engine.handle(3, Event::Memory(room(9)));
    assert!(step.starts.admitted[0].queued && step.starts.let_go.contains_key(&id("b")), "{:?}", step.starts);
    assert_eq!(engine.queue().count(), 0);
}

#[test]
fn the_policy_starts_a_program_narrow_where_others_run() {
    let mut engine = engine(First);
    assert_eq!(engine.handle(0, held("a", None, 0)).starts.admitted[0].narrow, None);
    let step = engine.handle(1, held("b min 2 max 4", None, 0));
    assert_eq!(step.starts.admitted[0].narrow.as_ref().map(|start| start.threads), Some(1));
    let demand = &engine.apps()[1].demand;
    assert_eq!(
        (demand.malleability, demand.min_threads, demand.max_threads),
        (Malleability::Rigid, 1, Some(1))
    );
    assert!(step.starts.let_go.is_empty(), "First has it wait");
    let step = engine.handle(2, Event::Left(id("a")));
    assert_eq!(step.starts.let_go.keys().collect::<Vec<_>>(), [&id("b")]);
}

#[test]
fn a_program_that_shares_cpus_without_turns_waits_passively() {
    let mut engine = engine(Everywhere);
    engine.handle(0, arrived("a rigid max 8"));
    let step = engine.handle(1, held("b rigid max 8", None, 0));
    let reason = PassiveReason::SharesWith { app: id("a") };
    assert_eq!(step.starts.let_go, [(id("b"), Some(reason))].into());
}

#[test]
fn an_observer_neither_holds_programs_nor_sets_their_waiting() {
    let mut engine = engine(First).observing(true);
    engine.handle(0, arrived("a rigid max 8"));
    let step = engine.handle(1, held("b rigid max 8", None, 0));
    assert_eq!(step.starts.admitted[0].narrow, None);
    assert_eq!(step.starts.let_go, [(id("b"), None)].into());
}
