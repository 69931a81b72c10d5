//! Who stands beside whom under TA, CO and twins.

use std::collections::BTreeMap;
use std::sync::Arc;

use coplace_policy::{Decision, Memory, Neighbours, Predictions, Settings, by_name};
use interference::pairing::{Objective, Problem, enumerate};
use plan::Snapshot;
use proptest::prelude::*;
use topology::Machine;
use workload::Random;

/// Four domains of two partitions.
const PAIRS: &str = "pack:4 core:2";

fn snapshot(machine: &str, apps: &str) -> Snapshot {
    let machine = Arc::new(Machine::synthetic(machine).expect("a machine"));
    Snapshot::for_machine(machine).with_apps(apps).expect("programs")
}

fn decide(letters: &str, neighbours: Option<Neighbours>, snapshot: &Snapshot, memory: &Memory) -> Decision {
    let settings = Settings { neighbours, ..Settings::default() };
    by_name(letters, &settings).expect("a policy").decide(snapshot, memory)
}

/// Random slowdowns of `p0`, `p1`, …, between 1 and 1 + spread, and their errors.
fn random_predictions(count: usize, spread: f64, error: f64, seed: u64) -> Predictions {
    let mut random = Random::new(seed);
    let milli = |value: f64| (value * 1000.0) as u32;
    let mut cell = || (1000 + milli(spread * random.below(1000) as f64 / 1000.0), milli(error));
    let cells_milli = (0..count * count).map(|_| cell()).collect();
    Predictions { programs: (0..count).map(|at| format!("p{at}")).collect(), cells_milli }
}

/// The programs in each package, as sorted lists, sorted.
fn groups(decision: &Decision, snapshot: &Snapshot, width: u32) -> Vec<Vec<String>> {
    let mut by_domain: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for run in decision.plan.runs() {
        let domain = run.place.lowest().expect("a place") / width;
        let app = snapshot.app(&run.app).expect("it is there");
        by_domain.entry(domain).or_default().push(app.program().to_owned());
    }
    let mut groups: Vec<Vec<String>> = by_domain.into_values().collect();
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups.sort_unstable();
    groups
}

/// Runs of `p0` to `p7` in this order, under names that say nothing.
fn runs_of(order: &[usize]) -> String {
    let one = |(at, program): (usize, &usize)| format!("x{at} of p{program}");
    order.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
}

fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let (mut order, mut random) = ((0..count).collect::<Vec<_>>(), Random::new(seed));
    (1..count).for_each(|last| order.swap(last, random.below(last as u64 + 1) as usize));
    order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_best_neighbours_are_chosen_whatever_programs_are_called(seed in 0u64..100_000) {
        let known = random_predictions(8, 1.0, 0.01, seed);
        let by = Neighbours::Predicted(known.clone());
        let in_order = snapshot(PAIRS, &runs_of(&(0..8).collect::<Vec<_>>()));
        let found = decide("TA", Some(by.clone()), &in_order, &Memory::default());
        let pairs = groups(&found, &in_order, 2);
        let slowdown = |a: usize, b: usize| f64::from(known.cells_milli[a * 8 + b].0) / 1000.0;
        let problem = Problem::new(&known.programs, &[], slowdown);
        let cost = |pairs: &[Vec<String>]| {
            let number = |name: &String| name[1..].parse().unwrap();
            let places: Vec<Vec<usize>> = pairs.iter().map(|pair| pair.iter().map(number).collect()).collect();
            problem.cost(&places, &Objective::Mean)
        };
        let best = enumerate(&problem, 4, &Objective::Mean).unwrap();
        prop_assert!((cost(&pairs) - best).abs() < 1e-6);
        let other = snapshot(PAIRS, &runs_of(&shuffled(8, seed)));
        let again = decide("TA", Some(by), &other, &Memory::default());
        // Other pairs may be as good: whole thousandths add up to the same now and then.
        prop_assert!((cost(&groups(&again, &other, 2)) - best).abs() < 1e-6);
    }

    #[test]
    fn uncertain_predictions_leave_the_plan_of_the_twins(
        seed in 0u64..100_000, spread in 0.0f64..0.5
    ) {
        let known = random_predictions(4, spread, spread + 0.01, seed);
        let order: Vec<usize> = shuffled(8, seed).iter().map(|at| at % 4).collect();
        let snapshot = snapshot(PAIRS, &runs_of(&order));
        let by_names = decide("TA", Some(Neighbours::Twins), &snapshot, &Memory::default());
        let by_guesses = decide("TA", Some(Neighbours::Predicted(known)), &snapshot, &Memory::default());
        prop_assert_eq!(&by_names.plan, &by_guesses.plan);
        prop_assert_eq!(&by_names.plan, &decide("twins", None, &snapshot, &Memory::default()).plan);
    }

    #[test]
    fn twins_stand_apart_where_there_is_room(seed in 0u64..100_000) {
        let order: Vec<usize> = shuffled(8, seed).iter().map(|at| at % 4).collect();
        let mut memory = Memory::default();
        for count in 1..=8 {
            let snapshot = snapshot(PAIRS, &runs_of(&order[..count]));
            let decision = decide("twins", None, &snapshot, &memory);
            for group in groups(&decision, &snapshot, 2) {
                // Before the finest partitions packages are not shared.
                prop_assert!(group.windows(2).all(|pair| pair[0] != pair[1]), "{}", decision.plan);
            }
            memory = decision.memory;
        }
    }

    #[test]
    fn no_program_moves_for_less_than_a_move_costs(seed in 0u64..100_000) {
        // A pair is worth 0.4 at most, and needs at least one move that costs 0.5.
        let known = random_predictions(8, 0.2, 0.0, seed);
        let snapshot = snapshot(PAIRS, &runs_of(&shuffled(8, seed)));
        let kept = decide("TA", None, &snapshot, &Memory::default());
        let asked = decide("TA", Some(Neighbours::Predicted(known)), &snapshot, &kept.memory);
        prop_assert_eq!(kept.plan, asked.plan);
    }
}

