//! What runs record of themselves, and what comes of it elsewhere.

use std::sync::Arc;
use std::time::Duration;

use coplace_bubbles::trace::{EntityId, Trace, replay};
use coplace_bubbles::*;
use topology::Machine;

/// Threads in bubbles that wait for each other in every way.
fn busy() {
    let all = Bubble::named("all");
    let barrier = Arc::new(Barrier::new(8));
    for name in ["left", "right"] {
        let half = Bubble::named(name);
        half.burst_level(topology::Level::Package);
        all.insert_bubble(&half).expect("it is in none");
        for _ in 0..4 {
            let barrier = barrier.clone();
            drop(Builder::new().inside(&half).spawn(move || {
                for turn in 0..20_u64 {
                    std::hint::black_box((0..2000 * (turn % 3)).sum::<u64>());
                    yield_now();
                    barrier.wait();
                }
            }));
        }
    }
    all.wake();
    sleep(Duration::from_micros(300));
    all.close();
    aside(|| std::thread::sleep(Duration::from_micros(200)));
    let (sender, receiver) = channel(2);
    let sends = spawn(move || (0..50).for_each(|at| sender.send(at).expect("somebody receives")));
    let mut sum = 0;
    while let Some(value) = receiver.receive() {
        sum += value;
    }
    assert_eq!(sum, (0..50).sum());
    sends.join().expect("it ends");
    let parts: Vec<_> = (0..10).map(|at| spawn(move || spawn(move || at).join().expect("it ends"))).collect();
    assert_eq!(parts.into_iter().map(|part| part.join().expect("it ends")).sum::<u64>(), 45);
    all.join();
}

#[test]
fn a_recorded_run_is_replayed_under_every_scheduler() {
    let path = std::env::temp_dir().join(format!("coplace-bubbles-{}.trace", std::process::id()));
    for machine in ["core:1", "pack:2 core:2"] {
        let machine = Machine::synthetic(machine).expect("a machine");
        let config =
            Config { machine: Some(machine.clone()), trace: Some(path.clone()), ..Config::default() };
        run(&config, busy).expect("it runs");
        let text = std::fs::read_to_string(&path).expect("it was written");
        let trace = Trace::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let sum = trace.summary();
        // The first one, eight in bubbles, who sends, and ten with one more each.
        assert_eq!((sum.threads, sum.bubbles, trace.lost), (30, 3, 0));
        assert_eq!(trace.scheduler, "burst");
        assert!(trace.names.iter().any(|(id, name)| matches!(id, EntityId::Bubble(_)) && name == "left"));
        for name in schedulers::NAMES {
            let scheduler = schedulers::by_name(name).expect("it is known");
            let played = replay(&trace, &machine, scheduler)
                .unwrap_or_else(|error| panic!("{name} on {}: {error}\n{text}", machine.name));
            assert_eq!(played.summary().threads, 30, "{name}");
            assert_eq!(Trace::parse(&played.to_string()).as_ref(), Ok(&played), "{name}");
        }
    }
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_wake_up_between_saying_and_waiting_is_not_lost() {
    // The second gives a lock back, on its way off its processor; the first finds that it need not wait.
    let text = "coplace bubbles trace 1\nmachine core:2\nprocessors 2\nscheduler burst\nlost 0\n\
        0 2 0 made t1 7\n0 2 0 wake t1\n1 0 0 run t1\n2 0 1 made t2 7\n3 0 1 wake t2\n4 1 0 run t2\n\
        5 1 2 block\n6 0 1 block\n7 1 2 wake t1\n8 1 2 idle\n8 0 0 run t1\n9 0 1 wake t2\n\
        10 0 1 block\n11 0 1 wake t1\n12 0 1 end\n13 1 0 run t2\n14 1 2 end\n";
    let trace = Trace::parse(text).expect("a trace");
    let machine = Machine::synthetic("core:2").expect("a machine");
    for name in schedulers::NAMES {
        let played = replay(&trace, &machine, schedulers::by_name(name).expect("it is known"));
        assert_eq!(played.map(|played| played.summary().threads), Ok(2), "{name}");
    }
}
