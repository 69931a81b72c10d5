//! Who stands beside whom, when the settings say by what that is chosen.
//!
//! Programs are neighbours that stand on different partitions of one domain (CPUs that share memory and caches).
//! What they lose by each other is predicted; where the predictions are no surer than they differ
//! ([`interference::pairing::trusted`]) the twins rule stands in: 1 for two runs of one program, else
//! nothing. By load instruction rates what two lose by each other is the product of their rates, so that the rates of
//! the domains come to the same. Programs that take turns on a partition lose nothing by each other, and of their neighbours
//! each meets them for its part of the time only.
//!
//! ```text
//! s(a, b) - 1 by load rates    = rate of a × rate of b ÷ (highest rate of all)²
//! a program's lost time       = sum over neighbours b of (s(a, b) - 1) ÷ programs on a partition
//! an arrangement costs        = sum of that + (0.5 to another domain, 0.05 inside) × part of its CPUs that a program would have kept
//! begins from                 = where most CPUs are kept, and (one program a partition, two partitions a domain)
//!                               from the pairs that cost least without moves: the better of the two
//! ```
//!
//! Rigid gangs that share slots (`compose`) are chosen alike: those of one width, where one domain holds all.

use std::collections::{BTreeMap, BTreeSet};

use interference::pairing::{Objective, Problem, Wanted, trusted};
use interference::{Estimate, Grid};
use plan::{App, Basis, MoveReason, Remark};
use topology::CpuSet;
use workload::AppId;

use super::contention::{DOUBLING, slow_by_bandwidth};
use super::context::{Context, Part};
use super::exchange::Exchange;
use super::keep::Owners;
use super::levels::id;
use super::needs::Need;
use super::units::domains;
use crate::Neighbours;
use crate::neighbours::prior;

const NONE: usize = usize::MAX;
/// What a move costs, in slowdowns: inside a domain caches are filled again; to another one memory follows, which
/// costs this unless the evidence says what it costs and what is left of the program.
const MOVE_INSIDE: f64 = 0.05;
const MOVE: f64 = 0.5;
/// More programs are not paired exactly at the beginning.
const MOST_TO_PAIR: usize = 200;
/// More programs are left where most CPUs are kept.
const MOST_PROGRAMS: usize = 1024;
/// Of searches that need one; pairs do not.
const SEED: u64 = 1;

/// Relative error of a slowdown out of profiles, where the evidence claims none.
const PROFILE_ERROR: f64 = 0.05;

/// Parts with those who suit one another in one domain.
pub(crate) struct Suited {
    pub parts: Vec<Part>,
    pub remarks: Vec<Remark>,
    /// Why programs are not where most CPUs would be kept.
    pub reasons: BTreeMap<AppId, MoveReason>,
}

/// What is known of some programs' company.
struct Company {
    /// Where slowdowns of pairs are known, and sure enough to go by.
    grid: Option<Grid>,
    /// Which of them are runs of one program.
    kind: Vec<usize>,
    /// Whether there is another run of its program.
    has_twin: Vec<bool>,
    /// Where these decide: each program's load instruction rate against the highest.
    rates: Option<Vec<f64>>,
    by: Basis,
    /// Programs, by the names of their kinds, of which nothing is known.
    unknown: Vec<String>,
}

