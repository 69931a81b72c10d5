//! Programs that use teams in many ways, with neighbours: each computes bit for bit what it computes alone, none dies,
//! each is found to be what its head says, and those that can be resized are.
//!
//! `make test` takes each program once, by a compiler, in a situation and with flags that go round. `COPLACE_TEAMS=all`
//! takes everything (more than an hour), `COPLACE_TEAMS=name,name` everything of these programs. What came out is in
//! `build/teams/outcomes.jsonl`, a line for each, while it runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use coplace_tests::teams::{self, Mark, Program};
use coplace_tests::{Child, Home, processes, skipped, top};
use serde_json::{Value, json};

/// When a neighbour is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    First,
    Later,
    /// For 20 to 50 ms each, 20 times.
    ComingAndGoing,
}

#[derive(Clone, Copy, Debug)]
struct Situation {
    neighbours: Neighbours,
    /// The program is started with `OMP_PROC_BIND=true`.
    bound: bool,
    /// Whether the neighbour, or the first of them, can be resized.
    resizable: bool,
}

/// All of them. What `make test` takes of a program goes round these.
const SITUATIONS: [Situation; 8] = {
    use Neighbours::{ComingAndGoing, First, Later};
    [
        Situation { neighbours: Later, bound: false, resizable: true },
        Situation { neighbours: First, bound: false, resizable: true },
        Situation { neighbours: ComingAndGoing, bound: false, resizable: true },
        Situation { neighbours: First, bound: true, resizable: true },
        Situation { neighbours: Later, bound: false, resizable: false },
        Situation { neighbours: First, bound: false, resizable: false },
        Situation { neighbours: Later, bound: true, resizable: true },
        Situation { neighbours: ComingAndGoing, bound: true, resizable: false },
    ]
};

/// A program that has not ended by then waits for something that never comes.
const MOST: Duration = Duration::from_secs(120);
const COMING: u32 = 20;
/// No neighbour is to end before the program does.
const LONG_MS: &str = "3600000";

struct Outcome {
    program: Program,
    situation: Situation,
    /// What was other than alone.
    wrong: Option<String>,
    /// What coplace found it to be, when it was last seen.
    found: Option<(Mark, String)>,
    /// It was seen with a smaller team than the machine's.
    narrowed: bool,
    neighbours: u32,
    alone_s: f64,
    together_s: f64,
}

impl Outcome {
    fn title(&self) -> String {
        let Situation { neighbours, bound, resizable } = self.situation;
        let kind = if resizable { "resizable" } else { "rigid" };
        let bound = if bound { ", bound" } else { "" };
        format!("{} ({kind} neighbour {neighbours:?}{bound})", self.program.file())
    }

    /// Whether coplace found something else than the mark says.
    fn misjudged(&self) -> Option<String> {
        let (found, why) = self.found.as_ref()?;
        // What is bound may be rigid for that.
        let wrong = match self.program.mark {
            Mark::Resizable => !self.situation.bound && *found != Mark::Resizable,
            Mark::Rigid => *found != Mark::Rigid,
        };
        wrong.then(|| format!("{}: {found:?} {why:?}, not {:?}", self.title(), self.program.mark))
    }

    /// Whether it should have been resized and was not. With one that cannot be it may take turns.
    fn left_wide(&self) -> bool {
        let Situation { neighbours, bound, resizable } = self.situation;
        let is_resized = resizable && !bound && neighbours != Neighbours::ComingAndGoing;
        self.program.mark == Mark::Resizable && is_resized && !self.narrowed
    }

    fn json(&self) -> Value {
        let found = self.found.as_ref();
        json!({
            "program": self.program.name, "compiler": self.program.compiler, "flags": self.program.flags,
            "neighbours": format!("{:?}", self.situation.neighbours), "bound": self.situation.bound,
            "resizable_neighbour": self.situation.resizable, "neighbours_started": self.neighbours,
            "mark": format!("{:?}", self.program.mark), "found": found.map(|found| format!("{:?}", found.0)),
            "why": found.map(|found| &found.1), "narrowed": self.narrowed, "wrong": self.wrong,
            "alone_s": self.alone_s, "together_s": self.together_s,
        })
    }
}

/// Programs, or all; empty: each once.
fn wanted() -> String {
    std::env::var("COPLACE_TEAMS").unwrap_or_default()
}

/// What is to be run.
fn chosen() -> Vec<(Program, Situation)> {
    let listed = teams::listed();
    let wanted = wanted();
    let everything = |programs: Vec<Program>| -> Vec<(Program, Situation)> {
        let all = |program: Program| SITUATIONS.map(|situation| (program.clone(), situation));
        programs.into_iter().flat_map(all).collect()
    };
    if wanted == "all" {
        return everything(listed);
    }
    if !wanted.is_empty() {
        let names: Vec<&str> = wanted.split(',').collect();
        let is_wanted =
            |program: &Program| names.contains(&&*program.name) || names.contains(&program.file());
        return everything(listed.into_iter().filter(is_wanted).collect());
    }
    rotated(&listed)
}

