//! The page of a simulation: its charts show what the figures say.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::world::World;

/// Every value of an attribute in an SVG, in order.
fn attributes<'s>(svg: &'s str, before: &str) -> Vec<&'s str> {
    svg.split(before).skip(1).map(|rest| rest.split('"').next().expect("an attribute ends")).collect()
}

fn numbers(values: &[&str]) -> Vec<f64> {
    values.iter().map(|value| value.parse().unwrap_or_else(|_| panic!("{value} is no number"))).collect()
}

/// Points of each line of a chart.
fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let points = |line: &str| {
        let pairs = line.split(' ').map(|pair| pair.split_once(',').expect("x,y"));
        pairs.map(|(x, y)| (x.parse().expect("x"), y.parse().expect("y"))).collect()
    };
    attributes(svg, "<polyline points=\"").into_iter().map(points).collect()
}

/// A page of TA and CO on a set of forty jobs, its charts, and the same simulations as JSON.
fn simulated() -> (String, Vec<String>, Value) {
    let world = World::new();
    let arguments = ["simulate", "set:A", "--seeds", "2", "--machine", "pack:2 core:3", "--policy", "TA,CO"];
    let output = world.run(&[&arguments[..], &["--json", "--html", "p.html"]].concat());
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(world.path("p.html")).unwrap();
    let charts = page.split("<svg").skip(1).map(|rest| rest.split("</svg>").next().unwrap().to_owned());
    let charts: Vec<String> = charts.collect();
    (page, charts, serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn pictures_of_a_simulation_stand_on_one_page_without_a_network() {
    let (page, charts, _) = simulated();
    for wanted in
        ["Programs over time", "Who ran where", "Slowdowns", "Policies side by side", "A simulation"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert_eq!(charts.len(), 4 + 2 + 2);
    assert!(!page.contains("src=") && !page.replace("http://www.w3.org/2000/svg", "").contains("http"));
}

#[test]
fn bars_and_the_table_show_the_means_of_the_result() {
    let (page, charts, result) = simulated();
    for (chart, figure) in charts.iter().zip(["makespan_s", "mean_slowdown", "reconfigurations", "jain"]) {
        let mean = |policy: usize| result["policies"][policy]["figures"][figure]["mean"].as_f64().unwrap();
        let bars: Vec<&str> = chart.lines().filter(|line| line.starts_with("<rect")).collect();
        let heights = numbers(&bars.iter().flat_map(|bar| attributes(bar, " height=\"")).collect::<Vec<_>>());
        assert_eq!(heights.len(), 2, "{figure}: {bars:?}");
        // Heights are rounded to tenths of a pixel.
        let off = (heights[0] * mean(1) / mean(0) - heights[1]).abs();
        assert!(heights[0] > 1.0 && off < 0.2, "{figure}: {heights:?}");
        let row = page.lines().find(|line| line.contains(&format!(">{figure}</td>"))).expect("its row");
        for policy in [0, 1] {
            assert!(row.contains(&format!("<td>{:.3} ± ", mean(policy))), "{row}");
        }
    }
}

#[test]
fn programs_over_time_come_one_by_one_and_nobody_is_left() {
    let (_, charts, _) = simulated();
    let lines = lines(&charts[4]);
    assert_eq!(lines.len(), 2);
    for line in lines {
        let (floor, last) = (238.0, line[line.len() - 1]);
        assert!(line.windows(2).all(|two| two[0].0 <= two[1].0), "time goes on");
        assert_eq!(last.1, floor, "nobody is left at the end");
        let rises: Vec<f64> = std::iter::once(floor - line[0].1)
            .chain(line.windows(2).map(|two| two[0].1 - two[1].1))
            .filter(|rise| *rise > 0.01)
            .collect();
        let one = rises.iter().copied().fold(f64::INFINITY, f64::min);
        let came = rises.iter().sum::<f64>() / one;
        assert!((came - 40.0).abs() < 2.0, "{came} programs came");
    }
}

#[test]
fn the_curve_of_slowdowns_reaches_all_jobs_at_the_worst_of_them() {
    let (_, charts, _) = simulated();
    let lines = lines(&charts[5]);
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(line.len() > 80, "one point for each of eighty jobs");
        assert!(line.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 >= two[1].1), "it rises");
        assert_eq!(line[line.len() - 1].1, 14.0, "all jobs");
    }
    // The worse policy's worst job is where the axis ends.
    let ends = lines.iter().map(|line| line[line.len() - 1].0);
    assert_eq!(ends.fold(0.0, f64::max), 984.0);
}

#[test]
fn the_timeline_shows_every_program_on_cpus_of_the_machine() {
    let (_, charts, _) = simulated();
    for chart in &charts[6..] {
        let bands: Vec<&str> = chart.lines().filter(|line| line.starts_with("<g><title>")).collect();
        let names: BTreeSet<&str> =
            bands.iter().filter_map(|band| band["<g><title>".len()..].split(" on CPUs ").next()).collect();
        assert_eq!(names.len(), 40, "{names:?}");
        let place = |band: &&'_ str| -> String {
            let after = band.split(" on CPUs ").nth(1).expect("where");
            after.split(", ").next().expect("CPUs").to_owned()
        };
        let cpus: String = bands.iter().map(place).collect();
        assert!(cpus.chars().all(|letter| "012345,-".contains(letter)), "{cpus:?}");
        let coloured = chart.lines().filter(|line| line.starts_with("<rect x=\"")).count();
        assert!(coloured >= bands.len(), "{coloured} bars of {} bands", bands.len());
    }
}