impl Company {
    /// Of `members`, indices into the needs.
    fn of(cx: &Context<'_>, neighbours: &Neighbours, members: &[usize]) -> Company {
        let needs: Vec<&Need<'_>> = members.iter().map(|&index| &cx.needs[index]).collect();
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let kind: Vec<usize> = needs
            .iter()
            .enumerate()
            .map(|(at, need)| *first.entry(need.app.program()).or_insert(at))
            .collect();
        let mut runs = vec![0; kind.len()];
        kind.iter().for_each(|&kind| runs[kind] += 1);
        let has_twin = kind.iter().map(|&kind| runs[kind] > 1).collect();
        let numbers: Vec<Option<usize>> = match neighbours {
            Neighbours::Predicted(known) => needs.iter().map(|need| known.find(need.app.program())).collect(),
            _ => Vec::new(),
        };
        let estimate = |a: usize, b: usize| match neighbours {
            Neighbours::Twins | Neighbours::LoadRates => None,
            Neighbours::Profile => by_profile(needs[a].app, needs[b].app),
            Neighbours::Predicted(known) => known.get(numbers[a]?, numbers[b]?),
        };
        let cell = |(a, b): (usize, usize)| Some(estimate(a, b).unwrap_or_else(|| prior(kind[a] == kind[b])));
        let by_pairs = matches!(neighbours, Neighbours::Profile | Neighbours::Predicted(_));
        let grid = by_pairs.then(|| Grid::new(needs.len(), cell)).filter(trusted);
        let loads: Vec<Option<f64>> = match neighbours {
            Neighbours::LoadRates => needs.iter().map(|need| load_rate(need.app)).collect(),
            _ => Vec::new(),
        };
        let rates = relative(&loads);
        let is_unknown = |at: &usize| match neighbours {
            Neighbours::Twins => false,
            Neighbours::LoadRates => loads[*at].is_none(),
            _ => (0..needs.len()).all(|other| estimate(*at, other).is_none()),
        };
        let mut unknown: Vec<String> =
            (0..needs.len()).filter(is_unknown).map(|at| needs[at].app.program().to_owned()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        let by = match (neighbours, grid.is_some()) {
            (Neighbours::Twins, _) => Basis::Twins,
            (Neighbours::LoadRates, _) if rates.is_some() => Basis::LoadRates,
            (_, false) | (Neighbours::LoadRates, _) => Basis::TooUnsure,
            (Neighbours::Profile, true) => Basis::Profiles,
            (Neighbours::Predicted(_), true) => Basis::Predictions,
        };
        Company { grid, kind, has_twin, rates, by, unknown }
    }

    fn twins(&self, a: usize, b: usize) -> bool {
        a != b && self.kind[a] == self.kind[b]
    }

    /// What `a` loses beside `b`.
    fn lost(&self, a: usize, b: usize) -> f64 {
        if let Some(rates) = &self.rates {
            return rates[a] * rates[b];
        }
        match self.grid.as_ref().and_then(|grid| grid.get(a, b)) {
            Some(known) => known.value - 1.0,
            None => f64::from(self.twins(a, b)),
        }
    }

    fn both(&self, a: usize, b: usize) -> f64 {
        self.lost(a, b) + self.lost(b, a)
    }

    /// Whether it makes no difference to anybody which of two stands where: where names decide, of two runs of one
    /// program, and of two without another run of theirs.
    fn interchangeable(&self, a: usize, b: usize) -> bool {
        let by_names = self.rates.is_none() && self.grid.is_none();
        by_names && (self.kind[a] == self.kind[b] || !self.has_twin[a] && !self.has_twin[b])
    }

    /// The predicted slowdown beside others who run a part of the time each, and its relative error.
    fn slowdown(&self, a: usize, beside: &[usize], part: f64) -> Estimate {
        let known = || beside.iter().filter_map(|&b| self.grid.as_ref()?.get(a, b));
        let value = 1.0 + known().map(|one| (one.value - 1.0) * part).sum::<f64>();
        let off = |one: Estimate| one.value * one.error * part;
        let error = libm::sqrt(known().map(|one| off(one) * off(one)).sum()) / value.max(0.01);
        Estimate { value, error }
    }

    fn problem(&self) -> Problem {
        let names: Vec<String> = self.kind.iter().map(|kind| kind.to_string()).collect();
        Problem::new(&names, &[], |a, b| 1.0 + self.lost(a, b))
    }
}

/// Load instructions a second.
fn load_rate(app: &App) -> Option<f64> {
    app.evidence.loads_per_s.map(|known| known.value as f64)
}

/// Each rate against the highest, and what is not known as the mean of those that are; `None` where they tell nothing:
/// fewer than two are known, or all are the same.
fn relative(rates: &[Option<f64>]) -> Option<Vec<f64>> {
    let known = || rates.iter().copied().flatten();
    let (lowest, highest) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    if lowest >= highest {
        return None;
    }
    let mean = known().sum::<f64>() / known().count() as f64;
    Some(rates.iter().map(|rate| rate.unwrap_or(mean) / highest).collect())
}

/// What is told of one program beside another; `None` where nothing is.
pub(crate) fn known_slowdown(neighbours: &Neighbours, own: &App, other: &App) -> Option<Estimate> {
    match neighbours {
        Neighbours::Twins | Neighbours::LoadRates => None,
        Neighbours::Profile => by_profile(own, other),
        Neighbours::Predicted(known) => known.get(known.find(own.program())?, known.find(other.program())?),
    }
}

/// The slowdown of one program beside another, each on half of a domain, by the evidence of both.
fn by_profile(own: &App, other: &App) -> Option<Estimate> {
    let (own, other) = (&own.evidence, &other.evidence);
    let share = |known: &plan::Known| known.value as f64 / 1000.0;
    let (mine, theirs) = (own.bandwidth_milli.as_ref()?, other.bandwidth_milli.as_ref()?);
    let on_half = |known| share(known) / DOUBLING;
    let cache = own.cache_milli.as_ref().map_or(0.0, share);
    let value =
        slow_by_bandwidth(share(mine), on_half(mine), on_half(mine) + on_half(theirs)) * (1.0 + cache / 2.0);
    let unsure =
        mine.error_milli.max(theirs.error_milli).max(own.cache_milli.map_or(0, |known| known.error_milli));
    let error = (value - 1.0) / value * f64::from(unsure) / 1000.0;
    Some(Estimate { value, error: error.max(PROFILE_ERROR * (value - 1.0)) })
}

/// What it costs a program to leave its domain.
fn move_cost(need: &Need<'_>) -> f64 {
    let evidence = &need.app.evidence;
    match (&evidence.move_ns, &evidence.left_ns) {
        (Some(move_ns), Some(left_ns)) => move_ns.value as f64 / left_ns.value.max(1) as f64 + MOVE_INSIDE,
        _ => MOVE,
    }
}

/// `parts`, of `places` of one level, in which most CPUs are kept: as they are where the settings do not ask for
/// neighbours or there is nothing to choose.
pub(crate) fn suited(cx: &Context<'_>, places: &[CpuSet], parts: Vec<Part>) -> Suited {
    let as_they_are = |parts| Suited { parts, remarks: Vec::new(), reasons: BTreeMap::new() };
    let Some(neighbours) = &cx.settings.neighbours else { return as_they_are(parts) };
    let domains = domains(&cx.snapshot.machine);
    let inside = |place: &CpuSet| domains.iter().position(|domain| place.is_subset(domain)).unwrap_or(NONE);
    let domain: Vec<usize> = places.iter().map(inside).collect();
    let mut each = vec![0; domains.len()];
    domain.iter().filter(|&&domain| domain != NONE).for_each(|&domain| each[domain] += 1);
    let members: Vec<usize> = parts.iter().flat_map(|part| part.members.iter().copied()).collect();
    let choice = each.iter().filter(|&&count| count > 0).count() > 1 && each.iter().any(|&count| count > 1);
    if !choice || !(2..=MOST_PROGRAMS).contains(&members.len()) {
        return as_they_are(parts);
    }
    let company = Company::of(cx, neighbours, &members);
    let (mut at, mut on) = (Vec::new(), vec![Vec::new(); places.len()]);
    for part in &parts {
        let place = places.iter().position(|place| *place == part.place).expect("parts stand on places");
        for _ in &part.members {
            on[place].push(at.len());
            at.push(place);
        }
    }
    let crowd = on.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let part = 1.0 / crowd as f64;
    // Of each program the CPUs that it would keep, by place; on the places that are not there it keeps none.
    let owners = Owners::of(places);
    let before = |&index: &usize| cx.needs[index].before.map_or_else(Vec::new, |set| owners.overlaps(set));
    let keeps: Vec<Vec<(usize, u32)>> = members.iter().map(before).collect();
    let part_of = |place: usize, cpus: u32| f64::from(cpus) / places[place].len().max(1) as f64;
    let kept = |program: usize, place: usize| -> f64 {
        let found = keeps[program].binary_search_by_key(&place, |&(place, _)| place);
        found.map_or(0.0, |at| part_of(place, keeps[program][at].1))
    };
    // Nobody keeps more of its CPUs than on the place where it keeps most.
    let home = |program: usize| {
        let kept_on = keeps[program].iter().map(|&(place, cpus)| (part_of(place, cpus), place));
        kept_on.max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1))).unwrap_or((0.0, 0))
    };
    let homes: Vec<(f64, usize)> = (0..members.len()).map(home).collect();
    let moves: Vec<f64> = members.iter().map(|&index| move_cost(&cx.needs[index])).collect();
    // Elsewhere it keeps nothing, and is outside of the domain where it keeps most: nothing is dearer.
    let mut wanted = vec![false; members.len() * domains.len()];
    for (program, keeps) in keeps.iter().enumerate() {
        let places = keeps.iter().map(|&(place, _)| place).chain([homes[program].1]);
        for domain in places.map(|place| domain[place]).filter(|&domain| domain != NONE) {
            wanted[program * domains.len() + domain] = true;
        }
    }
    let both = |a: usize, b: usize| company.both(a, b) * part;
    let moving = |program: usize, place: usize| {
        let (most, stood) = homes[program];
        let cost = if domain[place] == domain[stood] { MOVE_INSIDE } else { moves[program] };
        cost * (most - kept(program, place))
    };
    let may = |program: usize, place: usize| {
        let need = &cx.needs[members[program]];
        // Threads on one CPU were dealt evenly: whoever brings several would take more than its part from those
        // whom it joins, and leave more than theirs to those whom it leaves.
        let brings_several =
            crowd > 1 && places[place].len() == 1 && need.own_threads.unwrap_or(need.least_threads) > 1;
        need.scope.is_none() && !brings_several && places[place].len() >= need.floor as usize
    };
    // Where several share a place in turn, each has its weight's part of it.
    let weight = |program: usize| cx.needs[members[program]].weight;
    let alike = |one: usize, other: usize| crowd == 1 || weight(one) == weight(other);
    let interchangeable = |a: usize, b: usize| company.interchangeable(a, b);
    let begin = |at: Vec<usize>, on: Vec<Vec<usize>>| {
        let (domain, domains) = (&domain, domains.len());
        let mut exchange = Exchange {
            domain,
            domains,
            both: &both,
            interchangeable: &interchangeable,
            wanted: &wanted,
            moving: &moving,
            may: &may,
            alike: &alike,
            at,
            on,
        };
        exchange.improve();
        exchange
    };
    let mut best = begin(at.clone(), on);
    let pairs = crowd == 1 && each.iter().all(|&count| count == 2 || count == 0);
    let free = members.iter().all(|&index| cx.needs[index].scope.is_none());
    if pairs && free && members.len() <= MOST_TO_PAIR {
        let wanted = Wanted {
            places: each.iter().filter(|&&count| count > 0).count(),
            objective: Objective::Mean,
            seed: SEED,
        };
        let groups = company.problem().assign(&wanted).places;
        let (at, on) = settle(&groups, &domain, &at, &kept);
        let other = begin(at, on);
        if other.cost() < best.cost() - 1e-9 {
            best = other;
        }
    }
    let beside = |at: &[usize], a: usize| -> Vec<usize> {
        let same =
            |&b: &usize| b != a && at[b] != at[a] && domain[at[a]] != NONE && domain[at[a]] == domain[at[b]];
        (0..at.len()).filter(same).collect()
    };
    let mean = |at: &[usize]| {
        let all = (0..at.len()).map(|a| company.slowdown(a, &beside(at, a), part).value);
        all.sum::<f64>() / at.len() as f64
    };
    let mean_milli = company.grid.is_some().then(|| (milli(mean(&best.at)), milli(mean(&at))));
    let mut remarks =
        vec![Remark::Neighbours { by: company.by, unknown: company.unknown.clone(), mean_milli }];
    let ids = |of: &[usize]| -> Vec<AppId> { of.iter().map(|&at| id(cx, members[at]).clone()).collect() };
    let why = |a: usize| {
        let (now, before) = (beside(&best.at, a), beside(&at, a));
        if company.rates.is_some() {
            let loads_per_s = cx.needs[members[a]].app.evidence.loads_per_s.map(|known| known.value);
            return MoveReason::LoadRates { loads_per_s, beside: ids(&now), instead_of: ids(&before) };
        }
        if company.grid.is_none() {
            return MoveReason::Twins { beside: ids(&now), instead_of: ids(&before) };
        }
        let (slowed, kept) = (company.slowdown(a, &now, part), company.slowdown(a, &before, part));
        MoveReason::Predicted {
            beside: ids(&now),
            slowdown_milli: milli(slowed.value),
            error_milli: milli(slowed.value * slowed.error),
            instead_of: ids(&before),
            before_milli: milli(kept.value),
        }
    };
    let changed = (0..at.len()).filter(|&a| best.at[a] != at[a]);
    let reasons: BTreeMap<AppId, MoveReason> =
        changed.map(|a| (id(cx, members[a]).clone(), why(a))).collect();
    let placed = |(app, why): (&AppId, &MoveReason)| Remark::Placed { app: app.clone(), why: why.clone() };
    remarks.extend(reasons.iter().filter(|_| company.grid.is_some()).map(placed));
    let suited = best.on.iter().zip(places).filter(|(on, _)| !on.is_empty());
    let parts = suited.map(|(on, place)| {
        let mut members: Vec<usize> = on.iter().map(|&at| members[at]).collect();
        members.sort_unstable();
        Part { place: place.clone(), members }
    });
    Suited { parts: parts.collect(), remarks, reasons }
}

