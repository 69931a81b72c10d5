//! The Standard Workload Format, version 2 (Chapin and others 1999): one job a line, 18 fields,
//! comments after `;`.
//!
//! Read are fields 1 (number), 2 (submit time, s), 4 (run time, s), 5 (processors allocated) and 8
//! (processors requested, which goes before 5 where it is known); of the others nothing is asked, and converters
//! put into them what they like. Every job is rigid: it runs for its run time on as many CPUs as it has
//! processors, and no CPU more helps it. -1 is "unknown".

use std::path::Path;
use std::sync::Arc;

use crate::{AppId, Curve, Demand, Job, Malleability, MixError, Profile, Scenario, text};

const FIELDS: usize = 18;

/// Ten years; longer is a typing error, and nanoseconds stay far from overflow.
const LONGEST_S: f64 = 3.2e8;
/// Submit times may count from anywhere, mostly from 1970; this is far beyond, and no milliseconds since then.
const LATEST_S: f64 = 1e11;
/// A run time of 0 means less than half a second; what a job of that length takes in the middle.
const SHORT_S: f64 = 0.25;
/// What Slurm writes for "no value" and for "no limit".
const SLURM_UNKNOWN: [f64; 2] = [4_294_967_294.0, 4_294_967_295.0];
/// What `lenient` is for people.
const HINT: &str = "--lenient leaves out lines that cannot be run";

impl Scenario {
    /// `path` is named in errors and not read. `lenient` leaves lines out that are wrong, and counts
    /// them; else the first one is an error. Times count from the first submission.
    pub fn parse_swf(text: &str, path: &Path, lenient: bool) -> Result<Scenario, MixError> {
        let mut jobs: Vec<(Submitted, usize)> = Vec::new();
        let mut skipped = 0;
        let mut ids = std::collections::BTreeSet::new();
        let mut first_s: Option<f64> = None;
        let wrong = |line: usize, what: String| MixError {
            path: path.to_owned(),
            position: Some((line, 1)),
            key: None,
            what: format!("{what} ({HINT})"),
        };
        for (index, line) in text::lines(text).enumerate() {
            let content = line.split(';').next().unwrap_or_default();
            if content.trim().is_empty() {
                continue;
            }
            let parsed = job(content, index + 1).and_then(|job| match ids.insert(job.job.id.clone()) {
                true => Ok(job),
                false => Err(format!("job number {} stands in the file twice", &job.job.id.as_str()[1..])),
            });
            match parsed {
                Ok(job) => {
                    first_s = Some(first_s.map_or(job.submit_s, |first| first.min(job.submit_s)));
                    jobs.push((job, index + 1));
                }
                Err(_) if lenient => skipped += 1,
                Err(what) => return Err(wrong(index + 1, what)),
            }
        }
        let Some(first_s) = first_s else {
            return Err(MixError::whole(path, "there is no job that can be run"));
        };
        let mut played = Vec::new();
        for (Submitted { mut job, submit_s }, line) in jobs {
            let after_s = submit_s - first_s;
            if after_s <= LONGEST_S {
                job.arrive_ns = (after_s * 1e9) as u64;
                played.push(job);
            } else if lenient {
                skipped += 1;
            } else {
                let what = format!(
                    "field 2 (submit time) is {submit_s}, {after_s} s after the first job's; more than \
                     {LONGEST_S:e} s is no workload"
                );
                return Err(wrong(line, what));
            }
        }
        let jobs = played;
        let stem = path.file_stem().map(Path::new);
        let inner = stem.filter(|stem| stem.extension().is_some_and(|end| end.eq_ignore_ascii_case("swf")));
        let stem = inner.and_then(Path::file_stem).or(path.file_stem());
        let name = stem.and_then(|stem| stem.to_str()).unwrap_or("workload");
        Ok(Scenario { skipped, ..Scenario::new(name, jobs) })
    }
}

/// A job and when it was submitted, by whatever clock.
struct Submitted {
    job: Job,
    submit_s: f64,
}

fn job(line: &str, number: usize) -> Result<Submitted, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if fields.len() != FIELDS {
        return Err(format!("has {} fields; a line of SWF has {FIELDS}", fields.len()));
    }
    let value = |field: usize, what: &str, most: f64| -> Result<f64, String> {
        let text = fields[field - 1];
        let number: f64 =
            text.parse().map_err(|_| format!("field {field} ({what}) is '{text}', not a number"))?;
        if number.is_finite() && number <= most {
            Ok(number)
        } else {
            Err(format!("field {field} ({what}) is {text}, which is beyond {most:e}"))
        }
    };
    let id = value(1, "job number", 1e15)?;
    if id < 0.0 || id.fract() != 0.0 {
        return Err(format!("field 1 (job number) is {id}; it must be a whole number, 0 or more"));
    }
    let submit_s = value(2, "submit time", LATEST_S)?;
    if submit_s < 0.0 {
        return Err(format!("field 2 (submit time) is {submit_s} s; it must be 0 or more"));
    }
    let run_s = value(4, "run time", LONGEST_S)?;
    if run_s < 0.0 {
        let why = match fields[10] {
            "5" => "the job was cancelled (field 11 is 5) and never ran",
            _ => "without a run time there is nothing to run",
        };
        return Err(format!("field 4 (run time) is {run_s} s; {why}"));
    }
    let width =
        width(value(8, "requested processors", f64::MAX)?, value(5, "allocated processors", f64::MAX)?)?;
    let run_s = if run_s == 0.0 { SHORT_S } else { run_s };
    let run_ns = (run_s * 1e9) as u64;
    // Wide jobs run long in CPU time: the length stands for one CPU, and width CPUs divide it.
    let profile =
        Profile { regions: 1, ..Profile::plain("rigid", run_ns.saturating_mul(width.into()), Curve::Linear) };
    let demand = Demand {
        malleability: Malleability::Rigid,
        min_threads: width,
        max_threads: Some(width),
        ..Demand::default()
    };
    let id = AppId::new(&format!("j{id}")).map_err(|error| error.to_string())?;
    let job = Job { id, arrive_ns: 0, profile: Arc::new(profile), demand, line: Some(number) };
    Ok(Submitted { job, submit_s })
}

