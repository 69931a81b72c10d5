//! The probe on a live node: short bursts on idle CPUs beside a real program.

use std::time::{Duration, Instant};

use coplace_tests::{Home, app, machine, processes, skipped};
use serde_json::Value;

/// A first burst may cost a quarter of a second, which takes two CPUs twelve seconds to earn.
const PATIENCE: Duration = Duration::from_secs(240);
/// After that it shows whether others leave a CPU idle.
const MOMENT: Duration = Duration::from_secs(40);

fn bursts(home: &Home) -> Vec<Value> {
    let output = evidence(home, &["profile", "export"]);
    output.lines().map(|line| serde_json::from_str(line).expect("it prints JSON")).collect()
}

fn evidence(home: &Home, arguments: &[&str]) -> String {
    let mut command = home.coplace();
    let output = command
        .env("COPLACE_EVIDENCE", home.path().join("evidence.sqlite"))
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Bursts so far, and percent of the machine's time, as the status tells.
fn bandwidth(home: &Home) -> (u64, f64) {
    let status = home.status().expect("the daemon runs");
    let line = status["services"][0].as_str().expect("the probe runs beside the scheduler").to_owned();
    let number = |before: &str| {
        let (text, _) = line.split_once(before).unwrap_or_else(|| panic!("{line}"));
        text.rsplit(' ').next().unwrap().parse::<f64>().unwrap_or_else(|_| panic!("{line}"))
    };
    (number(" short bursts") as u64, number("% of the machine"))
}

#[test]
fn idle_cpu_bursts_measure_loss_and_stop_for_a_newcomer() {
    if processes::cpu_count() < 2 {
        return skipped("the probe on a live node", "there is one CPU only");
    }
    if topology::Machine::discover()
        .machine
        .last_level_cache_of(0)
        .is_none_or(|cache| cache.size_bytes.is_none())
    {
        return skipped(
            "the probe on a live node",
            "the machine does not tell the size of its last-level cache",
        );
    }
    let home = Home::new();
    let mut daemon = home.coplace();
    daemon.env("COPLACE_EVIDENCE", home.path().join("evidence.sqlite"));
    daemon.args(["daemon", "--probe", "--cpus", "0-1", "--unmanaged", "ignore"]);
    let daemon = home.start("daemon", &mut daemon);
    home.until("the daemon answers", || home.status().is_some());
    let start = |name: &str, threads: &str| {
        let mut command = home.coplace();
        command.env("OMP_NUM_THREADS", threads).args(["run", "--name", name, "--", &app("regions")]);
        home.start(name, command.args(["--size", "S", "--scale", "1000"]))
    };
    // One thread: the other CPU is idle.
    let mut narrow = start("narrow", "1");
    let (began, idle_before) = (Instant::now(), machine::idle());
    while bursts(&home).is_empty() {
        let is_busy = machine::idle() - idle_before < began.elapsed() / 10;
        if is_busy && began.elapsed() > MOMENT {
            let (_, percent) = bandwidth(&home);
            assert!(percent <= 1.0, "the probe took {percent}% of the machine's time");
            narrow.signal(libc::SIGTERM);
            narrow.ended_within(Duration::from_secs(60));
            daemon.signal(libc::SIGTERM);
            home.is_left_clean();
            return skipped("bursts of the probe on a live node", "other programs leave no CPU idle");
        }
        assert!(began.elapsed() < PATIENCE, "no burst: {:?}", home.status());
        // Whoever asks has a CPU meanwhile, which ends a burst there.
        std::thread::sleep(Duration::from_secs(4));
    }
    // A machine that stood still during one lets it see no pace.
    let is_of_run = |burst: &Value| {
        assert_eq!((burst["kind"].as_str(), burst["threads"].as_u64()), (Some("burst"), Some(1)));
        let paces = burst["value"]["burst"]["regions_per_s"].clone();
        let paces: Vec<f64> = serde_json::from_value(paces).expect("regions are seen");
        paces.len() == 3 && paces.iter().all(|pace| *pace > 10.0)
    };
    let mut found = bursts(&home);
    while !found.iter().any(is_of_run) {
        assert!(began.elapsed() < PATIENCE, "no pace was seen: {found:?}");
        std::thread::sleep(Duration::from_secs(4));
        found = bursts(&home);
    }
    let value = &found.iter().find(|burst| is_of_run(burst)).expect("there is one")["value"]["burst"];
    assert!(value["probe_bytes_per_s"].as_f64().unwrap() > 1e8, "{value}");
    let (_, percent) = bandwidth(&home);
    assert!(percent <= 1.0, "the probe took {percent}% of the machine's time");
    assert!(evidence(&home, &["profile", "show", "regions"]).contains("bursts"));

    // With another one there is no telling who lost what, and no CPU is idle.
    let mut wide = start("wide", "2");
    home.until("both run", || {
        home.status().is_some_and(|status| status["plan"].as_str().unwrap().contains("wide on"))
    });
    // One that had begun before ends when it gets to run.
    let (mut before, mut earlier) = (bandwidth(&home).0, None);
    while earlier != Some(before) {
        assert!(began.elapsed() < 2 * PATIENCE, "bursts go on");
        earlier = Some(before);
        std::thread::sleep(Duration::from_secs(3));
        before = bandwidth(&home).0;
    }
    std::thread::sleep(Duration::from_secs(15));
    let (after, percent) = bandwidth(&home);
    assert_eq!(after, before, "bursts beside two programs");
    assert!(percent <= 1.0);
    for program in [&mut narrow, &mut wide] {
        program.signal(libc::SIGTERM);
        program.ended_within(Duration::from_secs(60));
    }
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}
