//! Learns how a program's speed grows with its threads, from how many parallel regions it enters a
//! second with teams of each size.
//!
//! A sample is the rate over an interval in which the program had its place to itself (alone, beside
//! others on other CPUs, or in turn with them), all its regions had teams of one size, and there were
//! enough of them. Time in which it stood still does not count. Of each size the latest samples are
//! kept, and their median counts.
//!
//! Regions need not be alike: a program that goes through phases has other rates in each, whatever
//! its team. So a size counts only while its rates are steady (the middle half of them within 20% of
//! the median), and a curve that no program can have (more than a quarter better than in proportion
//! to the threads, [`MOST_GAIN`]) is not believed.
//!
//! The same rates, kept apart by who ran at the same time, tell what a neighbour costs: alone, and beside one
//! other, with teams of one size ([`Rates::neighbour_costs`]).

use std::collections::{BTreeMap, VecDeque};

use plan::Speedup;
use protocol::Brought;
use workload::AppId;

/// Shortest interval of a sample, in time that the program was let run.
const SAMPLE_NS: u64 = 250_000_000;
/// Regions that an interval needs, else the rate is the sampling's and not the program's.
const FEWEST_REGIONS: u64 = 8;
/// Samples of one size that are kept, and that are needed.
const MOST_SAMPLES: usize = 64;
const FEWEST_SAMPLES: usize = 6;
/// The middle half of the rates of one size may be this far apart, in parts of their median.
const STEADY: f64 = 0.2;
/// Caches give a program more than its threads alone would; more than this no longer.
const MOST_GAIN: f64 = 1.25;
/// A curve in use is replaced by one that differs by more than this somewhere: what is learned anew
/// every second must not move programs about.
const WORTH_A_CHANGE: f64 = 0.1;

/// Who ran at the same time as a program, on other CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    Nobody,
    /// What its runs are called.
    One(AppId),
    /// Or nobody knows.
    #[default]
    Several,
}

/// What one neighbour cost a program, in regions a second with teams of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub beside: AppId,
    pub alone_per_s: f64,
    pub together_per_s: f64,
}

/// How a program stood at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// How long it was let run so far.
    pub let_run_ns: u64,
    /// CPUs that nobody else used while it ran; 0: it shared them, or is on its way to others.
    pub own_cpus: u32,
    pub beside: Beside,
    /// Regions that ended so far, by team size.
    pub regions: BTreeMap<u32, u64>,
}

/// The latest rates, in regions a second.
type Samples = VecDeque<f64>;

/// The rates of one program by team size.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    from: Option<Moment>,
    samples: BTreeMap<u32, Samples>,
    /// Those with nobody or one neighbour.
    beside: BTreeMap<(u32, Beside), Samples>,
    /// Those since its memory last moved to other nodes, and the steady rates before that.
    here: BTreeMap<u32, Samples>,
    before: BTreeMap<u32, f64>,
}

impl Rates {
    pub fn sample(&mut self, now: Moment) {
        let alike = |from: &mut Moment| {
            from.own_cpus == now.own_cpus && from.beside == now.beside && now.own_cpus > 0
        };
        let Some(from) = self.from.take_if(alike) else {
            self.from = Some(now);
            return;
        };
        let ended = |(&threads, &count): (&u32, &u64)| {
            let before = from.regions.get(&threads).copied().unwrap_or(0);
            (count > before).then(|| (threads, count - before))
        };
        let ended: Vec<(u32, u64)> = now.regions.iter().filter_map(ended).collect();
        let ran_ns = now.let_run_ns.saturating_sub(from.let_run_ns);
        match ended[..] {
            // It has more threads than CPUs, or had teams of several sizes: that says nothing.
            [(threads, _)] if threads > now.own_cpus => self.from = Some(now),
            [_, _, ..] => self.from = Some(now),
            [(threads, count)] if ran_ns >= SAMPLE_NS && count >= FEWEST_REGIONS => {
                let rate = count as f64 * 1e9 / ran_ns as f64;
                keep(self.samples.entry(threads).or_default(), rate);
                keep(self.here.entry(threads).or_default(), rate);
                if now.beside != Beside::Several {
                    keep(self.beside.entry((threads, now.beside.clone())).or_default(), rate);
                }
                self.from = Some(now);
            }
            _ => self.from = Some(from),
        }
    }

    /// Its memory moves to other nodes.
    pub fn mark_moved(&mut self) {
        let so_far = all_steady(&self.here);
        if !so_far.is_empty() {
            self.before = so_far;
        }
        self.here.clear();
        self.from = None;
    }

    /// How fast it was before its memory moved, and since, with the widest teams that both tell of.
    pub fn move_gain(&self) -> Option<Brought> {
        let milli = |rate: f64| (rate * 1000.0).round() as u64;
        let both = all_steady(&self.here).into_iter().rev().find_map(|(threads, after)| {
            let before = self.before.get(&threads)?;
            Some(Brought { threads, before_milli: milli(*before), after_milli: milli(after) })
        });
        both.filter(|both| both.before_milli > 0)
    }

