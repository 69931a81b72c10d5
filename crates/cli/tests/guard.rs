//! `coplace guard`: sets programs free when, and only when, nobody schedules them any more.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::{Root, clock, signals};
use node::home::Home;
use node::identity;
use node::lease::Lease;
use node::registry::{Registry, Traces};
use protocol::AppRecord;
use workload::{AppId, Demand};

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn is_stopped(&self) -> bool {
        identity::to_linux(identity::of_pid(self.0.id()).unwrap()).stat(&Root::live()).unwrap().is_stopped()
    }

    fn stop(&self) {
        let process = identity::to_linux(identity::of_pid(self.0.id()).unwrap());
        signals::stop(&[process], &Root::live());
        signals::wait_all_stopped(&[process], 60_000_000_000, &Root::live()).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn guard(home: &Path) -> Process {
    Process::start(Command::new(env!("CARGO_BIN_EXE_coplace")).arg("guard").arg("--home").arg(home))
}

/// A program that somebody's scheduler has stopped.
fn stopped_program(home: &Home) -> (Process, AppRecord) {
    let program = Process::start(Command::new("sleep").arg("1000"));
    let process = identity::of_pid(program.0.id()).unwrap();
    let record = AppRecord {
        id: AppId::new("sleep").unwrap(),
        uid: 0,
        process,
        guardian: process,
        command: vec!["sleep".into()],
        directory: "/".into(),
        pages: home.make_pages(process).unwrap(),
        original_cpus: linux::affinity::get(process.pid).unwrap(),
        demand: Demand::default(),
        arrived_ns: 0,
        started: true,
        terms: Default::default(),
    };
    let registry = Registry::new(home);
    registry.write_traces(&record.id, &Traces { stops_by_signal: Some(true), ..Traces::default() }).unwrap();
    registry.write(&record).unwrap();
    program.stop();
    (program, record)
}

/// Waits for what must come within this time. A machine that stands still counts as standing still.
#[track_caller]
fn within(limit: Duration, what: &str, mut is: impl FnMut() -> bool) {
    let (mut ran, mut last) = (Duration::ZERO, Instant::now());
    while !is() {
        let now = Instant::now();
        ran += (now - last).min(Duration::from_millis(50));
        last = now;
        assert!(ran < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Beats until it is told to pause.
fn beat(lease: Lease, on: &Arc<AtomicBool>) -> std::thread::JoinHandle<Lease> {
    let on = Arc::clone(on);
    lease.beat(clock::now_ns());
    std::thread::spawn(move || {
        while on.load(Ordering::Acquire) {
            lease.beat(clock::now_ns());
            std::thread::sleep(Duration::from_millis(50));
        }
        lease
    })
}

#[test]
fn a_program_stays_as_it_is_while_the_lease_is_fresh_and_is_free_within_a_second_when_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let on = Arc::new(AtomicBool::new(true));
    let beating = beat(Lease::take(&home).unwrap(), &on);
    let (program, _) = stopped_program(&home);
    let mut guard = guard(dir.path());
    std::thread::sleep(Duration::from_millis(900));
    assert!(program.is_stopped());
    on.store(false, Ordering::Release);
    let lease = beating.join().unwrap();
    within(Duration::from_secs(1), "the program to run again", || !program.is_stopped());
    // The guard stays as long as somebody's program is there, and a scheduler that comes back rules.
    on.store(true, Ordering::Release);
    let beating = beat(lease, &on);
    std::thread::sleep(Duration::from_millis(600));
    program.stop();
    std::thread::sleep(Duration::from_millis(600));
    assert!(program.is_stopped());
    drop(program);
    on.store(false, Ordering::Release);
    drop(beating.join().unwrap());
    within(Duration::from_secs(30), "the guard to go", || guard.0.try_wait().unwrap().is_some());
    assert!(Registry::new(&home).list().unwrap().records.is_empty());
}

#[test]
fn a_successor_that_comes_in_time_keeps_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let lease = Lease::take(&home).unwrap();
    let (program, _) = stopped_program(&home);
    let _guard = guard(dir.path());
    std::thread::sleep(Duration::from_millis(200));
    drop(lease);
    std::thread::sleep(Duration::from_millis(120));
    let on = Arc::new(AtomicBool::new(true));
    let beating = beat(Lease::take(&home).unwrap(), &on);
    std::thread::sleep(Duration::from_millis(900));
    assert!(program.is_stopped());
    on.store(false, Ordering::Release);
    drop(beating.join().unwrap());
}

#[test]
fn there_is_one_guard_a_home_and_it_needs_neither_terminal_nor_directory() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let on = Arc::new(AtomicBool::new(true));
    let beating = beat(Lease::take(&home).unwrap(), &on);
    // With somebody's program there it stays, however late the beats come.
    let _program = stopped_program(&home);
    let first = guard(dir.path());
    let directory = format!("/proc/{}/cwd", first.0.id());
    within(Duration::from_secs(30), "the guard to be on its own", || {
        std::fs::read_link(&directory).is_ok_and(|path| path == Path::new("/"))
    });
    let mut second = guard(dir.path());
    within(Duration::from_secs(30), "the second to go", || second.0.try_wait().unwrap().is_some());
    assert!(second.0.wait().unwrap().success());
    on.store(false, Ordering::Release);
    drop(beating.join().unwrap());
}
