//! The TOML file of simulated programs (docs/formats/scenario-file.md).
//!
//! ```toml
//! [[profile]]                         # programs of one's own, beside the model's
//! name = "mine"
//! sequential_s = 94
//! speedup = { 2 = 1.8, 6 = 3.8 }      # or amdahl, downey, sevcik
//! regions = 1012
//!
//! [[program]]                         # jobs …
//! profile = "mine"
//! arrive_s = 3.5
//!
//! [generate]                          # … or how to draw them
//! jobs = 40
//! arrivals_per_minute = 9
//! mix = ["mine", "cg.B"]
//! ```

use std::path::Path;
use std::sync::Arc;

use crate::mix::{MAX_REPEAT, Names, demand};
use crate::reader::{MixError, Reader, Table};
use crate::{AppId, Curve, Drawn, Generator, Job, PhaseDemand, Profile, Scenario, Waiting};

/// What a file describes.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioFile {
    /// The jobs themselves.
    Fixed(Scenario),
    /// What jobs are drawn from, by a seed.
    Generated(Generator),
}

impl ScenarioFile {
    /// `known` are the profiles that a program may name besides those of the file. `lenient` leaves
    /// programs out that are wrong, and counts them.
    pub fn parse(
        text: &str,
        path: &Path,
        known: &[Arc<Profile>],
        lenient: bool,
    ) -> Result<ScenarioFile, MixError> {
        let reader = Reader::new(text, path);
        let document = reader.document()?;
        let document = reader.root(&document, &["profile", "program", "generate"])?;
        let (mut profiles, wrong) =
            if lenient { right_profiles(&document)? } else { (read_profiles(&document)?, Vec::new()) };
        // What the file means by a name is wrong, not what the model does.
        profiles.extend(known.iter().filter(|known| !wrong.contains(&known.name)).cloned());
        profiles.retain(|profile| !wrong.contains(&profile.name));
        let title = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("workload");
        let programs = document.unchecked_tables("program")?;
        if let Some(table) = document.table("generate", &["jobs", "arrivals_per_minute", "mix"])? {
            if !programs.is_empty() {
                return Err(table.missing("", "either [generate] or [[program]]s, not both"));
            }
            return generator(&table, title, &profiles).map(ScenarioFile::Generated);
        }
        let (mut jobs, mut names, mut skipped) = (Vec::new(), Names::default(), 0);
        for table in &programs {
            match program(table, &profiles, &mut names) {
                Ok(more) => jobs.extend(more),
                Err(_) if lenient => skipped += 1,
                Err(error) => return Err(error),
            }
        }
        if jobs.is_empty() {
            return Err(MixError::whole(path, "there is no job: add a [[program]] with a profile"));
        }
        Ok(ScenarioFile::Fixed(Scenario { skipped, ..Scenario::new(title, jobs) }))
    }
}

/// The `[[profile]]`s of a file that may also have a table `laws`.
pub fn profiles(text: &str, path: &Path) -> Result<Vec<Arc<Profile>>, MixError> {
    let reader = Reader::new(text, path);
    let document = reader.document()?;
    read_profiles(&reader.root(&document, &["profile", "laws"])?)
}

fn read_profiles(document: &Table<'_>) -> Result<Vec<Arc<Profile>>, MixError> {
    let mut profiles: Vec<Arc<Profile>> = Vec::new();
    for table in document.unchecked_tables("profile")? {
        profiles.push(Arc::new(another_profile(&table, &profiles)?));
    }
    Ok(profiles)
}

/// Without those that are wrong, and the names that these have.
fn right_profiles(document: &Table<'_>) -> Result<(Vec<Arc<Profile>>, Vec<String>), MixError> {
    let (mut profiles, mut wrong) = (Vec::new(), Vec::new());
    for table in document.unchecked_tables("profile")? {
        match another_profile(&table, &profiles) {
            Ok(profile) => profiles.push(Arc::new(profile)),
            Err(_) => wrong.extend(table.string("name").ok().flatten().map(|name| name.value)),
        }
    }
    Ok((profiles, wrong))
}

/// A profile beside others of the same file.
fn another_profile(table: &Table<'_>, others: &[Arc<Profile>]) -> Result<Profile, MixError> {
    table.only(PROFILE_KEYS)?;
    let profile = profile(table)?;
    if others.iter().any(|known| known.name == profile.name) {
        let what = format!("'{}' stands in the file twice", profile.name);
        return Err(table.error_at(table.at(), "name", &what));
    }
    Ok(profile)
}

