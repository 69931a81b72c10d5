//! The modelled machine and the programs on it: carries plans out, and says how fast everybody is.
//!
//! A program's work is a fraction that falls from 1 to 0 at a rate that is constant between two
//! changes. A change (of a plan, of a team, of where memory lies) makes new rates only for the programs
//! whose standing changed, those that share a mixture with one, and those that feel contention in a
//! domain that one stands in.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use engine::Actuator;
use plan::{App, AppChange, Change, Plan};
use workload::{AppId, Malleability, Profile, Scenario, Waiting};

use crate::domains::Domains;
use crate::laws::contention::{self, Demand};
use crate::laws::memory::Pages;
use crate::laws::{place, regions, start, turns, waiting};
use crate::model::Laws;
use crate::notebook::Notebook;
use crate::queue::{Kind, Queue};
use crate::standing::{Leaf, NONE, leaves};

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
    pub profile: Arc<Profile>,
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
    leaves: Vec<Leaf>,
    /// Threads on each CPU of each leaf's place, its own and others'; 1 outside of mixtures.
    crowds: Vec<f64>,
    /// CPUs that it uses, with threads that work or spin.
    cpus_used: f64,
    pages: Pages,
    generation: u32,
    waiting: Waiting,
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
    index: HashMap<AppId, usize>,
    /// Who stands in each domain and feels or causes contention there: program and leaf.
    occupants: Vec<Vec<(usize, usize)>>,
    /// Who stands in each mixture.
    mixtures: Vec<Vec<(usize, usize)>>,
    queue: Queue,
    pub now_ns: u64,
    notebook: Notebook,
    /// Whose rate must be worked out again.
    stale: Vec<usize>,
    is_stale: Vec<bool>,
}

impl World {
    pub fn new(
        scenario: &Scenario,
        laws: &Laws,
        domains: Domains,
        runtime: Waiting,
        notebook: Notebook,
    ) -> World {
        let program = |job: &workload::Job| {
            let how = waiting::of(&job.profile, runtime);
            let mut app = App::new(job.id.clone(), job.arrive_ns);
            app.demand = job.demand.clone();
            app.waits_passively = how == Waiting::Passive;
            if job.demand.malleability == Malleability::Rigid {
                app.team = Some(job.needs());
            }
            Program {
                profile: Arc::clone(&job.profile),
                app,
                phase: Phase::Absent,
                left: start::ns(&job.profile, laws),
                rate: 0.0,
                since_ns: 0,
                team: 1,
                wanted: 1,
                leaves: Vec::new(),
                crowds: Vec::new(),
                cpus_used: 0.0,
                pages: Pages::default(),
                generation: 0,
                waiting: how,
                first_ran_ns: None,
                cpu_ns: 0.0,
                reconfigurations: 0,
                moves: 0,
                domain_moves: 0,
            }
        };
        World {
            laws: laws.clone(),
            occupants: vec![Vec::new(); domains.count()],
            domains,
            programs: scenario.jobs.iter().map(program).collect(),
            index: scenario.jobs.iter().enumerate().map(|(at, job)| (job.id.clone(), at)).collect(),
            mixtures: Vec::new(),
            queue: Queue::default(),
            now_ns: 0,
            notebook,
            stale: Vec::new(),
            is_stale: vec![false; scenario.jobs.len()],
        }
    }

    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// When something happens by itself next.
    pub fn next_ns(&mut self) -> Option<u64> {
        let programs = &self.programs;
        self.queue.next_ns(|program, generation| programs[program].generation == generation)
    }

    /// The next program to which something happens now, and what.
    pub fn happens(&mut self) -> Option<(usize, Kind)> {
        let programs = &self.programs;
        self.queue.pop(self.now_ns, |program, generation| programs[program].generation == generation)
    }

    /// Threads that run or would if they had a CPU.
    pub fn runnable(&self) -> u64 {
        let runs = |program: &&Program| !program.leaves.is_empty() && program.rate > 0.0;
        self.programs.iter().filter(runs).map(|program| u64::from(program.team)).sum()
    }

    /// Whether anybody gets on.
    pub fn anybody_runs(&self) -> bool {
        self.programs.iter().any(|program| program.rate > 0.0)
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
        program.phase = Phase::Ended;
        (program.left, program.rate, program.cpus_used) = (0.0, 0.0, 0.0);
        program.generation += 1;
        true
    }

    /// A region begins with another team.
    pub fn takes_up(&mut self, at: usize) {
        self.catch_up(at);
        let program = &mut self.programs[at];
        program.team = program.wanted;
        program.app.team = Some(program.team);
        program.reconfigurations += 1;
        self.disturbed(at);
    }

    /// Its memory is where its threads are.
    pub fn migrated(&mut self, at: usize) {
        self.mark(at);
    }

    /// The team of a program is another, or another begins: whoever shares something with it feels it.
    fn disturbed(&mut self, at: usize) {
        self.mark(at);
        for leaf in 0..self.programs[at].leaves.len() {
            let leaf = &self.programs[at].leaves[leaf];
            let (mixture, domains) = (leaf.mixture, leaf.domains.clone());
            if mixture != NONE {
                self.mark_all(&self.mixtures[mixture as usize].clone());
            }
            for (domain, _) in domains {
                self.mark_all(&self.occupants[domain as usize].clone());
            }
        }
    }

