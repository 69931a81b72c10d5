//! The record of a live node (`engine::trace`) as a workload.
//!
//! | of a program | is |
//! |---|---|
//! | arrival, demand, way of waiting | what the record says, demand and waiting as they were seen last |
//! | speed-up curve | what its region rates, or those of another run of its program, told; else in proportion to its threads. Beyond the widest team that was seen it is level. Of a program that never was seen with a team it is one thread's |
//! | start-up | the time that it was let run before it was first seen with a team, on one CPU |
//! | work | what the recorded plans let it do until it left, with the teams that it was seen with, by its curve and by the model's laws for turns and for threads that outnumber CPUs |
//! | regions | of [`REGION_NS`] on one CPU: assumed |
//! | bandwidth, cache | what the record's evidence says, else none: assumed |
//!
//! So under the recorded policy everybody takes as long as it did, whatever its curve; curves decide what
//! another policy makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use engine::trace::{Entry, ReplayError, entries, whole_lines};
use engine::{Admitted, Recorded};
use plan::{App, Evidence, Known, Plan, Snapshot, Speedup};
use policy::Settings;
use topology::Machine;
use workload::{AppId, Curve, Demand, Job, Malleability, MixError, Profile, Scenario, Waiting};

use crate::domains::Domains;
use crate::model::Laws;
use crate::notebook::{Knowledge, Notebook};
use crate::world::World;

/// How long a parallel region is taken to be on one CPU: the record does not tell.
pub const REGION_NS: u64 = 10_000_000;

/// A recorded workload, and what it was recorded with.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its programs, as jobs with their arrival times.
    pub scenario: Scenario,
    /// What of the machine was allowed.
    pub machine: Machine,
    /// What its policies were made with.
    pub settings: Settings,
    /// What was taken from where, and what is assumed, a line each.
    pub notes: Vec<String>,
}

/// Whether a file is a record, by its name or its beginning; neither TOML nor SWF begins like that.
pub fn is_record(text: &str, path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"))
        || text.trim_start().starts_with('{')
}

impl Record {
    /// `path` is named in errors and not read. `laws` and `waiting` are those of the model in which the
    /// workload will be played.
    pub fn parse(text: &str, path: &Path, laws: &Laws, waiting: Waiting) -> Result<Record, MixError> {
        let tape = Tape::read(text, path)?;
        let curves = tape.curves();
        let machine = tape.begin.machine.only(&tape.begin.allowed);
        let jobs = tape.work(&tape.begin.machine, &curves, laws, waiting);
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("record");
        let notes = tape.notes(&machine, &curves);
        let mut settings = tape.settings;
        // The mechanism's shortest slice stretches what the policy says; a script is its policy's own.
        settings.min_slice_ns = settings.min_slice_ns.max(tape.shortest_slice_ns);
        settings.script = None;
        Ok(Record { scenario: Scenario::new(name, jobs), machine, settings, notes })
    }
}

/// One run of a program, as the record tells it.
struct RecordedRun {
    /// As it was described last.
    app: App,
    line: usize,
    arrived_ns: u64,
    /// It was there when the recording began.
    before: bool,
    /// It was described with a team when it arrived.
    begun: bool,
    /// Widest team, 0: none was seen.
    widest: u32,
    left: bool,
}

/// What happened to the programs, by their numbers.
enum Happened {
    Arrived(usize),
    Team(usize, u32),
    Left(usize),
    Plan(Plan),
}

struct Tape {
    begin: Snapshot,
    policies: Vec<String>,
    settings: Settings,
    shortest_slice_ns: u64,
    runs: Vec<RecordedRun>,
    /// Programs that came and were not admitted yet.
    held: BTreeMap<AppId, App>,
    happened: Vec<(u64, Happened)>,
    suspensions: usize,
    /// Not all that was allowed was usable all the time.
    unsteady: bool,
}

/// What programs of each name told of their curve, and the widest team of any.
type Curves = BTreeMap<String, (Option<Speedup>, u32)>;

