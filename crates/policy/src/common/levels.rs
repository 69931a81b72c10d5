//! Partition levels: the shapes of the usable CPUs, and dealing programs out over one of them.

use plan::{Idleness, Remark};
use topology::{CpuSet, Shape};
use workload::AppId;

use super::context::{Context, Part};
use super::keep::{Claim, assign, deal};
use super::weighing::deal_by_weight;

/// One way to cut the usable CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub width: u32,
    pub places: Vec<CpuSet>,
    pub left_over: CpuSet,
    pub description: String,
}

/// The cuts of the usable CPUs, widest first; never empty, never a cut without places.
pub(crate) fn cuts(cx: &Context<'_>) -> Vec<Cut> {
    cuts_of(cx, &cx.snapshot.usable)
}

/// The cuts of `cpus`, which are usable.
fn cuts_of(cx: &Context<'_>, cpus: &CpuSet) -> Vec<Cut> {
    let cut = |shape: &Shape| Cut {
        width: shape.width,
        places: shape.places.clone(),
        left_over: shape.left_over.clone(),
        description: shape.description.clone(),
    };
    let mut cuts: Vec<Cut> = cx.snapshot.machine.shapes(cpus).iter().map(cut).collect();
    if cuts.is_empty() {
        // The machine's description lacks the CPUs that are usable: they are one partition.
        cuts.push(Cut {
            width: cpus.len() as u32,
            places: vec![cpus.clone()],
            left_over: CpuSet::new(),
            description: "all usable CPUs".to_owned(),
        });
    }
    cuts
}

/// [`cuts`] of the widths that the settings allow, and a remark where none of them can be cut.
pub(crate) fn allowed_cuts(cx: &Context<'_>) -> (Vec<Cut>, Option<Remark>) {
    allowed_cuts_of(cx, &cx.snapshot.usable)
}

/// The same for a part of the usable CPUs.
pub(crate) fn allowed_cuts_of(cx: &Context<'_>, cpus: &CpuSet) -> (Vec<Cut>, Option<Remark>) {
    let mut cuts = cuts_of(cx, cpus);
    let Some(allowed) = &cx.settings.allowed_widths else { return (cuts, None) };
    if cuts.iter().any(|cut| allowed.contains(&cut.width)) {
        cuts.retain(|cut| allowed.contains(&cut.width));
        return (cuts, None);
    }
    let used = cuts.iter().map(|cut| cut.width).collect();
    let remark = Remark::UnknownWidths { allowed: allowed.to_vec(), used };
    (cuts, Some(remark))
}

/// Index of the level for `count` programs (Listing 1's thresholds), and when a held level may be
/// left.
pub(crate) fn level(cx: &Context<'_>, cuts: &[Cut], count: usize) -> (usize, Option<u64>) {
    let (settings, memory) = (cx.settings, &cx.memory.level);
    let in_force = memory.width.and_then(|width| cuts.iter().position(|cut| cut.width == width));
    let mut level = in_force.unwrap_or(0);
    let (upper, lower) = (settings.upper_threshold as usize, settings.lower_threshold as usize);
    while level + 1 < cuts.len() && count >= cuts[level + 1].places.len() + upper {
        level += 1;
    }
    while level > 0 && count + lower < cuts[level].places.len() {
        level -= 1;
    }
    let held_until = memory.since_ns.saturating_add(settings.hold_ns);
    match in_force {
        Some(held) if held != level && cx.snapshot.now_ns < held_until => (held, Some(held_until)),
        _ => (level, None),
    }
}

/// `cuts` without the partitions that meet `blocked`; all of them where that leaves none.
pub(crate) fn dir_outside(cuts: &[Cut], blocked: &CpuSet) -> Option<Vec<Cut>> {
    if blocked.is_empty() {
        return None;
    }
    let clear: Vec<Cut> = cuts
        .iter()
        .map(|cut| Cut {
            places: cut.places.iter().filter(|place| !place.intersects(blocked)).cloned().collect(),
            ..cut.clone()
        })
        .filter(|cut| !cut.places.is_empty())
        .collect();
    (!clear.is_empty()).then_some(clear)
}

/// What a program claims of partitions of `width` CPUs.
fn claim<'c>(cx: &'c Context<'_>, index: usize, width: usize) -> Claim<'c> {
    let need = &cx.needs[index];
    // On a single CPU all threads compete with those of others; elsewhere programs take turns.
    let load = if width == 1 { need.own_threads.unwrap_or(need.least_threads) } else { 1 };
    Claim { before: need.before, scope: need.scope.as_ref(), floor: need.floor, load }
}

pub(crate) fn claims<'c>(cx: &'c Context<'_>, places: &[CpuSet], members: &[usize]) -> Vec<Claim<'c>> {
    let width = places.first().map_or(0, CpuSet::len);
    members.iter().map(|&index| claim(cx, index, width)).collect()
}

/// `members` over `places`: one each while there are enough, else evenly. A restricted member whose
/// partitions are all taken joins the least crowded of them; one that has none is left out.
pub(crate) fn spread(cx: &Context<'_>, places: &[CpuSet], members: &[usize]) -> Vec<Part> {
    let claims = claims(cx, places, members);
    let dealt = if members.len() > places.len() {
        share_out(cx, places, members, &claims)
    } else {
        let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
        let mut homeless = Vec::new();
        for (at, place) in assign(places, &claims).into_iter().enumerate() {
            match place {
                Some(place) => dealt[place].push(at),
                None => homeless.push(at),
            }
        }
        for at in homeless {
            let open = (0..places.len()).filter(|&place| claims[at].admits(&places[place]));
            if let Some(place) = open.min_by_key(|&place| dealt[place].len()) {
                dealt[place].push(at);
            }
        }
        dealt
    };
    parts(places, dealt, members)
}

