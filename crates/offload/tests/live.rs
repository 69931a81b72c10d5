//! Programs and the service, over sockets and without.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coplace_offload::board::{Board, Overlap};
use coplace_offload::client::{Client, ClientError};
use coplace_offload::dispatch::Dispatcher;
use coplace_offload::messages::{Answer, MOST_BYTES, Offer, Request, Status};
use coplace_offload::registrar::{ProgramId, Registrar};
use coplace_offload::registry::strategy;
use coplace_offload::server::Server;
use coplace_offload::task::{Governor, Kind, Resource};
use proptest::prelude::*;
use topology::CpuSet;

fn resource(name: &str, kind: Kind, cores: &[u32]) -> Resource {
    let threads = cores.len() as f64;
    Resource { name: name.to_owned(), kind, cores: CpuSet::from_cpus(cores), threads }
}

fn gpu() -> Kind {
    Kind::Device("gpu".into())
}

/// Two cores, both together, and a device whose host thread has the second.
fn registrar(name: &str) -> Registrar {
    let resources = vec![
        resource("core0", Kind::Core, &[0]),
        resource("core1", Kind::Core, &[1]),
        resource("all-cores", Kind::AllCores, &[0, 1]),
        resource("gpu0", gpu(), &[1]),
    ];
    let board = Board::new(resources, Overlap::Refused, Governor::High);
    Registrar::new(Dispatcher::new(board, strategy(name, None).unwrap()))
}

fn server(name: &'static str) -> Server {
    Server::start(move || Ok(registrar(name))).unwrap()
}

fn client(server: &Server, program: &str) -> Client {
    Client::over(server.connect().unwrap(), program).unwrap()
}

fn offer(on: Kind) -> Offer {
    Offer { on, expected_ns: None }
}

