//! Explores what may happen to a node: seeds become scenes on a modelled machine, in which the real scheduler, clock,
//! guards and members act and are killed, stalled and cut short between any two of their calls, and an onlooker looks
//! for what must never be.
//!
//! `COPLACE_SEEDS=from..to` explores others than the usual ones, `COPLACE_SEED=7` one. With `COPLACE_SHOW=1` each act of
//! its shortest form is printed.

mod actors;
mod invariants;
mod judge;
mod records;
mod scene;
mod search;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use model::world::Fault;
use model::{Machine, World};
use rustix::process::Signal;

use actors::{HOME, Part, Stage, Truth, UserAct};
use invariants::Onlooker;

use crate::mutants::{self, Mutant};
use scene::{Incident, Scene, Target};
use search::{explore, minimize, report};

const MS: u64 = 1_000_000;
/// Seeds of a usual run.
const SEEDS: u64 = 20_000;
/// By then every program has done its work, if anybody lets it.
const END_NS: u64 = 20_000 * MS;
/// How long a world goes on after its last program, until everything is tidied up.
const TIDY_NS: u64 = 3_000 * MS;

/// Plays a scene; what was found to be wrong.
fn play(scene: &Scene) -> Option<String> {
    play_traced(scene, false)
}

/// The same of a node with a deliberate fault.
fn play_broken(scene: &Scene, mutant: Mutant) -> Option<String> {
    mutants::set(Some(mutant));
    let found = play(scene);
    mutants::set(None);
    found
}

/// The same; `shows`: each act is printed.
fn play_traced(scene: &Scene, shows: bool) -> Option<String> {
    let machine = Machine {
        cpus: scene.cpus.clone(),
        mounted: scene.mounted.clone(),
        keeps_masks: scene.keeps_masks,
        pids: scene.pids,
        uid: scene.uid,
    };
    let world = World::new(machine, scene.seed);
    world.enter();
    let shell = world.kernel.borrow_mut().start(model::kernel::INIT, "bash");
    world.kernel.borrow_mut().start(model::kernel::INIT, "editor");
    let stage = Rc::new(Stage {
        scene: scene.clone(),
        world: Rc::clone(&world),
        parts: RefCell::default(),
        truths: RefCell::new(vec![Truth::default(); scene.programs.len()]),
        stopper: RefCell::default(),
        daemon: Cell::new(None),
        shell: Cell::new(shell),
        lease_acquired_ns: Cell::new(0),
        shows,
    });
    stage.start_guards();
    judge::observe(&stage);
    plan(&stage);
    let onlooker = Onlooker::default();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut until_ns = world.now_ns();
        loop {
            until_ns += 100 * MS;
            world.run_until(until_ns, |world| {
                onlooker.check(&stage, world);
                stage.start_orphans();
                carry_out_wishes_of_killed_runs(&stage);
            });
            if world.kernel.borrow().violation.is_some() || is_over(&stage) {
                break;
            }
            if world.now_ns() > END_NS {
                // Where everybody was killed who could have set them free nothing is promised.
                if is_any_process_alive(&stage) {
                    let what = unfinished(&stage);
                    world.kernel.borrow_mut().report_violation(what);
                }
                break;
            }
        }
        // Nobody tidies up while the machine stands still, nor in that time where it is slow.
        let mut stood_ns = u64::MAX;
        let is_over = |stood_ns| stood_ns == world.stood_still_ns() && !world.was_slow(TIDY_NS);
        while world.kernel.borrow().violation.is_none() && !is_over(stood_ns) {
            stood_ns = world.stood_still_ns();
            world.run_until(world.now_ns() + TIDY_NS, |world| onlooker.check(&stage, world));
        }
        if world.kernel.borrow().violation.is_none() {
            let left = leftovers(&stage);
            if let Some(what) = left {
                world.kernel.borrow_mut().report_violation(what);
            }
        }
    }));
    let mut found = world.kernel.borrow().violation.clone();
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        found = Some(format!("panicked: {}", text.unwrap_or_default()));
    }
    world.leave();
    found
}

fn plan(stage: &Rc<Stage>) {
    let began_ns = stage.world.now_ns();
    for (number, program) in stage.scene.programs.iter().enumerate() {
        let own = Rc::clone(stage);
        stage.world.plan(began_ns + program.at_ms * MS, Box::new(move |_| own.start_run(number)));
    }
    for (at_ms, incident) in stage.scene.incidents.clone() {
        let own = Rc::clone(stage);
        stage.world.plan(began_ns + at_ms * MS, Box::new(move |_| apply(&own, incident)));
    }
    // Others come and go on the machine, so that numbers of processes are used again.
    for at in 0..60 {
        let churn = move |world: &Rc<World>| {
            let mut kernel = world.kernel.borrow_mut();
            let pids: Vec<u32> = (0..4).map(|_| kernel.start(model::kernel::INIT, "ls")).collect();
            pids.into_iter().for_each(|pid| kernel.exit(pid, false));
        };
        stage.world.plan(began_ns + at * 25 * MS, Box::new(churn));
    }
}

