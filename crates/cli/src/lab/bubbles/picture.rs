//! A run of bubbles as SVG: a row for each processor, what ran coloured by its bubble.

use std::fmt::Write;

use bubbles::trace::{EntityId, Trace, colours};

use crate::timeline::html::escape;
use crate::timeline::ink;
use crate::timeline::picture::{fill, hatches, head, key, name_inside, time_axis};
use crate::units;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 64.0;
const PLOT: f64 = WIDTH - LEFT - 16.0;
const TOP: f64 = 16.0;
/// Below this many pixels what ran is drawn together with what ran before and after it in the same bubble.
const FINEST: f64 = 0.4;
/// Bubbles that the legend names.
const NAMED: usize = 24;

/// Neighbouring pieces of one processor in one bubble.
struct Piece {
    processor: usize,
    from_ns: u64,
    to_ns: u64,
    bubble: Option<u64>,
    threads: Vec<u64>,
}

/// `how` says where it comes from.
pub fn render(trace: &Trace, how: &str) -> String {
    let end_ns = trace.end_ns().max(1);
    let pieces = pieces(trace, (end_ns as f64 / PLOT * FINEST) as u64);
    let mut bubbles: Vec<u64> = Vec::new();
    for bubble in pieces.iter().filter_map(|piece| piece.bubble) {
        if !bubbles.contains(&bubble) {
            bubbles.push(bubble);
        }
    }
    // Threads in no bubble have a colour of their own, the first.
    let colour = |bubble: Option<u64>| {
        bubble.and_then(|b| bubbles.iter().position(|&o| o == b)).map_or(0, |at| at + 1)
    };
    let name =
        |bubble: Option<u64>| bubble.map_or("no bubble".to_owned(), |b| trace.name(EntityId::Bubble(b)));

    let row = (240.0 / trace.processors as f64).clamp(6.0, 48.0);
    let y = |processor: usize| TOP + processor as f64 * (row + 3.0);
    let x = |ns: u64| LEFT + ns as f64 / end_ns as f64 * PLOT;
    let bottom = y(trace.processors);
    let shown = bubbles.len().min(NAMED) + 1;
    let height = bottom + 34.0 + 20.0 * shown.div_ceil(6) as f64;
    let title = format!("{} under {} ({how})", trace.machine.as_deref().unwrap_or("a run"), trace.scheduler);
    let mut svg = head(WIDTH, height, &title);
    hatches(&mut svg, bubbles.len() + 1);
    for processor in 0..trace.processors {
        let (top, middle) = (y(processor), y(processor) + row / 2.0 + 4.0);
        let _ =
            writeln!(svg, r#"<rect class="lane" x="{LEFT}" y="{top:.1}" width="{PLOT}" height="{row:.1}"/>"#);
        let _ = writeln!(
            svg,
            r#"<text class="soft end" x="{:.1}" y="{middle:.1}">{processor}</text>"#,
            LEFT - 8.0
        );
    }
    let mut drawn_to = vec![0.0; trace.processors];
    for piece in &pieces {
        let (from, to) = (x(piece.from_ns), x(piece.to_ns));
        // Too fine to be seen, and it would make the picture large.
        if to - drawn_to[piece.processor] < FINEST {
            continue;
        }
        drawn_to[piece.processor] = to;
        let (top, paint) = (y(piece.processor), fill(colour(piece.bubble)));
        let width = (to - from).max(FINEST);
        let label = match piece.threads[..] {
            [thread] => trace.name(EntityId::Thread(thread)),
            ref several => format!("{} threads", several.len()),
        };
        let bubble = name(piece.bubble);
        let _ = writeln!(
            svg,
            r#"<rect x="{from:.2}" y="{top:.1}" width="{width:.2}" height="{row:.1}" fill="{paint}"><title>{}</title></rect>"#,
            escape(&format!(
                "{label} in {bubble} on {}, {} to {}",
                piece.processor,
                units::format_ns(piece.from_ns),
                units::format_ns(piece.to_ns)
            ))
        );
        name_inside(
            &mut svg,
            (from, from + width),
            (top + row / 2.0, row),
            ink(colour(piece.bubble)),
            &bubble,
        );
    }
    time_axis(&mut svg, x, end_ns, bottom);
    let all = std::iter::once(None).chain(bubbles.iter().copied().map(Some));
    for (at, bubble) in all.take(shown).enumerate() {
        let (left, base) = (LEFT + (at % 6) as f64 * PLOT / 6.0, bottom + 38.0 + 20.0 * (at / 6) as f64);
        key(&mut svg, left, base, &fill(colour(bubble)), &name(bubble));
    }
    svg.push_str("</svg>\n");
    svg
}

/// What is shorter than `finest_ns` is drawn together with its neighbours.
fn pieces(trace: &Trace, finest_ns: u64) -> Vec<Piece> {
    let segments = trace.segments();
    let colours = colours(&segments);
    let mut last: Vec<Option<usize>> = vec![None; trace.processors];
    let mut pieces: Vec<Piece> = Vec::new();
    for (segment, bubble) in segments.iter().zip(colours) {
        let before = last[segment.processor].map(|at| &mut pieces[at]);
        if let Some(piece) = before
            && piece.bubble == bubble
            && segment.from_ns - piece.to_ns <= finest_ns
            && (piece.threads == [segment.thread]
                || segment.to_ns - segment.from_ns <= finest_ns
                || piece.to_ns - piece.from_ns <= finest_ns)
        {
            piece.to_ns = segment.to_ns;
            if !piece.threads.contains(&segment.thread) {
                piece.threads.push(segment.thread);
            }
            continue;
        }
        last[segment.processor] = Some(pieces.len());
        pieces.push(Piece {
            processor: segment.processor,
            from_ns: segment.from_ns,
            to_ns: segment.to_ns,
            bubble,
            threads: vec![segment.thread],
        });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_row_for_each_processor_and_names_what_ran() {
        let text = "coplace bubbles trace 1\nmachine core:2\nprocessors 2\nscheduler burst\nlost 0\n\
            name b1 le<ft\nname t5 a\n0 0 1 insert t5 b1\n10 0 1 run t5\n10 1 1 run t6\n60 1 6 idle\n100 0 5 idle\n";
        let svg = render(&Trace::parse(text).expect("a trace"), "recorded");
        assert_eq!(svg.matches("class=\"lane\"").count(), 2);
        assert!(svg.contains("<title>a in le&lt;ft on 0, 10.0 ns to 100 ns</title>"), "{svg}");
        assert!(svg.contains("t6 in no bubble on 1, 10.0 ns to 60.0 ns"));
    }

    #[test]
    fn invisibly_short_pieces_do_not_enlarge_the_picture() {
        let mut text = String::from("coplace bubbles trace 1\nprocessors 1\nscheduler flat\n");
        for thread in 1..=7 {
            text += &format!("0 0 1 insert t{thread} b{thread}\n");
        }
        for at in 0..100_000 {
            text += &format!("{} 0 1 run t{}\n", 10 * at, 1 + at % 7);
        }
        let trace = Trace::parse(&text).expect("a trace");
        assert!(render(&trace, "recorded").matches("<rect").count() < 4000);
    }
}
