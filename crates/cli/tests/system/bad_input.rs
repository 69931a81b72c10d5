//! Every mistake of a user gives one clear error, a documented exit status, and leaves nothing
//! behind (docs/commands/exit-codes.md).

use crate::world::{World, until};

const PROGRAM: &str = "[[program]]\ncommand = 'true'\n";

#[test]
fn an_unknown_policy_is_refused_wherever_it_is_named() {
    let world = World::new();
    world.file("ok.toml", PROGRAM);
    world.file("bad.toml", &format!("[mix]\npolicy = 'BEST'\n{PROGRAM}"));
    let wanted = ["there is no policy 'BEST'", "TA"];
    world.fails(&["mix", "ok.toml", "--policy", "BEST"], 2, &wanted);
    world.fails(&["mix", "bad.toml"], 2, &wanted);
    world.fails(&["simulate", "--steps", "3", "--policy", "BEST"], 2, &wanted);
    world.fails(&["policy", "set", "BEST"], 2, &wanted);
    world.fails(&["daemon", "--policy", "BEST"], 2, &wanted);
}

#[test]
fn malformed_files_are_reported_with_line_and_column() {
    let world = World::new();
    world.file("a.toml", "[[program]]\ncommand = \n");
    world.fails(&["mix", "a.toml"], 2, &["a.toml:2:"]);
    world.file("b.toml", "[[program]]\ncommand = 'true'\ncolour = 1\n");
    world.fails(&["mix", "b.toml"], 2, &["b.toml:3:", "colour"]);
    world.fails(&["mix", "none.toml"], 2, &["none.toml"]);
    std::fs::create_dir_all(world.path("home/.config/coplace")).unwrap();
    world.file("home/.config/coplace/config.toml", "slice = '20'\n");
    world.fails(&["config"], 2, &["config.toml:1:9", "no unit"]);
    world.file("ok.toml", PROGRAM);
    world.fails(&["mix", "ok.toml"], 2, &["config.toml:1:9"]);
    world.fails(&["daemon"], 2, &["config.toml:1:9"]);
}

#[test]
fn a_malformed_plan_is_reported_with_its_column() {
    let world = World::new();
    world.file("ok.toml", PROGRAM);
    let plan = "plan=in_turn [a on 0, b onto 0]";
    world.fails(&["mix", "ok.toml", "--policy", "fixed", "--set", plan], 2, &["column 20"]);
}

