//! Commands in documents are commands that coplace takes.

use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use crate::Cli;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README, the map, and everything in `docs`.
fn documents() -> Vec<PathBuf> {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).expect("a directory of documents") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => collect(&path, found),
                false if path.extension().is_some_and(|ending| ending == "md") => found.push(path),
                false => {}
            }
        }
    }
    let mut found = vec![top().join("README.md"), top().join("ARCHITECTURE.md")];
    collect(&top().join("docs"), &mut found);
    found
}

/// Commands of ours in a text, with the number of their line, and whether they are shown to be typed: at a
/// prompt. Others, within a sentence, may leave out what must follow; those of `docs` name placeholders, too.
fn commands(text: &str) -> Vec<(usize, &str, bool)> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.extend(line.strip_prefix("$ ").map(|command| (number + 1, command, true)));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.map(|command| (number + 1, command, false)));
        }
    }
    found.retain(|(_, command, _)| command.starts_with("coplace "));
    found
}

/// As a shell splits them, without what is the shell's own.
fn split_words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (letter, quote) {
            ('&' | '|' | '>' | '#', None) => break,
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Why a command is refused.
fn refusal(command: &str, typed: bool) -> Option<String> {
    let own = top().join("docs/policies/lua/ta.lua").display().to_string();
    // What stands for whatever the reader has.
    let put = |word: String| match word.as_str() {
        "NAME" => "TA".to_owned(),
        "PID" => "1".to_owned(),
        _ => word.replace("docs/policies/lua/wider.lua", "mine.lua").replace("mine.lua", &own),
    };
    let error = Cli::try_parse_from(split_words(command).into_iter().map(put)).err()?;
    let unfinished = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let shows = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!shows && (typed || !unfinished)).then(|| error.to_string())
}

#[test]
fn every_command_in_a_document_is_accepted() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("a document is text");
        let inside_docs = path.starts_with(top().join("docs"));
        for (line, command, typed) in commands(&text) {
            if inside_docs && !typed {
                continue;
            }
            count += 1;
            if let Some(why) = refusal(command, typed) {
                wrong.push(format!("{}:{line}: {command}\n  {why}", path.display()));
            }
        }
    }
    assert!(count > 50, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_would_be_refused_is_found() {
    let text = "`coplace run`, `coplace simulate --steps --policy TA`\n```console\n$ coplace run\n$ coplace mix 'a b' &\n```\n";
    let found = commands(text);
    let lines: Vec<(usize, bool)> = found.iter().map(|(line, _, typed)| (*line, *typed)).collect();
    assert_eq!(lines, [(1, false), (1, false), (3, true), (4, true)]);
    let wrong: Vec<bool> =
        found.iter().map(|(_, command, typed)| refusal(command, *typed).is_some()).collect();
    assert_eq!(wrong, [false, true, true, false]);
    assert_eq!(split_words(found[3].1), ["coplace", "mix", "a b"]);
}
