use linux::page::PageDir;

use super::*;
use linux::affinity;
use protocol::ProcessId;
use std::process::{Child, Command};
use workload::{AppId, Demand};

struct Program(Child);

impl Program {
    fn start() -> Program {
        Program(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn process(&self) -> ProcessId {
        identity::of_pid(self.0.id()).unwrap()
    }

    fn is_stopped(&self) -> bool {
        identity::to_linux(self.process()).stat(&Root::live()).unwrap().is_stopped()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        signals::send(&[identity::to_linux(self.process())], signal, &Root::live());
    }

    fn record(&self, pages: &Path) -> AppRecord {
        AppRecord {
            id: AppId::new("sleep").unwrap(),
            uid: 0,
            process: self.process(),
            guardian: identity::own(),
            command: vec!["sleep".into()],
            directory: "/".into(),
            pages: pages.to_owned(),
            original_cpus: affinity::get(std::process::id()).unwrap(),
            demand: Demand::default(),
            arrived_ns: 0,
            started: true,
            terms: Default::default(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !what() {
        assert!(began.elapsed().as_secs() < 5, "waited in vain");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn free(program: &Program, traces: &Traces) -> Report {
    set_free_by(&program.record(Path::new("/nowhere")), traces, "coplace-test", &Root::live())
}

#[test]
fn a_program_stopped_by_us_runs_again_and_freeing_is_idempotent() {
    let program = Program::start();
    program.signal(rustix::process::Signal::STOP);
    until(|| program.is_stopped());
    let traces = Traces { stops_by_signal: Some(true), places: Some(BTreeSet::new()), ..Traces::default() };
    let report = free(&program, &traces);
    assert_eq!((report.processes, report.continued, report.problems.len()), (1, 1, 0), "{report:?}");
    until(|| !program.is_stopped());
    assert_eq!(free(&program, &traces).continued, 0);
}

#[test]
fn an_unknown_stop_is_continued_and_a_users_stop_is_not() {
    let program = Program::start();
    program.signal(rustix::process::Signal::STOP);
    until(|| program.is_stopped());
    for traces in [
        Traces { user_stopped: true, ..Traces::default() },
        Traces { stops_by_signal: Some(false), ..Traces::default() },
    ] {
        free(&program, &traces);
        assert!(program.is_stopped());
    }
    free(&program, &Traces::default());
    until(|| !program.is_stopped());
}

#[test]
fn a_repeated_stop_holds_where_nothing_is_on_record() {
    let program = Program::start();
    // As a `run` sends it: the second one the kernel keeps.
    program.signal(rustix::process::Signal::STOP);
    until(|| program.is_stopped());
    program.signal(rustix::process::Signal::STOP);
    assert_eq!(free(&program, &Traces::default()).continued, 0);
    assert!(program.is_stopped());
    // Stops of whole processes are an earlier version's own.
    let traces = Traces { stops_by_signal: Some(true), ..Traces::default() };
    assert_eq!(free(&program, &traces).continued, 1);
    until(|| !program.is_stopped());
}

#[test]
fn our_masks_are_widened_and_the_programs_own_are_kept() {
    let all = affinity::get(std::process::id()).unwrap();
    if all.len() < 2 {
        coplace_skipped::skipped_here("with one CPU there is no narrower mask");
        return;
    }
    let program = Program::start();
    let tid = program.0.id();
    let first = all.take(1);
    let other = all.difference(&first).take(1);
    affinity::set(tid, &first).unwrap();
    free(&program, &Traces { places: Some([other].into()), ..Traces::default() });
    assert_eq!(affinity::get(tid).unwrap(), first);
    let report = free(&program, &Traces { places: Some([first.clone()].into()), ..Traces::default() });
    assert_eq!((affinity::get(tid).unwrap(), report.widened), (all.clone(), 1));
    affinity::set(tid, &first).unwrap();
    free(&program, &Traces::default());
    assert_eq!(affinity::get(tid).unwrap(), all);
}

#[test]
fn wishes_for_smaller_teams_are_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pages");
    PageDir::create(&path, 3, false).unwrap();
    let program = Program::start();
    let report = set_free_by(&program.record(&path), &Traces::default(), "coplace-test", &Root::live());
    assert!(report.problems.is_empty(), "{report:?}");
    let page = linux::page::Page::open(&path.join("default")).unwrap().unwrap();
    assert_eq!(page.target(), 0);
}

/// A frozen, idle, confined program in real groups, where this machine lets us make them.
#[test]
fn a_frozen_program_in_our_groups_returns_to_its_own() {
    let root = Root::live();
    let name = format!("coplace-test{}", std::process::id());
    let Ok(hierarchy) = linux::cgroup1::Hierarchy::discover(&root) else {
        coplace_skipped::skipped_here("no cgroup v1 can be written");
        return;
    };
    let program = Program::start();
    let process = identity::to_linux(program.process());
    let came_from = cgroup::membership(process.pid, &root).unwrap();
    let mut group = hierarchy.group(&name, "sleep").unwrap();
    group.add(&[process], &root).unwrap();
    if hierarchy.has("freezer") {
        group.freeze(1_000_000_000).unwrap();
    }
    assert_ne!(cgroup::membership(process.pid, &root).unwrap(), came_from);
    // Nothing is written down: it is found where it is.
    let report = set_free_by(&program.record(Path::new("/nowhere")), &Traces::default(), &name, &root);
    assert!(report.problems.is_empty(), "{report:?}");
    let now = cgroup::membership(process.pid, &root).unwrap();
    assert_eq!(now, came_from);
    assert!(hierarchy.groups(&name).unwrap().is_empty());
    assert!(!hierarchy.schedulers().unwrap().contains(&name));
    // It reacts, so it is not frozen.
    program.signal(rustix::process::Signal::STOP);
    until(|| program.is_stopped());
}

#[test]
fn ended_programs_are_forgotten_and_freeing_obeys_its_permit() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let registry = Registry::new(&home);
    let program = Program::start();
    let pages = home.create_pages(program.process()).unwrap();
    let record = program.record(&pages);
    registry.write(&record).unwrap();
    drop(program);
    assert!(set_all_free(&Root::live(), &home, || false).is_empty());
    assert_eq!(registry.list().unwrap().records.len(), 1);
    assert_eq!(set_all_free(&Root::live(), &home, || true)["sleep"].processes, 0);
    assert!(registry.list().unwrap().records.is_empty() && !pages.exists());
}

#[test]
fn strays_of_a_delegated_group_return_beside_ours() {
    let program = Program::start();
    let (record, traces) = (program.record(Path::new("/nowhere")), Traces::default());
    let (root, report) = (&Root::live(), Report::default());
    let freeing = Freeing { record: &record, traces: &traces, root, members: Vec::new(), report };
    let delegated = Path::new("/sys/fs/cgroup/user.slice/coplace.scope");
    let dirs = freeing.return_dirs(&delegated.join("coplace/coplace-1/sleep"));
    // The kernel refuses the delegated group itself, which has groups below it.
    assert_eq!(dirs, [delegated.join("coplace-outside"), delegated.to_owned()]);
}

#[test]
fn a_failed_move_back_names_the_group_that_refused_it() {
    let dir = tempfile::tempdir().unwrap();
    let missing = ["first", "last"].map(|name| dir.path().join(name));
    match move_to(std::process::id(), &missing, &Root::live()) {
        Err(Error::NotMovedBack { to, error, .. }) => {
            assert_eq!(to, missing[1]);
            assert!(error.to_string().contains("/last/"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
