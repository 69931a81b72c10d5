//! What is done to programs, as a list of acts. Who does something puts its act on record first ([`Traces::note`]), and
//! who sets a program free reads the same list from there ([`Traces::acts`]) and folds the inverses of its acts. A new
//! kind of act cannot be written without its place on record and its inverses: the matches here are exhaustive.

use std::path::{Path, PathBuf};

use topology::CpuSet;

use crate::registry::Traces;

/// One thing that was done to a program, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It was moved into this group of its own, which may be frozen, idle and confined to CPUs.
    Grouped(PathBuf),
    /// Its processes take turns by SIGSTOP.
    Stopped,
    /// Its threads were confined to this place by their masks.
    Placed(CpuSet),
    /// The same, and nobody knows to which.
    PlacedSomewhere,
    /// A thread may have been bound to a CPU for some microseconds (`linux::spread`).
    Spread,
    /// Its teams were asked for a size. Not on record: the program's pages hold it.
    Asked,
}

/// A step of setting free, in the order in which they are taken: first the program runs, then it is given its CPUs
/// back, and its teams grow only when there are CPUs for them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Groups run, at their usual importance, on all CPUs.
    Thaw,
    /// Processes run.
    Continue,
    /// Processes stand where they came from, and groups are gone.
    MoveBack,
    /// Threads have the masks that they had, or chose since.
    Widen,
    /// Teams may have any size.
    StopAsking,
}

impl Step {
    pub const IN_ORDER: [Step; 5] =
        [Step::Thaw, Step::Continue, Step::MoveBack, Step::Widen, Step::StopAsking];
}

impl Act {
    /// The inverse, as the steps that undo it.
    pub fn undo_steps(&self) -> &'static [Step] {
        match self {
            // Leaving a cpuset may have widened threads beyond what they had (before Linux 6.2).
            Act::Grouped(_) => &[Step::Thaw, Step::MoveBack, Step::Widen],
            Act::Stopped => &[Step::Continue],
            Act::Placed(_) | Act::PlacedSomewhere | Act::Spread => &[Step::Widen],
            Act::Asked => &[Step::StopAsking],
        }
    }

    /// The group that it was moved into.
    pub fn group(&self) -> Option<&Path> {
        match self {
            Act::Grouped(group) => Some(group),
            _ => None,
        }
    }

    /// Whether a thread of a program with these CPUs can have this mask by this act.
    pub fn accounts_for(&self, mask: &CpuSet, original: &CpuSet) -> bool {
        match self {
            Act::Placed(place) => mask == place,
            Act::PlacedSomewhere => mask.is_subset(original),
            Act::Spread => mask.len() == 1,
            Act::Grouped(_) | Act::Stopped | Act::Asked => false,
        }
    }

    /// The same where it is known what the thread had itself: then it can have what of that lies in the place, too.
    pub fn accounts_for_thread(&self, own: &CpuSet, mask: &CpuSet) -> bool {
        match self {
            Act::Placed(place) => {
                let both = own.intersection(place);
                mask == place || *mask == both && !both.is_empty()
            }
            Act::PlacedSomewhere | Act::Spread | Act::Grouped(_) | Act::Stopped | Act::Asked => {
                self.accounts_for(mask, own)
            }
        }
    }
}

impl Traces {
    /// Of a program to which nothing was done yet that is not `known`; until its groups are filled nobody can say
    /// whether it will be stopped by signals.
    pub fn begin(known: Traces) -> Traces {
        Traces { stops_by_signal: None, places: Some(Default::default()), ..known }
    }

    /// Puts an act on record, before it is done.
    pub fn note(&mut self, act: Act) {
        match act {
            Act::Grouped(group) if self.groups.contains(&group) => {}
            Act::Grouped(group) => self.groups.push(group),
            Act::Stopped => (self.stops_by_signal, self.stops_threads) = (Some(true), true),
            Act::Placed(place) => drop(self.places.get_or_insert_default().insert(place)),
            Act::PlacedSomewhere => self.places = None,
            Act::Spread => self.spreads = true,
            Act::Asked => {}
        }
    }

