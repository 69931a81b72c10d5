//! Threads that really run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coplace_bubbles::schedulers;
use coplace_bubbles::*;
use topology::Machine;

/// As many workers as the text says, wherever the kernel has them.
fn on(machine: &str) -> Config {
    Config { machine: Some(Machine::synthetic(machine).expect("a machine")), ..Config::default() }
}

/// Adds up what lies between, each half in a thread of its own, one of which waits a little.
fn sum(from: u64, to: u64) -> u64 {
    if to - from < 4 {
        yield_now();
        return (from..to).sum();
    }
    let middle = from.midpoint(to);
    let halves = [(from, middle), (middle, to)].map(|(from, to)| spawn(move || sum(from, to)));
    halves.map(|half| half.join().expect("it does not panic")).iter().sum()
}

#[test]
fn a_tree_of_threads_gives_its_sum_under_every_scheduler() {
    for machine in ["core:1", "core:2", "pack:2 core:2", "pack:2 [numa] core:2 pu:2"] {
        for scheduler in schedulers::NAMES {
            let scheduler = schedulers::by_name(scheduler).expect("it is known");
            let sum = run(&Config { scheduler, ..on(machine) }, || sum(0, 1000)).expect("it runs");
            assert_eq!(sum, 499_500, "{machine}, {}", scheduler.name());
        }
    }
}

#[test]
fn results_panics_and_large_values_come_back() {
    run(&on("core:2"), || {
        assert_eq!(spawn(|| "text".to_owned()).join().expect("a result"), "text");
        assert_eq!(spawn(|| [7_u64; 100]).join().expect("a result")[99], 7);
        let large = [3_u8; 500];
        assert_eq!(spawn(move || large.len()).join().expect("a result"), 500);
        std::panic::set_hook(Box::new(|_| {}));
        let error = spawn(|| panic!("on purpose")).join().expect_err("it panicked");
        let _ = std::panic::take_hook();
        match error {
            JoinError::Panicked(what) => assert_eq!(what.downcast_ref(), Some(&"on purpose")),
            JoinError::Cancelled => panic!("nobody cancelled it"),
        }
    })
    .expect("it runs");
}

#[test]
fn detached_threads_end_before_run_comes_back() {
    let ended = Arc::new(AtomicUsize::new(0));
    let observed = ended.clone();
    run(&on("core:2"), move || {
        for _ in 0..1000 {
            let ended = ended.clone();
            drop(spawn(move || {
                yield_now();
                ended.fetch_add(1, Ordering::SeqCst);
            }));
        }
    })
    .expect("it runs");
    assert_eq!(observed.load(Ordering::SeqCst), 1000);
    assert_eq!(Arc::strong_count(&observed), 1, "what threads held is dropped");
}

#[test]
fn threads_of_one_processor_take_turns() {
    let log = run(&on("core:1"), || {
        let log = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let log = log.clone();
                spawn(move || {
                    for _ in 0..3 {
                        log.lock().push(number);
                        yield_now();
                    }
                })
            })
            .collect();
        // Joining runs the first at once; the others follow in their order.
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        Arc::try_unwrap(log).ok().expect("nobody else has it").into_inner()
    });
    assert_eq!(log.expect("it runs"), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn yield_to_lets_the_named_one_run_next() {
    let log = run(&on("core:1"), || {
        let log = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let log = log.clone();
                spawn(move || log.lock().push(number))
            })
            .collect();
        yield_to(threads[2].id());
        assert_eq!(log.lock()[0], 2);
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        Arc::try_unwrap(log).ok().expect("nobody else has it").into_inner()
    });
    assert_eq!(log.expect("it runs").len(), 4);
}

#[test]
fn an_unpark_before_park_is_kept_once() {
    run(&on("core:1"), || {
        ThreadId::current().unpark();
        ThreadId::current().unpark();
        park();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let me = ThreadId::current();
        let other = {
            let order = order.clone();
            spawn(move || {
                order.lock().expect("nobody panics").push("unparks");
                me.unpark();
            })
        };
        // The second one gave no further permit.
        park();
        order.lock().expect("nobody panics").push("goes on");
        other.join().expect("it ends");
        assert_eq!(*order.lock().expect("nobody panics"), ["unparks", "goes on"]);
    })
    .expect("it runs");
}

