//! What hardware counters say of a program: events and formulas are data, one file a family of processors
//! (`data/counters/`).

mod formula;

use std::collections::BTreeMap;
use std::ffi::OsString;

use linux::perf::{Counters, Event, Reading};
use linux::resctrl::{Monitor, Traffic};
use linux::{Absent, Root};
use serde::{Deserialize, Serialize};

use crate::classes::Flows;
use crate::tool::{self, RunError, Until};

const FILES: [(&str, &str); 6] = [
    ("amd-zen.toml", include_str!("../../data/counters/amd-zen.toml")),
    ("amd-zen2.toml", include_str!("../../data/counters/amd-zen2.toml")),
    ("intel-e5.toml", include_str!("../../data/counters/intel-e5.toml")),
    ("intel-server.toml", include_str!("../../data/counters/intel-server.toml")),
    ("intel-server-rapids.toml", include_str!("../../data/counters/intel-server-rapids.toml")),
    ("any.toml", include_str!("../../data/counters/any.toml")),
];

/// Metrics of every family.
const MONITORING: (&str, &str) = ("resctrl.toml", include_str!("../../data/counters/resctrl.toml"));

/// What a family of processors counts, and what it means.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definitions {
    /// The family in words, as `AMD Zen 2`; it is kept with every run ([`Counted::definitions`]).
    pub name: String,
    /// As the processor names its maker; of all where it is missing.
    vendor: Option<String>,
    #[serde(default)]
    families: Vec<u32>,
    /// Of all of the families where there are none.
    #[serde(default)]
    models: Vec<u32>,
    event: BTreeMap<String, Which>,
    metric: BTreeMap<String, Metric>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Which {
    /// By the kernel's name: `cycles`, `instructions`.
    Named(String),
    /// By the processor's number.
    Raw(u64),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    unit: String,
    /// Of events, `seconds`, and what resctrl monitors: `mbm_total_bytes`, `mbm_local_bytes`, `llc_occupancy_bytes`.
    formula: String,
}

/// What a processor is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `vendor_id` in `/proc/cpuinfo`, as `GenuineIntel`; empty where it has none, as on Arm.
    pub vendor: String,
    /// `cpu family` in `/proc/cpuinfo`; 0 where it has none.
    pub family: u32,
    /// `model` in `/proc/cpuinfo`; 0 where it has none.
    pub model: u32,
}

impl Processor {
    /// From the text of `/proc/cpuinfo`; its first processor.
    pub fn parse(cpuinfo: &str) -> Processor {
        let field = |name: &str| {
            let of = |line: &str| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            };
            cpuinfo.lines().find_map(of)
        };
        let number = |name: &str| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        Processor {
            vendor: field("vendor_id").unwrap_or_default(),
            family: number("cpu family"),
            model: number("model"),
        }
    }
}

/// A run under counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Name of the definitions.
    pub definitions: String,
    /// Wall-clock time of the run, from its start to its end.
    pub seconds: f64,
    /// By the events' names in the definitions; empty where counters could not be opened or stood still.
    pub events: BTreeMap<String, Reading>,
    /// What the processor monitored of memory and the last-level cache, where it does.
    #[serde(default)]
    pub traffic: Traffic,
}

/// What formulas may name beside events and `seconds`.
const TRAFFIC: [&str; 3] = ["mbm_total_bytes", "mbm_local_bytes", "llc_occupancy_bytes"];

/// Why there are no counts.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// Neither counters nor resctrl monitoring can be had, or what can be had counted nothing.
    #[error("{0}")]
    Absent(Absent),
    /// The program was not run to a good end.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The program was run, but its counters could not be read afterwards.
    #[error("counters cannot be read: {0}")]
    Read(std::io::Error),
}

impl Definitions {
    /// Those of a processor; the ones of any processor where it has none of its own.
    pub fn of(processor: &Processor) -> Definitions {
        let all = FILES.map(|(file, text)| Definitions::parse(file, text).expect("tested"));
        let fits = |d: &Definitions| {
            d.vendor.as_ref().is_none_or(|vendor| *vendor == processor.vendor)
                && (d.families.is_empty() || d.families.contains(&processor.family))
                && (d.models.is_empty() || d.models.contains(&processor.model))
        };
        let mut found = all.into_iter().find(fits).expect("the last file fits any processor");
        found.metric.extend(Definitions::parse(MONITORING.0, MONITORING.1).expect("tested").metric);
        found
    }

