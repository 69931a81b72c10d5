//! A trace from its text.

use topology::Level;

use super::{EntityId, Event, HEAD, Trace, What};
use crate::hierarchy::{BurstAt, Wishes};

/// Where a trace's text is wrong, and how.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("trace, line {line}: {what}")]
pub struct TraceError {
    /// From 1.
    pub line: usize,
    /// What is wrong there, in words.
    pub what: String,
}

const LEVELS: [(Level, &str); 8] = [
    (Level::Node, "machine"),
    (Level::Box, "box"),
    (Level::Package, "package"),
    (Level::Numa, "numa"),
    (Level::Llc, "llc"),
    (Level::Group, "group"),
    (Level::Core, "core"),
    (Level::Pu, "pu"),
];

/// What a level is called in traces; a cluster is one machine here.
pub(super) fn level_name(level: Level) -> &'static str {
    LEVELS.iter().find(|(known, _)| *known == level).map_or("machine", |(_, token)| token)
}

impl Trace {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut trace = Trace::default();
        for (at, line) in text.lines().enumerate() {
            let wrong = |what: String| TraceError { line: at + 1, what };
            if at == 0 {
                if line != HEAD {
                    return Err(wrong(format!("'{HEAD}' is expected here: this is no trace of this form")));
                }
                continue;
            }
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            let number = |token: &str| token.parse().map_err(|_| wrong(format!("'{token}' is no number")));
            match first {
                "" => {}
                "machine" => trace.machine = Some(rest.to_owned()),
                "processors" => trace.processors = number(rest)? as usize,
                "scheduler" => trace.scheduler = rest.to_owned(),
                "lost" => trace.lost = number(rest)?,
                "name" => {
                    let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
                    trace.names.push((parse_id(id).map_err(wrong)?, name.to_owned()));
                }
                _ => trace.events.push(event(line).map_err(wrong)?),
            }
        }
        if trace.processors == 0 {
            return Err(TraceError {
                line: 1,
                what: "it does not say how many processors there were".into(),
            });
        }
        trace.sort();
        Ok(trace)
    }
}

fn number<N: std::str::FromStr>(token: &str) -> Result<N, String> {
    token.parse().map_err(|_| format!("'{token}' is no number that can stand here"))
}

fn parse_id(token: &str) -> Result<EntityId, String> {
    match token.split_at_checked(1) {
        Some(("t", rest)) => Ok(EntityId::Thread(number(rest)?)),
        Some(("b", rest)) => Ok(EntityId::Bubble(number(rest)?)),
        _ => Err(format!("'{token}' names neither a thread (t5) nor a bubble (b5)")),
    }
}

fn bubble_of(token: &str) -> Result<u64, String> {
    match parse_id(token)? {
        EntityId::Bubble(number) => Ok(number),
        EntityId::Thread(_) => Err(format!("'{token}' is no bubble")),
    }
}

fn event(line: &str) -> Result<Event, String> {
    let tokens: Vec<&str> = line.split_whitespace().collect();
    let [at_ns, processor, thread, ref what @ ..] = tokens[..] else {
        return Err("an event has a time, a processor, a thread and what happened".into());
    };
    let what = match *what {
        ["made", id, priority] => What::Made(parse_id(id)?, number(priority)?),
        ["wishes", bubble, ref wishes @ ..] => What::Wishes(bubble_of(bubble)?, wishes_of(wishes)?),
        ["priority", id, priority] => What::Priority(parse_id(id)?, number(priority)?),
        ["insert", id, bubble] => What::Insert(parse_id(id)?, bubble_of(bubble)?),
        ["remove", id] => What::Remove(parse_id(id)?),
        ["wake", id] => What::Wake(parse_id(id)?),
        ["close", bubble] => What::Close(bubble_of(bubble)?),
        ["yield"] => What::Yield,
        ["block"] => What::Block,
        ["end"] => What::End,
        ["run", id] => match parse_id(id)? {
            EntityId::Thread(thread) => What::Run(thread),
            EntityId::Bubble(_) => return Err(format!("'{id}' is no thread")),
        },
        ["idle"] => What::Idle,
        ["burst", bubble, unit] => What::Burst(bubble_of(bubble)?, number(unit)?),
        ["stolen", id] => What::Stolen(parse_id(id)?),
        _ => return Err(format!("'{}' is nothing that happens", what.join(" "))),
    };
    Ok(Event { at_ns: number(at_ns)?, processor: number(processor)?, thread: number(thread)?, what })
}

fn wishes_of(tokens: &[&str]) -> Result<Wishes, String> {
    let &[burst, room, memory, slice_ns, preempt] = tokens else {
        return Err("wishes are five words: where it bursts, processors, NUMA node, slice, 0 or 1".into());
    };
    let burst = match LEVELS.iter().find(|(_, token)| *token == burst) {
        Some((level, _)) => BurstAt::Level(*level),
        None if burst == "fitting" => BurstAt::Fitting,
        None => BurstAt::Processors(number(burst)?),
    };
    let (fewest, most) = room.split_once('-').ok_or_else(|| format!("'{room}' should be as 2-4"))?;
    Ok(Wishes {
        burst,
        fewest: number(fewest)?,
        most: number(most)?,
        memory: if memory == "-" { None } else { Some(number(memory)?) },
        slice_ns: number(slice_ns)?,
        preempt: preempt == "1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_trace_is_read_again() {
        let wishes =
            Wishes { burst: BurstAt::Level(Level::Core), fewest: 2, memory: Some(1), ..Wishes::default() };
        let whats = [
            What::Made(EntityId::Thread(4096), 7),
            What::Made(EntityId::Bubble(3), 9),
            What::Wishes(3, wishes),
            What::Wishes(3, Wishes { burst: BurstAt::Processors(3), preempt: true, ..wishes }),
            What::Wishes(3, Wishes::default()),
            What::Priority(EntityId::Bubble(3), 1),
            What::Insert(EntityId::Thread(4096), 3),
            What::Remove(EntityId::Bubble(3)),
            What::Wake(EntityId::Bubble(3)),
            What::Close(3),
            What::Yield,
            What::Block,
            What::End,
            What::Run(4096),
            What::Idle,
            What::Burst(3, 5),
            What::Stolen(EntityId::Thread(4096)),
        ];
        let event = |(at, what)| Event { at_ns: 10 * at as u64, processor: 1, thread: 4096, what };
        let trace = Trace {
            machine: Some("pack:2 core:2".into()),
            processors: 4,
            scheduler: "burst".into(),
            lost: 2,
            names: vec![(EntityId::Thread(4096), "left over".into())],
            events: whats.into_iter().enumerate().map(event).collect(),
        };
        assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let line = |text: &str| Trace::parse(text).expect_err("it is wrong").line;
        assert_eq!(line("something else"), 1);
        assert_eq!(line("coplace bubbles trace 1\nprocessors two"), 2);
        assert_eq!(line("coplace bubbles trace 1\nprocessors 2\n5 0 0 runs t1"), 3);
        assert_eq!(line("coplace bubbles trace 1\nprocessors 2\n5 0 0 close t1"), 3);
        assert_eq!(line("coplace bubbles trace 1"), 1);
    }
}