#[test]
fn parked_threads_hand_a_value_on_and_lose_no_wake_up() {
    const ROUNDS: usize = 20_000;
    for machine in ["core:1", "core:2", "pack:2 core:2"] {
        run(&on(machine), || {
            // Whose turn it is; each waits for its own.
            let turn = Arc::new(AtomicUsize::new(0));
            let ids: Arc<std::sync::Mutex<Vec<ThreadId>>> = Arc::default();
            let threads: Vec<JoinHandle<()>> = (0..3)
                .map(|own| {
                    let (turn, ids) = (turn.clone(), ids.clone());
                    Builder::new().dormant().spawn(move || {
                        let next = ids.lock().expect("nobody panics")[(own + 1) % 3];
                        for round in 0..ROUNDS {
                            while turn.load(Ordering::Relaxed) != 3 * round + own {
                                park();
                            }
                            turn.store(3 * round + own + 1, Ordering::Relaxed);
                            next.unpark();
                        }
                    })
                })
                .collect();
            *ids.lock().expect("nobody panics") = threads.iter().map(JoinHandle::id).collect();
            threads.iter().for_each(JoinHandle::wake);
            for thread in threads {
                thread.join().expect("it ends");
            }
            assert_eq!(turn.load(Ordering::Relaxed), 3 * ROUNDS, "{machine}");
        })
        .expect("it runs");
    }
}

#[test]
fn a_thread_that_was_cancelled_ends_when_it_is_unparked() {
    run(&on("core:2"), || {
        let thread = spawn(park);
        thread.cancel();
        thread.unpark();
        assert!(matches!(thread.join(), Err(JoinError::Cancelled)));
        let ended = spawn(ThreadId::current).join().expect("it ends");
        ended.unpark();
    })
    .expect("it runs");
}

#[test]
fn a_cancelled_thread_unwinds_at_its_next_cancellation_point() {
    struct Mark(Arc<AtomicBool>);
    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    run(&on("core:2"), || {
        let dropped = Arc::new(AtomicBool::new(false));
        let mark = Mark(dropped.clone());
        let thread = spawn(move || {
            let _mark = mark;
            loop {
                yield_now();
            }
        });
        yield_now();
        thread.cancel();
        assert!(matches!(thread.join(), Err(JoinError::Cancelled)));
        assert!(dropped.load(Ordering::SeqCst));
    })
    .expect("it runs");
}

#[test]
fn a_mutex_excludes_and_a_condition_variable_wakes() {
    for machine in ["core:1", "core:4"] {
        run(&on(machine), || {
            let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
            let threads: Vec<_> = (0..20)
                .map(|number| {
                    let shared = shared.clone();
                    spawn(move || {
                        for turn in 0..200 {
                            let mut value = shared.0.lock();
                            let before = *value;
                            if (turn + number) % 7 == 0 {
                                yield_now();
                            }
                            *value = before + 1;
                            drop(value);
                            shared.1.notify_all();
                        }
                    })
                })
                .collect();
            let all = shared.1.wait_while(shared.0.lock(), |value| *value < 4000);
            assert_eq!(*all, 4000);
            drop(all);
            threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        })
        .expect("it runs");
    }
}

#[test]
fn semaphores_barriers_and_channels_keep_their_contract() {
    for machine in ["core:1", "core:3"] {
        run(&on(machine), || {
            let inside = Arc::new((Semaphore::new(2), AtomicU32::new(0), Barrier::new(8)));
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let inside = inside.clone();
                    spawn(move || {
                        for _ in 0..50 {
                            inside.0.acquire();
                            assert!(inside.1.fetch_add(1, Ordering::SeqCst) < 2);
                            yield_now();
                            inside.1.fetch_sub(1, Ordering::SeqCst);
                            inside.0.release();
                        }
                        (0..10).map(|_| u32::from(inside.2.wait())).sum::<u32>()
                    })
                })
                .collect();
            let last: u32 = threads.into_iter().map(|thread| thread.join().expect("it ends")).sum();
            assert_eq!(last, 10, "one of the eight is the last, ten times");

            let (sender, receiver) = channel(3);
            let senders: Vec<_> = (0..4_u64)
                .map(|number| {
                    let sender = sender.clone();
                    spawn(move || (0..100).for_each(|at| sender.send(number * 100 + at).expect("received")))
                })
                .collect();
            drop(sender);
            let mut sum = 0;
            while let Some(value) = receiver.receive() {
                sum += value;
            }
            assert_eq!(sum, (0..400).sum());
            senders.into_iter().for_each(|thread| thread.join().expect("it ends"));
            let (sender, receiver) = channel(1);
            drop(receiver);
            assert_eq!(sender.send(5), Err(5));
        })
        .expect("it runs");
    }
}

