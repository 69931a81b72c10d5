//! Arithmetic on counts: numbers, names, `+ - * /` and parentheses.

use std::iter::Peekable;
use std::str::Chars;

/// The value of a formula; `value` tells what a name stands for.
pub fn evaluate(formula: &str, value: &dyn Fn(&str) -> Option<f64>) -> Result<f64, String> {
    let mut reader = Reader { rest: formula.chars().peekable(), value };
    let result = reader.sum()?;
    match reader.next() {
        None => Ok(result),
        Some(left) => Err(format!("'{left}' is in the way")),
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    value: &'a dyn Fn(&str) -> Option<f64>,
}

impl Reader<'_> {
    /// The next character that is no blank, left where it is.
    fn next(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut sum = self.product()?;
        while let Some(sign @ ('+' | '-')) = self.next() {
            self.rest.next();
            let other = self.product()?;
            sum += if sign == '+' { other } else { -other };
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut product = self.single()?;
        while let Some(sign @ ('*' | '/')) = self.next() {
            self.rest.next();
            let other = self.single()?;
            product = if sign == '*' { product * other } else { product / other };
        }
        Ok(product)
    }

    fn single(&mut self) -> Result<f64, String> {
        if self.next() == Some('(') {
            self.rest.next();
            let inside = self.sum()?;
            return match self.next() {
                Some(')') => {
                    self.rest.next();
                    Ok(inside)
                }
                _ => Err("a ')' is missing".into()),
            };
        }
        let mut word = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == '.') {
            word.push(c);
        }
        match word.chars().next() {
            None => Err("a number or a name is missing".into()),
            Some('0'..='9') => word.parse().map_err(|_| format!("'{word}' is no number")),
            Some(_) => (self.value)(&word).ok_or_else(|| format!("'{word}' is not known")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_follow_the_rules_of_arithmetic() {
        let value = |name: &str| (name == "x_1").then_some(3.0);
        let of = |formula: &str| evaluate(formula, &value);
        assert_eq!(of("2 + x_1 * 4 - 1"), Ok(13.0));
        assert_eq!(of("(2 + x_1) * 64 / 5"), Ok(64.0));
        assert_eq!(of("8 / 2 / 2"), Ok(2.0));
        for (wrong, message) in [
            ("", "missing"),
            ("2 +", "missing"),
            ("(2", "')'"),
            ("2 3", "'3' is in the way"),
            ("y", "'y' is not known"),
            ("1.2.3", "no number"),
        ] {
            let error = of(wrong).unwrap_err();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