/// In thousandths.
fn milli(value: f64) -> u32 {
    libm::round(value * 1000.0) as u32
}

/// Groups on domains, so that most CPUs are kept: the group and domain that keep most first.
fn settle(
    groups: &[Vec<usize>],
    domain: &[usize],
    stood: &[usize],
    kept: &dyn Fn(usize, usize) -> f64,
) -> (Vec<usize>, Vec<Vec<usize>>) {
    let numbers: BTreeSet<usize> = domain.iter().copied().filter(|&domain| domain != NONE).collect();
    let places_of = |number: usize| (0..domain.len()).filter(move |&place| domain[place] == number);
    let keeps = |group: &[usize], number: usize| -> f64 {
        group.iter().map(|&a| places_of(number).map(|place| kept(a, place)).fold(0.0, f64::max)).sum()
    };
    let mut choices: Vec<(f64, usize, usize)> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        choices.extend(numbers.iter().map(|&number| (keeps(group, number), at, number)));
    }
    choices.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    let (mut at, mut on) = (stood.to_vec(), vec![Vec::new(); domain.len()]);
    let (mut done, mut taken) = (vec![false; groups.len()], BTreeSet::new());
    for (_, group, number) in choices {
        if done[group] || taken.contains(&number) {
            continue;
        }
        done[group] = true;
        taken.insert(number);
        let mut open: Vec<usize> = places_of(number).collect();
        let mut members = groups[group].clone();
        while !members.is_empty() {
            let pairs = members.iter().flat_map(|&a| open.iter().map(move |&place| (a, place)));
            let nearest = pairs.max_by(|one, other| {
                kept(one.0, one.1).total_cmp(&kept(other.0, other.1)).then(other.cmp(one))
            });
            let (a, place) = nearest.expect("a domain has room for its group");
            members.retain(|&other| other != a);
            open.retain(|&other| other != place);
            at[a] = place;
            on[place].push(a);
        }
    }
    (at, on)
}

