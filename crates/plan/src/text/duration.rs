//! Durations as text: exact in both directions, in integer nanoseconds.

use std::fmt;

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// `ns` nanoseconds in the largest unit of which there is at least one: `20ms`, `1.5s`.
pub fn display_ns(ns: u64) -> impl fmt::Display {
    struct Shown(u64);
    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (unit, size) = UNITS.into_iter().find(|&(_, size)| self.0 >= size).unwrap_or(("ns", 1));
            let (whole, rest) = (self.0 / size, self.0 % size);
            if rest == 0 {
                return write!(f, "{whole}{unit}");
            }
            let digits = size.ilog10() as usize;
            let fraction = format!("{rest:0digits$}");
            write!(f, "{whole}.{}{unit}", fraction.trim_end_matches('0'))
        }
    }
    Shown(ns)
}

/// Reads `20ms`, `1.5s`, `500us`, `7ns` into nanoseconds; the error says why it cannot be.
pub fn parse_ns(text: &str) -> Result<u64, String> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (_, size) = UNITS
        .into_iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("'{text}' has no unit among s, ms, us, ns"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits_only = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) || number.ends_with('.') {
        return Err(format!("'{number}' is not a number"));
    }
    let too_long = || format!("'{text}' is longer than {}", display_ns(u64::MAX));
    let mut ns = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(size)).ok_or_else(too_long)?;
    let mut place_value = size;
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        if place_value == 1 && digit != 0 {
            return Err(format!("'{text}' is finer than a nanosecond"));
        }
        place_value = (place_value / 10).max(1);
        ns = ns.checked_add(digit * place_value).ok_or_else(too_long)?;
    }
    Ok(ns)
}
