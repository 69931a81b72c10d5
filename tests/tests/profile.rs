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
    let program = ["--threads", "1", "--", &cg, "--size", "T"];
    let (code, shown, error) = profile("a", &program);
    assert_eq!(code, Some(1), "{error}");
    assert!(shown.contains("alone") && error.contains("no reuse distances"), "{shown}{error}");
    // The second time nothing runs; with other threads, or when asked to, it does.
    profile("a", &program);
    let samples = |store: &str| profile(store, &["export"]).1.lines().count();
    assert_eq!(samples("a"), 1);
    profile("a", &["--threads", "2", "--", &cg, "--size", "T"]);
    profile("a", &["--threads", "1", "--again", "--", &cg, "--size", "T"]);
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
