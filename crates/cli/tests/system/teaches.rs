//! What a newcomer meets: help, completions, manual pages, tables as JSON.

use crate::world::World;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const COMMANDS: [&str; 17] = [
    "run",
    "mix",
    "attach",
    "advise",
    "status",
    "explain",
    "record",
    "doctor",
    "simulate",
    "sweep",
    "policy",
    "config",
    "daemon",
    "replay",
    "release",
    "completions",
    "lab",
];

#[test]
fn bare_coplace_names_what_a_newcomer_needs_on_one_screen() {
    let output = World::new().run(&[]);
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.lines().count() <= 30, "{shown}");
    for command in &COMMANDS[..13] {
        assert!(shown.contains(&format!("\n  {command} ")), "{command} is missing:\n{shown}");
    }
}

#[test]
fn the_help_of_every_command_holds_an_example() {
    let world = World::new();
    for command in COMMANDS {
        let help = text(&world.run(&[command, "--help"]).stdout);
        assert!(help.contains("Example"), "{command}:\n{help}");
        assert!(help.contains(&format!("coplace {command}")), "{command}:\n{help}");
    }
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&world.run(&["completions", shell]).stdout);
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
    assert!(world.run(&["man", "man1"]).status.success());
    for command in COMMANDS {
        assert!(world.path(&format!("man1/coplace-{command}.1")).exists(), "{command}");
    }
    assert!(!world.path("man1/coplace-guard.1").exists());
}

#[test]
fn tables_are_to_be_had_as_json() {
    let world = World::new();
    for (arguments, key) in [
        (&["doctor", "--json"][..], "/mechanisms/0/name"),
        (&["config", "--json"], "/placement"),
        (&["policy", "list", "--json"], "/0/letters"),
        (
            &["simulate", "--machine", "core:4 pu:1", "--steps", "5", "--policy", "TA", "--json"],
            "/policies/0/steps/4/plan",
        ),
        (&["simulate", "set:B", "--machine", "core:4 pu:1", "--json"], "/policies/3/figures/makespan_s/mean"),
        (&["advise", "--seconds", "0.2", "--json"], "/programs"),
    ] {
        let output = world.run(arguments);
        let value: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}"));
        assert!(value.pointer(key).is_some(), "{arguments:?} has no {key}: {value}");
    }
}

#[test]
fn the_default_configuration_can_be_saved_and_used() {
    let world = World::new();
    let printed = text(&world.run(&["config", "--print-default"]).stdout);
    let path = world.file("c.toml", &printed);
    let output = world.command(&["config"]).env("COPLACE_CONFIG", &path).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("c.toml"), "{output:?}");
}

#[test]
fn every_step_of_a_machine_is_shown_for_every_policy_asked_for() {
    let world = World::new();
    let output = world.run(&[
        "simulate",
        "--machine",
        "pack:2 core:2 pu:1",
        "--steps",
        "3",
        "--policy",
        "TA,EQ",
        "--svg",
        "s.svg",
    ]);
    let shown = text(&output.stdout);
    let counted = shown.lines().filter(|line| line.trim_start().starts_with(['1', '2', '3'])).count();
    assert_eq!(counted, 6, "{shown}");
    assert!(shown.contains("AA AA"), "{shown}");
    assert!(std::fs::read_to_string(world.path("s.svg")).unwrap().contains("a3 on CPUs"));
}

#[test]
fn a_simulation_is_the_same_with_any_number_of_workers() {
    let world = World::new();
    let run = |workers: &str, csv: &str| {
        let machine = "pack:2 [numa] l3:1 core:3";
        let arguments =
            ["simulate", "set:A", "--seeds", "3", "--machine", machine, "--policy", "BP,EQ,TA,CO,UE,LA"];
        let output = world.run(&[&arguments[..], &["--json", "--workers", workers, "--csv", csv]].concat());
        assert!(output.status.success(), "{output:?}");
        (output.stdout, std::fs::read(world.path(csv)).unwrap())
    };
    let one = run("1", "a.csv");
    assert_eq!(one, run("2", "b.csv"));
    assert_eq!(one, run("1", "c.csv"));
    let lines = text(&one.1).lines().count();
    assert_eq!(lines, 1 + 6 * 3 * 40);
}

#[test]
fn a_simulation_cut_off_shows_what_was_done() {
    let world = World::new();
    let profile = "[[profile]]\nname = \"even\"\nsequential_s = 400\namdahl = { serial = 0 }\n";
    world.file("two.toml", &format!("{profile}{}", "[[program]]\nprofile = \"even\"\n".repeat(2)));
    let run = |until: &str| {
        let arguments =
            ["simulate", "two.toml", "--machine", "core:4", "--policy", "BP", "--until", until, "--csv", "-"];
        let output = world.run(&arguments);
        assert!(output.status.success(), "{output:?}");
        let done = |line: &str| line.rsplit(',').next().unwrap().parse::<f64>().unwrap();
        text(&output.stdout).lines().skip(1).map(done).collect::<Vec<_>>()
    };
    let [first, second] = run("151s")[..] else { panic!("two programs") };
    // Each takes 100 s on the whole machine.
    assert!(first == 1.0 && (second - 0.51).abs() < 1e-9, "{first} {second}");
    assert_eq!(run("10min"), [1.0, 1.0]);
}
