//! What the tree's names must be like.

use std::fs;

use coplace_tests::{rust_files, top};

/// A test's name is its subject and what is expected of it.
const LONGEST: usize = 60;

/// Identifiers that were riddles, and what stands for them now (`docs/glossary.md`).
const RETIRED: [(&str, &str); 11] = [
    ("ByOthers", "ExternalChange"),
    ("GiveBack", "Release"),
    ("GivenBack", "Released"),
    ("NotToBeHad", "Unavailable"),
    ("Stays", "StuckInRegion"),
    ("hear", "handle"),
    ("keeps_its_word", "check_rounding"),
    ("look_for_pages", "scan_pages"),
    ("say_of_cpus", "stated_cpus"),
    ("told_of_choice", "choice_was_reported"),
    ("told_to_have", "asked_team"),
];

/// The identifiers of a line of code; what is said in comments and in text does not count.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    let outside_text = code.split('"').step_by(2);
    outside_text.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'))
}

#[test]
fn retired_identifiers_are_not_used_again() {
    let mut found = Vec::new();
    for file in ["crates", "tests"].into_iter().flat_map(|directory| rust_files(&top().join(directory))) {
        let text = fs::read_to_string(&file).expect("it can be read");
        for (number, line) in text.lines().enumerate() {
            let retired = RETIRED.iter().filter(|(old, _)| identifiers(line).any(|name| name == *old));
            let message =
                |(old, new): &(&str, &str)| format!("{}:{}: {old} is {new} now", file.display(), number + 1);
            found.extend(retired.map(message));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn identifiers_are_those_of_code_alone() {
    let of = |line| identifiers(line).filter(|name| !name.is_empty()).collect::<Vec<_>>();
    assert_eq!(of("    self.hear(\"told\", peer); // Stays"), ["self", "hear", "peer"]);
    assert_eq!(of("/// GiveBack"), Vec::<&str>::new());
}

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
