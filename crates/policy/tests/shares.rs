//! Invariant 5 for every policy that ships: each states a bound on shares, none could state a much tighter
//! one, and one that starves a program is caught.

mod bench;

use bench::{Bench, FIGURE_1};
use coplace_policy::trial::{self, Random};
use coplace_policy::{Decision, LevelDecision, Memory, Policy, Settings, by_name, list};
use plan::{App, Plan, Promise, Settled, ShareBound, Slot, Snapshot, Tree, TurnMode};

/// A policy under another promise, and, if it is to be broken, with one program robbed.
struct Altered {
    inner: Box<dyn Policy>,
    promise: Promise,
    rob: bool,
}

impl Policy for Altered {
    fn letters(&self) -> &str {
        self.inner.letters()
    }

    fn words(&self) -> &str {
        self.inner.words()
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let mut decision = self.inner.decide(snapshot, memory);
        if self.rob {
            rob(&mut decision.plan, snapshot);
        }
        decision
    }
}

/// Leaves the earliest program one part of 10,000 of its time, as far as it may be stopped.
fn rob(plan: &mut Plan, snapshot: &Snapshot) {
    let plain = |app: &App| app.stoppable && app.accepts_width() && app.within.is_none() && !app.suspended;
    let Some(victim) = snapshot.apps.iter().find(|app| plain(app)) else { return };
    let Some(own) = plan.runs().iter().find(|run| run.app == victim.id).map(|run| Tree::Run((*run).clone()))
    else {
        return;
    };
    let Some(rest) = plan.tree.as_ref().and_then(|tree| without(tree, victim)) else {
        // Alone it loses all but one CPU of its place.
        if let Some(Tree::Run(run)) = &mut plan.tree {
            run.place = run.place.take(1);
            run.threads = 1;
        }
        return;
    };
    let slot = |slice_ns, tree| Slot { slice_ns, tree };
    let slots = vec![slot(199_980_000, rest), slot(20_000, own)];
    plan.tree = Some(Tree::InTurn { mode: TurnMode::Strict, slots });
}

fn without(tree: &Tree, app: &App) -> Option<Tree> {
    let all = |parts: &[Tree]| -> Vec<Tree> { parts.iter().filter_map(|part| without(part, app)).collect() };
    Some(match tree {
        Tree::Run(run) if run.app == app.id => return None,
        Tree::Run(_) => tree.clone(),
        Tree::SideBySide(parts) => Tree::SideBySide(Some(all(parts)).filter(|parts| !parts.is_empty())?),
        Tree::Mixed { owner, parts } => {
            Tree::Mixed { owner: owner.clone(), parts: Some(all(parts)).filter(|parts| !parts.is_empty())? }
        }
        Tree::InTurn { mode, slots } => {
            let slot = |slot: &Slot| Some(Slot { tree: without(&slot.tree, app)?, ..slot.clone() });
            let slots: Vec<Slot> = slots.iter().filter_map(slot).collect();
            Tree::InTurn { mode: *mode, slots: Some(slots).filter(|slots| !slots.is_empty())? }
        }
    })
}

fn named(letters: &str, settings: &Settings) -> Box<dyn Policy> {
    let settings = Settings { plan: Some("a on 0".to_owned()), ..settings.clone() };
    by_name(letters, &settings).expect("a policy that ships")
}

#[test]
fn every_policy_that_ships_states_a_share_bound() {
    let mut random = Random::new(5);
    for listed in list() {
        for _ in 0..200 {
            let promise = named(listed.letters, &trial::settings(&mut random)).promise();
            let bound = promise.share_bound.unwrap_or_else(|| panic!("{} states none", listed.letters));
            // A user's own plan alone is held to nothing.
            assert_eq!(bound == ShareBound::AsWritten, listed.letters == "fixed", "{}", listed.letters);
            assert_eq!(promise.waiting_bound.is_none(), listed.letters == "fixed", "{}", listed.letters);
        }
        let page = format!(
            "{}/../../docs/policies/{}.md",
            env!("CARGO_MANIFEST_DIR"),
            listed.letters.to_lowercase()
        );
        let page = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{page}: {error}"));
        let promises = page.split("**Promises:**").nth(1).unwrap_or_default();
        assert!(promises.contains("share"), "the page of {} promises nothing about shares", listed.letters);
    }
}

/// What the first of many sequences that break the promise breaks, if one does.
fn broken(cases: u64, alter: &(dyn Fn(&Settings) -> Altered + Sync)) -> Option<String> {
    let one = |seed| trial::sequence(seed, &|settings| Box::new(alter(settings)));
    trial::sequences(1, cases, &one).err().map(|(_, why)| why)
}

