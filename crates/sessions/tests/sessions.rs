//! Sessions come and go under every policy.

use coplace_sessions::allocation::{Allocation, Layout, Process, Shape};
use coplace_sessions::session::{Pause, Refused, Request, Sessions, Share, State, WhenFull};
use proptest::prelude::*;
use topology::CpuSet;
use workload::AppId;

const POLICIES: [WhenFull; 6] = [
    WhenFull::Wait,
    WhenFull::Pause(Pause::Needed),
    WhenFull::Pause(Pause::All),
    WhenFull::Share(Share::Free),
    WhenFull::Share(Share::Pinned),
    WhenFull::MoveAside,
];

fn id(name: &str) -> AppId {
    AppId::new(name).unwrap()
}

fn request(name: &str, processes: u32, threads: u32, layout: Layout, when_full: WhenFull) -> Request {
    Request { id: id(name), shape: Shape { processes, threads }, layout, when_full }
}

/// The paper's simulation on four nodes of 40 cores, and its analysis beside it.
fn both(layout: Layout, when_full: WhenFull) -> Sessions {
    let mut sessions = Sessions::new(Allocation { nodes: 4, cores: 40 });
    sessions.request(request("simulation", 160, 1, Layout::Compact, WhenFull::Wait)).unwrap();
    sessions.request(request("analysis", 32, 1, layout, when_full)).unwrap();
    sessions
}

fn cores_on(sessions: &Sessions, name: &str, node: usize) -> CpuSet {
    let places = sessions.places();
    let here = places[&id(name)].iter().filter(|process| process.node == node);
    here.fold(CpuSet::default(), |cores, process| cores.union(&process.cores))
}

#[test]
fn each_policy_makes_the_room_that_the_paper_describes() {
    let waits = both(Layout::Compact, WhenFull::Wait);
    assert_eq!(waits.node_plan(0).to_string(), "simulation on 0-39 waiting [analysis]");

    let paused = both(Layout::Compact, WhenFull::Pause(Pause::Needed));
    assert_eq!(paused.node_plan(0).to_string(), "analysis on 0-31 suspended [simulation]");
    assert_eq!(paused.node_plan(1).to_string(), "idle suspended [simulation]");

    let pinned = both(Layout::Compact, WhenFull::Share(Share::Pinned));
    assert_eq!(pinned.node_plan(0).to_string(), "mixed [analysis on 0-31, simulation on 0-39]");
    assert_eq!(pinned.node_plan(1).to_string(), "simulation on 0-39");
    let free = both(Layout::Compact, WhenFull::Share(Share::Free));
    assert!(free.places()[&id("analysis")].iter().all(|process| process.cores == CpuSet::first(40)));
    assert!(free.places()[&id("simulation")].iter().all(|it| it.node > 0 || it.cores == CpuSet::first(40)));

    let aside = both(Layout::Compact, WhenFull::MoveAside);
    assert_eq!(cores_on(&aside, "analysis", 0), CpuSet::first(32));
    assert_eq!(cores_on(&aside, "simulation", 0).to_string(), "32-39");
    let spread = both(Layout::Spread, WhenFull::MoveAside);
    for node in 0..4 {
        assert_eq!(cores_on(&spread, "analysis", node), CpuSet::first(8));
        assert_eq!(cores_on(&spread, "simulation", node).to_string(), "8-39");
    }
}

#[test]
fn a_newcomer_for_whom_nobody_can_make_room_waits() {
    // All cores of a node are asked for: nobody could move to another one.
    let mut sessions = Sessions::new(Allocation { nodes: 1, cores: 4 });
    sessions.request(request("a", 4, 1, Layout::Compact, WhenFull::Wait)).unwrap();
    sessions.request(request("b", 4, 1, Layout::Compact, WhenFull::MoveAside)).unwrap();
    assert_eq!(sessions.state(&id("b")), Some(State::Waiting));
    sessions.end(&id("a"));
    assert_eq!(sessions.state(&id("b")), Some(State::Running));
}

#[test]
fn only_sessions_whose_slots_are_needed_are_paused() {
    let three = |pause| {
        let mut sessions = Sessions::new(Allocation { nodes: 1, cores: 4 });
        for name in ["a", "b"] {
            sessions.request(request(name, 2, 1, Layout::Compact, WhenFull::Wait)).unwrap();
        }
        sessions.request(request("c", 2, 1, Layout::Compact, WhenFull::Pause(pause))).unwrap();
        sessions
    };
    let states = |sessions: &Sessions| ["a", "b", "c"].map(|name| sessions.state(&id(name)).unwrap());
    use State::{Running, Suspended};
    assert_eq!(states(&three(Pause::Needed)), [Running, Suspended, Running]);
    assert_eq!(states(&three(Pause::All)), [Suspended, Suspended, Running]);
}