/// Each program once.
fn rotated(listed: &[Program]) -> Vec<(Program, Situation)> {
    let mut chosen = Vec::new();
    let mut count_of = [0, 0];
    for variants in listed.chunk_by(|a, b| a.name == b.name) {
        let resizable = variants[0].mark == Mark::Resizable;
        let at = &mut count_of[usize::from(resizable)];
        // Compilers and situations go round at different paces.
        let program = variants[(*at + *at / SITUATIONS.len()) % variants.len()].clone();
        // Most that can be resized are taken where it can be seen that they are.
        let situation = match resizable {
            true => SITUATIONS[[0, 1, 0, 1, 2, 3][*at % 6]],
            false => SITUATIONS[*at % SITUATIONS.len()],
        };
        *at += 1;
        chosen.push((program, situation));
    }
    chosen
}

struct Scene {
    home: Home,
    neighbours: [PathBuf; 2],
    cpus: u64,
    runs: u32,
    alone: BTreeMap<(PathBuf, &'static str), (String, f64)>,
}

impl Scene {
    /// Longer where something is to be seen while it runs, and where all neighbours are to come in its time.
    fn scale(program: &Program, situation: Situation) -> &'static str {
        match (program.mark, situation.neighbours) {
            (_, Neighbours::ComingAndGoing) if !wanted().is_empty() => "2.5",
            (Mark::Resizable, _) => "1",
            (Mark::Rigid, _) => "0.5",
        }
    }

