//! Scenarios whose outcome can be worked out by hand.

use std::path::Path;
use std::sync::Arc;

use coplace_sim::{Figures, Knowledge, Laws, Model, Outcome, Setup, simulate};
use policy::{Settings, by_name};
use topology::Machine;
use workload::{Scenario, ScenarioFile, Waiting};

/// No law costs anything.
fn free() -> Laws {
    let built_in = Model::built_in().laws;
    Laws {
        bandwidth_weight: 0.0,
        switch_ns: 0.0,
        refill_ns: 0.0,
        remote: 0.0,
        start_ns: 0.0,
        start_ns_per_mib: 0.0,
        ..built_in
    }
}

fn scenario(text: &str) -> Scenario {
    match ScenarioFile::parse(text, Path::new("test.toml"), &Model::built_in().profiles, false) {
        Ok(ScenarioFile::Fixed(scenario)) => scenario,
        other => panic!("{other:?}"),
    }
}

fn setup(machine: &str, laws: Laws) -> Setup {
    Setup {
        machine: Arc::new(Machine::synthetic(machine).unwrap()),
        laws,
        settings: Settings::default(),
        waiting: Waiting::Spinning,
        keep_plans: false,
        knowledge: Knowledge::None,
        until_ns: None,
    }
}

fn try_play(
    machine: &str,
    policy: &str,
    laws: Laws,
    waiting: Waiting,
    settings: Settings,
    text: &str,
) -> Result<Outcome, String> {
    let setup = Setup { settings: settings.clone(), waiting, ..setup(machine, laws) };
    let outcome = simulate(&setup, &scenario(text), by_name(policy, &settings).unwrap());
    outcome.map_err(|error| error.to_string())
}

fn play(machine: &str, policy: &str, laws: Laws, text: &str) -> Outcome {
    try_play(machine, policy, laws, Waiting::Spinning, Settings::default(), text).unwrap()
}

/// The machine of the paper.
const QUAD_SIX_CORE: &str = "pack:4 [numa] l3:1 core:6";

fn ends_s(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| (job.ended_ns as f64 / 1e7).round() / 100.0).collect()
}

/// Twelve seconds of work that divides perfectly, in regions of a tenth of a second.
const TWO: &str = "
[[profile]]
name = 'even'
sequential_s = 12
amdahl = { serial = 0 }
regions = 120
[[program]]
profile = 'even'
[[program]]
profile = 'even'
";

#[test]
fn one_after_another_each_has_the_machine_to_itself() {
    let outcome = play("core:4", "BP", free(), TWO);
    assert_eq!(ends_s(&outcome), [3.0, 6.0]);
    assert_eq!(outcome.makespan_ns, 6_000_000_000);
    let figures = Figures::of(&outcome);
    assert_eq!(figures.get("mean_slowdown"), Some(1.5));
    assert_eq!(figures.get("reconfigurations"), Some(0.0));
}

