//! Policies of one's own, from nothing to a live machine.

use std::time::{Duration, Instant};

use crate::world::{Started, World, until};

const TWO: &str = "[[program]]\nname = 'a'\ncommand = 'sleep 0.6'\n\
                   [[program]]\nname = 'b'\ncommand = 'sleep 0.6'\narrive_s = 0.1\n";

/// Everybody everywhere, and a mark in the plan by which it is known.
const LENDING: &str = "words = 'lending'\nfunction decide(snapshot)\n  local runs = {}\n  \
    for _, app in ipairs(snapshot.apps) do runs[#runs + 1] = run(app, app.room, { lends = true }) end\n  \
    return mixed(runs)\nend\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_policy_goes_from_nothing_to_a_live_mix() {
    let world = World::new();
    let printed = text(&world.run(&["policy", "new", "mine.lua"]).stdout);
    assert!(printed.contains("coplace policy test mine.lua"), "{printed}");
    assert!(std::fs::read_to_string(world.path("coplace.lua")).unwrap().starts_with("---@meta coplace"));
    let tested = world.run(&["policy", "test", "mine.lua", "--cases", "40"]);
    assert!(tested.status.success(), "{tested:?}");
    assert!(text(&tested.stdout).contains("each passed the checker (seeds 1 to 40)"), "{tested:?}");
    let steps =
        ["simulate", "--machine", "pack:2 core:2 pu:1", "--steps", "4", "--policy", "mine.lua,TA", "--json"];
    let shown: serde_json::Value = serde_json::from_slice(&world.run(&steps).stdout).unwrap();
    assert_eq!(shown["policies"][0]["policy"], "my own policy (mine.lua)");
    assert_eq!(shown["policies"][0]["steps"][3]["plan"], shown["policies"][1]["steps"][3]["plan"]);
    world.file("two.toml", TWO);
    let mixed = world.run(&["mix", "two.toml", "--policy", "mine.lua", "--json", "-"]);
    assert!(mixed.status.success() && !text(&mixed.stderr).contains("not carried out"), "{mixed:?}");
    let result: serde_json::Value = serde_json::from_slice(&mixed.stdout).unwrap();
    assert_eq!(result["policy"], "my own policy (mine.lua)");
    world.is_clean();
}

#[test]
fn the_commands_that_new_prints_compare_with_ta() {
    let world = World::new();
    let printed = text(&world.run(&["policy", "new", "mine.lua"]).stdout);
    let simulations: Vec<&str> =
        printed.lines().map(str::trim).filter(|line| line.starts_with("coplace simulate")).collect();
    let [steps, table] = simulations[..] else { panic!("{printed}") };
    let start = std::fs::read_to_string(world.path("mine.lua")).unwrap();
    for command in [steps, table] {
        let played = world.shell(command);
        assert!(played.status.success() && played.stderr.is_empty(), "{command}: {played:?}");
        let shown = text(&played.stdout);
        assert!(shown.contains("my own policy (mine.lua)") && shown.contains("(TA)"), "{command}: {shown}");
        // The file says the same to whoever opens it.
        assert!(start.contains(&command.replace('\'', "\"")), "{command} is not in the file");
    }
    assert!(table.contains(" set:B ") && table.contains("--policy mine.lua,TA"), "{table}");
    let shown = text(&world.shell(&format!("{table} --json")).stdout);
    let result: serde_json::Value = serde_json::from_str(&shown).unwrap();
    for policy in [0, 1] {
        let makespan = &result["policies"][policy]["figures"]["makespan_s"];
        assert_eq!(makespan["values"].as_array().unwrap().len(), 10);
        assert!(makespan["mean"].as_f64().unwrap() > 100.0, "{makespan}");
    }
}

/// Mean makespan and slowdown of a policy in Lua on programs of two kinds.
fn two_kinds(world: &World, notebook: &str) -> (f64, f64) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies/lua");
    let file = |name: &str| folder.join(name).display().to_string();
    let (workload, policy) = (file("two-kinds.toml"), file("wider.lua"));
    let words =
        ["simulate", &workload, "--machine", "core:8", "--policy", &policy, "--notebook", notebook, "--json"];
    let output = world.run(&words);
    assert!(output.status.success(), "{output:?}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mean = |name: &str| result["policies"][0]["figures"][name]["mean"].as_f64().unwrap();
    (mean("makespan_s"), mean("mean_slowdown"))
}

#[test]
fn a_policy_in_lua_does_better_with_a_notebook_than_without() {
    let world = World::new();
    let (with, without) = (two_kinds(&world, "full"), two_kinds(&world, "none"));
    assert!(with.0 < 0.85 * without.0 && with.1 < 0.95 * without.1, "{with:?} with, {without:?} without");
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let world = World::new();
    world.file("mine.lua", "-- precious");
    world.file("coplace.lua", "-- somebody else's");
    world.fails(&["policy", "new", "mine.lua"], 2, &["mine.lua is there already"]);
    let printed = text(&world.run(&["policy", "new", "other.lua"]).stdout);
    assert!(printed.contains("left as it is"), "{printed}");
    for (name, kept) in [("mine.lua", "-- precious"), ("coplace.lua", "-- somebody else's")] {
        assert_eq!(std::fs::read_to_string(world.path(name)).unwrap(), kept);
    }
    world.fails(&["policy", "new", "mine.py"], 2, &["mine.py", "ends in .lua"]);
}