fn status(client: &mut Client) -> Status {
    match client.ask(&Request::Status).unwrap() {
        Answer::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: not after 30 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn programs_take_turns_on_a_device() {
    let server = Arc::new(server("short-term"));
    let on_it = Arc::new(AtomicUsize::new(0));
    let programs: Vec<_> = (0..8)
        .map(|number| {
            let (server, on_it) = (Arc::clone(&server), Arc::clone(&on_it));
            std::thread::spawn(move || {
                let mut client = client(&server, &format!("p{number}"));
                for _ in 0..50 {
                    let resource = client.run(&[offer(gpu())], |started| {
                        assert_eq!(on_it.fetch_add(1, Ordering::SeqCst), 0, "somebody else is on it");
                        std::thread::yield_now();
                        on_it.fetch_sub(1, Ordering::SeqCst);
                        started.resource.name.clone()
                    });
                    assert_eq!(resource.unwrap(), "gpu0");
                }
            })
        })
        .collect();
    programs.into_iter().for_each(|program| program.join().unwrap());
    let mut client = client(&server, "status");
    assert_eq!(status(&mut client).ended, 400);
}

#[test]
fn a_program_that_goes_frees_what_it_had() {
    let server = server("short-term");
    let mut rude = client(&server, "rude");
    let kinds = [gpu(), Kind::AllCores, Kind::Core];
    for number in 0..20 {
        rude.submit(&[offer(kinds[number % 3].clone())]).unwrap();
    }
    rude.wait().unwrap();
    let mut polite = client(&server, "polite");
    polite.submit(&[offer(gpu())]).unwrap();
    drop(rude);
    assert_eq!(polite.wait().unwrap().resource.name, "gpu0");
    polite.end(0).unwrap();
    until("everything is free", || {
        let status = status(&mut polite);
        status.waiting == 0 && status.resources.iter().all(|it| it.running.is_none() && it.queued == 0)
    });
}

#[test]
fn wrong_requests_are_refused_and_change_nothing() {
    let server = server("short-term");
    let mut client = client(&server, "p");
    let mut refused = |request: Request| match client.ask(&request) {
        Err(ClientError::Refused { why, .. }) => why,
        other => panic!("{request:?}: {other:?}"),
    };
    let submit = |kernels: Vec<Offer>| Request::Submit { task: 7, kernels };
    assert!(refused(submit(vec![])).contains("1 to 64 kernels"));
    assert!(refused(submit(vec![offer(Kind::Core), offer(Kind::Core)])).contains("two kernels for core"));
    assert!(refused(submit(vec![offer(Kind::Device("fpga".into()))])).contains("none of its kernels"));
    assert!(refused(Request::Ended { task: 9 }).contains("no such task"));
    let strategy = |name: &str, text: Option<&str>| Request::SetStrategy {
        name: name.to_owned(),
        text: text.map(ToOwned::to_owned),
    };
    assert!(refused(strategy("best", None)).contains("'best' is no strategy"));
    assert!(refused(strategy("mine.lua", Some("function ("))).starts_with("mine.lua:1: "));
    assert_eq!(status(&mut client).strategy, "short-term");
}

#[test]
fn strategies_are_swapped_while_tasks_wait_and_run() {
    let server = server("short-term");
    let mut client = client(&server, "p");
    for _ in 0..50 {
        client.submit(&[offer(Kind::Core)]).unwrap();
    }
    let idle = "function resource_free(node, resource) end";
    let set = |client: &mut Client, name: &str, text: Option<&str>| {
        let request = Request::SetStrategy { name: name.to_owned(), text: text.map(ToOwned::to_owned) };
        assert_eq!(client.ask(&request).unwrap(), Answer::Done);
    };
    set(&mut client, "idle.lua", Some(idle));
    let begun = [client.wait().unwrap(), client.wait().unwrap()];
    begun.iter().for_each(|started| client.end(started.task).unwrap());
    assert_eq!(status(&mut client).waiting, 48);
    // One that fails in its first call: the one before comes back, and is named.
    set(&mut client, "fails.lua", Some("function resource_free() error('no') end"));
    let now = status(&mut client);
    assert_eq!((now.strategy.as_str(), now.waiting), ("idle.lua", 48));
    assert!(now.failures[0].contains("fails.lua:1: no"), "{:?}", now.failures);
    set(&mut client, "adaptive", None);
    for _ in 0..48 {
        let started = client.wait().unwrap();
        client.end(started.task).unwrap();
    }
    assert_eq!(status(&mut client).ended, 50);
}

#[test]
fn ticks_come_while_no_message_does() {
    let text = "tick_s = 0.02\nlocal ticks = 0\nfunction tick(node)\n  ticks = ticks + 1\nend\n\
                function resource_free(node, resource)\n  if ticks >= 3 then assign(node.waiting[1], resource) end\nend";
    let server = server("short-term");
    let mut client = client(&server, "p");
    let request = Request::SetStrategy { name: "ticks.lua".into(), text: Some(text.into()) };
    assert_eq!(client.ask(&request).unwrap(), Answer::Done);
    let began = Instant::now();
    client.run(&[offer(Kind::Core)], |_| ()).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(55), "{:?}", began.elapsed());
}

#[test]
fn strangers_lose_their_connection_and_harm_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("offload");
    let mut server = server("short-term");
    server.listen(UnixListener::bind(&path).unwrap()).unwrap();
    let mut good = Client::connect(&path, "good").unwrap();
    let long = vec![b'x'; MOST_BYTES + 10];
    let hello = b"{\"hello\":{\"version\":1,\"program\":\"p\"}}\n";
    let torn = [&hello[..], b"{\"submit\":{\"task\":0,\"kern"].concat();
    for text in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"{}\n",
        b"\0\xff\n",
        b"{\"ended\":{\"task\":0}}\n",
        &long,
        &torn,
        b"",
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        let _ = stream.write_all(text);
        if text != b"{\"ended\":{\"task\":0}}\n" {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        good.run(&[offer(gpu())], |_| ()).unwrap();
    }
    // A thousand come and go.
    for _ in 0..1000 {
        let _ = UnixStream::connect(&path).and_then(|mut stream| stream.write_all(hello));
    }
    good.run(&[offer(gpu())], |_| ()).unwrap();
    drop(server);
    assert!(!path.exists());
    assert!(matches!(good.run(&[offer(gpu())], |_| ()), Err(ClientError::Gone(_))));
    assert!(matches!(Client::connect(&path, "late"), Err(ClientError::NotThere { .. })));
}

