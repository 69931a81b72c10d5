//! Control groups of the machine that the tests run on, whichever exist and are ours to change.

mod common;

use std::path::PathBuf;

use common::{Guarded, Program, SECOND_NS, eventually, need, scheduler};
use coplace_linux::affinity;
use coplace_linux::capabilities::{Mechanism, State, survey};
use coplace_linux::cgroup::{FreezeState, Membership, membership};
use coplace_linux::{Root, cgroup1, cgroup2, clock, procfs};
use rustix::process::Signal;

fn version1(app: &str) -> Option<(cgroup1::Hierarchy, String, Guarded)> {
    let hierarchy = need(cgroup1::Hierarchy::discover(&Root::live()))?;
    let scheduler = scheduler();
    let group = Guarded::new(hierarchy.group(&scheduler, app).unwrap());
    Some((hierarchy, scheduler, group))
}

fn version2(app: &str) -> Option<(cgroup2::Hierarchy, String, Guarded)> {
    let root = Root::live();
    let hierarchy = need(cgroup2::Hierarchy::discover(&root))?;
    let scheduler = scheduler();
    let group = Guarded::new(hierarchy.group(&scheduler, app, &root).unwrap());
    Some((hierarchy, scheduler, group))
}

/// A shell that keeps forking: each child sleeps for a moment.
fn forking() -> Program {
    let mut program = Program::start("sh", &["-c", "echo up; while :; do sleep 0.01 & sleep 0.005; done"]);
    program.line();
    program
}

fn groups_of(pid: u32) -> Membership {
    membership(pid, &Root::live()).unwrap()
}

