//! What the modelled node knows about its programs: the evidence in the engine's snapshot.
//!
//! | notebook | curve | work left | memory, caches, moves | load instructions |
//! |---|---|---|---|---|
//! | none | not known | not known | not known | not known |
//! | empty | the fastest rate of regions with each number of CPUs of a domain, and with whole ones, in this run of the scenario | after a first run of the program to its end | not known | as counted now |
//! | full | runs alone at the machine's widths | earlier runs' length less what is done | runs alone | the mean of a run alone |
//!
//! Programs are the same if their profiles have one name. A full notebook is what runs of each program
//! alone teach, once at each width, and one of them moved to another node halfway; nothing in it is about
//! arrivals, about other programs' runs, or about the scenario. An empty one learns what a live node can
//! count: regions, team sizes and time, disturbed by whatever disturbed the program.

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::{Evidence, Known, Speedup};
use workload::Profile;

use crate::domains::Domains;
use crate::laws::place;
use crate::model::Laws;

/// What is known when a scenario begins, and whether it grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing is known and nothing is learned.
    #[default]
    None,
    /// Nothing is known at the beginning; region rates are learned.
    Empty,
    /// Every program has run alone at every width before.
    Full,
}

/// A rate counts if it was seen for so long, over so many regions.
const SAMPLE_NS: f64 = 250e6;
const FEWEST_REGIONS: f64 = 8.0;
/// How far off rates of regions are taken to be, in thousandths.
const RATE_ERROR_MILLI: u32 = 200;

/// One program's page of an empty notebook.
#[derive(Clone, Debug, Default)]
struct Page {
    /// Regions a second, the fastest by team size.
    fastest: BTreeMap<u32, f64>,
    /// Regions of a whole run.
    regions: Option<f64>,
}

/// How far off counted loads are taken to be, in thousandths.
const LOADS_ERROR_MILLI: u32 = 20;

/// A program's load instructions a second as counted now, for a whole domain.
pub fn counted_loads(per_s: f64) -> Known {
    Known::measured(per_s.round() as u64, LOADS_ERROR_MILLI)
}

#[derive(Clone, Debug)]
pub struct Notebook {
    knowledge: Knowledge,
    /// Of a full one.
    solo: BTreeMap<String, (Speedup, Evidence)>,
    pages: BTreeMap<String, Page>,
}

impl Notebook {
    pub fn new<'a>(
        knowledge: Knowledge,
        profiles: impl Iterator<Item = &'a Arc<Profile>>,
        domains: &Domains,
        laws: &Laws,
    ) -> Notebook {
        let mut solo = BTreeMap::new();
        if knowledge == Knowledge::Full {
            for profile in profiles {
                solo.entry(profile.name.clone()).or_insert_with(|| alone(profile, domains, laws));
            }
        }
        Notebook { knowledge, solo, pages: BTreeMap::new() }
    }

    pub fn is_used(&self) -> bool {
        self.knowledge != Knowledge::None
    }

    pub fn learns(&self) -> bool {
        self.knowledge == Knowledge::Empty
    }

    /// A program ran for `passed_ns` with a team that had its CPUs (by domain) to itself, and did this
    /// part of its work. A team that is spread evenly over domains tells how fast its part in each of
    /// them is; one that fills them, how fast it is in all.
    pub fn observe_rate(
        &mut self,
        profile: &Profile,
        cpus: &[(u16, u16)],
        domains: &Domains,
        passed_ns: f64,
        part: f64,
    ) {
        let mut regions = part * profile.regions as f64;
        let Some(&(domain, each)) = cpus.first().filter(|(_, each)| cpus.iter().all(|(_, n)| n == each))
        else {
            return;
        };
        let (mut team, count) = (u32::from(each), cpus.len() as u32);
        if f64::from(each) < domains.size(domain) {
            regions /= f64::from(count);
        } else {
            team *= count;
        }
        if passed_ns < SAMPLE_NS || regions < FEWEST_REGIONS {
            return;
        }
        let page = self.pages.entry(profile.name.clone()).or_default();
        let fastest = page.fastest.entry(team).or_default();
        *fastest = fastest.max(regions * 1e9 / passed_ns);
    }

    /// A program ran to its end.
    pub fn ended(&mut self, profile: &Profile) {
        if self.learns() {
            self.pages.entry(profile.name.clone()).or_default().regions = Some(profile.regions as f64);
        }
    }

    /// What is known of a program of which `left` of its work is left.
    pub fn recall(&self, profile: &Profile, left: f64) -> (Option<Speedup>, Evidence) {
        if let Some((speedup, evidence)) = self.solo.get(&profile.name) {
            let left_ns =
                evidence.left_ns.map(|all| Known { value: (all.value as f64 * left) as u64, ..all });
            return (Some(speedup.clone()), Evidence { left_ns, ..evidence.clone() });
        }
        self.pages.get(&profile.name).map_or_else(Default::default, |page| page.recall(left))
    }
}