const PROFILE_KEYS: &[&str] = &[
    "name",
    "sequential_s",
    "speedup",
    "amdahl",
    "downey",
    "sevcik",
    "may_slow_down",
    "domain_cpus",
    "regions",
    "waits_per_region",
    "waiting",
    "start_s",
    "memory_mib",
    "bandwidth",
    "cache",
    "loads_per_s",
    "core_share",
    "scatter",
    "phases",
    "rounds",
];

const PHASE_KEYS: &[&str] = &["work", "bandwidth", "cache", "loads_per_s"];

fn profile(table: &Table<'_>) -> Result<Profile, MixError> {
    let name = match table.string("name")? {
        Some(name) if !name.value.trim().is_empty() => name.value,
        _ => return Err(table.missing("name", "name = \"mine\"")),
    };
    let sequential = match table.seconds("sequential_s")? {
        Some(time) if time.value > 0 => time.value,
        Some(time) => return Err(table.error_at(time.at, "sequential_s", "must be above 0")),
        None => return Err(table.missing("sequential_s", "sequential_s = 94")),
    };
    let may_slow_down = table.boolean("may_slow_down")?.unwrap_or(false);
    let plain = Profile { may_slow_down, ..Profile::plain(&name, sequential, curve(table, may_slow_down)?) };
    let share =
        |key: &str, most: f64| Ok::<_, MixError>(table.number(key, "a number", 0.0..=most)?.map(|v| v.value));
    let waiting = match table.string("waiting")? {
        None => None,
        Some(word) => Some(match word.value.as_str() {
            "passive" => Waiting::Passive,
            "spinning" => Waiting::Spinning,
            "active" => Waiting::Active,
            other => {
                let what = format!("'{other}' is none of passive, spinning, active");
                return Err(table.error_at(word.at, "waiting", &what));
            }
        }),
    };
    let cpus = 1..=u64::from(topology::MAX_CPUS);
    let profile = Profile {
        domain_cpus: table.whole("domain_cpus", cpus)?.map(|cpus| cpus.value as u32),
        regions: table.whole("regions", 1..=1_000_000_000)?.map_or(plain.regions, |regions| regions.value),
        waits_per_region: share("waits_per_region", 1e9)?.unwrap_or(plain.waits_per_region),
        waiting,
        start_ns: table.seconds("start_s")?.map_or(0, |time| time.value),
        memory_bytes: (share("memory_mib", 1e12)?.unwrap_or(0.0) * 1_048_576.0) as u64,
        bandwidth: share("bandwidth", 1.0)?.unwrap_or(0.0),
        cache: share("cache", 100.0)?.unwrap_or(0.0),
        loads_per_s: share("loads_per_s", 1e15)?.unwrap_or(0.0),
        core_share: table.number("core_share", "a number", 0.01..=1.0)?.map_or(1.0, |share| share.value),
        scatter: share("scatter", 100.0)?.unwrap_or(0.0),
        ..plain
    };
    let phases = table.tables("phases", PHASE_KEYS)?.iter().map(phase).collect::<Result<Vec<_>, _>>()?;
    let rounds = table.whole("rounds", 1..=1_000_000)?;
    if phases.is_empty() {
        return match rounds {
            Some(rounds) => Err(table.error_at(rounds.at, "rounds", "there are no phases to repeat")),
            None => Ok(profile),
        };
    }
    for key in ["bandwidth", "cache", "loads_per_s"] {
        if let Some(number) = table.number(key, "a number", 0.0..=1e15)? {
            let what = "each of the phases says this for itself: leave it out here";
            return Err(table.error_at(number.at, key, what));
        }
    }
    Ok(profile.in_phases(phases, rounds.map_or(1, |rounds| rounds.value as u32)))
}

fn phase(table: &Table<'_>) -> Result<PhaseDemand, MixError> {
    let number =
        |key: &str, range| table.number(key, "a number", range).map(|number| number.map(|it| it.value));
    Ok(PhaseDemand {
        work: number("work", 1e-6..=1e9)?.unwrap_or(1.0),
        bandwidth: number("bandwidth", 0.0..=1.0)?.unwrap_or(0.0),
        cache: number("cache", 0.0..=100.0)?.unwrap_or(0.0),
        loads_per_s: number("loads_per_s", 0.0..=1e15)?.unwrap_or(0.0),
    })
}

