//! What names tell: `lu.A` and `lu.B`, `train (batch size 16)` and `train (batch size 64)` are one
//! program in several sizes.

/// A name without its sizes, and the sizes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name {
    stem: String,
    /// Logarithms of the numbers in it; a single capital behind a point (NPB's classes) counts as a factor 4 a
    /// letter.
    sizes: Vec<f64>,
}

impl Name {
    pub fn of(text: &str) -> Name {
        let (mut stem, mut sizes) = (String::new(), Vec::new());
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            // A number begins a word: `batch 16`, `n=16`, `x-16`; the 50 of `ResNet-50` counts, too, and two
            // of them in one name are apart by their place.
            let inside = stem.ends_with(|c: char| c.is_alphabetic());
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            if digits > 0 && !inside {
                sizes.push(libm::log(rest[..digits].parse::<f64>().unwrap_or(1.0).max(0.5)));
                stem.push('#');
                rest = &rest[digits..];
                continue;
            }
            if stem.ends_with('.') && rest.len() == 1 && letter.is_ascii_uppercase() {
                sizes.push(f64::from(letter as u8 - b'A') * libm::log(4.0));
                stem.push('#');
                break;
            }
            stem.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
        Name { stem, sizes }
    }

    /// How far apart two sizes of one program are (a factor e is 1); `None` for different programs.
    pub fn apart(&self, other: &Name) -> Option<f64> {
        if self.stem != other.stem {
            return None;
        }
        let apart = |(one, other): (&f64, &f64)| (one - other).abs();
        Some(self.sizes.iter().zip(&other.sizes).map(apart).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(one: &str, other: &str) -> Option<f64> {
        Name::of(one).apart(&Name::of(other)).map(|apart| (apart * 1e3).round() / 1e3)
    }

    #[test]
    fn sizes_of_one_program_are_as_far_apart_as_their_ratio() {
        assert_eq!(apart("lm (batch size 5)", "lm (batch size 10)"), Some(0.693));
        assert_eq!(apart("lu.A", "lu.B"), Some(1.386));
        assert_eq!(apart("cg 1000", "cg 1000"), Some(0.0));
        assert_eq!(apart("ep", "ep"), Some(0.0));
    }

    #[test]
    fn different_programs_are_no_sizes_of_one_another() {
        assert_eq!(apart("lm (batch size 5)", "a3c (batch size 5)"), None);
        assert_eq!(apart("a3c", "a4c"), None);
        assert_eq!(apart("lu.A", "bt.A"), None);
    }
}