/// Programs with these load rates, in millions of loads a second.
fn with_loads(rates: &[u64]) -> String {
    let one = |(at, rate): (usize, &u64)| format!("p{at} loads {}", rate * 1_000_000);
    rates.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
}

/// The sum of the squares of what each package's programs load.
fn imbalance(groups: &[Vec<String>], rates: &[u64]) -> u64 {
    let rate = |name: &String| rates[name[1..].parse::<usize>().unwrap()];
    groups.iter().map(|group| group.iter().map(rate).sum::<u64>().pow(2)).sum()
}

proptest! {
    #[test]
    fn load_rates_of_pairs_are_balanced_exactly(rates in proptest::collection::vec(0u64..1000, 8)) {
        prop_assume!(rates.iter().min() < rates.iter().max());
        let snapshot = snapshot(PAIRS, &with_loads(&rates));
        let decision = decide("LIRA", None, &snapshot, &Memory::default());
        let found = imbalance(&groups(&decision, &snapshot, 2), &rates);
        // Of pairs the most even are the highest beside the lowest, the next beside the next, and so on.
        let mut sorted = rates.clone();
        sorted.sort_unstable();
        let best: u64 = (0..4).map(|at| (sorted[at] + sorted[7 - at]).pow(2)).sum();
        prop_assert_eq!(found, best, "{}", decision.plan);
    }
}

#[test]
fn programs_change_places_when_their_load_rates_do() {
    let machine = "pack:2 core:2";
    let before = snapshot(machine, &with_loads(&[1000, 900, 10, 20]));
    let first = decide("LIRA", None, &before, &Memory::default());
    let after = snapshot(machine, &with_loads(&[1000, 10, 900, 20]));
    let second = decide("LIRA", None, &after, &first.memory);
    let heavy = |decision: &Decision, snapshot: &Snapshot, pair: [&str; 2]| {
        groups(decision, snapshot, 2).contains(&pair.map(str::to_owned).to_vec())
    };
    assert!(!heavy(&first, &before, ["p0", "p1"]), "{}", first.plan);
    assert!(!heavy(&second, &after, ["p0", "p2"]), "{}", second.plan);
    let why = second.report.moves.values().next().expect("somebody moved").to_string();
    assert!(why.contains("million loads a second beside"), "{why}");
    assert!(second.report.lines().iter().any(|line| line.contains("by load instruction rates")));
}

