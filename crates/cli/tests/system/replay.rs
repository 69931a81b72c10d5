//! What a live scheduler did, recorded and played again.

use crate::world::{World, until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Programs that come, change, take turns and go.
const MIX: &str = "\
    [[program]]\nname = 'spins'\ncommand = ['sh', '-c', 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo VERIFIED']\n\
    [[program]]\nname = 'rigid'\ncommand = 'sleep 0.5'\narrive_s = 0.2\nrepeat = 2\nrepeat_every_s = 0.2\n\
    [program.demand]\nmalleability = 'rigid'\nmax_threads = 2\n\
    [[program]]\nname = 'late'\ncommand = 'sleep 0.4'\narrive_s = 0.5\n";

#[test]
fn a_live_mix_replays_to_the_same_plans() {
    let world = World::new();
    world.file("mix.toml", MIX);
    for policy in ["TA", "CO", "BP"] {
        let mixed = world.run(&["mix", "mix.toml", "-q", "--policy", policy, "--trace", "t.jsonl"]);
        assert!(mixed.status.success(), "{mixed:?}");
        let replayed = world.run(&["replay", "t.jsonl"]);
        let printed = text(&replayed.stdout);
        assert!(
            replayed.status.success() && printed.ends_with("plans, all the same\n"),
            "{policy}: {printed}"
        );
        let plans: usize = printed.split(' ').next().unwrap().parse().unwrap();
        assert!(plans >= 8, "four programs came and went: {printed}");
    }
    world.is_clean();
}

#[test]
fn a_plan_that_is_not_the_recorded_one_is_shown() {
    let world = World::new();
    world.file("mix.toml", MIX);
    assert!(world.run(&["mix", "mix.toml", "-q", "--policy", "BP", "--trace", "t.jsonl"]).status.success());
    let trace = std::fs::read_to_string(world.path("t.jsonl")).unwrap();
    let (line, recorded) = trace
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains("\"plan\":{") && line.contains("waiting [rigid"))
        .unwrap();
    let mut forged: serde_json::Value = serde_json::from_str(recorded).unwrap();
    forged["plan"]["plan"] = "spins on 0 x 77".into();
    let forged = forged.to_string();
    world.file("forged.jsonl", &trace.replacen(recorded, &forged, 1));
    let replayed = world.run(&["replay", "forged.jsonl"]);
    let printed = text(&replayed.stdout);
    assert_eq!(replayed.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains(&format!("line {}, at ", line + 1))
            && printed.contains("  recorded: spins on 0 x 77\n"),
        "{printed}"
    );
    let again = printed.lines().find(|line| line.starts_with("  again:    ")).unwrap();
    assert!(again.contains("waiting [rigid") && printed.contains("\n1 of "), "{printed}");
    // Another policy makes other plans of the same events.
    let other = world.run(&["replay", "t.jsonl", "--policy", "UE", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&other.stdout).unwrap();
    assert!(other.status.success() && shown["differ"].as_u64().unwrap() > 0, "{shown}");
}

#[test]
fn a_live_recording_replays_without_its_policy_file() {
    let world = World::new();
    assert!(world.run(&["policy", "new", "mine.lua"]).status.success());
    let mut daemon = world.spawn(&["daemon", "--policy", "mine.lua", "--unmanaged", "ignore"]);
    until("the daemon", || world.run(&["policy", "get"]).status.success());
    let mut before = world.spawn(&["run", "-q", "sleep", "100"]);
    until("a program", || text(&world.run(&["status"]).stdout).contains("sleep"));
    let mut recorder = world.spawn(&["record", "-q", "r.jsonl"]);
    until("the record to begin", || {
        std::fs::metadata(world.path("r.jsonl")).is_ok_and(|meta| meta.len() > 0)
    });
    assert!(world.run(&["run", "-q", "sleep", "0.3"]).status.success());
    assert!(world.run(&["policy", "set", "EQ"]).status.success());
    assert!(world.run(&["run", "-q", "sleep", "0.3"]).status.success());
    assert!(world.run(&["policy", "set", "mine.lua"]).status.success());
    before.signal(libc::SIGTERM);
    before.status();
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.status(), Some(0));
    assert_eq!(recorder.status(), Some(0), "the record ends with the scheduler");
    std::fs::remove_file(world.path("mine.lua")).unwrap();
    let replayed = world.run(&["replay", "r.jsonl", "--all"]);
    let printed = text(&replayed.stdout);
    assert!(replayed.status.success() && printed.contains("side_by_side"), "{printed}");
    assert!(std::fs::read_to_string(world.path("r.jsonl")).unwrap().contains("my own policy"));
    world.is_clean();
}

