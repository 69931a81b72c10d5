//! The picture on a terminal: one line a CPU.

use std::fmt::Write;

use super::{COLOURS, Segment, Share, Timeline, ink};
use crate::units;

/// At most this many CPUs are drawn; more would push the table off the screen.
const MOST_ROWS: usize = 24;

/// `columns` is the width of the whole picture. Without colour each program is a letter.
pub fn render(timeline: &Timeline, columns: usize, colour: bool) -> String {
    let cells = columns.saturating_sub(9).clamp(10, 400);
    let mut out = String::new();
    let cpus: Vec<u32> = timeline.cpus.iter().collect();
    for &cpu in cpus.iter().take(MOST_ROWS) {
        let _ = write!(out, "CPU {cpu:<3} ");
        let row: Vec<Option<usize>> = (0..cells).map(|cell| occupant(timeline, cpu, cell, cells)).collect();
        let mut cell = 0;
        while cell < cells {
            let run = row[cell..].iter().take_while(|other| **other == row[cell]).count();
            match row[cell] {
                None => out.extend(std::iter::repeat_n('·', run)),
                Some(program) => draw(&mut out, program, run, colour),
            }
            cell += run;
        }
        out.push('\n');
    }
    if cpus.len() > MOST_ROWS {
        let _ = writeln!(out, "        and {} more CPUs", cpus.len() - MOST_ROWS);
    }
    let end = units::format_ns(timeline.end_ns);
    let _ = writeln!(out, "        0{end:>width$}", width = cells - 1);
    out.push_str("        ");
    let mut used = 8;
    for (index, program) in timeline.programs.iter().enumerate() {
        let name = program.app.as_str();
        if used + name.len() + 4 > columns && used > 8 {
            out.push_str("\n        ");
            used = 8;
        }
        draw(&mut out, index, if colour { 2 } else { 1 }, colour);
        let _ = write!(out, " {name}  ");
        used += name.len() + 5;
    }
    out.push('\n');
    out
}

/// The program that has the CPU in the middle of a cell. Where several take turns or share it, they
/// alternate from cell to cell in the order of their turns, so that all are seen.
fn occupant(timeline: &Timeline, cpu: u32, cell: usize, cells: usize) -> Option<usize> {
    let at_ns = (timeline.end_ns as u128 * (2 * cell as u128 + 1) / (2 * cells as u128)) as u64;
    let mut there: Vec<&Segment> = timeline
        .segments
        .iter()
        .filter(|s| (s.from_ns..s.to_ns).contains(&at_ns) && s.cpus.contains(cpu))
        .collect();
    there.sort_by_key(|segment| order(segment));
    there.get(cell % there.len().max(1)).map(|segment| timeline.index(&segment.app))
}

fn order(segment: &Segment) -> Vec<u64> {
    let place = |share: &Share| match *share {
        Share::Turn { offset_ns, .. } => offset_ns,
        Share::Kernel { index, .. } => u64::from(index),
    };
    segment.shares.iter().map(place).collect()
}

fn draw(out: &mut String, program: usize, cells: usize, colour: bool) {
    let letter = char::from(b'A' + (program % 26) as u8);
    if !colour {
        out.extend(std::iter::repeat_n(letter, cells));
        return;
    }
    let (r, g, b) = rgb(COLOURS[program % COLOURS.len()]);
    let (ir, ig, ib) = rgb(ink(program));
    // The second eight are told from the first by their letter, and so is everything by who sees
    // no colours at all.
    let _ = write!(out, "\x1b[48;2;{r};{g};{b};38;2;{ir};{ig};{ib}m{letter}");
    out.extend(std::iter::repeat_n(if program >= COLOURS.len() { '▒' } else { ' ' }, cells - 1));
    out.push_str("\x1b[0m");
}

fn rgb(hex: &str) -> (u8, u8, u8) {
    let part = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or(0);
    (part(1), part(3), part(5))
}
