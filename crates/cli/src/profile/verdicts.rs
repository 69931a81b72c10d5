//! The classes that a program's samples speak for, side by side.

use std::collections::{BTreeMap, BTreeSet};

use evidence::{Kind, Sample};
use interference::profile::Class;
use probe::classes::{Flows, QUIET_BYTES_PER_S};
use probe::online::Burst;
use probe::slowdown::{self, NoVerdict, Round, verdict};
use serde::Serialize;

use crate::lab::slowdown::describe_losses;

/// A burst is short: fewer of one footprint say nothing.
const LEAST_BURSTS: usize = 5;

/// What one way of looking says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// `counters`, `distances`, `slowdowns`, `bursts`.
    pub by: &'static str,
    pub class: Option<Class>,
    /// What decided, or why there is none.
    pub evidence: String,
}

/// Of the samples of one program, with so many threads, on one machine: counters, distances, slowdowns, bursts.
pub fn verdicts(samples: &[&Sample]) -> [Verdict; 4] {
    let latest = |kind: Kind| samples.iter().rev().find(|sample| sample.kind == kind);
    let threads = samples.first().map_or(1, |sample| sample.threads);
    let flows = |kind: Kind| -> Option<Flows> {
        let value = &latest(kind)?.value;
        let flows = match kind {
            Kind::Reuse => &value["programs"][0]["flows_bytes_per_s"],
            _ => &value["flows_bytes_per_s"],
        };
        serde_json::from_value(flows.clone()).ok()
    };
    let by_flows = |by, kind: Kind, nothing: &str| match flows(kind) {
        Some(flows) => Verdict {
            by,
            class: Some(flows.class(f64::from(threads) * QUIET_BYTES_PER_S)),
            evidence: format!(
                "{:.2} GB/s into L1, {:.2} into L2, {:.2} into the last level",
                flows.into_l1 / 1e9,
                flows.into_l2 / 1e9,
                flows.into_llc / 1e9
            ),
        },
        None if latest(kind).is_some() => Verdict { by, class: None, evidence: nothing.to_owned() },
        None => Verdict { by, class: None, evidence: "not measured".into() },
    };
    [
        by_flows("counters", Kind::Counters, "this processor's counters do not tell the flows"),
        by_flows("distances", Kind::Reuse, "not three levels of caches, or the program did not end"),
        verdict_by_slowdowns(samples),
        verdict_by_bursts(samples),
    ]
}

/// Whether the rounds are all that a class takes. Those of a program and a probe that shared no cache are not: another
/// time they may.
pub fn has_slowdowns(samples: &[&Sample]) -> bool {
    let (own, rounds) = slowdowns(samples);
    !matches!(verdict_of(&own, &rounds), Err(NoVerdict::Rounds | NoVerdict::Apart { .. }))
}

fn verdict_by_slowdowns(samples: &[&Sample]) -> Verdict {
    let (own, rounds) = slowdowns(samples);
    let nothing = match own.len() {
        0 => "not measured".to_owned(),
        rounds => format!("{rounds} rounds, without all that a class requires: measure it again"),
    };
    verdict_by_rounds("slowdowns", &own, &rounds, &nothing)
}

/// Those samples, and the rounds among them that can be compared.
fn slowdowns<'a>(samples: &[&'a Sample]) -> (Vec<&'a Sample>, Vec<Round>) {
    let own: Vec<&Sample> = samples.iter().filter(|sample| sample.kind == Kind::Slowdown).copied().collect();
    let mut series: BTreeMap<i64, Vec<Round>> = BTreeMap::new();
    for sample in &own {
        if let Ok(round) = serde_json::from_value(sample.value["round"].clone()) {
            series.entry(sample.value["series"].as_i64().unwrap_or(0)).or_default().push(round);
        }
    }
    (own, whole_rounds(series.into_values().collect()))
}

