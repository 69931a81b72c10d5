//! Fits the parameters that neither Table I nor the text gives, on set B of Table III alone, and prints
//! what the others come to. `fit WORKLOADS STEPS [name=value …]`; the values are where it begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use coplace_sim::{Figures, Knowledge, Model, Setup, simulate};
use policy::Settings;
use topology::Machine;
use workload::{Generator, Profile, Waiting};

/// Name, lowest, highest.
const FREE: [(&str, f64, f64); 10] = [
    ("bandwidth_weight", 0.0, 4.0),
    ("refill_ns", 0.0, 2e6),
    ("remote", 0.0, 12.0),
    ("migrate_bytes_per_s", 1e7, 2e9),
    ("start_ns", 0.0, 3e9),
    ("start_ns_per_mib", 0.0, 3e6),
    ("lu.cache", 0.0, 3.0),
    ("lu.scatter", 0.0, 1.0),
    ("cg.cache", 0.0, 3.0),
    ("all.scatter", 0.0, 1.0),
];

type Values = BTreeMap<String, f64>;

fn model(values: &Values) -> Model {
    let mut model = Model::built_in();
    let laws = &mut model.laws;
    for (name, &value) in values {
        match name.as_str() {
            "bandwidth_weight" => laws.bandwidth_weight = value,
            "switch_ns" => laws.switch_ns = value,
            "refill_ns" => laws.refill_ns = value,
            "remote" => laws.remote = value,
            "migrate_bytes_per_s" => laws.migrate_bytes_per_s = value,
            "start_ns" => laws.start_ns = value,
            "start_ns_per_mib" => laws.start_ns_per_mib = value,
            "uneven" => laws.uneven = value,
            "wait_active_ns" => laws.wait_active_ns = value,
            "wait_spinning_ns" => laws.wait_spinning_ns = value,
            "wait_passive_ns" => laws.wait_passive_ns = value,
            _ => {
                let (program, key) = name.rsplit_once('.').expect("a law or program.key");
                let found =
                    model.profiles.iter_mut().filter(|p| program == "all" || p.name.starts_with(program));
                for profile in found {
                    let profile: &mut Profile = Arc::make_mut(profile);
                    match key {
                        "cache" => profile.cache = value,
                        "scatter" => profile.scatter = value,
                        "waits" => profile.waits_per_region = value,
                        "bandwidth" => profile.bandwidth = value,
                        _ => panic!("no such parameter: {name}"),
                    }
                }
            }
        }
    }
    model
}

const NAMES: [&str; 3] = ["makespan_s", "mean_slowdown", "reconfigurations"];

/// Means of makespan, slowdown, reconfigurations under each policy.
fn play(
    values: &Values,
    set: &str,
    seeds: std::ops::Range<u64>,
    policies: &[&str],
    waiting: Waiting,
) -> Vec<[f64; 3]> {
    let model = model(values);
    let machine = Arc::new(Machine::synthetic("pack:4 [numa] l3:1 core:6").expect("a machine"));
    // What Linux 3.8 did on 24 CPUs: each of k tasks gets 24 ms / k, at least 3 ms.
    let settings = Settings {
        slice_ns: 24_000_000,
        max_still_ns: 24_000_000,
        min_slice_ns: 3_000_000,
        ..Settings::default()
    };
    let setup = Setup {
        machine,
        laws: model.laws.clone(),
        settings: settings.clone(),
        waiting,
        keep_plans: false,
        knowledge: Knowledge::None,
        until_ns: None,
    };
    let set = Generator::set(set, &model.profiles).expect("a set");
    let one = |number: usize| -> Result<[f64; 3], String> {
        let (policy, seed) =
            (policies[number % policies.len()], seeds.start + (number / policies.len()) as u64);
        let mut settings = settings.clone();
        if policy == "CO" {
            settings.allowed_widths = Some(vec![1, 3, 6, 12, 24]);
        }
        let policy = policy::by_name(policy, &settings).map_err(|e| e.to_string())?;
        let outcome = simulate(&setup, &set.scenario(seed), policy).map_err(|e| e.to_string())?;
        let figures = Figures::of(&outcome);
        Ok(NAMES.map(|name| figures.get(name).expect("a column")))
    };
    let count = (seeds.end - seeds.start) as usize;
    let all = coplace_sim::many::in_order(count * policies.len(), 2, one, |_| ()).expect("it plays");
    (0..policies.len())
        .map(|policy| {
            let mut sum = [0.0; 3];
            for row in all.iter().skip(policy).step_by(policies.len()) {
                (0..3).for_each(|at| sum[at] += row[at] / count as f64);
            }
            sum
        })
        .collect()
}

