//! Small charts as SVG: lines, and bars with their errors.

use std::fmt::Write;

use crate::timeline::html::escape;
use crate::timeline::{COLOURS, picture};

/// A named line through points in ascending order of x.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// A value holds until the next one, instead of changing evenly.
    pub steps: bool,
}

pub struct Axes<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Equal distances are equal factors.
    pub log_x: bool,
}

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 62.0;

pub fn lines(axes: &Axes<'_>, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most_y = ceiling(points().map(|point| point.1).fold(0.0, f64::max));
    let scale = |x: f64| if axes.log_x { x.max(1e-9).log10() } else { x };
    let (least_x, most_x) = points()
        .map(|point| scale(point.0))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)));
    let least_x = if axes.log_x { least_x } else { 0.0 };
    let span = (most_x - least_x).max(1e-9);
    let x = |value: f64| LEFT + (scale(value) - least_x) / span * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / most_y * (HEIGHT - TOP - BOTTOM);
    let mut svg = picture::head(WIDTH, HEIGHT, axes.title);
    for part in 0..=4 {
        let value = most_y * f64::from(part) / 4.0;
        let _ = writeln!(
            svg,
            r#"<rect class="lane" x="{LEFT}" y="{:.1}" width="{:.1}" height="1"/><text class="soft end" x="{:.1}" y="{:.1}">{}</text>"#,
            y(value),
            WIDTH - LEFT - RIGHT,
            LEFT - 6.0,
            y(value) + 4.0,
            number(value)
        );
    }
    for part in 0..=4 {
        let at = least_x + span * f64::from(part) / 4.0;
        let value = if axes.log_x { 10f64.powf(at) } else { at };
        let anchor = ["start", "middle", "middle", "middle", "end"][part as usize];
        let _ = writeln!(
            svg,
            r#"<text class="soft" text-anchor="{anchor}" x="{:.1}" y="{:.1}">{}</text>"#,
            x(value),
            HEIGHT - BOTTOM + 16.0,
            number(value)
        );
    }
    let _ = writeln!(
        svg,
        r#"<text class="soft mid" x="{:.1}" y="{:.1}">{}</text><text class="soft" transform="translate(14 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - BOTTOM + 32.0,
        escape(axes.x),
        (HEIGHT - BOTTOM + TOP) / 2.0,
        escape(axes.y)
    );
    for (index, line) in lines.iter().enumerate() {
        let mut path = String::new();
        let mut before: Option<f64> = None;
        for &(at, value) in &line.points {
            if let Some(before) = before.filter(|_| line.steps) {
                let _ = write!(path, "{:.1},{:.1} ", x(at), y(before));
            }
            let _ = write!(path, "{:.1},{:.1} ", x(at), y(value));
            before = Some(value);
        }
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"><title>{}</title></polyline>"#,
            path.trim_end(),
            escape(&line.name)
        );
    }
    legend(&mut svg, lines.iter().map(|line| line.name.as_str()));
    svg + "</svg>\n"
}

/// One bar for each name; `bars` are (name, value, half width of its interval).
pub fn bars(title: &str, bars: &[(String, f64, f64)]) -> String {
    let (width, height, top, bottom) = (240.0, 220.0, 34.0, 28.0);
    let most = ceiling(bars.iter().map(|(_, value, error)| value + error).fold(0.0, f64::max));
    let y = |value: f64| height - bottom - value / most * (height - top - bottom);
    let step = (width - 16.0) / bars.len().max(1) as f64;
    let mut svg = picture::head(width, height, title);
    let _ = writeln!(svg, r#"<text class="in mid" x="{:.1}" y="16">{}</text>"#, width / 2.0, escape(title));
    for (index, (name, value, error)) in bars.iter().enumerate() {
        let middle = 8.0 + (index as f64 + 0.5) * step;
        let bar = (step * 0.7).min(48.0);
        let _ = writeln!(
            svg,
            r#"<rect x="{:.1}" y="{:.1}" width="{bar:.1}" height="{:.1}" fill="{}"/><path class="axis" d="M{middle:.1} {:.1}V{:.1}" stroke="currentColor" stroke-width="1.5"/><text class="mid" x="{middle:.1}" y="{:.1}">{}</text><text class="soft mid" x="{middle:.1}" y="{:.1}">{}</text>"#,
            middle - bar / 2.0,
            y(*value),
            (height - bottom - y(*value)).max(0.0),
            COLOURS[index % COLOURS.len()],
            y(value + error),
            y((value - error).max(0.0)),
            y(value + error) - 5.0,
            number(*value),
            height - 10.0,
            escape(name)
        );
    }
    svg + "</svg>\n"
}

fn legend<'n>(svg: &mut String, names: impl Iterator<Item = &'n str>) {
    let mut at = LEFT;
    for (index, name) in names.enumerate() {
        let _ = writeln!(
            svg,
            r#"<rect x="{at:.1}" y="{:.1}" width="12" height="12" rx="3" fill="{}"/><text x="{:.1}" y="{:.1}">{}</text>"#,
            HEIGHT - 18.0,
            COLOURS[index % COLOURS.len()],
            at + 18.0,
            HEIGHT - 8.0,
            escape(name)
        );
        at += 18.0 + 7.0 * name.chars().count() as f64 + 18.0;
    }
}

/// The next round number.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|&round| round >= value)
        .unwrap_or(value)
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_line_keeps_its_value_until_the_next_point() {
        let line = Line { name: "<a>".into(), points: vec![(0.0, 0.0), (10.0, 4.0)], steps: true };
        let axes = Axes { title: "t", x: "x", y: "y", log_x: false };
        let svg = lines(&axes, &[line]);
        assert!(svg.contains(r#"points="56.0,238.0 984.0,238.0 984.0,14.0""#), "{svg}");
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.0, 0.7, 3.1, 91.0, 100.0].map(ceiling), [1.0, 0.8, 4.0, 100.0, 100.0]);
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let svg = bars("t", &[("a".into(), 1.0, 0.0), ("b".into(), 0.5, 0.1)]);
        assert!(svg.contains(r#"height="158.0""#) && svg.contains(r#"height="79.0""#), "{svg}");
    }
}
