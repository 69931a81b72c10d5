//! What several tests use.
#![allow(dead_code)] // each test binary uses a part

use coplace_topology::{CpuSet, Group, Level, Machine, Shape};
use proptest::prelude::*;

pub fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// One line a shape: width, description, places, what is left over.
pub fn table(machine: &Machine, usable: &CpuSet) -> String {
    machine.shapes(usable).iter().map(line).collect()
}

fn line(shape: &Shape) -> String {
    let places: Vec<String> = shape.places.iter().map(ToString::to_string).collect();
    let rest = match shape.left_over.is_empty() {
        true => String::new(),
        false => format!(", left over {}", shape.left_over),
    };
    format!("{} {}: {}{rest}\n", shape.width, shape.description, places.join(" | "))
}

/// Four big cores with two threads each and eight small ones.
pub fn hybrid_laptop() -> Machine {
    let cores = (0..4u32).map(|core| (core * 2..core * 2 + 2).collect());
    let cores = cores.chain((8..16u32).map(|cpu| CpuSet::from_cpus(&[cpu])));
    let groups = cores.map(|cpus| Group { level: Level::Core, os_index: None, cpus });
    let (mut machine, notes) = Machine::from_groups(Level::Node, &CpuSet::first(16), groups);
    assert!(notes.is_empty());
    machine.capacities = (0..16).map(|cpu| (cpu, if cpu < 8 { 1024 } else { 602 })).collect();
    machine
}

/// Random trees: units of a level may differ in width, some have cores of lower capacity.
pub fn any_machine() -> impl Strategy<Value = Machine> {
    let core = (1u32..3, prop::bool::weighted(0.2));
    let llc = prop::collection::vec(core, 1..6);
    let package = prop::collection::vec(llc, 1..4);
    let tree = prop::collection::vec(package, 1..4);
    (tree, any::<bool>()).prop_map(|(packages, capacities)| {
        let mut groups = Vec::new();
        let mut small = Vec::new();
        let mut next = 0;
        for package in packages {
            let package_start = next;
            for llc in package {
                let llc_start = next;
                for (pus, is_small) in llc {
                    groups.push(group(Level::Core, next..next + pus));
                    if is_small {
                        small.extend(next..next + pus);
                    }
                    next += pus;
                }
                groups.push(group(Level::Llc, llc_start..next));
            }
            groups.push(group(Level::Package, package_start..next));
        }
        let (mut machine, _) = Machine::from_groups(Level::Node, &CpuSet::first(next), groups);
        if capacities {
            machine.capacities =
                (0..next).map(|cpu| (cpu, if small.contains(&cpu) { 446 } else { 1024 })).collect();
        }
        machine
    })
}

fn group(level: Level, cpus: std::ops::Range<u32>) -> Group {
    Group { level, os_index: None, cpus: cpus.collect() }
}

/// A random subset, not empty; every third time the whole set.
pub fn any_subset(cpus: &CpuSet) -> impl Strategy<Value = CpuSet> + use<> {
    let all: Vec<u32> = cpus.iter().collect();
    let whole = cpus.clone();
    let count = all.len();
    prop_oneof![
        1 => Just(whole),
        2 => prop::sample::subsequence(all, 1..=count).prop_map(|cpus| CpuSet::from_cpus(&cpus)),
    ]
}