#[test]
fn calls_that_block_the_kernel_run_aside() {
    run(&on("core:1"), || {
        // Each waits, by the kernel's means, until all ten do.
        let here = Arc::new((std::sync::Mutex::new(0), std::sync::Condvar::new()));
        let wait = |here: Arc<(std::sync::Mutex<i32>, std::sync::Condvar)>| {
            let mut count = here.0.lock().unwrap();
            *count += 1;
            here.1.notify_all();
            let all = here.1.wait_timeout_while(count, Duration::from_secs(60), |count| *count < 10);
            !all.unwrap().1.timed_out()
        };
        let threads: Vec<_> = (0..10)
            .map(|_| {
                let here = here.clone();
                spawn(move || aside(move || wait(here)))
            })
            .collect();
        for thread in threads {
            assert!(thread.join().expect("it ends"), "they wait at the same time");
        }
        let began = Instant::now();
        sleep(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert_eq!(aside(|| 5), 5);
    })
    .expect("it runs");
}

#[test]
fn a_woken_bubble_releases_early_and_late_threads() {
    for machine in ["core:1", "pack:2 core:2"] {
        for scheduler in schedulers::NAMES {
            let scheduler = schedulers::by_name(scheduler).expect("it is known");
            run(&Config { scheduler, ..on(machine) }, || {
                let count = Arc::new(AtomicUsize::new(0));
                let outer = Bubble::named("outer");
                let inner = Bubble::new();
                outer.insert_bubble(&inner).expect("it is in none");
                let make = |bubble| {
                    let count = count.clone();
                    drop(Builder::new().inside(bubble).spawn(move || {
                        yield_now();
                        count.fetch_add(1, Ordering::SeqCst);
                    }));
                };
                (0..20).for_each(|_| make(&inner));
                assert!(!outer.is_over());
                outer.wake();
                (0..20).for_each(|_| make(&outer));
                (0..20).for_each(|_| make(&inner));
                outer.join();
                assert_eq!(count.load(Ordering::SeqCst), 60);
                assert!(outer.is_over());
            })
            .expect("it runs");
        }
    }
}

#[test]
fn bubbles_that_close_again_and_again_lose_nobody() {
    for machine in ["core:1", "pack:2 core:2"] {
        run(&on(machine), || {
            let outer = Bubble::new();
            outer.burst_level(topology::Level::Node);
            let halves = [Bubble::new(), Bubble::new()];
            let turns = Arc::new(AtomicUsize::new(0));
            // Two hundred turns take less time than the kernel may keep the thread that closes
            // waiting, so nobody ends before it has closed often enough.
            let enough = Arc::new(AtomicBool::new(false));
            for half in &halves {
                outer.insert_bubble(half).expect("it is in none");
                for _ in 0..10 {
                    let (turns, enough) = (turns.clone(), enough.clone());
                    drop(Builder::new().inside(half).spawn(move || {
                        for _ in 0..200 {
                            turns.fetch_add(1, Ordering::Relaxed);
                            yield_now();
                        }
                        while !enough.load(Ordering::Relaxed) {
                            yield_now();
                        }
                    }));
                }
            }
            outer.wake();
            let patience = Instant::now() + Duration::from_secs(60);
            let mut closed = 0;
            while !outer.is_over() {
                closed += usize::from(outer.close()) + usize::from(halves[closed % 2].close());
                enough.store(closed >= 100 || Instant::now() > patience, Ordering::Relaxed);
                yield_now();
            }
            assert_eq!(turns.load(Ordering::SeqCst), 4000);
            assert!(closed >= 100, "closed {closed} times in a minute");
        })
        .expect("it runs");
    }
}

#[test]
fn a_bubble_with_a_slice_closes_by_itself() {
    run(&on("core:2"), || {
        let bubble = Bubble::new();
        bubble.slice_ns(1_000_000);
        let until = Instant::now() + Duration::from_millis(30);
        for _ in 0..4 {
            drop(Builder::new().inside(&bubble).spawn(move || {
                while Instant::now() < until {
                    yield_now();
                }
            }));
        }
        bubble.wake();
        bubble.join();
    })
    .expect("it runs");
}

#[test]
fn a_thread_without_yields_is_preempted_if_its_bubble_allows() {
    run(&on("core:1"), || {
        let bubble = Bubble::new();
        bubble.slice_ns(2_000_000).preempt(true);
        let stop = Arc::new(AtomicBool::new(false));
        let observed = stop.clone();
        drop(Builder::new().inside(&bubble).spawn(move || {
            while !observed.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }));
        drop(Builder::new().inside(&bubble).spawn(move || stop.store(true, Ordering::Relaxed)));
        bubble.wake();
        bubble.join();
    })
    .expect("it runs");
}

#[test]
fn processors_go_and_come_back_while_threads_run() {
    for scheduler in schedulers::NAMES {
        let scheduler = schedulers::by_name(scheduler).expect("it is known");
        run(&Config { scheduler, ..on("core:2") }, || {
            let turns = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..200)
                .map(|_| {
                    let turns = turns.clone();
                    spawn(move || {
                        for _ in 0..50 {
                            turns.fetch_add(1, Ordering::Relaxed);
                            yield_now();
                        }
                    })
                })
                .collect();
            for left in [&[0][..], &[0, 1], &[1], &[0, 1], &[0], &[1]] {
                assert!(set_processors(left));
                yield_now();
                assert!(left.contains(&processor()), "the change holds after the next turn");
            }
            threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
            assert!(!set_processors(&[]) && !set_processors(&[7]));
            assert_eq!(turns.load(Ordering::SeqCst), 10_000);
        })
        .expect("it runs");
    }
}

