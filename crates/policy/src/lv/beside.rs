//! Who has a partition all the time, beside the levels, and what that leaves to the levels.

use std::collections::BTreeSet;

use plan::Remark;
use topology::CpuSet;

use super::Equilibrium;
use crate::common::context::Part;
use crate::common::keep::assign;
use crate::common::levels::{Cut, allowed_cuts_of, claims, dir_outside, id, left_over, level, spread};

pub(super) struct Beside {
    /// Partitions that stand beside the levels.
    pub parts: Vec<Part>,
    /// Everybody else.
    pub others: Vec<usize>,
    /// The cuts for them.
    pub cuts: Vec<Cut>,
    /// Programs that must not be stopped leave no partition: everybody shares one level.
    pub crowded: bool,
    pub remarks: Vec<Remark>,
}

impl Equilibrium<'_, '_> {
    /// `cuts`: those clear of `blocked`.
    pub(super) fn beside(&self, cuts: &[Cut], blocked: &CpuSet, members: &[usize]) -> Beside {
        let cx = self.cx;
        let everybody = |crowded| Beside {
            parts: Vec::new(),
            others: members.to_vec(),
            cuts: cuts.to_vec(),
            crowded,
            remarks: Vec::new(),
        };
        let (steady, others): (Vec<usize>, Vec<usize>) =
            members.iter().partition(|&&index| !cx.needs[index].app.stoppable);
        if steady.is_empty() {
            let narrow = if blocked.is_empty() { self.narrow(members) } else { None };
            return narrow.unwrap_or_else(|| everybody(false));
        }
        if others.is_empty() {
            return everybody(true);
        }
        let finest = level(cx, cuts, members.len()).0;
        let parts = spread(cx, &cuts[finest].places, &steady);
        let clear = dir_outside(cuts, &places_of(&parts));
        match clear.filter(|clear| self.all_fit(clear, &others)) {
            Some(clear) => {
                let remarks = left_over(&cuts[finest]).into_iter().collect();
                Beside { parts, others, cuts: clear, crowded: false, remarks }
            }
            None => everybody(true),
        }
    }

    /// Programs that may stand anywhere and cannot use more CPUs than they are entitled to: each on the narrowest partition
    /// that holds what it can use; what is left is divided among the others, who are entitled to all
    /// of it (as in Tucker and Gupta's process control, 1989).
    fn narrow(&self, members: &[usize]) -> Option<Beside> {
        let cx = self.cx;
        let usable = &cx.snapshot.usable;
        let width = |index: usize| {
            let cap = cx.needs[index].app.within.is_none().then_some(cx.needs[index].cap)?;
            self.cuts.iter().rev().map(|cut| cut.width).find(|&width| width >= cap)
        };
        // Who fits no level has turns of its own, which may need all CPUs.
        if members.len() < cx.needs.len() {
            return None;
        }
        let (mut cpus, mut weights) = (usable.len() as u64, 0);
        members.iter().for_each(|&index| weights += cx.needs[index].weight);
        let mut others = members.to_vec();
        let mut narrow: Vec<(u32, usize)> = Vec::new();
        loop {
            // Who takes less than its part leaves more to the others, so that more may be satisfied.
            let satisfied = |&&index: &&usize| {
                width(index).filter(|&width| {
                    let whole = width as usize == usable.len();
                    !whole && cpus * cx.needs[index].weight >= u64::from(width) * weights
                })
            };
            let Some((index, width)) =
                others.iter().find_map(|index| satisfied(&index).map(|width| (*index, width)))
            else {
                break;
            };
            others.retain(|&other| other != index);
            narrow.push((width, index));
            cpus -= u64::from(width);
            weights -= cx.needs[index].weight;
        }
        // The widest first: they have the fewest places.
        narrow.sort_by_key(|&(width, index)| (std::cmp::Reverse(width), index));
        let mut parts: Vec<Part> = Vec::new();
        for like in narrow.chunk_by(|a, b| a.0 == b.0) {
            let group: Vec<usize> = like.iter().map(|&(_, index)| index).collect();
            parts.extend(self.places_for(like[0].0, &group, &places_of(&parts))?);
        }
        let rest = usable.difference(&places_of(&parts));
        if parts.is_empty() || rest.is_empty() && !others.is_empty() {
            return None;
        }
        let cuts = if others.is_empty() { self.cuts.clone() } else { allowed_cuts_of(cx, &rest).0 };
        let apps = parts.iter().flat_map(|part| &part.members).map(|&index| id(cx, index).clone()).collect();
        let mut remarks = vec![Remark::Satisfied { apps }];
        let widths: BTreeSet<u32> = narrow.iter().map(|&(width, _)| width).collect();
        remarks.extend(self.cuts.iter().filter(|cut| widths.contains(&cut.width)).filter_map(left_over));
        self.all_fit(&cuts, &others).then_some(Beside { parts, others, cuts, crowded: false, remarks })
    }

    /// A partition of `width` CPUs for each of `group`, clear of `taken`.
    fn places_for(&self, width: u32, group: &[usize], taken: &CpuSet) -> Option<Vec<Part>> {
        let cut = self.cuts.iter().find(|cut| cut.width == width)?;
        let places: Vec<CpuSet> =
            cut.places.iter().filter(|place| !place.intersects(taken)).cloned().collect();
        if places.len() < group.len() {
            return None;
        }
        let chosen = assign(&places, &claims(self.cx, &places, group));
        let part = |(&index, place): (&usize, Option<usize>)| {
            Some(Part { place: places[place?].clone(), members: vec![index] })
        };
        group.iter().zip(chosen).map(part).collect()
    }

    /// Whether there is a partition for each of `members`.
    fn all_fit(&self, cuts: &[Cut], members: &[usize]) -> bool {
        members.iter().all(|&index| {
            let need = &self.cx.needs[index];
            cuts.iter().any(|cut| cut.places.iter().any(|place| need.fits(place)))
        })
    }
}

fn places_of(parts: &[Part]) -> CpuSet {
    let cpus: Vec<u32> = parts.iter().flat_map(|part| part.place.iter()).collect();
    CpuSet::from_cpus(&cpus)
}
