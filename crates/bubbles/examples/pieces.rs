//! Pieces of work by threads in two bubbles, for looking at how a program of bubbles follows its partition.
//!
//! `pieces COUNT`: COUNT pieces of about 0.1 ms in all, done by 16 threads. Prints on how many processors
//! pieces were done, and VERIFIED if each was done once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use coplace_bubbles::{Bubble, Builder, Config, processor, run, yield_now};

fn piece(number: u64) -> u64 {
    (0..20_000_u64)
        .fold(number, |value, step| value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step))
}

fn main() {
    let Some(count) = std::env::args().nth(1).and_then(|text| text.parse::<u64>().ok()) else {
        eprintln!("usage: pieces COUNT");
        std::process::exit(2)
    };
    let (next, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let (theirs, total, places) = (next.clone(), sum.clone(), seen.clone());
    let done = run(&Config::default(), move || {
        let all = Bubble::named("all");
        for half in ["left", "right"] {
            let half = Bubble::named(half);
            all.insert_bubble(&half).expect("a new bubble is in none");
            for _ in 0..8 {
                let (next, total, places) = (theirs.clone(), total.clone(), places.clone());
                drop(Builder::new().inside(&half).spawn(move || {
                    let mut here = BTreeSet::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            break;
                        }
                        std::hint::black_box(piece(number));
                        total.fetch_add(number, Ordering::Relaxed);
                        here.insert(processor());
                        yield_now();
                    }
                    places.lock().expect("nobody panics").extend(here);
                }));
            }
        }
        all.wake();
        all.join();
    });
    done.expect("it is no thread of a run");
    println!("{} processors", seen.lock().expect("nobody panics").len());
    let all_once = sum.load(Ordering::Relaxed) == count * count.saturating_sub(1) / 2;
    println!("{}", if all_once { "VERIFIED" } else { "WRONG" });
}
