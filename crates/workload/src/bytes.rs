//! Sizes of memory as people write and read them.

const UNITS: [(&str, u32); 4] = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];

/// Reads `2G`, `512M`, `1.5GiB`, `64KB`: powers of 1024. A bare number has no unit and is refused.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit).to_owned();
    let Some((_, shift)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("'{text}' is no size (write for example 512M or 2G)"));
    };
    let number: f64 =
        number.parse().map_err(|_| format!("'{text}' is no size (write for example 512M or 2G)"))?;
    let bytes = number * (1_u64 << shift) as f64;
    if !(1.0..=1e18).contains(&bytes) {
        return Err(format!("'{text}' is out of range (1K to about 800000T)"));
    }
    Ok(bytes as u64)
}

/// With one digit after the point: `1.5 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    let fitting = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    match fitting {
        Some((unit, shift)) => format!("{:.1} {unit}iB", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_needs_a_number_and_a_unit() {
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("64kb"), Ok(64 << 10));
        for wrong in ["2", "G", "", "-1G", "1e3G", "2X", "0M", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_with_a_fitting_unit() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")] {
            assert_eq!(format_bytes(bytes), text);
        }
    }
}