#[test]
fn a_v1_group_takes_in_a_forking_tree_whole_and_returns_it() {
    let root = Root::live();
    let Some((hierarchy, scheduler, mut group)) = version1("forking") else { return };
    let program = forking();
    let before = groups_of(program.process.pid);
    let moved = group.group().add(&[program.process], &root).unwrap();
    assert!(moved.settled, "{moved:?}");
    assert!(moved.failed.is_empty(), "{moved:?}");
    assert_eq!(hierarchy.groups(&scheduler).unwrap(), ["forking"]);
    std::thread::sleep(std::time::Duration::from_millis(30));
    for process in procfs::tree(program.process.pid, &root).unwrap() {
        if let Ok(groups) = membership(process.pid, &root) {
            let inside = |controller: &str| {
                groups.v1.get(controller).is_some_and(|path| path.ends_with(&format!("{scheduler}/forking")))
            };
            let all = ["cpuset", "cpu", "freezer"].iter().all(|c| !hierarchy.has(c) || inside(c));
            if !all {
                // One that is ending has left its groups just before it becomes a zombie.
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
            assert!(all || !process.is_alive(&root), "{process:?} is outside: {groups:?}");
        }
    }
    let one = group.group();
    let dir = PathBuf::from(one.dir("freezer").or(one.dir("cpu")).or(one.dir("cpuset")).unwrap());
    group.remove().unwrap();
    assert!(!dir.exists());
    assert!(!dir.parent().unwrap().exists(), "the scheduler's empty directory is gone too");
    assert_eq!(groups_of(program.process.pid), before);
}

#[test]
fn a_v2_group_takes_in_a_forking_tree_whole_and_returns_it() {
    let root = Root::live();
    let Some((hierarchy, scheduler, mut group)) = version2("forking") else { return };
    let program = forking();
    let before = groups_of(program.process.pid);
    let moved = group.group().add(&[program.process], &root).unwrap();
    assert!(moved.settled && moved.failed.is_empty(), "{moved:?}");
    assert_eq!(hierarchy.groups(&scheduler).unwrap(), ["forking"]);
    assert!(group.group().processes(&root).unwrap().contains(&program.process));
    let dir = group.group().dir("freezer").unwrap().to_owned();
    group.remove().unwrap();
    assert!(!dir.exists());
    assert_eq!(groups_of(program.process.pid), before);
}

/// CPU time stands still while frozen and goes on after.
fn stands_still(program: &Program) -> bool {
    let time = || clock::cpu_ns_of(program.process.pid).unwrap();
    // It counts as frozen some microseconds before it has left its CPU.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let before = time();
    std::thread::sleep(std::time::Duration::from_millis(30));
    time() == before
}

#[test]
fn a_v1_frozen_program_dies_of_sigkill_only_once_thawed() {
    let root = Root::live();
    let Some((hierarchy, _, mut group)) = version1("frozen") else { return };
    if !hierarchy.has("freezer") {
        return coplace_skipped::skipped_here("there is no v1 freezer");
    }
    let busy = Program::busy();
    group.group().add(&[busy.process], &root).unwrap();
    group.group().freeze(SECOND_NS).unwrap();
    assert_eq!(group.group().freeze_state().unwrap(), FreezeState::Frozen);
    assert!(stands_still(&busy));
    coplace_linux::signals::send(&[busy.process], Signal::KILL, &root);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(busy.process.is_alive(&root), "a v1-frozen process ignores SIGKILL");
    group.group().thaw(SECOND_NS).unwrap();
    eventually("the end after the thaw", || !busy.process.is_alive(&root));
    group.remove().unwrap();
}

#[test]
fn a_v2_frozen_program_stands_still_until_its_group_is_removed() {
    let root = Root::live();
    let Some((_, _, mut group)) = version2("frozen") else { return };
    let busy = Program::busy();
    group.group().add(&[busy.process], &root).unwrap();
    group.group().freeze(SECOND_NS).unwrap();
    assert_eq!(group.group().freeze_state().unwrap(), FreezeState::Frozen);
    assert!(stands_still(&busy));
    group.remove().unwrap();
    eventually("going on", || !stands_still(&busy));
}

#[test]
fn a_switch_freezes_and_thaws_again_and_again() {
    let root = Root::live();
    let mut groups: Vec<Guarded> =
        [version1("turns"), None].into_iter().flatten().map(|found| found.2).collect();
    groups.extend(version2("turns").map(|found| found.2));
    for mut group in groups {
        let busy = Program::busy();
        group.group().add(&[busy.process], &root).unwrap();
        let Some(switch) = need(group.group().freeze_switch()) else { continue };
        for _ in 0..20 {
            switch.set(true).unwrap();
            switch.set(false).unwrap();
        }
        switch.set(true).unwrap();
        eventually("freezing", || group.group().freeze_state().unwrap() == FreezeState::Frozen);
        assert!(stands_still(&busy));
        switch.set(false).unwrap();
        eventually("thawing", || group.group().freeze_state().unwrap() == FreezeState::Thawed);
    }
}

#[test]
fn a_terminating_signal_to_a_frozen_group_ends_its_members() {
    let root = Root::live();
    if let Some((_, _, mut group)) = version1("ended") {
        let program = Program::sleep();
        group.group().add(&[program.process], &root).unwrap();
        if group.group().dir("freezer").is_some() {
            group.group().freeze(SECOND_NS).unwrap();
        }
        assert_eq!(group.group().signal(Signal::TERM, &root).unwrap().reached, 1);
        eventually("the end", || !program.process.is_alive(&root));
    }
    if let Some((_, _, mut group)) = version2("ended") {
        let program = Program::sleep();
        group.group().add(&[program.process], &root).unwrap();
        group.group().freeze(SECOND_NS).unwrap();
        assert_eq!(group.group().signal(Signal::TERM, &root).unwrap().reached, 1);
        eventually("the end", || !program.process.is_alive(&root));
    }
}

#[test]
fn a_v1_cpuset_confines_threads_and_release_restores_masks() {
    let root = Root::live();
    let Some((hierarchy, _, mut group)) = version1("placed") else { return };
    if !hierarchy.has("cpuset") {
        return coplace_skipped::skipped_here("there is no v1 cpuset");
    }
    let all = group.group().cpus().unwrap();
    let one = all.take(1);
    let program = Program::sleep();
    let mut masks = affinity::Masks::default();
    masks.remember(&[program.process], &root);
    let before = affinity::get(program.process.pid).unwrap();
    group.group().set_cpus(&one).unwrap();
    group.group().add(&[program.process], &root).unwrap();
    assert_eq!(group.group().cpus().unwrap(), one);
    assert_eq!(affinity::get(program.process.pid).unwrap(), one);
    group.group().set_cpus(&all).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), before.intersection(&all));
    group.group().set_cpus(&one).unwrap();
    let moved = group.group().release(&[program.process], &root);
    assert!(moved.failed.is_empty(), "{moved:?}");
    masks.restore(&root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), before);
}