impl Tape {
    fn read(text: &str, path: &Path) -> Result<Tape, MixError> {
        let error = |line: Option<usize>, what: String| {
            let position = line.map(|line| (line, 1));
            MixError { path: path.to_owned(), position, key: None, what }
        };
        let mut tape: Option<Tape> = None;
        let mut present: BTreeMap<AppId, usize> = BTreeMap::new();
        for entry in entries(whole_lines(text)) {
            let (line, entry) = entry.map_err(|wrong| match wrong {
                ReplayError::Line { line, why } => {
                    error(Some(line), format!("is no line of a record: {why}"))
                }
                ReplayError::NoBeginning { line } => error(Some(line), "there is no beginning".to_owned()),
            })?;
            let Some(tape) = &mut tape else {
                let Entry::Begin { snapshot, policy, settings, limits, plan, .. } = entry else {
                    let what = "stands before the beginning; the first line of a record must be a 'begin'";
                    return Err(error(Some(line), what.to_owned()));
                };
                let mut begun = Tape {
                    policies: vec![policy],
                    settings: *settings,
                    shortest_slice_ns: limits.shortest_slice_ns,
                    runs: Vec::new(),
                    held: BTreeMap::new(),
                    happened: Vec::new(),
                    suspensions: 0,
                    unsteady: snapshot.usable != snapshot.allowed,
                    begin: snapshot,
                };
                let now_ns = begun.begin.now_ns;
                for app in begun.begin.apps.clone() {
                    begun.arrives(now_ns, app, line, true, &mut present);
                }
                let plan = plan.parse::<Plan>().map_err(|why| error(Some(line), why.to_string()))?;
                begun.happened.push((now_ns, Happened::Plan(plan)));
                tape = Some(begun);
                continue;
            };
            match entry {
                Entry::Begin { .. } => {
                    let what = "a second beginning: cut the file there, and simulate each record by itself";
                    return Err(error(Some(line), what.to_owned()));
                }
                Entry::Event { now_ns, event } => tape.apply(now_ns, event, line, &mut present),
                Entry::Plan { now_ns, plan, starts, usable } => {
                    tape.unsteady |= usable.is_some_and(|usable| usable != tape.begin.allowed);
                    for admitted in &starts.admitted {
                        tape.admits(now_ns, admitted, line, &mut present);
                    }
                    let plan = plan.parse::<Plan>().map_err(|why| error(Some(line), why.to_string()))?;
                    tape.happened.push((now_ns, Happened::Plan(plan)));
                }
                Entry::Settings(_) | Entry::Rejected { .. } => {}
            }
        }
        let tape = tape.ok_or_else(|| error(None, "there is no line in it".to_owned()))?;
        if tape.runs.is_empty() {
            return Err(error(None, "no program arrives in it".to_owned()));
        }
        Ok(tape)
    }

    fn apply(&mut self, now_ns: u64, event: Recorded, line: usize, present: &mut BTreeMap<AppId, usize>) {
        match event {
            Recorded::Arrived(app) if !present.contains_key(&app.id) => {
                self.arrives(now_ns, app, line, false, present);
            }
            // One that is there already is described anew.
            Recorded::Arrived(app) | Recorded::Observed(app) => {
                if let Some(&at) = present.get(&app.id) {
                    self.note_state(now_ns, at, app);
                }
            }
            Recorded::Within { app, within } => {
                if let Some(&at) = present.get(&app) {
                    self.runs[at].app.within = within;
                }
            }
            Recorded::Left(id) => {
                self.held.remove(&id);
                if let Some(at) = present.remove(&id) {
                    self.runs[at].left = true;
                    self.happened.push((now_ns, Happened::Left(at)));
                }
            }
            Recorded::Suspend(_) => self.suspensions += 1,
            // It arrives once it is admitted.
            Recorded::Came(arrival) => drop(self.held.insert(arrival.app.id.clone(), arrival.app)),
            Recorded::Allowance(allowance) => self.unsteady |= allowance.allowed != self.begin.allowed,
            Recorded::Machine { allowed, usable } => {
                self.unsteady |= allowed != usable || allowed != self.begin.allowed;
            }
            Recorded::Policy(letters) => self.policies.push(letters),
            Recorded::Resume(_) | Recorded::Load { .. } | Recorded::Memory(_) | Recorded::Wake => {}
        }
    }

