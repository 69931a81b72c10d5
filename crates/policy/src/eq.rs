//! EQ: equal parts.
//!
//! # Problem
//!
//! Programs that share a machine get equally many CPUs, whatever the machine looks like.
//!
//! # Source
//!
//! Schönherr, Juurlink, Richling 2013, III-B c, after A. Tucker and A. Gupta: Process control and
//! scheduling issues for multiprogrammed shared-memory multiprocessors, SOSP 1989. Migrations are
//! avoided as in the former: CPUs are only added to and taken from sets; a program gets no more
//! CPUs than it can use, as in the latter.
//!
//! # Where we differ
//!
//! The sources do not say what happens with more programs than CPUs: several then share one CPU
//! with one thread each. Programs that cannot shrink to their part take turns with all others.
//!
//! # Terms
//!
//! part: CPUs of one program. restricted: may use some CPUs only.
//!
//! # Pseudocode
//!
//! ```text
//! sizes: CPUs dealt out one each in rounds, in order of arrival, until a program has all it can use
//! restricted programs take theirs first; each keeps of what it has as much as its size allows
//! programs that lack CPUs then take free ones, lowest first
//! ```
//!
//! # Properties
//!
//! - parts are the quotient, the first ones one more: `equal_parts_match_a_naive_division`
//! - only adding and removing: `equal_parts_only_add_and_remove_cpus`
//! - shares of equal programs differ by a factor of 2 at most (over every round of turns: `max_still_ns` at
//!   most, longer only where the report says so), most CPUs are kept, nobody waits:
//!   `every_plan_of_every_policy_passes_the_checker`
//!
//! # Cost
//!
//! Linear in CPUs and programs, times the words of a CPU set.
//!
//! # Limits
//!
//! Weights count only in turns with programs that cannot shrink. Parts may lie across sockets.

use plan::{Idleness, Promise, Remark, ShareBound, Snapshot, WaitingBound};
use topology::CpuSet;

use crate::common::compose::{self, Divide, compose};
use crate::common::context::{Context, Part};
use crate::common::levels::spread;
use crate::common::place::part;
use crate::{Decision, Memory, Policy, Settings};

pub(crate) struct EqualParts {
    pub settings: Settings,
}

impl Policy for EqualParts {
    fn letters(&self) -> &'static str {
        "EQ"
    }

    fn words(&self) -> &'static str {
        "equal parts"
    }

    fn promise(&self) -> Promise {
        Promise {
            equal_shapes: false,
            share_bound: Some(ShareBound::Ratio(2.0)),
            settled: None,
            waiting_bound: Some(WaitingBound::Terminations(0)),
            keeps_cpus: true,
        }
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let cx = Context::new(snapshot, &self.settings, memory);
        compose(&cx, &Division::of_usable(&cx), &cx.everybody())
    }
}

/// The division of the usable CPUs; also BP's, for programs that cannot wait.
pub(crate) struct Division<'a, 'c> {
    cx: &'c Context<'a>,
    cpus: usize,
}

impl<'a, 'c> Division<'a, 'c> {
    pub fn of_usable(cx: &'c Context<'a>) -> Division<'a, 'c> {
        Division { cx, cpus: cx.snapshot.usable.len() }
    }

    /// A place for each member, where it can have one; there are at least as many CPUs as members.
    fn places(&self, cpus: &CpuSet, members: &[usize]) -> (Vec<CpuSet>, CpuSet) {
        let cx = self.cx;
        let cap = |&index: &usize| {
            let need = &cx.needs[index];
            let open = need.scope.as_ref().map_or(cpus.len(), |scope| scope.intersection(cpus).len());
            (need.cap as usize).min(open)
        };
        let caps: Vec<usize> = members.iter().map(cap).collect();
        let sizes = rounds(&caps, cpus.len());
        let mut places: Vec<CpuSet> = vec![CpuSet::new(); members.len()];
        let mut free = cpus.clone();
        // Restricted programs have the fewest choices; the narrowest scope first.
        let (mut restricted, others): (Vec<usize>, Vec<usize>) =
            (0..members.len()).partition(|&at| cx.needs[members[at]].scope.is_some());
        restricted.sort_by_key(|&at| (caps[at], at));
        for at in restricted {
            let need = &cx.needs[members[at]];
            places[at] = part(&need.open(&free), sizes[at], need.before);
            free = free.difference(&places[at]);
        }
        // What restricted programs could not use goes to the others.
        let other_caps: Vec<usize> = others.iter().map(|&at| caps[at]).collect();
        let sizes = rounds(&other_caps, free.len());
        for (&at, &size) in others.iter().zip(&sizes) {
            if let Some(before) = cx.needs[members[at]].before {
                places[at] = free.intersection(before).take(size);
                free = free.difference(&places[at]);
            }
        }
        let mut rest = free.iter();
        for (&at, &size) in others.iter().zip(&sizes) {
            let lack = size.saturating_sub(places[at].len());
            if lack > 0 {
                places[at] = places[at].union(&rest.by_ref().take(lack).collect());
            }
        }
        (places, rest.collect())
    }
}

