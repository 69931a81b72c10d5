//! Slowdown curves: a program beside DistGen at several footprints, and DistGen beside the program (after
//! Weidendorfer and Breitbart: Detailed Characterization of HPC Applications for Co-Scheduling, COSH 2016,
//! section 4).
//!
//! In every round each footprint has a run of the program alone and one beside the probe, one right after
//! the other, and the probe's bandwidth is taken alone and beside the program. What is compared lies within
//! seconds, so a machine that changes its mind slowly changes nothing. Which of the two comes first
//! alternates from round to round.
//!
//! Beside each other means behind one cache. Whether they were is felt ([`Latency`]) before they run and after, and
//! for a while a round waits for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use reuse::LINE_BYTES;
use serde::{Deserialize, Serialize};
use topology::Machine;

use crate::classes::Class;
use crate::distgen::{DistGen, Mixture, Order, Settings, StartError};
use crate::latency::Latency;
use crate::spread::Spread;
use crate::timed::{Fault, Place, once};

/// How long the probe's bandwidth is taken without the program.
const PROBE_ALONE: Duration = Duration::from_millis(300);
/// Losses below are none: what neighbours cost by the clock frequency alone, and noise.
pub const LOSS: f64 = 0.05;
/// A probe of this part of the last-level cache or less leaves that cache alone.
const PRIVATE_PART: u64 = 16;
/// How often it is looked whether program and probe share a cache, while they do not.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// So many times as much as it takes from the probe loses a program that lives from the last-level cache. Two that need
/// the memory's bandwidth lose alike, so that one would lie where such pairs lie; two is also the factor by which a level
/// of caches lets out more than it takes in where it has reuse (Haritatos and others, COSH 2016).
pub const AT_LEAST: f64 = 2.0;
/// So many times as fast is a probe within the last-level cache as one beyond it, at least, where that cache is there
/// for its programs.
pub const FELT: f64 = 1.25;

/// The last-level cache of the first CPU.
pub fn llc_bytes(machine: &Machine) -> Option<u64> {
    machine.last_level_cache_of(machine.all_cpus().lowest()?)?.size_bytes
}

/// A probe that lives in private caches: half of a second-level cache, and little enough of the last one.
pub fn private_bytes(machine: &Machine) -> Option<u64> {
    let first = machine.all_cpus().lowest()?;
    let last = machine.last_level_cache_of(first)?;
    let private =
        machine.caches.iter().filter(|cache| cache.cpus.contains(first) && cache.level < last.level);
    let half =
        private.max_by_key(|cache| cache.level).and_then(|cache| cache.size_bytes).map(|bytes| bytes / 2);
    let most = last.size_bytes? / PRIVATE_PART;
    Some(half.map_or(most, |half| half.min(most)))
}

/// The footprints of the probe that a [`verdict`] takes.
pub fn class_footprints(machine: &Machine) -> Option<[u64; 3]> {
    Some(around(private_bytes(machine)?, llc_bytes(machine)?))
}

/// In private caches, within the last-level cache, and beyond.
fn around(private_bytes: u64, llc_bytes: u64) -> [u64; 3] {
    [private_bytes, llc_bytes / 8 * 7, 2 * llc_bytes]
}

/// Where a probe of so many bytes lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In private caches: the shared ones do nothing to it.
    Private,
    /// In the last-level cache, most of which it fills.
    Within,
    /// In memory.
    Beyond,
}