const POLICIES: [&str; 4] = ["BP", "EQ", "TA", "CO"];

/// Table III: makespan in % of BP's, slowdown, reconfigurations.
fn paper(set: &str) -> [[f64; 3]; 4] {
    match set {
        "A" => [[100., 6.7, 0.], [89., 4.8, 155.], [95., 4.7, 81.], [100., 6.2, 74.]],
        "B" => [[100., 10.2, 0.], [94., 8.4, 170.], [91., 7.3, 103.], [100., 10.4, 64.]],
        "C" => [[100., 10.7, 0.], [92., 8.9, 178.], [90., 8.3, 104.], [101., 13.1, 88.]],
        _ => [[100., 11.9, 0.], [92., 11.1, 167.], [86., 8.6, 112.], [89., 10.3, 51.]],
    }
}

/// Sum of squares of what misses, in units of what may miss.
fn badness(values: &Values, seeds: u64) -> f64 {
    let ours = play(values, "B", 1001..1001 + seeds, &POLICIES, Waiting::Spinning);
    let theirs = paper("B");
    let mut sum = ((ours[0][1] / theirs[0][1] - 1.0) / 0.2).powi(2);
    for policy in 1..4 {
        let makespan = 100.0 * ours[policy][0] / ours[0][0];
        let slowdown = ours[policy][1] / ours[0][1];
        sum += ((makespan - theirs[policy][0]) / 2.0).powi(2);
        sum += ((slowdown / (theirs[policy][1] / theirs[0][1]) - 1.0) / 0.1).powi(2);
        sum += ((ours[policy][2] / theirs[policy][2] - 1.0) / 0.25).powi(2);
    }
    sum
}

fn show(values: &Values, set: &str, seeds: u64) {
    let ours = play(values, set, 1..1 + seeds, &POLICIES, Waiting::Spinning);
    let theirs = paper(set);
    for (at, policy) in POLICIES.iter().enumerate() {
        println!(
            "{set} {policy}: makespan {:6.1} ({:3}) slowdown {:5.2} ({:4}) relative {:.2} ({:.2}) reconfigurations {:4.0} ({})",
            100.0 * ours[at][0] / ours[0][0],
            theirs[at][0],
            ours[at][1],
            theirs[at][1],
            ours[at][1] / ours[0][1],
            theirs[at][1] / theirs[0][1],
            ours[at][2],
            theirs[at][2]
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(24);
    let steps: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut values: Values = Values::new();
    let built_in = Model::built_in();
    let named = |name: &str| built_in.profiles.iter().find(|p| p.name.starts_with(name)).expect("a program");
    for (name, value) in [
        ("bandwidth_weight", built_in.laws.bandwidth_weight),
        ("refill_ns", built_in.laws.refill_ns),
        ("remote", built_in.laws.remote),
        ("migrate_bytes_per_s", built_in.laws.migrate_bytes_per_s),
        ("start_ns", built_in.laws.start_ns),
        ("start_ns_per_mib", built_in.laws.start_ns_per_mib),
        ("lu.cache", named("lu").cache),
        ("lu.scatter", named("lu").scatter),
        ("cg.cache", named("cg").cache),
        ("all.scatter", 0.0),
    ] {
        values.insert(name.to_owned(), value);
    }
    for argument in arguments {
        let (name, value) = argument.split_once('=').expect("name=value");
        values.insert(name.to_owned(), value.parse().expect("a number"));
    }
    // Pattern search: each parameter up and down in turn, in steps that shrink where nothing helps.
    let fixed: Vec<String> =
        std::env::var("COPLACE_FIXED").unwrap_or_default().split(',').map(str::to_owned).collect();
    let mut best = badness(&values, seeds);
    let mut widths: Vec<f64> = FREE.iter().map(|(_, low, high)| (high - low) / 10.0).collect();
    println!("badness {best:.2}");
    for step in 0..steps {
        for (at, (name, low, high)) in FREE.iter().enumerate() {
            if fixed.iter().any(|fixed| fixed == name) {
                continue;
            }
            let now = values[*name];
            let mut better = false;
            for sign in [1.0, -1.0] {
                let tried = (now + sign * widths[at]).clamp(*low, *high);
                if tried == now {
                    continue;
                }
                let mut other = values.clone();
                other.insert((*name).to_owned(), tried);
                let is = badness(&other, seeds);
                if is < best {
                    (best, values, better) = (is, other, true);
                    break;
                }
            }
            widths[at] *= if better { 1.5 } else { 0.5 };
        }
        println!("step {step}: badness {best:.2} {values:?}");
    }
    println!("{values:?}");
    for set in ["A", "B", "C", "D"] {
        show(&values, set, seeds);
    }
}