    /// Reads a file, and tries its formulas.
    pub fn parse(file: &str, text: &str) -> Result<Definitions, String> {
        let definitions: Definitions = toml::from_str(text).map_err(|error| format!("{file}: {error}"))?;
        for (name, which) in &definitions.event {
            if let Which::Named(event) = which
                && named(event).is_none()
            {
                return Err(format!(
                    "{file}: event {name}: '{event}' is no event of the kernel (cycles, instructions)"
                ));
            }
        }
        for (name, metric) in &definitions.metric {
            let known = |word: &str| {
                let there =
                    word == "seconds" || TRAFFIC.contains(&word) || definitions.event.contains_key(word);
                there.then_some(1.0)
            };
            formula::evaluate(&metric.formula, &known)
                .map_err(|why| format!("{file}: metric {name}: '{}': {why}", metric.formula))?;
        }
        Ok(definitions)
    }

    fn events(&self) -> Vec<Event> {
        let event = |which: &Which| match which {
            Which::Named(name) => named(name).expect("checked when it was read"),
            Which::Raw(config) => Event::Raw(*config),
        };
        self.event.values().map(event).collect()
    }

    /// A native run of a program with counters and under the processor's monitoring, or with what of them is there.
    /// Of one that fails or is ended there are none.
    pub fn count(
        &self,
        words: &[OsString],
        until: &Until,
        omp_threads: Option<u32>,
    ) -> Result<Counted, CountError> {
        let root = Root::live();
        let counters = Counters::of_children(&self.events(), &root);
        let monitor = Monitor::of_children(&root).ok();
        let mut counters = match (counters, &monitor) {
            (Err(absent), None) => return Err(CountError::Absent(absent)),
            (counters, _) => counters.ok(),
        };
        let cost = tool::alone(words, until, omp_threads)?;
        let traffic = monitor.map(|monitor| monitor.read()).unwrap_or_default();
        let mut events = BTreeMap::new();
        if let Some(counters) = &mut counters {
            let readings = counters.read().map_err(CountError::Read)?;
            if readings.iter().any(|reading| reading.running_ns > 0) {
                events = self.event.keys().cloned().zip(readings).collect();
            }
        }
        if events.is_empty() && traffic == Traffic::default() {
            return Err(CountError::Absent(Absent::new(
                "hardware counters",
                "they stood still",
                "give the virtual machine a vPMU",
            )));
        }
        Ok(Counted { definitions: self.name.clone(), seconds: cost.seconds, events, traffic })
    }

    /// Metrics with their units; those whose events never had a turn, or that divide by nothing, are left
    /// out.
    pub fn metrics(&self, counted: &Counted) -> BTreeMap<String, (f64, String)> {
        let value = |name: &str| match name {
            "seconds" => Some(counted.seconds),
            "mbm_total_bytes" => counted.traffic.total_bytes.map(|bytes| bytes as f64),
            "mbm_local_bytes" => counted.traffic.local_bytes.map(|bytes| bytes as f64),
            "llc_occupancy_bytes" => counted.traffic.occupancy_bytes.map(|bytes| bytes as f64),
            event => counted.events.get(event)?.corrected(),
        };
        let one = |(name, metric): (&String, &Metric)| {
            let value = formula::evaluate(&metric.formula, &value).ok().filter(|value| value.is_finite())?;
            Some((name.clone(), (value, metric.unit.clone())))
        };
        self.metric.iter().filter_map(one).collect()
    }

    /// What flowed into the caches, where this family counts it.
    pub fn flows(&self, counted: &Counted) -> Option<Flows> {
        let metrics = self.metrics(counted);
        let of = |name: &str| metrics.get(name).map(|(value, _)| *value);
        Some(Flows { into_l1: of("into_l1")?, into_l2: of("into_l2")?, into_llc: of("into_llc")? })
    }
}

