//! User-level threads in bubbles under the real scheduler.

use std::process::Command;
use std::time::Duration;

use coplace_tests::{Home, app, processes, skipped, top};

/// An example of the library, as the tests' own build has it; made where that was of other packages only.
fn example(name: &str) -> String {
    let arguments = ["build", "--quiet", "-p", "coplace-bubbles", "--example", name];
    let built = Command::new(env!("CARGO")).args(arguments).current_dir(top()).output();
    let built = built.expect("it can be started");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let tests = std::env::current_exe().expect("a test has a path");
    let folder = tests.parent().and_then(std::path::Path::parent).expect("tests lie in deps");
    folder.join("examples").join(name).to_str().expect("a readable path").to_owned()
}

#[test]
fn ten_thousand_threads_follow_their_partition_and_return() {
    if processes::cpu_count() < 2 {
        return skipped("a partition that shrinks", "there is only one CPU");
    }
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA"]);
    let start = |name: &str, arguments: &[&str]| {
        home.start(name, home.coplace().args(["run", "--name", name, "--"]).args(arguments))
    };
    let mut threads = start("threads", &[&example("partition"), "20"]);
    let has = |count: u64| {
        move |app: &serde_json::Value| {
            app["threads"] == count && app["team"] == count && app["rigid"].is_null()
        }
    };
    let both = home.status().expect("there is a scheduler")["allowed"].clone();
    home.until("it has all CPUs", || {
        home.app("threads").is_some_and(|app| app["team"].as_u64() >= Some(2) && app["place"] == both)
    });
    home.until("its tree of bubbles is shown", || {
        home.app("threads").is_some_and(|app| {
            let tree = app["bubbles"].as_str().unwrap_or_default();
            tree.starts_with("all: 10000 threads") && tree.contains("\n  left: 5000 threads")
        })
    });
    let text = home.coplace().arg("status").output().expect("it can be started").stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("threads's bubbles\n  all: 10000 threads"), "{text}");

    let mut other = start("other", &[&app("regions"), "--size", "S"]);
    home.until("it goes on on one CPU", || home.app("threads").is_some_and(|app| has(1)(&app)));
    assert!(other.ended_within(Duration::from_secs(60)).success() && other.verified(), "{}", other.stderr());
    home.until("it has all CPUs again", || {
        home.app("threads").is_some_and(|app| app["team"].as_u64() >= Some(2) && app["place"] == both)
    });
    let status = threads.ended_within(Duration::from_secs(60));
    assert!(status.success() && threads.verified(), "{status}: {} {}", threads.stdout(), threads.stderr());
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}
