//! The steps that a machine goes through: one row a number of programs, one column a CPU.

use std::collections::BTreeMap;
use std::fmt::Write;

use plan::Plan;
use topology::{CpuSet, Level, Machine, Object};
use workload::AppId;

use crate::timeline::html::escape;
use crate::timeline::picture::{fill, hatches, head};
use crate::timeline::{Segment, ink, segments};

/// What one policy does for 1, 2, … programs.
pub struct Panel {
    /// "equal parts (EQ)".
    pub policy: String,
    /// How many programs, and the plan for them.
    pub plans: Vec<(u32, Plan)>,
}

/// CPUs in tree order, and whether a new package (else a new NUMA node or LLC) begins there.
pub fn columns(machine: &Machine, cpus: &CpuSet) -> Vec<(u32, bool)> {
    let mut units = Vec::new();
    for level in [Level::Package, Level::Numa, Level::Llc] {
        units.clear();
        collect(&machine.root, level, &mut units);
        if units.len() > 1 {
            break;
        }
    }
    let mut columns = Vec::new();
    order(&machine.root, &mut |cpu| {
        if cpus.contains(cpu) {
            let first = units.iter().any(|unit| unit.intersection(cpus).lowest() == Some(cpu));
            columns.push((cpu, first && !columns.is_empty()));
        }
    });
    columns
}

fn collect(object: &Object, level: Level, into: &mut Vec<CpuSet>) {
    if object.level == level {
        into.push(object.cpus.clone());
    }
    object.children.iter().for_each(|child| collect(child, level, into));
}

fn order(object: &Object, visit: &mut impl FnMut(u32)) {
    if object.children.is_empty() {
        object.cpus.iter().for_each(&mut *visit);
    }
    object.children.iter().for_each(|child| order(child, visit));
}

/// Number of a program by its name, which decides its letter and colour.
pub type Numbers = BTreeMap<AppId, usize>;

/// One letter a CPU, packages apart. Where several take turns their letters alternate; `.` is idle.
pub fn letters(plan: &Plan, columns: &[(u32, bool)], numbers: &Numbers) -> String {
    let segments = segments(&[(0, plan.clone())], 1);
    let mut out = String::new();
    let mut since = 0;
    let mut last: Vec<&AppId> = Vec::new();
    for &(cpu, apart) in columns {
        if apart {
            out.push(' ');
        }
        let there: Vec<&AppId> = segments
            .iter()
            .filter(|segment| segment.cpus.contains(cpu))
            .map(|segment| &segment.app)
            .collect();
        since = if there == last { since + 1 } else { 0 };
        out.push(match there.get(since % there.len().max(1)) {
            Some(app) => letter(numbers.get(*app).copied().unwrap_or(0)),
            None => '.',
        });
        last = there;
    }
    out
}

fn letter(number: usize) -> char {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    LETTERS[number % LETTERS.len()] as char
}

/// Widest and narrowest place, and how many share one in turn or by the kernel at most.
pub fn place_extents(plan: &Plan) -> (usize, usize, usize) {
    let segments = segments(&[(0, plan.clone())], 1);
    let widths = || segments.iter().map(|segment| segment.cpus.len());
    let sharing = plan
        .place()
        .iter()
        .map(|cpu| segments.iter().filter(|segment| segment.cpus.contains(cpu)).count())
        .max()
        .unwrap_or(0);
    (widths().min().unwrap_or(0), widths().max().unwrap_or(0), sharing)
}

