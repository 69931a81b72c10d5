//! What the documents say of themselves.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use coplace_tests::{skipped, top};

/// Every Markdown file that is ours.
fn documents() -> Vec<PathBuf> {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match path.is_dir() {
                true if !name.starts_with('.') && !["target", "build"].contains(&name) => {
                    collect(&path, found)?
                }
                false if name.ends_with(".md") => found.push(path),
                _ => {}
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    collect(&top(), &mut found).expect("the checkout can be read");
    found
}

/// Targets of `[text](target)`, without those within code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let outside_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let mut rest = outside_code.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].to_owned());
            }
        }
    }
    found
}

#[test]
fn recorded_results_name_programs_from_the_top_of_the_checkout() {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            match path.is_dir() {
                true if path.file_name().is_some_and(|name| name != "target") => collect(&path, found)?,
                false if path.extension().is_some_and(|ending| ending == "json") => found.push(path),
                _ => {}
            }
        }
        Ok(())
    }
    let mut recorded = Vec::new();
    collect(&top().join("experiments"), &mut recorded).expect("the checkout can be read");
    assert!(recorded.len() > 20, "{recorded:?}");
    let absolute = |path: &&PathBuf| {
        let text = fs::read_to_string(path).expect("a result is text");
        ["/build/", "/target/", "/experiments/"].iter().any(|place| text.contains(place))
    };
    let wrong: Vec<_> = recorded.iter().filter(absolute).collect();
    assert!(wrong.is_empty(), "an absolute path in {wrong:?}");
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut dead = Vec::new();
    let documents = documents();
    assert!(documents.len() > 5, "{documents:?}");
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document is text");
        for link in links(&text) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !document.parent().expect("it lies somewhere").join(target).exists() {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "these lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn links_are_found_and_code_is_none() {
    assert_eq!(links("[a](b) `[c](d)` and [e](f#g)\n```\n[h](i)\n```"), ["b", "f#g"]);
}

#[test]
fn the_figures_in_the_readme_are_those_of_the_committed_results() {
    let output = Command::new("python3").arg(top().join("scripts/figures")).arg("--check").output();
    let Ok(output) = output else {
        return skipped("the figures of the README", "there is no python3");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Names between backquotes in the last column of the tables of promises.
fn promised(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise"));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit('|').next());
    last.flat_map(|column| column.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn each_promise_names_a_test_that_is_there() {
    fn sources(directory: &Path, all: &mut String) {
        for path in fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() && !path.ends_with("target") {
                sources(&path, all);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "c") {
                all.push_str(&fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    let text = fs::read_to_string(top().join("docs/promises.md")).unwrap();
    let names = promised(&text);
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise")).count();
    assert!(rows >= 20 && names.len() >= rows, "{rows} promises, {} tests", names.len());
    let mut all = String::new();
    ["tests", "crates", "preload/tests"].iter().for_each(|part| sources(&top().join(part), &mut all));
    for name in names {
        let there =
            all.contains(&format!("fn {name}()")) || all.contains(&format!("static void {name}(void)"));
        assert!(there, "docs/promises.md names the test {name}, which is nowhere");
    }
}

#[test]
fn tests_of_promises_are_found_in_the_last_column() {
    assert_eq!(promised("| `x` holds | `a`, `b` |\n| promise | test |\nno `c`"), ["a", "b"]);
}
