//! `coplace guard`: sets programs free when, and only when, nobody schedules them any more.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coplace_tests::machine::within;
use linux::{Root, signals};
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
        pages: home.create_pages(process).unwrap(),
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

/// Between two beats nobody may be thought dead; a machine that kept the beats from coming for longer
/// proves nothing.
const IN_TIME: Duration = Duration::from_millis(300);

/// Beats on a thread of its own, and knows the longest time from one beat to the next.
struct Beating {
    on: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(Lease, Duration)>,
}

impl Beating {
    fn start(lease: Lease) -> Beating {
        let on = Arc::new(AtomicBool::new(true));
        let goes_on = Arc::clone(&on);
        let mut last = Instant::now();
        lease.beat();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while goes_on.load(Ordering::Acquire) {
                lease.beat();
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
                std::thread::sleep(Duration::from_millis(50));
            }
            (lease, longest.max(last.elapsed()))
        });
        Beating { on, thread }
    }

    /// The lease, and whether every beat came in time.
    fn pause(self) -> (Lease, bool) {
        self.on.store(false, Ordering::Release);
        let (lease, longest) = self.thread.join().unwrap();
        (lease, longest < IN_TIME)
    }
}

/// Tries again while an attempt could not beat in time.
fn until_in_time(mut attempt: impl FnMut() -> bool) {
    assert!((0..20).any(|_| attempt()), "the machine never let the beats come in time");
}

#[test]
fn a_fresh_lease_keeps_a_program_and_a_stale_one_frees_it() {
    until_in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let beating = Beating::start(Lease::acquire(&home).unwrap());
        let (program, _) = stopped_program(&home);
        let mut guard = guard(dir.path());
        std::thread::sleep(Duration::from_millis(900));
        let stayed = program.is_stopped();
        let (lease, in_time) = beating.pause();
        if !in_time {
            return false;
        }
        assert!(stayed);
        within(Duration::from_secs(1), "the program to run again", || !program.is_stopped());
        // The guard stays as long as somebody's program is there, and a scheduler that comes back rules.
        let beating = Beating::start(lease);
        std::thread::sleep(Duration::from_millis(600));
        program.stop();
        std::thread::sleep(Duration::from_millis(600));
        let stayed = program.is_stopped();
        drop(program);
        let (lease, in_time) = beating.pause();
        if !in_time {
            return false;
        }
        assert!(stayed);
        drop(lease);
        within(Duration::from_secs(30), "the guard to go", || guard.0.try_wait().unwrap().is_some());
        assert!(Registry::new(&home).list().unwrap().records.is_empty());
        true
    });
}

#[test]
fn a_successor_that_comes_in_time_keeps_the_programs() {
    until_in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let taken = Instant::now();
        let lease = Lease::acquire(&home).unwrap();
        let (program, _) = stopped_program(&home);
        let _guard = guard(dir.path());
        std::thread::sleep(Duration::from_millis(200));
        let gone = Instant::now();
        drop(lease);
        std::thread::sleep(Duration::from_millis(120));
        let beating = Beating::start(Lease::acquire(&home).unwrap());
        let came_in_time = gone - taken < IN_TIME && gone.elapsed() < IN_TIME;
        std::thread::sleep(Duration::from_millis(900));
        let stayed = program.is_stopped();
        let (_, in_time) = beating.pause();
        assert!(stayed || !in_time || !came_in_time);
        in_time && came_in_time
    });
}

#[test]
fn each_home_has_one_guard_without_terminal_or_directory() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let beating = Beating::start(Lease::acquire(&home).unwrap());
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
    drop(beating.pause());
}
