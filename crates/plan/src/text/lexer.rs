//! Plan text into words, numbers and marks, each with its column.

/// One token: what it is, as it stands in the text, and where (column in characters, from 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub column: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword.
    Word,
    /// Digits alone.
    Number,
    /// Digits and more: a duration.
    Duration,
    /// One of `[ ] { } , : -`, or a character that has no place in a plan.
    Mark,
    End,
}

/// The whole line as tokens; the last is `Kind::End`.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let (kind, length) = if first.is_whitespace() {
            column += 1;
            rest = &rest[first.len_utf8()..];
            continue;
        } else if first.is_ascii_alphabetic() || first == '_' {
            (Kind::Word, span(rest, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')))
        } else if first.is_ascii_digit() {
            let length = span(rest, |c| c.is_ascii_alphanumeric() || c == '.');
            let bare = rest[..length].bytes().all(|byte| byte.is_ascii_digit());
            (if bare { Kind::Number } else { Kind::Duration }, length)
        } else {
            (Kind::Mark, first.len_utf8())
        };
        found.push(Token { kind, text: &rest[..length], column });
        column += rest[..length].chars().count();
        rest = &rest[length..];
    }
    found.push(Token { kind: Kind::End, text: "", column });
    found
}

fn span(text: &str, inside: impl Fn(char) -> bool) -> usize {
    text.find(|c| !inside(c)).unwrap_or(text.len())
}