impl Reach {
    /// None in between: there it says little about what a program lives from. What is smaller than most of the
    /// last-level cache fits into it beside many a program, and neither of them takes anything from the other.
    pub fn of(footprint_bytes: u64, llc_bytes: u64) -> Option<Reach> {
        match footprint_bytes {
            bytes if PRIVATE_PART * bytes <= llc_bytes => Some(Reach::Private),
            bytes if 4 * bytes >= 3 * llc_bytes && 8 * bytes <= 7 * llc_bytes => Some(Reach::Within),
            bytes if bytes >= llc_bytes => Some(Reach::Beyond),
            _ => None,
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the program, for error messages.
    pub name: String,
    /// The program, which is looked for in `PATH` if it has no slash, and its arguments.
    pub command: Vec<OsString>,
    /// `OMP_NUM_THREADS` of the program.
    pub threads: u32,
    /// Of the program.
    pub cpus: Vec<u32>,
    /// Of the probe, a thread each.
    pub probe_cpus: Vec<u32>,
    /// In which the probe reads its lines.
    pub order: Order,
    /// A run of the program that takes longer has failed.
    pub longest: Duration,
}

/// One comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Of all threads of the probe together.
    pub footprint_bytes: u64,
    /// Wall-clock time of the program without the probe; in a round made of a burst, of one parallel region.
    pub alone_s: f64,
    /// The same beside the probe.
    pub beside_s: f64,
    /// Lines that the probe read, as bytes a second of all its threads.
    pub probe_alone_bytes_per_s: f64,
    /// The same while the program ran.
    pub probe_beside_bytes_per_s: f64,
    /// Between the CPUs of the program and those of the probe, before they ran or after, whichever was longer. None
    /// where it is not known.
    pub latency: Option<Latency>,
}

impl Round {
    /// Whether program and probe shared no cache, as far as is known: then neither can have taken it from the other.
    pub fn is_apart(&self) -> bool {
        self.latency.is_some_and(|latency| latency.is_apart())
    }
}

/// With a machine whose CPUs share a cache at times only.
pub struct Patience<'a> {
    /// How long to wait while program and probe share none; what was waited is taken off.
    pub left: Duration,
    /// Told when a wait begins.
    pub waits: &'a dyn Fn(Latency),
}

/// Why a round was not measured to its end.
#[derive(Debug, thiserror::Error)]
pub enum SlowdownError {
    /// Somebody wanted to stop.
    #[error("interrupted")]
    Stopped,
    /// A run of the program could not be started, failed or took too long; why, with the program's name.
    #[error("{0}")]
    Program(String),
    /// The probe could not be started.
    #[error(transparent)]
    Probe(#[from] StartError),
}

impl From<Fault> for SlowdownError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Stopped => SlowdownError::Stopped,
            Fault::Failed(why) => SlowdownError::Program(why),
        }
    }
}

/// Measures one round at a footprint. While program and probe share no cache it waits, as long as `patience` lasts;
/// then it goes on all the same.
pub fn round(
    plan: &Plan,
    footprint_bytes: u64,
    beside_first: bool,
    patience: &mut Patience<'_>,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Round, SlowdownError> {
    let place = Place { cpus: &plan.cpus, threads: plan.threads, longest: plan.longest };
    let run = || once(&plan.name, &plan.command, place, stopped);
    let between = || Latency::between(&plan.cpus, &plan.probe_cpus);
    // First, so that what is compared lies close together.
    together(&between, patience, stopped)?;
    let alone_before = if beside_first { None } else { Some(run()?) };
    let before = between();
    let probe_threads = plan.probe_cpus.len() as u32;
    let lines = (footprint_bytes / u64::from(probe_threads.max(1)) / LINE_BYTES).max(1);
    let mut probe = DistGen::start(&Settings {
        order: plan.order,
        threads: probe_threads,
        cpus: plan.probe_cpus.clone(),
        ..Settings::new(Mixture::single(lines))
    })?;
    // Its first passes bring the memory into the caches.
    std::thread::sleep(PROBE_ALONE / 3);
    probe.interval();
    std::thread::sleep(PROBE_ALONE);
    let probe_alone_bytes_per_s = probe.interval().bytes_per_s();
    let beside_s = run()?;
    let probe_beside_bytes_per_s = probe.interval().bytes_per_s();
    drop(probe);
    let latency =
        before.into_iter().chain(between()).max_by(|a, b| a.core_to_core_ns.total_cmp(&b.core_to_core_ns));
    Ok(Round {
        footprint_bytes,
        alone_s: alone_before.map_or_else(run, Ok)?,
        beside_s,
        probe_alone_bytes_per_s,
        probe_beside_bytes_per_s,
        latency,
    })
}