/// More `members` than `places`: evenly by number, or by weight where they take turns and weights differ.
pub(crate) fn share_out(
    cx: &Context<'_>,
    places: &[CpuSet],
    members: &[usize],
    claims: &[Claim<'_>],
) -> Vec<Vec<usize>> {
    // The kernel, which shares single CPUs, knows no weights.
    if places.first().is_none_or(|place| place.len() == 1) || equally_heavy(cx, members) {
        return deal(places, claims);
    }
    let weights: Vec<u64> = members.iter().map(|&index| cx.needs[index].weight).collect();
    // No turn is shorter than the shortest slice, however light its program is.
    let all = u128::from(weights.iter().sum::<u64>()) * u128::from(cx.settings.min_slice_ns);
    let least = all / (places.len() as u128 * u128::from(cx.settings.max_still_ns)).max(1);
    let least = u64::try_from(least).unwrap_or(u64::MAX / 4096);
    let weights: Vec<u64> = weights.into_iter().map(|weight| weight.max(least)).collect();
    deal_by_weight(places, claims, &weights)
}

/// Whether all of `members` have one weight.
pub(crate) fn equally_heavy(cx: &Context<'_>, members: &[usize]) -> bool {
    members.windows(2).all(|pair| cx.needs[pair[0]].weight == cx.needs[pair[1]].weight)
}

/// Whether somebody who must not be stopped shares several CPUs with others. Nobody can have turns there:
/// threads of all of them compete, and one that brings many leaves little to the others.
pub(crate) fn crowds_steady(cx: &Context<'_>, parts: &[Part]) -> bool {
    let steady = |&index: &usize| !cx.needs[index].app.stoppable;
    parts.iter().any(|part| part.place.len() > 1 && part.members.len() > 1 && part.members.iter().any(steady))
}

/// The widest of `cuts` with a partition for each of `members`.
pub(crate) fn one_each<'c>(cuts: &'c [Cut], members: &[usize]) -> Option<&'c Cut> {
    cuts.iter().find(|cut| cut.places.len() >= members.len())
}

/// Everybody on everything: where no partitions keep those apart who must not be stopped, equal shares are
/// only to be had so.
pub(crate) fn together(cx: &Context<'_>, members: &[usize]) -> (Vec<Part>, Remark) {
    let place = cx.snapshot.usable.clone();
    let steady = members.iter().filter(|&&index| !cx.needs[index].app.stoppable);
    let apps = steady.map(|&index| id(cx, index).clone()).collect();
    (vec![Part { place, members: members.to_vec() }], Remark::Unstoppable { apps })
}

pub(crate) fn parts(places: &[CpuSet], dealt: Vec<Vec<usize>>, members: &[usize]) -> Vec<Part> {
    places
        .iter()
        .zip(dealt)
        .filter(|(_, dealt)| !dealt.is_empty())
        .map(|(place, dealt)| Part {
            place: place.clone(),
            members: dealt.into_iter().map(|at| members[at]).collect(),
        })
        .collect()
}

/// What the report says about a cut in use.
pub(crate) fn describe(cx: &Context<'_>, cut: &Cut, parts: &[Part], programs: usize) -> Vec<Remark> {
    let mut remarks = vec![Remark::Level {
        programs: programs as u32,
        width: cut.width,
        shape: cut.description.clone(),
        used: parts.len() as u32,
        partitions: cut.places.len() as u32,
    }];
    if parts.len() < cut.places.len() {
        // Parts stand in the order of the places.
        let mut used = parts.iter().map(|part| &part.place).peekable();
        let idle = cut.places.iter().filter(|place| used.next_if_eq(place).is_none());
        let idle: Vec<u32> = idle.flat_map(CpuSet::iter).collect();
        remarks.push(Remark::Idle { cpus: CpuSet::from_cpus(&idle), why: Idleness::OneShape });
    }
    let closed: Vec<u32> =
        parts.iter().flat_map(|part| closed(cx, part).iter().collect::<Vec<_>>()).collect();
    if !closed.is_empty() {
        remarks.push(Remark::Idle { cpus: CpuSet::from_cpus(&closed), why: Idleness::Closed });
    }
    remarks.extend(left_over(cut));
    remarks
}

/// CPUs of a part that none of its members may use.
fn closed(cx: &Context<'_>, part: &Part) -> CpuSet {
    if part.members.iter().any(|&index| cx.needs[index].scope.is_none()) {
        return CpuSet::new();
    }
    let closed = |closed: CpuSet, &index: &usize| closed.difference(&cx.needs[index].open(&part.place));
    part.members.iter().fold(part.place.clone(), closed)
}

/// What becomes of CPUs that are in no partition of a cut.
pub(crate) fn left_over(cut: &Cut) -> Option<Remark> {
    let remark = || Remark::LeftOver { cpus: cut.left_over.clone(), width: cut.width };
    (!cut.left_over.is_empty()).then(remark)
}

/// The name of a member.
pub(crate) fn id<'c>(cx: &'c Context<'_>, index: usize) -> &'c AppId {
    &cx.needs[index].app.id
}