fn curve(table: &Table<'_>, may_slow_down: bool) -> Result<Curve, MixError> {
    let mut curves: Vec<Curve> = Vec::new();
    let points = table.numbers_by_size("speedup")?;
    if !points.is_empty() {
        let curve = Curve::Table(points.iter().map(|(cpus, speedup)| (*cpus, speedup.value)).collect());
        if let Some(cpus) = curve.slows_down_at(0).filter(|_| !may_slow_down) {
            let at = points.iter().find(|(size, _)| *size == cpus).map_or(table.at(), |(_, at)| at.at);
            let what = "the program takes longer than on fewer CPUs; times must not rise with the number of \
                        CPUs (write may_slow_down = true if that was measured)";
            return Err(table.error_at(at, &format!("speedup.{cpus}"), what));
        }
        curves.push(curve);
    }
    let required = |inner: &Table<'_>, key: &str, range: std::ops::RangeInclusive<f64>| {
        let value = inner.number(key, "a number", range)?;
        value.map(|value| value.value).ok_or_else(|| inner.missing(key, &format!("{key} = 0.1")))
    };
    if let Some(inner) = table.table("amdahl", &["serial"])? {
        curves.push(Curve::Amdahl { serial: required(&inner, "serial", 0.0..=1.0)? });
    }
    if let Some(inner) = table.table("downey", &["average", "sigma"])? {
        let (average, sigma) =
            (required(&inner, "average", 1.0..=1e6)?, required(&inner, "sigma", 0.0..=1e6)?);
        curves.push(Curve::Downey { average, sigma });
    }
    if let Some(inner) = table.table("sevcik", &["imbalance", "serial", "overhead_per_cpu"])? {
        curves.push(Curve::Sevcik {
            imbalance: required(&inner, "imbalance", 0.0..=1e6)?.max(f64::MIN_POSITIVE),
            serial: required(&inner, "serial", 0.0..=1e6)?,
            overhead_per_cpu: required(&inner, "overhead_per_cpu", 0.0..=1e6)?,
        });
    }
    match curves.len() {
        1 => Ok(curves.remove(0)),
        0 => Err(table.missing("speedup", "speedup = { 2 = 1.8, 6 = 3.8 }, or amdahl, downey or sevcik")),
        _ => Err(table.missing("speedup", "one of speedup, amdahl, downey and sevcik, not several")),
    }
}

const PROGRAM_KEYS: &[&str] = &["name", "profile", "arrive_s", "repeat", "repeat_every_s", "demand"];

fn named(
    table: &Table<'_>,
    at: usize,
    key: &str,
    name: &str,
    profiles: &[Arc<Profile>],
) -> Result<Arc<Profile>, MixError> {
    let found = profiles.iter().find(|profile| profile.name == name);
    found.cloned().ok_or_else(|| {
        let known: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        table.error_at(at, key, &format!("there is no program '{name}'; there are {}", known.join(", ")))
    })
}

fn program(table: &Table<'_>, profiles: &[Arc<Profile>], names: &mut Names) -> Result<Vec<Job>, MixError> {
    table.only(PROGRAM_KEYS)?;
    let Some(wanted) = table.string("profile")? else {
        return Err(table.missing("profile", "profile = \"cg.B\""));
    };
    let profile = named(table, wanted.at, "profile", &wanted.value, profiles)?;
    let name = match table.string("name")? {
        Some(name) => {
            AppId::new(&name.value).map_err(|error| table.error_at(name.at, "name", &error.to_string()))?
        }
        None => crate::mix::default_name(&profile.name),
    };
    let arrive_ns = table.seconds("arrive_s")?.map_or(0, |time| time.value);
    let repeat = table.whole("repeat", 1..=MAX_REPEAT)?.map_or(1, |repeat| repeat.value);
    let every_ns = table.seconds("repeat_every_s")?.map_or(0, |time| time.value);
    let demand = demand(table)?;
    let job = |number: u64| Job {
        id: names.fresh(&name),
        arrive_ns: arrive_ns.saturating_add(every_ns.saturating_mul(number)),
        profile: Arc::clone(&profile),
        demand: demand.clone(),
        line: Some(table.line()),
    };
    Ok((0..repeat).map(job).collect())
}

