//! What the tree's names must be like.

use std::fs;

use coplace_tests::{rust_files, top};

/// A test's name is its subject and what is expected of it.
const LONGEST: usize = 60;

/// The names of a file's tests: of each function below an attribute that makes it one.
fn test_names(text: &str) -> Vec<&str> {
    let mut lines = text.lines().map(str::trim);
    let mut names = Vec::new();
    while let Some(line) = lines.next() {
        if line != "#[test]" {
            continue;
        }
        let function = lines.by_ref().find_map(|line| line.split_once("fn ").map(|(_, rest)| rest));
        names.extend(function.and_then(|rest| rest.split(['(', '<']).next()));
    }
    names
}

#[test]
fn test_names_have_at_most_sixty_characters() {
    let (mut seen, mut long) = (0, Vec::new());
    for file in ["crates", "tests"].into_iter().flat_map(|directory| rust_files(&top().join(directory))) {
        let text = fs::read_to_string(&file).expect("it can be read");
        let names = test_names(&text);
        seen += names.len();
        let too_long = names.iter().filter(|name| name.len() > LONGEST);
        long.extend(too_long.map(|name| format!("{}: {name}", file.display())));
    }
    assert!(seen > 1000, "only {seen} tests were found");
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn names_are_found_below_further_attributes() {
    let text = "#[test]\nfn a() {}\n\n    #[test]\n    #[ignore]\n    fn b_c() {}\nfn d() {}\n";
    assert_eq!(test_names(text), ["a", "b_c"]);
}