impl Page {
    fn recall(&self, left: f64) -> (Option<Speedup>, Evidence) {
        let Some((curve, one)) = Speedup::from_rates(&self.fastest) else { return Default::default() };
        let known = |value: f64| Known::measured(value as u64, RATE_ERROR_MILLI);
        let left_ns = self
            .regions
            .map(|regions| Known { source: plan::Source::Remembered, ..known(regions * left / one * 1e9) });
        (Some(curve), Evidence { left_ns, ..Evidence::default() })
    }
}

/// What runs of a program alone teach.
fn alone(profile: &Profile, domains: &Domains, laws: &Laws) -> (Speedup, Evidence) {
    let (count, size) = (domains.count(), domains.size(0));
    let full = |nodes: usize| vec![(size, 1.0); nodes];
    let mut points: Vec<(u32, u32)> = Vec::new();
    let mut add = |parts: &[(f64, f64)]| {
        let cpus: f64 = parts.iter().map(|(cpus, _)| cpus).sum();
        points.push((cpus as u32, ((place::speedup(profile, parts) * 1000.0).round() as u32).max(1)));
    };
    (2..=size as u32).for_each(|cpus| add(&[(f64::from(cpus), 1.0)]));
    (2..=count).for_each(|nodes| add(&full(nodes)));
    let known = |value: f64| Some(Known::remembered(value.round() as u64, 0));
    let moves_ns = profile.memory_bytes as f64 / laws.migrate_bytes_per_s * 1e9;
    let keeps = 1.0 / (1.0 + laws.remote * profile.bandwidth / 2.0);
    let evidence = Evidence {
        left_ns: known(profile.sequential_ns as f64),
        bandwidth_milli: known(profile.bandwidth * 1000.0),
        cache_milli: known(profile.cache * 1000.0),
        move_ns: known(moves_ns * (1.0 - keeps)),
        loads_per_s: known(profile.loads_per_s).filter(|rate| rate.value > 0),
    };
    (Speedup::new(points).unwrap_or_else(|_| Speedup::new([]).expect("one thread is a curve")), evidence)
}

#[cfg(test)]
mod tests {
    use topology::Machine;

    use super::*;
    use crate::Model;

    fn book(knowledge: Knowledge) -> (Notebook, Model, Domains) {
        let (model, machine) =
            (Model::built_in(), Machine::synthetic("pack:4 [numa] l3:1 core:6").expect("a machine"));
        let domains = Domains::of(&machine);
        let book = Notebook::new(knowledge, model.profiles.iter(), &domains, &model.laws);
        (book, model, domains)
    }

    #[test]
    fn a_full_notebook_has_the_curve_at_the_widths_of_table_i() {
        let (book, model, _) = book(Knowledge::Full);
        for profile in &model.profiles {
            let (curve, evidence) = book.recall(profile, 0.25);
            let curve = curve.expect("a curve");
            for cpus in [2, 3, 6, 12, 24] {
                let table = (profile.curve.speedup(f64::from(cpus)) * 1000.0).round() as u64;
                assert_eq!(curve.milli(cpus), table, "{} on {cpus}", profile.name);
            }
            assert_eq!(evidence.left_ns.map(|left| left.value), Some(profile.sequential_ns / 4));
        }
    }

    #[test]
    fn an_empty_notebook_learns_a_curve_from_two_widths() {
        let (mut book, model, domains) = book(Knowledge::Empty);
        let bt = &model.profiles[0];
        let run = |book: &mut Notebook, cpus: &[(u16, u16)], speed: f64| {
            book.observe_rate(bt, cpus, &domains, 5e9, speed * 5e9 / bt.sequential_ns as f64);
        };
        run(&mut book, &[(0, 1)], 1.0);
        assert_eq!(book.recall(bt, 1.0), (None, Evidence::default()));
        // Two in each of two domains are as fast as twice two in one.
        run(&mut book, &[(0, 2), (1, 2)], 3.6);
        let (curve, evidence) = book.recall(bt, 1.0);
        assert_eq!((curve.expect("a curve").milli(2), evidence.left_ns), (1800, None));
        book.ended(bt);
        let left_s = book.recall(bt, 0.5).1.left_ns.expect("it ended once").value as f64 / 1e9;
        assert!((left_s - 47.0).abs() < 0.1, "{left_s}");
    }

    #[test]
    fn without_a_notebook_nothing_is_learned() {
        let (book, model, _) = book(Knowledge::None);
        assert!(!book.learns() && !book.is_used());
        assert_eq!(book.recall(&model.profiles[0], 0.5), (None, Evidence::default()));
    }
}
