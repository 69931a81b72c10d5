//! Many threads. These take memory and time, and so each is a test of its own that runs alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coplace_bubbles::*;
use topology::Machine;

fn two() -> Config {
    let machine = Machine::synthetic("core:2").expect("a machine");
    Config { machine: Some(machine), ..Config::default() }
}

#[test]
fn a_million_threads_are_made_before_one_of_them_runs() {
    const COUNT: usize = 1_000_000;
    let sum = run(&two(), || {
        let bubble = Bubble::new();
        let sum = Arc::new(AtomicUsize::new(0));
        for at in 0..COUNT {
            let sum = sum.clone();
            drop(Builder::new().inside(&bubble).spawn(move || {
                sum.fetch_add(at, Ordering::Relaxed);
            }));
        }
        assert_eq!(sum.load(Ordering::SeqCst), 0);
        bubble.wake();
        bubble.join();
        sum.load(Ordering::SeqCst)
    });
    assert_eq!(sum.expect("it runs"), COUNT * (COUNT - 1) / 2);
}

#[test]
fn thirty_thousand_wait_in_mid_run_with_guard_pages() {
    const COUNT: usize = 30_000;
    run(&two(), || {
        let (here, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let threads: Vec<_> = (0..COUNT)
            .map(|at| {
                let (here, gate) = (here.clone(), gate.clone());
                spawn(move || {
                    let kept = [at; 64];
                    here.release();
                    gate.acquire();
                    std::hint::black_box(kept)[at % 64]
                })
            })
            .collect();
        (0..COUNT).for_each(|_| here.acquire());
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux").lines().count();
        println!("{maps} mappings with {COUNT} threads in mid-run");
        (0..COUNT).for_each(|_| gate.release());
        for (at, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().expect("it ends"), at);
        }
    })
    .expect("it runs");
}

#[test]
fn ten_thousand_threads_run_on_while_processors_go_and_come() {
    const COUNT: usize = 10_000;
    run(&two(), || {
        let turns = Arc::new(AtomicUsize::new(0));
        let bubble = Bubble::new();
        for _ in 0..COUNT {
            let turns = turns.clone();
            drop(Builder::new().inside(&bubble).spawn(move || {
                for _ in 0..50 {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            }));
        }
        bubble.wake();
        for left in [&[0][..], &[0, 1], &[1], &[0, 1]].into_iter().cycle().take(12) {
            assert!(set_processors(left));
            let began = Instant::now();
            yield_now();
            assert!(left.contains(&processor()), "at its next turn a thread is where it may be");
            sleep(Duration::from_millis(2));
            println!("{left:?}: the caller's next turn came after {:?}", began.elapsed());
        }
        bubble.join();
        assert_eq!(turns.load(Ordering::SeqCst), 50 * COUNT);
    })
    .expect("it runs");
}

#[test]
fn a_thread_that_overflows_its_stack_is_named() {
    if std::env::var_os("COPLACE_OVERFLOW").is_some() {
        #[allow(unconditional_recursion)]
        fn deeper(at: &[u8; 512]) -> u8 {
            let mut here = [at[0]; 512];
            here[1] = deeper(std::hint::black_box(&here));
            std::hint::black_box(here)[1]
        }
        let _ = run(&two(), || Builder::new().name("too deep").spawn(|| deeper(&[1; 512])).join());
        unreachable!("it ends the program");
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_thread_that_overflows_its_stack_is_named", "--nocapture"])
        .env("COPLACE_OVERFLOW", "1")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("thread 'too deep' has overflowed its stack of 124 KiB"), "{text}");
}
