//! Which distances, and how much of each.

use std::fmt;
use std::str::FromStr;

use reuse::LINE_BYTES;
use thiserror::Error;
use workload::{format_bytes, parse_bytes};

/// Beyond, a block could not be had anyway.
const MOST_LINES: u64 = 1 << 32;
/// More than anybody needs; every distance costs a look at each choice of a pass.
const MOST_SHARES: usize = 64;

/// One distance and its share of all accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The distance: lines of the passes.
    pub lines: u64,
    /// Part of all accesses; all shares of a mixture add up to 1.
    pub share: f64,
}

/// Distances by rising length, with their shares.
///
/// Its text form is `DISTANCE[:WEIGHT],…`, for example `32K:3,8M:1`; shares are the weights divided
/// by their sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    shares: Vec<Share>,
}

/// Why distances and weights make no mixture.
#[derive(Debug, Error, PartialEq)]
pub enum MixtureError {
    /// A distance is not a size in bytes.
    #[error("'{text}': {why}")]
    Distance {
        /// The part between two commas, as it was written.
        text: String,
        /// What [`parse_bytes`] says of its distance.
        why: String,
    },
    /// A distance of less than one line.
    #[error("'{text}' is shorter than a line of {LINE_BYTES} bytes")]
    TooShort {
        /// The distance, with its weight where one is written.
        text: String,
    },
    /// A distance of more than 2^32 lines (256 GiB).
    #[error("'{text}' is longer than this can be ({} at most)", format_bytes(MOST_LINES * LINE_BYTES))]
    TooLong {
        /// The distance, with its weight where one is written.
        text: String,
    },
    /// A weight is no number, not finite, or not above 0.
    #[error("'{text}': the weight must be a number above 0 (write for example 32K:3,8M:1)")]
    Weight {
        /// The distance, with its weight where one is written.
        text: String,
    },
    /// A distance occurs twice, perhaps written in two ways (`1M`, `1024K`).
    #[error("{} stands there twice", format_bytes(lines * LINE_BYTES))]
    Twice {
        /// The distance, in lines.
        lines: u64,
    },
    /// There is no distance at all.
    #[error("no distance is given (write for example 8M, or 32K:3,8M:1)")]
    Empty,
    /// There are so many distances, more than 64.
    #[error("{0} distances are more than {MOST_SHARES}")]
    TooMany(usize),
}

impl Mixture {
    /// One distance.
    pub fn single(lines: u64) -> Mixture {
        Mixture { shares: vec![Share { lines: lines.clamp(1, MOST_LINES), share: 1.0 }] }
    }

    /// Lines and weights.
    pub fn new(weights: &[(u64, f64)]) -> Result<Mixture, MixtureError> {
        if weights.is_empty() {
            return Err(MixtureError::Empty);
        }
        if weights.len() > MOST_SHARES {
            return Err(MixtureError::TooMany(weights.len()));
        }
        for &(lines, weight) in weights {
            // Of any number of lines, as it is told of what is too long, too.
            let text = format!("{}:{weight}", format_bytes(lines.saturating_mul(LINE_BYTES)));
            match lines {
                0 => return Err(MixtureError::TooShort { text }),
                1..=MOST_LINES => {}
                _ => return Err(MixtureError::TooLong { text }),
            }
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(MixtureError::Weight { text });
            }
        }
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut shares: Vec<Share> =
            weights.iter().map(|&(lines, weight)| Share { lines, share: weight / sum }).collect();
        shares.sort_by_key(|share| share.lines);
        match shares.windows(2).find(|pair| pair[0].lines == pair[1].lines) {
            Some(pair) => Err(MixtureError::Twice { lines: pair[0].lines }),
            None => Ok(Mixture { shares }),
        }
    }

    /// By rising distance.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Lines of the block.
    pub fn most_lines(&self) -> u64 {
        self.shares.last().map_or(1, |share| share.lines)
    }
}

impl FromStr for Mixture {
    type Err = MixtureError;

    fn from_str(text: &str) -> Result<Mixture, MixtureError> {
        let mut weights = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (distance, weight) = part.split_once(':').unwrap_or((part, "1"));
            let own = || part.trim().to_owned();
            let bytes = parse_bytes(distance).map_err(|why| MixtureError::Distance { text: own(), why })?;
            if bytes < LINE_BYTES {
                return Err(MixtureError::TooShort { text: own() });
            }
            if bytes / LINE_BYTES > MOST_LINES {
                return Err(MixtureError::TooLong { text: own() });
            }
            let weight: f64 = weight.trim().parse().map_err(|_| MixtureError::Weight { text: own() })?;
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(MixtureError::Weight { text: own() });
            }
            weights.push((bytes / LINE_BYTES, weight));
        }
        Mixture::new(&weights)
    }
}

impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, share) in self.shares.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{:.3}% at {}", share.share * 100.0, format_bytes(share.lines * LINE_BYTES))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_is_read_from_its_text() {
        let mixture: Mixture = "8M:1, 32K:3".parse().unwrap();
        let shares: Vec<(u64, f64)> = mixture.shares().iter().map(|s| (s.lines, s.share)).collect();
        assert_eq!(shares, [(512, 0.75), (131_072, 0.25)]);
        assert_eq!(mixture.most_lines(), 131_072);
        assert_eq!("1G".parse::<Mixture>().unwrap(), Mixture::single(1 << 24));
    }

    #[test]
    fn an_impossible_mixture_is_refused_with_its_part() {
        for (text, part) in [
            ("", "no distance"),
            ("32", "'32'"),
            ("32K:3,8M:-1", "'8M:-1'"),
            ("32K:x", "'32K:x'"),
            ("32K:nan", "'32K:nan'"),
            ("0.05K", "shorter than a line"),
            ("1M:1,1024K:2", "twice"),
            ("900000T", "longer"),
        ] {
            let error = text.parse::<Mixture>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many: Vec<(u64, f64)> = (1..=65).map(|lines| (lines, 1.0)).collect();
        assert_eq!(Mixture::new(&many), Err(MixtureError::TooMany(65)));
        // So many that their bytes are more than there are numbers.
        for lines in [(1 << 32) + 1, (1 << 58) + 1, u64::MAX] {
            assert!(matches!(Mixture::new(&[(lines, 1.0)]), Err(MixtureError::TooLong { .. })), "{lines}");
        }
    }
}