    /// Whether an act is on record.
    pub fn has(&self, act: &Act) -> bool {
        match act {
            Act::Grouped(group) => self.groups.contains(group),
            Act::Stopped => self.stops_by_signal == Some(true) && self.stops_threads,
            Act::Placed(place) => self.places.as_ref().is_some_and(|places| places.contains(place)),
            Act::PlacedSomewhere => self.places.is_none(),
            Act::Spread => self.spreads,
            Act::Asked => true,
        }
    }

    /// Everything that may have been done and is to be undone. What is unknown may have been done; who was stopped by
    /// the user stays stopped.
    pub fn acts(&self) -> Vec<Act> {
        let mut acts: Vec<Act> = self.groups.iter().cloned().map(Act::Grouped).collect();
        let user_stopped = self.user_stopped && !broken!(UsersStopForgotten);
        if !user_stopped && self.stops_by_signal != Some(false) {
            acts.push(Act::Stopped);
        }
        match &self.places {
            Some(places) => {
                acts.extend(places.iter().cloned().map(Act::Placed));
                acts.extend(self.spreads.then_some(Act::Spread));
            }
            None => acts.push(Act::PlacedSomewhere),
        }
        acts.push(Act::Asked);
        acts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn every_act_on_record_is_read_back_and_has_an_inverse() {
        let acts = [
            Act::Grouped("/cg/coplace/s/a".into()),
            Act::Stopped,
            Act::Placed(cpus("0-1")),
            Act::Placed(cpus("2")),
            Act::Spread,
            Act::Asked,
        ];
        let mut traces = Traces::begin(Traces::default());
        traces.stops_by_signal = Some(false);
        assert_eq!(traces.acts(), [Act::Asked]);
        for act in &acts {
            assert!(*act == Act::Asked || !traces.has(act));
            traces.note(act.clone());
            assert!(traces.has(act));
        }
        assert_eq!(traces.acts(), acts);
        assert!(acts.iter().all(|act| !act.undo_steps().is_empty()));
        // What a successor or a guard reads says the same.
        let read: Traces = serde_json::from_str(&serde_json::to_string(&traces).unwrap()).unwrap();
        assert_eq!(read.acts(), acts);
    }

    #[test]
    fn unknown_acts_may_have_been_done() {
        assert_eq!(Traces::default().acts(), [Act::Stopped, Act::PlacedSomewhere, Act::Asked]);
        let earlier: Traces = serde_json::from_str(r#"{"groups": ["/cg/a"], "places": ["0-1"]}"#).unwrap();
        let expected = [Act::Grouped("/cg/a".into()), Act::Stopped, Act::Placed(cpus("0-1")), Act::Asked];
        assert_eq!(earlier.acts(), expected);
    }

    #[test]
    fn a_program_stopped_by_its_user_is_never_continued() {
        let traces = Traces { user_stopped: true, stops_by_signal: Some(true), ..Traces::default() };
        assert!(!traces.acts().contains(&Act::Stopped));
    }

    #[test]
    fn a_mask_is_the_schedulers_if_a_place_or_its_threads_part() {
        let places = Some([cpus("0-1"), cpus("4-5")].into());
        let traces = Traces { places, ..Traces::default() };
        let accounted_for = |traces: &Traces, mask, own| {
            traces.acts().iter().any(|act| act.accounts_for_thread(&cpus(own), &cpus(mask)))
        };
        assert!(accounted_for(&traces, "0-1", "0-7"));
        assert!(accounted_for(&traces, "1", "1-3"));
        assert!(accounted_for(&traces, "4-5", "1-3"));
        assert!(!accounted_for(&traces, "2", "1-3"));
        assert!(accounted_for(&Traces::default(), "2", "1-3"));
        assert!(!accounted_for(&Traces::default(), "4", "1-3"));
        let exactly = |mask| traces.acts().iter().any(|act| act.accounts_for(&cpus(mask), &cpus("0-7")));
        assert!(exactly("4-5") && !exactly("4"));
    }
}
