//! The modelled machine and the programs on it: carries plans out, and says how fast everybody is.
//!
//! A program's work is a fraction that falls from 1 to 0 at a rate that is constant between two
//! changes. A change (of a plan, of a team, of where memory lies) makes new rates only for the programs
//! whose standing changed, those that share a mixture with one, and those that feel contention in a
//! domain that one stands in.

mod follow;
mod phases;
mod speed;

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use engine::Actuator;
use plan::{App, AppChange, Change, Plan};
use topology::CpuSet;
use workload::{AppId, Malleability, NameHasher, Profile, Scenario, Waiting};

use crate::domains::Domains;
use crate::laws::memory::Pages;
use crate::laws::{regions, start, waiting};
use crate::model::Laws;
use crate::neighbours::{Neighbours, Stale};
use crate::notebook::{self, Notebook};
use crate::queue::{Kind, Queue};
use crate::standing::{Leaf, NONE, for_each_leaf};
use crate::world::phases::Phases;

/// How far a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Absent,
    /// Not begun, or still before its first region.
    Starting,
    Running,
    Ended,
}

/// One program of the scenario.
pub struct Program {
    /// As it is in the present phase of its work.
    pub profile: Arc<Profile>,
    phases: Option<Phases>,
    /// Phases of its work that are over.
    phases_done: usize,
    /// As the engine knows it.
    pub app: App,
    pub phase: Phase,
    /// Of the phase: nanoseconds of start-up, or the fraction of the work.
    left: f64,
    /// How fast `left` falls, a nanosecond.
    rate: f64,
    since_ns: u64,
    pub team: u32,
    wanted: u32,
    pub leaves: Vec<Leaf>,
    /// Whether it feels or causes contention.
    pub contends: bool,
    /// CPUs that it uses, with threads that work or spin.
    cpus_used: f64,
    pages: Pages,
    waiting: Waiting,
    /// Its runs seen so far, while a plan is gone through.
    placed: usize,
    /// Its leaves are others than before the plan that is being carried out.
    stirred: bool,
    pub first_ran_ns: Option<u64>,
    pub cpu_ns: f64,
    pub reconfigurations: u32,
    pub moves: u32,
    pub domain_moves: u32,
}

/// The machine with everything on it.
pub struct World {
    laws: Laws,
    domains: Domains,
    pub programs: Vec<Program>,
    /// Those that are there, in order: a long workload has many more.
    present: Vec<usize>,
    /// Of those that are present, which is all that plans name.
    index: HashMap<AppId, usize, BuildHasherDefault<NameHasher>>,
    neighbours: Neighbours,
    /// Those of the plan before: memory for those of the next.
    spare: Neighbours,
    /// CPUs of a leaf by domain with what they are slowed down by: room to work one out in.
    parts: Vec<(f64, f64)>,
    queue: Queue,
    pub now_ns: u64,
    notebook: Notebook,
    /// Whose rate must be worked out again.
    stale: Stale,
}

impl World {
    pub fn new(
        scenario: &Scenario,
        laws: &Laws,
        domains: Domains,
        runtime: Waiting,
        notebook: Notebook,
    ) -> World {
        let cores = domains.share_cores() && scenario.jobs.iter().any(|job| job.profile.core_share < 1.0);
        let program = |job: &workload::Job| {
            let how = waiting::of(&job.profile, runtime);
            let mut app = App::new(job.id.clone(), job.arrive_ns);
            app.program = Some(job.profile.name.clone());
            app.demand = job.demand.clone();
            app.waits_passively = how == Waiting::Passive;
            if job.demand.malleability == Malleability::Rigid {
                app.team = Some(job.needs());
            }
            let phases = Phases::of(&job.profile);
            let first = phases.as_ref().map_or(&job.profile, |phases| phases.profile(0));
            Program {
                profile: Arc::clone(first),
                phases_done: 0,
                app,
                phase: Phase::Absent,
                left: start::ns(&job.profile, laws),
                rate: 0.0,
                since_ns: 0,
                team: 1,
                wanted: 1,
                leaves: Vec::new(),
                contends: cores
                    || job.profile.bandwidth > 0.0
                    || job.profile.cache > 0.0
                    || job.profile.memory_bytes > 0
                    || phases.as_ref().is_some_and(Phases::contend),
                phases,
                cpus_used: 0.0,
                pages: Pages::default(),
                waiting: how,
                placed: 0,
                stirred: false,
                first_ran_ns: None,
                cpu_ns: 0.0,
                reconfigurations: 0,
                moves: 0,
                domain_moves: 0,
            }
        };
        World {
            laws: laws.clone(),
            neighbours: Neighbours::default(),
            spare: Neighbours::default(),
            domains,
            programs: scenario.jobs.iter().map(program).collect(),
            present: Vec::new(),
            index: HashMap::default(),
            parts: Vec::new(),
            queue: Queue::default(),
            now_ns: 0,
            notebook,
            stale: Stale::of(scenario.jobs.len()),
        }
    }

    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// It is there from now on.
    pub fn arrives(&mut self, at: usize) {
        self.programs[at].phase = Phase::Starting;
        let before = self.present.partition_point(|&other| other < at);
        self.present.insert(before, at);
        self.index.insert(self.programs[at].app.id.clone(), at);
    }