fn apply(stage: &Rc<Stage>, incident: Incident) {
    let wish = |app: usize, wish: UserAct| {
        let run = stage.truths.borrow()[app].run.filter(|run| stage.is_run(*run, app));
        // Whose `run` is gone is signalled by its user himself.
        match run {
            Some(_) => stage.truths.borrow_mut()[app].wishes.push_back(wish),
            None => act_by_hand(stage, app, wish),
        }
    };
    match incident {
        Incident::Kill(target, calls) => inject(stage, target, calls, Fault::Killed),
        Incident::Stall(target, calls, ms) => inject(stage, target, calls, Fault::Stalled(ms * MS)),
        Incident::Standstill(ms) => stage.world.stand_still(ms * MS),
        Incident::Slow(ms, call_us) => stage.world.slow_down(ms * MS, call_us * 1000),
        Incident::Stop(app) => wish(app, UserAct::Stop),
        Incident::Continue(app) => wish(app, UserAct::Continue),
        Incident::StopByHand(app) => stop_by_hand(stage, app),
        Incident::ContinueByHand(app) if stage.truths.borrow()[app].by_hand.is_some() => {
            continue_by_hand(stage, app);
        }
        Incident::ContinueByHand(_) => {}
        Incident::Terminate(app) => wish(app, UserAct::Terminate),
        Incident::KillProgram(app) => {
            let now_ns = stage.world.now_ns();
            // There may be nothing to be killed yet.
            if stage.truths.borrow()[app].started {
                stage.truths.borrow_mut()[app].doomed_at_ns.get_or_insert(now_ns);
                signal_all(stage, app, Signal::KILL);
            }
        }
        Incident::DiskFull(ms) => stage.world.disk_full_until_ns.set(stage.world.now_ns() + ms * MS),
        Incident::RemoveGroups => {
            let mut kernel = stage.world.kernel.borrow_mut();
            let paths = kernel.groups.paths();
            for path in paths.iter().rev() {
                let used =
                    kernel.processes.values().any(|process| kernel.group_paths(process).contains(path));
                if !used {
                    kernel.groups.forget(path);
                }
            }
        }
        Incident::DaemonStarts => {
            if stage.daemon.get().is_none_or(|pid| !stage.world.runs(pid)) {
                stage.start_daemon();
            }
        }
        Incident::DaemonEnds => {
            if let Some(stopper) = &*stage.stopper.borrow() {
                stopper.stop();
            }
        }
    }
}

/// What users wanted of a `run` that was killed before it obeyed.
fn carry_out_wishes_of_killed_runs(stage: &Stage) {
    for app in 0..stage.scene.programs.len() {
        let dead = stage.truths.borrow()[app].run.is_some_and(|run| !stage.is_run(run, app));
        while dead && let Some(wish) = stage.next_wish(app) {
            act_by_hand(stage, app, wish);
        }
    }
}

/// A user whose `run` is gone has the program's own process.
fn act_by_hand(stage: &Stage, app: usize, wish: UserAct) {
    if !stage.truths.borrow()[app].started {
        return;
    }
    match wish {
        UserAct::Stop => stop_by_hand(stage, app),
        UserAct::Continue => continue_by_hand(stage, app),
        UserAct::Terminate => {
            let now_ns = stage.world.now_ns();
            stage.truths.borrow_mut()[app].doomed_at_ns.get_or_insert(now_ns);
            signal_all(stage, app, Signal::TERM);
        }
    }
}

/// As `kill -STOP` does, whether or not the program stands by turns: nobody but the kernel knows of it.
fn stop_by_hand(stage: &Stage, app: usize) {
    {
        let mut truths = stage.truths.borrow_mut();
        let truth = &mut truths[app];
        if !truth.started || truth.user_stopped || truth.doomed_at_ns.is_some() {
            return;
        }
        truth.user_stopped = true;
        truth.by_hand = Some((stage.world.now_ns(), invariants::holder_of(&stage.world.kernel.borrow())));
    }
    stage.print(|| format!("the user of p{app} stops it by hand"));
    signal_all(stage, app, Signal::STOP);
}

fn continue_by_hand(stage: &Stage, app: usize) {
    stage.print(|| format!("the user of p{app} continues it by hand"));
    (stage.truths.borrow_mut()[app].user_stopped, stage.truths.borrow_mut()[app].by_hand) = (false, None);
    signal_all(stage, app, Signal::CONT);
}