/// How many of the rigid `gangs` share a slot of `room` CPUs, where the settings ask for neighbours, and gangs of one
/// width in one domain leave a choice.
pub(crate) fn to_a_slot(cx: &Context<'_>, gangs: &[usize], room: usize) -> Option<usize> {
    cx.settings.neighbours.as_ref()?;
    let width = cx.needs[*gangs.first()?].floor as usize;
    let each = room / width.max(1);
    let alike = |&index: &usize| cx.needs[index].floor as usize == width && cx.needs[index].scope.is_none();
    let one_domain =
        || domains(&cx.snapshot.machine).iter().any(|domain| cx.snapshot.usable.is_subset(domain));
    let choice = each > 1 && gangs.len() > each && gangs.len() <= MOST_TO_PAIR;
    (choice && gangs.iter().all(alike) && one_domain()).then_some(each)
}

/// Which of the rigid `gangs` share a slot of `room` CPUs, and what is said of it; `None` where nothing is to be chosen.
pub(crate) fn slots(cx: &Context<'_>, gangs: &[usize], room: usize) -> Option<(Vec<Vec<usize>>, Remark)> {
    let each = to_a_slot(cx, gangs, room)?;
    let company = Company::of(cx, cx.settings.neighbours.as_ref()?, gangs);
    let wanted = Wanted { places: gangs.len().div_ceil(each), objective: Objective::Mean, seed: SEED };
    let problem = company.problem();
    // More than two a slot: the exact search would take longer than a decision may.
    let found = if each == 2 { problem.assign(&wanted) } else { problem.greedy(&wanted) };
    let groups: Vec<Vec<usize>> = found
        .places
        .iter()
        .filter(|group| !group.is_empty())
        .map(|group| group.iter().map(|&at| gangs[at]).collect())
        .collect();
    let in_order = || {
        let all: Vec<usize> = (0..gangs.len()).collect();
        let in_order: Vec<Vec<usize>> = all.chunks(each).map(<[usize]>::to_vec).collect();
        problem.cost(&in_order, &Objective::Mean)
    };
    let mean_milli = company.grid.is_some().then(|| (milli(found.cost), milli(in_order())));
    let ids = |group: &Vec<usize>| group.iter().map(|&index| id(cx, index).clone()).collect();
    let remark = Remark::Slots {
        by: company.by,
        unknown: company.unknown,
        groups: groups.iter().map(ids).collect(),
        mean_milli,
    };
    Some((groups, remark))
}
