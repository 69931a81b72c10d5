//! Batch loops: the next program starts while the one that leads ends. Each must be under a scheduler, and nothing
//! may be left when all have ended.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use coplace_tests::{Home, openmp_helper, skipped};
use serde_json::Value;

/// The shortest programs, so that nearly every one meets a leader that ends.
const SHORT_MS: u32 = 60;

fn count(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().map_or(usual, |text| text.parse().expect("it is a number"))
}

/// What came of the runs of a batch.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    runs: usize,
    well: usize,
    unmanaged: Vec<String>,
    without_account: usize,
    leads_passed_on: usize,
    longest_unscheduled_ms: f64,
}

impl Outcome {
    fn of(results: &[Value]) -> Outcome {
        let unmanaged = results.iter().filter(|run| run["managed"] != true);
        let unscheduled_ms = |run: &Value| run["unscheduled_ns"].as_f64().expect("it is there") / 1e6;
        Outcome {
            runs: results.len(),
            well: results.iter().filter(|run| run["exit_status"] == 0).count(),
            unmanaged: unmanaged.map(|run| run["unmanaged_because"].to_string()).collect(),
            without_account: results.iter().filter(|run| run["account"].is_null()).count(),
            leads_passed_on: results.iter().filter(|run| run["led"] == true).count(),
            longest_unscheduled_ms: results.iter().map(unscheduled_ms).fold(0.0, f64::max),
        }
    }

    fn is_whole(&self, programs: usize) {
        assert_eq!((self.runs, self.well), (programs, programs), "{self:?}");
        assert!(self.unmanaged.is_empty() && self.without_account == 0, "{self:?}");
    }
}

/// Programs of so many milliseconds, so many at once; `how` has the shell start them: it is given their
/// number, and starts each by `./one NUMBER`.
fn batch(home: &Home, name: &str, how: &str, programs: usize, ms: u32) -> Outcome {
    let results = home.path().join(name);
    fs::create_dir(&results).expect("the home can be written");
    let one = home.path().join("one");
    let script = format!(
        "#!/bin/sh\nexec {} run --quiet --json {}/$1.json -- {} {ms}\n",
        coplace_tests::coplace().display(),
        results.display(),
        openmp_helper("briefly", home),
    );
    fs::write(&one, script).expect("the home can be written");
    let mut shell = home.command("sh");
    shell.arg("-c").arg(format!("chmod +x one; N={programs}; {how}"));
    let mut all = home.start(name, &mut shell);
    let status = all.ended_within(Duration::from_secs(600));
    assert!(status.success(), "{status}: {}", home.traces());
    let read =
        |path: PathBuf| serde_json::from_slice(&fs::read(path).expect("it is there")).expect("it is JSON");
    let files = fs::read_dir(&results).expect("it is there").flatten();
    Outcome::of(&files.map(|file| read(file.path())).collect::<Vec<Value>>())
}

/// Neither a process nor a cgroup, and in the scheduler's home no program and no page.
fn nothing_is_left(home: &Home) {
    home.is_left_clean();
    for directory in ["apps", "pages"] {
        let left: Vec<_> =
            fs::read_dir(home.path().join("h").join(directory)).expect("it is there").flatten().collect();
        assert!(left.is_empty(), "{directory}: {left:?}");
    }
    for file in ["socket", "lease"] {
        assert!(!home.path().join("h").join(file).exists(), "{file} is left");
    }
}

#[test]
fn every_program_of_a_batch_loop_is_managed() {
    let home = Home::new();
    let programs = count("COPLACE_BATCH", 24);
    // Half a second each where they are counted for the record.
    let ms = if programs > 100 { 500 } else { SHORT_MS };
    let mut outcomes = Vec::new();
    for at_once in [2, 3, 4] {
        let how = format!("seq $N | xargs -P {at_once} -n 1 ./one");
        let outcome = batch(&home, &format!("xargs{at_once}"), &how, programs, ms);
        outcome.is_whole(programs);
        outcomes.push(outcome);
    }
    let makefile = "JOBS = $(shell seq $(N))\nall: $(JOBS)\n.PHONY: all $(JOBS)\n$(JOBS):\n\t@./one $@\n";
    fs::write(home.path().join("Makefile"), makefile).expect("the home can be written");
    let outcome = batch(&home, "make", "make --silent -j 3 N=$N", programs, ms);
    outcome.is_whole(programs);
    outcomes.push(outcome);
    nothing_is_left(&home);
    let runs: usize = outcomes.iter().map(|outcome| outcome.runs).sum();
    let longest = outcomes.iter().map(|outcome| outcome.longest_unscheduled_ms).fold(0.0, f64::max);
    println!("{runs} programs in batches, none unmanaged, longest without a scheduler {longest:.0} ms");
}

#[test]
fn the_lead_passes_on_under_load_and_nobody_is_lost() {
    const NAME: &str = "the_lead_passes_on_under_load_and_nobody_is_lost";
    let home = Home::new();
    let wanted = count("COPLACE_LEADERS", 12);
    let cpus = coplace_tests::processes::cpu_count();
    if cpus < 2 {
        return skipped(NAME, "programs side by side take two CPUs");
    }
    // Others who keep every CPU busy, outside of coplace, which plans as if they were not there.
    fs::write(home.path().join("config.toml"), "unmanaged = \"ignore\"\n").expect("the home can be written");
    let hogs: Vec<_> = (0..cpus)
        .map(|n| home.start(&format!("hog{n}"), home.command("sh").args(["-c", "while :; do :; done"])))
        .collect();
    let (mut passed_on, mut programs, mut longest_ms) = (0, 0, 0.0_f64);
    for round in 0.. {
        let outcome = batch(
            &home,
            &format!("round{round}"),
            "seq $N | xargs -P 3 -n 1 ./one",
            3 * wanted.min(100),
            SHORT_MS,
        );
        outcome.is_whole(3 * wanted.min(100));
        passed_on += outcome.leads_passed_on;
        programs += outcome.runs;
        longest_ms = longest_ms.max(outcome.longest_unscheduled_ms);
        if passed_on >= wanted {
            break;
        }
        assert!(round < 100, "the lead passed on {passed_on} times only in {programs} programs");
    }
    hogs.iter().for_each(|hog| hog.signal(libc::SIGKILL));
    drop(hogs);
    nothing_is_left(&home);
    println!(
        "{passed_on} leader changes in {programs} programs, none unmanaged, longest without a scheduler {longest_ms:.0} ms"
    );
}