/// CPUs dealt out in rounds until a program has as many as it can use.
fn rounds(caps: &[usize], cpus: usize) -> Vec<usize> {
    let mut sizes = vec![0; caps.len()];
    let mut left = cpus;
    let mut open: Vec<usize> = (0..caps.len()).filter(|&at| caps[at] > 0).collect();
    while left > 0 && !open.is_empty() {
        let smallest = open.iter().map(|&at| caps[at] - sizes[at]).min().unwrap_or(0);
        let step = smallest.min((left / open.len()).max(1));
        for &at in &open {
            let more = step.min(left);
            sizes[at] += more;
            left -= more;
        }
        open.retain(|&at| sizes[at] < caps[at]);
    }
    sizes
}

impl Divide for Division<'_, '_> {
    fn width_for(&self, count: usize) -> u32 {
        (self.cpus / count.max(1)).max(1) as u32
    }

    fn divide(&self, blocked: &CpuSet, members: &[usize]) -> compose::Division {
        let mut division = compose::Division::default();
        let mut cpus = self.cx.snapshot.usable.difference(blocked);
        if cpus.is_empty() {
            cpus = self.cx.snapshot.usable.clone();
        }
        if members.is_empty() {
            return division;
        }
        let (programs, count) = (members.len() as u32, cpus.len() as u32);
        let remark = |single| Remark::EqualParts { programs, cpus: count, single };
        if members.len() > cpus.len() {
            let singles: Vec<CpuSet> = cpus.iter().map(|cpu| CpuSet::from_cpus(&[cpu])).collect();
            division.layers = vec![spread(self.cx, &singles, members)];
            division.remarks.push(remark(true));
            return division;
        }
        let (places, idle) = self.places(&cpus, members);
        if !idle.is_empty() {
            division.remarks.push(Remark::Idle { cpus: idle, why: Idleness::Unneeded });
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut homeless: Vec<usize> = Vec::new();
        for (place, &index) in places.into_iter().zip(members) {
            if place.is_empty() {
                homeless.push(index);
            } else {
                parts.push(Part { place, members: vec![index] });
            }
        }
        // Whoever found nothing joins the least crowded part that it may use.
        for index in homeless {
            let open = parts.iter_mut().filter(|part| self.cx.needs[index].fits(&part.place));
            if let Some(part) = open.min_by_key(|part| part.members.len()) {
                part.members.push(index);
            }
        }
        division.layers = vec![parts];
        division.remarks.push(remark(false));
        division
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_match_a_naive_division() {
        for cpus in 1..50 {
            for programs in 1..=cpus {
                let naive: Vec<usize> =
                    (0..programs).map(|n| cpus / programs + usize::from(n < cpus % programs)).collect();
                assert_eq!(rounds(&vec![usize::MAX; programs], cpus), naive);
            }
        }
    }

    #[test]
    fn cpus_that_a_program_cannot_use_go_to_the_others() {
        assert_eq!(rounds(&[2, 100, 100], 24), [2, 11, 11]);
        assert_eq!(rounds(&[2, 3, 100], 24), [2, 3, 19]);
        assert_eq!(rounds(&[1, 1], 24), [1, 1]);
        assert_eq!(rounds(&[0, 5], 3), [0, 3]);
    }
}