fn generator(table: &Table<'_>, title: &str, profiles: &[Arc<Profile>]) -> Result<Generator, MixError> {
    let mix = match table.strings("mix")? {
        Some(names) if !names.is_empty() => {
            let named = |name: &crate::reader::At<String>| {
                let profile = named(table, name.at, "mix", &name.value, profiles)?;
                Ok::<_, MixError>(Drawn { profile, line: Some(table.line_of(name.at)) })
            };
            names.iter().map(named).collect::<Result<_, _>>()?
        }
        _ => return Err(table.missing("mix", "mix = [\"cg.B\", \"ft.B\"]")),
    };
    let Some(rate) = table.number("arrivals_per_minute", "a number", 1e-6..=1e9)? else {
        return Err(table.missing("arrivals_per_minute", "arrivals_per_minute = 9"));
    };
    let Some(jobs) = table.whole("jobs", 1..=1_000_000)? else {
        return Err(table.missing("jobs", "jobs = 40"));
    };
    Ok(Generator { name: title.to_owned(), jobs: jobs.value as u32, arrivals_per_minute: rate.value, mix })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str =
        "[[profile]]\nname = 'mine'\nsequential_s = 10\nspeedup = { 2 = 1.8, 12 = 4, 6 = 3 }\n";

    fn parse(text: &str, lenient: bool) -> Result<ScenarioFile, MixError> {
        ScenarioFile::parse(text, Path::new("w.toml"), &[], lenient)
    }

    #[test]
    fn programs_are_jobs_with_profiles_of_the_file() {
        let text =
            format!("{PROFILE}[[program]]\nprofile = 'mine'\narrive_s = 1\nrepeat = 2\nrepeat_every_s = 3\n");
        let ScenarioFile::Fixed(scenario) = parse(&text, false).unwrap() else { panic!() };
        let jobs: Vec<_> =
            scenario.jobs.iter().map(|job| (job.id.as_str(), job.arrive_ns / 1_000_000_000)).collect();
        assert_eq!(jobs, [("mine", 1), ("mine.2", 4)]);
        assert_eq!(scenario.jobs[0].profile.curve, Curve::Table(vec![(2, 1.8), (6, 3.0), (12, 4.0)]));
        assert_eq!(scenario.jobs[0].line, Some(5));
    }

    #[test]
    fn a_generator_draws_from_the_profiles_that_it_names() {
        let text = format!("{PROFILE}[generate]\njobs = 3\narrivals_per_minute = 6\nmix = ['mine']\n");
        let ScenarioFile::Generated(generator) = parse(&text, false).unwrap() else { panic!() };
        assert_eq!(generator.scenario(1).jobs.len(), 3);
        // Whoever cannot be played is told with the line that names it.
        assert!(generator.scenario(1).jobs.iter().all(|job| job.line == Some(8)));
    }

    #[test]
    fn mistakes_are_named_with_line_and_rule() {
        let program = |more: &str| format!("{PROFILE}[[program]]\nprofile = 'mine'\n{more}\n");
        let profile =
            |from: &str, to: &str| format!("{}[[program]]\nprofile = 'mine'\n", PROFILE.replace(from, to));
        for (text, line, wanted) in [
            (program("arrive_s = -1"), 7, "must be a number of seconds from 0"),
            (program("[program.demand]\nmin_threads = 0"), 8, "must be a whole number from 1"),
            (
                program("").replace("profile = 'mine'", "profile = 'other'"),
                6,
                "there is no program 'other'; there are mine",
            ),
            (program("").replace("profile = 'mine'", ""), 5, "profile: is missing"),
            (profile("12 = 4", "12 = 2.5"), 4, "speedup.12: the program takes longer than on fewer CPUs"),
            (profile("12 = 4", "1 = 4"), 4, "is not a number of CPUs"),
            (profile("sequential_s = 10", "sequential_s = 0"), 3, "must be above 0"),
            (profile("sequential_s = 10\n", ""), 1, "sequential_s: is missing"),
            (profile("sequential_s", "amdahl = { serial = 2 }\nsequential_s"), 3, "from 0 to 1"),
            (profile("sequential_s", "amdahl = { serial = 0 }\nsequential_s"), 1, "not several"),
            (format!("{PROFILE}{PROFILE}"), 5, "twice"),
            (profile("sequential_s", "rounds = 3\nsequential_s"), 3, "rounds: there are no phases"),
            (
                profile("sequential_s", "cache = 1\nphases = [{}]\nsequential_s"),
                3,
                "each of the phases says this",
            ),
            (
                profile("sequential_s", "phases = [{ work = 0 }]\nsequential_s"),
                3,
                "phases.work: must be a number",
            ),
            (profile("sequential_s", "phases = [{ curve = 1 }]\nsequential_s"), 3, "phases.curve"),
        ] {
            let error = parse(&text, false).unwrap_err();
            let message = error.to_string();
            assert!(
                error.position.is_some_and(|at| at.0 == line) && message.contains(wanted),
                "{text}\n{message}"
            );
        }
        assert!(parse(PROFILE, false).unwrap_err().to_string().contains("there is no job"));
    }

    #[test]
    fn phases_make_up_the_whole_work_and_its_means() {
        let phases =
            "phases = [{ bandwidth = 0.25, loads_per_s = 1e9 }, { work = 3, bandwidth = 0.5 }]\nrounds = 5\n";
        let text = format!("{PROFILE}{phases}[[program]]\nprofile = 'mine'\n");
        let ScenarioFile::Fixed(scenario) = parse(&text, false).unwrap() else { panic!() };
        let profile = &scenario.jobs[0].profile;
        assert_eq!((profile.bandwidth, profile.loads_per_s, profile.rounds), (0.4375, 2.5e8, 5));
        assert_eq!(profile.phases.iter().map(|phase| phase.work).collect::<Vec<_>>(), [0.25, 0.75]);
    }

    #[test]
    fn lenient_leaves_wrong_programs_out_and_counts_them() {
        let text = format!("{PROFILE}[[program]]\nprofile = 'mine'\n[[program]]\nprofile = 'other'\n");
        let ScenarioFile::Fixed(scenario) = parse(&text, true).unwrap() else { panic!() };
        assert_eq!((scenario.jobs.len(), scenario.skipped), (1, 1));
    }

    #[test]
    fn a_falling_curve_is_accepted_where_it_was_measured() {
        let text =
            PROFILE.replace("12 = 4", "12 = 2.5") + "may_slow_down = true\n[[program]]\nprofile = 'mine'\n";
        assert!(parse(&text, false).is_ok());
    }

    #[test]
    fn lenient_reading_skips_wrong_profiles_and_keys() {
        let wrong = "[[profile]]\nname = 'bad'\nsequential_s = -1\namdahl = { serial = 0 }\n";
        let programs = "[[program]]\nprofile = 'mine'\n[[program]]\nprofile = 'bad'\n[[program]]\nprofile = \
                        'mine'\ncolour = 'red'\n";
        let text = format!("{PROFILE}{wrong}{programs}");
        assert!(parse(&text, false).is_err());
        let ScenarioFile::Fixed(scenario) = parse(&text, true).unwrap() else { panic!() };
        assert_eq!((scenario.jobs.len(), scenario.skipped), (1, 2));
        // The model's program of that name is not what the file means.
        let known = [Arc::new(Profile::plain("bad", 1_000_000_000, Curve::Linear))];
        let ScenarioFile::Fixed(scenario) =
            ScenarioFile::parse(&text, Path::new("w.toml"), &known, true).unwrap()
        else {
            panic!()
        };
        assert_eq!((scenario.jobs.len(), scenario.skipped), (1, 2));
    }

    #[test]
    fn a_curve_that_rises_in_time_is_named_with_its_line() {
        let profile = "[[profile]]\nname = 'mine'\nsequential_s = 10\n\
                       sevcik = { imbalance = 1, serial = 0, overhead_per_cpu = 0.01 }\n";
        let fixed = |more: &str, job: &str| {
            let text = format!("{profile}{more}[[program]]\nprofile = 'mine'\n{job}");
            let ScenarioFile::Fixed(scenario) = parse(&text, false).unwrap() else { panic!() };
            scenario
        };
        // 1/n + n/100 is least at 10.
        let scenario = fixed("", "");
        assert_eq!(scenario.speeds_up(10), Ok(()));
        let error = scenario.speeds_up(24).unwrap_err().to_string();
        assert!(error.starts_with("line 5: mine: mine takes longer on 11 CPUs than on 10"), "{error}");
        assert_eq!(scenario.without_unfit(24).skipped, 1);
        assert_eq!(fixed("may_slow_down = true\n", "").speeds_up(24), Ok(()));
        assert_eq!(fixed("", "[program.demand]\nmax_threads = 10\n").speeds_up(24), Ok(()));
    }
}
