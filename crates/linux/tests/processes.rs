//! Identity, trees, affinity and signals of real processes.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use common::{Program, SECOND_NS, eventually};
use coplace_linux::affinity::{self, Chosen, Masks, Stated};
use coplace_linux::pidfd::PidFd;
use coplace_linux::protection::{Reason, protected, protected_own};
use coplace_linux::spread::spread;
use coplace_linux::{Process, Root, clock, procfs, signals};
use rustix::process::Signal;
use topology::CpuSet;

/// Prints its pid's children count when all have started: a shell with two children, one of which
/// has a child of its own.
fn family() -> Program {
    let mut family = Program::start("sh", &["-c", "sleep 1000 & sh -c 'sleep 1000 & echo up; wait' & wait"]);
    family.line();
    eventually("the family's four members", || {
        procfs::tree(family.process.pid, &Root::live()).unwrap().len() == 4
    });
    family
}

#[test]
fn a_process_is_not_mistaken_for_another_with_the_same_pid() {
    let root = Root::live();
    let program = Program::sleep();
    assert!(program.process.is_alive(&root));
    let earlier = Process { start_time_ticks: program.process.start_time_ticks - 1, ..program.process };
    assert!(!earlier.is_alive(&root));
    assert!(PidFd::open(earlier, &root).is_err_and(|error| error.is_gone()));
    for send in [signals::send, signals::kill] {
        let sent = send(&[earlier], Signal::KILL, &root);
        assert_eq!((sent.reached, sent.gone.as_slice()), (0, [earlier].as_slice()));
    }
    assert_eq!(protected(earlier, &root), None);
    let outcome = affinity::set_all(&[earlier], &CpuSet::first(1), &mut Masks::default(), &root).unwrap();
    assert_eq!(outcome.threads, 0);
    assert!(program.process.is_alive(&root), "the stranger was left alone");
}

#[test]
fn a_tree_holds_all_descendants_by_either_walk() {
    let root = Root::live();
    let family = family();
    let tree = procfs::tree(family.process.pid, &root).unwrap();
    assert_eq!(tree.len(), 4);
    assert!(tree.contains(&family.process));
    assert_eq!(procfs::tree_fast(&[family.process], &root).unwrap(), tree);
}

#[test]
fn a_known_member_stays_in_the_tree_after_its_parent_has_ended() {
    let root = Root::live();
    let family = family();
    let before = procfs::tree(family.process.pid, &root).unwrap();
    signals::kill(&[family.process], Signal::KILL, &root);
    eventually("the parent's end", || !family.process.is_alive(&root));
    let after = procfs::tree_with(&before, &root).unwrap();
    assert_eq!(after.len(), 3, "{after:?}");
    signals::kill(&after, Signal::KILL, &root);
}

#[test]
fn proc_describes_this_process_correctly() {
    let root = Root::live();
    let own = Process::own(&root).unwrap();
    assert_eq!(own.pid, std::process::id());
    let status = procfs::status(own.pid, &root).unwrap();
    assert_eq!(status.uid, rustix::process::getuid().as_raw());
    assert_eq!(procfs::exe(own.pid, &root).unwrap(), std::env::current_exe().unwrap());
    let arguments: Vec<_> = std::env::args_os().collect();
    assert_eq!(procfs::cmdline(own.pid, &root).unwrap(), arguments);
    let cpus: BTreeSet<u32> = procfs::cpu_times(&root).unwrap().cpus.into_keys().collect();
    assert!(affinity::get(0).unwrap().iter().all(|cpu| cpus.contains(&cpu)));
    assert!(procfs::loadavg(&root).unwrap().fifteen_minutes >= 0.0);
    assert!(procfs::threads(own.pid, &root).unwrap().len() > 1, "the test harness has threads");
}

#[test]
fn cpu_time_grows_for_a_busy_program_and_not_for_a_stopped_one() {
    let root = Root::live();
    let Some(busy) = Program::python("print(); \nwhile True: pass") else { return };
    let time = || procfs::tree_cpu_time_ns(&[busy.process], &root);
    let (before, run_before) =
        (time(), procfs::task_runtime_ns(busy.process.pid, busy.process.pid, &root).unwrap());
    eventually("20 ms of CPU time", || time() >= before + 20_000_000);
    let run_after = procfs::task_runtime_ns(busy.process.pid, busy.process.pid, &root).unwrap();
    assert!(run_after.run_ns > run_before.run_ns);
    signals::stop(&[busy.process], &root);
    signals::wait_all_stopped(&[busy.process], SECOND_NS, &root).unwrap();
    let stopped = time();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(time(), stopped);
}