#[test]
fn nobody_moves_while_load_rates_stay() {
    let snapshot = snapshot(PAIRS, &with_loads(&[900, 850, 30, 10, 500, 480, 470, 20]));
    let first = decide("LIRA", None, &snapshot, &Memory::default());
    let second = decide("LIRA", None, &snapshot, &first.memory);
    assert_eq!(first.plan, second.plan);
}

#[test]
fn load_rates_of_this_run_are_asked_for_again() {
    let mut snapshot = snapshot("pack:2 core:2", &with_loads(&[900, 850, 30, 10]));
    assert_eq!(decide("LIRA", None, &snapshot, &Memory::default()).wake_at_ns, None);
    snapshot.apps[0].evidence.loads_per_s = Some(plan::Known::measured(1_000_000, 50));
    let wake_at_ns = decide("LIRA", None, &snapshot, &Memory::default()).wake_at_ns;
    assert_eq!(wake_at_ns, Some(snapshot.now_ns + 1_000_000_000));
}

#[test]
fn without_load_rates_twins_stand_apart() {
    let snapshot = snapshot(PAIRS, &runs_of(&[0, 0, 1, 1, 2, 2, 3, 3]));
    let by_names = decide("twins", None, &snapshot, &Memory::default());
    assert_eq!(decide("LIRA", None, &snapshot, &Memory::default()).plan, by_names.plan);
}

/// Two that press and two that suffer.
fn loud_and_frail() -> Neighbours {
    let programs = ["loud", "frail", "calm"].map(str::to_owned).to_vec();
    let cells_milli =
        [1300, 1100, 1000, 2000, 1000, 1000, 1000, 1000, 1000].map(|value| (value, 10)).to_vec();
    Neighbours::Predicted(Predictions { programs, cells_milli })
}

#[test]
fn the_reason_of_a_move_is_reported() {
    let apps = "loud; frail; calm; calm.2";
    let snapshot = snapshot("pack:2 core:2", apps);
    let kept = decide("TA", None, &snapshot, &Memory::default());
    let asked = decide("TA", Some(loud_and_frail()), &snapshot, &kept.memory);
    assert!(groups(&asked, &snapshot, 2).contains(&vec!["calm".to_owned(), "loud".to_owned()]));
    let (moved, why) = asked.report.moves.first_key_value().expect("somebody moved");
    assert!(why.to_string().contains("predicted to be 1.00 ± 0.01 times slower"), "{moved}: {why}");
    assert!(
        asked.report.lines().iter().any(|line| line.contains("by predicted slowdowns")),
        "{:?}",
        asked.report
    );
}

#[test]
fn a_program_that_nothing_is_known_of_is_named() {
    let snapshot = snapshot("pack:2 core:2", "loud; frail; calm; new");
    let decision = decide("TA", Some(loud_and_frail()), &snapshot, &Memory::default());
    assert!(decision.report.lines().iter().any(|line| line.contains("Nothing is known of new")));
}

#[test]
fn programs_with_profiles_are_kept_out_of_each_other_s_way() {
    let apps = "a bandwidth 950; b bandwidth 950; c bandwidth 10; d bandwidth 10";
    let snapshot = snapshot("pack:2 core:2", apps);
    let decision = decide("TA", Some(Neighbours::Profile), &snapshot, &Memory::default());
    for group in groups(&decision, &snapshot, 2) {
        assert_ne!(group, ["a", "b"], "{}", decision.plan);
    }
}

#[test]
fn gangs_that_suit_each_other_share_a_slot() {
    let apps = "loud rigid max 2 team 2; frail rigid max 2 team 2; calm rigid max 2 team 2; calm.2 rigid max 2 team 2";
    let snapshot = snapshot("core:4", apps);
    for letters in ["TA", "CO"] {
        let decision = decide(letters, Some(loud_and_frail()), &snapshot, &Memory::default());
        let plan = decision.plan.to_string();
        assert!(plan.starts_with("in_turn"), "{plan}");
        let apart = |slot: &str| !(slot.contains("loud") && slot.contains("frail"));
        assert!(plan.split("side_by_side").all(apart), "{plan}");
        assert!(decision.report.lines().iter().any(|line| line.contains("In one slot: ")));
    }
}