    /// The steady rate with teams of each size, in regions a second.
    fn steady(&self) -> BTreeMap<u32, f64> {
        all_steady(&self.samples)
    }

    /// What each neighbour cost that it was alone with, as long as it was alone, too, with teams as large.
    pub fn neighbour_costs(&self) -> Vec<Pair> {
        let pair = |((threads, beside), samples): (&(u32, Beside), &Samples)| {
            let Beside::One(name) = beside else { return None };
            let alone_per_s = steady(self.beside.get(&(*threads, Beside::Nobody))?)?;
            Some(Pair { beside: name.clone(), alone_per_s, together_per_s: steady(samples)? })
        };
        self.beside.iter().filter_map(pair).collect()
    }

    /// The curve, if teams of two sizes at least were seen for long enough.
    pub fn speedup(&self) -> Option<Speedup> {
        let rates = self.steady();
        let pairs: Vec<(u32, f64)> = rates.iter().map(|(&threads, &rate)| (threads, rate)).collect();
        let gain = |pair: &[(u32, f64)]| pair[1].1 / pair[0].1 * f64::from(pair[0].0) / f64::from(pair[1].0);
        if pairs.windows(2).any(|pair| gain(pair) > MOST_GAIN) {
            return None;
        }
        Speedup::from_rates(&rates).map(|(curve, _)| curve)
    }
}

fn keep(samples: &mut Samples, rate: f64) {
    if samples.len() == MOST_SAMPLES {
        samples.pop_front();
    }
    samples.push_back(rate);
}

fn all_steady(samples: &BTreeMap<u32, Samples>) -> BTreeMap<u32, f64> {
    samples.iter().filter_map(|(&threads, samples)| Some((threads, steady(samples)?))).collect()
}

/// The median of rates that are enough and near each other.
fn steady(samples: &Samples) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    (sorted.len() >= FEWEST_SAMPLES && at(0.75) - at(0.25) <= STEADY * at(0.5)).then(|| at(0.5))
}

