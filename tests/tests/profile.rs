//! `coplace profile`: measured once, kept, handed on.

use coplace_tests::{Home, app};

#[test]
fn a_program_is_measured_once_and_what_is_known_goes_from_store_to_store() {
    let home = Home::new();
    let cg = app("cg");
    let profile = |store: &str, words: &[&str]| {
        let mut command = home.coplace();
        // Without the tool: the rest must work, and say so.
        command.env("COPLACE_EVIDENCE", home.path().join(store)).env("COPLACE_REUSE_TOOL", "/nowhere");
        let output = command.arg("profile").args(words).output().expect("coplace can be started");
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
    for (words, status, said) in [
        (vec!["show", "cg"], 1, "nothing is known of cg"),
        (vec!["--", "/nowhere/at/all"], 2, "/nowhere/at/all"),
        (vec!["--", "false"], 1, "nothing was kept"),
        (vec![], 2, "no program is given"),
    ] {
        let (code, _, error) = profile("b", &words);
        assert_eq!(code, Some(status), "{words:?}: {error}");
        assert!(error.contains(said), "{words:?}: {error}");
    }
    home.is_left_clean();
}

#[test]
fn slowdowns_are_kept_round_by_round_and_speak_for_a_class_beside_the_others() {
    let home = Home::new();
    let cg = app("cg");
    let coplace = |words: &[&str]| {
        let mut command = home.coplace();
        command.env("COPLACE_EVIDENCE", home.path().join("store"));
        let output = command.args(words).output().expect("coplace can be started");
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
    assert!(verdicts[0]["class"].is_null() && verdicts[2]["class"].is_string(), "{shown}");
    // The command alone: every round in the JSON, and what is wrong in a word.
    let words = [
        "lab",
        "slowdown",
        "-q",
        "--rounds",
        "2",
        "--footprints",
        "512K,8M",
        "--json",
        "-",
        "--",
        &cg,
        "--size",
        "T",
    ];
    let (code, out, error) = coplace(&words);
    assert_eq!(code, Some(0), "{error}");
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((found["rounds"].as_array().unwrap().len(), found["curve"].as_array().unwrap().len()), (4, 2));
    for (program, status, said) in [("/nowhere/at/all", 2, "/nowhere/at/all"), ("false", 1, "exit status 1")]
    {
        let (code, _, error) =
            coplace(&["lab", "slowdown", "--rounds", "1", "--footprints", "1M", "--", program]);
        assert_eq!(code, Some(status), "{error}");
        assert!(error.contains(said), "{error}");
    }
    home.is_left_clean();
}