#[test]
fn equal_parts_fill_the_machine_and_the_last_grows_later() {
    let text = TWO.replacen("[[program]]\n", "[[program]]\narrive_s = 0\n", 1);
    let text = format!("{text}arrive_s = 1\n");
    let outcome = play("core:4", "EQ", free(), &text);
    // The first: 1 s on four CPUs (4 of 12 done), then on two. It keeps four threads on its two CPUs
    // until its next region, which begins at once because one just ended.
    assert!((ends_s(&outcome)[0] - 5.0).abs() < 0.2, "{:?}", ends_s(&outcome));
    // The second: 4 s on two, then four CPUs for the 4 s of work that are left.
    assert!((ends_s(&outcome)[1] - 6.0).abs() < 0.2, "{:?}", ends_s(&outcome));
    assert_eq!(outcome.jobs.iter().map(|job| job.reconfigurations).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_program_of_one_region_never_resizes() {
    let text = TWO.replace("regions = 120", "regions = 1") + "arrive_s = 1\n";
    let outcome = play("core:4", "EQ", free(), &text);
    assert!(outcome.jobs.iter().all(|job| job.reconfigurations == 0), "{outcome:?}");
    // Four threads on two CPUs from the first second on, then alone on all four again.
    assert!(ends_s(&outcome)[0] > 5.0, "{:?}", ends_s(&outcome));
}

#[test]
fn gangs_take_turns_and_pay_for_the_switches() {
    let rigid = "[program.demand]\nmalleability = 'rigid'\nmax_threads = 4\n";
    let text = TWO.replace("profile = 'even'\n", &format!("profile = 'even'\n{rigid}"));
    let outcome = play("core:4", "TA", free(), &text);
    assert_eq!(ends_s(&outcome), [6.0, 6.0]);
    let costly = Laws { switch_ns: 6_000_000.0, ..free() };
    // 6 of every 100 ms.
    let outcome = play("core:4", "TA", costly, &text);
    assert!(ends_s(&outcome).iter().all(|end| (6.3..6.5).contains(end)), "{:?}", ends_s(&outcome));
}

#[test]
fn uncontrolled_spinning_costs_more_than_sleeping() {
    let text = "[[program]]\nprofile = 'sp.A'\n[[program]]\nprofile = 'sp.A'\n";
    let run = |waiting| {
        let outcome = try_play(QUAD_SIX_CORE, "UE", free(), waiting, Settings::default(), text).unwrap();
        outcome.makespan_ns as f64 / 1e9
    };
    let alone = 71.0 / 7.0;
    let (passive, spinning) = (run(Waiting::Passive), run(Waiting::Spinning));
    assert!(passive > 2.0 * alone && passive < 2.3 * alone, "{passive}");
    assert!(spinning > passive * 1.1, "{spinning} {passive}");
}

#[test]
fn load_adaptive_programs_shrink_as_the_load_average_rises() {
    let text = "[[program]]\nprofile = 'cg.B'\nrepeat = 8\n";
    let outcome = play(QUAD_SIX_CORE, "LA", free(), text);
    assert!(outcome.jobs.iter().all(|job| job.reconfigurations > 3), "{outcome:?}");
}

#[test]
fn a_job_that_is_wider_than_the_machine_is_named() {
    let text = "[[program]]\nprofile = 'cg.B'\n[program.demand]\nmalleability = 'rigid'\nmax_threads = 9\n";
    let error = try_play("core:4", "TA", free(), Waiting::Spinning, Settings::default(), text).unwrap_err();
    assert!(
        error.contains("line 1") && error.contains("cg.B needs 9 CPUs") && error.contains("has 4"),
        "{error}"
    );
}

#[test]
fn a_policy_that_starves_a_program_is_reported() {
    let settings = Settings { plan: Some("even on 0-3".to_owned()), ..Settings::default() };
    let error = try_play("core:4", "fixed", free(), Waiting::Spinning, settings, TWO).unwrap_err();
    assert_eq!(error, "under a fixed plan (fixed) 1 programs wait for ever, since 3 s");
}

#[test]
fn two_programs_slow_each_other_on_one_core_and_not_on_two() {
    let text = "[[profile]]\nname = 'p'\nsequential_s = 10\nspeedup = { 2 = 1.4 }\ndomain_cpus = 2\n\
                core_share = 0.5\n[[program]]\nname = 'a'\nprofile = 'p'\n[[program]]\nname = 'b'\nprofile = 'p'\n";
    let ends = |machine| ends_s(&play(machine, "EQ", free(), text));
    // Each has a CPU of the core, at half of its speed, until both end; alone it would have taken 10 s.
    assert_eq!(ends("core:1 pu:2").iter().map(|end| end.round()).collect::<Vec<_>>(), [20.0, 20.0]);
    assert_eq!(ends("core:2").iter().map(|end| end.round()).collect::<Vec<_>>(), [10.0, 10.0]);
    // What a program's own threads cost each other there, its curve says.
    let alone = text.split("[[program]]\nname = 'b'").next().unwrap();
    assert_eq!(ends_s(&play("core:1 pu:2", "EQ", free(), alone))[0].round(), 7.0);
}

#[test]
fn what_is_cut_off_counts_with_what_it_has_done() {
    let text = format!("{TWO}[[program]]\nprofile = 'even'\narrive_s = 5\n");
    let setup = Setup { until_ns: Some(4_000_000_000), ..setup("core:4", free()) };
    let outcome = simulate(&setup, &scenario(&text), by_name("BP", &Settings::default()).unwrap()).unwrap();
    assert_eq!(ends_s(&outcome), [3.0, 4.0]);
    let [whole, part] = &outcome.jobs[..] else { panic!("who has not come does not count") };
    assert_eq!((whole.done, whole.slowdown()), (1.0, 1.0));
    assert!((part.done - 1.0 / 3.0).abs() < 1e-9 && (part.slowdown() - 4.0).abs() < 1e-6, "{part:?}");
    assert_eq!(outcome.makespan_ns, 4_000_000_000);
}

/// Both want all of the memory's bandwidth on two CPUs: `on_and_off` in the first half of its work only.
const PHASES: &str = "
[[profile]]
name = 'on_and_off'
sequential_s = 8
speedup = { 2 = 2, 4 = 2 }
domain_cpus = 4
phases = [{ bandwidth = 1 }, { bandwidth = 0 }]
[[profile]]
name = 'always'
sequential_s = 8
speedup = { 2 = 2, 4 = 2 }
domain_cpus = 4
bandwidth = 1
[[program]]
profile = 'on_and_off'
[[program]]
profile = 'always'
";

#[test]
fn a_phase_is_slowed_down_by_what_it_asks_for() {
    let laws = Laws { bandwidth_weight: 1.0, ..free() };
    // Four seconds at half the speed, then two at the whole.
    assert_eq!(ends_s(&play("core:4", "TA", laws, PHASES)), [6.0, 6.0]);
}

#[test]
fn load_rates_of_the_moment_move_programs_between_packages() {
    let phased = |name: &str, loads: [f64; 3]| {
        let phases = loads.map(|loads| format!("{{ loads_per_s = {loads} }}")).join(", ");
        format!(
            "[[profile]]\nname = '{name}'\nsequential_s = 60\namdahl = {{ serial = 0 }}\nphases = [{phases}]\n\
             [[program]]\nprofile = '{name}'\n"
        )
    };
    // Whoever `a` is put beside at first is its match in one of the other phases.
    let rates =
        [("a", [9e9, 9e9, 9e9]), ("b", [9e9, 1e8, 1e8]), ("c", [1e8, 9e9, 1e8]), ("d", [1e8, 1e8, 9e9])];
    let text: String = rates.iter().map(|(name, loads)| phased(name, *loads)).collect();
    let moves = |knowledge| {
        let setup = Setup { knowledge, ..setup("pack:2 core:2", free()) };
        let lira = by_name("LIRA", &Settings::default()).unwrap();
        let outcome = simulate(&setup, &scenario(&text), lira).unwrap();
        outcome.jobs.iter().map(|job| job.domain_moves).sum::<u32>()
    };
    assert!(moves(Knowledge::Empty) > 0);
    assert_eq!(moves(Knowledge::Full), 0);
}