#[test]
fn threads_made_while_confining_are_confined_and_restored() {
    let root = Root::live();
    let all = affinity::get(0).unwrap();
    let one = all.take(1);
    // Makes threads that make threads, for a while.
    let script = "
import threading, time
def grow(depth):
    if depth:
        for _ in range(3):
            threading.Thread(target=grow, args=(depth - 1,)).start(); time.sleep(0.002)
    time.sleep(1000)
print(flush=True)
grow(5)";
    let Some(program) = Program::python(script) else { return };
    eventually("some threads", || procfs::threads(program.process.pid, &root).unwrap().len() > 20);
    let mut masks = Masks::default();
    let outcome = affinity::set_all(&[program.process], &one, &mut masks, &root).unwrap();
    assert!(outcome.settled, "{outcome:?}");
    assert!(outcome.failed.is_empty(), "{outcome:?}");
    std::thread::sleep(Duration::from_millis(100));
    let tids = procfs::threads(program.process.pid, &root).unwrap();
    assert!(tids.iter().all(|tid| affinity::get(*tid).unwrap() == one));
    // The guard keeps the value as text.
    let text = serde_json::to_string(&masks).unwrap();
    let mut masks: Masks = serde_json::from_str(&text).unwrap();
    assert!(masks.restore(&root).unwrap().settled);
    let tids = procfs::threads(program.process.pid, &root).unwrap();
    assert!(tids.iter().all(|tid| affinity::get(*tid).unwrap() == all));
}

/// All CPUs that we may use, the first and the last of them.
fn all_first_and_last() -> Option<(CpuSet, CpuSet, CpuSet)> {
    let all = affinity::get(0).unwrap();
    if all.len() < 2 {
        coplace_skipped::skipped_here("there is only one CPU");
        return None;
    }
    let (first, last) = (all.take(1), all.difference(&all.take(all.len() - 1)));
    Some((all, first, last))
}

#[test]
fn a_thread_that_chooses_its_own_mask_is_noticed_and_keeps_it() {
    let root = Root::live();
    let Some((all, first, last)) = all_first_and_last() else { return };
    let program = Program::sleep();
    let mut masks = Masks::default();
    affinity::set_all(&[program.process], &first, &mut masks, &root).unwrap();
    assert_eq!(masks.changed_by_others(), []);
    affinity::set(program.process.pid, &last).unwrap();
    let changed = masks.changed_by_others();
    assert_eq!((changed.len(), &changed[0].now), (1, &last));
    // A wider place does not widen what the thread chose.
    let outcome = affinity::set_all(&[program.process], &all, &mut masks, &root).unwrap();
    assert_eq!(outcome.changed.len(), 1);
    assert_eq!(affinity::get(program.process.pid).unwrap(), last);
    masks.restore(&root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), last, "its own choice is what it gets back");
}

#[test]
fn threads_bound_one_by_one_keep_their_masks_in_every_place() {
    let root = Root::live();
    let Some((all, first, last)) = all_first_and_last() else { return };
    let script = "
import threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(flush=True)
time.sleep(1000)";
    let Some(program) = Program::python(script) else { return };
    let main = program.process.pid;
    let tids = procfs::threads(main, &root).unwrap();
    let other = *tids.iter().find(|tid| **tid != main).unwrap();
    // As runtimes bind a team: each thread to a CPU of its own.
    affinity::set(main, &first).unwrap();
    affinity::set(other, &last).unwrap();
    let mut masks = Masks::default();
    affinity::set_all(&[program.process], &last, &mut masks, &root).unwrap();
    assert_eq!((affinity::get(main).unwrap(), affinity::get(other).unwrap()), (first.clone(), last.clone()));
    affinity::set_all(&[program.process], &all, &mut masks, &root).unwrap();
    assert_eq!((affinity::get(main).unwrap(), affinity::get(other).unwrap()), (first, last));
}