/// Waits until program and probe share a cache, or patience ends.
fn together(
    between: &dyn Fn() -> Option<Latency>,
    patience: &mut Patience<'_>,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(), SlowdownError> {
    let mut reported = false;
    loop {
        let Some(apart) = between().filter(|latency| latency.is_apart() && !patience.left.is_zero()) else {
            return Ok(());
        };
        if !std::mem::replace(&mut reported, true) {
            (patience.waits)(apart);
        }
        if stopped() {
            return Err(SlowdownError::Stopped);
        }
        let pause = POLL_INTERVAL.min(patience.left);
        std::thread::sleep(pause);
        patience.left -= pause;
    }
}

/// What a footprint of the probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Of all threads of the probe together.
    pub footprint_bytes: u64,
    /// Of the program beside the probe: time beside over time alone.
    pub suffers: Spread,
    /// Of the probe beside the program: bandwidth alone over bandwidth beside.
    pub causes: Spread,
}

/// Points by rising footprint, of the rounds in which program and probe shared a cache; where they never did, of all:
/// then it is the memory that they shared.
pub fn curve(rounds: &[Round]) -> Vec<Point> {
    let never = rounds.iter().all(Round::is_apart);
    let counted: Vec<&Round> = rounds.iter().filter(|round| never || !round.is_apart()).collect();
    let mut footprints: Vec<u64> = counted.iter().map(|round| round.footprint_bytes).collect();
    footprints.sort_unstable();
    footprints.dedup();
    let point = |footprint_bytes| {
        let own = || counted.iter().filter(move |round| round.footprint_bytes == footprint_bytes);
        Some(Point {
            footprint_bytes,
            suffers: Spread::of(own().map(|round| round.beside_s / round.alone_s))?,
            causes: Spread::of(
                own().map(|round| round.probe_alone_bytes_per_s / round.probe_beside_bytes_per_s),
            )?,
        })
    };
    footprints.into_iter().filter_map(point).collect()
}

/// The class that slowdowns speak for, with the three losses that decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What the medians of the losses speak for.
    pub class: Class,
    /// What the program loses beside a probe that lives within the last-level cache.
    pub within: f64,
    /// What it loses beside one that fills this cache or more.
    pub beyond: f64,
    /// What a probe that lives within the last-level cache loses beside the program.
    pub takes: f64,
    /// Whether the class is the same at both ends of the intervals.
    pub sure: bool,
}

/// Why there is no class.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoVerdict {
    /// A [`Reach`] has no rounds.
    #[error(
        "no class: it takes probes of a sixteenth of the last-level cache or less, of three quarters to seven eighths of it, and of all of it or more"
    )]
    Rounds,
    /// Program and probe shared no cache in some rounds, and the others are too few.
    #[error(
        "no class: program and probe shared no last-level cache in {apart} of {all} comparisons, which leaves too few (a line took {:.0} ns from one CPU to the other, from memory {:.0}): name CPUs behind one cache; where a virtual machine's host moves them, try again later or with more patience",
        .last.core_to_core_ns,
        .last.memory_ns
    )]
    Apart {
        /// Rounds in which they shared none.
        apart: usize,
        /// All rounds that were given, at every footprint.
        all: usize,
        /// Of the last round in which they shared none.
        last: Latency,
    },
    /// Gigabytes a second of the probe alone.
    #[error(
        "no class: the last-level cache that this machine tells of cannot be felt (a probe within it alone has {within:.1} GB/s, one beyond it {beyond:.1}): others may use most of it"
    )]
    Cache {
        /// The median with probes within the last-level cache ([`Reach::Within`]).
        within: f64,
        /// The median with probes that fill this cache or more ([`Reach::Beyond`]).
        beyond: f64,
    },
}