#[test]
fn a_file_that_is_no_record_is_refused() {
    let world = World::new();
    world.fails(&["record", "r.jsonl"], 1, &["no scheduler runs"]);
    assert!(!world.path("r.jsonl").exists());
    world.fails(&["replay", "none.jsonl"], 2, &["none.jsonl"]);
    world.file("empty.jsonl", "");
    world.fails(&["replay", "empty.jsonl"], 2, &["empty.jsonl", "no plan", "coplace record"]);
    world.file("cut.jsonl", "{\"wa");
    world.fails(&["replay", "cut.jsonl"], 2, &["cut.jsonl", "line 1, the last one, is cut off", "no plan"]);
    world.file("odd.jsonl", "{\"wake\":1}\n");
    world.fails(&["replay", "odd.jsonl"], 2, &["odd.jsonl", "line 1"]);
}

#[test]
fn a_recorded_mix_is_a_workload_with_the_same_outcome() {
    let world = World::new();
    world.file("mix.toml", MIX);
    for policy in ["TA", "BP"] {
        let words = ["mix", "mix.toml", "-q", "--policy", policy, "--trace", "t.jsonl", "--json", "r.json"];
        assert!(world.run(&words).status.success());
        let live: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(world.path("r.json")).unwrap()).unwrap();
        // The machine and the settings are the record's.
        let words = ["simulate", "t.jsonl", "--policy", policy, "--json", "--csv", "jobs.csv"];
        let played = world.run(&words);
        let printed = text(&played.stderr);
        assert!(
            played.status.success() && printed.contains(&format!("4 programs under {policy}")),
            "{printed}"
        );
        let result: serde_json::Value = serde_json::from_slice(&played.stdout).unwrap();
        assert_eq!(result["jobs"], 4);
        let makespan = |value: &serde_json::Value| value.as_f64().unwrap();
        let simulated_s = makespan(&result["policies"][0]["figures"]["makespan_s"]["values"][0]);
        let ratio = simulated_s / makespan(&live["makespan_s"]);
        assert!((0.8..1.2).contains(&ratio), "{policy}: {simulated_s} s simulated, {ratio} of the mix");
        // Arrivals are the record's, from the first on.
        let trace = std::fs::read_to_string(world.path("t.jsonl")).unwrap();
        let arrived = trace.lines().filter(|line| line.contains("{\"came\":")).map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let app = &line["event"]["event"]["came"]["app"];
            (app["id"].as_str().unwrap().to_owned(), app["arrived_ns"].as_u64().unwrap())
        });
        let mut arrived: Vec<(String, u64)> = arrived.collect();
        arrived.sort_by_key(|(_, at_ns)| *at_ns);
        let first_ns = arrived[0].1;
        let jobs = std::fs::read_to_string(world.path("jobs.csv")).unwrap();
        let simulated: Vec<(String, u64)> = jobs
            .lines()
            .skip(1)
            .map(|line| {
                let cells: Vec<&str> = line.split(',').collect();
                (cells[2].to_owned(), (cells[4].parse::<f64>().unwrap() * 1e9).round() as u64)
            })
            .collect();
        let recorded: Vec<(String, u64)> =
            arrived.into_iter().map(|(id, at_ns)| (id, at_ns - first_ns)).collect();
        assert_eq!(simulated, recorded, "{policy}");
    }
    let trace = std::fs::read_to_string(world.path("t.jsonl")).unwrap();
    world.file("broken.jsonl", &trace.replacen("{\"event\"", "{\"event", 1));
    world.fails(&["simulate", "broken.jsonl"], 2, &["broken.jsonl:2:1: is no line of a record"]);
    world.is_clean();
}
