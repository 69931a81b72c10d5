//! `coplace advise` on programs that really hurt each other: whom it names, why, and that what it tells mends it.

use std::collections::BTreeSet;
use std::time::Duration;

use coplace_tests::{Child, Home, app, coplace, processes, skipped};
use serde_json::Value;

/// Long enough for turns to come round many times, short beside the programs.
const ADVISE: [&str; 4] = ["advise", "--json", "--seconds", "1.5"];

/// What `advise` says; it exits with 1 where somebody is hurt.
fn advise(home: &Home) -> Value {
    let output = home.coplace().args(ADVISE).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Those of these programs that it says are hurt, with what it says.
fn hurt<'a>(advice: &'a Value, pids: &[u32]) -> Vec<&'a Value> {
    let hurt = advice["hurt"].as_array().unwrap();
    let its = |entry: &&Value| pids.iter().any(|pid| entry["pid"] == *pid);
    hurt.iter().filter(its).collect()
}

/// CPUs that these programs want together.
fn wanted(advice: &Value, pids: &[u32]) -> f64 {
    let programs = advice["programs"].as_array().unwrap();
    let its = programs.iter().filter(|program| pids.iter().any(|pid| program["pid"] == *pid));
    its.map(|program| program["wanted_cpus"].as_f64().unwrap()).sum()
}

#[test]
fn two_harmful_teams_are_named_with_reason_and_remedy() {
    if processes::cpu_count() < 2 {
        return skipped("advise", "there is one CPU only");
    }
    let home = Home::new();
    let mut programs: [Child; 2] = ["cg", "lu"].map(|name| {
        // Both on the same two CPUs, whatever the machine has, for longer than the test.
        let mut command = home.command("taskset");
        command.args(["-c", "0-1", &app(name), "--size", "M", "--scale", "100"]);
        home.start(name, &mut command)
    });
    let pids = [programs[0].pid(), programs[1].pid()];
    std::thread::sleep(Duration::from_secs(1));
    let advice = advise(&home);
    let entries = hurt(&advice, &pids);
    assert_eq!(entries.len(), 2, "{advice:#}");
    assert!(wanted(&advice, &pids) > 3.5, "{advice:#}");
    for entry in &entries {
        let other = pids.iter().find(|pid| entry["pid"] != **pid).unwrap();
        assert!(entry["by"].as_array().unwrap().iter().any(|by| by["pid"] == *other), "{entry}");
        assert!(entry["slowdown_at_least"].as_f64().unwrap() > 1.3, "{entry}");
        let why = entry["why"].as_str().unwrap();
        assert!(why.starts_with("2 busy threads got ") && why.contains("spin for one another"), "{why}");
        assert_eq!(entry["spins"], true);
    }
    let remedies = advice["remedies"].as_array().unwrap();
    let command = |part: &str| {
        let mut commands = remedies.iter().filter_map(|remedy| remedy["command"].as_str());
        commands.find(|command| command.contains(part)).unwrap_or_else(|| panic!("{remedies:#?}"))
    };
    // To start them again names both; to take them in is what is done here, as it is told.
    let again = command("coplace run ");
    assert!(again.contains("/cg ") && again.contains("/lu "), "{again}");
    let attach = command("coplace attach ");
    let named: BTreeSet<&str> = attach.split_whitespace().collect();
    assert!(pids.iter().all(|pid| named.contains(pid.to_string().as_str())), "{attach}");
    let mut shell = home.command("sh");
    let directory = coplace().parent().unwrap().to_owned();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default());
    // The daemon needs a moment before it answers, which people who type two lines give it; and what else runs
    // on this machine is nobody's business here.
    let typed = format!("coplace daemon & sleep 2; coplace attach {} {}", pids[0], pids[1]);
    assert!(attach.starts_with("coplace daemon & coplace attach "), "{attach}");
    let attached = home.start("shell", shell.env("PATH", path).args(["-c", &typed]));
    home.until("both are under coplace", || {
        home.status().is_some_and(|status| status["apps"].as_array().unwrap().len() == 2)
    });
    // In turn, one stands still and wants nothing while the other runs, whoever else runs beside them.
    home.until("together they want no more than their CPUs", || wanted(&advise(&home), &pids) < 2.5);
    drop(attached);
    for program in &mut programs {
        program.signal(libc::SIGKILL);
        program.ended_within(Duration::from_secs(10));
    }
    let daemon = home.status().unwrap()["pid"].as_u64().unwrap();
    processes::signal(daemon as u32, libc::SIGTERM);
    home.is_left_clean();
}
