//! What a live scheduler decided about real OpenMP programs, played again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use coplace_tests::{Child, Home, app, processes, skipped, top};
use serde_json::{Value, json};

/// Programs that are resized, and one that takes turns, so that plans follow from what was observed.
fn mix() -> String {
    let program = |name: &str, more: &str| {
        let path = app(name);
        format!("[[program]]\nname = '{name}'\ncommand = ['{path}', '--size', 'S', '--scale', '0.2'{more}]\n")
    };
    program("cg", "")
        + &program("regions", "")
        + "arrive_s = 0.2\n"
        + &program("rigid", ", '--threads', '2'")
        + "arrive_s = 0.4\n[program.demand]\nmalleability = 'rigid'\nmax_threads = 2\n"
}

#[test]
fn decisions_about_real_programs_replay_to_the_same_plans() {
    let script = top().join("docs/policies/lua/ta.lua");
    for policy in [script.to_str().expect("the checkout's path is text"), "CO"] {
        let home = Home::new();
        let trace = home.path().join("trace.jsonl");
        let trace = trace.to_str().expect("the home's path is text");
        let mixed = home.mix(&mix(), &["--policy", policy, "--trace", trace]);
        mixed.is_verified();
        let replayed = home.json(&["replay", trace, "--json"]).expect("the trace replays");
        assert_eq!(replayed["differ"], 0, "{policy}: {replayed}");
        assert!(replayed["plans"].as_u64().unwrap() >= 6, "{policy}: {replayed}");
        let text = fs::read_to_string(trace).expect("the trace is there");
        assert!(text.contains("\"observed\""), "programs were seen to change");
        assert!(!text.contains("\"rejected\""), "{policy}: a plan was not carried out");
        fs::remove_file(trace).expect("it is ours");
        home.is_left_clean();
    }
}

/// A daemon under `adaptive` meets programs whose starts it decides: one that waits for memory, one that starts with
/// fewer threads, one that is told to wait passively.
fn record_starts(home: &Home, trace: &Path) {
    let trace = trace.to_str().expect("the home's path is text");
    let options = ["--policy", "adaptive", "--cpus", "0-1", "--unmanaged", "ignore", "--trace", trace];
    let daemon = home.daemon(&options);
    let start = |name: &str, options: &[&str], program: &[&str]| {
        let mut command = home.coplace();
        command.env_remove("OMP_NUM_THREADS").env_remove("OMP_WAIT_POLICY");
        home.start(name, command.args(["run", "-q", "--name", name]).args(options).arg("--").args(program))
    };
    let ends = |mut child: Child| {
        assert!(child.ended_within(Duration::from_secs(60)).success(), "{}", child.stderr())
    };
    // What it learned of a program's speed with one and two threads is put where it would be remembered.
    let known = ["sh", "-c", "sleep 1"];
    ends(start("first", &[], &known));
    let path = home.path().join("h/remembered.json");
    let mut notes: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let keys: Vec<String> = notes["peaks"].as_object().expect("memory was seen").keys().cloned().collect();
    for key in keys {
        notes["speeds"][key] = json!({ "speedup": { "1": 1000, "2": 1050 }, "at": 1 });
    }
    fs::write(&path, notes.to_string()).unwrap();
    let neighbour = start("neighbour", &[], &["sleep", "100"]);
    home.until("the neighbour runs", || home.app("neighbour").is_some_and(|app| app["state"] != "waiting"));
    ends(start("narrow", &["--rigid", "--may-start-narrow"], &known));
    ends(start("passive", &["--rigid", "--max-threads", "4"], &["sleep", "0.3"]));
    let big = start("big", &["--mem", "4000T"], &["sleep", "0.3"]);
    home.until("it waits for memory", || home.app("big").is_some_and(|app| app["waits_for"].is_string()));
    neighbour.signal(libc::SIGTERM);
    ends(big);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn decisions_about_starts_replay_to_the_same() {
    if processes::cpu_count() < 2 {
        return skipped("starts that are decided, replayed", "there is one CPU only");
    }
    let home = Home::new();
    let trace = home.path().join("trace.jsonl");
    record_starts(&home, &trace);
    let text = fs::read_to_string(&trace).expect("the trace is there");
    let replayed = home.json(&["replay", trace.to_str().unwrap(), "--json", "--all"]).expect("it replays");
    assert_eq!(replayed["differ"], 0, "{replayed}");
    let starts: Vec<&Value> =
        replayed["shown"].as_array().unwrap().iter().map(|one| &one["starts_again"]).collect();
    let admitted = |name: &str| {
        let mut all = starts.iter().filter_map(|starts| starts["admitted"].as_array()).flatten();
        all.find(|one| one["app"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(admitted("narrow")["narrow"]["threads"], 1, "{text}");
    assert_eq!(
        (admitted("neighbour")["queued"].clone(), admitted("big")["queued"].clone()),
        (false.into(), true.into())
    );
    let some = |what: &str, app: &str| starts.iter().any(|starts| starts[what][app].is_object());
    assert!(some("queued", "big"), "it waited for memory: {text}");
    assert!(some("let_go", "passive"), "it was told to wait passively: {text}");
    fs::remove_file(&trace).expect("it is ours");
    // Another decision is seen to differ.
    let other = home.path().join("other.jsonl");
    fs::write(&other, text.replace("\"threads\":1,\"of\":2", "\"threads\":2,\"of\":2")).unwrap();
    let output = home.coplace().args(["replay", other.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    fs::remove_file(&other).expect("it is ours");
}