fn named(event: &str) -> Option<Event> {
    match event {
        "cycles" => Some(Event::Cycles),
        "instructions" => Some(Event::Instructions),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::tests::{QUIET, TABLE_2, flows};

    fn processor(vendor: &str, family: u32, model: u32) -> Processor {
        Processor { vendor: vendor.into(), family, model }
    }

    #[test]
    fn every_file_is_whole_and_fits_its_processors() {
        for (file, text) in FILES {
            Definitions::parse(file, text).unwrap();
        }
        let name = |vendor: &str, family, model| Definitions::of(&processor(vendor, family, model)).name;
        assert_eq!(name("AuthenticAMD", 26, 2), "AMD Zen 3 to 5");
        assert_eq!(name("AuthenticAMD", 23, 49), "AMD Zen 2");
        // Zen 1 counts other things.
        assert_eq!(name("AuthenticAMD", 23, 1), "any processor");
        assert_eq!(name("GenuineIntel", 6, 45), "Intel Xeon E5, Sandy and Ivy Bridge");
        assert_eq!(name("GenuineIntel", 6, 62), "Intel Xeon E5, Sandy and Ivy Bridge");
        assert_eq!(name("GenuineIntel", 6, 106), "Intel servers, Skylake to Ice Lake");
        assert_eq!(name("GenuineIntel", 6, 143), "Intel servers, Sapphire and Emerald Rapids");
        assert_eq!(name("GenuineIntel", 6, 42), "any processor");
        assert_eq!(name("", 0, 0), "any processor");
        let cpuinfo =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: X\n";
        assert_eq!(Processor::parse(cpuinfo), processor("AuthenticAMD", 26, 2));
    }

    #[test]
    fn a_file_that_means_nothing_is_refused_with_its_place() {
        for (text, message) in [
            ("name = 3", "x.toml"),
            ("name = 'n'\n[event]\na = 'furlongs'\n[metric]", "event a: 'furlongs'"),
            (
                "name = 'n'\n[event]\na = 1\n[metric.m]\nunit = '1'\nformula = 'a / b'",
                "metric m: 'a / b': 'b'",
            ),
        ] {
            let error = Definitions::parse("x.toml", text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    /// No counts of the paper's machine are at hand: its Table 2 is turned back into lines that would have been
    /// counted in ten seconds, half of them by counters that had half of the time.
    #[test]
    fn counts_made_of_table_2_give_its_flows_and_classes() {
        let definitions = Definitions::of(&processor("GenuineIntel", 6, 45));
        for row in &TABLE_2 {
            let wanted = flows(row);
            let lines = |bytes_per_s: f64, share: f64| Reading {
                count: (bytes_per_s * 10.0 / 64.0 * share) as u64,
                enabled_ns: 10_000_000_000,
                running_ns: (1e10 * share) as u64,
            };
            let events = [
                ("l1_lines", lines(wanted.into_l1, 0.5)),
                ("l2_lines", lines(wanted.into_l2, 1.0)),
                ("llc_misses", lines(wanted.into_llc, 0.5)),
            ];
            let counted = Counted {
                definitions: definitions.name.clone(),
                seconds: 10.0,
                events: events.map(|(name, reading)| (name.to_owned(), reading)).into(),
                traffic: Traffic::default(),
            };
            let found = definitions.flows(&counted).unwrap();
            for (found, wanted) in [
                (found.into_l1, wanted.into_l1),
                (found.into_l2, wanted.into_l2),
                (found.into_llc, wanted.into_llc),
            ] {
                assert!((found / wanted - 1.0).abs() < 1e-3, "{}: {found} {wanted}", row.0);
            }
            assert_eq!(found.class(QUIET), wanted.class(QUIET), "{}", row.0);
            // What was not counted has no metric, and what has no turn neither.
            assert!(!definitions.metrics(&counted).contains_key("instructions_per_cycle"));
        }
        let silent = Counted {
            definitions: String::new(),
            seconds: 1.0,
            events: BTreeMap::new(),
            traffic: Traffic::default(),
        };
        assert_eq!(definitions.flows(&silent), None);
    }

    #[test]
    fn processor_events_of_every_family_become_metrics() {
        for family in
            [processor("GenuineIntel", 6, 85), processor("AuthenticAMD", 25, 1), processor("", 0, 0)]
        {
            let definitions = Definitions::of(&family);
            let traffic = Traffic { total_bytes: Some(8_000), local_bytes: None, occupancy_bytes: Some(640) };
            let counted = Counted {
                definitions: definitions.name.clone(),
                seconds: 2.0,
                events: BTreeMap::new(),
                traffic,
            };
            let metrics = definitions.metrics(&counted);
            let value = |name: &str| metrics.get(name).map(|(value, unit)| (*value, unit.as_str()));
            assert_eq!(value("memory_traffic"), Some((4_000.0, "bytes/s")), "{}", definitions.name);
            assert_eq!(value("near_memory_traffic"), None);
            assert_eq!(value("left_in_last_level"), Some((640.0, "bytes")));
        }
        // Samples from before there was monitoring are read.
        let old = r#"{ "definitions": "d", "seconds": 1.0, "events": {} }"#;
        assert_eq!(serde_json::from_str::<Counted>(old).unwrap().traffic, Traffic::default());
    }

    #[test]
    fn a_program_is_counted_or_the_absence_has_its_reason() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let definitions = Definitions::of(&Processor::parse(&cpuinfo));
        match definitions.count(&["true".into()], &Until::default(), None) {
            Ok(counted) => {
                let monitored = counted.events.is_empty() && counted.traffic != Traffic::default();
                assert!(monitored || counted.events.len() == definitions.event.len());
            }
            Err(CountError::Absent(absent)) => assert!(!absent.remedy.is_empty(), "{absent}"),
            Err(other) => panic!("{other}"),
        }
        // What one did that failed is not what it does.
        let failed = definitions.count(&["false".into()], &Until::default(), None);
        assert!(matches!(failed, Err(CountError::Absent(_) | CountError::Run(RunError::Failed { .. }))));
    }
}