    fn admits(
        &mut self,
        now_ns: u64,
        admitted: &Admitted,
        line: usize,
        present: &mut BTreeMap<AppId, usize>,
    ) {
        if let Some(mut app) = self.held.remove(&admitted.app) {
            admitted.apply(&mut app);
            self.arrives(now_ns, app, line, false, present);
        }
    }

    fn arrives(
        &mut self,
        now_ns: u64,
        app: App,
        line: usize,
        before: bool,
        present: &mut BTreeMap<AppId, usize>,
    ) {
        let at = self.runs.len();
        present.insert(app.id.clone(), at);
        let arrived_ns = if before { now_ns } else { app.arrived_ns.min(now_ns) };
        let begun = app.team.is_some() || app.demand.malleability == Malleability::Rigid;
        self.runs.push(RecordedRun {
            line,
            arrived_ns,
            before,
            begun,
            widest: 0,
            left: false,
            app: app.clone(),
        });
        self.happened.push((now_ns, Happened::Arrived(at)));
        self.note_state(now_ns, at, app);
    }

    fn note_state(&mut self, now_ns: u64, at: usize, app: App) {
        let run = &mut self.runs[at];
        if let Some(team) = app.team.filter(|&team| team > 0) {
            run.widest = run.widest.max(team);
            self.happened.push((now_ns, Happened::Team(at, team)));
        }
        // What was learned of it is not unlearned.
        let speedup = app.speedup.clone().or(run.app.speedup.take());
        run.app = App { speedup, ..app };
    }

    fn curves(&self) -> Curves {
        let mut curves = Curves::new();
        for run in &self.runs {
            let (speedup, widest) = curves.entry(run.app.program().to_owned()).or_default();
            *widest = run.widest.max(*widest);
            // The last that was told knows most.
            if run.app.speedup.is_some() {
                speedup.clone_from(&run.app.speedup);
            }
        }
        curves
    }

    /// The jobs, with the work that the recorded plans let them do.
    fn work(&self, machine: &Machine, curves: &Curves, laws: &Laws, waiting: Waiting) -> Vec<Job> {
        let end_ns = self.happened.iter().map(|(now_ns, _)| *now_ns).max().unwrap_or(0).max(1);
        // Nobody gets to its end in here.
        let endless_ns = end_ns.saturating_mul(machine.pu_count() as u64 + 1).saturating_mul(4);
        let endless = |run: &RecordedRun| Job {
            id: run.app.id.clone(),
            arrive_ns: run.arrived_ns,
            profile: run.profile(curves, endless_ns, if run.starts() { endless_ns } else { 0 }).into(),
            demand: run.demand(),
            line: Some(run.line),
        };
        let jobs = self.runs.iter().map(endless).collect();
        let endless = Scenario { name: String::new(), jobs, skipped: 0 };
        let notebook = Notebook::new(Knowledge::None, std::iter::empty(), &Domains::of(machine), laws);
        let mut world = World::new(&endless, laws, Domains::of(machine), waiting, notebook);
        let mut done = vec![(0.0, 0.0); self.runs.len()];
        let mut did = |world: &mut World, at: usize| {
            let (start_ns, part): (f64, f64) = world.did(at);
            done[at].0 += start_ns;
            done[at].1 += part;
        };
        for (now_ns, happened) in &self.happened {
            world.passes(*now_ns);
            match happened {
                Happened::Arrived(at) => world.arrives(*at),
                Happened::Team(at, team) => {
                    if world.is_starting(*at) {
                        did(&mut world, *at);
                    }
                    world.set_observed_team(*at, *team);
                }
                Happened::Left(at) => {
                    did(&mut world, *at);
                    world.left(*at);
                }
                Happened::Plan(plan) => world.stands_by(plan),
            }
        }
        let unfinished = self.runs.iter().enumerate().filter(|(_, run)| !run.left);
        unfinished.for_each(|(at, _)| did(&mut world, at));
        let first_ns = self.runs.iter().map(|run| run.arrived_ns).min().unwrap_or(0);
        let mut names: BTreeSet<AppId> = BTreeSet::new();
        let job = |(run, (start_ns, part)): (&RecordedRun, (f64, f64))| {
            // One that left may come again under its name; jobs have names of their own.
            let numbered = (2..).map(|number| run.app.id.numbered(number));
            let id = std::iter::once(run.app.id.clone()).chain(numbered).find(|id| !names.contains(id));
            let id = id.expect("there are more numbers than jobs");
            names.insert(id.clone());
            let work_ns = ((part * endless_ns as f64) as u64).max(1);
            let profile = run.profile(curves, work_ns, start_ns as u64).into();
            let (arrive_ns, line) = (run.arrived_ns - first_ns, Some(run.line));
            Job { id, arrive_ns, profile, demand: run.demand(), line }
        };
        self.runs.iter().zip(done).map(job).collect()
    }

