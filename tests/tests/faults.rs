//! Schedulers and guards are killed at random moments; every program ends as it would alone, and
//! none stands still or stays confined for longer than a second.
//!
//! `COPLACE_FAULTS` says how often (`make soak`: 200), `COPLACE_SEED` where the random numbers begin.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coplace_tests::{Child, Home, app, machine, patience, processes, scaled};
use workload::Random;

/// What is promised: within this time of losing their scheduler programs are free, or under another.
const PROMISED: Duration = Duration::from_secs(1);

/// Teams that spin, without a scheduler on a machine that others keep busy, wait for one another for minutes. There a
/// daemon comes to help after this time; what was to be seen of them without one has been seen by then.
const HELP_AFTER: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Daemon,
    LeadingRun,
    Guard,
}

/// One round: who is killed, when, and under which circumstances.
#[derive(Debug)]
struct Round {
    victim: Victim,
    policy: &'static str,
    turns: &'static str,
    programs: Vec<(String, Vec<String>)>,
    kill_after: Duration,
    /// A new daemon comes this long after the kill.
    daemon_again_after: Option<Duration>,
}

impl Round {
    fn draw(random: &mut Random, mechanisms: &[&'static str]) -> Round {
        let victim = *random.pick(&[Victim::Daemon, Victim::LeadingRun, Victim::Guard]);
        let count = 1 + random.below(3);
        let programs = (0..count).map(|number| {
            let scale = scaled(0.3 + random.below(70) as f64 / 100.0);
            let arguments: &[&str] = match random.below(4) {
                0 => &["--rigid", "--max-threads", "2", "--", "rigid", "--threads", "2"],
                1 => &["--", "cg"],
                _ => &["--", "regions"],
            };
            let mut arguments: Vec<String> =
                arguments.iter().map(|argument| (*argument).to_owned()).collect();
            let binary = arguments.iter().position(|argument| argument == "--").expect("a program") + 1;
            arguments[binary] = app(&arguments[binary]);
            arguments.extend(["--scale".to_owned(), scale]);
            (format!("p{number}"), arguments)
        });
        Round {
            victim,
            programs: programs.collect(),
            policy: random.pick::<&str>(&[
                "policy = 'TA'",
                "policy = 'EQ'",
                "policy = 'CO'\n[settings]\nallowed_widths = [2]",
            ]),
            turns: random.pick::<&str>(mechanisms),
            kill_after: Duration::from_millis(30 + random.below(900)),
            daemon_again_after: (random.below(2) == 0).then(|| Duration::from_millis(random.below(700))),
        }
    }
}

/// Since when each program stands still, and the longest that any did.
#[derive(Default)]
struct Stillness {
    since: BTreeMap<u32, Duration>,
    longest: Duration,
}

impl Stillness {
    fn sample(&mut self, programs: &[u32]) {
        for &pid in programs {
            let still = processes::state(pid) == Some('T') || processes::is_frozen(pid);
            let now = machine::ran();
            match self.since.get(&pid) {
                Some(since) if still => self.longest = self.longest.max(now - *since),
                None if still => drop(self.since.insert(pid, now)),
                _ => drop(self.since.remove(&pid)),
            }
        }
    }
}

const PROGRAMS: [&str; 3] = ["regions", "rigid", "cg"];

fn programs(home: &Home) -> Vec<u32> {
    let ours = |pid: &u32| processes::program(*pid).is_some_and(|name| PROGRAMS.contains(&name.as_str()));
    home.processes().into_iter().filter(ours).collect()
}

fn guards(home: &Home) -> Vec<u32> {
    let is_guard = |pid: &u32| processes::command(*pid).get(1).is_some_and(|argument| argument == "guard");
    home.processes().into_iter().filter(is_guard).collect()
}

fn confined(pid: u32) -> bool {
    let own = processes::own_mask();
    processes::masks(pid).iter().any(|mask| *mask != own)
}

/// Plays a round; the longest that a program stood still, or `None` if all had ended before the kill.
fn play(round: &Round, is_busy: bool) -> Option<Duration> {
    let home = Home::new();
    let config = format!("turns = '{}'\n{}\n", round.turns, round.policy);
    fs::write(home.path().join("config.toml"), config).unwrap();
    let mut daemons: Vec<Child> = Vec::new();
    if round.victim == Victim::Daemon {
        daemons.push(home.daemon(&[]));
    }
    let mut runs: Vec<Child> = Vec::new();
    for (name, arguments) in &round.programs {
        let mut command = home.coplace();
        runs.push(home.start(name, command.args(["run", "--quiet", "--name", name]).args(arguments)));
    }
    let scheduler = || home.status().and_then(|status| Some(status["pid"].as_u64()? as u32));
    home.until("there is a scheduler", || scheduler().is_some() || programs(&home).is_empty());

    let mut stillness = Stillness::default();
    let began = Instant::now();
    while began.elapsed() < round.kill_after {
        stillness.sample(&programs(&home));
        std::thread::sleep(Duration::from_millis(20));
    }
    let victim = match round.victim {
        Victim::Daemon | Victim::LeadingRun => scheduler(),
        Victim::Guard => guards(&home).first().copied(),
    };
    let in_time = victim.is_some() && !programs(&home).is_empty();
    if let Some(victim) = victim {
        processes::signal(victim, libc::SIGKILL);
    }
    let (killed, killed_at) = (Instant::now(), machine::ran());
    let mut came = killed;
    let promised = || machine::ran() - killed_at > PROMISED;

    let mut again = round.daemon_again_after;
    let mut judged = false;
    let mut adopted = true;
    loop {
        let alive = programs(&home);
        stillness.sample(&alive);
        if let Some(after) = again
            && killed.elapsed() >= after
        {
            again = None;
            adopted = false;
            came = Instant::now();
            let mut daemon = home.coplace();
            daemons.push(home.start("again", daemon.arg("daemon")));
        }
        if !judged && promised() {
            judged = true;
            // Only a scheduler may confine anybody; looked for twice, lest one comes in between.
            if scheduler().is_none() {
                let bound: Vec<u32> = alive.iter().copied().filter(|pid| confined(*pid)).collect();
                let still_bound = bound.iter().any(|pid| confined(*pid)) && scheduler().is_none();
                assert!(!still_bound, "confined by nobody: {bound:?}; {round:?}{}", home.traces());
            }
        }
        if !adopted && promised() {
            let role = home.status().map(|status| status["role"].clone());
            let known: Vec<u64> = home.status().map_or_else(Vec::new, |status| {
                status["apps"].as_array().unwrap().iter().filter_map(|app| app["pid"].as_u64()).collect()
            });
            let alive = programs(&home);
            let all = alive.iter().all(|pid| known.contains(&u64::from(*pid)));
            adopted = role == Some("daemon".into()) && all;
            let late = came.elapsed() > patience(Duration::from_secs(30));
            assert!(adopted || !late, "not adopted: {alive:?} of {known:?}; {round:?}{}", home.traces());
        }
        if is_busy && adopted && again.is_none() && killed.elapsed() > HELP_AFTER && scheduler().is_none() {
            again = Some(HELP_AFTER);
        }
        // A program that has not begun yet is none of the living.
        let ended = || runs.iter().all(Child::verified);
        if alive.is_empty() && adopted && again.is_none() && ended() {
            break;
        }
        let stuck = killed.elapsed() > patience(Duration::from_secs(120));
        assert!(!stuck, "these never end: {alive:?}; {round:?}{}", home.traces());
        std::thread::sleep(Duration::from_millis(20));
    }
    for run in &runs {
        assert!(run.verified(), "{} {}; {round:?}{}", run.stdout(), run.stderr(), home.traces());
    }
    let longest = stillness.longest;
    assert!(longest <= PROMISED, "a program stood still for {longest:?}; {round:?}{}", home.traces());
    for daemon in &daemons {
        daemon.signal(libc::SIGTERM);
    }
    runs.iter_mut().chain(&mut daemons).for_each(|child| {
        child.ended_within(Duration::from_secs(60));
    });
    home.is_left_clean();
    in_time.then_some(longest)
}

/// The ways of taking turns that this machine offers.
fn mechanisms() -> Vec<&'static str> {
    let home = Home::new();
    let program = format!("[[program]]\ncommand = ['{}', '--size', 'T']\n", app("regions"));
    let works = |turns: &&str| home.mix(&program, &["--turns", turns]).status.success();
    let found: Vec<&str> = ["freeze", "idle", "stop"].into_iter().filter(works).collect();
    assert!(found.contains(&"stop"), "SIGSTOP works everywhere; {}", home.traces());
    found
}

