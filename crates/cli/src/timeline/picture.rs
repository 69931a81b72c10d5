//! The picture as SVG, for documents.

use std::fmt::Write;

use super::html::escape;
use super::{COLOURS, Timeline, ink};
use crate::units;

/// `width` in pixels; the height follows from the number of CPUs.
pub fn render(timeline: &Timeline, width: u32) -> String {
    let cpus: Vec<u32> = timeline.cpus.iter().collect();
    let (left, right, top) = (64.0, 16.0, 16.0);
    let row = (240.0 / cpus.len() as f64).clamp(if cpus.len() > 40 { 6.0 } else { 16.0 }, 72.0);
    let gap = if cpus.len() > 32 { 1.0 } else { 4.0 };
    let plot = f64::from(width) - left - right;
    let end_ns = timeline.end_ns.max(1) as f64;
    let x = |ns: u64| left + ns as f64 / end_ns * plot;
    let y = |index: usize| top + index as f64 * (row + gap);
    let bottom = y(cpus.len());
    let legend_rows = legend_rows(timeline, plot);
    let height = bottom + 34.0 + 22.0 * legend_rows.len() as f64;
    let mut svg = head(f64::from(width), height, &timeline.title);
    hatches(&mut svg, timeline.programs.len());
    let every = (15.0 / (row + gap)).ceil() as usize;
    for (index, cpu) in cpus.iter().enumerate() {
        let _ = writeln!(
            svg,
            r#"<rect class="lane" x="{left}" y="{:.1}" width="{plot:.1}" height="{row:.1}"/>"#,
            y(index)
        );
        if index % every == 0 {
            let _ = writeln!(
                svg,
                r#"<text class="soft end" x="{:.1}" y="{:.1}">CPU {cpu}</text>"#,
                left - 8.0,
                y(index) + row / 2.0 + 4.0
            );
        }
    }
    for segment in &timeline.segments {
        let program = timeline.index(&segment.app);
        let (from, to) = (x(segment.from_ns), x(segment.to_ns));
        let (band_top, band) = segment.band();
        let _ = writeln!(
            svg,
            r#"<g><title>{} on CPUs {}, {} threads, {} to {}</title>"#,
            segment.app,
            segment.cpus,
            segment.threads,
            units::format_ns(segment.from_ns),
            units::format_ns(segment.to_ns)
        );
        for (index, _) in cpus.iter().enumerate().filter(|(_, cpu)| segment.cpus.contains(**cpu)) {
            let _ = writeln!(
                svg,
                r#"<rect x="{from:.2}" y="{:.2}" width="{:.2}" height="{:.2}" fill="{}"/>"#,
                y(index) + band_top * row,
                (to - from - 0.8).max(0.4),
                (band * row).max(0.8),
                fill(program)
            );
            let middle = y(index) + (band_top + band / 2.0) * row;
            name_inside(&mut svg, (from, to), (middle, band * row), ink(program), segment.app.as_str());
        }
        svg.push_str("</g>\n");
    }
    time_axis(&mut svg, x, timeline.end_ns, bottom);
    for (line, programs) in legend_rows.iter().enumerate() {
        let base = bottom + 40.0 + 22.0 * line as f64;
        for &(index, at) in programs {
            key(&mut svg, left + at, base, &fill(index), timeline.programs[index].app.as_str());
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The opening of an SVG that suits light and dark pages.
pub fn head(width: f64, height: f64, title: &str) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" font-family="system-ui, sans-serif" font-size="12">
<title>{}</title>
<style>
text {{ fill: #161b26 }} .soft {{ fill: #5a6474 }} .end {{ text-anchor: end }} .mid {{ text-anchor: middle }}
.lane {{ fill: #eef1f5 }} .in {{ font-weight: 600 }} .edge {{ fill: none; stroke: #ffffff }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e8ecf2 }} .soft {{ fill: #9aa6b6 }} .lane {{ fill: #1f2733 }} .edge {{ stroke: #0f1319 }} }}
</style>
"#,
        escape(title)
    )
}

/// Begin, middle and end of the time shown, below the plot; `x` is where a time stands.
pub fn time_axis(svg: &mut String, x: impl Fn(u64) -> f64, end_ns: u64, bottom: f64) {
    for (ns, anchor) in [(0, "start"), (end_ns / 2, "middle"), (end_ns, "end")] {
        let _ = writeln!(
            svg,
            r#"<text class="soft" text-anchor="{anchor}" x="{:.1}" y="{:.1}">{}</text>"#,
            x(ns),
            bottom + 14.0,
            units::format_ns(ns)
        );
    }
}

/// A name in a coloured bar from `across.0` to `across.1`, around `middle`, where it is high and wide enough for it.
pub fn name_inside(
    svg: &mut String,
    across: (f64, f64),
    (middle, height): (f64, f64),
    ink: &str,
    name: &str,
) {
    // As wide as the letters of a usual face at this size.
    if height >= 13.0 && across.1 - across.0 > 8.0 * name.chars().count() as f64 + 10.0 {
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" style="fill:{ink}" class="in">{}</text>"#,
            across.0 + 6.0,
            middle + 4.0,
            escape(name)
        );
    }
}

/// An entry of the legend: what a colour stands for.
pub fn key(svg: &mut String, left: f64, base: f64, fill: &str, name: &str) {
    let _ = writeln!(
        svg,
        r#"<rect x="{left:.1}" y="{:.1}" width="12" height="12" rx="3" fill="{fill}"/><text x="{:.1}" y="{base:.1}">{}</text>"#,
        base - 11.0,
        left + 18.0,
        escape(name)
    );
}

/// Patterns for programs beyond the colours.
pub fn hatches(svg: &mut String, programs: usize) {
    svg.push_str("<defs>\n");
    for index in COLOURS.len()..programs {
        let colour = COLOURS[index % COLOURS.len()];
        let angle = if (index / COLOURS.len()) % 2 == 1 { 45 } else { -45 };
        let _ = writeln!(
            svg,
            r#"<pattern id="h{index}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate({angle})"><rect width="6" height="6" fill="{colour}"/><rect width="1.6" height="6" fill="{}" opacity="0.55"/></pattern>"#,
            ink(index)
        );
    }
    svg.push_str("</defs>\n");
}

pub fn fill(program: usize) -> String {
    if program < COLOURS.len() { COLOURS[program].to_owned() } else { format!("url(#h{program})") }
}

/// Programs with the places of their names, in as many lines as it takes.
fn legend_rows(timeline: &Timeline, plot: f64) -> Vec<Vec<(usize, f64)>> {
    let mut rows = vec![Vec::new()];
    let mut at = 0.0;
    for (index, program) in timeline.programs.iter().enumerate() {
        let width = 18.0 + 8.0 * program.app.as_str().len() as f64 + 16.0;
        if at + width > plot && at > 0.0 {
            rows.push(Vec::new());
            at = 0.0;
        }
        rows.last_mut().expect("never empty").push((index, at));
        at += width;
    }
    rows
}
