//! Simulations as one self-contained page: no network, light and dark.

use std::fmt::Write;

use sim::COLUMNS;
use sim::metrics::mean_and_error;

use super::output::values;
use super::scenario::{Asked, Ran};
use crate::chart::{self, Axes, Line};
use crate::timeline::html::escape;
use crate::timeline::{Program, Timeline, picture, segments};

const STYLE: &str = include_str!("page.css");

/// Figures that stand side by side.
const SIDE_BY_SIDE: [(&str, &str); 4] = [
    ("makespan_s", "makespan, s"),
    ("mean_slowdown", "mean slowdown"),
    ("reconfigurations", "teams resized"),
    ("jain", "fairness (Jain)"),
];

/// Jobs that can be told apart in rows of CPUs.
const MOST_IN_ROWS: usize = 200;

/// Points of a curve of a distribution; more are not told apart.
const POINTS: usize = 400;

pub fn render(asked: &Asked, ran: &[Ran]) -> String {
    let title = format!("{} on {}", asked.workload, asked.machine.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{0} · coplace</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{0}</h1>\n<p>A simulation: {1} jobs, {2} CPUs, {3}. The policies are coplace's; the machine \
         and its programs are a model.</p>\n",
        escape(&title),
        asked.jobs,
        asked.machine.pu_count(),
        match asked.seeds[..] {
            [seed] => format!("seed {seed}"),
            _ => format!("{} workloads", asked.seeds.len()),
        }
    );
    section(
        &mut page,
        "Policies side by side",
        "Means over the workloads, with 95% intervals.",
        &comparison(ran),
    );
    section(
        &mut page,
        "Programs over time",
        "Present (arrived, not ended) in the first workload.",
        &over_time(ran),
    );
    section(
        &mut page,
        "Slowdowns",
        "Share of the jobs of all workloads whose slowdown is no larger (to the right, with equal factors).",
        &slowdowns(ran),
    );
    for ran in ran {
        let about = "One row a CPU, in the first workload; a band's height is its share of the CPU's time.";
        section(&mut page, &format!("Who ran where: {}", ran.name), about, &gantt(asked, ran));
    }
    section(&mut page, "All figures", "Mean ± half of the 95% interval.", &figures(ran));
    page + "</main>\n</body>\n</html>\n"
}

fn section(page: &mut String, title: &str, about: &str, content: &str) {
    let _ = writeln!(page, "<section><h2>{}</h2><p>{}</p>{content}</section>", escape(title), escape(about));
}

fn column(name: &str) -> usize {
    COLUMNS.iter().position(|column| column.name == name).expect("a column of ours")
}

fn comparison(ran: &[Ran]) -> String {
    let chart = |(name, title): (&str, &str)| {
        let bar = |ran: &Ran| {
            let (mean, error) = mean_and_error(&values(ran, column(name)));
            (ran.letters.clone(), mean, error)
        };
        chart::bars(title, &ran.iter().map(bar).collect::<Vec<_>>())
    };
    SIDE_BY_SIDE.map(chart).concat()
}

fn over_time(ran: &[Ran]) -> String {
    let line = |ran: &Ran| {
        let points =
            ran.played[0].present.iter().map(|&(at_ns, count)| (at_ns as f64 / 1e9, f64::from(count)));
        Line { name: ran.name.clone(), points: points.collect(), steps: true }
    };
    let axes = Axes { title: "Programs over time", x: "time, s", y: "programs present", log_x: false };
    chart::lines(&axes, &ran.iter().map(line).collect::<Vec<_>>())
}

fn slowdowns(ran: &[Ran]) -> String {
    let line = |ran: &Ran| {
        let jobs = ran.played.iter().flat_map(|played| &played.jobs);
        let mut all: Vec<f64> = jobs.map(|job| job.slowdown()).collect();
        all.sort_by(f64::total_cmp);
        let every = all.len().div_ceil(POINTS).max(1);
        let share = |at: usize| 100.0 * (at + 1) as f64 / all.len() as f64;
        let points = (0..all.len()).filter(|at| at % every == 0 || at + 1 == all.len());
        Line { name: ran.name.clone(), points: points.map(|at| (all[at], share(at))).collect(), steps: true }
    };
    let axes = Axes { title: "Distribution of slowdowns", x: "slowdown", y: "% of jobs", log_x: true };
    chart::lines(&axes, &ran.iter().map(line).collect::<Vec<_>>())
}

fn gantt(asked: &Asked, ran: &Ran) -> String {
    let played = &ran.played[0];
    if played.jobs.len() > MOST_IN_ROWS {
        return format!("<p>{} jobs are too many to be told apart.</p>", played.jobs.len());
    }
    let end_ns = played.jobs.iter().map(|job| job.ended_ns).max().unwrap_or(0);
    let program = |job: &sim::JobOutcome| Program {
        app: job.id.clone(),
        command: job.program.clone(),
        arrived_ns: job.arrived_ns,
        started_ns: Some(job.started_ns),
        ended_ns: (job.done == 1.0).then_some(job.ended_ns),
        response_ns: Some(job.response_ns() as u64),
        alone_ns: Some(job.alone_ns as u64),
        slowdown: Some(job.slowdown()),
        ending: String::new(),
        well: true,
    };
    let timeline = Timeline {
        title: format!("{} under {}", asked.workload, ran.name),
        policy: ran.name.clone(),
        facts: Vec::new(),
        cpus: asked.machine.all_cpus().clone(),
        end_ns,
        programs: played.jobs.iter().map(program).collect(),
        segments: segments(&played.plans, end_ns),
        makespan_ns: played.makespan_ns,
        antt: None,
        stp: None,
    };
    picture::render(&timeline, 1000)
}

fn figures(ran: &[Ran]) -> String {
    let mut table = String::from("<table><tr><th>figure</th>");
    ran.iter().for_each(|ran| table += &format!("<th>{}</th>", escape(&ran.letters)));
    table += "<th>unit</th></tr>\n";
    for (at, column) in COLUMNS.iter().enumerate() {
        let _ = write!(table, "<tr><td title=\"{}\">{}</td>", escape(column.formula), escape(column.name));
        for ran in ran {
            let (mean, error) = mean_and_error(&values(ran, at));
            let _ = write!(table, "<td>{mean:.3} ± {error:.3}</td>");
        }
        let _ = writeln!(table, "<td>{}</td></tr>", escape(column.unit));
    }
    table + "</table>"
}
