//! `coplace profile`: measured once, kept, handed on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use coplace_tests::{Home, app, processes, skipped, top};

/// Exit status, stdout and stderr of a command with a store in this home.
fn coplace(home: &Home, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = home.coplace();
    command.env("COPLACE_EVIDENCE", home.path().join("store"));
    command.env("COPLACE_REUSE_TOOL", top().join("build/reuse-tool"));
    let output = command.args(arguments).output().expect("coplace can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Kinds of the samples in the store, with what they say.
fn samples(home: &Home) -> Vec<(String, serde_json::Value)> {
    let read = |line: &str| {
        let sample: serde_json::Value = serde_json::from_str(line).expect("JSON");
        (sample["kind"].as_str().expect("a kind").to_owned(), sample["value"].clone())
    };
    coplace(home, &["profile", "export"]).1.lines().map(read).collect()
}

/// Whether the reuse tool can be used here; a word about the part of a test that goes without it.
fn has_tool(test: &str) -> bool {
    let made = Command::new("make").args(["--quiet", "reuse-tool"]).current_dir(top()).output();
    let there = made.is_ok_and(|made| made.status.success()) && top().join("build/reuse-tool").is_dir();
    if !there {
        skipped(test, "there is no valgrind");
    }
    there
}

fn runs(word: &str) -> bool {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().any(|pid: u32| processes::command(pid).iter().any(|own| own == word))
}

#[test]
fn a_program_is_measured_once_and_stores_exchange_it() {
    let home = Home::new();
    let cg = app("cg");
    let profile = |store: &str, arguments: &[&str]| {
        let mut command = home.coplace();
        // Without the tool: the rest must work, and say so.
        command.env("COPLACE_EVIDENCE", home.path().join(store)).env("COPLACE_REUSE_TOOL", "/nowhere");
        let output = command.arg("profile").args(arguments).output().expect("coplace can be started");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let program = ["--only", "alone,reuse", "--threads", "1", "--", &cg, "--size", "T"];
    let (code, shown, error) = profile("a", &program);
    assert_eq!(code, Some(1), "{error}");
    assert!(shown.contains("alone") && error.contains("no reuse distances"), "{shown}{error}");
    // The second time nothing runs; with other threads, or when asked to, it does.
    profile("a", &program);
    let samples = |store: &str| profile(store, &["export"]).1.lines().count();
    assert_eq!(samples("a"), 1);
    profile("a", &["--only", "alone", "--threads", "2", "--", &cg, "--size", "T"]);
    profile("a", &["--only", "alone", "--threads", "1", "--again", "--", &cg, "--size", "T"]);
    assert_eq!(samples("a"), 3);

    let lines = home.path().join("lines.jsonl");
    std::fs::write(&lines, profile("a", &["export"]).1).unwrap();
    let lines = lines.to_str().unwrap();
    assert_eq!(profile("b", &["import", lines]).1, "3 of 3 samples are new\n");
    assert_eq!(profile("b", &["import", lines]).1, "0 of 3 samples are new\n");
    assert_eq!(profile("b", &["export"]).1, profile("a", &["export"]).1);
    let listed: serde_json::Value = serde_json::from_str(&profile("b", &["list", "--json"]).1).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");

    std::fs::write(lines, "{\"program\": 3}\n").unwrap();
    let (code, _, error) = profile("b", &["import", lines]);
    assert_eq!(code, Some(2));
    assert!(error.contains("line 1"), "{error}");
    assert_eq!(profile("b", &["forget", "cg"]).0, Some(0));
    assert_eq!(samples("b"), 0);
    for (arguments, status, message) in [
        (vec!["show", "cg"], 1, "nothing is known of cg"),
        (vec!["--", "/nowhere/at/all"], 2, "/nowhere/at/all"),
        (vec!["--", "false"], 1, "nothing was kept"),
        (vec![], 2, "no program is given"),
    ] {
        let (code, _, error) = profile("b", &arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
    home.is_left_clean();
}

/// Whether program and probe shared no cache in this round.
fn is_apart(round: &serde_json::Value) -> bool {
    let latency = |of: &str| round["latency"][of].as_f64();
    latency("core_to_core_ns").zip(latency("memory_ns")).is_some_and(|(line, memory)| line >= 0.75 * memory)
}

#[test]
fn slowdowns_are_kept_by_round_and_support_a_class() {
    let home = Home::new();
    let cg = app("cg");
    let coplace = |arguments: &[&str]| {
        let mut command = home.coplace();
        command.env("COPLACE_EVIDENCE", home.path().join("store"));
        let output = command.args(arguments).output().expect("coplace can be started");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let measured = coplace(&["profile", "--only", "slowdown", "--threads", "1", "--", &cg, "--size", "T"]);
    if measured.0 == Some(1) {
        assert!(measured.2.contains("no slowdowns"), "{measured:?}");
        return coplace_tests::skipped(
            "slowdowns in the evidence store",
            "one CPU, or caches of unknown size",
        );
    }
    assert_eq!(measured.0, Some(0), "{measured:?}");
    let shown: serde_json::Value =
        serde_json::from_str(&coplace(&["profile", "show", "cg", "--json"]).1).expect("JSON");
    assert_eq!(shown["samples"].as_array().unwrap().len(), 15, "five rounds of three footprints");
    let verdicts = shown["verdicts"][0]["verdicts"].as_array().unwrap();
    let by: Vec<_> = verdicts.iter().map(|verdict| verdict["by"].as_str().unwrap()).collect();
    assert_eq!(by, ["counters", "distances", "slowdowns", "bursts"]);
    assert!(verdicts[0]["class"].is_null(), "{shown}");
    // There is a class where the probe feels the last-level cache and shares it with the program: of three footprints
    // the second is within, the last beyond.
    let mut alone: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut together: BTreeMap<u64, u32> = BTreeMap::new();
    for sample in shown["samples"].as_array().unwrap() {
        let round = &sample["value"]["round"];
        let bytes = round["footprint_bytes"].as_u64().unwrap();
        alone.entry(bytes).or_default().push(round["probe_alone_bytes_per_s"].as_f64().unwrap());
        *together.entry(bytes).or_default() += u32::from(!is_apart(round));
    }
    let medians: Vec<f64> = alone
        .into_values()
        .map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        })
        .collect();
    let felt = medians[1] >= 1.25 * medians[2] && together.values().skip(1).all(|rounds| *rounds > 0);
    assert_eq!(verdicts[2]["class"].is_string(), felt, "{shown}");
    if verdicts[2]["class"].is_null() {
        coplace_tests::skipped_part("a class by slowdowns", verdicts[2]["evidence"].as_str().unwrap());
    }
    // The command alone: every round in the JSON, and what is wrong in a word.
    let slowdown = |options: &[&str], program: &[&str]| {
        // Nothing here hangs on a shared cache: nobody has to wait for one.
        coplace(&[&["lab", "slowdown", "-q", "--patience", "0"], options, &["--"], program].concat())
    };
    let options = ["--rounds", "2", "--footprints", "512K,8M", "--json", "-"];
    let (code, out, error) = slowdown(&options, &[&cg, "--size", "T"]);
    assert_eq!(code, Some(0), "{error}");
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let rounds = found["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 4, "{found}");
    // Those in which the two shared no cache are in no curve, unless they never did.
    let never = rounds.iter().all(is_apart);
    let counted = rounds.iter().filter(|round| never || !is_apart(round));
    let footprints: BTreeSet<u64> = counted.map(|round| round["footprint_bytes"].as_u64().unwrap()).collect();
    assert_eq!(found["curve"].as_array().unwrap().len(), footprints.len(), "{found}");
    // With several numbers of threads of the probe a curve each.
    let options = ["--rounds", "2", "--footprints", "512K", "--probe-threads", "1,2", "--json", "-"];
    let (code, out, error) = slowdown(&options, &[&cg, "--size", "T"]);
    assert_eq!(code, Some(0), "{error}");
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let count = |of: usize, part: &str| found[of][part].as_array().unwrap().len();
    let counts = |of| (count(of, "probe_cpus"), count(of, "rounds"), count(of, "curve"));
    assert_eq!((counts(0), counts(1), found[0]["whole"].as_bool()), ((1, 2, 1), (2, 2, 1), Some(true)));
    for (program, status, message) in
        [("/nowhere/at/all", 2, "/nowhere/at/all"), ("false", 1, "exit status 1")]
    {
        let (code, _, error) = slowdown(&["--rounds", "1", "--footprints", "1M"], &[program]);
        assert_eq!(code, Some(status), "{error}");
        assert!(error.contains(message), "{error}");
    }
    home.is_left_clean();
}

#[test]
fn an_endless_program_is_ended_and_the_partial_result_kept() {
    let home = Home::new();
    let script = "setsid sleep 86411 & while :; do :; done";
    let arguments = ["profile", "--only", "alone,reuse,counters,slowdown", "--threads", "1", "--limit", "1s"];
    let (code, shown, error) = coplace(&home, &[&arguments[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("no time alone: sh did not end within 1 s, the limit"), "{error}");
    for kind in ["counters", "slowdown"] {
        assert!(error.contains(&format!("no {kind}: the program does not end")), "{error}");
    }
    assert!(!runs("86411"), "what it started outlives it");
    let kept = samples(&home);
    if has_tool("an endless program under the reuse tool") {
        assert!(error.contains("reuse distances of the first 1 s only"), "{error}");
        assert!(shown.contains("cut off by the time limit"), "{shown}");
        assert_eq!(kept.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["reuse"]);
        assert_eq!(kept[0].1["programs"][0]["ended"], "time_limit");
    } else {
        assert!(kept.is_empty(), "{kept:?}");
    }
    home.is_left_clean();
}

#[test]
fn nothing_is_kept_of_a_run_under_the_tool_that_failed() {
    if !has_tool("a program that fails under the reuse tool alone") {
        return;
    }
    let home = Home::new();
    // The first time, natively, it ends well.
    let script = format!("test ! -e {0} && touch {0}", home.path().join("ran").display());
    let arguments = ["profile", "--only", "alone,reuse", "--threads", "1", "--", "sh", "-c", &script];
    let (code, _, error) = coplace(&home, &arguments);
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("ended with status 1") && error.contains("nothing of that run was kept"),
        "{error}"
    );
    assert_eq!(samples(&home).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>(), ["alone"]);
    home.is_left_clean();
}

/// A program for 32 bits that ends well, where they can be built and run.
fn narrow(home: &Home) -> Option<String> {
    let (source, program) = (home.path().join("narrow.c"), home.path().join("narrow"));
    let text = r#"void _start(void) { __asm__ volatile("movl $1, %eax; xorl %ebx, %ebx; int $0x80"); }"#;
    std::fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-m32", "-O1", "-nostdlib", "-static", "-o"]).args([&program, &source]).stderr(Stdio::null());
    let is_there = cc.status().is_ok_and(|status| status.success())
        && Command::new(&program).status().is_ok_and(|status| status.success());
    is_there.then(|| program.to_str().unwrap().to_owned())
}

#[test]
fn of_a_32_bit_program_all_is_measured_but_reuse_distances() {
    let home = Home::new();
    let Some(narrow) = narrow(&home) else {
        return skipped("a 32-bit program's profile", "programs for 32 bits cannot be built or run here");
    };
    let arguments = ["profile", "--threads", "1", "--only", "alone,reuse,slowdown", "--", &narrow];
    let (code, _, error) = coplace(&home, &arguments);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("no reuse distances") && error.contains("is a 32-bit program"), "{error}");
    let kinds: Vec<String> = samples(&home).into_iter().map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&"alone".to_owned()) && !kinds.contains(&"reuse".to_owned()), "{kinds:?}");
    assert!(kinds.contains(&"slowdown".to_owned()) || error.contains("no slowdowns"), "{kinds:?}: {error}");
    // The tool's own command refuses it.
    assert_eq!(coplace(&home, &["lab", "reuse", "--without-native", "--", &narrow]).0, Some(2));
    home.is_left_clean();
}

/// Starts a command, sends it a Ctrl-C's signal once it has said this, and waits for its end.
fn interrupted(mut command: Command, matches: impl Fn(&str) -> bool) -> (Option<i32>, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if matches(&line) {
            processes::signal(child.id(), libc::SIGINT);
        }
        text += &(line + "\n");
    }
    (child.wait().unwrap().code(), text)
}

#[test]
fn rounds_that_were_measured_before_an_interruption_are_written() {
    if processes::cpu_count() < 2 {
        return skipped("interrupted slowdowns", "there is one CPU only");
    }
    let home = Home::new();
    let json = home.path().join("rounds.json");
    let mut command = home.coplace();
    command
        .args(["lab", "slowdown", "--rounds", "1000", "--footprints", "512K,1M", "--patience", "0", "--json"])
        .arg(&json);
    command.args(["--", "sleep", "0.05"]);
    let (code, error) = interrupted(command, |line| line.contains("round 3 of"));
    assert_eq!(code, Some(130), "{error}");
    assert!(error.contains("of 2000 comparisons, which are kept"), "{error}");
    let found: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let rounds = found["rounds"].as_array().unwrap().len();
    assert!((4..2000).contains(&rounds) && found["whole"] == false, "{found}");
    home.is_left_clean();
}

#[test]
fn an_interrupted_profile_ends_the_program_and_does_not_go_on() {
    let home = Home::new();
    let mut command = home.coplace();
    command.env("COPLACE_EVIDENCE", home.path().join("store"));
    command.args(["profile", "--only", "alone,reuse", "--", "sh", "-c", "sleep 86412 & sleep 86413"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    home.until("the program runs", || runs("86412") && runs("86413"));
    processes::signal(child.id(), libc::SIGINT);
    let status = child.wait().unwrap();
    let error = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert_eq!(status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted; what was measured is kept"), "{error}");
    assert!(!runs("86412") && !runs("86413"), "{error}");
    assert!(samples(&home).is_empty());
    home.is_left_clean();
}
