//! The rules of `adaptive`: who gets wider, who stays where its memory is, who stands beside whom, and
//! what it does when it knows nothing.

mod bench;

use std::collections::BTreeMap;

use bench::Bench;
use coplace_policy::trial::Random;
use coplace_policy::{Lever, Settings};
use plan::Plan;

/// Four sockets of six cores, each with its memory.
const MACHINE: &str = "pack:4 [numa] l3:1 core:6";
/// A program that scales, and one that gains nothing beyond one CPU of a node.
const SCALES: &str = "speedup 2:2000,3:3000,6:6000,12:12000,24:24000 bandwidth 0 cache 0 left 100s move 10s";
const FLAT: &str = "speedup 2:1010,3:1015,6:1020,12:1030,24:1040 bandwidth 0 cache 0 left 100s move 10s";
const HUNGRY: &str = "speedup 2:1300,3:1400,6:1500,12:2800,24:5600 bandwidth 900 left 100s move 30s";

fn bench() -> Bench {
    Bench::new(MACHINE, "adaptive", &Settings::default())
}

fn widths(plan: &Plan) -> BTreeMap<String, usize> {
    plan.runs().into_iter().map(|run| (run.app.to_string(), run.place.len())).collect()
}

/// The sockets that a program stands on.
fn nodes(plan: &Plan, name: &str) -> Vec<u32> {
    let runs = plan.runs();
    let place = &runs.iter().find(|run| run.app.as_str() == name).expect("it runs").place;
    let mut nodes: Vec<u32> = place.iter().map(|cpu| cpu / 6).collect();
    nodes.dedup();
    nodes
}

#[test]
fn a_lone_program_gets_everything() {
    assert_eq!(bench().arrive("a team 24").to_string(), "a on 0-23");
    assert_eq!(bench().arrive(&format!("a team 24 {SCALES}")).to_string(), "a on 0-23");
}

#[test]
fn a_flat_program_leaves_its_cpus_to_one_that_scales() {
    // With parity it gets no more than an equal part; without, the least that anybody gets.
    for (without, most) in [(Vec::new(), 12), (vec![Lever::Parity], 6)] {
        let mut bench = Bench::new(MACHINE, "adaptive", &Settings { without, ..Settings::default() });
        let plan = bench.arrive(&format!("flat team 1 {FLAT}; scales team 1 {SCALES}"));
        let widths = widths(&plan);
        assert!((3..=most).contains(&widths["flat"]) && widths["scales"] == 24 - widths["flat"], "{plan}");
    }
}

#[test]
fn without_evidence_equal_programs_get_equal_fixed_parts() {
    let mut bench = bench();
    let mut homes: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for count in 1..=12 {
        let plan = bench.arrive(&format!("a{count} team 1"));
        let widths = widths(&plan);
        let (least, most) = (widths.values().min().unwrap(), widths.values().max().unwrap());
        assert!(*most <= 2 * *least, "{count} programs: {plan}");
        for (name, home) in &homes {
            let now = nodes(&plan, name);
            assert!(now.iter().all(|node| home.contains(node)), "{name} was on {home:?}: {plan}");
        }
        homes = widths.keys().map(|name| (name.clone(), nodes(&plan, name))).collect();
    }
}

#[test]
fn a_rigid_program_is_never_narrowed() {
    let mut bench = bench();
    bench.arrive("r rigid max 24 team 24");
    for count in 1..=6 {
        let plan = bench.arrive(&format!("a{count} team 1 {SCALES}"));
        assert!(plan.runs().iter().all(|run| run.app.as_str() != "r" || run.place.len() == 24), "{plan}");
    }
}

#[test]
fn memory_bound_programs_leave_cpus_to_the_others() {
    // Without parity, which evens CPU time out whatever comes of it.
    let settings = Settings { without: vec![Lever::Parity], ..Settings::default() };
    let mut bench = Bench::new("pack:2 [numa] l3:1 core:6", "adaptive", &settings);
    let plan = bench
        .arrive(&format!("m1 team 1 {HUNGRY}; m2 team 1 {HUNGRY}; c1 team 1 {SCALES}; c2 team 1 {SCALES}"));
    let widths = widths(&plan);
    assert!(widths["m1"] + widths["m2"] < widths["c1"] + widths["c2"], "{plan}");
}

#[test]
fn every_program_has_a_quarter_of_an_equal_part_at_least() {
    // One that fails is repeated alone.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("COPLACE_SEED").unwrap_or(1);
    for seed in first..first + number("COPLACE_CASES").unwrap_or(300) {
        let repeat = format!(
            "repeat with: COPLACE_SEED={seed} COPLACE_CASES=1 cargo test -p coplace-policy --test adaptive nobody_ever"
        );
        let (mut random, mut bench) = (Random::new(seed), bench());
        for step in 0..20 {
            let count = bench.snapshot.apps.len();
            let plan = if count > 0 && random.chance(40) {
                let name = bench.snapshot.apps[random.below(count as u64) as usize].id.to_string();
                bench.leave(&name)
            } else {
                let kind = *random.pick(&[SCALES, FLAT, HUNGRY, ""]);
                bench.arrive(&format!("a{step} team 1 {kind}"))
            };
            let widths = widths(&plan);
            assert_eq!(widths.len(), bench.snapshot.apps.len(), "{plan}\n{repeat}");
            for (name, width) in &widths {
                let least = (24 / (4 * widths.len())).max(1);
                assert!(*width >= least, "{name} has {width} of {least}: {plan}\n{repeat}");
            }
        }
    }
}

