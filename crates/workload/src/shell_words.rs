//! One line of a shell into words: quotes and backslashes as POSIX (Shell Command Language, 2.2)
//! has them, and nothing that a shell would expand or interpret.

/// Splits; what only a shell could carry out is refused rather than passed on as a word.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    let refuse = |c: char| {
        format!("'{c}' needs a shell: quote it, or write command = [\"sh\", \"-c\", \"…\"] for its meaning")
    };
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let into = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => into.push(c),
                        None => return Err("a ' is not closed".into()),
                    }
                }
            }
            '"' => {
                let into = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('$' | '`' | '"' | '\\')) => into.push(c),
                            Some('\n') => {}
                            Some(c) => into.extend(['\\', c]),
                            None => return Err("a \" is not closed".into()),
                        },
                        Some(c @ ('$' | '`')) => return Err(refuse(c)),
                        Some(c) => into.push(c),
                        None => return Err("a \" is not closed".into()),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("a backslash stands at the end".into()),
            },
            '$' | '`' | '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '[' => return Err(refuse(c)),
            '~' | '#' if word.is_none() => return Err(refuse(c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}