/// What is compared with each other was measured together: of every series the rounds that have all footprints.
/// Series that a class cannot be made of are left out.
fn whole_rounds(mut series: Vec<Vec<Round>>) -> Vec<Round> {
    let footprints =
        |rounds: &[Round]| -> BTreeSet<u64> { rounds.iter().map(|round| round.footprint_bytes).collect() };
    let Some(all) = series.iter().map(|rounds| footprints(rounds)).max_by_key(BTreeSet::len) else {
        return Vec::new();
    };
    series.retain(|rounds| footprints(rounds) == all);
    let of = |rounds: &[Round], footprint: u64| -> Vec<Round> {
        rounds.iter().filter(|round| round.footprint_bytes == footprint).copied().collect()
    };
    let cut = |rounds: Vec<Round>| {
        let count = all.iter().map(|&footprint| of(&rounds, footprint).len()).min().unwrap_or(0);
        let first = |&footprint: &u64| of(&rounds, footprint).into_iter().take(count).collect::<Vec<_>>();
        all.iter().flat_map(first).collect::<Vec<_>>()
    };
    series.into_iter().flat_map(cut).collect()
}

fn verdict_by_bursts(samples: &[&Sample]) -> Verdict {
    let own: Vec<&Sample> = samples.iter().filter(|sample| sample.kind == Kind::Burst).copied().collect();
    let bursts: Vec<Burst> =
        own.iter().filter_map(|sample| serde_json::from_value(sample.value["burst"].clone()).ok()).collect();
    let mut rounds: Vec<Round> = bursts.iter().filter_map(Burst::round).collect();
    let usable = rounds.len();
    let footprints: Vec<u64> = rounds.iter().map(|round| round.footprint_bytes).collect();
    rounds.retain(|round| {
        footprints.iter().filter(|footprint| **footprint == round.footprint_bytes).count() >= LEAST_BURSTS
    });
    let nothing = match bursts.len() {
        0 => "not measured".to_owned(),
        bursts => format!(
            "{bursts} bursts, {usable} of them beside a program that showed its pace and kept it: not enough"
        ),
    };
    verdict_by_rounds("bursts", &own, &rounds, &nothing)
}

/// What rounds come to on the machine of their samples.
fn verdict_of(samples: &[&Sample], rounds: &[Round]) -> Result<slowdown::Verdict, NoVerdict> {
    let llc = samples.last().and_then(|sample| sample.value["llc_bytes"].as_u64());
    verdict(rounds, llc.ok_or(NoVerdict::Rounds)?)
}

fn verdict_by_rounds(by: &'static str, samples: &[&Sample], rounds: &[Round], nothing: &str) -> Verdict {
    let (class, evidence) = match verdict_of(samples, rounds) {
        Ok(found) => (Some(found.class), describe_losses(&found)),
        Err(why @ (NoVerdict::Cache { .. } | NoVerdict::Apart { .. })) => (None, why.to_string()),
        Err(NoVerdict::Rounds) => (None, nothing.to_owned()),
    };
    Verdict { by, class, evidence }
}

#[cfg(test)]
mod tests {
    use evidence::Program;
    use serde_json::{Value, json};

    use super::*;

    fn sample(kind: Kind, value: Value) -> Sample {
        let program = Program {
            binary: "b".into(),
            main_argument: String::new(),
            arguments: String::new(),
            name: "p".into(),
        };
        Sample { program, threads: 1, machine: "m".into(), kind, at_ns: 1, value }
    }

    /// Of a probe, in a last-level cache of 32 MiB that is there.
    fn bandwidth(footprint_bytes: u64) -> f64 {
        if footprint_bytes < 32 << 20 { 3e10 } else { 1e10 }
    }

    #[test]
    fn bursts_of_a_program_that_showed_its_pace_give_a_class() {
        let burst = |footprint: u64, regions: Option<[f64; 3]>| {
            let burst = json!({ "footprint_bytes": footprint, "regions_per_s": regions,
                "probe_bytes_per_s": bandwidth(footprint), "probe_alone_bytes_per_s": bandwidth(footprint),
                "cost_ns": 1 });
            sample(Kind::Burst, json!({ "burst": burst, "llc_bytes": 32 << 20, "probe_threads": 1 }))
        };
        let pace = |during: f64| Some([1000.0, during, 1000.0]);
        let few = [
            burst(1 << 20, pace(1000.0)),
            burst(28 << 20, pace(800.0)),
            burst(64 << 20, pace(700.0)),
            burst(64 << 20, None),
        ];
        let enough: Vec<&Sample> = few.iter().cycle().take(few.len() * LEAST_BURSTS).collect();
        let [.., found] = verdicts(&enough);
        assert_eq!((found.by, found.class), ("bursts", Some(Class::C)));
        let [.., found] = verdicts(&few.iter().collect::<Vec<_>>());
        assert!(found.class.is_none() && found.evidence.starts_with("4 bursts, 3 of them"), "{found:?}");
    }

