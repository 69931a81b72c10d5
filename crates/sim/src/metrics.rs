//! What a simulation comes to, each figure with its unit and formula.

use serde::Serialize;

use crate::run::{JobOutcome, Outcome};

/// One column of what is printed and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its name in tables and files, with the unit if there is one.
    pub name: &'static str,
    /// `s`, or `1` for what has no unit.
    pub unit: &'static str,
    /// How it is computed.
    pub formula: &'static str,
}

const fn column(name: &'static str, unit: &'static str, formula: &'static str) -> Column {
    Column { name, unit, formula }
}

/// What [`Figures::values`] are, in order.
pub const COLUMNS: [Column; 19] = [
    column("makespan_s", "s", "time with at least one program present (arrived, not ended)"),
    column("mean_response_s", "s", "mean over jobs of end - arrival"),
    column("mean_slowdown", "1", "mean over jobs of (end - arrival) / time alone on the whole machine"),
    column("median_slowdown", "1", "the slowdown that half of the jobs do not exceed"),
    column("p95_slowdown", "1", "the slowdown that 95% of the jobs do not exceed"),
    column("p99_slowdown", "1", "the slowdown that 99% of the jobs do not exceed"),
    column("max_slowdown", "1", "the largest slowdown"),
    column("antt", "1", "average normalised turnaround time: the mean slowdown"),
    column("stp", "1", "system throughput: sum over jobs of 1 / slowdown"),
    column("mean_wait_s", "s", "mean over jobs of first CPU - arrival"),
    column("reconfigurations", "1", "team sizes taken up after the first, summed over jobs"),
    column("moves", "1", "changes of place by which a job lost CPUs and got others, summed over jobs"),
    column("migrations", "1", "moves that left one memory domain for another, summed over jobs"),
    column("utilisation", "1", "CPU time used by jobs, working or spinning / (CPUs x makespan)"),
    column("efficiency", "1", "sequential run time of all jobs / CPU time used by them"),
    column("jain", "1", "(sum x)^2 / (n sum x^2), x = CPU time used / CPU time entitled to, of each job"),
    column("least_served", "1", "the smallest x of a job"),
    column("mean_present", "1", "programs present on average while at least one is"),
    column("decisions", "1", "plans that the policy made"),
];

/// The figures of one simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Figures {
    /// As [`COLUMNS`] says.
    pub values: Vec<f64>,
}

impl Figures {
    /// The figures of an outcome.
    pub fn of(outcome: &Outcome) -> Figures {
        let jobs = &outcome.jobs;
        let count = jobs.len().max(1) as f64;
        let sum = |what: &dyn Fn(&JobOutcome) -> f64| jobs.iter().map(what).sum::<f64>();
        let mut slowdowns: Vec<f64> = jobs.iter().map(JobOutcome::slowdown).collect();
        slowdowns.sort_by(f64::total_cmp);
        let used_ns = sum(&|job| job.cpu_ns);
        let makespan_ns = (outcome.makespan_ns as f64).max(1.0);
        let served: Vec<f64> = jobs.iter().map(|job| job.cpu_ns / job.entitled_ns.max(1.0)).collect();
        let squares: f64 = served.iter().map(|x| x * x).sum();
        let mean_slowdown = slowdowns.iter().sum::<f64>() / count;
        let values = vec![
            makespan_ns / 1e9,
            sum(&JobOutcome::response_ns) / count / 1e9,
            mean_slowdown,
            quantile(&slowdowns, 0.5),
            quantile(&slowdowns, 0.95),
            quantile(&slowdowns, 0.99),
            quantile(&slowdowns, 1.0),
            mean_slowdown,
            slowdowns.iter().map(|slowdown| 1.0 / slowdown).sum(),
            sum(&|job| (job.started_ns - job.arrived_ns) as f64) / count / 1e9,
            sum(&|job| f64::from(job.reconfigurations)),
            sum(&|job| f64::from(job.moves)),
            sum(&|job| f64::from(job.domain_moves)),
            used_ns / (f64::from(outcome.cpus) * makespan_ns),
            sum(&|job| job.sequential_ns) / used_ns.max(1.0),
            served.iter().sum::<f64>().powi(2) / (count * squares).max(f64::MIN_POSITIVE),
            served.iter().copied().fold(f64::INFINITY, f64::min),
            sum(&JobOutcome::response_ns) / makespan_ns,
            outcome.decisions as f64,
        ];
        Figures { values }
    }

    /// The figure of a column; `None`: there is no such column.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(COLUMNS.iter().position(|column| column.name == name)?).copied()
    }
}

impl JobOutcome {
    /// From its arrival to its end, in nanoseconds.
    pub fn response_ns(&self) -> f64 {
        (self.ended_ns - self.arrived_ns) as f64
    }

    /// Response time over time alone; so far, of one that has not ended. Infinite while it has done nothing.
    pub fn slowdown(&self) -> f64 {
        if self.done == 0.0 {
            f64::INFINITY
        } else {
            self.response_ns() / (self.alone_ns * self.done).max(1.0)
        }
    }
}

/// The smallest value that at least `share` of all do not exceed; 0 where there is none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Mean, and the half width of its 95% confidence interval (Student's t); 0 where one value tells no
/// width.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (n - 1.0);
    (mean, student(values.len() - 1) * (variance / n).sqrt())
}

/// Student's t for 95%: exact to the third digit for few degrees of freedom, and by the first terms of
/// its expansion around the normal distribution beyond.
fn student(freedom: usize) -> f64 {
    const EXACT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let v = freedom as f64;
    EXACT.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.95996 + 2.3722 / v + 2.8225 / (v * v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|share| quantile(&values, share)), [50.0, 95.0, 99.0, 100.0]);
        assert_eq!(quantile(&[3.0], 0.5), 3.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_interval_of_a_mean_is_student_s() {
        let (mean, error) = mean_and_error(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (error - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(mean_and_error(&[5.0]), (5.0, 0.0));
        // Tables give 2.042 for 30 and 1.984 for 100 degrees of freedom.
        assert!((student(30) - 2.042).abs() < 2e-3 && (student(100) - 1.984).abs() < 1e-3);
    }
}
