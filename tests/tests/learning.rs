//! What a live scheduler learns of programs while they run, and what it knows of them when they come again.

use std::fs;
use std::time::Duration;

use coplace_tests::{Home, app, processes, skipped};
use serde_json::Value;

/// More than six intervals of a quarter of a second.
const LONG_ENOUGH: Duration = Duration::from_millis(3_500);
/// Rates that other people's programs disturb are not believed.
const TRIES: usize = 12;

#[test]
fn neighbour_costs_are_recorded_and_read_by_predict() {
    if processes::cpu_count() < 2 {
        return skipped("what a neighbour costs", "there is one CPU only");
    }
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA", "--cpus", "0-1", "--unmanaged", "ignore"]);
    let file = home.path().join("h/observed.jsonl");
    let start = |name: &str, program: &str| {
        let mut command = home.coplace();
        // One thread each: alone and beside the other with teams of one size.
        command.env("OMP_NUM_THREADS", "1").args(["run", "--name", name, "--", &app(program)]);
        home.start(name, command.args(["--size", "S", "--scale", "100"]))
    };
    let pair = |line: &&Value| line["program"] == "regions" && line["beside"] == "ep";
    let mut lines = Vec::new();
    for _ in 0..TRIES {
        let mut watched = start("watched", "regions");
        home.until("it has shown its regions", || {
            home.app("watched").is_some_and(|app| app["account"]["regions"].as_u64() > Some(100))
        });
        std::thread::sleep(LONG_ENOUGH);
        let mut other = start("other", "ep");
        home.until("both run", || {
            home.status().is_some_and(|status| status["plan"].as_str().unwrap().contains("other on"))
        });
        std::thread::sleep(LONG_ENOUGH);
        for program in [&mut watched, &mut other] {
            program.signal(libc::SIGTERM);
            program.ended_within(Duration::from_secs(60));
        }
        home.until("both have left", || home.app("watched").is_none() && home.app("other").is_none());
        let text = fs::read_to_string(&file).unwrap_or_default();
        lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
        if lines.iter().any(|line| pair(&line)) {
            break;
        }
    }
    let line = lines
        .iter()
        .find(pair)
        .unwrap_or_else(|| panic!("rates were not steady in {TRIES} tries: {lines:?}"));
    let predictions = home.json(&["lab", "predict", "--json", "--observed", file.to_str().unwrap()]).unwrap();
    let slowdown = line["alone_per_s"].as_f64().unwrap() / line["together_per_s"].as_f64().unwrap();
    let cells = predictions["cells"].as_array().unwrap();
    let of = |cell: &&Value| cell["program"] == "regions" && cell["beside"] == "ep";
    let cell = cells.iter().find(of).unwrap_or_else(|| panic!("no such cell in {predictions}"));
    assert!((cell["value"].as_f64().unwrap() / slowdown - 1.0).abs() < 0.02, "{cell} {line}");
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_program_is_remembered_at_its_next_start_with_reasons() {
    let home = Home::new();
    let _daemon = home.daemon(&[]);
    let width = processes::cpu_count().max(2).to_string();
    let spin = app("pthreads_spin");
    let run = |name: &str, scale: &str| {
        let mut command = home.coplace();
        command.args([
            "run",
            "-q",
            "--name",
            name,
            "--",
            &spin,
            "--threads",
            &width,
            "--size",
            "S",
            "--scale",
            scale,
        ]);
        home.start(name, &mut command)
    };
    let mut first = run("first", "4");
    home.until("it shows that it is rigid", || home.app("first").is_some_and(|app| app["rigid"].is_string()));
    assert!(first.ended_within(Duration::from_secs(60)).success());
    home.until("it is gone", || home.app("first").is_none());
    let mut second = run("second", "0.5");
    home.until("it is known again", || {
        let explained = home.ask(&["explain", "second"]);
        String::from_utf8_lossy(&explained.stdout).contains("cannot be resized, as last time")
    });
    assert!(second.ended_within(Duration::from_secs(60)).success());
    let mut command = home.coplace();
    command.args(["run", "-q", "--name", "narrow", "--threads", "1", "--", &app("regions"), "--size", "S"]);
    command.args(["--scale", "4"]);
    let mut narrow = home.start("narrow", &mut command);
    home.until("it runs", || home.running("regions").len() == 1);
    let pid = home.running("regions")[0];
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(String::from_utf8_lossy(&environment).contains("\0OMP_NUM_THREADS=1\0"));
    let explained = home.ask(&["explain", "narrow"]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("was started with 1 of"), "{explained:?}");
    assert!(narrow.ended_within(Duration::from_secs(60)).success() && narrow.verified());
}