/// Of the program and a probe that nearly fills the last-level cache, the one that loses lives from that cache, and
/// who takes it streams through it. Two that need the memory's bandwidth lose alike; so who lives from the cache loses
/// [`AT_LEAST`] as much as it takes. Who loses less within, but something beyond, or takes it, streams; and who does
/// none of these keeps to itself.
///
/// What the program loses beside a probe within private caches (of a sixteenth of the last one or less) is
/// not the shared ones' doing, so that losses are over that, round by round. There is no class without such rounds
/// (noise and the clock frequency would pass for losses), and without rounds on both sides ([`Reach`]).
///
/// A machine may tell of a cache that it does not have: a virtual one of the whole of its host's, of which others use
/// most. What is within that cache and what is beyond is one then, and the probe tells: alone it is as fast in both.
/// And it may tell of one that its CPUs share when they do not: rounds in which program and probe were apart are left
/// out, except those in private caches.
pub fn verdict(rounds: &[Round], llc_bytes: u64) -> Result<Verdict, NoVerdict> {
    let at = |reach: Reach| {
        rounds.iter().filter(move |round| Reach::of(round.footprint_bytes, llc_bytes) == Some(reach))
    };
    let alone = |reach: Reach| Spread::of(at(reach).map(|round| round.probe_alone_bytes_per_s));
    let (within, beyond) = alone(Reach::Within).zip(alone(Reach::Beyond)).ok_or(NoVerdict::Rounds)?;
    at(Reach::Private).next().ok_or(NoVerdict::Rounds)?;
    if within.median < FELT * beyond.median {
        return Err(NoVerdict::Cache { within: within.median / 1e9, beyond: beyond.median / 1e9 });
    }
    losses(rounds, llc_bytes).ok_or_else(|| {
        let apart: Vec<&Round> = rounds.iter().filter(|round| round.is_apart()).collect();
        match apart.last().and_then(|round| round.latency) {
            Some(last) => NoVerdict::Apart { apart: apart.len(), all: rounds.len(), last },
            None => NoVerdict::Rounds,
        }
    })
}

fn losses(rounds: &[Round], llc_bytes: u64) -> Option<Verdict> {
    // The k-th round at each footprint is one of the k-th round of all. None: the two were apart.
    let mut suffers: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
    for round in rounds {
        let is_evidence =
            Reach::of(round.footprint_bytes, llc_bytes) == Some(Reach::Private) || !round.is_apart();
        let ratio = is_evidence.then_some(round.beside_s / round.alone_s);
        suffers.entry(round.footprint_bytes).or_default().push(ratio);
    }
    let (_, private) = suffers.first_key_value()?;
    let loses = |reach: Reach| {
        let own = || suffers.iter().filter(|(bytes, _)| Reach::of(**bytes, llc_bytes) == Some(reach));
        // One without its other half says nothing.
        Spread::of(private.iter().enumerate().filter_map(|(k, private)| {
            let ratios: Vec<f64> = own().filter_map(|(_, ratios)| *ratios.get(k)?).collect();
            let private = (*private)?;
            (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64 / private - 1.0)
        }))
    };
    let (within, beyond) = (loses(Reach::Within)?, loses(Reach::Beyond)?);
    let own = rounds.iter().filter(|round| {
        Reach::of(round.footprint_bytes, llc_bytes) == Some(Reach::Within) && !round.is_apart()
    });
    let takes =
        Spread::of(own.map(|round| round.probe_alone_bytes_per_s / round.probe_beside_bytes_per_s - 1.0))?;
    let class = decide(within.median, beyond.median, takes.median);
    let ends = |spread: &Spread| [spread.low, spread.high];
    let corners = ends(&within).into_iter().flat_map(|within| {
        let takes = &takes;
        ends(&beyond).into_iter().flat_map(move |beyond| ends(takes).map(|takes| (within, beyond, takes)))
    });
    let sure = corners.into_iter().all(|(within, beyond, takes)| decide(within, beyond, takes) == class);
    Some(Verdict { class, within: within.median, beyond: beyond.median, takes: takes.median, sure })
}