#[test]
fn a_policy_script_error_names_file_and_line_everywhere() {
    let world = World::new();
    world.file("bad.lua", "function decide()\n  retrun 1\nend\n");
    world.file("ok.toml", TWO);
    world.file("bad.toml", &format!("[mix]\npolicy = 'bad.lua'\n{TWO}"));
    let wanted = ["bad.lua:2:"];
    world.fails(&["mix", "ok.toml", "--policy", "bad.lua"], 2, &wanted);
    world.fails(&["mix", "bad.toml"], 2, &wanted);
    world.fails(&["simulate", "--steps", "3", "--policy", "TA,bad.lua"], 2, &wanted);
    world.fails(&["policy", "set", "bad.lua"], 2, &wanted);
    world.fails(&["policy", "test", "bad.lua"], 2, &wanted);
    world.fails(&["daemon", "--policy", "bad.lua"], 2, &wanted);
    world.fails(&["run", "--policy", "bad.lua", "true"], 2, &wanted);
    world.fails(&["run", "--policy", "none.lua", "true"], 2, &["none.lua", "coplace policy new none.lua"]);
    std::fs::create_dir_all(world.path("home/.config/coplace")).unwrap();
    world.file("home/.config/coplace/config.toml", "policy = 'own.lua'\n");
    world.fails(&["config"], 2, &["config.toml:1:10", ".config/coplace/own.lua"]);
    world.file("home/.config/coplace/own.lua", LENDING);
    let shown = text(&world.run(&["config"]).stdout);
    assert!(shown.contains("own.lua"), "{shown}");
}

#[test]
fn a_wrong_plan_is_found_with_its_seed_and_repeat_command() {
    let world = World::new();
    world.file(
        "bad.lua",
        "function decide(snapshot)\n  local runs = {}\n  for _, app in ipairs(snapshot.apps) do\n    \
         runs[#runs + 1] = run(app, app.room:take(1), { threads = 1 })\n  end\n  return side_by_side(runs)\nend\n",
    );
    let tested = world.run(&["policy", "test", "bad.lua", "--cases", "50"]);
    assert_eq!(tested.status.code(), Some(1), "{tested:?}");
    let printed = text(&tested.stdout);
    let wrong = printed.lines().find(|line| line.starts_with("wrong: ")).expect("what is wrong").to_owned();
    assert!(
        ["suspended", "side by side both use", "fewer than"].iter().any(|part| wrong.contains(part)),
        "{wrong}"
    );
    let again = printed.lines().last().unwrap().strip_prefix("repeat with: coplace ").expect("a command");
    let arguments: Vec<&str> = again.split(' ').collect();
    let repeated = world.run(&arguments);
    assert_eq!(repeated.status.code(), Some(1));
    assert!(text(&repeated.stdout).contains(&wrong), "{repeated:?}");
}

#[test]
fn a_failing_script_leaves_programs_running_with_a_message() {
    let world = World::new();
    world.file("two.toml", TWO);
    world.file(
        "away.lua",
        "function decide(snapshot)\n  if #snapshot.apps == 1 then return run(snapshot.apps[1], snapshot.usable) end\n  \
         if #snapshot.apps == 2 then while true do end end\n  return 'idle'\nend\n",
    );
    let began = Instant::now();
    let mixed = world.run(&["mix", "two.toml", "--policy", "away.lua", "--json", "-"]);
    assert!(mixed.status.success(), "{mixed:?}");
    assert!(began.elapsed() < Duration::from_secs(60));
    let printed = text(&mixed.stderr);
    assert!(
        printed.contains("with 2 programs: away.lua:3: ") && printed.contains("20000000 instructions"),
        "{printed}"
    );
    let result: serde_json::Value = serde_json::from_slice(&mixed.stdout).unwrap();
    let plans: Vec<&str> =
        result["plans"].as_array().unwrap().iter().map(|plan| plan["plan"].as_str().unwrap()).collect();
    assert!(
        plans.iter().any(|plan| plan.starts_with("mixed [a on ")),
        "both run, as without coplace: {plans:?}"
    );
    world.is_clean();
}

#[test]
fn a_daemon_receives_the_text_of_a_policy_and_needs_no_file() {
    let world = World::new();
    let mut command = world.command(&["daemon"]);
    command.current_dir("/");
    let mut daemon = Started::from(command);
    until("the daemon", || world.run(&["policy", "get"]).status.success());
    std::fs::create_dir(world.path("sub")).unwrap();
    world.file("sub/lend.lua", LENDING);
    let set = world.run(&["policy", "set", "sub/lend.lua"]);
    assert_eq!(text(&set.stdout), "lending (sub/lend.lua)\n", "{set:?}");
    std::fs::remove_file(world.path("sub/lend.lua")).unwrap();
    let mut program = world.spawn(&["run", "-q", "sleep", "100"]);
    until("the script's plan", || text(&world.run(&["status"]).stdout).contains(" lends"));
    let back = world.run(&["policy", "set", "TA"]);
    assert!(back.status.success(), "{back:?}");
    until("TA's plan", || !text(&world.run(&["status"]).stdout).contains(" lends"));
    program.signal(libc::SIGTERM);
    program.status();
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.status(), Some(0));
    world.is_clean();
}