    /// When something happens by itself next.
    pub fn next_ns(&self) -> Option<u64> {
        self.queue.next_ns()
    }

    /// The next program to which something happens now, and what.
    pub fn happens(&mut self) -> Option<(usize, Kind)> {
        self.queue.pop(self.now_ns)
    }

    /// Threads that run or would if they had a CPU.
    pub fn runnable(&self) -> u64 {
        let runs = |program: &&Program| !program.leaves.is_empty() && program.rate > 0.0;
        self.present().filter(runs).map(|program| u64::from(program.team)).sum()
    }

    /// Whether anybody gets on.
    pub fn anybody_runs(&self) -> bool {
        self.present().any(|program| program.rate > 0.0)
    }

    fn present(&self) -> impl Iterator<Item = &Program> {
        self.present.iter().map(|&at| &self.programs[at])
    }

    /// What it does now is done: its start-up, or everything. Whether it has ended.
    pub fn ends(&mut self, at: usize) -> bool {
        self.catch_up(at);
        let program = &mut self.programs[at];
        if program.phase == Phase::Starting {
            program.phase = Phase::Running;
            program.left = 1.0;
            program.team = program.wanted.max(1);
            program.app.team = Some(program.team);
            self.disturbed(at);
            return false;
        }
        self.notebook.ended(&program.profile);
        self.leaves(at);
        true
    }

    /// How much of its work it has done.
    pub fn done(&mut self, at: usize) -> f64 {
        match self.programs[at].phase {
            Phase::Absent | Phase::Starting => 0.0,
            Phase::Running => {
                self.catch_up(at);
                1.0 - self.programs[at].left
            }
            Phase::Ended => 1.0,
        }
    }

    /// It is there no more.
    fn leaves(&mut self, at: usize) {
        let program = &mut self.programs[at];
        program.phase = Phase::Ended;
        (program.left, program.rate, program.cpus_used) = (0.0, 0.0, 0.0);
        self.present.retain(|&other| other != at);
        self.queue.foresee(at, None);
    }

    /// Another phase of its work begins.
    pub fn next_phase(&mut self, at: usize) {
        self.catch_up(at);
        let program = &mut self.programs[at];
        program.phases_done += 1;
        if let Some(phases) = &program.phases {
            program.profile = Arc::clone(phases.profile(program.phases_done));
        }
        self.disturbed(at);
    }

    /// A region begins with another team.
    pub fn apply_team(&mut self, at: usize) {
        self.catch_up(at);
        let program = &mut self.programs[at];
        program.team = program.wanted;
        program.app.team = Some(program.team);
        program.reconfigurations += 1;
        self.disturbed(at);
    }

    /// Its memory is where its threads are.
    pub fn migrated(&mut self, at: usize) {
        self.stale.mark(at);
    }

    /// The team of a program is another, or another begins: whoever shares something with it feels it.
    fn disturbed(&mut self, at: usize) {
        self.stale.mark(at);
        for leaf in &self.programs[at].leaves {
            if leaf.around.mixture != NONE {
                self.stale.mark_mixture(leaf.around.mixture as usize, &self.neighbours);
            }
            for &(domain, _) in &leaf.domains {
                self.stale.mark_domain(domain as usize, &self.neighbours);
            }
        }
    }