#[test]
fn a_rank_bound_to_what_is_its_place_is_no_child_of_another() {
    let root = Root::live();
    let Some((all, first, last)) = all_first_and_last() else { return };
    // A shell by another name, by which it is known as a launcher, that binds each of its ranks.
    let directory = tempfile::tempdir().unwrap();
    let launcher = directory.path().join("mpirun");
    std::fs::copy("/bin/sh", &launcher).unwrap();
    let script = "for cpu; do taskset -c $cpu sleep 1000 & echo $!; done; wait";
    let arguments = ["-c", script, "mpirun", &first.to_string(), &last.to_string()];
    let mut program = Program::start(launcher.to_str().unwrap(), &arguments);
    let ranks = [program.line(), program.line()].map(|pid| pid.parse::<u32>().unwrap());
    let bound = || ranks.map(|pid| affinity::get(pid).unwrap()) == [first.clone(), last.clone()];
    eventually("both are bound", || {
        bound() && ranks.iter().all(|pid| procfs::stat(*pid, &root).unwrap().comm == "sleep")
    });
    let ranks = ranks.map(|pid| Process::of(pid, &root).unwrap());
    let mut masks = Masks::of(all.clone());
    // One is seen before the other, which has exactly the CPUs of the place.
    affinity::set_all(&ranks[..1], &last, &mut masks, &root).unwrap();
    affinity::set_all(&ranks, &last, &mut masks, &root).unwrap();
    assert!(bound(), "{:?}", ranks.map(|rank| affinity::get(rank.pid)));
    // Nor where another rank, which is not bound, has got the same from us.
    affinity::set(ranks[0].pid, &all).unwrap();
    let mut masks = Masks::of(all.clone());
    affinity::set_all(&ranks[..1], &last, &mut masks, &root).unwrap();
    assert_eq!(affinity::get(ranks[0].pid).unwrap(), last);
    affinity::set_all(&ranks, &last, &mut masks, &root).unwrap();
    affinity::set_all(&ranks, &all, &mut masks, &root).unwrap();
    assert_eq!(ranks.map(|rank| affinity::get(rank.pid).unwrap()), [all, last]);
    signals::send(&ranks, Signal::KILL, &root);
}

/// Looks at a program twice, as what is seen once only may be a library that looks at the machine.
fn sample_twice(
    masks: &mut Masks,
    processes: &[Process],
    stated: &BTreeMap<Process, Stated>,
    root: &Root,
) -> bool {
    masks.sample(processes, stated.clone(), root);
    masks.sample(processes, stated.clone(), root)
}

#[test]
fn a_mask_chosen_while_confined_is_found_and_kept() {
    let root = Root::live();
    let Some((all, first, last)) = all_first_and_last() else { return };
    let program = Program::sleep();
    let processes = [program.process];
    let mut masks = Masks::of(all.clone());
    let nothing = BTreeMap::new();
    sample_twice(&mut masks, &processes, &nothing, &root);
    assert_eq!(masks.chosen(), &Chosen::Nothing);
    affinity::set_all(&processes, &first, &mut masks, &root).unwrap();
    assert!(!sample_twice(&mut masks, &processes, &nothing, &root), "all are where they were put");
    // Out of its place, and no mask of ours.
    affinity::set(program.process.pid, &last).unwrap();
    assert!(!sample_twice(&mut masks, &processes, &nothing, &root), "it is left there");
    assert_eq!(masks.chosen(), &Chosen::Same(last.clone()));
    affinity::set_all(&processes, &first, &mut masks, &root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), last);
    assert_eq!(masks.own().len(), 1);
    // Anywhere is no choice: it is put back into its place.
    affinity::set(program.process.pid, &all).unwrap();
    assert!(sample_twice(&mut masks, &processes, &nothing, &root));
    assert_eq!((masks.chosen(), masks.own()), (&Chosen::Nothing, Vec::new()));
    affinity::set_all(&processes, &first, &mut masks, &root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), first);
    // It chose what it has: only the library can tell.
    let chose = Stated { chooses: true, chose: [program.process.pid].into(), ..Stated::default() };
    sample_twice(&mut masks, &processes, &[(program.process, chose)].into(), &root);
    assert_eq!(masks.chosen(), &Chosen::Same(first.clone()));
    affinity::set_all(&processes, &all, &mut masks, &root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), first);
}