#[test]
fn programs_that_do_not_exist_or_cannot_be_executed_are_named() {
    let world = World::new();
    world.file("plain.txt", "no program");
    world.file("a.toml", "[[program]]\ncommand = 'no-such-program --fast'\n");
    world.file("b.toml", "[[program]]\ncommand = './plain.txt'\n");
    world.fails(&["mix", "a.toml", "--quiet"], 1, &[]);
    let output = world.run(&["mix", "a.toml"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("no-such-program: not found"), "{output:?}");
    let output = world.run(&["mix", "b.toml"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("plain.txt"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
    world.fails(&["run", "no-such-program"], 127, &["no-such-program", "not found"]);
    world.fails(&["run", "./plain.txt"], 126, &["plain.txt"]);
}

#[test]
fn machines_that_are_none_are_refused() {
    let world = World::new();
    world.file("m.xml", "<html></html>");
    world.fails(&["simulate", "--steps", "2", "--machine", "m.xml"], 2, &["m.xml", "hwloc"]);
    world.fails(&["simulate", "--steps", "2", "--machine", "none.xml"], 2, &["none.xml"]);
    world.fails(&["simulate", "--steps", "2", "--machine", "pack:0"], 2, &["column"]);
    world.fails(&["simulate", "--steps", "0"], 2, &["--steps"]);
}

#[test]
fn cpus_that_do_not_exist_are_refused() {
    let world = World::new();
    world.file("ok.toml", PROGRAM);
    world.fails(&["mix", "ok.toml", "--cpus", "60000"], 2, &["CPUs 60000 do not exist"]);
    world.fails(&["mix", "ok.toml", "--cpus", "3-1"], 2, &["runs backwards"]);
    world.fails(&["daemon", "--cpus", "60000"], 2, &["CPUs 60000 do not exist"]);
}

#[test]
fn settings_that_no_policy_knows_are_refused() {
    let world = World::new();
    world.file("ok.toml", PROGRAM);
    world.fails(&["mix", "ok.toml", "--set", "colour=1"], 2, &["colour"]);
    world.fails(&["mix", "ok.toml", "--slice", "20"], 2, &["no unit"]);
}

#[test]
fn queries_report_that_nobody_schedules() {
    let world = World::new();
    for arguments in
        [&["status"][..], &["explain"], &["policy", "get"], &["policy", "set", "TA"], &["status", "--json"]]
    {
        world.fails(arguments, 1, &["no scheduler runs"]);
    }
}

#[test]
fn a_stale_socket_is_nobody_and_is_in_nobodys_way() {
    let world = World::new();
    world.fails(&["status"], 1, &["no scheduler runs"]);
    drop(std::os::unix::net::UnixListener::bind(world.runtime().join("socket")).unwrap());
    world.fails(&["status"], 1, &["no scheduler runs"]);
    assert_eq!(world.run(&["run", "-q", "sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn a_second_daemon_names_the_first_and_changes_nothing() {
    let world = World::new();
    let mut first = world.spawn(&["daemon"]);
    until("the daemon to answer", || world.run(&["status"]).status.success());
    let second = world.run(&["daemon"]);
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("daemon"), "{error}");
    assert!(world.run(&["status"]).status.success());
    world.file("ok.toml", PROGRAM);
    let mix = world.run(&["mix", "ok.toml", "--policy", "EQ"]);
    assert_eq!(mix.status.code(), Some(2), "a daemon does not take a policy from a mix");
    assert_eq!(world.run(&["mix", "ok.toml", "-q"]).status.code(), Some(0));
    first.signal(libc::SIGTERM);
    assert_eq!(first.status(), Some(0));
    world.is_clean();
}

#[test]
fn a_full_disk_under_a_result_is_reported() {
    let world = World::new();
    world.file("ok.toml", PROGRAM);
    world.fails(
        &["mix", "ok.toml", "-q", "--json", "/dev/full"],
        125,
        &["cannot write /dev/full", "No space"],
    );
    world.fails(
        &["mix", "ok.toml", "-q", "--csv", "no/such/dir.csv"],
        125,
        &["cannot write no/such/dir.csv"],
    );
    // The trace is a service to the reader; programs do not fail for it.
    assert_eq!(world.run(&["mix", "ok.toml", "-q"]).status.code(), Some(0));
}

#[test]
fn a_directory_for_our_files_that_others_could_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::create_dir(world.runtime()).unwrap();
    std::fs::set_permissions(world.runtime(), std::fs::Permissions::from_mode(0o777)).unwrap();
    world.fails(&["status"], 125, &["writable for others", "COPLACE_RUNTIME_DIR"]);
    world.file("ok.toml", PROGRAM);
    world.fails(&["mix", "ok.toml"], 125, &["writable for others"]);
}

#[test]
fn an_impossible_workload_is_refused_with_file_line_and_rule() {
    let world = World::new();
    let profile = "[[profile]]\nname = 'p'\nsequential_s = 9\nspeedup = { 2 = 1.8, 4 = 1.5 }\n";
    world.file("falls.toml", &format!("{profile}[[program]]\nprofile = 'p'\n"));
    world.file("unknown.toml", "[[program]]\nprofile = 'cg.Z'\n");
    world.file("negative.toml", "[[program]]\nprofile = 'cg.B'\narrive_s = -1\n");
    world.file(
        "wide.toml",
        "[[program]]\nprofile = 'cg.B'\n[program.demand]\nmalleability = 'rigid'\nmax_threads = 9\n",
    );
    world.file("short.swf", "1 0 -1 5 2\n");
    let good = "1 0 -1 5 2 -1 -1 2 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n";
    world.file(
        "mixed.swf",
        &format!("{good}2 0 -1 5\n{}", good.replacen("1 0", "3 0", 1).replace(" 2 ", " 9 ")),
    );
    world.file("wide.swf", &good.replace(" 2 -1 -1 1 ", " 9 -1 -1 1 "));
    world.file("missing.toml", "[[program]]\narrive_s = 1\n");
    let rises = "[[profile]]\nname = 'p'\nsequential_s = 9\n\
                 sevcik = { imbalance = 1, serial = 0, overhead_per_cpu = 0.2 }\n";
    world.file("rises.toml", &format!("{rises}[[program]]\nprofile = 'p'\n"));
    let simulate = |file: &str, status: i32, wanted: &[&str]| {
        world.fails(&["simulate", file, "--machine", "core:4", "--policy", "TA"], status, wanted);
    };
    simulate("falls.toml", 2, &["falls.toml:4:", "longer than on fewer CPUs"]);
    simulate("unknown.toml", 2, &["unknown.toml:2:", "no program 'cg.Z'", "cg.B"]);
    simulate("negative.toml", 2, &["negative.toml:3:", "from 0"]);
    simulate("wide.toml", 2, &["wide.toml", "line 1", "needs 9 CPUs", "has 4"]);
    simulate("short.swf", 2, &["short.swf:1:", "5 fields"]);
    simulate("mixed.swf", 2, &["mixed.swf:2:", "4 fields"]);
    simulate("none.toml", 2, &["none.toml"]);
    simulate("wide.swf", 2, &["wide.swf", "line 1", "needs 9 CPUs", "has 4"]);
    simulate("missing.toml", 2, &["missing.toml:1:", "profile: is missing"]);
    simulate("rises.toml", 2, &["rises.toml", "line 5", "longer on 3 CPUs than on 2", "may_slow_down"]);
    // What is drawn is told with the line that names it, and counted over all workloads.
    let draws = "[generate]\njobs = 8\narrivals_per_minute = 60\nmix = [\n  'cg.B',\n  'p',\n]\n";
    world.file("draws.toml", &format!("{rises}{draws}"));
    simulate("draws.toml", 2, &["draws.toml", "line 10: j", "longer on 3 CPUs than on 2"]);
    let words = [
        "simulate",
        "draws.toml",
        "--machine",
        "core:4",
        "--policy",
        "TA",
        "--lenient",
        "--seeds",
        "4",
        "--json",
    ];
    let output = world.run(&words);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (skipped, stderr) = (result["skipped"].as_u64().unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(skipped > 8, "more than one workload of eight jobs has: {result}");
    assert!(
        stderr.contains(&format!("{skipped} jobs, in ")) && stderr.contains(" of 4 workloads,"),
        "{stderr}"
    );
    simulate("set:X", 2, &["no set 'X'"]);
    world.fails(&["simulate"], 2, &["WORKLOAD"]);
    world.fails(&["simulate", "set:A", "--steps", "3"], 2, &["--steps"]);
    world.fails(&["simulate", "set:A", "--policy", "fixed"], 2, &["needs a plan"]);
    let output = world.run(&["simulate", "mixed.swf", "--machine", "core:4", "--policy", "TA", "--lenient"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 jobs"), "{output:?}");
}