fn signal_all(stage: &Stage, app: usize, signal: Signal) {
    let mut kernel = stage.world.kernel.borrow_mut();
    let pids: Vec<u32> = kernel.of_app(app as u32).map(|process| process.pid).collect();
    for pid in pids {
        let _ = kernel.signal(stage.shell.get(), pid, signal);
    }
}

fn inject(stage: &Rc<Stage>, target: Target, calls: u64, fault: Fault) {
    let kernel = stage.world.kernel.borrow();
    let parts = stage.parts.borrow();
    let guards = || {
        let coplace =
            kernel.processes.values().filter(|process| process.name == "coplace" && !process.zombie);
        coplace.map(|process| process.pid).find(|pid| parts.get(pid).is_none_or(|part| *part == Part::Guard))
    };
    let pid = match target {
        Target::Guard => guards(),
        Target::Run(app) => stage.truths.borrow()[app].run,
        // The holder of the lease.
        Target::Scheduler => kernel.file(&Path::new(HOME).join("lease")).and_then(|bytes| {
            let word = bytes.get(16..24)?.try_into().ok()?;
            u32::try_from(u64::from_ne_bytes(word)).ok()
        }),
    };
    drop((kernel, parts));
    if let Some(pid) = pid.filter(|pid| stage.world.runs(*pid)) {
        stage.world.inject(pid, calls, fault);
    }
}

fn is_over(stage: &Stage) -> bool {
    let truths = stage.truths.borrow();
    let kernel = stage.world.kernel.borrow();
    let over =
        |app: usize, truth: &Truth| truth.process.is_some() && kernel.of_app(app as u32).next().is_none();
    truths.iter().enumerate().all(|(app, truth)| over(app, truth))
}

/// Whether there is a process of coplace.
fn is_any_process_alive(stage: &Stage) -> bool {
    let kernel = stage.world.kernel.borrow();
    kernel.processes.values().any(|process| process.name == "coplace" && !process.zombie)
}

fn unfinished(stage: &Stage) -> String {
    let kernel = stage.world.kernel.borrow();
    let mut text = String::from("not all programs have done their work:");
    for app in 0..stage.scene.programs.len() {
        for process in kernel.of_app(app as u32) {
            let (frozen, cpus) = (kernel.is_frozen(process), kernel.cpus_of(process));
            let program = process.program.as_ref().map(|program| (program.now.clone(), program.left_ns));
            text += &format!(
                " p{app} process {} stopped {} by {} frozen {frozen} on {cpus} at {program:?};",
                process.pid, process.stopped, process.stopped_by
            );
        }
    }
    text
}

/// What nobody will tidy up any more.
fn leftovers(stage: &Stage) -> Option<String> {
    let kernel = stage.world.kernel.borrow();
    for (app, truth) in stage.truths.borrow().iter().enumerate() {
        let died = truth.doomed_at_ns.is_some();
        let ended = kernel.of_app(app as u32).next().is_none();
        if ended && !died && !kernel.finished.contains_key(&(app as u32)) {
            return Some(format!("p{app} has ended before its work was done (invariant 8)"));
        }
    }
    // Who was to tidy up may have been killed, and nobody come after.
    let killed = stage.scene.incidents.iter().any(|(_, what)| {
        matches!(
            what,
            Incident::Kill(..) | Incident::Stall(..) | Incident::DiskFull(_) | Incident::Standstill(_)
        )
    });
    if killed && !is_any_process_alive(stage) {
        return None;
    }
    let files = kernel.files_below(&Path::new(HOME).join("apps"));
    let ours = |path: &std::path::PathBuf| path.iter().any(|part| part == linux::cgroup::TOP);
    let groups: Vec<_> = kernel.groups.paths().into_iter().filter(ours).collect();
    match (files.first(), groups.first()) {
        (Some(path), _) | (None, Some(path)) => Some(format!("{} is left behind", path.display())),
        (None, None) => None,
    }
}

fn requested_seeds() -> Option<Range<u64>> {
    let range = std::env::var("COPLACE_SEEDS").ok()?;
    let (from, to) = range.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

#[test]
fn explored_worlds_keep_every_invariant() {
    if let Some(seed) = std::env::var("COPLACE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        let found = play(&Scene::of(seed));
        if found.is_some() && std::env::var_os("COPLACE_SHOW").is_some() {
            play_traced(&minimize(&Scene::of(seed)).0, true);
        }
        assert!(found.is_none(), "{}", report(seed));
        return;
    }
    let seeds = requested_seeds().unwrap_or(0..SEEDS);
    let (count, began) = (seeds.end - seeds.start, Instant::now());
    let found = explore(seeds, 5, play);
    eprintln!("{count} seeds in {:.1} s", began.elapsed().as_secs_f64());
    let reports: Vec<String> = found.keys().map(|seed| report(*seed)).collect();
    assert!(found.is_empty(), "{}", reports.join("\n"));
}
