//! Whole mixes of small programs, by the real binary.

use crate::world::{World, until};

fn json(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_mix_reports_the_share_of_each_program() {
    let world = World::new();
    world.file(
        "two.toml",
        "[[program]]\nname = 'first'\ncommand = ['sh', '-c', 'echo \"$WORD\"; sleep 0.4; echo VERIFIED']\nalone_s = 0.4\n\
         environment = { WORD = 'hello from first' }\n\
         [[program]]\nname = 'second'\ncommand = ['sh', '-c', 'pwd; sleep 0.2']\narrive_s = 0.2\nalone_s = 0.2\n\
         repeat = 2\nrepeat_every_s = 0.3\n",
    );
    let output = world.run(&["mix", "two.toml", "--json", "r.json", "--html", "r.html", "--svg", "r.svg"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("first │ hello from first"), "{stderr}");
    let result = json(&world.path("r.json"));
    let programs = result["programs"].as_array().unwrap();
    let names: Vec<&str> = programs.iter().map(|program| program["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second", "second.2"]);
    assert_eq!(programs[0]["verified"], true);
    assert_eq!(programs[1]["verified"], serde_json::Value::Null);
    assert!(programs[2]["arrived_s"].as_f64().unwrap() >= 0.5);
    for program in programs {
        assert!(program["response_s"].as_f64().unwrap() >= 0.19, "{program}");
        assert!(program["slowdown"].as_f64().unwrap() > 0.9, "{program}");
    }
    let makespan_s = result["makespan_s"].as_f64().unwrap();
    assert!((0.59..20.0).contains(&makespan_s), "{makespan_s}");
    let antt = result["antt"].as_f64().unwrap();
    assert!(
        (antt - programs.iter().map(|p| p["slowdown"].as_f64().unwrap()).sum::<f64>() / 3.0).abs() < 1e-9
    );
    // Every plan names only programs of the mix, and each of them was in one.
    let plans: Vec<&str> =
        result["plans"].as_array().unwrap().iter().map(|p| p["plan"].as_str().unwrap()).collect();
    for name in names {
        assert!(plans.iter().any(|plan| plan.contains(name)), "{name} in {plans:?}");
    }
    assert!(std::fs::read_to_string(world.path("r.html")).unwrap().contains("second.2"));
    assert!(std::fs::read_to_string(world.path("r.svg")).unwrap().starts_with("<svg"));
    world.is_clean();
}

#[test]
fn a_failing_program_is_named_and_stops_further_starts() {
    let world = World::new();
    world.file(
        "bad.toml",
        "[[program]]\nname = 'wrong'\ncommand = ['sh', '-c', 'exit 3']\n\
         [[program]]\nname = 'right'\ncommand = ['sh', '-c', 'sleep 0.5; echo done > right.txt']\n\
         [[program]]\nname = 'late'\ncommand = 'true'\narrive_s = 600\n",
    );
    let output = world.run(&["mix", "bad.toml", "--json", "r.json"]);
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("failed        wrong: exit 3 (sh -c 'exit 3')"), "{table}");
    let endings = |result: &serde_json::Value| -> Vec<String> {
        result["programs"].as_array().unwrap().iter().map(|p| p["ending"].to_string()).collect()
    };
    assert_eq!(endings(&json(&world.path("r.json"))), [r#"{"status":3}"#, r#"{"status":0}"#, r#""skipped""#]);
    assert!(world.path("right.txt").exists(), "the one that ran was let finish");
    let text = std::fs::read_to_string(world.path("bad.toml")).unwrap();
    world.file("bad.toml", &text.replace("600", "0.3"));
    let output = world.run(&["mix", "bad.toml", "--json", "r.json", "--keep-going"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        endings(&json(&world.path("r.json"))),
        [r#"{"status":3}"#, r#"{"status":0}"#, r#"{"status":0}"#]
    );
    world.is_clean();
}

#[test]
fn a_program_that_finds_its_own_result_wrong_has_failed() {
    let world = World::new();
    world.file("f.toml", "[[program]]\ncommand = ['sh', '-c', 'echo FAILED: off by one']\n");
    let output = world.run(&["mix", "f.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAILED its own check"));
}

#[test]
fn an_interrupted_mix_ends_all_programs_and_leaves_nothing() {
    let world = World::new();
    world.file(
        "long.toml",
        "[[program]]\ncommand = ['sh', '-c', 'sleep 600 & sleep 601']\nrepeat = 3\n\
         [[program]]\ncommand = 'true'\narrive_s = 600\n",
    );
    let mut child = world.spawn(&["mix", "long.toml", "-q", "--policy", "BP"]);
    let sleeps = || {
        let commands = world.processes().into_iter().map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")));
        commands.flatten().filter(|command| command.starts_with(b"sleep\0")).count()
    };
    until("a program and its child to run", || sleeps() == 2);
    child.signal(libc::SIGINT);
    assert_eq!(child.status(), Some(1));
    world.is_clean();
}

#[test]
fn output_goes_to_files_where_asked_for() {
    let world = World::new();
    world.file(
        "o.toml",
        "[[program]]\nname = 'x'\ncommand = ['sh', '-c', 'cat; echo err >&2']\nstdin = 'in.txt'\nstdout = 'mine.txt'\nrepeat = 2\n",
    );
    world.file("in.txt", "from stdin\n");
    let output = world.run(&["mix", "o.toml", "--output", "out", "--csv", "-"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(world.path("mine.txt")).unwrap(), "from stdin\n");
    assert_eq!(std::fs::read_to_string(world.path("x.2.mine.txt")).unwrap(), "from stdin\n");
    assert_eq!(std::fs::read_to_string(world.path("out/x.err")).unwrap(), "err\n");
    let csv = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn running_alone_first_gives_the_slowdowns() {
    let world = World::new();
    world.file("a.toml", "[[program]]\ncommand = 'sleep 0.2'\nrepeat = 2\n");
    let output = world.run(&["mix", "a.toml", "--measure-alone", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let alone_s = result["programs"][0]["alone_s"].as_f64().unwrap();
    assert!((0.2..10.0).contains(&alone_s), "{alone_s}");
    assert_eq!(result["programs"][1]["alone_s"], alone_s, "one program is measured once");
    assert!(result["stp"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_dry_run_starts_nothing_and_shows_the_plans() {
    let world = World::new();
    world.file("d.toml", "[[program]]\nname = 'x'\ncommand = 'touch made'\n");
    let output = world.run(&["mix", "d.toml", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("x on "), "{output:?}");
    assert!(!world.path("made").exists());
}
