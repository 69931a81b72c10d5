//! What deciding costs: prints JSON for `experiments/offload-costs/run`.
//!
//! `costs ROUNDS`: round trips, decisions a second, a decision in Lua and in Rust, round trips while strategies are
//! swapped.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coplace_offload::board::{Board, Overlap};
use coplace_offload::client::Client;
use coplace_offload::dispatch::{Dispatcher, Event};
use coplace_offload::messages::{Answer, Offer, Request};
use coplace_offload::registrar::{Registrar, strategy};
use coplace_offload::server::Server;
use coplace_offload::strategy::{ShortTerm, Strategy};
use coplace_offload::task::{Governor, Kernel, Kind, Resource, Task};
use serde_json::{Value, json};
use topology::CpuSet;

/// A program submits so many tasks before it takes an answer, where throughput is measured.
const IN_FLIGHT: usize = 64;

fn device(kind: &str) -> Kind {
    Kind::Device(kind.to_owned())
}

/// One device for the program that measures, one that is taken, and some for throughput.
fn board() -> Board {
    let resource = |name: String, kind: Kind| Resource { name, kind, cores: CpuSet::default(), threads: 0.0 };
    let mut all =
        vec![resource("probe0".into(), device("probe")), resource("taken0".into(), device("taken"))];
    all.extend((0..4).map(|number| resource(format!("wide{number}"), device("wide"))));
    Board::new(all, Overlap::Refused, Governor::High)
}

fn server(name: &'static str) -> Server {
    let make = move || Ok(Registrar::new(Dispatcher::new(board(), strategy(name, None)?)));
    Server::start(make).expect("it starts")
}

fn client(server: &Server, name: &str) -> Client {
    Client::over(server.connect().expect("it listens"), name).expect("it answers")
}

fn offer(kind: &str) -> Vec<Offer> {
    vec![Offer { on: device(kind), expected_ns: None }]
}

fn quantiles(mut ns: Vec<u64>) -> Value {
    ns.sort_unstable();
    let at = |part: f64| ns[((ns.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    json!({ "median_us": at(0.5), "p99_us": at(0.99), "most_us": at(1.0) })
}

/// From a task's submission to its start, while this many other programs wait.
fn round_trips(name: &'static str, others: usize, rounds: usize) -> Value {
    let server = server(name);
    let mut waiting: Vec<Client> = (0..others).map(|number| client(&server, &format!("p{number}"))).collect();
    waiting.iter_mut().for_each(|client| drop(client.submit(&offer("taken"))));
    let mut own = client(&server, "own");
    quantiles((0..rounds).map(|_| round_trip(&mut own)).collect())
}

fn round_trip(client: &mut Client) -> u64 {
    let began = Instant::now();
    client.run(&offer("probe"), |_| began.elapsed().as_nanos() as u64).expect("it runs")
}

/// Tasks of several programs that end at once, a second.
fn decisions_per_s(name: &'static str, programs: usize, rounds: usize) -> f64 {
    let server = Arc::new(server(name));
    let began = Instant::now();
    let all: Vec<_> = (0..programs)
        .map(|number| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || {
                let mut client = client(&server, &format!("p{number}"));
                for at in 0..rounds + IN_FLIGHT {
                    if at < rounds {
                        client.submit(&offer("wide")).expect("it listens");
                    }
                    if at >= IN_FLIGHT {
                        let started = client.wait().expect("it decides");
                        client.end(started.task).expect("it listens");
                    }
                }
            })
        })
        .collect();
    all.into_iter().for_each(|program| program.join().expect("it ends"));
    (programs * rounds) as f64 / began.elapsed().as_secs_f64()
}

/// A task that comes, starts and ends, without a socket, while so many others wait.
fn decision_ns(strategy: Box<dyn Strategy>, waiting: usize, rounds: usize) -> f64 {
    let mut dispatcher = Dispatcher::new(board(), strategy);
    let task = |kind: &str| Task {
        program: "p".into(),
        arrived_ns: 0,
        kernels: vec![Kernel { on: device(kind), expected_ns: None }],
    };
    (0..=waiting).for_each(|_| drop(dispatcher.handle(Event::Arrived(task("taken")), 0)));
    let began = Instant::now();
    for _ in 0..rounds {
        let starts = black_box(dispatcher.handle(Event::Arrived(task("probe")), 0));
        dispatcher.handle(Event::Ended(starts[0].task), 0);
    }
    began.elapsed().as_nanos() as f64 / rounds as f64
}

/// Round trips while another program swaps strategies without a pause.
fn round_trips_under_swaps(swaps: usize) -> Value {
    let server = server("short-term");
    let is_over = Arc::new(AtomicBool::new(false));
    let mut swapping = client(&server, "swaps");
    let over = Arc::clone(&is_over);
    let swapper = std::thread::spawn(move || {
        let names = ["short-term", "long-term", "banking", "constraint", "adaptive"];
        for number in 0..swaps {
            let name = names[number % names.len()].to_owned();
            let answer = swapping.ask(&Request::SetStrategy { name, text: None }).expect("it swaps");
            assert_eq!(answer, Answer::Done);
            std::thread::sleep(Duration::from_millis(2));
        }
        over.store(true, Ordering::Release);
    });
    let mut own = client(&server, "own");
    let mut trips = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        trips.push(round_trip(&mut own));
    }
    swapper.join().expect("it ends");
    let count = trips.len();
    let mut value = quantiles(trips);
    value["round_trips"] = json!(count);
    value
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let lua = || strategy("short-term", None).expect("it is listed");
    let value = json!({
        "alone": round_trips("short-term", 0, rounds),
        "beside_99": round_trips("short-term", 99, rounds),
        "beside_99_adaptive": round_trips("adaptive", 99, rounds),
        "decisions_per_s": decisions_per_s("short-term", 4, rounds),
        "lua_ns": decision_ns(lua(), 0, rounds),
        "lua_beside_99_ns": decision_ns(lua(), 99, rounds),
        "rust_ns": decision_ns(Box::new(ShortTerm), 0, rounds),
        "rust_beside_99_ns": decision_ns(Box::new(ShortTerm), 99, rounds),
        "swaps": round_trips_under_swaps(if rounds < 10_000 { 100 } else { 1000 }),
    });
    println!("{value}");
}
