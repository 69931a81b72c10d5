//! The last lines of `make test`: `scripts/test-summary` reads what the tests printed.

use std::io::Write;
use std::process::{Command, Stdio};

use coplace_tests::top;

fn summary(printed: &str) -> String {
    let mut script = Command::new(top().join("scripts/test-summary"));
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("awk is there");
    child.stdin.take().expect("piped").write_all(printed.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_skip_is_listed_with_its_reason_and_counted() {
    // The preload library's tests count theirs themselves; Rust's harness takes a skipped test for a passed one.
    let printed = "ok - a\nSKIPPED b c: there is one CPU\n1 passed, 0 failed, 1 skipped\n..\nSKIPPED d: it takes root\n\
                   \n..\nSKIPPED IN PART e, Hydra: not installed\n.\n\
                   test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
    let wanted = "skipped:\n  b c: there is one CPU\n  d: it takes root\n  e, Hydra: not installed\n\
                  5 passed, 0 failed, 3 skipped\n";
    assert_eq!(summary(printed), wanted);
}

#[test]
fn equal_skips_share_a_line_and_count_apart() {
    let printed = "SKIPPED turns: one CPU\nSKIPPED turns: one CPU\ntest result: FAILED. 2 passed; 1 failed; 2 ignored;\n";
    let wanted = "skipped:\n  turns: one CPU (2 times)\n  2 tests that are marked as ignored\n\
                  0 passed, 1 failed, 4 skipped\n";
    assert_eq!(summary(printed), wanted);
}

#[test]
fn without_skips_there_is_one_line() {
    assert_eq!(
        summary("test result: ok. 2 passed; 0 failed; 0 ignored;\n"),
        "2 passed, 0 failed, 0 skipped\n"
    );
}

#[test]
fn a_skip_shows_though_its_test_passes() {
    const CHILD: &str = "COPLACE_SKIP_HERE";
    if std::env::var_os(CHILD).is_some() {
        return coplace_tests::skipped_here("it was asked to");
    }
    let this = std::env::current_exe().expect("this test is a program");
    let arguments = ["--exact", "a_skip_shows_though_its_test_passes", "--test-threads", "2"];
    let output = Command::new(this).args(arguments).env(CHILD, "1").output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains("\nSKIPPED a_skip_shows_though_its_test_passes: it was asked to\n"),
        "{printed}"
    );
}
