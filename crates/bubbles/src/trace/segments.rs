//! Who ran where and when, for pictures and sums.

use std::collections::{BTreeMap, BTreeSet};

use super::{EntityId, Trace, What};

/// A thread on a processor, from when it went on to when something else did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its position in tree order, from 0.
    pub processor: usize,
    /// When the thread went on, since the run began.
    pub from_ns: u64,
    /// When something else did, or the trace ended; always after `from_ns`.
    pub to_ns: u64,
    /// Its number, as in [`EntityId::Thread`].
    pub thread: u64,
    /// The bubbles around it when it went on, the outermost first.
    pub bubbles: Vec<u64>,
}

/// What a trace comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Time of the last event, since the run began; 0 without events.
    pub end_ns: u64,
    /// Threads that were made, the first one included.
    pub threads: usize,
    /// Bubbles that were made, used or not.
    pub bubbles: usize,
    /// How often a processor went on with a thread.
    pub switches: usize,
    /// How often a bubble burst; one that closes may do so again.
    pub bursts: usize,
    /// Threads and bubbles that idle processors took from the lists of others.
    pub stolen: usize,
    /// The part of the time that each processor ran something.
    pub busy: Vec<f64>,
}

impl Trace {
    /// Time of the last event, since the run began; 0 without events.
    pub fn end_ns(&self) -> u64 {
        self.events.last().map_or(0, |event| event.at_ns)
    }

    /// What people call it: its name, or its number.
    pub fn name(&self, id: EntityId) -> String {
        let named = self.names.iter().find(|(named, _)| *named == id);
        named.map_or_else(|| id.to_string(), |(_, name)| name.clone())
    }

    /// In the order in which they began.
    pub fn segments(&self) -> Vec<Segment> {
        let mut around: BTreeMap<EntityId, u64> = BTreeMap::new();
        let mut open: Vec<Option<Segment>> = vec![None; self.processors];
        let mut done = Vec::new();
        for event in &self.events {
            match event.what {
                What::Insert(id, bubble) => drop(around.insert(id, bubble)),
                What::Remove(id) => drop(around.remove(&id)),
                _ => {}
            }
            let next = match event.what {
                What::Run(thread) => Some(thread),
                What::Idle => None,
                _ => continue,
            };
            let Some(slot) = open.get_mut(event.processor) else { continue };
            if let Some(mut segment) = slot.take() {
                segment.to_ns = event.at_ns;
                done.push(segment);
            }
            *slot = next.map(|thread| {
                let mut bubbles = Vec::new();
                let mut at = around.get(&EntityId::Thread(thread));
                while let Some(&bubble) = at.filter(|bubble| !bubbles.contains(*bubble)) {
                    bubbles.push(bubble);
                    at = around.get(&EntityId::Bubble(bubble));
                }
                bubbles.reverse();
                Segment { processor: event.processor, from_ns: event.at_ns, to_ns: 0, thread, bubbles }
            });
        }
        for mut segment in open.into_iter().flatten() {
            segment.to_ns = self.end_ns();
            done.push(segment);
        }
        done.retain(|segment| segment.to_ns > segment.from_ns);
        done.sort_by_key(|segment| (segment.from_ns, segment.processor));
        done
    }

    /// Counts and adds up what was recorded; lost events are missing from it.
    pub fn summary(&self) -> Summary {
        let count = |is: fn(&What) -> bool| self.events.iter().filter(|event| is(&event.what)).count();
        let end_ns = self.end_ns();
        let mut busy = vec![0; self.processors];
        for segment in self.segments() {
            busy[segment.processor] += segment.to_ns - segment.from_ns;
        }
        Summary {
            end_ns,
            threads: count(|what| matches!(what, What::Made(EntityId::Thread(_), _))),
            bubbles: count(|what| matches!(what, What::Made(EntityId::Bubble(_), _))),
            switches: count(|what| matches!(what, What::Run(_))),
            bursts: count(|what| matches!(what, What::Burst(..))),
            stolen: count(|what| matches!(what, What::Stolen(_))),
            busy: busy.into_iter().map(|ns| ns as f64 / end_ns.max(1) as f64).collect(),
        }
    }
}

/// The bubble by which a segment is coloured: of the outermost depth at which there are several, since
/// programs often put all they have into one.
pub fn colours(segments: &[Segment]) -> Vec<Option<u64>> {
    let deepest = segments.iter().map(|segment| segment.bubbles.len()).max().unwrap_or(0);
    let at = |depth: usize| segments.iter().filter_map(move |segment| segment.bubbles.get(depth));
    let several = |depth: &usize| at(*depth).collect::<BTreeSet<_>>().len() > 1;
    let depth = (0..deepest).find(several).unwrap_or(0);
    segments.iter().map(|segment| segment.bubbles.get(depth).or(segment.bubbles.last()).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "coplace bubbles trace 1\nprocessors 2\nname b2 left\n\
        0 0 1 insert b2 b1\n0 0 1 insert b3 b1\n0 0 1 insert t5 b2\n0 0 1 insert t6 b3\n\
        10 0 1 run t5\n10 1 1 run t6\n40 0 5 run t7\n50 1 6 idle\n60 0 7 idle\n";

    #[test]
    fn threads_stand_where_they_ran_and_have_their_bubbles() {
        let trace = Trace::parse(TEXT).expect("a trace");
        let segments = trace.segments();
        let brief: Vec<_> = segments.iter().map(|s| (s.processor, s.from_ns, s.to_ns, s.thread)).collect();
        assert_eq!(brief, [(0, 10, 40, 5), (1, 10, 50, 6), (0, 40, 60, 7)]);
        assert_eq!(segments[0].bubbles, [1, 2]);
        assert_eq!(colours(&segments), [Some(2), Some(3), None]);
        assert_eq!(trace.name(EntityId::Bubble(2)), "left");
        let summary = trace.summary();
        assert_eq!((summary.end_ns, summary.switches), (60, 3));
        assert!((summary.busy[0] - 50.0 / 60.0).abs() < 1e-9);
    }
}