/// Which curve to go by: the one in use, while what was learned since differs little.
pub fn settled(in_use: Option<&Speedup>, learned: Option<Speedup>) -> Option<Speedup> {
    let Some(learned) = learned else { return in_use.cloned() };
    let Some(in_use) = in_use else { return Some(learned) };
    let widest = |curve: &Speedup| BTreeMap::from(curve.clone()).into_keys().next_back().unwrap_or(1);
    let most = widest(&learned).max(widest(in_use));
    let differs = |threads: u32| {
        let (before, now) = (in_use.milli(threads) as f64, learned.milli(threads) as f64);
        (now - before).abs() > WORTH_A_CHANGE * before
    };
    Some(if (1..=most).any(differs) { learned } else { in_use.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Regions a second, by the look.
    type Rate = fn(u32) -> u64;

    /// A program that enters `rate(look)` regions a second, in order with these team sizes for so
    /// many looks, 100 ms of running apart.
    fn after(parts: &[(u32, u32, Rate)]) -> Rates {
        let (mut rates, mut now) = (Rates::default(), Moment::default());
        go_on(&mut rates, &mut now, parts);
        rates
    }

    fn go_on(rates: &mut Rates, now: &mut Moment, parts: &[(u32, u32, Rate)]) {
        for &(threads, samples, rate) in parts {
            now.own_cpus = threads;
            for sample in 0..samples {
                rates.sample(now.clone());
                now.let_run_ns += 100 * MS;
                *now.regions.entry(threads).or_default() += rate(sample) / 10;
            }
            rates.sample(now.clone());
        }
    }

    #[test]
    fn a_memory_move_is_reported_once_rates_are_steady() {
        let (mut rates, mut now) = (Rates::default(), Moment::default());
        go_on(&mut rates, &mut now, &[(1, 40, |_| 500), (2, 40, |_| 1000)]);
        assert_eq!(rates.move_gain(), None);
        rates.mark_moved();
        // While pages are on their way nothing counts, and what was before stays known.
        go_on(&mut rates, &mut now, &[(2, 4, |_| 400)]);
        rates.mark_moved();
        go_on(&mut rates, &mut now, &[(2, 5, |_| 1300)]);
        assert_eq!(rates.move_gain(), None);
        go_on(&mut rates, &mut now, &[(2, 40, |_| 1300), (4, 40, |_| 9000)]);
        // With teams of four it was not seen before.
        let brought = Brought { threads: 2, before_milli: 1_000_000, after_milli: 1_300_000 };
        assert_eq!(rates.move_gain(), Some(brought));
        rates.mark_moved();
        go_on(&mut rates, &mut now, &[(2, 40, |_| 650)]);
        let brought = Brought { before_milli: 1_300_000, after_milli: 650_000, ..brought };
        assert_eq!(rates.move_gain(), Some(brought));
    }

    #[test]
    fn rates_with_one_and_two_threads_are_a_curve() {
        let speedup = after(&[(1, 40, |_| 1000), (2, 40, |_| 1800)]).speedup().unwrap();
        assert_eq!((speedup.milli(1), speedup.milli(2)), (1000, 1800));
    }

    #[test]
    fn one_team_size_or_few_samples_make_no_curve() {
        assert_eq!(after(&[(2, 400, |_| 1000)]).speedup(), None);
        assert_eq!(after(&[(2, 400, |_| 1000), (1, 5, |_| 600)]).speedup(), None);
    }

    #[test]
    fn without_one_thread_the_curve_begins_by_amdahls_law() {
        // Nine tenths of the time in parallel: 1 ÷ (0.1 + 0.9 ÷ threads).
        let speedup = after(&[(2, 40, |_| 1820), (4, 40, |_| 3080)]).speedup().unwrap();
        assert!(speedup.milli(2).abs_diff(1818) <= 20, "{speedup:?}");
        assert!(speedup.milli(4).abs_diff(3077) <= 30, "{speedup:?}");
        // Slower with more threads: nothing is parallel, as far as anybody can tell.
        let falling = after(&[(2, 40, |_| 1000), (4, 40, |_| 800)]).speedup().unwrap();
        assert_eq!((falling.milli(2), falling.milli(4)), (1000, 800));
    }

    #[test]
    fn rates_that_go_up_and_down_are_not_believed() {
        let phases = |sample: u32| if (sample / 6).is_multiple_of(2) { 1000 } else { 3000 };
        assert_eq!(after(&[(1, 60, |_| 1000), (2, 60, phases)]).speedup(), None);
    }

    #[test]
    fn a_few_odd_samples_among_many_change_nothing() {
        let speedup =
            after(&[(1, 60, |_| 1000), (2, 60, |sample| if sample % 20 == 3 { 300 } else { 1800 })]);
        assert_eq!(speedup.speedup().unwrap().milli(2), 1800);
    }

    #[test]
    fn other_work_with_more_threads_makes_no_curve() {
        assert_eq!(after(&[(1, 40, |_| 1000), (2, 40, |_| 2600)]).speedup(), None);
        assert!(after(&[(1, 40, |_| 1000), (2, 40, |_| 2400)]).speedup().is_some());
    }

    #[test]
    fn time_in_which_it_shared_its_cpus_or_had_too_few_is_left_out() {
        let mut rates = Rates::default();
        for own_cpus in [0, 1] {
            for sample in 0..100 {
                let regions = BTreeMap::from([(2, sample * 100)]);
                rates.sample(Moment {
                    let_run_ns: sample * 100 * MS,
                    own_cpus,
                    regions,
                    ..Moment::default()
                });
            }
        }
        assert!(rates.samples.is_empty(), "{rates:?}");
    }

    #[test]
    fn rates_alone_and_beside_one_other_make_a_pair() {
        let (mut rates, mut now) = (Rates::default(), Moment { own_cpus: 2, ..Moment::default() });
        let mut run = |threads: u32, beside: Beside, per_s: u64| {
            now.beside = beside;
            for _ in 0..40 {
                rates.sample(now.clone());
                now.let_run_ns += 100 * MS;
                *now.regions.entry(threads).or_default() += per_s / 10;
            }
            rates.sample(now.clone());
            rates.neighbour_costs()
        };
        let app = |name: &str| AppId::new(name).unwrap();
        let one = |name: &str| Beside::One(app(name));
        assert_eq!(run(2, Beside::Nobody, 1800), []);
        // Beside `b` with a narrower team, of which nobody knows what it does alone; and beside several.
        assert_eq!(run(1, one("b"), 900), []);
        assert_eq!(run(2, Beside::Several, 500), []);
        let pair =
            |beside: &str, together_per_s| Pair { beside: app(beside), alone_per_s: 1800.0, together_per_s };
        assert_eq!(run(2, one("b"), 1500), [pair("b", 1500.0)]);
        assert_eq!(run(2, one("c"), 1200), [pair("b", 1500.0), pair("c", 1200.0)]);
    }

    #[test]
    fn a_curve_in_use_stays_until_another_differs_by_a_tenth() {
        let curve = |text: &str| text.parse::<Speedup>().unwrap();
        let in_use = curve("2:1800");
        assert_eq!(settled(None, None), None);
        assert_eq!(settled(Some(&in_use), None), Some(in_use.clone()));
        assert_eq!(settled(None, Some(in_use.clone())), Some(in_use.clone()));
        assert_eq!(settled(Some(&in_use), Some(curve("2:1700"))), Some(in_use.clone()));
        assert_eq!(settled(Some(&in_use), Some(curve("2:1500"))), Some(curve("2:1500")));
        // Another size is news only where the old curve had it otherwise.
        assert_eq!(settled(Some(&in_use), Some(curve("2:1800,4:3400"))), Some(curve("2:1800,4:3400")));
    }
}