#[test]
fn a_mask_of_ours_that_is_set_back_is_no_choice() {
    let root = Root::live();
    let Some((all, first, last)) = all_first_and_last() else { return };
    let program = Program::sleep();
    let processes = [program.process];
    let tid = program.process.pid;
    let mut masks = Masks::of(all.clone());
    affinity::set_all(&processes, &first, &mut masks, &root).unwrap();
    affinity::set_all(&processes, &last, &mut masks, &root).unwrap();
    // What it read in its first place.
    affinity::set(tid, &first).unwrap();
    let nothing = BTreeMap::new();
    assert!(sample_twice(&mut masks, &processes, &nothing, &root), "it is to follow its place");
    affinity::set_all(&processes, &all, &mut masks, &root).unwrap();
    assert_eq!(affinity::get(tid).unwrap(), all);
    // The library knows better, both ways.
    for (stated, expected) in [
        (Stated::default(), Chosen::Nothing),
        (Stated { chooses: true, ..Stated::default() }, Chosen::Same(first.clone())),
    ] {
        affinity::set_all(&processes, &all, &mut masks, &root).unwrap();
        affinity::set(tid, &first).unwrap();
        sample_twice(&mut masks, &processes, &[(program.process, stated)].into(), &root);
        assert_eq!(masks.chosen(), &expected);
    }
}

#[test]
fn threads_that_follow_their_place_by_themselves_choose_nothing() {
    let root = Root::live();
    let Some((all, first, last)) = all_first_and_last() else { return };
    let program = Program::sleep();
    let processes = [program.process];
    let follows = Stated { follows_place: true, ..Stated::default() };
    let stated = BTreeMap::from([(program.process, follows)]);
    let mut masks = Masks::of(all.clone());
    masks.sample(&processes, stated.clone(), &root);
    affinity::set(program.process.pid, &first).unwrap();
    sample_twice(&mut masks, &processes, &stated, &root);
    assert_eq!(masks.chosen(), &Chosen::Nothing);
    affinity::set_all(&processes, &last, &mut masks, &root).unwrap();
    assert_eq!(affinity::get(program.process.pid).unwrap(), last);
}

#[test]
fn an_impossible_mask_is_an_error_that_names_the_thread() {
    let error = affinity::set(0, &CpuSet::new()).unwrap_err();
    assert!(error.to_string().contains("thread 0"), "{error}");
    let beyond: CpuSet = [40_000].into_iter().collect();
    assert!(affinity::set(0, &beyond).is_err());
}

/// Sends it from outside, as `kill` does.
fn kill_from_outside(program: &Program, signal: Signal) {
    signals::send(&[program.process], signal, &Root::live());
}

#[test]
fn a_stop_by_somebody_else_outlives_our_turns() {
    let root = Root::live();
    for busy in [false, true] {
        let program =
            if busy { Program::start("sh", &["-c", "while :; do :; done"]) } else { Program::sleep() };
        let stands = || signals::is_stopped(program.process, &root).unwrap();
        let mut targets = signals::Targets::open(&[program.process], &root);
        let turn = |targets: &mut signals::Targets| {
            targets.stop(&root);
            signals::wait_all_stopped(&[program.process], SECOND_NS, &root).unwrap();
            targets.cont(&root);
        };
        turn(&mut targets);
        eventually("going on", || !stands());
        assert!(!targets.are_stopped_by_others());
        // In its turn.
        kill_from_outside(&program, Signal::STOP);
        eventually("standing", stands);
        (0..3).for_each(|_| turn(&mut targets));
        assert!(stands() && targets.are_stopped_by_others());
        kill_from_outside(&program, Signal::CONT);
        eventually("going on", || !stands());
        turn(&mut targets);
        eventually("going on", || !stands());
        assert!(!targets.are_stopped_by_others());
        // While it stands still.
        targets.stop(&root);
        eventually("standing", stands);
        kill_from_outside(&program, Signal::STOP);
        targets.cont(&root);
        (0..3).for_each(|_| turn(&mut targets));
        assert!(stands() && targets.are_stopped_by_others());
    }
}

#[test]
fn a_stop_that_a_program_may_handle_reaches_it_when_continued() {
    let root = Root::live();
    for by_turn in [true, false] {
        // Ends by it.
        let program = Program::start("sh", &["-c", "trap 'exit 3' TSTP; while :; do sleep 0.01; done"]);
        eventually("its handler", || {
            let caught = procfs::status(program.process.pid, &root).unwrap().sig_caught;
            caught & 1 << (Signal::TSTP.as_raw() - 1) != 0
        });
        let mut targets = signals::Targets::open(&[program.process], &root);
        targets.stop(&root);
        signals::wait_all_stopped(&[program.process], SECOND_NS, &root).unwrap();
        kill_from_outside(&program, Signal::TSTP);
        match by_turn {
            true => targets.cont(&root),
            false => signals::cont_ours(&[program.process], &root),
        };
        eventually("its end", || !program.process.is_alive(&root));
    }
}

