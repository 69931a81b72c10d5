//! The histogram with the miss-ratio curve, both over the distance, and the machine's caches marked.
//!
//! Beside the shares stands how many accesses a second of the native run they are: what reaches far, but
//! seldom, hurts nobody.
//!
//! Shares stand on a logarithmic scale: the smallest distances have most accesses of nearly every
//! program, and on a straight one nothing else could be seen.

use std::fmt::Write;

use reuse::{Histogram, LINE_BYTES, Part, Report};
use workload::format_bytes;

use super::summary::{Summary, count, scope_name};
use crate::timeline::html::escape;
use crate::timeline::{COLOURS, picture};

const WIDTH: f64 = 1000.0;
const PLOT: f64 = 250.0;
const TOP: f64 = 40.0;
/// With the accesses a second, and the shares next to the plot.
const LEFT: f64 = 128.0;
const SHARES: f64 = 6.0;
const RATES: f64 = 64.0;
const RIGHT: f64 = 64.0;
const BOTTOM: f64 = 50.0;
/// Bars a doubling of the distance.
const BARS: f64 = 4.0;
/// The scale of shares begins here: a hundred thousandth.
const LEAST: f64 = 1e-5;

/// A plot for every part of every program.
pub fn render(summary: &Summary<'_>) -> String {
    let Some(first) = summary.reports.first() else { return String::new() };
    let parts: Vec<(&Report, &Part)> = summary
        .reports
        .iter()
        .flat_map(|report| report.parts.iter().map(move |part| (report, part)))
        .filter(|(_, part)| part.histogram.accesses() > 0.0)
        .collect();
    let each = TOP + PLOT + BOTTOM;
    let mut svg = picture::head(
        WIDTH,
        each * parts.len().max(1) as f64,
        &format!("Reuse distances of {}", first.program),
    );
    let deepest = parts
        .iter()
        .filter_map(|(_, part)| part.histogram.rows().last())
        .map(|row| row.to_lines)
        .chain(summary.caches.iter().map(|cache| cache.bytes / LINE_BYTES))
        .max()
        .unwrap_or(2);
    let doublings = ((deepest.max(2) as f64).log2() * 1.02 + 0.5).ceil();
    for (index, (report, part)) in parts.iter().enumerate() {
        let _ = writeln!(svg, r#"<g transform="translate(0 {:.0})">"#, each * index as f64);
        let title = format!("{}: {}", report.program, scope_name(part.scope));
        draw_plot(&mut svg, &part.histogram, &title, doublings, summary.per_second(report, part));
        for cache in &summary.caches {
            draw_mark(
                &mut svg,
                &format!("L{} {}", cache.level, format_bytes(cache.bytes)),
                cache.bytes,
                doublings,
            );
        }
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

fn x_of(lines: f64, doublings: f64) -> f64 {
    LEFT + lines.max(1.0).log2() / doublings * (WIDTH - LEFT - RIGHT)
}

/// Of a share, on the logarithmic scale.
fn bar_y(share: f64) -> f64 {
    let part = (share.max(LEAST) / LEAST).log10() / -LEAST.log10();
    TOP + PLOT * (1.0 - part)
}

fn curve_y(ratio: f64) -> f64 {
    TOP + PLOT * (1.0 - ratio)
}

fn draw_plot(svg: &mut String, histogram: &Histogram, title: &str, doublings: f64, per_second: Option<f64>) {
    let accesses = histogram.accesses();
    let _ = writeln!(svg, r#"<text class="in" x="{LEFT}" y="18">{}</text>"#, escape(title));
    for (power, label) in [(0, "100%"), (-1, "10%"), (-2, "1%"), (-3, "0.1%"), (-4, "0.01%"), (-5, "0")] {
        let y = bar_y(10f64.powi(power));
        let _ = writeln!(
            svg,
            r#"<rect class="lane" x="{LEFT}" y="{y:.1}" width="{:.1}" height="1"/><text class="soft end" x="{:.1}" y="{:.1}">{label}</text>"#,
            WIDTH - LEFT - RIGHT,
            LEFT - SHARES,
            y + 4.0
        );
        if let Some(per_second) = per_second.filter(|_| power > LEAST.log10().round() as i32) {
            let rate = count(per_second * 10f64.powi(power));
            let _ = writeln!(
                svg,
                r#"<text class="soft end" x="{:.1}" y="{:.1}">{rate}/s</text>"#,
                LEFT - RATES,
                y + 4.0
            );
        }
    }
    for tenth in [0.0, 0.5, 1.0] {
        let _ = writeln!(
            svg,
            r#"<text class="soft" x="{:.1}" y="{:.1}">{tenth}</text>"#,
            WIDTH - RIGHT + 6.0,
            curve_y(tenth) + 4.0
        );
    }
    let mut bar = 0.0;
    while bar < doublings * BARS {
        let (from, to) = (2f64.powf(bar / BARS), 2f64.powf((bar + 1.0) / BARS));
        let (first, last) = (from.ceil() as u64, to.ceil() as u64 - 1);
        let share = if last >= first { histogram.between(first, last) / accesses } else { 0.0 };
        if share > LEAST {
            let (left, right, top) = (x_of(from, doublings), x_of(to, doublings), bar_y(share));
            let _ = writeln!(
                svg,
                r#"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" fill="{}"><title>{} to {}: {:.3}%</title></rect>"#,
                (right - left - 1.0).max(1.0),
                TOP + PLOT - top,
                COLOURS[0],
                format_bytes(first * LINE_BYTES),
                format_bytes(last * LINE_BYTES),
                share * 100.0
            );
        }
        bar += 1.0;
    }
    let mut points = String::new();
    for point in histogram.curve() {
        let _ =
            write!(points, "{:.1},{:.1} ", x_of(point.lines as f64, doublings), curve_y(point.miss_ratio));
    }
    let _ = writeln!(
        svg,
        r#"<polyline points="{}{:.1},{:.1}" fill="none" stroke="{}" stroke-width="2"><title>miss ratio of a cache of that size</title></polyline>"#,
        points,
        WIDTH - RIGHT,
        curve_y(histogram.first_touches() / accesses),
        COLOURS[1]
    );
    let mut doubling = 0.0;
    while doubling <= doublings {
        let _ = writeln!(
            svg,
            r#"<text class="soft mid" x="{:.1}" y="{:.1}">{}</text>"#,
            x_of(2f64.powf(doubling), doublings),
            TOP + PLOT + 16.0,
            format_bytes((LINE_BYTES as f64 * 2f64.powf(doubling)) as u64).replace(".0", "")
        );
        doubling += 3.0;
    }
    let _ = writeln!(
        svg,
        r#"<text class="soft mid" x="{:.1}" y="{:.1}">reuse distance; bars: share of accesses (left{}), line: miss ratio (right); never touched before: {:.3}%</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        TOP + PLOT + 36.0,
        if per_second.is_some() { ", and accesses a second of the native run" } else { "" },
        histogram.first_touches() / accesses * 100.0
    );
}

fn draw_mark(svg: &mut String, name: &str, bytes: u64, doublings: f64) {
    let at = x_of((bytes / LINE_BYTES) as f64, doublings);
    let _ = writeln!(
        svg,
        r#"<path d="M{at:.1} {:.1}V{:.1}" stroke="currentColor" stroke-dasharray="4 3" stroke-width="1"/><text class="soft mid" x="{at:.1}" y="{:.1}">{}</text>"#,
        TOP - 8.0,
        TOP + PLOT,
        TOP - 12.0,
        escape(name)
    );
}
