//! The scheduler itself: who it is, who takes over from whom, what it tells and what it can be told.

use std::time::Duration;

use coplace_tests::{Child, Home, app, processes};
use serde_json::Value;

fn run(home: &Home, name: &str, size: &str) -> Child {
    let mut command = home.coplace();
    home.start(name, command.args(["run", "--name", name, &app("regions"), "--size", size]))
}

fn role(home: &Home) -> Option<String> {
    Some(home.status()?["role"].as_str()?.to_owned())
}

fn ends_verified(child: &mut Child) {
    let status = child.ended_within(Duration::from_secs(60));
    assert!(status.success() && child.verified(), "{status}: {} {}", child.stdout(), child.stderr());
}

#[test]
fn a_daemon_takes_over_from_a_leading_run_without_a_loss() {
    let home = Home::new();
    let mut a = run(&home, "a", "M");
    home.until("the first run leads", || role(&home).as_deref() == Some("leader"));
    let mut b = run(&home, "b", "M");
    home.until("both are under it", || home.app("b").is_some_and(|app| app["state"] == "running"));
    let mut daemon = home.daemon(&[]);
    home.until("the daemon has adopted both", || home.app("a").is_some() && home.app("b").is_some());
    ends_verified(&mut a);
    ends_verified(&mut b);
    home.until("no program is left", || home.status().is_some_and(|s| s["apps"] == Value::Array(vec![])));
    daemon.signal(libc::SIGTERM);
    assert!(daemon.ended_within(Duration::from_secs(60)).success(), "{}", daemon.stderr());
    home.is_left_clean();
}

#[test]
fn another_run_leads_when_the_leader_ends_without_a_pause() {
    let home = Home::new();
    let mut a = run(&home, "a", "S");
    home.until("the first run leads", || role(&home).as_deref() == Some("leader"));
    let mut b = run(&home, "b", "M");
    ends_verified(&mut a);
    home.until("the second run leads", || {
        role(&home).is_some() && home.app("a").is_none() && home.app("b").is_some()
    });
    ends_verified(&mut b);
    home.is_left_clean();
}

#[test]
fn a_daemon_that_is_stopped_leaves_its_programs_free() {
    let home = Home::new();
    let mut daemon = home.daemon(&["--policy", "TA"]);
    let (mut a, mut b) = (run(&home, "a", "M"), run(&home, "b", "M"));
    home.until("both are placed", || {
        let placed =
            |name| home.app(name).is_some_and(|app| app["place"].as_str().is_some_and(|p| p.len() == 1));
        processes::cpu_count() != 2 || placed("a") && placed("b")
    });
    daemon.signal(libc::SIGTERM);
    assert!(daemon.ended_within(Duration::from_secs(60)).success(), "{}", daemon.stderr());
    // One of the two runs leads now.
    home.until("a run leads", || role(&home).as_deref() == Some("leader"));
    ends_verified(&mut a);
    ends_verified(&mut b);
    home.is_left_clean();
}

