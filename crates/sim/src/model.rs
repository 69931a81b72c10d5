//! The model's parameters: the laws' and the programs', from one file that says where each comes from.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use workload::{MixError, Profile};

/// The model that is built in.
const TEXT: &str = include_str!("../data/model.toml");

/// What the simulator knows of machines and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Parameters of its laws.
    pub laws: Laws,
    /// The programs that it knows.
    pub profiles: Vec<Arc<Profile>>,
}

/// Parameters of the laws; `data/model.toml` says what each means and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Laws {
    /// How much demand for bandwidth beyond a domain's slows its programs down.
    pub bandwidth_weight: f64,
    /// What one switch between two gangs costs, in nanoseconds.
    pub switch_ns: f64,
    /// What filling the caches again after a switch costs, in nanoseconds.
    pub refill_ns: f64,
    /// What one wait costs for each thread too many on a CPU, if threads sleep while they wait, in nanoseconds.
    pub wait_passive_ns: f64,
    /// The same if they spin for a while first.
    pub wait_spinning_ns: f64,
    /// The same if they spin until the kernel takes the CPU from them.
    pub wait_active_ns: f64,
    /// By what part more the unequal progress of threads slows a team down that shares its CPUs.
    pub uneven: f64,
    /// How much memory in another domain slows down a program that needs all bandwidth: 1 doubles its time.
    pub remote: f64,
    /// How fast memory follows its program to another domain, in bytes a second.
    pub migrate_bytes_per_s: f64,
    /// The fixed part of a program's start on one CPU, in nanoseconds.
    pub start_ns: f64,
    /// The part for each MiB of its memory, in nanoseconds.
    pub start_ns_per_mib: f64,
    /// Whether the time alone counts the start.
    pub alone_counts_start: bool,
}

/// Everything else in the file is read with the profiles.
#[derive(Deserialize)]
struct File {
    laws: Laws,
}

impl Model {
    /// The model that is built in: the machine and programs of Schönherr, Juurlink, Richling 2013.
    pub fn built_in() -> Model {
        Model::parse(TEXT, Path::new("model.toml")).expect("the built-in model is one")
    }

    /// `path` is named in errors and not read.
    pub fn parse(text: &str, path: &Path) -> Result<Model, MixError> {
        let profiles = workload::profiles(text, path)?;
        let file: File = toml::from_str(text).map_err(|error| MixError {
            path: path.to_owned(),
            position: error.span().map(|span| (text[..span.start].matches('\n').count() + 1, 1)),
            key: Some("laws".to_owned()),
            what: error.message().trim().replace('\n', ", "),
        })?;
        Ok(Model { laws: file.laws, profiles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_follow_from_the_figures_in_the_file() {
        for profile in Model::built_in().profiles {
            let last_cores = (profile.curve.speedup(6.0) - profile.curve.speedup(3.0)) / 3.0;
            let derived = (1.0 - last_cores).clamp(0.0, 1.0);
            assert!((profile.bandwidth - derived).abs() < 0.01, "{}: {derived}", profile.name);
        }
    }

    #[test]
    fn reconfiguration_delays_come_out_as_table_i_has_them() {
        // Half a region when run sequentially, in ms.
        let delays = [46.0, 365.0, 365.0, 1627.0, 73.0, 5.0, 10.0, 1.0];
        for (profile, delay_ms) in Model::built_in().profiles.iter().zip(delays) {
            let half_ms = profile.sequential_ns as f64 / profile.regions as f64 / 2e6;
            assert!((half_ms - delay_ms).abs() <= 0.02 * delay_ms + 0.5, "{}: {half_ms}", profile.name);
        }
    }

    #[test]
    fn a_law_that_is_missing_or_unknown_is_named() {
        let error = |text: &str| Model::parse(text, Path::new("m.toml")).unwrap_err().to_string();
        assert!(error(&TEXT.replace("uneven =", "even =")).contains("even"));
        assert!(error("[laws]\nswitch_ns = 'x'\n").starts_with("m.toml:2:1: laws"));
    }
}
