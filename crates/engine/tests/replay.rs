//! A recorded run, played again.

mod common;

use common::{Everywhere, Tape, any_history, any_policy, by_letters, event, machine, set};
use std::sync::Arc;

use coplace_engine::trace::{ReplayError, Replayed, replay};
use coplace_engine::{Engine, Event};
use plan::Limits;
use policy::Settings;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_recorded_run_replays_to_the_same_plans(
        policy in any_policy(), history in any_history(), late in 0usize..30,
    ) {
        let (machine, tape) = (machine(), Tape::default());
        let limits = Limits { shortest_slice_ns: 5_000_000, ..Limits::default() };
        let mut engine = Engine::new(machine, set("0-6"), set("1-6"), by_letters(policy).unwrap()).with_limits(limits);
        let mut plans = Vec::new();
        let mut now_ns = 0;
        for (at, (later, events)) in history.iter().enumerate() {
            // Recording may begin at any time.
            if at == late.min(history.len() - 1) {
                engine.record_to(Box::new(tape.clone()));
                plans.clear();
            }
            now_ns += later;
            let step = engine.handle_all(now_ns, events.iter().map(event).collect());
            plans.push((now_ns, step.plan, step.starts));
        }
        let replayed = replay(&tape.text(), |letters, _| by_letters(letters)).unwrap();
        prop_assert!(!replayed.iter().any(Replayed::differs));
        let again = replayed.into_iter().map(|step| (step.now_ns, Arc::new(step.again.plan), step.again.starts));
        let again: Vec<_> = again.collect();
        prop_assert_eq!(again, plans);
    }
}

#[test]
fn a_trace_of_another_policy_differs() {
    let tape = Tape::default();
    let mut engine = Engine::new(machine(), set("0-7"), set("0-7"), Box::new(Everywhere));
    engine.record_to(Box::new(tape.clone()));
    engine.handle(0, Event::Arrived("a".parse().unwrap()));
    engine.handle(1, Event::Arrived("b".parse().unwrap()));
    let replayed = replay(&tape.text(), |_, _| by_letters("FI")).unwrap();
    assert!(!replayed[0].differs() && replayed[1].differs());
}

#[test]
fn a_broken_trace_is_refused_with_its_line() {
    let tape = Tape::default();
    let mut engine = Engine::new(machine(), set("0-7"), set("0-7"), Box::new(Everywhere));
    engine.record_to(Box::new(tape.clone()));
    engine.handle(0, Event::Arrived("a".parse().unwrap()));
    let text = tape.text();
    let broken = format!("{text}{{\"plan\":");
    assert!(matches!(
        replay(&broken, |letters, _| by_letters(letters)),
        Err(ReplayError::Line { line: 4, .. })
    ));
    let headless: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert_eq!(
        replay(&headless, |letters, _| by_letters(letters)),
        Err(ReplayError::NoBeginning { line: 1 })
    );
    assert!(
        matches!(replay(&text, |_, _| None), Err(ReplayError::Line { line: 1, why }) if why.contains("EV"))
    );
}

#[test]
fn policies_are_made_again_with_the_settings_that_they_had() {
    let tape = Tape::default();
    let settings = Settings { slice_ns: 7, ..Settings::default() };
    let mut engine =
        Engine::new(machine(), set("0-7"), set("0-7"), Box::new(Everywhere)).with_settings(settings.clone());
    engine.record_to(Box::new(tape.clone()));
    engine.handle(0, Event::Policy(by_letters("FI").unwrap()));
    engine.set_settings(Settings::default());
    engine.handle(1, Event::Policy(by_letters("EV").unwrap()));
    let asked = std::cell::RefCell::new(Vec::new());
    let make = |letters: &str, settings: &Settings| {
        asked.borrow_mut().push((letters.to_owned(), settings.clone()));
        by_letters(letters)
    };
    replay(&tape.text(), make).unwrap();
    assert_eq!(
        asked.into_inner(),
        [
            ("EV".to_owned(), settings.clone()),
            ("FI".to_owned(), settings),
            ("EV".to_owned(), Settings::default()),
        ]
    );
}
