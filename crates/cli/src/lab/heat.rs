//! The heat map of a slowdown matrix.

use std::fmt::Write;

use interference::{Grid, Matrix};

use crate::timeline::html::escape;
use crate::timeline::picture;

const CELL: f64 = 30.0;
/// As wide as letters of a usual face at this size.
const LETTER: f64 = 6.6;
/// The slowdown that is as dark as it gets.
const DARKEST: f64 = 4.0;

/// Rows suffer, columns press; what was not measured has a dot.
pub fn render(matrix: &Matrix, grid: &Grid, title: &str) -> String {
    let size = matrix.len();
    let longest = matrix.names().iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let side = (longest as f64 * LETTER + 14.0).min(260.0);
    let (left, top) = (side, side * 0.75 + 8.0);
    let (width, height) = (left + size as f64 * CELL + side * 0.6, top + size as f64 * CELL + 30.0);
    let mut svg = picture::head(width, height, title);
    for (at, name) in matrix.names().iter().enumerate() {
        let middle = (at as f64 + 0.5) * CELL;
        let name = escape(name);
        let _ = writeln!(
            svg,
            r#"<text class="soft end" x="{:.1}" y="{:.1}">{name}</text><text class="soft" transform="translate({:.1} {:.1}) rotate(-45)">{name}</text>"#,
            left - 6.0,
            top + middle + 4.0,
            left + middle,
            top - 6.0
        );
    }
    for a in 0..size {
        for b in 0..size {
            let (x, y) = (left + b as f64 * CELL, top + a as f64 * CELL);
            let Some(cell) = grid.get(a, b) else {
                let _ = writeln!(
                    svg,
                    r#"<rect class="lane" x="{x:.1}" y="{y:.1}" width="{CELL}" height="{CELL}"/>"#
                );
                continue;
            };
            let known = matrix.get(a, b).is_some();
            let heat = (cell.value.ln() / DARKEST.ln()).clamp(0.0, 1.0);
            let ink = if heat > 0.55 { "#ffffff" } else { "#161b26" };
            let _ = writeln!(
                svg,
                r#"<rect x="{x:.1}" y="{y:.1}" width="{CELL}" height="{CELL}" fill="{}" class="edge" style="fill:{}"><title>{} beside {}: {:.3}{}</title></rect><text class="mid" font-size="10" style="fill:{ink}" x="{:.1}" y="{:.1}">{}{}</text>"#,
                colour(heat),
                colour(heat),
                escape(matrix.name(a)),
                escape(matrix.name(b)),
                cell.value,
                if known {
                    ", measured".into()
                } else {
                    format!(" ± {:.0}%, predicted", 100.0 * cell.error)
                },
                x + CELL / 2.0,
                y + CELL / 2.0 + 3.5,
                short(cell.value),
                if known { "" } else { "·" }
            );
        }
    }
    let _ = writeln!(
        svg,
        r#"<text class="soft" x="{left:.1}" y="{:.1}">slowdown of the row's program beside the column's; · predicted</text>"#,
        height - 8.0
    );
    svg + "</svg>\n"
}

/// From nearly white over orange to dark red.
fn colour(heat: f64) -> String {
    let stops = [[255.0, 247.0, 236.0], [253.0, 187.0, 132.0], [227.0, 74.0, 51.0], [127.0, 0.0, 0.0]];
    let at = heat * 3.0;
    let first = (at as usize).min(2);
    let part = at - first as f64;
    let mix =
        |channel: usize| stops[first][channel] + part * (stops[first + 1][channel] - stops[first][channel]);
    format!("#{:02x}{:02x}{:02x}", mix(0) as u8, mix(1) as u8, mix(2) as u8)
}

fn short(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interference::Estimate;

    #[test]
    fn measured_and_predicted_cells_are_distinguished() {
        let matrix = Matrix::parse("m", ",<a>,b\n<a>,1.5,\nb,,\n").unwrap();
        let grid = Grid::new(2, |(a, b)| (a == 0).then_some(Estimate { value: 1.5 + b as f64, error: 0.1 }));
        let svg = render(&matrix, &grid, "t");
        assert!(svg.contains("&lt;a&gt; beside &lt;a&gt;: 1.500, measured"), "{svg}");
        assert!(svg.contains("&lt;a&gt; beside b: 2.500 ± 10%, predicted") && svg.contains("2.5·"), "{svg}");
        assert_eq!(svg.matches(r#"class="lane""#).count(), 2);
        assert_eq!((colour(0.0), colour(1.0)), ("#fff7ec".into(), "#7f0000".into()));
    }
}