    fn round(bytes: u64, beside_s: f64, probe: f64) -> Sample {
        let round = json!({ "footprint_bytes": bytes, "alone_s": 1.0, "beside_s": beside_s,
            "probe_alone_bytes_per_s": bandwidth(bytes), "probe_beside_bytes_per_s": bandwidth(bytes) / probe });
        sample(Kind::Slowdown, json!({ "round": round, "llc_bytes": 32 << 20, "probe_threads": 1 }))
    }

    #[test]
    fn rounds_are_compared_with_those_of_their_own_series() {
        let of = |series: i64, rounds: Vec<Sample>| {
            rounds.into_iter().map(move |mut sample| {
                sample.value["series"] = json!(series);
                sample
            })
        };
        // Slowed by half whatever the probe: nothing that the last-level cache does.
        let whole = || vec![round(1 << 20, 1.5, 1.0), round(28 << 20, 1.5, 1.0), round(64 << 20, 1.5, 1.0)];
        // As `coplace profile` measured it once, and one that was interrupted.
        let old = vec![round(28 << 20, 3.0, 1.0), round(32 << 20, 3.0, 1.0), round(64 << 20, 3.0, 1.0)];
        let cut = vec![round(1 << 20, 1.0, 1.0), round(64 << 20, 9.0, 1.0)];
        let cut_later = whole().into_iter().chain([round(28 << 20, 9.0, 1.0)]).collect();
        let judged = |series: [Vec<Sample>; 4]| {
            let samples: Vec<Sample> = (0..).zip(series).flat_map(|(k, rounds)| of(k, rounds)).collect();
            verdict_by_slowdowns(&samples.iter().collect::<Vec<_>>())
        };
        let all = judged([old.clone(), cut.clone(), cut_later, whole()]);
        assert_eq!(all.class, Some(Class::N), "{}", all.evidence);
        let none = judged([old, cut, Vec::new(), Vec::new()]);
        assert!(none.class.is_none() && none.evidence.starts_with("5 rounds, without all"), "{none:?}");
    }

    #[test]
    fn a_cache_that_cannot_be_felt_is_reported_and_not_missing() {
        let mut samples = [round(1 << 20, 1.0, 1.0), round(28 << 20, 1.0, 1.5), round(64 << 20, 1.1, 1.1)];
        samples[2].value["round"]["probe_alone_bytes_per_s"] = json!(2.9e10);
        let samples: Vec<&Sample> = samples.iter().collect();
        let found = verdict_by_slowdowns(&samples);
        assert!(
            found.class.is_none() && found.evidence.contains("30.0 GB/s, one beyond it 29.0"),
            "{found:?}"
        );
        assert!(has_slowdowns(&samples) && !has_slowdowns(&samples[..2]) && !has_slowdowns(&[]));
    }

    #[test]
    fn three_methods_stand_side_by_side_with_their_gaps() {
        let flows = json!({ "into_l1": 20e9, "into_l2": 19e9, "into_llc": 18e9 });
        let samples = [
            sample(Kind::Reuse, json!({ "programs": [{ "flows_bytes_per_s": flows }] })),
            sample(Kind::Counters, json!({ "flows_bytes_per_s": null })),
            round(1 << 20, 1.0, 1.0),
            round(28 << 20, 1.0, 1.5),
            round(64 << 20, 1.1, 1.1),
        ];
        let found = verdicts(&samples.iter().collect::<Vec<_>>());
        assert_eq!(found.clone().map(|v| v.by), ["counters", "distances", "slowdowns", "bursts"]);
        assert_eq!(found.clone().map(|v| v.class), [None, Some(Class::S), Some(Class::S), None]);
        assert!(found[0].evidence.contains("do not tell") && found[2].evidence.contains("10.0% beside one"));
        assert!(verdicts(&[]).iter().all(|v| v.class.is_none() && v.evidence == "not measured"));
    }
}