#[test]
fn schedulers_and_guards_that_are_killed_harm_no_program() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
    };
    let (count, seed) = (number("COPLACE_FAULTS", 10), number("COPLACE_SEED", 1));
    let (mechanisms, is_busy) = (mechanisms(), machine::is_busy());
    let mut longest = Duration::ZERO;
    let mut killed: BTreeMap<Victim, u64> = BTreeMap::new();
    let mut done = 0;
    for at in seed.. {
        if done == count {
            break;
        }
        // Each round has a seed of its own, so that one that failed is repeated alone.
        let mut random = Random::for_purpose(at, "faults");
        let round = Round::draw(&mut random, &mechanisms);
        eprintln!("COPLACE_FAULTS=1 COPLACE_SEED={at} repeats this round: {round:?}");
        if let Some(still) = play(&round, is_busy) {
            done += 1;
            *killed.entry(round.victim).or_default() += 1;
            longest = longest.max(still);
        }
        assert!(
            at - seed < 4 * count,
            "the programs are too short for this machine: {done} of {count} kills hit"
        );
    }
    println!(
        "{count} kills {killed:?}, longest standing still {:.3} s, every program VERIFIED",
        longest.as_secs_f64()
    );
}

/// Where a program's threads may run, and whether it stands in a group of coplace's.
fn held(pid: u32) -> (Vec<String>, bool) {
    let mut masks = processes::masks(pid);
    masks.dedup();
    (masks, processes::groups(pid).iter().any(|(_, path)| path.contains("/coplace/")))
}