#[test]
fn impossible_sessions_are_refused() {
    let mut sessions = Sessions::new(Allocation { nodes: 2, cores: 4 });
    let mut refused = |processes, threads| {
        let refused = sessions.request(request("a", processes, threads, Layout::Compact, WhenFull::Wait));
        refused.unwrap_err()
    };
    assert!(matches!(refused(9, 1), Refused::TooLarge { slots: 9, .. }));
    assert!(matches!(refused(1, 5), Refused::TooLarge { .. }));
    assert_eq!(refused(0, 1), Refused::Empty(id("a")));
    sessions.request(request("a", 1, 1, Layout::Compact, WhenFull::Wait)).unwrap();
    let again = sessions.request(request("a", 1, 1, Layout::Compact, WhenFull::Wait));
    assert_eq!(again, Err(Refused::NameTaken(id("a"))));
}

fn any_request() -> impl proptest::strategy::Strategy<Value = (u32, u32, bool, usize)> {
    (1..12_u32, 1..4_u32, any::<bool>(), 0..POLICIES.len())
}

fn asked(number: usize, (processes, threads, spread, policy): (u32, u32, bool, usize)) -> Request {
    let layout = if spread { Layout::Spread } else { Layout::Compact };
    request(&format!("s{number}"), processes, threads, layout, POLICIES[policy])
}

/// Every process has a core, and threads of sessions that share nothing stand apart.
fn check(sessions: &Sessions, cores: u32) {
    for processes in sessions.places().values() {
        for Process { cores: own, .. } in processes {
            assert!(!own.is_empty() && own.is_subset(&CpuSet::first(cores)), "{own}");
        }
    }
}

proptest! {
    #[test]
    fn every_session_starts_and_ends(
        requests in proptest::collection::vec(any_request(), 1..12),
        ends in proptest::collection::vec(any::<u8>(), 0..12),
    ) {
        let mut sessions = Sessions::new(Allocation { nodes: 2, cores: 4 });
        let mut ends = ends.into_iter();
        for (number, request) in requests.into_iter().enumerate() {
            let _ = sessions.request(asked(number, request));
            check(&sessions, 4);
            if let Some(end) = ends.next().filter(|end| end % 3 == 0) {
                let running: Vec<AppId> = sessions.states().map(|(id, _)| id.clone()).collect();
                if let Some(id) = running.get(usize::from(end) % running.len().max(1)) {
                    sessions.end(id);
                    check(&sessions, 4);
                }
            }
        }
        // As those that run end, all come to run.
        while sessions.states().next().is_some() {
            let running = sessions.states().find(|(_, state)| *state == State::Running).map(|(id, _)| id.clone());
            prop_assert!(running.is_some(), "nobody runs: {:?}", sessions.states().collect::<Vec<_>>());
            sessions.end(&running.unwrap());
            check(&sessions, 4);
        }
    }

    #[test]
    fn guests_leave_everything_as_it_was(
        requests in proptest::collection::vec(any_request(), 1..5),
        guest in any_request(),
    ) {
        let mut sessions = Sessions::new(Allocation { nodes: 2, cores: 4 });
        for (number, mut request) in requests.into_iter().enumerate() {
            request.3 = 0;
            let _ = sessions.request(asked(number, request));
        }
        let nobody_waits = sessions.states().all(|(_, state)| state != State::Waiting);
        prop_assume!(nobody_waits);
        let states = |sessions: &Sessions| -> Vec<(AppId, State)> {
            sessions.states().map(|(id, state)| (id.clone(), state)).collect()
        };
        let before = (states(&sessions), sessions.places());
        let guest = asked(99, guest);
        if sessions.request(guest.clone()).is_ok() {
            sessions.end(&guest.id);
        }
        prop_assert_eq!(before, (states(&sessions), sessions.places()));
    }

    #[test]
    fn nobody_is_disturbed_while_slots_are_free(
        first in (1..=2_u32, 1..4_u32, Just(false), 0..POLICIES.len()),
        second in (1..=2_u32, 1..4_u32, any::<bool>(), 0..POLICIES.len()),
    ) {
        let mut sessions = Sessions::new(Allocation { nodes: 2, cores: 8 });
        sessions.request(asked(1, first)).unwrap();
        let before = sessions.places()[&id("s1")].clone();
        sessions.request(asked(2, second)).unwrap();
        prop_assert_eq!(&sessions.places()[&id("s1")], &before);
        prop_assert_eq!(sessions.state(&id("s1")), Some(State::Running));
        prop_assert_eq!(sessions.state(&id("s2")), Some(State::Running));
    }
}