fn decide(within: f64, beyond: f64, takes: f64) -> Class {
    if within < LOSS && beyond < LOSS && takes < LOSS {
        Class::N
    } else if within >= LOSS && within >= AT_LEAST * takes {
        Class::C
    } else {
        Class::S
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LLC: u64 = 32 << 20;

    /// Rounds at a footprint with these losses of the program and of the probe, and some more and less.
    fn rounds(footprint_bytes: u64, suffers: f64, causes: f64, width: f64) -> impl Iterator<Item = Round> {
        // In a cache that is there.
        let probe = if footprint_bytes < LLC { 3e9 } else { 1e9 };
        (0..15).map(move |k| {
            let by = width * f64::from(k - 7) / 7.0;
            Round {
                footprint_bytes,
                alone_s: 2.0,
                beside_s: 2.0 * (suffers + by),
                probe_alone_bytes_per_s: probe * (causes + by),
                probe_beside_bytes_per_s: probe,
                latency: None,
            }
        })
    }

    const WITHIN: u64 = LLC / 8 * 7;

    fn class(losses: [(f64, f64); 3], width: f64) -> (Class, bool) {
        let footprints = [LLC / 64, WITHIN, 2 * LLC];
        let rounds: Vec<Round> =
            footprints.iter().zip(losses).flat_map(|(&bytes, (s, c))| rounds(bytes, s, c, width)).collect();
        let verdict = verdict(&rounds, LLC).unwrap();
        (verdict.class, verdict.sure)
    }

    #[test]
    fn losers_are_cache_bound_and_aggressors_stream() {
        assert_eq!(class([(1.0, 1.0), (1.01, 1.02), (1.03, 1.01)], 0.005), (Class::N, true));
        assert_eq!(class([(1.0, 1.0), (1.10, 1.02), (1.60, 1.05)], 0.005), (Class::C, true));
        assert_eq!(class([(1.0, 1.0), (1.10, 1.40), (1.15, 1.20)], 0.005), (Class::S, true));
        // Nothing is lost until the probe leaves the cache.
        assert_eq!(class([(1.0, 1.0), (1.01, 1.04), (1.40, 1.30)], 0.005), (Class::S, true));
        assert_eq!(class([(1.0, 1.0), (1.02, 1.12), (1.03, 1.01)], 0.005), (Class::S, true));
        // Twice what it takes, whatever it loses beyond; as much, as two streams do; and less.
        assert_eq!(class([(1.0, 1.0), (1.30, 1.13), (1.08, 1.02)], 0.005), (Class::C, true));
        assert_eq!(class([(1.0, 1.0), (1.25, 1.22), (1.60, 1.40)], 0.005), (Class::S, true));
        assert_eq!(class([(1.0, 1.0), (1.22, 1.30), (1.60, 1.40)], 0.005), (Class::S, true));
        assert_eq!(class([(1.0, 1.0), (1.20, 1.11), (1.60, 1.40)], 0.02), (Class::S, false));
        // The probe in private caches is beside the point.
        assert_eq!(class([(1.0, 1.5), (1.0, 1.0), (1.0, 1.0)], 0.005), (Class::N, true));
        // What noise could turn is told.
        assert_eq!(class([(1.0, 1.0), (1.0, 1.0), (1.0, 1.04)], 0.03), (Class::N, true));
        assert_eq!(class([(1.0, 1.0), (1.0, 1.04), (1.0, 1.0)], 0.03), (Class::N, false));
    }

    #[test]
    fn a_loss_beside_any_probe_is_not_due_to_its_footprint() {
        assert_eq!(class([(1.20, 1.0), (1.21, 1.02), (1.23, 1.01)], 0.005), (Class::N, true));
        assert_eq!(class([(1.20, 1.0), (1.50, 1.02), (1.30, 1.01)], 0.005), (Class::C, true));
        // Round by round: what changes from one to the next is none of it.
        assert_eq!(class([(1.20, 1.0), (1.20, 1.0), (1.20, 1.0)], 0.15), (Class::N, false));
        let same: Vec<Round> = [LLC / 64, WITHIN, 2 * LLC]
            .into_iter()
            .flat_map(|bytes| rounds(bytes, 1.2, 1.0, 0.0).zip(1..))
            .map(|(round, k)| Round { beside_s: round.beside_s * f64::from(k), ..round })
            .collect();
        let found = verdict(&same, LLC).unwrap();
        assert_eq!((found.class, found.sure, found.within, found.beyond), (Class::N, true, 0.0, 0.0));
    }

    #[test]
    fn a_verdict_needs_rounds_in_and_around_the_caches() {
        let at = |footprints: &[u64]| -> Vec<Round> {
            footprints.iter().flat_map(|&bytes| rounds(bytes, 1.0, 1.0, 0.0)).collect()
        };
        let none = Err(NoVerdict::Rounds);
        assert_eq!(verdict(&[], LLC), none);
        assert_eq!(verdict(&at(&[LLC / 64, 2 * LLC]), LLC), none);
        assert_eq!(verdict(&at(&[WITHIN]), LLC), none);
        assert_eq!(verdict(&at(&[LLC / 64, WITHIN]), LLC), none);
        assert_eq!(verdict(&at(&[LLC / 8, WITHIN, LLC]), LLC), none);
        // One that would fit beside many a program.
        assert_eq!(verdict(&at(&[LLC / 64, LLC / 2, LLC]), LLC), none);
        assert!(verdict(&at(&[LLC / 16, WITHIN, LLC]), LLC).is_ok());
        // A round that was cut short counts with what it has to be compared with.
        let mut cut = at(&[LLC / 16, WITHIN, LLC]);
        cut.remove(0);
        cut.extend(rounds(WITHIN, 9.0, 1.0, 0.0));
        assert_eq!(verdict(&cut, LLC).map(|found| (found.class, found.within)), Ok((Class::N, 0.0)));
    }

    const TOGETHER: Latency = Latency { core_to_core_ns: 40.0, memory_ns: 110.0 };
    const APART: Latency = Latency { core_to_core_ns: 190.0, memory_ns: 110.0 };

    #[test]
    fn rounds_without_a_shared_cache_count_only_in_private_caches() {
        let kept = |footprint_bytes, suffers, apart: &dyn Fn(usize) -> bool| -> Vec<Round> {
            let all = rounds(footprint_bytes, suffers, 1.0, 0.0).enumerate();
            let known = all.map(|(k, round)| {
                let suffers = if apart(k) { 1.0 } else { suffers };
                let latency = Some(if apart(k) { APART } else { TOGETHER });
                Round { beside_s: suffers * round.alone_s, latency, ..round }
            });
            known.collect()
        };
        let with = |private: &dyn Fn(usize) -> bool, others: &dyn Fn(usize) -> bool| {
            [kept(LLC / 64, 1.0, private), kept(WITHIN, 1.3, others), kept(2 * LLC, 1.2, others)].concat()
        };
        let mixed = with(&|k| k % 2 == 0, &|k| k > 3);
        let found = verdict(&mixed, LLC).unwrap();
        assert_eq!((found.class, found.sure), (Class::C, true), "{found:?}");
        assert!((found.within - 0.3).abs() < 1e-9 && (found.beyond - 0.2).abs() < 1e-9, "{found:?}");
        let points: Vec<_> = curve(&mixed).iter().map(|point| point.suffers.samples).collect();
        assert_eq!(points, [7, 4, 4]);
        // Never together: no class, and a curve of what else they share.
        let never = with(&|_| true, &|_| true);
        let why = verdict(&never, LLC).unwrap_err();
        assert_eq!(why, NoVerdict::Apart { apart: 45, all: 45, last: APART });
        assert!(
            why.to_string().contains("in 45 of 45 comparisons") && why.to_string().contains("190 ns"),
            "{why}"
        );
        assert_eq!(curve(&never).len(), 3);
    }

    #[test]
    fn no_verdict_where_a_probe_beyond_the_cache_is_as_fast() {
        let with = |beyond: f64| -> Vec<Round> {
            let own = [LLC / 64, WITHIN, 2 * LLC].into_iter().flat_map(|bytes| rounds(bytes, 1.3, 1.0, 0.0));
            own.map(|round| match round.footprint_bytes {
                bytes if bytes >= LLC => Round { probe_alone_bytes_per_s: beyond, ..round },
                _ => round,
            })
            .collect()
        };
        assert!(verdict(&with(3e9 / FELT), LLC).is_ok());
        assert_eq!(verdict(&with(2.5e9), LLC), Err(NoVerdict::Cache { within: 3.0, beyond: 2.5 }));
        assert!(verdict(&with(2.5e9), LLC).unwrap_err().to_string().contains("cannot be felt"));
    }

    #[test]
    fn a_round_waits_for_a_shared_cache_while_patience_lasts() {
        let waited = |apart: u32, left: Duration, stopped: &(dyn Fn() -> bool + Sync)| {
            let (probes, reported) = (Cell::new(0), Cell::new(0));
            let between = || {
                probes.set(probes.get() + 1);
                Some(if probes.get() <= apart { APART } else { TOGETHER })
            };
            let waits = |latency| {
                assert_eq!(latency, APART);
                reported.set(reported.get() + 1);
            };
            let mut patience = Patience { left, waits: &waits };
            let ended = together(&between, &mut patience, stopped).is_ok();
            (ended, probes.get(), reported.get(), patience.left)
        };
        let never = || false;
        assert_eq!(waited(0, POLL_INTERVAL, &never), (true, 1, 0, POLL_INTERVAL));
        assert_eq!(waited(2, 3 * POLL_INTERVAL, &never), (true, 3, 1, POLL_INTERVAL));
        assert_eq!(waited(9, POLL_INTERVAL * 3 / 2, &never), (true, 3, 1, Duration::ZERO));
        assert_eq!(waited(9, Duration::ZERO, &never), (true, 1, 0, Duration::ZERO));
        assert_eq!(waited(9, POLL_INTERVAL, &|| true), (false, 1, 1, POLL_INTERVAL));
        let mut patience = Patience { left: POLL_INTERVAL, waits: &|_| unreachable!("nobody can tell") };
        assert!(together(&|| None, &mut patience, &never).is_ok());
    }

    /// What `experiments/slowdown` recorded, with the class of each program's arithmetic.
    fn recorded() -> Vec<(String, Option<Class>, u64, Vec<Round>)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/slowdown/raw");
        let within = |folder: &std::path::Path| -> Vec<std::path::PathBuf> {
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        // A folder a machine.
        let files = within(folder.as_ref()).into_iter().flat_map(|machine| within(&machine));
        let read = |path: std::path::PathBuf| {
            let text = std::fs::read_to_string(&path).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let part = |name: &str| value[name].clone();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let llc = part("llc_bytes").as_u64().unwrap();
            let arithmetic = serde_json::from_value(part("arithmetic")).unwrap();
            (name, arithmetic, llc, serde_json::from_value(part("rounds")).unwrap())
        };
        files.map(read).collect()
    }

    #[test]
    fn recorded_programs_have_the_class_of_their_arithmetic() {
        let mut placed = Vec::new();
        for (name, arithmetic, llc, rounds) in recorded() {
            let Some(arithmetic) = arithmetic else { continue };
            let private = rounds.iter().map(|round| round.footprint_bytes).min().unwrap();
            let footprints = around(private, llc);
            let at = |footprints: &[u64], from: usize, count: usize| -> Vec<Round> {
                let of = |bytes: &u64| {
                    let own = rounds.iter().filter(|round| round.footprint_bytes == *bytes).copied();
                    own.skip(from).take(count).collect::<Vec<_>>()
                };
                footprints.iter().flat_map(of).collect()
            };
            let found = match verdict(&at(&footprints, 0, usize::MAX), llc) {
                // A cache that others use, or a record without a probe that nearly fills it.
                Err(NoVerdict::Cache { .. } | NoVerdict::Rounds) => continue,
                found => found.unwrap(),
            };
            assert_eq!(found.class, arithmetic, "{name}: {found:?}");
            // As `coplace profile` measures it: of five rounds it may not be sure, but not sure of another.
            let count = rounds.iter().filter(|round| round.footprint_bytes == private).count();
            for from in (0..count).step_by(5) {
                let Ok(five) = verdict(&at(&footprints, from, 5), llc) else { continue };
                assert!(five.class == arithmetic || !five.sure, "{name} from round {from}: {five:?}");
            }
            let without = verdict(&at(&footprints[1..], 0, usize::MAX), llc);
            assert_eq!(without, Err(NoVerdict::Rounds), "{name}");
            placed.push(arithmetic);
        }
        for class in [Class::N, Class::C, Class::S] {
            assert!(placed.contains(&class), "{placed:?}");
        }
    }

    #[test]
    fn the_private_probe_is_small_beside_the_last_level_cache() {
        let with = |l2: &str, l3: &str| {
            let machine = Machine::synthetic(&format!("pack:1 l3:1({l3}) l2:2({l2}) core:1 pu:1")).unwrap();
            class_footprints(&machine)
        };
        const MIB: u64 = 1 << 20;
        assert_eq!(with("size=1MB", "size=32MB"), Some([MIB / 2, 28 * MIB, 64 * MIB]));
        // Not half of an L2 that is large beside the last level.
        assert_eq!(with("size=1MB", "size=4MB"), Some([MIB / 4, 7 * MIB / 2, 8 * MIB]));
        assert_eq!(class_footprints(&Machine::synthetic("pack:1 core:2").unwrap()), None);
    }

    #[test]
    fn a_curve_is_medians_of_the_rounds_at_each_footprint() {
        let round = |footprint_bytes, beside_s, probe_beside| Round {
            footprint_bytes,
            alone_s: 2.0,
            beside_s,
            probe_alone_bytes_per_s: 10e9,
            probe_beside_bytes_per_s: probe_beside,
            latency: None,
        };
        let rounds = [round(64, 3.0, 5e9), round(32, 2.0, 10e9), round(64, 4.0, 10e9), round(64, 5.0, 4e9)];
        let curve = curve(&rounds);
        let found: Vec<_> =
            curve.iter().map(|p| (p.footprint_bytes, p.suffers.median, p.causes.median)).collect();
        assert_eq!(found, [(32, 1.0, 1.0), (64, 2.0, 2.0)]);
    }

    #[test]
    fn a_round_runs_the_program_alone_and_beside_the_probe() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus: Vec<u32> = (0..1024).filter(|&cpu| allowed.is_set(cpu)).map(|cpu| cpu as u32).collect();
        let plan = Plan {
            name: "sleep".into(),
            command: vec!["sleep".into(), "0.2".into()],
            threads: 1,
            probe_cpus: vec![*cpus.last().unwrap()],
            cpus,
            order: Order::Stream,
            longest: Duration::from_secs(20),
        };
        let mut none =
            Patience { left: Duration::ZERO, waits: &|_| unreachable!("there is no time to wait") };
        let found = round(&plan, 1 << 20, true, &mut none, &|| false).unwrap();
        assert!((0.2..5.0).contains(&found.alone_s) && (0.2..5.0).contains(&found.beside_s), "{found:?}");
        assert!(found.probe_alone_bytes_per_s > 1e8 && found.probe_beside_bytes_per_s > 1e8, "{found:?}");
        assert!(matches!(round(&plan, 1 << 20, false, &mut none, &|| true), Err(SlowdownError::Stopped)));
        let wrong = Plan { command: vec!["false".into()], ..plan };
        let error = round(&wrong, 1 << 20, false, &mut none, &|| false).unwrap_err().to_string();
        assert!(error.contains("exit status 1"), "{error}");
    }
}
