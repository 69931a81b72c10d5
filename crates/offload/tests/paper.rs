//! The paper's strategies keep to what their description says, in any scenario.

use coplace_offload::registry::{self, STRATEGIES};
use coplace_offload::scenario::Scenario;
use coplace_offload::simulate::{Played, simulate};
use coplace_offload::strategy::{ShortTerm, Strategy};
use proptest::prelude::*;
use proptest::strategy::Strategy as Drawn;

fn strategy(name: &str) -> Box<dyn Strategy> {
    registry::strategy(name, None).expect("it is listed")
}

fn played(text: &str, name: &str) -> Played {
    simulate(&Scenario::parse(text).unwrap(), strategy(name)).unwrap()
}

/// Four cores, all of them, a device; programs whose kernels take these tenths of a second, in this order of preference.
fn scenario(tasks: &[(u32, [u32; 3], usize)], cores: u32, overlap: bool, low: bool) -> String {
    let mut text = format!(
        "cores = 4\noverlap = {overlap}\ngovernor = '{}'\n[[resource]]\nkind = 'core'\ncount = {cores}\n\
         [[resource]]\nkind = 'all-cores'\n[[resource]]\nkind = 'gpu'\nhost_threads = 0.25\n",
        if low { "low" } else { "high" }
    );
    for (number, (arrives, takes, first)) in tasks.iter().enumerate() {
        let kernels = ["core", "all-cores", "gpu"].iter().zip(takes);
        let mut kernels: Vec<String> = kernels
            .map(|(on, tenths)| format!("{{ on = '{on}', takes_s = {} }}", f64::from(*tenths) / 10.0))
            .collect();
        kernels.rotate_left(*first);
        text += &format!(
            "[[task]]\nprogram = 'p{number}'\narrives_s = {}\nkernels = [{}]\n",
            f64::from(*arrives) / 10.0,
            kernels.join(", ")
        );
    }
    text
}

fn any_scenario() -> impl Drawn<Value = String> {
    let task = (0..100_u32, [1..80_u32, 1..80, 1..80], 0..3_usize);
    (proptest::collection::vec(task, 1..25), 1..=4_u32, any::<bool>(), any::<bool>())
        .prop_map(|(tasks, cores, overlap, low)| scenario(&tasks, cores, overlap, low))
}

/// The cost of all that runs, each time something begins.
fn running_costs(played: &Played, cost: impl Fn(&str) -> u32) -> Vec<u32> {
    let runs_at =
        |at_ns: u64| played.tasks.iter().filter(move |it| it.began_ns <= at_ns && at_ns < it.ended_ns);
    played.tasks.iter().map(|task| runs_at(task.began_ns).map(|it| cost(&it.resource)).sum()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_strategy_ends_every_task(text in any_scenario()) {
        let count = Scenario::parse(&text).unwrap().tasks.len();
        for listed in STRATEGIES {
            let played = played(&text, listed.name);
            prop_assert_eq!(played.tasks.len(), count, "{}", listed.name);
            prop_assert!(played.tasks.iter().all(|it| it.arrived_ns <= it.began_ns && it.began_ns < it.ended_ns));
        }
    }

    #[test]
    fn short_term_in_lua_does_as_in_rust(text in any_scenario()) {
        let scenario = Scenario::parse(&text).unwrap();
        let (lua, rust) = (simulate(&scenario, strategy("short-term")), simulate(&scenario, Box::new(ShortTerm)));
        prop_assert_eq!(lua, rust);
    }

    #[test]
    fn short_term_leaves_no_resource_idle_while_tasks_wait(text in any_scenario()) {
        let played = played(&text.replace("overlap = false", "overlap = true"), "short-term");
        for task in &played.tasks {
            // From its arrival to its begin every resource ran something.
            let at_ns = task.began_ns.saturating_sub(1).max(task.arrived_ns);
            if at_ns < task.began_ns {
                let busy = played.tasks.iter().filter(|it| it.began_ns <= at_ns && at_ns < it.ended_ns).count();
                let resources = Scenario::parse(&text).unwrap().resources.len();
                prop_assert_eq!(busy, resources);
            }
        }
    }

    #[test]
    fn constraint_keeps_to_its_limit(text in any_scenario()) {
        let played = played(&text, "constraint");
        let limit = if text.contains("'low'") { 9 } else { 18 };
        let cost = |name: &str| if name.starts_with("gpu") { 9 } else if name == "all-cores" { 6 } else { 3 };
        for sum in running_costs(&played, cost) {
            prop_assert!(sum <= limit, "{sum} of {limit}");
        }
    }

    #[test]
    fn banking_spends_no_more_than_it_has(text in any_scenario()) {
        let played = played(&text, "banking");
        let refill = if text.contains("'low'") { 10 } else { 15 };
        let cost = |name: &str| if name.starts_with("gpu") { 10 } else if name == "all-cores" { 5 } else { 1 };
        let mut begins: Vec<(u64, u64)> = played.tasks.iter().map(|it| (it.began_ns, cost(&it.resource))).collect();
        begins.sort_unstable();
        let mut spent = 0;
        for (at_ns, cost) in begins {
            spent += cost;
            prop_assert!(spent <= 100 + refill * (at_ns / 5_000_000_000), "{spent} by {at_ns}");
        }
    }

    #[test]
    fn a_low_governor_keeps_long_term_off_devices(text in any_scenario()) {
        let played = played(&text.replace("'high'", "'low'"), "long-term");
        prop_assert!(played.tasks.iter().all(|it| !it.resource.starts_with("gpu")));
    }
}

/// Section 3.2.2 by hand: a kernel is twice as fast on the device as on all cores, and four times as on one core.
#[test]
fn long_term_compares_queues_by_the_factor_of_two_kernels() {
    let text = scenario(&[(0, [40, 20, 10], 2); 7], 1, true, false).replace(
        "{ on = 'core', takes_s = 4 }, { on = 'all-cores', takes_s = 2 }",
        "{ on = 'all-cores', takes_s = 2 }, { on = 'core', takes_s = 4 }",
    );
    let played = played(&text, "long-term");
    let mut by_program: Vec<(&str, &str)> =
        played.tasks.iter().map(|it| (it.program.as_str(), it.resource.as_str())).collect();
    by_program.sort_unstable();
    let on: Vec<&str> = by_program.into_iter().map(|(_, resource)| resource).collect();
    // Loads (device, all, core) before each: 000, 100, 110, 210, 310, 311, 321.
    assert_eq!(on, ["gpu0", "all-cores", "gpu0", "gpu0", "core0", "all-cores", "gpu0"]);
}

/// A program takes all cores for fast where one core is; told so, or having seen it, ours uses one core.
#[test]
fn expectations_are_corrected_by_what_is_seen() {
    let text = "cores = 2\n[[resource]]\nkind = 'core'\n[[resource]]\nkind = 'all-cores'\n[[task]]\nprogram = 'p'\n\
                count = 20\nevery_s = 10\nkernels = [{ on = 'all-cores', takes_s = 8, expected_s = 1 }, \
                { on = 'core', takes_s = 2 }]\n";
    let played = played(text, "adaptive");
    let wrong = played.tasks.iter().filter(|task| task.resource == "all-cores").count();
    assert!((1..=2).contains(&wrong), "{wrong} of 20 by the slow kernel");
}