    fn notes(&self, machine: &Machine, curves: &Curves) -> Vec<String> {
        let count = |which: &dyn Fn(&RecordedRun) -> bool| self.runs.iter().filter(|run| which(run)).count();
        let has_curve =
            |run: &RecordedRun| curves.get(run.app.program()).is_some_and(|(speedup, _)| speedup.is_some());
        let serial = count(&|run| run.widest == 0);
        let by_rates = count(&|run| run.widest > 0 && has_curve(run));
        let mut notes = vec![
            format!(
                "a record of {} programs under {} on {} ({} CPUs): arrivals, demands and the policies' settings are \
                 the record's",
                self.runs.len(),
                self.policies.join(", then "),
                machine.name,
                machine.pu_count()
            ),
            format!(
                "the work of each is what its recorded places let it do until it left, with a speed-up by its region \
                 rates ({by_rates}), in proportion to its threads up to its widest team ({}), or of one thread, \
                 without a team ({serial})",
                self.runs.len() - serial - by_rates
            ),
            format!(
                "assumed: regions of {} ms on one CPU, nothing about memory and caches but what the record knows",
                REGION_NS / 1_000_000
            ),
        ];
        let mut odd = |count: usize, what: &str| {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        };
        odd(count(&|run| run.before), "had come before the recording began: they arrive with it");
        odd(count(&|run| !run.left), "had not left when the recording ended: their work ends there");
        odd(count(&|run| run.app.within.is_some()), "had to stay on some CPUs, and may use all here");
        odd(self.suspensions, "times somebody suspended a program; nobody does here");
        if self.unsteady {
            notes.push("not all allowed CPUs were usable all the time, and here they are".to_owned());
        }
        notes
    }
}

impl RecordedRun {
    /// Whether it is first seen with a team some time after its arrival.
    fn starts(&self) -> bool {
        !self.begun && self.widest > 0
    }

    fn demand(&self) -> Demand {
        let demand = self.app.demand.clone();
        match demand.malleability {
            // As wide as it was seen, where nobody says how wide it is.
            Malleability::Rigid => {
                let width = demand.max_threads.unwrap_or(self.widest.max(demand.min_threads));
                Demand { max_threads: Some(width), ..demand }
            }
            _ => demand,
        }
    }

    fn profile(&self, curves: &Curves, work_ns: u64, start_ns: u64) -> Profile {
        let name = self.app.program();
        let milli = |known: Option<Known>, most: f64| {
            known.map_or(0.0, |known| (known.value as f64 / 1000.0).clamp(0.0, most))
        };
        let Evidence { bandwidth_milli, cache_milli, .. } = self.app.evidence;
        Profile {
            may_slow_down: true,
            regions: (work_ns / REGION_NS).max(1),
            waiting: self.app.waits_passively.then_some(Waiting::Passive),
            start_ns,
            bandwidth: milli(bandwidth_milli, 1.0),
            cache: milli(cache_milli, 100.0),
            ..Profile::plain(name, work_ns, self.curve(curves.get(name)))
        }
    }

    fn curve(&self, known: Option<&(Option<Speedup>, u32)>) -> Curve {
        match known {
            Some((Some(speedup), _)) if self.widest > 0 => {
                let points = BTreeMap::from(speedup.clone()).into_iter().filter(|(threads, _)| *threads > 1);
                Curve::Table(points.map(|(threads, milli)| (threads, f64::from(milli) / 1000.0)).collect())
            }
            Some((None, widest)) if self.widest > 0 && *widest > 1 => {
                Curve::Table(vec![(*widest, f64::from(*widest))])
            }
            _ => Curve::Table(Vec::new()),
        }
    }
}