#[test]
fn the_policy_is_set_while_programs_run() {
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA"]);
    let (mut a, mut b) = (run(&home, "a", "M"), run(&home, "b", "M"));
    home.until("both run", || home.app("a").is_some() && home.app("b").is_some());
    assert_eq!(home.json(&["policy", "get", "--json"]).unwrap()["letters"], "TA");
    let set = home.json(&["policy", "set", "CO", "--set", "allowed_widths=[2]", "--json"]);
    if processes::cpu_count() == 2 {
        assert_eq!(set.unwrap()["letters"], "CO");
        home.until("they take turns", || {
            home.status().is_some_and(|status| status["plan"].as_str().unwrap().starts_with("in_turn"))
        });
    }
    assert_eq!(home.json(&["policy", "set", "UE", "--json"]).unwrap()["letters"], "UE");
    home.until("the new policy's plan is in force", || {
        home.status().is_some_and(|status| !status["plan"].as_str().unwrap().contains("in_turn"))
    });
    assert_eq!(home.json(&["policy", "set", "TA", "--json"]).unwrap()["letters"], "TA");
    let unknown = home.coplace().args(["policy", "set", "BEST"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{}", String::from_utf8_lossy(&unknown.stderr));
    ends_verified(&mut a);
    ends_verified(&mut b);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn status_and_explain_show_places_and_reasons() {
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA"]);
    let (mut a, mut b) = (run(&home, "a", "M"), run(&home, "b", "M"));
    home.until("both run", || {
        let runs = |name| home.app(name).is_some_and(|app| app["state"] == "running" && app["team"].is_u64());
        runs("a") && runs("b")
    });
    let status = home.status().unwrap();
    assert_eq!(status["pid"], daemon.pid());
    assert!(status["policy"].as_str().unwrap().contains("(TA)"), "{status}");
    let plan = status["plan"].as_str().unwrap();
    assert!(plan.contains("a on ") && plan.contains("b on "), "{status}");
    let running = home.running("regions");
    for name in ["a", "b"] {
        let app = home.app(name).unwrap();
        let pid = app["pid"].as_u64().unwrap() as u32;
        assert!(running.contains(&pid), "{app} is not among {running:?}");
        assert_eq!(app["rigid"], Value::Null, "{app}");
    }
    let why = home.json(&["explain", "a", "--json"]).unwrap();
    let history = why["history"].as_array().unwrap();
    assert!(history.iter().any(|entry| entry["news"]["came"]["app"] == "a"), "{why}");
    assert!(history.iter().all(|entry| entry["news"]["came"]["app"] != "b"), "{why}");
    assert_eq!(why["app"]["id"], "a", "{why}");
    let all = home.json(&["explain", "--json"]).unwrap();
    assert_eq!(all["plan"], home.status().unwrap()["plan"], "{all}");
    assert!(all["report"]["remarks"][0]["level"]["programs"].is_u64(), "{all}");
    let stranger = home.coplace().args(["explain", "nobody"]).output().unwrap();
    assert_eq!(stranger.status.code(), Some(2), "{}", String::from_utf8_lossy(&stranger.stdout));
    ends_verified(&mut a);
    ends_verified(&mut b);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_second_daemon_is_refused_and_a_dead_socket_replaced() {
    let home = Home::new();
    let first = home.daemon(&[]);
    let second = home.coplace().arg("daemon").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(error.lines().count() == 1 && error.contains(&first.pid().to_string()), "{error}");
    let mut first = first;
    first.signal(libc::SIGKILL);
    first.ended_within(Duration::from_secs(60));
    assert!(home.path().join("h/socket").exists(), "kill -9 leaves the socket behind");
    assert_eq!(home.status(), None);
    let daemon = home.daemon(&[]);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_daemon_that_observes_plans_and_never_acts() {
    let home = Home::new();
    let mut observer = home.coplace();
    let observer = home.start("observer", observer.args(["daemon", "--observe", "--policy", "TA"]));
    home.until("it observes", || role(&home).as_deref() == Some("observer"));
    // Uncontrolled, two programs that spin take a minute now and then.
    let [mut a, mut b] = ["a", "b"].map(|name| {
        let mut command = home.coplace();
        command.env("OMP_WAIT_POLICY", "passive");
        home.start(name, command.args(["run", "--name", name, &app("regions"), "--size", "S"]))
    });
    home.until("it has a plan", || {
        home.status().is_some_and(|s| s["plan"].as_str().unwrap().contains("b on"))
    });
    for pid in home.running("regions") {
        let own = processes::own_mask();
        assert!(processes::masks(pid).iter().all(|mask| *mask == own), "{:?}", processes::masks(pid));
    }
    ends_verified(&mut a);
    ends_verified(&mut b);
    observer.signal(libc::SIGTERM);
    home.is_left_clean();
}