#[test]
fn a_family_stops_in_a_moment_and_still_ends_by_sigterm() {
    let root = Root::live();
    let family = family();
    let members = procfs::tree(family.process.pid, &root).unwrap();
    let mut targets = signals::Targets::open(&members, &root);
    assert_eq!(targets.stop(&root).reached, 4);
    signals::wait_all_stopped(&members, SECOND_NS, &root).unwrap();
    let sent = signals::kill(&members, Signal::TERM, &root);
    assert_eq!(sent.reached, 4);
    eventually("the end of all", || members.iter().all(|process| !process.is_alive(&root)));
    signals::wait_all_stopped(&members, 0, &root).expect("nobody waits for the unreaped parent");
}

#[test]
fn queued_programs_on_one_cpu_are_separated_with_their_masks() {
    let root = Root::live();
    let all = affinity::get(0).unwrap();
    if all.len() < 2 {
        return coplace_skipped::skipped_here("there is only one CPU");
    }
    let (one, two) = (all.take(1), all.take(2));
    let busy = [(); 2].map(|()| Program::start("sh", &["-c", "while :; do :; done"]));
    let processes = [busy[0].process, busy[1].process];
    let tids = processes.map(|process| process.pid);
    let cpus = || tids.map(|tid| procfs::thread_stat(tid, tid, &root).unwrap().processor);
    let masks = |mask: &CpuSet| tids.iter().for_each(|tid| affinity::set(*tid, mask).unwrap());
    // The kernel's balancer may be quicker than we are; never in all of twenty rounds.
    let mut moved = 0;
    for _ in 0..20 {
        masks(&one);
        eventually("both on one CPU", || cpus().iter().all(|cpu| one.contains(*cpu)));
        assert_eq!(spread(&processes, &root), 0, "their masks allow no other CPU");
        masks(&two);
        moved += spread(&processes, &root);
        for tid in tids {
            assert_eq!(affinity::get(tid).unwrap(), two, "as before");
        }
    }
    assert!(moved > 0);
}

#[test]
fn a_stop_reaches_computing_threads_behind_a_sleeping_first() {
    let root = Root::live();
    let script = "import threading\n\
                  def spin():\n while True: pass\n\
                  for _ in range(3): threading.Thread(target=spin, daemon=True).start()\n\
                  print('up')\nthreading.Event().wait()";
    let Some(program) = Program::python(script) else { return };
    let mut targets = signals::Targets::open(&[program.process], &root);
    for _ in 0..20 {
        assert_eq!(targets.stop(&root).reached, 1);
        signals::wait_all_stopped(&[program.process], SECOND_NS, &root).unwrap();
        // One SIGCONT takes back every stop that was sent, whichever thread it was for.
        assert_eq!(targets.cont(&root).reached, 1);
        eventually("going on", || !signals::is_stopped(program.process, &root).unwrap());
        std::thread::sleep(Duration::from_millis(2));
        assert!(!signals::is_stopped(program.process, &root).unwrap(), "no stop is left over");
    }
}

#[test]
fn a_process_goes_on_after_the_end_of_its_first_thread() {
    let root = Root::live();
    // By the system call itself: only this thread ends.
    let script = "import ctypes, platform, threading\n\
                  def spin():\n while True: pass\n\
                  threading.Thread(target=spin).start()\n\
                  exits = 60 if platform.machine() == 'x86_64' else 93\n\
                  print('up')\nctypes.CDLL(None).syscall(exits, 0)";
    let Some(program) = Program::python(script) else { return };
    let (process, pid) = (program.process, program.process.pid);
    let first_has_ended = || procfs::thread_stat(pid, pid, &root).unwrap().has_ended();
    eventually("the end of the first thread", first_has_ended);
    assert!(process.is_alive(&root) && procfs::tree(pid, &root).unwrap() == [process]);
    let mut targets = signals::Targets::open(&[process], &root);
    assert_eq!(targets.stop(&root).reached, 1);
    signals::wait_all_stopped(&[process], SECOND_NS, &root).unwrap();
    assert!(signals::is_stopped(process, &root).unwrap());
    assert_eq!(targets.cont(&root).reached, 1);
    eventually("going on", || !signals::is_stopped(process, &root).unwrap());
    signals::kill(&[process], Signal::KILL, &root);
    eventually("its end", || !process.is_alive(&root));
}

