//! Random programs, machines, schedulers and steps: nothing is lost, nothing is in two places, and
//! all threads end when they are let.

use coplace_bubbles::model::{Item, Model, parse};
use coplace_bubbles::schedulers;
use proptest::prelude::*;
use topology::Machine;

const MACHINES: [&str; 5] =
    ["core:1", "core:2", "pack:2 core:2", "pack:2 [numa] core:3 pu:2", "pack:2 core:2 pu:4"];

/// Programs of up to nine threads in up to four bubbles, nested by chance.
fn program() -> impl Strategy<Value = String> {
    let bubble = prop::sample::select(vec!["", ":machine", ":package", ":core", ":pu", ":2", "/1-2", "^9"]);
    let shape = prop::sample::select(vec![
        "p{}[a b] q{}[c d] t",
        "p{}[a q{}[b c] d^9] t u",
        "p{}[q{}[r{}[a b] c] s{}[d e f]]",
        "a b p{}[]",
    ]);
    (shape, prop::collection::vec(bubble, 4)).prop_map(|(shape, wishes)| {
        wishes.into_iter().fold(shape.to_owned(), |text, wish| text.replacen("{}", wish, 1))
    })
}

fn names(items: &[Item], threads: &mut Vec<String>, bubbles: &mut Vec<String>) {
    for item in items {
        match &item.members {
            None => threads.push(item.name.clone()),
            Some(members) => {
                bubbles.push(item.name.clone());
                names(members, threads, bubbles);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_and_all_threads_end(
        machine in prop::sample::select(MACHINES.to_vec()),
        scheduler in prop::sample::select(schedulers::NAMES.to_vec()),
        text in program(),
        choices in prop::collection::vec((0..12_u8, any::<u8>(), any::<u8>()), 0..60),
    ) {
        let machine = Machine::synthetic(machine).expect("a machine");
        let width = machine.pu_count();
        let program = parse(&text).expect("a program");
        let (mut threads, mut bubbles) = (Vec::new(), Vec::new());
        names(&program, &mut threads, &mut bubbles);
        let all: Vec<String> = threads.iter().chain(&bubbles).cloned().collect();
        let mut model = Model::new(&machine, schedulers::by_name(scheduler).expect("it is known"), &program);
        let mut done = vec!["wake".to_owned()];
        model.step("wake").expect("it can be woken");
        for (what, one, other) in choices {
            let processor = usize::from(one) % width;
            let name = &all[usize::from(one) % all.len()];
            let bubble = &bubbles[usize::from(other) % bubbles.len()];
            let step = match what {
                0..=2 => format!("look {processor}"),
                3 => format!("yield {processor}"),
                4 => format!("block {processor}"),
                5 => format!("end {processor}"),
                6 => format!("wake {}", threads[usize::from(one) % threads.len()]),
                7 => format!("close {bubble}"),
                8 => format!("remove {name}"),
                9 => format!("insert {name} into {bubble}"),
                10 => format!("use {}", schedulers::NAMES[usize::from(other) % schedulers::NAMES.len()]),
                _ => format!("processors {processor} {}", usize::from(other) % width),
            };
            // What cannot be done (nothing runs there, it is in a bubble already) is refused.
            let _ = model.step(&step);
            done.push(step);
            if let Err(wrong) = model.check() {
                prop_assert!(false, "{}\nprogram: {text}\nscheduler: {scheduler}\nsteps: {}\n{}", wrong,
                    done.join("; "), model.placement());
            }
        }
        let everywhere: Vec<String> = (0..width).map(|at| at.to_string()).collect();
        model.step(&format!("processors {}", everywhere.join(" "))).expect("it is a step");
        // What was ended already is woken for nothing, as a thread that never was in a bubble: it is
        // ended once more.
        for _ in 0..threads.len() * 8 {
            for processor in 0..width {
                let _ = model.step(&format!("look {processor}"));
                let _ = model.step(&format!("end {processor}"));
            }
            bubbles.iter().chain(&threads).for_each(|name| {
                let _ = model.step(&format!("wake {name}"));
            });
        }
        for processor in 0..width {
            let _ = model.step(&format!("look {processor}"));
            let _ = model.step(&format!("end {processor}"));
        }
        if let Err(wrong) = model.check() {
            prop_assert!(false, "{wrong}");
        }
    }
}
