//! Workloads out of a seed: Poisson arrivals of programs drawn evenly from a mix, as the sets A to D
//! of Schönherr, Juurlink, Richling 2013 (III-A, Table II).

use std::sync::Arc;

use crate::{AppId, Demand, Job, Profile, Random, Scenario};

/// A set of workloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    /// The set's name.
    pub name: String,
    /// Jobs of each workload.
    pub jobs: u32,
    /// Arrivals a minute on average; they are a Poisson process.
    pub arrivals_per_minute: f64,
    /// The programs that jobs are drawn from, each as likely.
    pub mix: Vec<Drawn>,
}

/// A program that may be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// What is known of it.
    pub profile: Arc<Profile>,
    /// Where a file names it, from 1.
    pub line: Option<usize>,
}

/// Table II: name, workloads, arrivals a minute, programs left out.
const SETS: [(&str, u32, f64, &[&str]); 4] =
    [("A", 5, 6.0, &[]), ("B", 8, 9.0, &[]), ("C", 4, 9.0, &["lu.A"]), ("D", 8, 9.0, &["ft.B", "mg.B"])];

/// Jobs of each workload in Table II.
const JOBS: u32 = 40;

impl Generator {
    /// The paper's set of this letter, from the profiles of its programs; `None`: there is none.
    pub fn set(letter: &str, profiles: &[Arc<Profile>]) -> Option<Generator> {
        let (name, _, arrivals_per_minute, without) =
            *SETS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(letter))?;
        let in_mix = |profile: &&Arc<Profile>| !without.contains(&profile.name.as_str());
        let drawn = |profile: &Arc<Profile>| Drawn { profile: Arc::clone(profile), line: None };
        let mix = profiles.iter().filter(in_mix).map(drawn).collect();
        Some(Generator { name: format!("set {name}"), jobs: JOBS, arrivals_per_minute, mix })
    }

    /// How many workloads the paper drew of the set.
    pub fn paper_s_workloads(letter: &str) -> Option<u32> {
        SETS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(letter)).map(|&(_, count, ..)| count)
    }

    /// The workload of a seed. Programs and times come from streams of their own, so that sets of
    /// one rate have the same arrivals.
    pub fn scenario(&self, seed: u64) -> Scenario {
        let mut arrivals = Random::for_purpose(seed, "arrivals");
        let mut programs = Random::for_purpose(seed, "programs");
        let mean_ns = 60e9 / self.arrivals_per_minute;
        let mut now_ns = 0;
        let jobs = (1..=self.jobs).map(|number| {
            let Drawn { profile, line } = programs.pick(&self.mix).clone();
            let plain: String =
                profile.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let id = AppId::new(&format!("j{number}_{plain}"));
            let arrive_ns = now_ns;
            now_ns += arrivals.exponential(mean_ns) as u64;
            let id = id.unwrap_or_else(|_| AppId::new(&format!("j{number}")).expect("a letter and digits"));
            Job { id, arrive_ns, profile, demand: Demand::default(), line }
        });
        Scenario::new(&format!("{}, seed {seed}", self.name), jobs.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Curve;

    fn profiles() -> Vec<Arc<Profile>> {
        ["lu.A", "ft.B", "mg.B", "is.C"]
            .map(|name| Arc::new(Profile::plain(name, 1_000_000_000, Curve::Linear)))
            .to_vec()
    }

    #[test]
    fn sets_have_the_paper_s_rates_and_mixes() {
        let names = |letter| -> Vec<String> {
            let set = Generator::set(letter, &profiles()).unwrap();
            set.mix.iter().map(|drawn| drawn.profile.name.clone()).collect()
        };
        assert_eq!(names("a"), ["lu.A", "ft.B", "mg.B", "is.C"]);
        assert_eq!(names("C"), ["ft.B", "mg.B", "is.C"]);
        assert_eq!(names("D"), ["lu.A", "is.C"]);
        assert!(Generator::set("E", &profiles()).is_none());
    }

    #[test]
    fn a_seed_gives_one_workload_whose_arrivals_have_the_rate() {
        let set = Generator::set("B", &profiles()).unwrap();
        assert_eq!(set.scenario(3), set.scenario(3));
        assert_ne!(set.scenario(3), set.scenario(4));
        let last = |seed| set.scenario(seed).jobs.last().map_or(0, |job| job.arrive_ns);
        let mean_s = (1..=200).map(last).sum::<u64>() as f64 / 200e9;
        // 39 gaps of 60/9 s.
        assert!((250.0..270.0).contains(&mean_s), "{mean_s}");
    }
}