#[test]
fn waiting_for_a_stop_times_out_and_names_what_still_runs() {
    let root = Root::live();
    let program = Program::sleep();
    let error = signals::wait_all_stopped(&[program.process], 5_000_000, &root).unwrap_err();
    assert!(error.to_string().contains(&program.process.pid.to_string()), "{error}");
}

#[test]
fn the_end_of_a_process_that_is_no_child_is_noticed() {
    let root = Root::live();
    let family = family();
    let members = procfs::tree(family.process.pid, &root).unwrap();
    let grandchild = *members.last().unwrap();
    let handle = PidFd::open(grandchild, &root).unwrap();
    assert!(!handle.wait_exit(5_000_000).unwrap());
    handle.send(Signal::KILL).unwrap();
    assert!(handle.wait_exit(5 * SECOND_NS).unwrap());
}

#[test]
fn shells_launchers_leaders_and_ancestors_are_protected() {
    let root = Root::live();
    let program = Program::sleep();
    assert_eq!(protected(program.process, &root), None);
    let family = family();
    assert!(matches!(protected(family.process, &root), Some(Reason::Shell { .. })));
    let leader = Program::start("setsid", &["sleep", "1000"]);
    eventually("the new session", || leader.process.stat(&root).is_ok_and(|stat| stat.comm == "sleep"));
    assert_eq!(protected(leader.process, &root), Some(Reason::SessionLeader));
    assert_eq!(protected_own(leader.process, &root), None);
    assert_eq!(protected(Process::own(&root).unwrap(), &root), Some(Reason::Ourselves));
    let parent = Process::own(&root).unwrap().stat(&root).unwrap().ppid;
    let parent = Process::of(parent, &root).unwrap();
    assert_eq!(protected(parent, &root), Some(Reason::Ancestor));
    assert_eq!(protected(Process::of(1, &root).unwrap(), &root), Some(Reason::Init));
    let kernel = procfs::all(&root).unwrap().into_iter().find(|stat| stat.is_kernel_thread());
    match kernel {
        Some(kernel) => assert_eq!(protected(kernel.process(), &root), Some(Reason::KernelThread)),
        None => coplace_skipped::skipped_part("the protection of kernel threads", "none is visible"),
    }
    // A launcher by name: any program called so.
    let dir = tempfile::tempdir().unwrap();
    let launcher = dir.path().join("orted");
    // Written by another process: a test beside this one that forks while we write would keep it busy.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&launcher).status().unwrap().success());
    let launcher = Program::start(launcher.to_str().unwrap(), &["1000"]);
    let reason = protected(launcher.process, &root).expect("a launcher");
    assert_eq!(reason, Reason::Launcher { name: "orted".to_owned() });
    assert!(reason.sentence().ends_with('.'));
}

#[test]
fn a_traced_process_is_protected() {
    let root = Root::live();
    let script = "
import ctypes, os, signal, time
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(pid, os.WUNTRACED)
print(pid, flush=True)
print(flush=True)
time.sleep(1000)";
    let Some(mut tracer) = (match std::process::Command::new("python3").arg("--version").output() {
        Ok(_) => Some(Program::start("python3", &["-u", "-c", script])),
        Err(_) => None,
    }) else {
        return coplace_skipped::skipped_here("python3 cannot be executed");
    };
    let traced = Process::of(tracer.line().parse().unwrap(), &root).unwrap();
    if procfs::status(traced.pid, &root).unwrap().tracer_pid == 0 {
        return coplace_skipped::skipped_here("tracing is forbidden");
    }
    assert!(matches!(protected(traced, &root), Some(Reason::Traced { .. })));
    assert!(!signals::is_stopped(traced, &root).unwrap(), "a tracer's stop is not ours to count");
}

#[test]
fn sleep_never_ends_early_and_raised_priority_is_not_inherited() {
    let deadline_ns = clock::now_ns() + 3_000_000;
    let late_ns = clock::sleep_until(deadline_ns);
    assert!(clock::now_ns() >= deadline_ns + late_ns);
    std::thread::spawn(|| {
        let before_ns = clock::thread_cpu_ns();
        let priority = clock::raise_priority();
        let child = Program::sleep();
        let stat = child.process.stat(&Root::live()).unwrap();
        assert!(stat.nice >= 0, "{priority:?} was inherited: nice {}", stat.nice);
        assert!(clock::thread_cpu_ns() > before_ns);
        if let clock::Priority::Unchanged { why } = priority {
            coplace_skipped::skipped_part("a raised priority", why);
        }
    })
    .join()
    .unwrap();
}
