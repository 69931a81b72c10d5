//! A writer that is killed at random moments loses nothing that it reported as stored.
//!
//! The writer is this very test binary, started again. `COPLACE_KILLS` is the number of kills.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use coplace_evidence::{Kind, Program, Sample, Store};
use serde_json::json;
use workload::Random;

const WRITER: &str = "COPLACE_STORE_WRITER";

fn sample(number: i64) -> Sample {
    let program = Program {
        binary: format!("{}", number % 7),
        main_argument: String::new(),
        arguments: String::new(),
        name: "p".into(),
    };
    // Sometimes large, so that a write takes several pages.
    let filler = "x".repeat((number % 11 * 2_000) as usize);
    Sample {
        program,
        threads: 1,
        machine: "m".into(),
        kind: Kind::Alone,
        at_ns: number,
        value: json!(filler),
    }
}

/// Writes samples from a number on, and says each number once it is stored.
fn write(path: &Path, from: i64) {
    let mut store = Store::open(path).unwrap();
    for number in from.. {
        store.add(&sample(number)).unwrap();
        println!("\nstored {number}");
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_reported_as_stored() {
    if let Ok(stored_numbers) = std::env::var(WRITER) {
        let (from, path) = stored_numbers.split_once(' ').unwrap();
        return write(Path::new(path), from.parse().unwrap());
    }
    let kills: u64 = std::env::var("COPLACE_KILLS").map_or(60, |count| count.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("evidence.sqlite");
    let mut random = Random::for_purpose(1, "kills");
    let (mut next, mut stored_in_all) = (0, 0);
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "--test-threads=1"])
            .env(WRITER, format!("{next} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut stored = lines.by_ref().filter_map(|line| line.strip_prefix("stored ")?.parse::<i64>().ok());
        // By turns at any moment, the opening among them, and in the midst of writes, however slow the machine is.
        let (writes, longest_us) = if kill % 2 == 0 { (0, 60_000) } else { (1 + random.below(20), 3_000) };
        let mut stored_numbers: Vec<i64> = stored.by_ref().take(writes as usize).collect();
        assert_eq!(stored_numbers.len() as u64, writes, "kill {kill}: the writer ended by itself");
        std::thread::sleep(Duration::from_micros(random.below(longest_us)));
        child.kill().unwrap();
        child.wait().unwrap();
        stored_numbers.extend(stored);
        // Told one after the other, from where it was to go on.
        assert_eq!(
            stored_numbers,
            (next..next + stored_numbers.len() as i64).collect::<Vec<_>>(),
            "kill {kill}"
        );
        stored_in_all += stored_numbers.len() as u64;
        let there = Store::open(&path).unwrap().samples(None).unwrap();
        let numbers: Vec<i64> = there.iter().map(|sample| sample.at_ns).collect();
        let last = stored_numbers.last().copied().unwrap_or(next - 1);
        // Everything up to the last that was told, without gaps, and at most one more.
        assert_eq!(numbers, (0..numbers.len() as i64).collect::<Vec<_>>(), "kill {kill}");
        assert!(
            (last + 1..=last + 2).contains(&(numbers.len() as i64)),
            "kill {kill}: told {last}, {} there",
            numbers.len()
        );
        assert!(there.iter().all(|sample_there| *sample_there == sample(sample_there.at_ns)), "kill {kill}");
        next = numbers.len() as i64;
        if next > 2_000 {
            std::fs::remove_dir_all(directory.path()).unwrap();
            std::fs::create_dir(directory.path()).unwrap();
            next = 0;
        }
    }
    assert!(
        stored_in_all >= kills / 2,
        "only {stored_in_all} writes were reported as stored in {kills} kills"
    );
    eprintln!("{kills} kills, {stored_in_all} writes reported as stored, all there");
}