/// The CPUs of a job: what it asked for where that is known, else what it got.
fn width(requested: f64, allocated: f64) -> Result<u32, String> {
    let known = |processors: f64| processors > 0.0 && !SLURM_UNKNOWN.contains(&processors);
    let width = if known(requested) { requested } else { allocated };
    if known(width) && width.fract() == 0.0 && width <= f64::from(topology::MAX_CPUS) {
        return Ok(width as u32);
    }
    Err(format!(
        "fields 8 and 5 (processors requested, allocated) are {requested} and {allocated}; one must be a whole \
         number from 1 to {}",
        topology::MAX_CPUS
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "3 20 -1 60 4 -1 -1 8 -1 -1 1 -1 -1 -1 0 -1 -1 -1";

    fn parse(text: &str, lenient: bool) -> Result<Scenario, MixError> {
        Scenario::parse_swf(text, Path::new("w.swf"), lenient)
    }

    #[test]
    fn jobs_are_rigid_and_requests_precede_allocations() {
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
    fn every_wrong_line_is_named_or_skipped_and_counted() {
        for (line, wanted) in [
            ("1 2 3", "3 fields; a line of SWF has 18"),
            (&GOOD.replace("20", "-5"), "submit time) is -5 s"),
            (&GOOD.replace("60", "-1"), "without a run time"),
            (&GOOD.replace("60", "-1").replace("-1 -1 1 -1", "-1 -1 5 -1"), "cancelled"),
            (&GOOD.replace("60", "soon"), "'soon', not a number"),
            (&GOOD.replace(" 8 ", " -1 ").replace(" 4 ", " 0 "), "processors requested"),
            (&GOOD.replace("3 20", "-1 20"), "0 or more"),
            (&GOOD.replace("3 20", "1.5 20"), "whole number"),
            (&GOOD.replace("3 20", "4 1e9"), "s after the first job's"),
            (&GOOD.replace("3 20", "4 1700000000000"), "beyond 1e11"),
            (&GOOD.replace(" 8 ", " 1000000 "), "processors requested"),
            (GOOD, "twice"),
            (&GOOD.replace("60", "1e300"), "beyond"),
        ] {
            let text = format!("{GOOD}\n{line}");
            let error = parse(&text, false).unwrap_err().to_string();
            assert!(error.starts_with("w.swf:2:1") && error.contains(wanted), "{error}");
            assert!(error.contains("--lenient"), "{error}");
            let scenario = parse(&text, true).unwrap();
            assert_eq!((scenario.jobs.len(), scenario.skipped), (1, 1));
        }
        assert!(parse("; nothing", true).unwrap_err().to_string().contains("no job"));
    }

    #[test]
    fn logs_as_archives_and_converters_have_them_are_read() {
        // Times since 1970, a run time of 0, Slurm's numbers for no limit and no value, tabs, a number of 0.
        let text = "; UnixStartTime: 1700000000\r\n\
             0 1700000000.5 3 0 4 -1 -1 4 4294967295 9223372036854785808 -1 7 x - 1 -1 -1 -1\r\n\
             1\t1700000030.5\t3\t20\t2\t-1\t-1\t4294967294\t-1\t1e300\t1\t7\t2\t-1\t1\t-1\t-1\t-1\r\n";
        for text in [text.to_owned(), text.replace("\r\n", "\r"), text.replace('\r', "")] {
            let jobs = parse(&text, false).unwrap().jobs;
            let shown: Vec<_> =
                jobs.iter().map(|job| (job.id.as_str(), job.arrive_ns, job.needs(), job.line)).collect();
            assert_eq!(shown, [("j0", 0, 4, Some(2)), ("j1", 30_000_000_000, 2, Some(3))]);
            assert_eq!(jobs[0].profile.sequential_ns, 4 * 250_000_000);
        }
    }

    #[test]
    fn a_packed_log_is_named_as_it_is_unpacked() {
        let scenario = Scenario::parse_swf(GOOD, Path::new("a/l_256.swf.gz"), false).unwrap();
        assert_eq!(scenario.name, "l_256");
    }
}