#[test]
fn schedulers_are_exchanged_while_threads_run() {
    run(&on("pack:2 core:2"), || {
        let bubble = Bubble::new();
        let turns = Arc::new(AtomicUsize::new(0));
        for _ in 0..40 {
            let turns = turns.clone();
            drop(Builder::new().inside(&bubble).spawn(move || {
                for _ in 0..100 {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            }));
        }
        bubble.wake();
        for name in schedulers::NAMES.iter().cycle().take(40) {
            use_scheduler(schedulers::by_name(name).expect("it is known"));
            yield_now();
        }
        bubble.join();
        assert_eq!(turns.load(Ordering::SeqCst), 4000);
    })
    .expect("it runs");
}

#[test]
fn each_thread_has_its_own_local_values_and_drops_them() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Value(u32);
    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    static LOCAL: Local<std::cell::RefCell<Value>> = Local::new(|| std::cell::RefCell::new(Value(0)));
    run(&on("core:2"), || {
        let threads: Vec<_> = (0..100)
            .map(|number| {
                spawn(move || {
                    LOCAL.with(|local| local.borrow_mut().0 = number);
                    yield_now();
                    LOCAL.with(|local| local.borrow().0)
                })
            })
            .collect();
        for (number, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().expect("it ends"), number as u32);
        }
    })
    .expect("it runs");
    assert_eq!(DROPPED.load(Ordering::SeqCst), 100);
}

#[test]
fn run_within_run_is_refused_and_outside_of_it_nothing_works() {
    assert!(run(&on("core:1"), || run(&on("core:1"), || ())).expect("it runs").is_err());
    std::panic::set_hook(Box::new(|_| {}));
    let outside = std::panic::catch_unwind(|| drop(spawn(|| ())));
    let _ = std::panic::take_hook();
    assert!(outside.is_err());
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn joined_work_gives_its_result_under_every_scheduler() {
    for machine in ["core:1", "core:2", "pack:2 core:2"] {
        for scheduler in schedulers::NAMES {
            let scheduler = schedulers::by_name(scheduler).expect("it is known");
            let found = run(&Config { scheduler, ..on(machine) }, || {
                // Others come and go meanwhile, and one of the two waits.
                let other = spawn(|| (0..100).for_each(|_| yield_now()));
                let (a, b) = join(|| fib(18), || (yield_now(), fib(17)).1);
                other.join().expect("it ends");
                a + b
            });
            assert_eq!(found.expect("it runs"), 2584 + 1597, "{machine} {}", scheduler.name());
        }
    }
}

#[test]
fn joined_work_becomes_a_thread_only_for_an_idle_processor() {
    let created = run(&on("core:1"), || (fib(20), statistics().created).1).expect("it runs");
    assert_eq!(created, 1, "nobody else is there");
    let created = run(&on("core:2"), || {
        let began = Instant::now();
        while statistics().created == 1 && began.elapsed() < Duration::from_secs(60) {
            fib(20);
        }
        statistics().created
    });
    assert!(created.expect("it runs") > 1, "a processor is idle");
}

#[test]
fn joined_work_borrows_and_is_awaited_when_a_half_panics() {
    struct Counts<'a>(&'a AtomicUsize);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for machine in ["core:1", "core:2"] {
        for (a_panics, b_panics) in [(false, false), (false, true), (true, false), (true, true)] {
            for _ in 0..200 {
                let (dropped, mut numbers) = (AtomicUsize::new(0), vec![0; 1000]);
                let outcome = run(&on(machine), || {
                    let (left, right) = numbers.split_at_mut(500);
                    let (one, other) = (Counts(&dropped), Counts(&dropped));
                    let half = |half: &mut [i32], panics: bool, what: &'static str| {
                        half.iter_mut().for_each(|number| *number += 1);
                        if panics {
                            std::panic::resume_unwind(Box::new(what));
                        }
                    };
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        join(
                            || (half(left, a_panics, "a"), drop(one)),
                            || (half(right, b_panics, "b"), drop(other)),
                        );
                    }))
                });
                match outcome.expect("it runs") {
                    Ok(()) => assert!(!a_panics && !b_panics && numbers.iter().all(|number| *number == 1)),
                    Err(payload) => {
                        let expected = if a_panics { "a" } else { "b" };
                        assert_eq!(payload.downcast_ref(), Some(&expected));
                    }
                }
                assert_eq!(dropped.load(Ordering::SeqCst), 2, "both halves are gone, run or not");
            }
        }
    }
}