#[test]
fn programs_are_held_again_after_stalls_of_their_scheduler() {
    let stalls = std::env::var("COPLACE_STALLS").map_or(12, |text| text.parse().expect("it is a number"));
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA", "--unmanaged", "ignore"]);
    let run = |name: &str| {
        let mut command = home.coplace();
        command.args(["run", "--quiet", "--name", name, &app("regions"), "--size", "X"]);
        home.start(name, &mut command)
    };
    let mut runs = [run("a"), run("b")];
    let own = processes::own_mask();
    let apart = |held: &[(Vec<String>, bool)]| match held {
        [(one, _), (other, _)] => one.len() == 1 && other.len() == 1 && one != other && one[0] != own,
        _ => false,
    };
    let held_now = || programs(&home).into_iter().map(held).collect::<Vec<_>>();
    home.until("each has a place of its own", || apart(&held_now()));
    let in_groups = held_now()[0].1;
    let mut random = Random::for_purpose(1, "stalls");
    let spread_ms = patience(Duration::from_millis(350)).as_millis() as u64;
    let mut freed = 0;
    for stall in 0..stalls {
        // Around the time in which the guard and the scheduler's own return meet.
        let ms = 350 + random.below(spread_ms);
        daemon.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(ms));
        freed += u32::from(!apart(&held_now()));
        daemon.signal(libc::SIGCONT);
        home.until(&format!("they are held again after stall {stall} of {ms} ms"), || {
            // Twice, lest a guard is still about it.
            let is_held = |held: &[(Vec<String>, bool)]| {
                apart(held) && held.iter().all(|(_, is_in)| *is_in == in_groups)
            };
            let before = held_now();
            std::thread::sleep(Duration::from_millis(150));
            is_held(&before) && is_held(&held_now())
        });
    }
    println!("{stalls} stalls; the guard was there first in {freed}");
    assert!(freed > 0 || stalls < 12, "no stall was long enough");
    runs.iter().for_each(|run| run.signal(libc::SIGTERM));
    for run in &mut runs {
        run.ended_within(Duration::from_secs(60));
    }
    daemon.signal(libc::SIGTERM);
    home.until("all have ended", || home.processes().is_empty());
    home.is_left_clean();
}

