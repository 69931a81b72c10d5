//! Program tree × machine × scheduler → placement, readable in `tests/placements/`.
//!
//! With `COPLACE_REWRITE=1` the expected placements are written anew, to be read before they are
//! committed.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use coplace_bubbles::model::{Model, parse};
use coplace_bubbles::schedulers;
use topology::Machine;

struct Case {
    name: String,
    settings: Vec<(String, String)>,
    expected: String,
}

fn read(path: &Path) -> Vec<Case> {
    let text = fs::read_to_string(path).expect("a file of cases");
    let cases = text.split("== ").filter(|case| !case.trim().is_empty());
    cases
        .map(|case| {
            let (head, expected) = case.split_once("---\n").expect("--- before what is expected");
            let mut lines = head.lines();
            let name = lines.next().expect("a name").to_owned();
            let settings = lines.map(|line| line.split_once(": ").expect("key: value"));
            let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            Case { name, settings, expected: expected.trim_end().to_owned() }
        })
        .collect()
}

fn found(case: &Case) -> String {
    let settings =
        |key: &str| case.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let machine = Machine::synthetic(settings("machine").expect("machine")).expect("a machine");
    let scheduler = schedulers::by_name(settings("scheduler").expect("scheduler")).expect("a scheduler");
    let program = parse(settings("program").expect("program")).expect("a program");
    let mut model = Model::new(&machine, scheduler, &program);
    for step in settings("steps").unwrap_or("wake; look").split(';') {
        model.step(step.trim()).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        model.check().unwrap_or_else(|error| panic!("{}: after '{}': {error}", case.name, step.trim()));
    }
    model.placement().trim_end().to_owned()
}

#[test]
fn every_case_is_placed_as_its_file_expects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placements");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("the cases").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let (mut count, mut wrong) = (0, String::new());
    for file in files {
        let mut rewritten = String::new();
        for case in read(&file) {
            count += 1;
            let found = found(&case);
            if found != case.expected {
                let _ = writeln!(wrong, "{}\nwanted:\n{}\nfound:\n{found}\n", case.name, case.expected);
            }
            let settings: String =
                case.settings.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            let _ = write!(rewritten, "== {}\n{settings}---\n{found}\n\n", case.name);
        }
        if std::env::var_os("COPLACE_REWRITE").is_some() {
            fs::write(&file, rewritten.trim_end().to_owned() + "\n").expect("the file can be written");
        }
    }
    assert!(wrong.is_empty() || std::env::var_os("COPLACE_REWRITE").is_some(), "{wrong}");
    assert!(count >= 60, "{count} cases");
}
