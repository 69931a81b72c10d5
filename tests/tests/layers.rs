//! Who may use whom: the rooms of ARCHITECTURE.md as `cargo metadata` sees them, and rooms inside crates as their
//! imports show them.

mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use coplace_tests::{rust_files, top};
use serde_json::Value;

/// Lowest layer first; within a layer a crate may use what stands to its left.
const LAYERS: [&[&str]; 7] = [
    &["topology", "workload", "plan"],
    &["interference", "evidence", "reuse", "regions"],
    &["policy"],
    &["engine", "sim"],
    &["linux", "model", "protocol", "node"],
    &["probe", "bubbles", "offload", "sessions", "slurm", "vm"],
    &["cli"],
];

/// Crates of the tests: they may look everywhere, and only tests use them.
const OF_TESTS: [&str; 2] = ["coplace-tests", "coplace-skipped"];

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
    for (user, used) in uses.iter().filter(|(user, _)| !OF_TESTS.contains(&user.as_str())) {
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

/// The order inside of crates, lowest first (see `imports::Rooms`). A room uses rooms of lower layers; those that
/// stand in one layer do not know each other.
const ROOMS: [(&str, &imports::Rooms); 2] = [
    (
        "bubbles",
        &[
            &["sync"],
            &["lock", "parking"],
            &["hierarchy"],
            &["schedulers"],
            &["trace", "model"],
            &["runtime::switching"],
            &["runtime::records"],
            &["runtime::workers"],
            &["runtime::threads"],
            &["runtime"],
            &["capi"],
        ],
    ),
    (
        "policy",
        &[
            &["plain", "places", "neighbours", "adaptive::account"],
            &["settings", "decision"],
            &["common::units", "common::place", "common::matching", "common::exchange", "common::needs"],
            &["common::contention"],
            &["common::gather", "common::slices", "common::keep"],
            &["common::context", "common::matrix", "common::seats", "common::weighing"],
            &["common::levels", "common::outcome"],
            &["common::company"],
            &["common::compose"],
            &["common"],
            &["ta", "co", "lv", "eq", "ue", "fixed"],
            &["twins", "lira", "bp", "la", "adaptive"],
            &["builtin"],
            &["sandbox"],
            &["lua"],
            &["registry"],
            &["trial"],
        ],
    ),
];

#[test]
fn every_room_of_a_crate_uses_only_lower_ones() {
    let mut wrong = Vec::new();
    for (krate, rooms) in ROOMS {
        let found = imports::violations(&top().join("crates").join(krate).join("src"), rooms);
        wrong.extend(found.into_iter().map(|found| format!("{krate}: {found}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong in a crate of these modules, with their text.
fn wrong_in(modules: &[(&str, &str)], rooms: &imports::Rooms) -> Vec<String> {
    let modules = modules.iter().map(|(module, text)| {
        let names = module.split("::").filter(|name| *name != "lib").map(str::to_owned).collect();
        (names, (*text).to_owned())
    });
    imports::violations_in(modules, rooms)
}

#[test]
fn an_import_from_a_higher_room_is_found() {
    let rooms: &imports::Rooms = &[&["low"], &["left", "right"], &["high::floor"], &["high"]];
    let wrong = |module: &str, text: &str| {
        let mut modules = vec![
            ("lib", "pub use high::floor::Tile;"),
            ("low", ""),
            ("left", ""),
            ("right", ""),
            ("high", ""),
        ];
        modules.extend([("high::floor", ""), ("high::roof", "pub use super::floor::Tile;")]);
        modules.iter_mut().filter(|(name, _)| *name == module).for_each(|(_, old)| *old = text);
        wrong_in(&modules, rooms)
    };
    for (module, text) in [
        ("low", "use crate::high::Thing;"),
        ("low", "use std::fmt; use super::{left::{self, A}, Other};"),
        ("low", "fn f() { crate::high::f() }"),
        ("low", "use crate::Tile;"),
        ("low", "fn f() -> char { '{' } mod inner { use super::super::left::A; }"),
        ("left", "pub(crate) use crate::right::*;"),
        ("high::floor", "use super::roof::Beam;"),
        ("high::floor", "#[cfg(test)] use crate::high::Thing; use crate::high::Thing;"),
        ("high", "mod floor; use crate::Unknown;"),
    ] {
        assert!(!wrong(module, text).is_empty(), "{module}: {text}");
    }
    for (module, text) in [
        ("high", "mod floor; use floor::Tile; use crate::{low, left::A as B};"),
        ("high::roof", "use super::floor::Tile; use crate::Tile as T; use super::Thing; use self::f as g;"),
        ("right", "// use crate::left::A;\nconst A: &str = \"use crate::left::A;\"; use crate::low::{self};"),
        ("low", "#[cfg(test)] mod tests { use crate::high::Thing; } pub(in crate::high) fn f() {}"),
        ("low", "const A: &[u8] = br#\"\" use crate::high::A; \"#; mod inner { use super::A; }"),
        ("left", "#[cfg(test)] mod high_tests;"),
    ] {
        assert_eq!(wrong(module, text), Vec::<String>::new(), "{module}: {text}");
    }
}

#[test]
fn a_module_without_a_room_is_found_and_the_reverse() {
    let rooms: &imports::Rooms = &[&["low", "gone"], &["lib"]];
    assert_eq!(wrong_in(&[("lib", ""), ("low", "")], rooms), ["there is no module gone"]);
    let found = wrong_in(&[("low", "#[cfg(test)] mod tests;"), ("new", ""), ("low::tests", "")], &[&["low"]]);
    assert_eq!(found, ["new has no place in the table of rooms"]);
}

/// Where text is asked that machines make (`/proc`, symbols, files of ours), or that a user types.
const MACHINES_TEXT: [&str; 3] = ["linux", "regions", "topology"];
const ASKED: [(&str, &str); 2] =
    [("policy/src/sandbox/mod.rs", "<close>"), ("cli/src/advise/judge.rs", "bind")];

/// What a file's code, without its tests, looks for inside of text: the literals of `contains`.
fn asked_of_text(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let literals = code.split(".contains(\"").skip(1).filter_map(|rest| rest.split('"').next());
    literals.filter(|literal| literal.chars().any(char::is_alphabetic)).map(str::to_owned).collect()
}

#[test]
fn no_code_branches_on_text_made_for_people() {
    let crates = top().join("crates");
    let asked = fs::read_dir(&crates).unwrap().flatten();
    let asked = asked.filter(|krate| !MACHINES_TEXT.iter().any(|name| *name == krate.file_name()));
    let found: Vec<PathBuf> = asked.flat_map(|krate| rust_files(&krate.path().join("src"))).collect();
    assert!(found.len() > 200, "{}", found.len());
    let mut wrong = Vec::new();
    for path in found.iter().filter(|path| path.file_name().is_some_and(|name| name != "tests.rs")) {
        let name = path.strip_prefix(&crates).unwrap().display().to_string();
        let asked = asked_of_text(&fs::read_to_string(path).unwrap());
        let unknown = asked.into_iter().filter(|literal| !ASKED.contains(&(&name, literal)));
        wrong.extend(unknown.map(|literal| format!("{name} asks whether text contains {literal:?}")));
    }
    assert!(wrong.is_empty(), "ask a value, not what it says:\n{}", wrong.join("\n"));
}

#[test]
fn a_branch_on_text_is_found_and_one_in_a_test_is_not() {
    let code = "if line.contains(\"left over\") {}\nif list.contains(\", \") {}";
    assert_eq!(asked_of_text(code), ["left over"]);
    assert!(asked_of_text(&format!("#[cfg(test)]\nmod tests {{ {code} }}")).is_empty());
}