    fn mark_all(&mut self, who: &[(usize, usize)]) {
        who.iter().for_each(|&(at, _)| self.mark(at));
    }

    fn mark(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_stale[at], true) {
            self.stale.push(at);
        }
    }

    /// Programs of which something else is known than before.
    pub fn evidence(&mut self) -> Vec<App> {
        let mut news = Vec::new();
        if !self.notebook.is_used() {
            return news;
        }
        for at in 0..self.programs.len() {
            let left = match self.programs[at].phase {
                Phase::Absent | Phase::Ended => continue,
                Phase::Starting => 1.0,
                Phase::Running => {
                    self.catch_up(at);
                    self.programs[at].left
                }
            };
            let (speedup, evidence) = self.notebook.tells(&self.programs[at].profile, left);
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
        if let (Phase::Running, [leaf]) = (program.phase, &program.leaves[..])
            && (leaf.cpus, leaf.mixture, leaf.slice_ns) == (program.team, NONE, 0)
        {
            let part = program.rate * passed_ns;
            self.notebook.saw(&program.profile, &leaf.domains, &self.domains, passed_ns, part);
        }
        program.left = (program.left - program.rate * passed_ns).max(0.0);
        program.cpu_ns += program.cpus_used * passed_ns;
        program.since_ns = now_ns;
    }

    /// New rates, and what follows from them, for everybody to whom something was done.
    pub fn settle(&mut self) {
        let mut stale = std::mem::take(&mut self.stale);
        stale.sort_unstable();
        for &at in &stale {
            self.programs[at].crowds = self.programs[at].leaves.iter().map(|leaf| self.crowd(leaf)).collect();
        }
        for &at in &stale {
            self.is_stale[at] = false;
            if matches!(self.programs[at].phase, Phase::Starting | Phase::Running) {
                self.catch_up(at);
                let (rate, cpus_used) = self.rate(at);
                let program = &mut self.programs[at];
                (program.rate, program.cpus_used) = (rate, cpus_used);
                if program.first_ran_ns.is_none() && rate > 0.0 {
                    program.first_ran_ns = Some(self.now_ns);
                }
                self.foresee(at);
            }
        }
        stale.clear();
        self.stale = stale;
    }

    fn foresee(&mut self, at: usize) {
        let program = &mut self.programs[at];
        program.generation += 1;
        let after = |work: f64| self.now_ns.saturating_add((work / program.rate).ceil() as u64);
        let mut next: Option<(u64, Kind)> = None;
        let mut maybe = |at_ns: u64, kind: Kind| {
            if next.is_none_or(|(sooner, _)| at_ns < sooner) {
                next = Some((at_ns, kind));
            }
        };
        if program.rate > 0.0 {
            maybe(after(program.left), Kind::End);
            let pending = program.phase == Phase::Running && program.wanted != program.team;
            if pending && program.app.takes_orders() {
                maybe(after(regions::until_next(program.profile.regions, program.left)), Kind::TakesUp);
            }
        }
        if let Some(ends_ns) = program.pages.ends_ns(self.now_ns) {
            maybe(ends_ns, Kind::Migrated);
        }
        if let Some((at_ns, kind)) = next {
            self.queue.push(at_ns, at, program.generation, kind);
        }
    }

    /// How fast `left` of a program falls, and how many CPUs it keeps busy.
    fn rate(&self, at: usize) -> (f64, f64) {
        let program = &self.programs[at];
        if program.phase == Phase::Starting {
            let crowded = program.leaves.iter().zip(&program.crowds);
            let share: f64 = crowded.map(|(leaf, crowd)| leaf.share() / crowd.max(1.0)).sum();
            return (share, share);
        }
        let (mut speed, mut cpus) = (0.0, 0.0);
        for (leaf, &crowd) in program.leaves.iter().zip(&program.crowds) {
            let (fast, busy) = self.leaf_speed(program, leaf, crowd);
            speed += leaf.share() * fast;
            cpus += leaf.share() * busy;
        }
        let memory = program.pages.keeps(&program.profile, &self.laws, self.now_ns);
        (speed * memory / program.profile.sequential_ns as f64, cpus)
    }

    /// Speed against one thread while the leaf is in turn, and CPUs kept busy then.
    fn leaf_speed(&self, program: &Program, leaf: &Leaf, crowd: f64) -> (f64, f64) {
        let (team, cpus) = (f64::from(program.team), f64::from(leaf.cpus));
        if leaf.cpus == 0 {
            return (0.0, 0.0);
        }
        let used = team.min(cpus);
        let parts: Vec<(f64, f64)> = leaf
            .domains
            .iter()
            .map(|&(domain, count)| (f64::from(count) * used / cpus, self.slow(program, leaf, domain)))
            .collect();
        let profile = &program.profile;
        let alone = place::speedup(profile, &parts);
        let (crowd, busy) = match leaf.mixture {
            NONE => (team / cpus, used),
            _ => (crowd, used / crowd.max(1.0)),
        };
        let turns = if leaf.slice_ns > 0 { turns::keeps(profile, leaf.slice_ns, &self.laws) } else { 1.0 };
        if crowd <= 1.0 {
            return (alone * turns, busy);
        }
        let keeps = waiting::keeps(profile, program.waiting, program.team, alone, crowd, &self.laws);
        // More threads than CPUs and all its own: each CPU does its pieces of the work in whole rounds.
        let rounds = if leaf.mixture == NONE { crowd * crowd / crowd.ceil() } else { 1.0 };
        (alone * keeps * rounds * turns, busy)
    }

    /// Threads on each CPU of a leaf's place: those of all whose places in its mixture overlap with it,
    /// spread evenly over their own.
    fn crowd(&self, leaf: &Leaf) -> f64 {
        if leaf.mixture == NONE {
            return 1.0;
        }
        let mut crowd = 0.0;
        for &(other, number) in &self.mixtures[leaf.mixture as usize] {
            let (other, theirs) = (&self.programs[other], &self.programs[other].leaves[number]);
            if theirs.place.intersects(&leaf.place) {
                let team = if other.phase == Phase::Running { other.team } else { 1 };
                crowd += f64::from(team) / f64::from(theirs.cpus.max(1));
            }
        }
        crowd
    }

    /// By how much others in a domain slow a program down there.
    fn slow(&self, program: &Program, leaf: &Leaf, domain: u16) -> f64 {
        let profile = &program.profile;
        if profile.bandwidth == 0.0 && profile.cache == 0.0 {
            return 1.0;
        }
        let mut others = Demand::default();
        let mut own = Demand::default();
        for &(at, number) in &self.occupants[domain as usize] {
            let other = &self.programs[at];
            if other.phase != Phase::Running {
                continue;
            }
            let theirs = &other.leaves[number];
            let crowd = other.crowds[number].max(1.0);
            let demand = self.demand(other, theirs, domain);
            if std::ptr::eq(theirs, leaf) {
                own.add(demand, 1.0 / crowd);
            } else if other.app.id != program.app.id {
                others.add(demand, leaf.overlap(theirs) / crowd);
            }
        }
        contention::slow(profile, own, others, &self.laws)
    }

    fn demand(&self, program: &Program, leaf: &Leaf, domain: u16) -> Demand {
        let count = leaf.domains.iter().find(|(known, _)| *known == domain).map_or(0, |&(_, count)| count);
        let used = f64::from(program.team).min(f64::from(leaf.cpus)) / f64::from(leaf.cpus.max(1));
        Demand::of(&program.profile, f64::from(count) * used, self.domains.size(domain))
    }

    /// The lists of who stands where, after leaves have changed.
    fn list(&mut self, plan: &Plan) {
        self.occupants.iter_mut().for_each(Vec::clear);
        self.mixtures.iter_mut().for_each(Vec::clear);
        let mut counted: HashMap<usize, usize> = HashMap::new();
        plan.for_each_run(&mut |run| {
            let Some(&at) = self.index.get(&run.app) else { return };
            let number = counted.entry(at).or_insert(0);
            let leaf = &self.programs[at].leaves[*number];
            if leaf.mixture != NONE {
                let mixture = leaf.mixture as usize;
                if self.mixtures.len() <= mixture {
                    self.mixtures.resize(mixture + 1, Vec::new());
                }
                self.mixtures[mixture].push((at, *number));
            }
            let profile = &self.programs[at].profile;
            if profile.bandwidth > 0.0 || profile.cache > 0.0 || profile.memory_bytes > 0 {
                for &(domain, _) in &leaf.domains {
                    self.occupants[domain as usize].push((at, *number));
                }
            }
            *number += 1;
        });
    }

    /// A program stands elsewhere: where its threads are, by domain.
    fn stands(&mut self, at: usize) {
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
        let everybody = change.turns || change.mixing;
        let mut fresh: HashMap<usize, Vec<Leaf>> = HashMap::new();
        let wanted = |app: &AppId| everybody || change.apps.contains_key(app);
        leaves(plan, &self.domains, wanted, |app, leaf| {
            if let Some(&at) = self.index.get(app) {
                fresh.entry(at).or_default().push(leaf);
            }
        });
        let mut changed: Vec<usize> = Vec::new();
        for (app, steps) in &change.apps {
            let Some(&at) = self.index.get(app) else { continue };
            fresh.entry(at).or_default();
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
                    _ => {}
                }
            }
            changed.push(at);
        }
        let mut order: Vec<usize> = fresh.keys().copied().collect();
        order.sort_unstable();
        for at in order {
            let leaves = fresh.remove(&at).unwrap_or_default();
            if leaves != self.programs[at].leaves {
                // Whoever was beside it where it stood feels that it goes.
                self.disturbed(at);
                self.programs[at].leaves = leaves;
                changed.push(at);
            }
        }
        self.list(plan);
        for at in changed {
            self.stands(at);
            self.disturbed(at);
        }
        Ok(())
    }
}
