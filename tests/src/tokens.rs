//! Rust source, token by token: what tests ask of names and imports is asked of code alone.

/// A piece of code.
pub struct Token {
    /// In which line it begins, from 1.
    pub line: usize,
    /// A word, a single mark, or `::`.
    pub text: String,
}

/// Words and single marks; `::` is one. Comments and literals are left out.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut at) = (Vec::new(), 0);
    // The line of the token that comes next, and up to where lines were counted.
    let (mut line, mut counted) = (1, 0);
    let peek = |at: usize| chars.get(at).copied().unwrap_or(' ');
    while at < chars.len() {
        line += chars[counted..at].iter().filter(|&&c| c == '\n').count();
        counted = at;
        let mut push = |text: String| tokens.push(Token { line, text });
        match (chars[at], peek(at + 1)) {
            ('/', '/') => at += chars[at..].iter().take_while(|&&c| c != '\n').count(),
            ('/', '*') => {
                at += 2;
                while at < chars.len() && (peek(at), peek(at + 1)) != ('*', '/') {
                    at += 1;
                }
                at += 2;
            }
            ('"', _) => at = after_text(&chars, at),
            ('r', '"' | '#') if raw_marks(&chars, at).is_some() => {
                let marks = raw_marks(&chars, at).expect("it was just looked at");
                let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', marks)).collect();
                at += marks + 2;
                while at < chars.len() && !chars[at..].starts_with(&end) {
                    at += 1;
                }
                at += end.len();
            }
            ('\'', '\\') => at += 3 + chars[at + 3..].iter().take_while(|&&c| c != '\'').count() + 1,
            ('\'', _) if peek(at + 2) == '\'' => at += 3,
            (':', ':') => {
                push("::".to_owned());
                at += 2;
            }
            (c, _) if is_word(c) => {
                let word: String = chars[at..].iter().take_while(|&&c| is_word(c)).collect();
                at += word.chars().count();
                // What stands before a literal is part of it; `r` says how it is to be read.
                match word.as_str() {
                    "b" | "c" if matches!(peek(at), '"' | '\'') => {}
                    "br" | "cr" if raw_marks(&chars, at - 1).is_some() => at -= 1,
                    _ => push(word),
                }
            }
            (c, _) => {
                if !c.is_whitespace() {
                    push(c.to_string());
                }
                at += 1;
            }
        }
    }
    tokens
}

fn after_text(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The marks `#` of a raw literal that begins here.
fn raw_marks(chars: &[char], at: usize) -> Option<usize> {
    let marks = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    (chars.get(at + 1 + marks) == Some(&'"')).then_some(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_code_with_their_lines() {
        let text = "fn a(b: &'x str) {\n    // c\n    d::e(r#\"f\"#, \"g\\n\\\n h\", 'i') /* j\n */ ;\n}";
        let of_lines: Vec<_> = tokens(text).into_iter().map(|token| (token.line, token.text)).collect();
        let words: Vec<_> =
            of_lines.iter().filter(|(_, text)| text.chars().all(char::is_alphanumeric)).cloned().collect();
        let expected = [(1, "fn"), (1, "a"), (1, "b"), (1, "x"), (1, "str"), (3, "d"), (3, "e")];
        assert_eq!(words, expected.map(|(line, word)| (line, word.to_owned())));
        assert_eq!(of_lines.last(), Some(&(6, "}".to_owned())));
    }
}
