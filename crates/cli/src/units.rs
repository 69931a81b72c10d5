//! Times as people write and read them.

/// Reads `20ms`, `1.5s`, `500us`, `2min`; a bare number has no unit and is refused.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "" => return Err(format!("'{text}' has no unit (write for example 20ms or 1.5s)")),
        other => return Err(format!("'{other}' is not a unit of time (ns, us, ms, s, min)")),
    };
    let number: f64 =
        number.parse().map_err(|_| format!("'{text}' is not a time (write for example 20ms or 1.5s)"))?;
    let ns = number * factor;
    if !(0.5..=1e18).contains(&ns) {
        return Err(format!("'{text}' is out of range (1ns to about 30 years)"));
    }
    Ok(ns.round() as u64)
}

/// Three significant digits with a fitting unit: `12.3 ms`.
pub fn format_ns(ns: u64) -> String {
    let value = ns as f64;
    let (scaled, unit) = match ns {
        0 => return "0 s".to_owned(),
        1..1_000 => (value, "ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let digits = if scaled >= 99.95 {
        0
    } else if scaled >= 9.995 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$} {unit}")
}

pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_a_unit_and_a_number() {
        assert_eq!(parse_duration_ns("20ms"), Ok(20_000_000));
        assert_eq!(parse_duration_ns(" 1.5 s "), Ok(1_500_000_000));
        assert_eq!(parse_duration_ns("250us"), Ok(250_000));
        assert_eq!(parse_duration_ns("2min"), Ok(120_000_000_000));
        for wrong in ["20", "ms", "", "20 parsecs", "-3ms", "1e3s", "0ms", "99999999999999min"] {
            assert!(parse_duration_ns(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_shown_with_three_digits() {
        for (ns, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (1_234, "1.23 µs"),
            (12_345_678, "12.3 ms"),
            (123_456_789, "123 ms"),
            (61_500_000_000, "61.5 s"),
        ] {
            assert_eq!(format_ns(ns), text);
        }
    }
}
