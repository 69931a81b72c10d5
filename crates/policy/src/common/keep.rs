//! Who gets which of several equal partitions, so that most CPUs stay where they are
//! (invariant 7).
//!
//! [`best`] says who keeps most where. Cost: the CPUs of all old places, and what matching costs.

use std::collections::BTreeMap;

use topology::CpuSet;

use super::matching::{Edges, best};

const NONE: usize = usize::MAX;

/// One program that wants a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// Where it stood.
    pub before: Option<&'a CpuSet>,
    /// The only CPUs that it may use, if it is restricted.
    pub scope: Option<&'a CpuSet>,
    /// CPUs of its partition that must be open to it.
    pub floor: u32,
    /// How many shares of a partition it takes when it shares one; at least 1.
    pub load: u32,
}

impl Claim<'_> {
    pub fn admits(&self, place: &CpuSet) -> bool {
        self.scope.is_none_or(|scope| scope.intersection(place).len() >= self.floor.max(1) as usize)
    }
}

/// Of each CPU, which of the (disjoint) places holds it.
pub(crate) struct Owners<'a> {
    places: &'a [CpuSet],
    of: Vec<usize>,
}

impl Owners<'_> {
    pub fn of(places: &[CpuSet]) -> Owners<'_> {
        let mut of = Vec::new();
        for (number, place) in places.iter().enumerate() {
            for cpu in place.iter() {
                if of.len() <= cpu as usize {
                    of.resize(cpu as usize + 1, NONE);
                }
                of[cpu as usize] = number;
            }
        }
        Owners { places, of }
    }

    /// `(place, CPUs in common)` for each place that meets `set`, in order of place.
    pub fn overlaps(&self, set: &CpuSet) -> Vec<(usize, u32)> {
        let mut overlaps = Vec::new();
        self.add_overlaps(set, &mut overlaps);
        overlaps
    }

    /// The same, after what is in `all` already.
    fn add_overlaps(&self, set: &CpuSet, all: &mut Vec<(usize, u32)>) {
        // Most programs stood on just one of the places.
        let lowest = set.lowest().and_then(|cpu| self.of.get(cpu as usize)).copied();
        if let Some(place) = lowest.filter(|&place| place != NONE && self.places[place] == *set) {
            all.push((place, set.len() as u32));
            return;
        }
        let start = all.len();
        for cpu in set.iter() {
            let Some(&place) = self.of.get(cpu as usize) else { break };
            match all[start..].last_mut() {
                _ if place == NONE => {}
                Some((last, count)) if *last == place => *count += 1,
                _ => all.push((place, 1)),
            }
        }
        if all[start..].is_sorted_by(|one, other| one.0 < other.0) {
            return;
        }
        // The CPUs of a place are not all neighbours.
        all[start..].sort_unstable();
        let mut last = start;
        for at in start + 1..all.len() {
            if all[last].0 == all[at].0 {
                all[last].1 += all[at].1;
            } else {
                last += 1;
                all[last] = all[at];
            }
        }
        all.truncate(last + 1);
    }

    /// The same, those with most in common first.
    pub fn most_first(&self, set: &CpuSet) -> Vec<(usize, u32)> {
        let mut overlaps = self.overlaps(set);
        overlaps.sort_by_key(|&(place, kept)| (std::cmp::Reverse(kept), place));
        overlaps
    }
}

