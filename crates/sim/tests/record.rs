//! Records as workloads: what comes out of one must be what was recorded.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use coplace_sim::{Knowledge, Model, Outcome, Record, Setup, simulate, simulate_recorded};
use policy::{Settings, by_name};
use topology::Machine;
use workload::{Generator, Scenario, Waiting};

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tape {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn setup(machine: &str) -> Setup {
    Setup {
        machine: Arc::new(Machine::synthetic(machine).unwrap()),
        laws: Model::built_in().laws,
        settings: Settings::default(),
        waiting: Waiting::Spinning,
        keep_plans: false,
        knowledge: Knowledge::None,
        until_ns: None,
    }
}

fn read(text: &str) -> Result<Record, String> {
    let laws = Model::built_in().laws;
    Record::parse(text, Path::new("t.jsonl"), &laws, Waiting::Spinning).map_err(|error| error.to_string())
}

fn play(setup: &Setup, scenario: &Scenario, policy: &str) -> Outcome {
    simulate(setup, scenario, by_name(policy, &setup.settings).unwrap()).unwrap()
}

#[test]
fn a_simulations_record_replays_to_its_makespan() {
    let setup = setup("pack:4 [numa] l3:1 core:6");
    let set = Generator::set("B", &Model::built_in().profiles).unwrap();
    for (policy, seed) in [("BP", 1), ("EQ", 2), ("TA", 3), ("CO", 4), ("UE", 5), ("adaptive", 6)] {
        let (scenario, tape) = (set.scenario(seed), Tape::default());
        let chosen = by_name(policy, &setup.settings).unwrap();
        let live = simulate_recorded(&setup, &scenario, chosen, Box::new(tape.clone())).unwrap();
        let record = read(&tape.text()).unwrap();
        let arrivals = |scenario: &Scenario| -> Vec<(String, u64)> {
            scenario.jobs.iter().map(|job| (job.id.to_string(), job.arrive_ns)).collect()
        };
        assert_eq!(arrivals(&record.scenario), arrivals(&scenario), "{policy}");
        assert_eq!(record.machine, *setup.machine);
        let again = play(&setup, &record.scenario, policy);
        let ratio = again.makespan_ns as f64 / live.makespan_ns as f64;
        assert!((0.95..1.05).contains(&ratio), "{policy}: {ratio} of the recorded makespan");
        let responses = |outcome: &Outcome| outcome.jobs.iter().map(|job| job.response_ns()).sum::<f64>();
        let ratio = responses(&again) / responses(&live);
        assert!((0.95..1.05).contains(&ratio), "{policy}: {ratio} of the recorded responses");
    }
}

/// The record of a node of four CPUs on which `events` happened.
fn record(events: &str) -> String {
    let tape = Tape::default();
    let machine = Arc::new(Machine::synthetic("core:4").unwrap());
    let all = machine.all_cpus().clone();
    let settings = Settings { slice_ns: 40_000_000, ..Settings::default() };
    let policy = by_name("TA", &settings).unwrap();
    let mut engine = engine::Engine::new(machine, all.clone(), all, policy).with_settings(settings);
    engine.record_to(Box::new(tape.clone()));
    tape.text() + events
}

fn app(id: &str, team: u32, more: &str) -> String {
    let team = if team == 0 { "null".to_owned() } else { team.to_string() };
    format!(
        r#"{{"id":"{id}","arrived_ns":1000000000,"demand":{{"malleability":"malleable","min_threads":1,"max_threads":null,"weight_milli":1000,"coschedule":true}},"team":{team},"waits_passively":false,"stoppable":true,"suspended":false,"within":null{more}}}"#
    )
}

fn event(at_s: f64, event: &str) -> String {
    format!("{{\"event\":{{\"now_ns\":{},\"event\":{event}}}}}\n", (at_s * 1e9) as u64)
}

fn plan(at_s: f64, plan: &str) -> String {
    format!("{{\"plan\":{{\"now_ns\":{},\"plan\":\"{plan}\"}}}}\n", (at_s * 1e9) as u64)
}

fn arrived(at_s: f64, app: &str) -> String {
    event(at_s, &format!("{{\"arrived\":{app}}}"))
}

fn observed(at_s: f64, app: &str) -> String {
    event(at_s, &format!("{{\"observed\":{app}}}"))
}

/// Start-up and work of the record's jobs, in tenths of a second.
fn tenths(text: &str) -> Vec<(String, u64, u64)> {
    let tenths = |ns: u64| (ns as f64 / 1e8).round() as u64;
    let jobs = read(text).unwrap().scenario.jobs;
    let summary = |job: &workload::Job| {
        (job.id.to_string(), tenths(job.profile.start_ns), tenths(job.profile.sequential_ns))
    };
    jobs.iter().map(summary).collect()
}

#[test]
fn recorded_work_follows_places_by_the_known_curve() {
    // One second on four CPUs before a team was seen, three with four threads, two with two.
    let story = |last: &str| {
        record(
            &(arrived(1.0, &app("a", 0, ""))
                + &plan(1.0, "a on 0-3")
                + &observed(2.0, &app("a", 4, ""))
                + &plan(2.0, "a on 0-3")
                + &observed(5.0, &app("a", 2, last))
                + &plan(5.0, "a on 0-1")
                + &event(7.0, "{\"left\":\"a\"}")
                + &plan(7.0, "idle")),
        )
    };
    assert_eq!(tenths(&story("")), [("a".to_owned(), 10, 3 * 40 + 2 * 20)]);
    let curve = ",\"speedup\":{\"2\":1500,\"4\":2000}";
    assert_eq!(tenths(&story(curve)), [("a".to_owned(), 10, 3 * 20 + 2 * 15)]);
    // Nobody told of a team: one thread's work, whatever place it had.
    let serial = story("").replace("\"team\":4", "\"team\":null").replace("\"team\":2", "\"team\":null");
    assert_eq!(tenths(&serial), [("a".to_owned(), 0, 60)]);
}

#[test]
fn turns_count_for_what_they_were_and_waiting_does_not() {
    let text = record(
        &(arrived(1.0, &app("a", 4, ""))
            + &arrived(1.0, &app("b", 4, ""))
            + &plan(1.0, "in_turn strict [40ms a on 0-3, 40ms b on 0-3]")
            + &event(3.0, "{\"left\":\"a\"}")
            + &plan(3.0, "idle waiting [b]")
            + &event(4.0, "{\"left\":\"b\"}")
            + &plan(4.0, "idle")),
    );
    // Half of two seconds, less a switch of 0.1 of 40 ms.
    assert_eq!(tenths(&text), [("a".to_owned(), 0, 40), ("b".to_owned(), 0, 40)]);
    let work_ns = read(&text).unwrap().scenario.jobs[0].profile.sequential_ns;
    assert!((3_985_000_000..3_995_000_000).contains(&work_ns), "{work_ns}");
}

#[test]
fn a_program_that_left_a_plan_or_mixture_has_no_place() {
    let text = record(
        &(arrived(1.0, &app("a", 1, ""))
            + &arrived(1.0, &app("b", 1, ""))
            + &plan(1.0, "mixed [a on 0, b on 0]")
            + &event(3.0, "{\"left\":\"b\"}")
            + &plan(3.0, "a on 0")
            + &plan(4.0, "idle")
            + &arrived(5.0, &app("c", 1, ""))
            + &plan(5.0, "c on 0")
            + &event(6.0, "{\"left\":\"a\"}")
            + &event(6.0, "{\"left\":\"c\"}")
            + &plan(6.0, "idle")),
    );
    // Both had half of a CPU for two seconds; then a had all of it for one.
    let tenths = tenths(&text);
    assert_eq!(tenths, [("a".to_owned(), 0, 20), ("b".to_owned(), 0, 10), ("c".to_owned(), 0, 10)]);
}

#[test]
fn a_reused_name_is_a_new_job_and_open_jobs_end_with_the_record() {
    let text = record(
        &(arrived(1.0, &app("a", 1, ""))
            + &plan(1.0, "a on 0")
            + &event(2.0, "{\"left\":\"a\"}")
            + &plan(2.0, "idle")
            + &arrived(2.5, &app("a", 1, "").replace("1000000000", "2500000000"))
            + &plan(2.5, "a on 0")
            + &plan(4.5, "a on 0")),
    );
    assert_eq!(tenths(&text), [("a".to_owned(), 0, 10), ("a.2".to_owned(), 0, 20)]);
    let record = read(&text).unwrap();
    assert_eq!(record.scenario.jobs[1].arrive_ns, 1_500_000_000, "arrivals count from the first");
    assert_eq!(record.settings.slice_ns, 40_000_000);
    assert!(record.notes.iter().any(|note| note.starts_with("1 had not left")), "{:?}", record.notes);
}

#[test]
fn a_malformed_record_is_refused_with_its_line() {
    let good = record(&(arrived(1.0, &app("a", 1, "")) + &plan(1.0, "a on 0")));
    let fails = |text: &str, wanted: &str| {
        let error = read(text).unwrap_err();
        assert!(error.starts_with("t.jsonl") && error.contains(wanted), "'{wanted}' is not in: {error}");
    };
    assert!(read(&good).is_ok());
    // A last line that was cut off was being written; one in the middle is wrong.
    assert!(read(&format!("{good}{{\"plan\"")).is_ok());
    fails(&good.replacen("{\"event\"", "{\"event", 1), ":2:1: is no line of a record");
    fails(&good.replacen("a on 0", "a on x", 1), ":3:1: ");
    fails(&good.replacen("\"malleable\"", "\"soft\"", 1), ":2:1: ");
    fails(&(good.clone() + &good), ":4:1: a second beginning");
    fails(&good.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>(), ":1:1: stands before");
    fails(good.lines().next().unwrap(), "no program arrives");
    fails("", "no line");
}