#[test]
fn a_v2_cpuset_confines_every_thread_and_the_masks_come_back() {
    let root = Root::live();
    let Some((hierarchy, _, mut group)) = version2("placed") else { return };
    if !hierarchy.has("cpuset") {
        return coplace_skipped::skipped_here("there is no v2 cpuset");
    }
    let all = group.group().cpus().unwrap();
    let one = all.take(1);
    let program = Program::sleep();
    let mut masks = affinity::Masks::default();
    masks.remember(&[program.process], &root);
    let before = affinity::get(program.process.pid).unwrap();
    group.group().set_cpus(&one).unwrap();
    group.group().add(&[program.process], &root).unwrap();
    assert_eq!(group.group().cpus().unwrap(), one);
    assert_eq!(affinity::get(program.process.pid).unwrap(), one);
    group.group().set_cpus(&all).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), before.intersection(&all));
    group.group().set_cpus(&one).unwrap();
    let moved = group.group().release(&[program.process], &root);
    assert!(moved.failed.is_empty(), "{moved:?}");
    masks.restore(&root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), before);
}

/// A thread's own choice of CPUs stands after its way into a group with a cpuset, and after the way back. Only kernels
/// before 6.2 forget it by themselves: the guest's does.
fn keeps_own_mask(has_cpusets: bool, mut group: Guarded) {
    if !has_cpusets {
        return coplace_skipped::skipped_here("there is no cpuset of this version");
    }
    let root = Root::live();
    let program = Program::sleep();
    let mask = || affinity::get(program.process.pid).unwrap();
    let own = mask().take(1);
    affinity::set(program.process.pid, &own).unwrap();
    let added = group.group().add(&[program.process], &root).unwrap();
    assert!(added.failed.is_empty(), "{added:?}");
    assert_eq!(mask(), own);
    let released = group.group().release(&[program.process], &root);
    assert!(released.failed.is_empty(), "{released:?}");
    assert_eq!(mask(), own);
}

#[test]
fn a_v1_cpuset_leaves_a_threads_own_mask_alone() {
    let Some((hierarchy, _, group)) = version1("bound") else { return };
    keeps_own_mask(hierarchy.has("cpuset"), group);
}

#[test]
fn a_v2_cpuset_leaves_a_threads_own_mask_alone() {
    let Some((hierarchy, _, group)) = version2("bound") else { return };
    keeps_own_mask(hierarchy.has("cpuset"), group);
}

/// CPU time of both while they share a CPU for so long that the second has had two seconds in all.
fn shared(one: &Program, other: &Program) -> (u64, u64) {
    let time = |program: &Program| clock::cpu_ns_of(program.process.pid).unwrap();
    let began = (time(one), time(other));
    let passed = || (time(one) - began.0, time(other) - began.1);
    eventually("two seconds of CPU time", || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        passed().0 + passed().1 > 2 * SECOND_NS
    });
    passed()
}

#[test]
fn v2_groups_share_by_weight_and_an_idle_one_yields() {
    let root = Root::live();
    let Some((hierarchy, scheduler, mut first)) = version2("light") else { return };
    let mut second = Guarded::new(hierarchy.group(&scheduler, "heavy", &root).unwrap());
    if !hierarchy.has("cpuset") || !hierarchy.has("cpu") {
        return coplace_skipped::skipped_here("there is no v2 cpuset or cpu");
    }
    let programs = [Program::busy(), Program::busy()];
    for (group, program) in [(&mut first, &programs[0]), (&mut second, &programs[1])] {
        let one = group.group().cpus().unwrap().take(1);
        group.group().set_cpus(&one).unwrap();
        group.group().add(&[program.process], &root).unwrap();
    }
    first.group().set_weight(100).unwrap();
    second.group().set_weight(300).unwrap();
    hierarchy.set_weight(&scheduler, 250).unwrap();
    let (light, heavy) = shared(&programs[0], &programs[1]);
    let ratio = heavy as f64 / light as f64;
    assert!((2.6..3.4).contains(&ratio), "{heavy} ns by {light} ns: {ratio:.2} instead of 3");
    // Who idles refuses a weight, has next to nothing, and has lost its weight when it comes back.
    let switch = second.group().idle_switch().unwrap();
    switch.set(true).unwrap();
    let refused = second.group().set_weight(200).unwrap_err().to_string();
    assert!(refused.contains("cpu.weight") && refused.contains("200"), "{refused}");
    let (light, heavy) = shared(&programs[0], &programs[1]);
    assert!(heavy * 20 < light, "{heavy} ns while idle, beside {light} ns");
    switch.set(false).unwrap();
    let weight = std::fs::read_to_string(second.group().dir("cpu").unwrap().join("cpu.weight")).unwrap();
    assert_eq!(weight.trim(), "100", "leaving idle resets the weight");
}