    /// Programs of which something else is known than before.
    pub fn evidence(&mut self) -> Vec<App> {
        let mut news = Vec::new();
        if !self.notebook.is_used() {
            return news;
        }
        for number in 0..self.present.len() {
            let at = self.present[number];
            let left = match self.programs[at].phase {
                Phase::Absent | Phase::Ended => continue,
                Phase::Starting => 1.0,
                Phase::Running => {
                    self.catch_up(at);
                    self.programs[at].left
                }
            };
            let (speedup, mut evidence) = self.notebook.recall(&self.programs[at].profile, left);
            if self.notebook.learns() {
                evidence.loads_per_s = self.loads(&self.programs[at]).map(notebook::counted_loads);
            }
            let app = &mut self.programs[at].app;
            if (&app.speedup, &app.evidence) != (&speedup, &evidence) {
                (app.speedup, app.evidence) = (speedup, evidence);
                news.push(app.clone());
            }
        }
        news
    }

    /// Brings what a program has done up to now.
    fn catch_up(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let program = &mut self.programs[at];
        let passed_ns = (now_ns - program.since_ns) as f64;
        if self.notebook.learns()
            && let (Phase::Running, [leaf]) = (program.phase, &program.leaves[..])
            && (leaf.cpus, leaf.around.mixture, leaf.around.slice_ns) == (program.team, NONE, 0)
        {
            let part = program.rate * passed_ns;
            self.notebook.observe_rate(&program.profile, &leaf.domains, &self.domains, passed_ns, part);
        }
        program.left = (program.left - program.rate * passed_ns).max(0.0);
        program.cpu_ns += program.cpus_used * passed_ns;
        program.since_ns = now_ns;
    }

    /// New rates, and what follows from them, for everybody to whom something was done.
    pub fn settle(&mut self) {
        let mut stale = std::mem::take(&mut self.stale.programs);
        let mut parts = std::mem::take(&mut self.parts);
        stale.sort_unstable();
        // It is the same for all who stand on the same CPUs of one mixture, as everybody does where nothing is controlled.
        let mut last: Option<(u32, CpuSet, f64)> = None;
        for &at in &stale {
            for number in 0..self.programs[at].leaves.len() {
                let leaf = &self.programs[at].leaves[number];
                let mixture = leaf.around.mixture;
                let known = last.as_ref().filter(|(same, place, _)| *same == mixture && *place == leaf.place);
                let crowd = known.map_or_else(|| self.crowd(leaf), |&(_, _, crowd)| crowd);
                if known.is_none() {
                    last = Some((mixture, leaf.place.clone(), crowd));
                }
                self.programs[at].leaves[number].crowd = crowd;
            }
        }
        for &at in &stale {
            self.stale.is_stale[at] = false;
            if matches!(self.programs[at].phase, Phase::Starting | Phase::Running) {
                self.catch_up(at);
                let (rate, cpus_used) = self.rate(at, &mut parts);
                let program = &mut self.programs[at];
                (program.rate, program.cpus_used) = (rate, cpus_used);
                if program.first_ran_ns.is_none() && rate > 0.0 {
                    program.first_ran_ns = Some(self.now_ns);
                }
                self.foresee(at);
            }
        }
        stale.clear();
        self.stale.programs = stale;
        self.stale.neighbours_change();
        self.parts = parts;
    }

    fn foresee(&mut self, at: usize) {
        let program = &self.programs[at];
        let after = |work: f64| self.now_ns.saturating_add((work / program.rate).ceil() as u64);
        let mut next: Option<(u64, Kind)> = None;
        let mut maybe = |at_ns: u64, kind: Kind| {
            if next.is_none_or(|(sooner, _)| at_ns < sooner) {
                next = Some((at_ns, kind));
            }
        };
        if program.rate > 0.0 {
            maybe(after(program.left), Kind::End);
            let phases = program.phases.as_ref().filter(|_| program.phase == Phase::Running);
            if let Some(then_left) = phases.and_then(|phases| phases.left_after(program.phases_done)) {
                maybe(after(program.left - then_left), Kind::PhaseChange);
            }
            let pending = program.phase == Phase::Running && program.wanted != program.team;
            if pending && program.app.accepts_width() {
                maybe(after(regions::until_next(program.profile.regions, program.left)), Kind::TeamChange);
            }
        }
        if let Some(ends_ns) = program.pages.ends_ns(self.now_ns) {
            maybe(ends_ns, Kind::Migrated);
        }
        self.queue.foresee(at, next);
    }