/// All policies one below the other.
pub fn svg(title: &str, panels: &[Panel], columns: &[(u32, bool)], numbers: &Numbers) -> String {
    let (left, right, top) = (76.0, 104.0, 30.0);
    let cell = (760.0 / columns.len() as f64).clamp(4.0, 30.0);
    let row = 24.0;
    let apart = columns.iter().filter(|(_, apart)| *apart).count() as f64 * 6.0;
    let width = left + cell * columns.len() as f64 + apart + right;
    let rows: usize = panels.iter().map(|panel| panel.plans.len()).sum();
    let height = top + rows as f64 * (row + 4.0) + panels.len() as f64 * 62.0;
    let mut svg = head(width, height, title);
    hatches(&mut svg, numbers.len());
    let _ = writeln!(
        svg,
        r#"<text x="{left}" y="20" style="font-size:14px;font-weight:600">{}</text>"#,
        escape(title)
    );
    let mut xs = Vec::new();
    let mut x = left;
    for &(cpu, apart) in columns {
        x += if apart { 6.0 } else { 0.0 };
        xs.push((cpu, x));
        x += cell;
    }
    let mut y = top;
    for panel in panels {
        y += 22.0;
        let _ = writeln!(
            svg,
            r#"<text x="{left}" y="{y}" style="font-weight:600">{}</text>"#,
            escape(&panel.policy)
        );
        y += 18.0;
        let _ = writeln!(svg, r#"<text class="soft end" x="{:.1}" y="{y}">programs</text>"#, left - 10.0);
        for &(cpu, x) in xs.iter().step_by((16.0 / cell).ceil() as usize) {
            let _ = writeln!(svg, r#"<text class="soft mid" x="{:.1}" y="{y}">{cpu}</text>"#, x + cell / 2.0);
        }
        let _ =
            writeln!(svg, r#"<text class="soft" x="{:.1}" y="{y}">CPUs each</text>"#, width - right + 12.0);
        y += 8.0;
        for (programs, plan) in &panel.plans {
            let _ = writeln!(
                svg,
                r#"<text class="end" x="{:.1}" y="{:.1}">{}</text>"#,
                left - 10.0,
                y + 16.0,
                programs
            );
            for &(_, x) in &xs {
                let _ = writeln!(
                    svg,
                    r#"<rect class="lane" x="{x:.1}" y="{y:.1}" width="{cell:.1}" height="{row}"/>"#
                );
            }
            for segment in segments(&[(0, plan.clone())], 1) {
                draw(&mut svg, &segment, &xs, cell, (y, row), numbers);
            }
            let (least, most, sharing) = place_extents(plan);
            let sharing = if sharing > 1 { format!(", ≤ {sharing} share") } else { String::new() };
            let description =
                if least == most { format!("{most}{sharing}") } else { format!("{least}–{most}{sharing}") };
            let _ = writeln!(
                svg,
                r#"<text class="soft" x="{:.1}" y="{:.1}">{description}</text>"#,
                width - right + 12.0,
                y + 16.0
            );
            y += row + 4.0;
        }
        y += 14.0;
    }
    svg.push_str("</svg>\n");
    svg
}

/// One program of a row: a band over each stretch of neighbouring CPUs, its letter in the first.
fn draw(
    svg: &mut String,
    segment: &Segment,
    xs: &[(u32, f64)],
    cell: f64,
    (y, row): (f64, f64),
    numbers: &Numbers,
) {
    let number = numbers.get(&segment.app).copied().unwrap_or(0);
    let (top, band) = segment.band();
    let (y, height) = (y + top * row, (band * row).max(0.8));
    let _ = writeln!(
        svg,
        r#"<g><title>{} on CPUs {}, {} threads</title>"#,
        segment.app, segment.cpus, segment.threads
    );
    let mut stretch: Option<(f64, f64)> = None;
    let mut put = |(from, to): (f64, f64)| {
        let _ = writeln!(
            svg,
            r#"<rect x="{from:.1}" y="{y:.2}" width="{:.1}" height="{height:.2}" fill="{}"/>"#,
            to - from - 1.0,
            fill(number)
        );
        if height >= 11.0 && to - from >= 10.0 {
            let _ = writeln!(
                svg,
                r#"<text x="{:.1}" y="{:.1}" style="fill:{}" class="in mid">{}</text>"#,
                (from + to) / 2.0,
                y + height / 2.0 + 4.0,
                ink(number),
                letter(number)
            );
        }
    };
    for &(_, x) in xs.iter().filter(|(cpu, _)| segment.cpus.contains(*cpu)) {
        stretch = match stretch {
            Some((from, to)) if (x - to).abs() < 0.01 => Some((from, x + cell)),
            Some(done) => {
                put(done);
                Some((x, x + cell))
            }
            None => Some((x, x + cell)),
        };
    }
    if let Some(done) = stretch {
        put(done);
    }
    svg.push_str("</g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(names: &[&str]) -> Numbers {
        names.iter().enumerate().map(|(number, name)| (AppId::new(name).unwrap(), number)).collect()
    }

    fn plan(text: &str) -> Plan {
        text.parse().unwrap()
    }

    #[test]
    fn the_picture_is_in_tree_order_and_alternates_turns() {
        let machine = Machine::synthetic("pack:2 core:4 pu:1").unwrap();
        let columns = columns(&machine, machine.all_cpus());
        let names = numbers(&["a", "b", "c"]);
        let plan = plan("side_by_side [a on 0-3, in_turn [20ms b on 4-6, 20ms c on 4-6]]");
        assert_eq!(letters(&plan, &columns, &names), "AAAA BCB.");
        assert_eq!(place_extents(&plan), (3, 4, 2));
    }

    #[test]
    fn the_picture_holds_every_row_and_policy() {
        let machine = Machine::synthetic("core:2 pu:1").unwrap();
        let columns = columns(&machine, machine.all_cpus());
        let plans = vec![(1, plan("a on 0-1")), (2, plan("side_by_side [a on 0, b on 1]"))];
        let panels = [Panel { policy: "equal parts (EQ)".into(), plans }];
        let svg = svg("two", &panels, &columns, &numbers(&["a", "b"]));
        assert!(svg.contains("equal parts (EQ)") && svg.contains("b on CPUs 1, 1 threads"));
        assert_eq!(svg.matches("<g>").count(), 3);
    }
}
