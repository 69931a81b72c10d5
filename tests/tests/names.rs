//! What the tree's names must be like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use coplace_tests::tokens::tokens;
use coplace_tests::{rust_files, top};

/// A test's name is its subject and what is expected of it.
const LONGEST: usize = 60;

/// Identifiers that were riddles, and what stands for them now: an old and a new one a line.
const RETIRED: &str = include_str!("names/retired.txt");

/// First words that functions of [`STEMMED`] may have, one a line.
const STEMS: &str = include_str!("names/stems.txt");

/// Words that say of no act what it is: which verb of `docs/glossary.md` is meant, and is it a thing's name at all?
const RIDDLES: [&str; 11] =
    ["hear", "hears", "look", "looks", "said", "say", "says", "tell", "tells", "told", "who"];

/// The crates whose functions begin with the glossary's verbs.
const STEMMED: [&str; 4] = ["cli", "engine", "linux", "node"];

#[test]
fn retired_identifiers_are_not_used_again() {
    let retired: BTreeMap<&str, &str> =
        RETIRED.lines().map(|line| line.split_once(' ').expect("an old and a new name")).collect();
    assert_eq!(retired.len(), RETIRED.lines().count(), "each is there once");
    let mut found = Vec::new();
    for file in ["crates", "tests"].into_iter().flat_map(|directory| rust_files(&top().join(directory))) {
        let text = fs::read_to_string(&file).expect("it can be read");
        for token in tokens(&text) {
            let message = |new| format!("{}:{}: {} is {new} now", file.display(), token.line, token.text);
            found.extend(retired.get(token.text.as_str()).map(message));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_identifier_is_built_on_a_riddle() {
    let mut found = Vec::new();
    for file in ["crates", "tests"].into_iter().flat_map(|directory| rust_files(&top().join(directory))) {
        let text = fs::read_to_string(&file).expect("it can be read");
        for token in tokens(&text) {
            let is_riddle = |word: &str| RIDDLES.contains(&word.to_lowercase().as_str());
            if token.text.split('_').any(is_riddle) {
                found.push(format!("{}:{}: {}", file.display(), token.line, token.text));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
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

/// The names of a file's functions, but for tests and what a test module has.
fn function_names(text: &str) -> Vec<String> {
    let tokens: Vec<String> = tokens(text).into_iter().map(|token| token.text).collect();
    let (mut names, mut at, mut is_test) = (Vec::new(), 0, false);
    while at < tokens.len() {
        let ahead = |count: usize| tokens.get(at + count).map_or("", String::as_str);
        if (0..8).map(ahead).eq(["#", "[", "cfg", "(", "test", ")", "]", "mod"]) && ahead(9) == "{" {
            at += 10 + inside_braces(&tokens[at + 10..]);
            continue;
        }
        is_test |= (0..4).map(ahead).eq(["#", "[", "test", "]"]);
        if ahead(0) == "fn" && ahead(1) != "(" && !std::mem::take(&mut is_test) {
            names.push(ahead(1).to_owned());
        }
        at += 1;
    }
    names
}

/// How many tokens there are up to the brace that closes an open one.
fn inside_braces(tokens: &[String]) -> usize {
    let mut open = 1;
    let closes = |token: &String| {
        open += i32::from(token == "{") - i32::from(token == "}");
        open == 0
    };
    tokens.iter().position(closes).unwrap_or(tokens.len())
}

fn stem(name: &str) -> &str {
    name.split('_').next().unwrap_or_default()
}

/// The words in bold of the glossary's section on verbs, the first of each.
fn glossary_verbs() -> Vec<String> {
    let text = fs::read_to_string(top().join("docs/glossary.md")).expect("it can be read");
    let (_, section) = text.split_once("## Verbs\n").expect("the section on verbs");
    let section = section.split("\n## ").next().unwrap_or_default();
    let bold = section.split("**").skip(1).step_by(2);
    bold.filter_map(|words| words.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn functions_begin_with_a_listed_word() {
    let listed: BTreeSet<&str> = STEMS.lines().collect();
    let is_test =
        |file: &Path| file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
    let mut unlisted = Vec::new();
    let mut count = 0;
    for crate_name in STEMMED {
        let directory = top().join("crates").join(crate_name).join("src");
        for file in rust_files(&directory) {
            if is_test(file.strip_prefix(&directory).expect("it lies there")) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("it can be read");
            for name in function_names(&text) {
                count += 1;
                if !listed.contains(stem(&name)) {
                    unlisted.push(format!("{}: {name}", file.display()));
                }
            }
        }
    }
    assert!(count > 1000, "only {count} functions were found");
    let advice = "see docs/glossary.md for the verb, or add the word to tests/tests/names/stems.txt";
    assert!(unlisted.is_empty(), "{advice}:\n{}", unlisted.join("\n"));
}

#[test]
fn the_listed_words_are_sorted_and_hold_no_riddle() {
    let stems: Vec<&str> = STEMS.lines().collect();
    let unsorted: Vec<_> = stems.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
    assert!(unsorted.is_empty(), "{unsorted:?}");
    let riddles: Vec<_> = RIDDLES.into_iter().filter(|word| stems.contains(word)).collect();
    assert!(riddles.is_empty(), "{riddles:?}");
    let missing: Vec<String> =
        glossary_verbs().into_iter().filter(|verb| !stems.contains(&verb.as_str())).collect();
    assert!(missing.is_empty(), "verbs of the glossary: {missing:?}");
}

#[test]
fn function_names_are_those_of_code_outside_tests() {
    let text = "#[test]\n#[ignore]\nfn t() {}\npub(super) fn a_b<T>(f: fn(u32)) {}\n// fn c\nfn d(\"fn e\") {}\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n    unsafe extern \"C\" fn g() {}\n";
    assert_eq!(function_names(text), ["a_b", "d", "g"]);
}
