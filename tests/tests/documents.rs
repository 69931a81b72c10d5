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