#[test]
fn an_underserved_program_gets_more() {
    let mut bench = bench();
    let programs = "a team 12; b team 12";
    bench.arrive(&format!("{programs}; c team 1 {SCALES}; d team 1 {SCALES}"));
    let poorest = |bench: &Bench| {
        let account = &bench.memory.account;
        let served = |app: &plan::App| {
            let served = account.served(&app.id);
            served.used_ns as f64 / served.entitled_ns.max(1) as f64
        };
        bench.snapshot.apps.iter().map(served).fold(f64::INFINITY, f64::min)
    };
    let mut least = f64::INFINITY;
    for _ in 0..60 {
        for app in &mut bench.snapshot.apps {
            app.team = bench.memory.places.get(&app.id).map(|place| place.len() as u32);
        }
        bench.snapshot.now_ns += 5_000_000_000;
        bench.decide();
        least = poorest(&bench);
    }
    assert!(least > 0.75, "somebody was served {least} of its share");
}

#[test]
fn a_short_rest_is_not_worth_a_move() {
    let mut bench = bench();
    bench.arrive(&format!("a team 6 {SCALES}; b team 6 {SCALES}; c team 6 {SCALES}; d team 6 {SCALES}"));
    let before = bench.memory.places.clone();
    for app in &mut bench.snapshot.apps {
        app.evidence.left_ns = Some(plan::Known::remembered(1_000_000_000, 0));
        app.evidence.move_ns = Some(plan::Known::remembered(30_000_000_000, 0));
    }
    let plan = bench.leave("d");
    for run in plan.runs() {
        let before = before.get(&run.app).expect("everybody stood somewhere");
        assert!(before.is_subset(&run.place) || run.place.is_subset(before), "{plan}");
    }
}

#[test]
fn the_report_cites_the_evidence_that_decided() {
    let mut bench = bench();
    bench.arrive(&format!("flat team 1 {FLAT}; scales team 1 {SCALES}; unknown team 1"));
    let lines = bench.lines.join("\n");
    assert!(lines.contains("scales") && lines.contains("remembered"), "{lines}");
    assert!(lines.contains("nothing is known of unknown"), "{lines}");
}

#[test]
fn a_rigid_program_starts_narrow_only_where_turns_are_worse() {
    let known = "speedup 2:1200,12:1300,24:1400";
    let start = |others: &str, newcomer: &str, without: Vec<Lever>| {
        let mut bench = Bench::new(MACHINE, "adaptive", &Settings { without, ..Settings::default() });
        bench.arrive(others);
        let newcomer: plan::App = newcomer.parse().unwrap();
        let before = bench.snapshot.clone();
        let narrow = bench.policy.narrow_start(&newcomer, &bench.snapshot);
        // Pure: what it says depends on nothing but what it is asked, and changes nothing.
        assert_eq!(narrow, bench.policy.narrow_start(&newcomer, &bench.snapshot));
        assert_eq!(before, bench.snapshot);
        narrow
    };
    let flat = format!("r rigid max 24 {known}");
    let narrow =
        start("a team 24 left 1000s", &flat, Vec::new()).expect("half of the time it would stand still");
    assert_eq!(narrow.threads, 12);
    assert!((narrow.others, narrow.alone_milli) == (1, 1077) && narrow.time_milli < 1000, "{narrow:?}");
    assert!(narrow.to_string().contains("beside one other program it is expected to take 0."), "{narrow}");
    // Its share is a third, as its weight says.
    assert_eq!(
        start("a team 24 left 1000s weight 2000", &flat, Vec::new()).map(|start| start.threads),
        Some(8)
    );
    for (others, newcomer, without, why) in [
        ("", flat.clone(), Vec::new(), "it is alone"),
        ("a suspended left 1000s", flat.clone(), Vec::new(), "nobody else runs"),
        ("a team 24 left 1000s", "r rigid max 24".to_owned(), Vec::new(), "nothing is known of it"),
        ("a team 24 left 1000s", format!("r max 24 {known}"), Vec::new(), "it can be resized"),
        (
            "a team 24 left 1000s",
            format!("r rigid max 24 {}", &SCALES[..SCALES.find(" b").unwrap()]),
            Vec::new(),
            "it scales",
        ),
        ("a team 24 left 1000s", format!("r rigid max 12 {known}"), Vec::new(), "it fits an equal part"),
        (
            "a team 24 left 1000s",
            format!("r rigid min 13 max 24 {known}"),
            Vec::new(),
            "it needs more threads",
        ),
        ("a team 24 left 1s", format!("{flat} left 1000s"), Vec::new(), "the other has left soon"),
        ("a team 24 left 1000s", flat.clone(), vec![Lever::Widths], "it does without widths"),
    ] {
        assert_eq!(start(others, &newcomer, without), None, "{why}: {newcomer} beside {others}");
    }
}

#[test]
fn no_other_policy_starts_a_program_narrow() {
    for policy in coplace_policy::list().iter().filter(|policy| policy.letters != "adaptive") {
        let settings = Settings { plan: Some("a on 0".into()), ..Settings::default() };
        let bench = Bench::new(MACHINE, policy.letters, &settings);
        let newcomer: plan::App = "r rigid max 24 speedup 24:1001".parse().unwrap();
        let snapshot = bench.snapshot.clone().with_apps("a team 24 left 1000s").unwrap();
        assert_eq!(bench.policy.narrow_start(&newcomer, &snapshot), None, "{}", policy.letters);
    }
}

#[test]
fn a_reported_speedup_counts_cpus_and_not_cores() {
    let mut bench = Bench::new("pack:2 [numa] l3:1 core:2 pu:2", "adaptive", &Settings::default());
    bench.arrive("a team 8 speedup 2:1900,4:3600,8:6500 left 100s");
    let lines = bench.lines.join("\n");
    assert!(lines.contains("6.5 times as fast on 8 CPUs as on one"), "{lines}");
}