    /// Brings the leaves of every program that is `wanted`, and the lists of who stands where, up to
    /// the plan. Whose leaves are others now comes to the `changed`.
    fn place(&mut self, plan: &Plan, wanted: impl Fn(&AppId) -> bool, changed: &mut Vec<usize>) {
        let mut neighbours = std::mem::take(&mut self.spare);
        neighbours.clear(self.domains.count());
        let mut visited: Vec<usize> = Vec::new();
        for_each_leaf(plan, |run, around| {
            let Some(&at) = self.index.get(&run.app) else { return };
            let number = self.programs[at].placed;
            if number == 0 {
                visited.push(at);
            }
            self.programs[at].placed += 1;
            let known = self.programs[at].leaves.get(number);
            let same_place = known.is_some_and(|leaf| leaf.place == run.place);
            if wanted(&run.app) && !(same_place && known.is_some_and(|leaf| leaf.around == around)) {
                self.leaves_change(at, changed);
                let leaves = &mut self.programs[at].leaves;
                if same_place {
                    leaves[number].around = around;
                } else {
                    leaves.truncate(number);
                    leaves.push(Leaf::new(run, around, &self.domains));
                }
            }
            neighbours.add(at, number, &self.programs[at]);
        });
        for at in visited {
            let placed = std::mem::take(&mut self.programs[at].placed);
            self.shorten(at, placed, changed);
        }
        self.spare = std::mem::replace(&mut self.neighbours, neighbours);
        self.stale.neighbours_change();
    }

    /// A program has no more than its first leaves left.
    fn shorten(&mut self, at: usize, count: usize, changed: &mut Vec<usize>) {
        if self.programs[at].leaves.len() > count {
            self.leaves_change(at, changed);
            self.programs[at].leaves.truncate(count);
        }
    }

    /// Leaves of a program are about to change: whoever is beside it where it stands feels that it goes.
    fn leaves_change(&mut self, at: usize, changed: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.programs[at].stirred, true) {
            self.disturbed(at);
            changed.push(at);
        }
    }

    /// A program stands elsewhere: where its threads are, by domain.
    fn stands(&mut self, at: usize) {
        // Without memory it leaves nothing behind.
        if self.programs[at].profile.memory_bytes == 0 {
            return;
        }
        let mut shares = vec![0.0; self.domains.count()];
        let program = &mut self.programs[at];
        let mut sum = 0.0;
        for leaf in &program.leaves {
            for &(domain, count) in &leaf.domains {
                shares[domain as usize] += leaf.share() * f64::from(count);
                sum += leaf.share() * f64::from(count);
            }
        }
        if sum > 0.0 {
            shares.iter_mut().for_each(|share| *share /= sum);
            program.pages.threads_stand(&shares, &program.profile, &self.laws, self.now_ns);
        }
    }
}

impl Actuator for World {
    type Error = Infallible;

    fn carry_out(&mut self, plan: &Plan, change: &Change) -> Result<(), Infallible> {
        let mut changed: Vec<usize> = Vec::new();
        for (app, steps) in &change.apps {
            let Some(&at) = self.index.get(app) else { continue };
            for step in steps {
                match step {
                    AppChange::Moved { from, to } => {
                        let lost = !from.is_subset(to) && !to.is_subset(from);
                        self.programs[at].moves += u32::from(lost);
                        let (old, new) = (self.domains.counts(from), self.domains.counts(to));
                        let left = old.iter().any(|(domain, _)| new.iter().all(|(other, _)| other != domain));
                        let entered =
                            new.iter().any(|(domain, _)| old.iter().all(|(other, _)| other != domain));
                        self.programs[at].domain_moves += u32::from(left && entered);
                    }
                    AppChange::Resized { to, .. } => self.programs[at].wanted = *to,
                    AppChange::Started(to) | AppChange::Admitted(to) | AppChange::Resumed(to) => {
                        self.programs[at].wanted = to.threads;
                    }
                    AppChange::Gone | AppChange::Waits | AppChange::Suspended => {
                        self.shorten(at, 0, &mut changed);
                        if *step == AppChange::Gone {
                            self.index.remove(app);
                        }
                    }
                    AppChange::Manner { .. } => {}
                }
            }
            changed.push(at);
        }
        let everybody = change.turns || change.mixing;
        self.place(plan, |app| everybody || change.apps.contains_key(app), &mut changed);
        // Who is in there twice has been seen to by the first.
        for at in changed {
            self.programs[at].stirred = false;
            self.stands(at);
            self.disturbed(at);
        }
        Ok(())
    }
}