#[test]
fn an_idle_v1_group_refuses_a_weight_until_it_counts_again() {
    let Some((hierarchy, scheduler, mut group)) = version1("idle") else { return };
    if !hierarchy.has("cpu") {
        return coplace_skipped::skipped_here("there is no v1 cpu");
    }
    let Some(idle) = need(group.group().idle_switch()) else { return };
    group.group().set_weight(200).unwrap();
    idle.set(true).unwrap();
    let error = group.group().set_weight(200).unwrap_err().to_string();
    assert!(error.contains("cpu.shares") && error.contains("2048"), "{error}");
    hierarchy.set_weight(&scheduler, 300).unwrap();
    idle.set(false).unwrap();
    group.group().set_weight(200).unwrap();
}

#[test]
fn a_group_left_by_a_dead_scheduler_is_found_and_emptied() {
    let root = Root::live();
    let Some((hierarchy, scheduler, mut group)) = version1("orphan") else { return };
    let program = Program::sleep();
    let before = groups_of(program.process.pid);
    group.group().add(&[program.process], &root).unwrap();
    let origins = serde_json::to_string(group.group().origins()).unwrap();
    assert!(hierarchy.schedulers().unwrap().contains(&scheduler));
    let app = hierarchy.groups(&scheduler).unwrap().remove(0);
    let mut second = hierarchy.group(&scheduler, &app).unwrap();
    second.set_origins(serde_json::from_str(&origins).unwrap());
    assert_eq!(second.processes(&root).unwrap(), [program.process]);
    second.remove(&root).unwrap();
    assert_eq!(groups_of(program.process.pid), before);
}

#[test]
fn names_that_are_not_one_path_component_are_refused() {
    let Some(hierarchy) = need(cgroup1::Hierarchy::discover(&Root::live())) else { return };
    for name in ["", "..", "a/b", ".hidden", "line\nbreak"] {
        assert!(hierarchy.group("test", name).is_err(), "{name:?}");
        assert!(hierarchy.group(name, "test").is_err(), "{name:?}");
    }
}

#[test]
fn the_survey_names_every_mechanism_and_leaves_nothing_behind() {
    let root = Root::live();
    let before = affinity::get(0).unwrap();
    let survey = survey(&root);
    assert_eq!(survey.entries.len(), Mechanism::ALL.len());
    for entry in &survey.entries {
        match &entry.state {
            State::Available { detail } => println!("{}: {detail}", entry.mechanism),
            State::Absent(absent) => {
                println!("{absent}");
                assert!(!absent.why.is_empty() && !absent.remedy.is_empty() && !absent.what.is_empty());
            }
        }
    }
    assert!(survey.has(Mechanism::Affinity) && survey.has(Mechanism::Stop));
    assert_eq!(affinity::get(0).unwrap(), before);
    let own = std::process::id();
    if let Ok(hierarchy) = cgroup1::Hierarchy::discover(&root) {
        assert!(survey.has(Mechanism::CpusetV1) == hierarchy.has("cpuset"));
        assert!(!hierarchy.schedulers().unwrap().contains(&format!("probe-{own}")));
    }
    if let Ok(hierarchy) = cgroup2::Hierarchy::discover(&root) {
        assert!(survey.has(Mechanism::FreezerV2));
        assert!(!hierarchy.base().join(format!("coplace-probe-{own}")).exists());
    }
}
