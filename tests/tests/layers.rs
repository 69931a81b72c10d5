//! Who may use whom: the rooms of ARCHITECTURE.md as `cargo metadata` sees them.

use std::collections::BTreeMap;
use std::process::Command;

use coplace_tests::top;
use serde_json::Value;

/// Lowest layer first; within a layer a crate may use what stands to its left.
const LAYERS: [&[&str]; 7] = [
    &["topology", "workload", "plan"],
    &["interference", "evidence", "reuse", "regions"],
    &["policy"],
    &["engine", "sim"],
    &["linux", "protocol", "node"],
    &["probe", "bubbles", "offload", "sessions", "slurm", "vm"],
    &["cli"],
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(top())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// A crate's place: its layer, and where it stands in it.
fn place(name: &str) -> Option<(usize, usize)> {
    let short = name.strip_prefix("coplace-")?;
    LAYERS
        .iter()
        .enumerate()
        .find_map(|(layer, crates)| crates.iter().position(|krate| *krate == short).map(|at| (layer, at)))
}

/// Ordinary and build dependencies on crates of ours; tests may look further up.
fn uses(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let packages = metadata["packages"].as_array().expect("packages");
    let used = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let ours = dependencies.iter().filter(|d| d["kind"].as_str() != Some("dev"));
        let names = ours.filter_map(|d| d["name"].as_str()).filter(|name| name.starts_with("coplace-"));
        names.map(str::to_owned).collect()
    };
    packages.iter().map(|p| (p["name"].as_str().expect("name").to_owned(), used(p))).collect()
}

fn violations(uses: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut violations = Vec::new();
    for (user, used) in uses.iter().filter(|(user, _)| *user != "coplace-tests") {
        let Some(at) = place(user) else {
            violations.push(format!("{user} has no place in the table of rooms"));
            continue;
        };
        for other in used {
            match place(other) {
                Some(below) if below < at => {}
                _ => {
                    violations.push(format!("{user} may not use {other}: it stands above it or to its right"))
                }
            }
        }
    }
    violations
}

#[test]
fn every_crate_uses_only_what_stands_below_it_or_to_its_left() {
    let found = violations(&uses(&metadata()));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_crate_that_reaches_upward_or_is_unknown_is_found() {
    let uses = BTreeMap::from([
        ("coplace-plan".to_owned(), vec!["coplace-policy".to_owned()]),
        ("coplace-topology".to_owned(), vec!["coplace-workload".to_owned()]),
        ("coplace-misc".to_owned(), vec![]),
        ("coplace-policy".to_owned(), vec!["coplace-plan".to_owned()]),
    ]);
    assert_eq!(violations(&uses).len(), 3);
}