    /// What the program prints alone, and how long it takes; run once for each length.
    fn alone(&mut self, program: &Program, scale: &'static str) -> (String, f64) {
        if let Some(known) = self.alone.get(&(program.path.clone(), scale)) {
            return known.clone();
        }
        let since = Instant::now();
        let mut command = self.home.command(&program.path);
        // What threads do while they wait changes no result, and a busy machine is not to make this long.
        let output = command.arg(scale).env("OMP_WAIT_POLICY", "passive").output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.path.display()));
        assert!(output.status.success(), "{} alone: {output:?}", program.file());
        let alone = (String::from_utf8_lossy(&output.stdout).into_owned(), since.elapsed().as_secs_f64());
        self.alone.insert((program.path.clone(), scale), alone.clone());
        alone
    }

    fn run(&mut self, name: &str, arguments: &[&str], bound: bool) -> Child {
        self.runs += 1;
        let mut run = self.home.coplace();
        if wanted().is_empty() {
            // A machine that others use too is not to make each barrier long.
            run.env("GOMP_SPINCOUNT", "1000").env("KMP_BLOCKTIME", "0");
        }
        if bound {
            run.env("OMP_PROC_BIND", "true");
        }
        self.home.start(name, run.args(["run", "-q", "--name", name, "--"]).args(arguments))
    }

    fn neighbour(&mut self, resizable: bool, ms: &str) -> Child {
        let name = format!("neighbour-{}", self.runs);
        let path = self.neighbours[usize::from(resizable)].to_str().expect("ASCII").to_owned();
        self.run(&name, &[&path, ms], false)
    }

    fn outcome(&mut self, program: Program, situation: Situation) -> Outcome {
        let scale = Self::scale(&program, situation);
        let (alone, alone_s) = self.alone(&program, scale);
        let mut lasting = Vec::new();
        if situation.neighbours == Neighbours::First {
            lasting.push(self.neighbour(situation.resizable, LONG_MS));
            let name = format!("neighbour-{}", self.runs - 1);
            self.home.until("a neighbour runs", || {
                self.home.app(&name).is_some_and(|app| app["state"] == "running" && !app["team"].is_null())
            });
        }
        let path = program.path.to_str().expect("the checkout's path is text").to_owned();
        let name = format!("subject-{}", self.runs);
        let mut subject = self.run(&name, &[&path, scale], situation.bound);
        let mut outcome = Outcome {
            program,
            situation,
            wrong: None,
            found: None,
            narrowed: false,
            neighbours: lasting.len() as u32,
            alone_s,
            together_s: 0.0,
        };
        let since = Instant::now();
        let ended = self.watch(&mut subject, &name, &mut lasting, &mut outcome);
        outcome.together_s = since.elapsed().as_secs_f64();
        let printed = subject.stdout();
        outcome.wrong = match ended {
            None => Some(format!("has not ended after {MOST:?}")),
            Some(status) if !status.success() => Some(format!("{status}: {}", subject.stderr().trim())),
            Some(_) if printed != alone => Some(format!("{:?}, alone {:?}", printed.trim(), alone.trim())),
            Some(_) => None,
        };
        if ended.is_none() {
            self.home.running(outcome.program.file()).into_iter().for_each(processes::end);
        }
        lasting.iter().for_each(|neighbour| neighbour.signal(libc::SIGTERM));
        self.home.until("everybody has left", || {
            self.home.status().is_some_and(|status| status["apps"].as_array().is_some_and(Vec::is_empty))
        });
        outcome
    }

    /// Until the program ends, notes what is seen of it, and has neighbours come.
    fn watch(
        &mut self,
        subject: &mut Child,
        name: &str,
        neighbours: &mut Vec<Child>,
        outcome: &mut Outcome,
    ) -> Option<std::process::ExitStatus> {
        let since = Instant::now();
        while since.elapsed() < MOST {
            if let Some(status) = subject.has_ended() {
                return Some(status);
            }
            if let Some(app) = self.home.app(name) {
                outcome.narrowed |= app["team"].as_u64().is_some_and(|team| team > 0 && team < self.cpus);
                outcome.found = teams::verdict(&app).or(outcome.found.take());
            }
            let comes = match outcome.situation.neighbours {
                Neighbours::First => false,
                Neighbours::Later => outcome.neighbours == 0 && since.elapsed() > Duration::from_millis(100),
                Neighbours::ComingAndGoing => {
                    outcome.neighbours < COMING
                        && neighbours.last_mut().is_none_or(|last| last.has_ended().is_some())
                }
            };
            if comes {
                let lasting = outcome.situation.neighbours == Neighbours::Later;
                let ms = (20 + outcome.neighbours * 7 % 31).to_string();
                let resizable = outcome.situation.resizable == outcome.neighbours.is_multiple_of(2);
                neighbours.push(self.neighbour(resizable, if lasting { LONG_MS } else { &ms }));
                outcome.neighbours += 1;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

/// Runs what is chosen, once for all tests of this file. Empty, said loudly, where that cannot be.
fn outcomes() -> &'static [Outcome] {
    static OUTCOMES: OnceLock<Vec<Outcome>> = OnceLock::new();
    OUTCOMES.get_or_init(|| {
        if processes::cpu_count() < 2 {
            skipped("programs that use teams in many ways", "there is one CPU only");
            return Vec::new();
        }
        let chosen = chosen();
        let programs: Vec<Program> = chosen.iter().map(|(program, _)| program.clone()).collect();
        teams::built(&programs);
        let neighbours = ["rigid", "resizable"].map(teams::neighbour);
        let cpus = processes::cpu_count() as u64;
        let mut scene = Scene { home: Home::new(), neighbours, cpus, runs: 0, alone: BTreeMap::new() };
        let daemon = scene.home.daemon(&["--policy", "TA", "--unmanaged", "ignore"]);
        let file = fs::File::create(top().join("build/teams/outcomes.jsonl"));
        let mut file = file.expect("build made the directory");
        let mut outcomes = Vec::new();
        for (program, situation) in chosen {
            let outcome = scene.outcome(program, situation);
            writeln!(file, "{}", outcome.json()).expect("build/ can be written");
            outcomes.push(outcome);
        }
        daemon.signal(libc::SIGTERM);
        scene.home.is_left_clean();
        outcomes
    })
}

fn none_of(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{} {what}:\n{}", found.len(), found.join("\n"));
}

#[test]
fn results_beside_neighbours_are_those_alone_bit_for_bit() {
    let wrong = outcomes().iter().filter_map(|outcome| Some((outcome, outcome.wrong.as_ref()?)));
    none_of(
        "ended otherwise than alone",
        wrong.map(|(of, what)| format!("{}: {what}", of.title())).collect(),
    );
}

#[test]
fn each_program_is_found_as_its_header_states() {
    none_of("were misjudged", outcomes().iter().filter_map(Outcome::misjudged).collect());
}

#[test]
fn programs_that_can_be_resized_are_while_neighbours_stay() {
    let wide = outcomes().iter().filter(|outcome| outcome.left_wide()).map(Outcome::title);
    none_of("were never seen with a smaller team", wide.collect());
}

#[test]
fn the_table_of_team_programs_names_each_with_its_marks() {
    let table = fs::read_to_string(top().join("tests/programs/teams/README.md")).expect("it is text");
    let missing = teams::sources().into_iter().filter(|source| {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let marks = teams::comment_value(source, "expect").unwrap_or_default().replace(' ', ", ");
        !table.lines().any(|line| line.contains(&format!("`{name}`")) && line.contains(&marks))
    });
    none_of("are not in README.md so", missing.map(|path| path.display().to_string()).collect());
}
