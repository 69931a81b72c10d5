//! What programs are told at their start, by the variables that they find.

use std::fs;
use std::process::Stdio;

use coplace_tests::{Home, processes, skipped};
use serde_json::{Value, json};

const PRINT_WAITING: [&str; 4] = ["--", "sh", "-c", r#"echo "$OMP_WAIT_POLICY $KMP_BLOCKTIME""#];

#[test]
fn passive_waiting_is_a_last_resort_and_yields_to_the_user() {
    let home = Home::new();
    let waiting_of = |options: &[&str], set: Option<&str>| {
        let mut command = home.coplace();
        for variable in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"] {
            command.env_remove(variable);
        }
        set.map(|value| command.env("OMP_WAIT_POLICY", value));
        let command = command.args(["run", "-q", "--cpus", "0"]).args(options).args(PRINT_WAITING);
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{options:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let wide = ["--rigid", "--max-threads", "4"];
    assert_eq!(waiting_of(&wide, None), "passive 0");
    assert_eq!(waiting_of(&wide, Some("active")), "active");
    assert_eq!(waiting_of(&["--waiting", "passive"], None), "passive 0");
    assert_eq!(waiting_of(&["--waiting", "active"], None), "active");
    assert_eq!(waiting_of(&["--waiting", "passive"], Some("active")), "active");
    for nothing in [
        &[][..],
        &["--rigid", "--max-threads", "1"],
        &["--max-threads", "4"],
        &["--rigid", "--max-threads", "4", "--waiting", "as-is"],
        &["--rigid", "--max-threads", "4", "--no-coschedule"],
        &["--rigid", "--max-threads", "4", "--policy", "UE"],
    ] {
        assert_eq!(waiting_of(nothing, None), "", "{nothing:?}");
    }
    let mix = r#"
        [[program]]
        name = "as_the_file_says"
        command = ["sh", "-c", "echo \"wait $OMP_WAIT_POLICY\""]
        waiting = "passive"
        [[program]]
        name = "its_own"
        command = ["sh", "-c", "echo \"wait $OMP_WAIT_POLICY\""]
        waiting = "passive"
        [program.environment]
        OMP_WAIT_POLICY = "active"
        [[program]]
        name = "helpless"
        command = ["sh", "-c", "echo \"wait $OMP_WAIT_POLICY\""]
        [program.demand]
        malleability = "rigid"
        max_threads = 4
    "#;
    let mix = home.mix(mix, &["--cpus", "0"]);
    assert_eq!(mix.printed("as_the_file_says").trim(), "wait passive");
    assert_eq!(mix.printed("its_own").trim(), "wait active");
    assert_eq!(mix.printed("helpless").trim(), "wait passive");
    home.is_left_clean();
}

#[test]
fn status_and_explain_show_how_threads_wait_and_why() {
    let home = Home::new();
    let mut command = home.coplace();
    command.env_remove("OMP_WAIT_POLICY");
    let options = ["run", "--name", "wide", "--cpus", "0", "--rigid", "--max-threads", "4"];
    let mut program = home.start("wide", command.args(options).args(["--", "sleep", "100"]));
    let waits = |app: Value| app["waiting"].as_str().map(str::to_owned);
    home.until("it is known how it waits", || home.app("wide").and_then(waits).is_some());
    let why = "passively: it runs 4 threads on 1 CPU";
    assert_eq!(home.app("wide").and_then(waits).as_deref(), Some(why));
    for (arguments, wanted) in [
        (&["status"][..], format!("wide's threads were told to wait {why}")),
        (&["explain", "wide"], format!("its threads were told to wait {why}")),
    ] {
        let shown = String::from_utf8(home.ask(arguments).stdout).unwrap();
        assert!(shown.contains(&wanted), "{arguments:?}: {shown}");
    }
    program.signal(libc::SIGTERM);
    program.ended_within(std::time::Duration::from_secs(10));
    home.is_left_clean();
}

#[test]
fn adaptive_starts_a_poorly_scaling_rigid_program_narrow() {
    if processes::cpu_count() < 2 {
        return skipped("a narrow start", "there is one CPU only");
    }
    let home = Home::new();
    let options = ["--policy", "adaptive", "--cpus", "0-1", "--unmanaged", "ignore"];
    let daemon = home.daemon(&options);
    let start = |name: &str, options: &[&str]| {
        let mut command = home.coplace();
        command.env_remove("OMP_NUM_THREADS");
        let print_threads = ["--", "sh", "-c", r#"sleep 1; echo "threads $OMP_NUM_THREADS""#];
        home.start(name, command.args(["run", "--name", name]).args(options).args(print_threads))
    };
    let threads = |name: &str, options: &[&str]| {
        let mut program = start(name, options);
        assert!(program.ended_within(std::time::Duration::from_secs(30)).success());
        program.stdout().trim().to_owned()
    };
    // It is known from an earlier run, ...
    assert_eq!(threads("first", &[]), "threads");
    let path = home.path().join("h/remembered.json");
    let mut notes: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let peaks = notes["peaks"].as_object().expect("memory was seen");
    let keys: Vec<String> = peaks.keys().cloned().collect();
    for key in keys {
        // ... and by a curve that another one with teams of both sizes would have left.
        notes["speeds"][key] = json!({ "speedup": { "1": 1000, "2": 1050 }, "at": 1 });
    }
    fs::write(&path, notes.to_string()).unwrap();
    assert_eq!(threads("alone", &["--rigid"]), "threads");
    let mut neighbour = home.coplace();
    let neighbour = home.start("neighbour", neighbour.args(["run", "--name", "neighbour", "sleep", "100"]));
    home.until("the neighbour runs", || home.app("neighbour").is_some_and(|app| app["state"] != "waiting"));
    assert_eq!(threads("resizable", &[]), "threads");
    // A number of threads may be part of what is computed: only who says that it is not starts with fewer.
    assert_eq!(threads("unasked", &["--rigid"]), "threads");
    assert_eq!(threads("narrow", &["--rigid", "--may-start-narrow"]), "threads 1");
    let why = String::from_utf8(home.ask(&["explain", "narrow"]).stdout).unwrap();
    assert!(
        why.contains("narrow starts with 1 of 2 threads, as the policy chose: beside one other"),
        "{why}"
    );
    assert!(why.contains("takes 1.05 times as long as with all"), "{why}");
    neighbour.signal(libc::SIGTERM);
    home.until("it has left", || home.app("neighbour").is_none());
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn run_attach_and_rules_pass_on_all_thread_settings() {
    let home = Home::new();
    let program = home.path().join("solver");
    fs::copy("/bin/sleep", &program).unwrap();
    let rule = format!(
        "adopt = [{{ path = '{}', name = 'by_rule', min_threads = 2, max_threads = 4, coschedule = false }}]\n",
        program.display()
    );
    fs::write(home.path().join("config.toml"), rule).unwrap();
    let daemon = home.daemon(&[]);
    let demand = |name: &str| {
        let path = home.path().join("h/apps").join(format!("{name}.json"));
        home.until("it is on record", || path.exists());
        let record: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        record["demand"].clone()
    };
    let sleep = |command: &mut std::process::Command| command.arg("100").spawn().unwrap();
    let mut started = vec![sleep(&mut home.command(&program)), sleep(&mut home.command("sleep"))];
    let run =
        ["run", "-q", "--name", "by_run", "--moldable", "--min-threads", "2", "--max-threads", "3", "sleep"];
    started.push(sleep(home.coplace().args(run)));
    let pid = started[1].id().to_string();
    let attach = ["attach", "--name", "by_attach", "--evolving", "--min-threads", "2", "--no-coschedule"];
    let refused = home.ask(&[&attach[..], &["--max-threads", "1", &pid]].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let attached = home.ask(&[&attach[..], &[&pid]].concat());
    assert!(attached.status.success(), "{attached:?}");
    for (name, malleability, max_threads, coschedule) in [
        ("by_run", "moldable", json!(3), true),
        ("by_attach", "evolving", json!(null), false),
        ("by_rule", "malleable", json!(4), false),
    ] {
        let demand = demand(name);
        assert_eq!(demand["malleability"], malleability, "{name}: {demand}");
        assert_eq!((&demand["min_threads"], &demand["max_threads"]), (&json!(2), &max_threads), "{name}");
        assert_eq!(demand["coschedule"], coschedule, "{name}: {demand}");
    }
    for child in &mut started {
        processes::signal(child.id(), libc::SIGTERM);
        child.wait().unwrap();
    }
    home.until("all have left", || home.status().is_some_and(|status| status["apps"] == json!([])));
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}