/// One partition for each program, each partition at most once; `None` where a restricted program
/// finds none that it may use, or there are not enough.
pub(crate) fn assign(places: &[CpuSet], claims: &[Claim<'_>]) -> Vec<Option<usize>> {
    let owners = Owners::of(places);
    let mut occupant_of: Vec<usize> = vec![NONE; places.len()];
    let mut result: Vec<Option<usize>> = vec![None; claims.len()];

    // Restricted programs first: they have the fewest choices.
    let choices: Vec<Vec<usize>> = claims
        .iter()
        .map(|claim| {
            let Some(scope) = claim.scope else { return Vec::new() };
            let kept =
                |place: usize| claim.before.map_or(0, |before| before.intersection(&places[place]).len());
            let mut choices: Vec<(usize, u32)> = owners.overlaps(scope);
            choices.retain(|&(_, open)| open >= claim.floor.max(1));
            choices.sort_by_key(|&(place, open)| (std::cmp::Reverse((kept(place), open)), place));
            choices.into_iter().map(|(place, _)| place).collect()
        })
        .collect();
    for (number, claim) in claims.iter().enumerate() {
        if claim.scope.is_some() {
            augment(number, &choices, &mut occupant_of, &mut vec![false; places.len()]);
        }
    }
    for (place, &program) in occupant_of.iter().enumerate() {
        if program != NONE {
            result[program] = Some(place);
        }
    }

    // Then whoever overlaps with a partition that is left.
    let mut edges = Edges::default();
    for claim in claims {
        if let (None, Some(before)) = (claim.scope, claim.before) {
            owners.add_overlaps(before, &mut edges.all);
        }
        edges.end(|place| occupant_of[place] == NONE);
    }
    for (program, place) in best(&edges, places.len()) {
        result[program] = Some(place);
        occupant_of[place] = program;
    }

    // Then the others, in order.
    let mut free = (0..places.len()).filter(|&place| occupant_of[place] == NONE);
    for (number, claim) in claims.iter().enumerate() {
        if claim.scope.is_none() && result[number].is_none() {
            result[number] = free.next();
        }
    }
    result
}

/// Kuhn's augmenting path: gives `program` one of its choices, moving others to theirs if need be.
fn augment(program: usize, choices: &[Vec<usize>], occupant_of: &mut [usize], visited: &mut [bool]) -> bool {
    for &place in &choices[program] {
        if std::mem::replace(&mut visited[place], true) {
            continue;
        }
        if occupant_of[place] == NONE || augment(occupant_of[place], choices, occupant_of, visited) {
            occupant_of[place] = program;
            return true;
        }
    }
    false
}

/// Deals programs evenly over partitions: their loads differ by one at most (restricted and heavy
/// programs may break that), and as many as possible stay where they stood. Programs of each
/// partition in order; whoever finds no partition that it may use is left out.
pub(crate) fn deal(places: &[CpuSet], claims: &[Claim<'_>]) -> Vec<Vec<usize>> {
    let owners = Owners::of(places);
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    if places.is_empty() {
        return dealt;
    }
    // Where each stood, the places with most in common first.
    let overlaps: Vec<Vec<(usize, u32)>> =
        claims.iter().map(|claim| claim.before.map_or_else(Vec::new, |b| owners.most_first(b))).collect();
    let wishes: Vec<Vec<usize>> =
        overlaps.iter().map(|overlaps| overlaps.iter().map(|&(place, _)| place).collect()).collect();
    let mut wanted = vec![0usize; places.len()];
    for (claim, wishes) in claims.iter().zip(&wishes) {
        if let Some(&first) = wishes.first().filter(|&&first| claim.admits(&places[first])) {
            wanted[first] += 1;
        }
    }
    let load = |number: usize| claims[number].load.max(1) as usize;
    let mut loads = vec![0usize; places.len()];

    // Restricted and heavy ones first, to the least loaded of those that they may use.
    let fussy = |claim: &Claim<'_>| claim.scope.is_some() || claim.load > 1;
    for (number, claim) in claims.iter().enumerate().filter(|(_, claim)| fussy(claim)) {
        let open: Vec<usize> = match claim.scope {
            Some(scope) => {
                let open = owners.overlaps(scope).into_iter();
                open.filter(|&(_, cpus)| cpus >= claim.floor.max(1)).map(|(place, _)| place).collect()
            }
            None => (0..places.len()).collect(),
        };
        let best = open.into_iter().min_by_key(|&place| {
            let stands = wishes[number].first() == Some(&place);
            (loads[place], !stands, place)
        });
        if let Some(place) = best {
            dealt[place].push(number);
            loads[place] += load(number);
        }
    }
    let mut room = room(&loads, claims.iter().filter(|claim| !fussy(claim)).count(), &wanted);
    let mut rest: Vec<usize> = Vec::new();
    // Who has most to keep chooses first.
    let mut plain: Vec<usize> = (0..claims.len()).filter(|&number| !fussy(&claims[number])).collect();
    plain.sort_by_key(|&number| std::cmp::Reverse(overlaps[number].first().map_or(0, |&(_, kept)| kept)));
    for number in plain {
        match wishes[number].first() {
            Some(&place) if room[place] > 0 => {
                dealt[place].push(number);
                room[place] -= 1;
            }
            _ => rest.push(number),
        }
    }
    let mut next = 0;
    for number in rest {
        let near = wishes[number].iter().copied().find(|&place| room[place] > 0);
        let place = near.unwrap_or_else(|| {
            while room[next] == 0 {
                next += 1;
            }
            next
        });
        dealt[place].push(number);
        room[place] -= 1;
    }
    dealt.iter_mut().for_each(|programs| programs.sort_unstable());
    exchange_groups(dealt, claims, &overlaps)
}

/// Everybody where it stands, newcomers where fewest are; an empty partition takes a program from
/// the most crowded one.
pub(crate) fn stay(places: &[CpuSet], claims: &[Claim<'_>]) -> Vec<Vec<usize>> {
    let owners = Owners::of(places);
    let overlaps: Vec<Vec<(usize, u32)>> =
        claims.iter().map(|claim| claim.before.map_or_else(Vec::new, |b| owners.most_first(b))).collect();
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    let mut rest = Vec::new();
    for (at, claim) in claims.iter().enumerate() {
        let mut stands = overlaps[at].iter().map(|&(place, _)| place);
        match stands.find(|&place| claim.admits(&places[place])) {
            Some(place) => dealt[place].push(at),
            None => rest.push(at),
        }
    }
    for at in rest {
        let open = (0..places.len()).filter(|&place| claims[at].admits(&places[place]));
        if let Some(place) = open.min_by_key(|&place| (dealt[place].len(), place)) {
            dealt[place].push(at);
        }
    }
    while let Some(empty) = dealt.iter().position(Vec::is_empty) {
        let crowded = (0..places.len()).max_by_key(|&place| (dealt[place].len(), std::cmp::Reverse(place)));
        let Some(crowded) = crowded.filter(|&place| dealt[place].len() > 1) else { break };
        let free = dealt[crowded].iter().rposition(|&at| claims[at].scope.is_none());
        let Some(free) = free else { break };
        let at = dealt[crowded].remove(free);
        dealt[empty].push(at);
    }
    dealt.iter_mut().for_each(|programs| programs.sort_unstable());
    exchange_groups(dealt, claims, &overlaps)
}

/// Gives those who share a partition, as a whole, the partition where they keep most.
pub(crate) fn exchange_groups(
    dealt: Vec<Vec<usize>>,
    claims: &[Claim<'_>],
    overlaps: &[Vec<(usize, u32)>],
) -> Vec<Vec<usize>> {
    let movable: Vec<bool> =
        dealt.iter().map(|group| group.iter().all(|&number| claims[number].scope.is_none())).collect();
    let mut edges = Edges::default();
    for (group, &free) in dealt.iter().zip(&movable) {
        let mut kept: BTreeMap<usize, u32> = BTreeMap::new();
        for &(place, cpus) in group.iter().flat_map(|&number| &overlaps[number]) {
            if movable[place] {
                *kept.entry(place).or_insert(0) += cpus;
            }
        }
        edges.all.extend(kept);
        edges.end(|_| free);
    }
    let mut result: Vec<Option<Vec<usize>>> = vec![None; dealt.len()];
    let mut groups: Vec<Option<Vec<usize>>> = dealt.into_iter().map(Some).collect();
    for (group, place) in best(&edges, groups.len()) {
        result[place] = groups[group].take();
    }
    // Those with nothing to keep stay where they were dealt, or take what is left.
    for place in 0..groups.len() {
        if result[place].is_none() {
            result[place] = groups[place].take();
        }
    }
    let mut left = groups.into_iter().flatten();
    result.into_iter().map(|group| group.or_else(|| left.next()).unwrap_or_default()).collect()
}

/// How many of `count` programs of load 1 each partition takes, so that the least loaded ones are
/// filled up first; the odd ones go where most wish to be. The sum is `count`.
fn room(loads: &[usize], count: usize, wanted: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by_key(|&place| loads[place]);
    // The lowest level up to which there is room for all.
    let (mut level, mut below, mut capacity) = (loads[order[0]], 0, 0);
    while capacity < count {
        while below < order.len() && loads[order[below]] <= level {
            below += 1;
        }
        let lacking = (count - capacity).div_ceil(below);
        let next = order.get(below).map_or(usize::MAX, |&place| loads[place] - level);
        let rise = lacking.min(next);
        level += rise;
        capacity += rise * below;
    }
    let mut room: Vec<usize> = loads.iter().map(|&load| level.saturating_sub(load)).collect();
    // One too many here and there: taken where fewest wish to be, of those that are at the level.
    let mut full: Vec<usize> = (0..loads.len()).filter(|&place| room[place] > 0).collect();
    full.sort_by_key(|&place| (wanted[place], std::cmp::Reverse(place)));
    for &place in full.iter().take(capacity - count) {
        room[place] -= 1;
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_level_and_its_odd_part_is_where_most_wish_to_be() {
        assert_eq!(room(&[0, 0, 0], 7, &[0, 0, 5]), [2, 2, 3]);
        assert_eq!(room(&[2, 0, 3, 0], 5, &[0; 4]), [1, 2, 0, 2]);
        assert_eq!(room(&[5, 5], 1, &[0, 1]), [0, 1]);
        assert_eq!(room(&[0, 9], 3, &[0, 1]), [3, 0]);
        assert_eq!(room(&[1], 0, &[0]), [0]);
    }

    fn set(cpus: &str) -> CpuSet {
        cpus.parse().unwrap()
    }

    #[test]
    fn each_place_that_meets_a_set_is_named_once_in_order() {
        let places = ["8-9", "0,4", "1,5", "2-3", "20"].map(set);
        let overlaps = |cpus| Owners::of(&places).overlaps(&set(cpus));
        assert_eq!(overlaps("0-5"), [(1, 2), (2, 2), (3, 2)]);
        assert_eq!(overlaps("2-9"), [(0, 2), (1, 1), (2, 1), (3, 2)]);
        assert_eq!(overlaps("0,4"), [(1, 2)]);
        assert_eq!(overlaps("6-7,10-30"), [(4, 1)]);
        assert_eq!(overlaps("40"), []);
    }

    /// CPUs kept by the best of all assignments, by trying them all.
    fn naive(places: &[CpuSet], before: &[CpuSet], taken: &mut Vec<bool>, number: usize) -> usize {
        if number == before.len() {
            return 0;
        }
        let mut best = 0;
        for place in 0..places.len() {
            if !taken[place] {
                taken[place] = true;
                let kept = before[number].intersection(&places[place]).len();
                best = best.max(kept + naive(places, before, taken, number + 1));
                taken[place] = false;
            }
        }
        best
    }

    #[test]
    fn as_many_cpus_are_kept_as_an_exhaustive_search_finds() {
        let mut state = 7u64;
        let mut random = move |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        for _ in 0..300 {
            let places: Vec<CpuSet> = (0..5).map(|n| set(&format!("{}-{}", 4 * n, 4 * n + 3))).collect();
            let count = 1 + random(5) as usize;
            let before: Vec<CpuSet> =
                (0..count).map(|_| (0..6).map(|_| random(22) as u32).collect()).collect();
            let claims: Vec<Claim<'_>> =
                before.iter().map(|b| Claim { before: Some(b), scope: None, floor: 1, load: 1 }).collect();
            let chosen = assign(&places, &claims);
            let kept: usize = chosen
                .iter()
                .zip(&before)
                .map(|(place, before)| before.intersection(&places[place.unwrap()]).len())
                .sum();
            assert_eq!(kept, naive(&places, &before, &mut vec![false; 5], 0));
            let mut distinct: Vec<_> = chosen.iter().flatten().collect();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), count);
        }
    }

    #[test]
    fn a_restricted_program_takes_its_only_partition_from_others() {
        let places = [set("0-1"), set("2-3")];
        let (stood, only) = (set("0-1"), set("0"));
        let claims = [
            Claim { before: Some(&stood), scope: None, floor: 1, load: 1 },
            Claim { before: None, scope: Some(&only), floor: 1, load: 1 },
        ];
        assert_eq!(assign(&places, &claims), [Some(1), Some(0)]);
    }
}
