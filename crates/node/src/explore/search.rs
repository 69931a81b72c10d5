//! Many seeds, and the shortest form of one that shows something wrong.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::scene::{Incident, Scene};
use super::{play, play_broken, requested_seeds};
use crate::mutants::{self, Mutant};

/// No world takes as long.
const LONGEST: Duration = Duration::from_secs(20);

/// The same scene with as little in it as still shows something wrong.
pub fn minimize(scene: &Scene) -> (Scene, String) {
    let mut best = scene.clone();
    let mut what = play(scene).unwrap_or_default();
    let mut shorter = true;
    while shorter {
        shorter = false;
        for at in (0..best.incidents.len()).rev() {
            if at >= best.incidents.len() {
                continue;
            }
            let mut less = best.clone();
            match less.incidents[at].1 {
                // Who is stopped by his user is continued by him, or waits for ever.
                Incident::Continue(_) | Incident::ContinueByHand(_) => continue,
                Incident::Stop(app) => drop_first(&mut less.incidents, at, Incident::Continue(app)),
                Incident::StopByHand(app) => {
                    drop_first(&mut less.incidents, at, Incident::ContinueByHand(app));
                }
                _ => {}
            }
            less.incidents.remove(at);
            if let Some(found) = play(&less) {
                (best, what, shorter) = (less, found, true);
            }
        }
    }
    (best, what)
}

/// Leaves out the first such incident from there on.
fn drop_first(incidents: &mut Vec<(u64, Incident)>, from: usize, incident: Incident) {
    if let Some(next) = incidents[from..].iter().position(|(_, what)| *what == incident) {
        incidents.remove(from + next);
    }
}

pub fn report(seed: u64) -> String {
    let (scene, what) = minimize(&Scene::of(seed));
    let mut text = format!("seed {seed}: {what}\n");
    text += &format!("  again: COPLACE_SEED={seed} cargo test -p coplace-node explore::\n");
    text += &format!(
        "  CPUs {}, {:?}, user {}, keeps masks {}, policy {} slices {} ms, {:?} {:?}\n",
        scene.cpus,
        scene.mounted,
        scene.uid,
        scene.keeps_masks,
        scene.policy,
        scene.slice_ms,
        scene.placement,
        scene.turns
    );
    for (number, program) in scene.programs.iter().enumerate() {
        text += &format!(
            "  {:>5} ms: p{number} {:?} mask {} nice {} with {} steps\n",
            program.at_ms,
            program.kind,
            program.mask,
            program.nice,
            program.script.len()
        );
    }
    for (at_ms, incident) in &scene.incidents {
        text += &format!("  {at_ms:>5} ms: {incident:?}\n");
    }
    text
}

/// Explores seeds with all CPUs; those under which something is wrong, at most so many.
pub fn explore(
    seeds: Range<u64>,
    most: usize,
    play: impl Fn(&Scene) -> Option<String> + Sync,
) -> BTreeMap<u64, String> {
    let next = AtomicU64::new(seeds.start);
    let found = std::sync::Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let under_way = std::sync::Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, found, under_way, play, seeds) = (&next, &found, &under_way, &play, &seeds);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || found.lock().is_ok_and(|found| found.len() >= most) {
                        linux::host::lock(under_way).remove(&thread);
                        return;
                    }
                    let mut all = under_way.lock().expect("nobody panics with it");
                    all.insert(thread, (seed, Instant::now()));
                    // A world that never ends would hide that.
                    for (seed, began) in all.values() {
                        assert!(began.elapsed() < LONGEST, "seed {seed} does not end");
                    }
                    drop(all);
                    if let Some(what) = play(&Scene::of(seed)) {
                        linux::host::lock(found).insert(seed, what);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panicked")
}

#[test]
fn the_page_of_faults_names_faults_that_are_there() {
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(top.join("docs/faults.md")).expect("the page is there");
    let known: Vec<String> = crate::mutants::ALL.iter().map(|mutant| format!("{mutant:?}")).collect();
    let mut named = 0;
    for name in page.split('`').skip(1).step_by(2) {
        if name.contains('/') {
            assert!(top.join(name).exists(), "{name}");
        } else if name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase) {
            assert!(known.iter().any(|known| known == name), "{name}");
            named += 1;
        }
    }
    assert!(named >= 10, "{named}");
}

/// Of the seeds that the page names, each has shown a fault that is mended.
#[test]
fn seeds_that_showed_faults_show_none_now() {
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(top.join("docs/faults.md")).expect("the page is there");
    let numbers = page.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() >= 5);
    let seeds: Vec<u64> = numbers.map(|digits| digits.parse().expect("they are digits")).collect();
    assert!(seeds.len() >= 15, "{seeds:?}");
    let wrong: Vec<String> =
        seeds.into_iter().filter(|seed| play(&Scene::of(*seed)).is_some()).map(report).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first seed that shows each deliberate fault. `COPLACE_SEEDS=from..to` looks for others,
/// `COPLACE_MUTANT=NothingThawed` for those of one fault.
const SHOWN_BY: &[(Mutant, u64)] = &[
    (Mutant::NothingThawed, 8),
    (Mutant::NobodyContinued, 40),
    (Mutant::NothingWidened, 262),
    (Mutant::NobodyMovedBack, 8),
    (Mutant::UsersStopForgotten, 96),
    (Mutant::CpusTakenFirst, 0),
    (Mutant::TeamsWidenedFirst, 5243),
    (Mutant::PlacesNotedLate, 0),
    (Mutant::StopsNotNoted, 2),
    (Mutant::GroupsNotedLate, 0),
    (Mutant::LaunchersStopped, 23),
    (Mutant::GuardIdle, 449),
    (Mutant::NoGuard, 449),
    (Mutant::AdoptedAsTheyAre, 40),
    (Mutant::LockTakenTwice, 160),
    (Mutant::RigidTakenForResizable, 8),
    (Mutant::RecordsKept, 1),
    (Mutant::HeldForEver, 0),
    (Mutant::NobodyReadopted, 11047),
    (Mutant::TeamsOutgrown, 23627),
    (Mutant::WithinForgotten, 469),
    (Mutant::AllContinued, 6),
    (Mutant::StopsByHandUndone, 90),
];

#[test]
fn each_deliberate_fault_is_shown_by_a_seed() {
    if let Some(seeds) = requested_seeds() {
        let only = std::env::var("COPLACE_MUTANT").ok();
        let wanted = |mutant: &Mutant| only.as_ref().is_none_or(|only| *only == format!("{mutant:?}"));
        for mutant in mutants::ALL.into_iter().filter(wanted) {
            let found = explore(seeds.clone(), 1, |scene| play_broken(scene, mutant));
            eprintln!("(Mutant::{mutant:?}, {:?}),", found.first_key_value());
        }
        return;
    }
    let mut wrong = Vec::new();
    for (mutant, seed) in SHOWN_BY {
        let scene = Scene::of(*seed);
        if play_broken(&scene, *mutant).is_none() {
            wrong.push(format!("{mutant:?} is not found by seed {seed}"));
        }
        assert_eq!(play(&scene), None, "seed {seed} without a fault");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let shown: Vec<Mutant> = SHOWN_BY.iter().map(|(mutant, _)| *mutant).collect();
    assert_eq!(shown, mutants::ALL, "each of them");
}
