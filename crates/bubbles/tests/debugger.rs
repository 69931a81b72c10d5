//! gdb finds the threads of a program and where they wait.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coplace_bubbles::*;

#[inline(never)]
fn waits_for_good(gate: &Semaphore) -> u32 {
    gate.acquire();
    std::hint::black_box(5)
}

/// What the debugger looks at.
fn breakpoint() {
    // On one processor nobody else runs before who has come to the gate waits there.
    let machine = topology::Machine::synthetic("core:1").expect("a machine");
    let config = Config { machine: Some(machine), ..Config::default() };
    let done = run(&config, || {
        let gate = Arc::new(Semaphore::new(0));
        let came = Arc::new(AtomicBool::new(false));
        let theirs = (gate.clone(), came.clone());
        let waiting = Builder::new().name("at the gate").spawn(move || {
            theirs.1.store(true, Ordering::SeqCst);
            waits_for_good(&theirs.0)
        });
        let dormant = Builder::new().name("asleep").dormant().spawn(|| 1);
        while !came.load(Ordering::SeqCst) {
            yield_now();
        }
        // SAFETY: the debugger stops it here.
        unsafe { libc::raise(libc::SIGTRAP) };
        gate.release();
        dormant.wake();
        waiting.join().expect("it ends") + dormant.join().expect("it ends")
    });
    assert_eq!(done.expect("it runs"), 6);
}

#[test]
fn gdb_lists_threads_and_shows_where_they_wait() {
    if std::env::var_os("COPLACE_LOOKED_AT").is_some() {
        return breakpoint();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/gdb-bubbles.py");
    let program = std::env::current_exe().expect("this test");
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", &format!("source {script}"), "-ex", "run", "-ex", "bubbles threads"])
        .args(["-ex", "bubbles bt at the gate", "-ex", "continue", "--args"])
        .arg(program)
        .args(["--exact", "gdb_lists_threads_and_shows_where_they_wait", "--nocapture"])
        .env("COPLACE_LOOKED_AT", "1")
        .env("DEBUGINFOD_URLS", "")
        .output();
    let Ok(output) = output else {
        return coplace_skipped::skipped_here("there is no gdb (apt-get install gdb)");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("ptrace") || String::from_utf8_lossy(&output.stderr).contains("ptrace") {
        return coplace_skipped::skipped_here("gdb may not trace processes");
    }
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("main:").contains("runs on processor"), "{text}");
    assert!(line("asleep:").contains("has not begun"), "{text}");
    assert!(
        line("at the gate:").contains("waits") && line("at the gate:").contains("waits_for_good"),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with('#') && line.contains("waits_for_good")), "{text}");
    assert!(text.contains("exited normally"), "{text}");
}
