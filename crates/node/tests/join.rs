//! Who schedules, and how that passes from one to another while programs run.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command};
use std::time::Duration;

use coplace_node::home::{Home, LockError};
use coplace_node::identity;
use coplace_node::join::{JoinError, Membership, take_over};
use coplace_node::mechanism::TurnsChoice;
use coplace_node::registry::{Registry, Traces};
use coplace_node::scheduler::{Options, Scheduler, Stopper};
use coplace_tests::machine;
use protocol::{AppRecord, Client, ClientError, FromScheduler, Role, ToScheduler, VERSION};
use workload::{AppId, Demand};

struct Program(Child, AppRecord);

impl Program {
    fn start(home: &Home, name: &str) -> Program {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = identity::of_pid(child.id()).unwrap();
        let record = AppRecord {
            id: AppId::new(name).unwrap(),
            uid: 0,
            process,
            guardian: identity::own(),
            command: vec!["sleep".into()],
            directory: "/".into(),
            pages: home.create_pages(process).unwrap(),
            original_cpus: linux::affinity::get(process.pid).unwrap(),
            demand: Demand::default(),
            arrived_ns: linux::clock::now_ns(),
            started: false,
            terms: Default::default(),
        };
        Program(child, record)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scratch() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    (dir, home)
}

fn member(home: &Home) -> Membership {
    Membership::new(home.clone(), Some(Options::default())).unwrap()
}

/// Brings it in and waits until it may start.
fn enter(member: &mut Membership, program: &Program) -> AppId {
    let (id, _) = member.register(program.1.clone()).unwrap();
    until("Start", || {
        member
            .pump()
            .iter()
            .any(|message| matches!(message, FromScheduler::Start { id: started, .. } if *started == id))
    });
    member.report_started(&id);
    id
}

/// How long it took a machine that runs.
#[track_caller]
fn until(what: &str, is: impl FnMut() -> bool) -> Duration {
    let began = machine::ran();
    machine::within(Duration::from_secs(30), what, is);
    machine::ran() - began
}

fn daemon(home: &Home) -> (Stopper, std::thread::JoinHandle<()>) {
    let lock = take_over(home, Role::Daemon).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let home = home.clone();
    let thread = std::thread::spawn(move || {
        let scheduler = Scheduler::start(home, lock, Role::Daemon, Options::default()).unwrap();
        sender.send(scheduler.stopper()).unwrap();
        scheduler.run();
    });
    (receiver.recv().unwrap(), thread)
}

#[test]
fn the_first_leads_the_second_joins_and_names_are_made_unique() {
    let (_dir, home) = scratch();
    let mut first = member(&home);
    let mut second = member(&home);
    assert!(first.is_leader() && !second.is_leader());
    assert_eq!(second.scheduler(), Some((Role::Leader, std::process::id())));
    let (a, b) = (Program::start(&home, "sleep"), Program::start(&home, "sleep"));
    assert_eq!(enter(&mut first, &a).as_str(), "sleep");
    assert_eq!(enter(&mut second, &b).as_str(), "sleep.2");
}

#[test]
fn another_leads_at_once_with_the_same_names_after_the_leader() {
    let (_dir, home) = scratch();
    let mut first = member(&home);
    let mut second = member(&home);
    let (a, b) = (Program::start(&home, "sleep"), Program::start(&home, "sleep"));
    enter(&mut first, &a);
    let id = enter(&mut second, &b);
    drop(first);
    let took = until("the second to lead", || {
        second.pump();
        second.is_leader() && second.scheduler().is_some()
    });
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    second.suspend(&id);
    second.resume(&id);
    assert!(second.scheduler().is_some());
    drop(b);
    let account = second.report_ended(&id).expect("the new leader knows the program");
    assert_eq!(account.id, Some(id));
}

#[test]
fn a_daemon_takes_over_from_a_leader_and_refuses_a_second() {
    let (_dir, home) = scratch();
    let mut first = member(&home);
    let mut second = member(&home);
    let a = Program::start(&home, "sleep");
    let id = enter(&mut second, &a);
    let (stopper, thread) = daemon(&home);
    for member in [&mut first, &mut second] {
        until("the members to find the daemon", || {
            member.pump();
            member.scheduler().is_some_and(|(role, _)| role == Role::Daemon)
        });
        assert!(!member.is_leader());
    }
    match take_over(&home, Role::Daemon) {
        Err(JoinError::Lock(LockError::Held { role: Some(Role::Daemon), .. })) => {}
        other => panic!("{:?}", other.err()),
    }
    stopper.stop();
    thread.join().unwrap();
    until("somebody to lead after the daemon", || {
        first.pump();
        second.pump();
        // Until a member notices that its line is closed it still names the daemon.
        let found = |member: &Membership| member.scheduler().is_some_and(|(role, _)| role == Role::Leader);
        found(&first) && found(&second)
    });
    assert!(first.is_leader() != second.is_leader());
    drop(a);
    assert!(second.report_ended(&id).is_some());
}

#[test]
fn a_member_that_may_not_lead_is_orphaned_with_its_leader() {
    let (_dir, home) = scratch();
    assert!(Membership::new(home.clone(), None).is_err());
    // So that a stop by signal counts as the scheduler's and not as the user's.
    let options = Options { turns: TurnsChoice::Stop, ..Options::default() };
    let leader = Membership::new(home.clone(), Some(options)).unwrap();
    let mut other = Membership::new(home.clone(), None).unwrap();
    let mut program = Program::start(&home, "sleep");
    program.1.started = true;
    let (id, _) = other.register(program.1.clone()).unwrap();
    drop(leader);
    // As a scheduler that was killed may leave it: on record, and stopped.
    let registry = Registry::new(&home);
    let traces = Traces { stops_by_signal: Some(true), ..registry.traces(&id) };
    registry.write_traces(&id, &traces).unwrap();
    let process = identity::to_linux(program.1.process);
    linux::signals::stop(&[process], &linux::Root::live());
    let is_stopped = || process.stat(&linux::Root::live()).unwrap().is_stopped();
    until("the program to be stopped", is_stopped);
    let took = until("the program to be set free", || {
        other.pump();
        !is_stopped()
    });
    assert!(other.is_orphaned() && took < Duration::from_secs(1), "it took {took:?}");
    drop(program);
    assert!(other.report_ended(&id).is_some(), "the leader went in order and left its account");
}

#[test]
fn a_program_that_meets_a_leaving_leader_is_managed() {
    let (_dir, home) = scratch();
    for round in 0..12 {
        let leader = member(&home);
        let program = Program::start(&home, "sleep");
        let leaves = std::thread::spawn(move || {
            // Before, while and after the other one comes.
            std::thread::sleep(Duration::from_micros(400 * round));
            drop(leader);
        });
        let mut joins = member(&home);
        let (id, _) = joins.register_until_accepted(&program.1).unwrap();
        until("Start", || {
            let messages = joins.pump();
            messages
                .iter()
                .any(|message| matches!(message, FromScheduler::Start { id: its, .. } if *its == id))
        });
        joins.report_started(&id);
        leaves.join().unwrap();
        until("a leader", || {
            joins.pump();
            joins.scheduler().is_some()
        });
        drop(program);
        assert!(joins.report_ended(&id).is_some());
    }
    let left: Vec<_> =
        std::fs::read_dir(home.apps()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_account_of_a_leader_that_left_is_handed_on() {
    let (_dir, home) = scratch();
    let leader = member(&home);
    let mut other = member(&home);
    let program = Program::start(&home, "sleep");
    let id = enter(&mut other, &program);
    std::thread::sleep(Duration::from_millis(300));
    drop(leader);
    // It ends before anybody has noticed that the leader went.
    drop(program);
    let account = other.report_ended(&id).expect("it was handed out");
    assert_eq!(account.id, Some(id));
    assert!(account.width_ns.values().sum::<u64>() >= 200_000_000, "{account:?}");
}

#[test]
fn impossible_options_are_an_error_and_leave_no_scheduler() {
    let (_dir, home) = scratch();
    let options = Options { policy: "no such policy".into(), ..Options::default() };
    assert!(matches!(Membership::new(home.clone(), Some(options)), Err(JoinError::Start(_))));
    assert!(home.lock_scheduler(Role::Leader).is_ok());
}

#[test]
fn a_program_abandoned_before_its_start_keeps_no_turn() {
    let (_dir, home) = scratch();
    let (stopper, thread) = daemon(&home);
    let mut stays = member(&home);
    let a = Program::start(&home, "stays");
    let id = enter(&mut stays, &a);
    let mut goes = member(&home);
    let b = Program::start(&home, "goes");
    goes.register(b.1.clone()).unwrap();
    let mut client = Client::connect(&home.socket()).unwrap();
    let mut there = || {
        let is_answer = |message: &FromScheduler| matches!(message, FromScheduler::Status { .. });
        match client.ask(&ToScheduler::Status, &mut Vec::new(), is_answer) {
            Ok(FromScheduler::Status { status }) => {
                status.apps.into_iter().map(|app| app.id.to_string()).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    until("both", || Vec::len(&there()) == 2);
    drop(goes);
    until("only who has started", || there() == [id.to_string()]);
    assert!(identity::is_alive(b.1.process), "the program itself is left alone");
    drop(stays);
    stopper.stop();
    thread.join().unwrap();
}

/// What a daemon that takes over hears from a leader that answers its greeting so.
fn refusal_of_takeover(answer: FromScheduler) -> (String, Duration) {
    let (_dir, home) = scratch();
    let _lock = home.lock_scheduler(Role::Leader).unwrap();
    let listener = UnixListener::bind(home.socket()).unwrap();
    let leader = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        let line = serde_json::to_string(&answer).unwrap() + "\n";
        stream.write_all(line.as_bytes()).unwrap();
    });
    let began = machine::ran();
    let why = match take_over(&home, Role::Daemon) {
        Err(JoinError::Client(error @ (ClientError::Version { .. } | ClientError::GreetingRefused(_)))) => {
            assert!(!error.is_lost());
            error.to_string()
        }
        other => panic!("{:?}", other.err()),
    };
    leader.join().unwrap();
    (why, machine::ran() - began)
}

#[test]
fn a_daemon_does_not_wait_for_a_leader_of_another_version() {
    let refused = "this scheduler speaks version 3 of the protocol, you 4; use one coplace for both";
    let greeted = FromScheduler::Hello { version: VERSION + 1, pid: 1, role: Role::Leader };
    let (why, took) = refusal_of_takeover(FromScheduler::Refused { why: refused.to_owned() });
    assert!(why == refused && took < Duration::from_secs(1), "{why}, after {took:?}");
    let (why, took) = refusal_of_takeover(greeted);
    assert!(took < Duration::from_secs(1), "{took:?}");
    for part in [&(VERSION + 1).to_string(), &VERSION.to_string(), "use one coplace for both"] {
        assert!(why.contains(part), "{why}");
    }
}