/// So many threads that two programs with them take turns, whatever machine this is.
fn all_cpus() -> String {
    std::thread::available_parallelism().expect("the CPUs of this process").to_string()
}

/// Three spinning programs in turns; what is on record of them is lost, and then the run that schedules is killed.
/// Answers with what the runs have said on stderr.
fn lose_records_and_leader(turns: &str, what: &str, lose: impl Fn(&Path)) -> String {
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "unmanaged = 'ignore'\n").unwrap();
    let run = |name: &str| {
        let mut command = home.coplace();
        command.args(["run", "--quiet", "--turns", turns, "--rigid", "--name", name, "--"]);
        home.start(name, command.args([&app("rigid"), "--threads", &all_cpus(), "--size", "X"]))
    };
    eprintln!("turns by {turns}: {what}");
    let mut runs = ["a", "b", "c"].map(run);
    home.until("they take turns", || {
        home.status().is_some_and(|status| {
            let apps = status["apps"].as_array().expect("a list");
            apps.len() == 3 && apps.iter().all(|app| app["account"]["turns"].as_u64() > Some(1))
        })
    });
    let leader = home.status().and_then(|status| status["pid"].as_u64()).expect("it schedules") as u32;
    lose(&home.path().join("h"));
    processes::signal(leader, libc::SIGKILL);
    let all = programs(&home);
    assert_eq!(all.len(), 3, "{}", home.traces());
    let before: BTreeMap<u32, u64> = all.iter().map(|pid| (*pid, processes::run_ns(*pid))).collect();
    // Under another of the runs, or free: each goes on.
    home.until(&format!("{turns}, {what}: every program goes on"), || {
        before.iter().all(|(pid, ran_ns)| processes::run_ns(*pid) > ran_ns + 50_000_000)
    });
    // Nobody knows any more of the groups of one that ends before that.
    home.until(&format!("{turns}, {what}: every program is free, or under another run"), || {
        let status = home.status().unwrap_or_default();
        let known = |pid: &u32| {
            let apps = status["apps"].as_array();
            apps.is_some_and(|apps| apps.iter().any(|app| app["pid"] == *pid))
        };
        all.iter().all(|pid| known(pid) || !held(*pid).1)
    });
    all.into_iter().for_each(processes::end);
    for run in &mut runs {
        run.ended_within(Duration::from_secs(30));
    }
    home.is_left_clean();
    home.until("nothing is left on record", || files_on_record(&home) == 0);
    runs.iter().map(|run| run.stderr()).collect()
}

#[test]
fn programs_whose_records_were_removed_survive_a_kill() {
    for turns in mechanisms() {
        for what in ["apps", ""] {
            lose_records_and_leader(turns, &format!("h/{what} is removed"), |home| {
                fs::remove_dir_all(home.join(what)).expect("it is there");
            });
        }
    }
}

/// Writes nonsense over what is on record with one of these endings, and into a file that is none of ours.
fn damage(home: &Path, endings: &[&str]) {
    let apps = home.join("apps");
    let on_record =
        fs::read_dir(&apps).expect("it is there").map(|entry| entry.expect("it can be read").path());
    let ends = |path: &PathBuf| endings.iter().any(|end| path.extension() == Some(end.as_ref()));
    for path in on_record.filter(ends).chain([apps.join("stranger.json")]) {
        fs::write(path, "nonsense {").expect("it can be written");
    }
}

