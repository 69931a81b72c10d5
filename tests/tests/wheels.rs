//! Python programs of several processes, with the OpenMP runtimes of their wheels.

use std::path::PathBuf;
use std::time::Duration;

use coplace_tests::{Home, app, skipped, top};

fn python() -> Option<PathBuf> {
    let python = top().join(".tools/wheels/bin/python");
    python.exists().then_some(python)
}

/// Runs the program alone and twice beside a program that comes and goes: the result must be the
/// same each time. The `result` line is what counts.
fn has_its_lone_result_in_company(script: &str) {
    let Some(python) = python() else {
        return skipped(script, "the wheels could not be fetched (scripts/prepare test)");
    };
    let home = Home::new();
    let script = top().join("tests/programs").join(script);
    let result = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("result "));
        line.unwrap_or_else(|| panic!("no result in {text:?}")).to_owned()
    };
    let mut lone = home.start("lone", home.command(&python).arg(&script));
    assert!(lone.ended_within(Duration::from_secs(100)).success(), "{}", lone.stderr());
    let expected = result(&lone.stdout());

    let command = format!("{} {}", python.display(), script.display());
    let regions = app("regions");
    let mix = home.mix(
        &format!(
            "[[program]]\nname = 'first'\ncommand = '{command}'\n\
             [[program]]\nname = 'second'\ncommand = '{command}'\narrive_s = 0.7\n\
             [[program]]\nname = 'guest'\ncommand = '{regions} --size S --scale 0.5'\narrive_s = 1.5\n"
        ),
        &[],
    );
    assert!(mix.status.success(), "{}; {}", mix.stderr, mix.json);
    for name in ["first", "second"] {
        assert_eq!(result(&mix.printed(name)), expected, "{name}");
    }
    assert_eq!(mix.program("guest")["verified"], true, "{}", mix.json);
    home.is_left_clean();
}

#[test]
fn a_grid_search_with_openmp_workers_matches_its_lone_result() {
    has_its_lone_result_in_company("grid_search.py");
}

#[test]
fn a_training_with_forked_workers_matches_its_lone_result() {
    has_its_lone_result_in_company("fed_training.py");
}
