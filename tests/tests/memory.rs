//! Programs that say how much memory they need: who waits for it, and how that ends.

use std::time::Duration;

use coplace_tests::{Home, app, processes};

#[test]
fn a_program_waits_for_memory_with_a_reason_and_starts_then() {
    let home = Home::new();
    let _daemon = home.daemon(&[]);
    let burn = app("burn");
    let mut first = home.start(
        "first",
        home.coplace().args(["run", "-q", "--name", "first", "--", &burn, "--seconds", "600"]),
    );
    home.until("the first runs", || home.running("burn").len() == 1);
    let mut big = home.start(
        "big",
        home.coplace().args(["run", "--name", "big", "--mem", "4000T", "--", &burn, "--seconds", "0.2"]),
    );
    home.until("it waits", || home.app("big").is_some_and(|app| app["state"] == "waiting"));
    let why = home.app("big").unwrap()["waits_for"].as_str().unwrap().to_owned();
    assert!(why.contains("expected to need 4000.0 TiB"), "{why}");
    home.until("it says so", || big.stderr().contains("big waits: it is expected to need"));
    let explained = home.ask(&["explain", "big"]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("it waits:"), "{explained:?}");
    // Nobody waits behind it who expects nothing, and who expects something waits its turn.
    let mut small = home.start(
        "small",
        home.coplace().args(["run", "-q", "--name", "small", "--", &burn, "--seconds", "0.2"]),
    );
    assert!(small.ended_within(Duration::from_secs(60)).success());
    let mut next = home.start(
        "next",
        home.coplace().args(["run", "--name", "next", "--mem", "1M", "--", &burn, "--seconds", "0.2"]),
    );
    home.until("it waits behind", || {
        home.app("next").is_some_and(|app| {
            app["waits_for"].as_str().is_some_and(|why| why.contains("big came before it"))
        })
    });
    home.running("burn").into_iter().for_each(|pid| processes::signal(pid, libc::SIGTERM));
    assert!(first.ended_within(Duration::from_secs(60)).success());
    // Nothing is left that could free memory: it starts all the same.
    assert!(big.ended_within(Duration::from_secs(60)).success() && big.verified());
    assert!(next.ended_within(Duration::from_secs(60)).success() && next.verified());
    drop((first, small));
    home.until("all are gone", || {
        home.status().is_some_and(|status| status["apps"].as_array().is_some_and(Vec::is_empty))
    });
}

#[test]
fn a_wait_for_memory_can_be_interrupted_and_released() {
    let home = Home::new();
    let _daemon = home.daemon(&[]);
    let burn = app("burn");
    let _first = home.start("first", home.coplace().args(["run", "-q", "--", &burn, "--seconds", "600"]));
    home.until("the first runs", || home.running("burn").len() == 1);
    let waiting = |name: &str| {
        let mut command = home.coplace();
        let child = home.start(
            name,
            command.args(["run", "-q", "--name", name, "--mem", "4000T", "--", &burn, "--seconds", "0.2"]),
        );
        home.until("it waits", || home.app(name).is_some_and(|app| app["state"] == "waiting"));
        child
    };
    let mut interrupted = waiting("interrupted");
    interrupted.signal(libc::SIGTERM);
    interrupted.ended_within(Duration::from_secs(60));
    home.until("it is forgotten", || home.app("interrupted").is_none());
    let mut released = waiting("released");
    assert!(home.ask(&["release", "released"]).status.success());
    assert!(released.ended_within(Duration::from_secs(60)).success() && released.verified());
    let mut killed = waiting("killed");
    killed.signal(libc::SIGKILL);
    killed.ended_within(Duration::from_secs(60));
    home.until("what its run left behind goes on by itself and ends", || home.app("killed").is_none());
}