fn files_on_record(home: &Home) -> usize {
    fs::read_dir(home.path().join("h/apps")).map_or(0, Iterator::count)
}

#[test]
fn damaged_records_are_named_and_survived() {
    for turns in mechanisms() {
        for endings in [&["json"][..], &["json", "copy"], &["json", "copy", "traces"]] {
            let what = format!("{endings:?} are damaged");
            let named = lose_records_and_leader(turns, &what, |home| damage(home, endings));
            assert!(named.contains("stranger.json is no record of a program"), "{named}");
            let consequence = if endings.len() == 1 { "a is known by its copy" } else { "it is put away" };
            assert!(named.contains(consequence), "{named}");
        }
    }
}

/// With nothing left on record, the next scheduler finds programs by their groups and pages.
#[test]
fn strays_run_on_after_a_kill_of_all() {
    for turns in mechanisms() {
        eprintln!("turns by {turns}");
        let home = Home::new();
        let runs = ["a", "b"].map(|name| {
            let mut command = home.coplace();
            command.args(["run", "--quiet", "--turns", turns, "--rigid", "--name", name, "--"]);
            home.start(name, command.args([&app("rigid"), "--threads", &all_cpus(), "--size", "X"]))
        });
        home.until("they take turns", || {
            home.status().is_some_and(|status| {
                let apps = status["apps"].as_array().expect("a list");
                apps.len() == 2 && apps.iter().all(|app| app["account"]["turns"].as_u64() > Some(1))
            })
        });
        let all = programs(&home);
        let ours = home.processes().into_iter().filter(|pid| !all.contains(pid));
        ours.for_each(|pid| processes::signal(pid, libc::SIGKILL));
        home.until("coplace is gone", || home.processes().len() == all.len());
        drop(runs);
        damage(&home.path().join("h"), &["json", "copy"]);
        let daemon = home.daemon(&[]);
        let before: BTreeMap<u32, u64> = all.iter().map(|pid| (*pid, processes::run_ns(*pid))).collect();
        home.until(&format!("{turns}: every program goes on"), || {
            before.iter().all(|(pid, ran_ns)| processes::run_ns(*pid) > ran_ns + 50_000_000)
        });
        assert!(daemon.stderr().contains("is set free"), "{}", daemon.stderr());
        all.into_iter().for_each(processes::end);
        home.until("no program is left", || programs(&home).is_empty());
        daemon.signal(libc::SIGTERM);
        home.is_left_clean();
        assert_eq!(files_on_record(&home), 0);
    }
}

#[test]
fn a_damaged_record_comes_back_after_a_kill_of_all() {
    let home = Home::new();
    let mut command = home.coplace();
    command.args(["run", "--quiet", "--rigid", "--name", "a", "--"]);
    let _run = home.start("a", command.args([&app("rigid"), "--threads", "2", "--size", "X"]));
    home.until("it runs", || programs(&home).len() == 1);
    let program = programs(&home);
    let ours = home.processes().into_iter().filter(|pid| !program.contains(pid));
    ours.for_each(|pid| processes::signal(pid, libc::SIGKILL));
    home.until("coplace is gone", || home.processes() == program);
    damage(&home.path().join("h"), &["json"]);
    let daemon = home.daemon(&[]);
    let status = home.status().expect("a daemon runs");
    let pids: Vec<_> = status["apps"].as_array().into_iter().flatten().map(|app| &app["pid"]).collect();
    assert_eq!(pids, [program[0]]);
    let named = daemon.stderr();
    assert!(named.contains("a.json") && named.contains("a is known by its copy"), "{named}");
    assert!(named.contains("stranger.json"), "{named}");
    program.into_iter().for_each(processes::end);
    home.until("nothing is left on record", || files_on_record(&home) == 0);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}
