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
        let told = text(&replayed.stdout);
        assert!(replayed.status.success() && told.ends_with("plans, all the same\n"), "{policy}: {told}");
        let plans: usize = told.split(' ').next().unwrap().parse().unwrap();
        assert!(plans >= 8, "four programs came and went: {told}");
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
    let told = text(&replayed.stdout);
    assert_eq!(replayed.status.code(), Some(1), "{told}");
    assert!(
        told.contains(&format!("line {}, at ", line + 1)) && told.contains("  recorded: spins on 0 x 77\n"),
        "{told}"
    );
    let again = told.lines().find(|line| line.starts_with("  again:    ")).unwrap();
    assert!(again.contains("waiting [rigid") && told.contains("\n1 of "), "{told}");
    // Another policy makes other plans of the same events.
    let other = world.run(&["replay", "t.jsonl", "--policy", "UE", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&other.stdout).unwrap();
    assert!(other.status.success() && shown["differ"].as_u64().unwrap() > 0, "{shown}");
}

#[test]
fn what_is_recorded_of_a_running_scheduler_replays_also_when_the_policy_s_file_is_gone() {
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
    let told = text(&replayed.stdout);
    assert!(replayed.status.success() && told.contains("side_by_side"), "{told}");
    assert!(std::fs::read_to_string(world.path("r.jsonl")).unwrap().contains("my own policy"));
    world.is_clean();
}

#[test]
fn what_is_no_record_is_refused() {
    let world = World::new();
    world.fails(&["record", "r.jsonl"], 1, &["no scheduler runs"]);
    assert!(!world.path("r.jsonl").exists());
    world.fails(&["replay", "none.jsonl"], 2, &["none.jsonl"]);
    world.file("empty.jsonl", "");
    world.fails(&["replay", "empty.jsonl"], 2, &["empty.jsonl", "no plan"]);
    world.file("odd.jsonl", "{\"wake\":1}\n");
    world.fails(&["replay", "odd.jsonl"], 2, &["odd.jsonl", "line 1"]);
}