#[test]
fn a_policy_that_starves_a_program_is_caught() {
    for listed in list().iter().filter(|listed| listed.letters != "fixed") {
        // Shares alone are what it is held to.
        let robbed = |settings: &Settings| {
            let inner = named(listed.letters, settings);
            let Promise { share_bound, settled, .. } = inner.promise();
            Altered { inner, promise: Promise { share_bound, settled, ..Promise::default() }, rob: true }
        };
        let mut random = Random::new(3);
        let mut caught = false;
        for _ in 0..20 {
            let settings = trial::settings(&mut random);
            let policy = robbed(&settings);
            let mut bench = Bench::new("pack:2 [numa] l3:1 core:8", listed.letters, &settings);
            bench.snapshot = bench.snapshot.clone().with_apps("a; b; c").unwrap();
            let plan = policy.decide(&bench.snapshot, &Memory::default()).plan;
            let found = plan::check_plan(&plan, &bench.snapshot, &policy.promise());
            caught = found.iter().any(|violation| violation.invariant() == 5);
            assert!(caught, "{}: {plan} passes as {:?}", listed.letters, policy.promise());
        }
        assert!(caught);
        assert!(broken(200, &robbed).is_some(), "{}", listed.letters);
    }
}

#[test]
fn no_policy_could_promise_much_more() {
    let tighter = |letters: &'static str, share_bound, settled| {
        let why = broken(20_000, &|settings| {
            let inner = named(letters, settings);
            let promise = Promise { share_bound, settled, ..inner.promise() };
            Altered { inner, promise, rob: false }
        });
        let why = why.unwrap_or_else(|| panic!("{letters} holds {share_bound:?} and {settled:?}"));
        assert!(why.contains("of the machine, its equal"), "{letters}: {why}");
    };
    for letters in ["TA", "twins", "EQ"] {
        tighter(letters, Some(ShareBound::Ratio(1.99)), None);
    }
    tighter("CO", Some(ShareBound::Ratio(1.99)), None);
    tighter("adaptive", Some(ShareBound::Floor(2.0)), None);
    tighter("LV", Some(ShareBound::Floor(0.7)), None);
    tighter("LV", None, Some(Settled { after_ns: 0, bound: ShareBound::Ratio(1.5) }));
    tighter("BP", Some(ShareBound::Floor(1000.0)), None);
}

/// CPUs of the programs of one letter: the least and the most.
fn least_and_most(plan: &Plan, letter: char) -> (f64, f64) {
    let shares = plan.mean_cpus();
    let own: Vec<f64> =
        shares.iter().filter(|(app, _)| app.as_str().starts_with(letter)).map(|(_, &g)| g).collect();
    (own.iter().copied().fold(f64::INFINITY, f64::min), own.iter().copied().fold(0.0, f64::max))
}

#[test]
fn an_unstoppable_program_costs_its_neighbour_nothing() {
    // Sixteen threads that sleep while they wait, and nobody may stop them.
    let apps = "p rigid max 16 team 16 fixed passive; a1; a2";
    for letters in ["CO", "LV"] {
        let plan = Bench::new("pack:2 core:8", letters, &Settings::default()).arrive(apps);
        let (least, most) = least_and_most(&plan, 'a');
        assert!(most <= 2.001 * least, "{letters}: {plan}");
    }
    // No partition for each: everybody everywhere.
    let settings = Settings { allowed_widths: Some(vec![2]), ..Settings::default() };
    let plan = Bench::new(FIGURE_1, "CO", &settings).arrive("p passive rigid max 4 team 4 fixed; a1; a2; a3");
    let (least, most) = least_and_most(&plan, 'a');
    assert!(most <= 2.001 * least, "{plan}");
}

#[test]
fn equals_beside_heavier_programs_differ_by_a_factor_of_2() {
    let settings = Settings { allowed_widths: Some(vec![2]), ..Settings::default() };
    let mut bench = Bench::new(FIGURE_1, "CO", &settings);
    let plan = bench.arrive("h weight 90000; a1; a2; a3");
    let (least, most) = least_and_most(&plan, 'a');
    assert!(most <= 2.001 * least && least > 0.6, "{plan}");
    // Nodes that count programs would set two against the heavy one, and one against nobody.
    let settings = Settings { level_decision: LevelDecision::Local, ..Settings::default() };
    let plan = Bench::new("pack:2 core:4", "CO", &settings).arrive("h weight 90000; a1; a2");
    let (least, most) = least_and_most(&plan, 'a');
    assert!(most <= 2.001 * least, "{plan}");
}

#[test]
fn no_node_stays_divided_for_fewer_than_half_of_its_parts() {
    let settings =
        Settings { level_decision: LevelDecision::Local, lower_threshold: 9, ..Settings::default() };
    let mut bench = Bench::new("pack:2 core:4", "CO", &settings);
    bench.grow(8);
    let mut plan = Plan::default();
    for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
        plan = bench.leave(name);
    }
    // One program in each package, where both would be on single cores.
    assert!(plan.runs().iter().all(|run| run.place.len() == 4), "{plan}");
}

#[test]
fn a_seated_program_is_seated_again() {
    let settings = Settings { settle_ns: 0, grace_ns: 0, ..Settings::default() };
    for usable in ["1-2,4-6,12,14-16,18,20,22", "0-23", "0-4,9-13"] {
        for count in 1..=16 {
            let mut bench = Bench::new("pack:4 [numa] l3:1 core:6", "LV", &settings);
            bench.snapshot.usable = usable.parse().unwrap();
            let plan = bench.grow(count);
            assert_eq!(bench.decide(), plan, "{count} programs on {usable}");
        }
    }
}