#[test]
fn a_program_that_reads_nothing_loses_its_connection() {
    let server = server("short-term");
    let mut deaf = server.connect().unwrap();
    deaf.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let hello = b"{\"hello\":{\"version\":1,\"program\":\"deaf\"}}\n";
    // More answers than a socket and the service hold.
    let ended = (0..200_000).any(|_| deaf.write_all(hello).is_err());
    assert!(ended, "it may ask for ever without reading");
    client(&server, "p").run(&[offer(gpu())], |_| ()).unwrap();
}

#[derive(Clone, Debug)]
enum Incident {
    Joins(u8),
    Leaves(u8),
    Asks(u8, Request),
    Ticks,
}

fn any_request() -> impl proptest::strategy::Strategy<Value = Request> {
    let kind =
        prop_oneof![Just(Kind::Core), Just(Kind::AllCores), Just(gpu()), Just(Kind::Device("fpga".into()))];
    let offers = proptest::collection::vec(kind.prop_map(offer), 0..4);
    let name = prop_oneof![
        Just("short-term"),
        Just("long-term"),
        Just("banking"),
        Just("constraint"),
        Just("adaptive"),
        Just("none")
    ];
    prop_oneof![
        3 => (0..3_u32, ".{0,5}").prop_map(|(version, program)| Request::Hello { version, program }),
        8 => (0..6_u64, offers).prop_map(|(task, kernels)| Request::Submit { task, kernels }),
        6 => (0..6_u64).prop_map(|task| Request::Ended { task }),
        1 => Just(Request::Status),
        1 => name.prop_map(|name| Request::SetStrategy { name: name.to_owned(), text: None }),
        1 => any::<bool>().prop_map(|low| Request::SetGovernor(if low { Governor::Low } else { Governor::High })),
    ]
}

fn incident() -> impl proptest::strategy::Strategy<Value = Incident> {
    prop_oneof![
        2 => (0..5_u8).prop_map(Incident::Joins),
        1 => (0..5_u8).prop_map(Incident::Leaves),
        12 => (0..5_u8, any_request()).prop_map(|(id, request)| Incident::Asks(id, request)),
        1 => Just(Incident::Ticks),
    ]
}

proptest! {
    #[test]
    fn no_message_breaks_the_queues(all in proptest::collection::vec(incident(), 1..150)) {
        let mut registrar = registrar("short-term");
        let mut present: BTreeSet<ProgramId> = BTreeSet::new();
        for (now_ns, incident) in (0..).zip(all) {
            let answers = match incident {
                Incident::Joins(id) => {
                    registrar.join(id.into());
                    present.insert(id.into());
                    Vec::new()
                }
                Incident::Leaves(id) => {
                    present.remove(&id.into());
                    registrar.leave(id.into(), now_ns)
                }
                Incident::Asks(id, request) => registrar.handle(id.into(), request, now_ns),
                Incident::Ticks => registrar.tick(now_ns),
            };
            prop_assert_eq!(registrar.check(), Ok(()));
            // Nobody is told of a task that is not his.
            for (id, answer) in answers {
                if let Answer::Start(started) = answer {
                    prop_assert!(!present.contains(&id) || started.task < 6);
                }
            }
        }
        let everybody: Vec<ProgramId> = present.into_iter().collect();
        everybody.into_iter().for_each(|id| drop(registrar.leave(id, 1_000_000)));
        prop_assert_eq!(registrar.check(), Ok(()));
        let status = registrar.status();
        prop_assert!(status.waiting == 0 && status.resources.iter().all(|it| it.running.is_none() && it.queued == 0));
    }

    #[test]
    fn messages_are_read_as_they_were_written(request in any_request()) {
        let line = serde_json::to_string(&request).unwrap();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
    }
}
