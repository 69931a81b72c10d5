//! The Standard Workload Format, version 2 (Chapin and others 1999): one job a line, 18 fields,
//! comments after `;`.
//!
//! Read are fields 1 (number), 2 (submit time, s), 4 (run time, s), 5 (processors allocated) and 8
//! (processors requested, which goes before 5 where it is known). Every job is rigid: it runs for its
//! run time on as many CPUs as it has processors, and no CPU more helps it. -1 is "unknown".

use std::path::Path;
use std::sync::Arc;

use crate::{AppId, Curve, Demand, Job, Malleability, MixError, Profile, Scenario};

const FIELDS: usize = 18;

/// Ten years; longer is a typing error, and nanoseconds stay far from overflow.
const LONGEST_S: f64 = 3.2e8;

impl Scenario {
    /// `path` is named in errors and not read. `lenient` leaves lines out that are wrong, and counts
    /// them; else the first one is an error. Times count from the first submission.
    pub fn parse_swf(text: &str, path: &Path, lenient: bool) -> Result<Scenario, MixError> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut skipped = 0;
        let mut seen = std::collections::BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split(';').next().unwrap_or_default();
            if content.trim().is_empty() {
                continue;
            }
            let parsed = job(content, index + 1).and_then(|job| match seen.insert(job.id.clone()) {
                true => Ok(job),
                false => Err(format!("job number {} stands in the file twice", &job.id.as_str()[1..])),
            });
            match parsed {
                Ok(job) => jobs.push(job),
                Err(_) if lenient => skipped += 1,
                Err(what) => {
                    let position = Some((index + 1, 1));
                    return Err(MixError { path: path.to_owned(), position, key: None, what });
                }
            }
        }
        if jobs.is_empty() {
            return Err(MixError::whole(path, "there is no job that can be run"));
        }
        let first = jobs.iter().map(|job| job.arrive_ns).min().unwrap_or(0);
        jobs.iter_mut().for_each(|job| job.arrive_ns -= first);
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("workload");
        Ok(Scenario { skipped, ..Scenario::new(name, jobs) })
    }
}

fn job(line: &str, number: usize) -> Result<Job, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if fields.len() != FIELDS {
        return Err(format!("has {} fields; a line of SWF has {FIELDS}", fields.len()));
    }
    let value = |field: usize, what: &str| -> Result<f64, String> {
        let text = fields[field - 1];
        let number: f64 =
            text.parse().map_err(|_| format!("field {field} ({what}) is '{text}', not a number"))?;
        if number.is_finite() && number <= LONGEST_S {
            Ok(number)
        } else {
            Err(format!("field {field} ({what}) is {text}, which is beyond {LONGEST_S:e}"))
        }
    };
    for field in 1..=FIELDS {
        value(field, "any")?;
    }
    let id = value(1, "job number")?;
    if id < 1.0 || id.fract() != 0.0 {
        return Err(format!("field 1 (job number) is {id}; numbers begin at 1"));
    }
    let submit_s = value(2, "submit time")?;
    if submit_s < 0.0 {
        return Err(format!("field 2 (submit time) is {submit_s} s; it must be 0 or more"));
    }
    let run_s = value(4, "run time")?;
    if run_s <= 0.0 {
        return Err(format!("field 4 (run time) is {run_s} s; without a run time there is nothing to run"));
    }
    let (requested, allocated) = (value(8, "requested processors")?, value(5, "allocated processors")?);
    let width = if requested > 0.0 { requested } else { allocated };
    if width < 1.0 || width.fract() != 0.0 || width > f64::from(topology::MAX_CPUS) {
        return Err(format!(
            "fields 8 and 5 (processors requested, allocated) are {requested} and {allocated}; one must be a \
             whole number from 1 to {}",
            topology::MAX_CPUS
        ));
    }
    let run_ns = (run_s * 1e9) as u64;
    let width = width as u32;
    // Wide jobs run long in CPU time: the length stands for one CPU, and width CPUs divide it.
    let profile =
        Profile { regions: 1, ..Profile::plain("rigid", run_ns.saturating_mul(width.into()), Curve::Linear) };
    let demand = Demand {
        malleability: Malleability::Rigid,
        min_threads: width,
        max_threads: Some(width),
        ..Demand::default()
    };
    Ok(Job {
        id: AppId::new(&format!("j{id}")).map_err(|error| error.to_string())?,
        arrive_ns: (submit_s * 1e9) as u64,
        profile: Arc::new(profile),
        demand,
        line: Some(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "3 20 -1 60 4 -1 -1 8 -1 -1 1 -1 -1 -1 0 -1 -1 -1";

    fn parse(text: &str, lenient: bool) -> Result<Scenario, MixError> {
        Scenario::parse_swf(text, Path::new("w.swf"), lenient)
    }

    #[test]
    fn jobs_are_rigid_and_requested_processors_go_before_allocated_ones() {
        let text =
            format!("; Version: 2\n\n{GOOD}\n4 25 -1 60 4 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1 ; said");
        let scenario = parse(&text, false).unwrap();
        let jobs: Vec<_> = scenario
            .jobs
            .iter()
            .map(|job| (job.id.as_str().to_owned(), job.arrive_ns, job.needs(), job.line))
            .collect();
        assert_eq!(jobs, [("j3".into(), 0, 8, Some(3)), ("j4".into(), 5_000_000_000, 4, Some(4))]);
        assert_eq!(scenario.jobs[0].profile.sequential_ns, 8 * 60_000_000_000);
    }

    #[test]
    fn every_wrong_line_is_named_with_its_rule_or_skipped_and_counted() {
        for (line, wanted) in [
            ("1 2 3", "3 fields; a line of SWF has 18"),
            (&GOOD.replace("20", "-5"), "submit time) is -5 s"),
            (&GOOD.replace("60", "-1"), "without a run time"),
            (&GOOD.replace("60", "soon"), "'soon', not a number"),
            (&GOOD.replace(" 8 ", " -1 ").replace(" 4 ", " 0 "), "processors requested"),
            (&GOOD.replace("3 20", "0 20"), "numbers begin at 1"),
            (GOOD, "twice"),
            (&GOOD.replace("60", "1e300"), "beyond"),
        ] {
            let text = format!("{GOOD}\n{line}");
            let error = parse(&text, false).unwrap_err().to_string();
            assert!(error.starts_with("w.swf:2:1") && error.contains(wanted), "{error}");
            let scenario = parse(&text, true).unwrap();
            assert_eq!((scenario.jobs.len(), scenario.skipped), (1, 1));
        }
        assert!(parse("; nothing", true).unwrap_err().to_string().contains("no job"));
    }
}
