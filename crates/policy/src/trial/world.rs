//! Random worlds: everything from one seed.

use std::sync::Arc;

use plan::{App, Evidence, Known, Snapshot, Source, Speedup};
use topology::{CpuSet, Machine};
use workload::{AppId, Demand, Malleability, Random};

use crate::{LevelDecision, Settings};

/// Some of `cpus`, at least one.
fn some_of(random: &mut Random, cpus: &CpuSet) -> CpuSet {
    let all: Vec<u32> = cpus.iter().collect();
    let percent = 10 + random.below(90);
    let mut some: CpuSet = all.iter().copied().filter(|_| random.chance(percent)).collect();
    some.insert(*random.pick(&all));
    some
}

pub const MACHINES: [&str; 12] = [
    "pu:1",
    "core:2",
    "core:3",
    "core:7",
    "pack:2 core:2",
    "core:4 pu:2",
    "pack:2 [numa] l3:1 core:4",
    "pack:4 [numa] l3:1 core:6",
    "pack:2 [numa] l3:2 core:3 pu:2",
    "pack:3 core:5",
    "pack:1 [numa] l3:4 core:2 pu:2",
    "pack:2 [numa] l3:1 core:8",
];

pub fn machine(random: &mut Random) -> Arc<Machine> {
    Arc::new(Machine::synthetic(random.pick::<&str>(&MACHINES)).expect("a known description"))
}

/// Settings that a trial draws: each at a value that matters to some policy.
pub fn settings(random: &mut Random) -> Settings {
    let ms = 1_000_000;
    let mut settings = Settings { slice_ns: *random.pick(&[5, 20, 50]) * ms, ..Settings::default() };
    if random.chance(20) {
        settings.min_slice_ns = 50 * ms;
    }
    if random.chance(30) {
        let all = [1, 2, 3, 4, 6, 8, 12, 24];
        settings.allowed_widths = Some(all.into_iter().filter(|_| random.chance(50)).collect());
    }
    settings.upper_threshold = random.below(3) as u32;
    settings.lower_threshold = random.below(3) as u32;
    settings.hold_ns = *random.pick(&[0, 0, 100 * ms]);
    if random.chance(30) {
        settings.level_decision = LevelDecision::Local;
    }
    if random.chance(30) {
        settings.rebalance_every_ns = Some(50 * ms);
        settings.rebalance_within_nodes = random.chance(50);
    }
    settings.settle_ns = *random.pick(&[0, 0, 100 * ms]);
    settings.grace_ns = if settings.settle_ns == 0 { *random.pick(&[0, 0, 100 * ms]) } else { 50 * ms };
    settings
}

/// What kinds of programs a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// Malleable ones, free to stand anywhere.
    Plain,
    /// Of every malleability, weight and restriction.
    All,
}

/// A machine with programs that come, change and go at random.
pub struct World {
    /// How it stands now.
    pub snapshot: Snapshot,
    /// What programs come.
    pub kinds: Kinds,
    arrived: u32,
}

impl World {
    /// A machine drawn at random, without programs.
    pub fn new(random: &mut Random, kinds: Kinds) -> World {
        let snapshot = Snapshot::for_machine(machine(random));
        World { snapshot, kinds, arrived: 0 }
    }

    /// A program comes.
    pub fn arrive(&mut self, random: &mut Random) {
        self.arrived += 1;
        let id = AppId::new(&format!("a{}", self.arrived)).expect("a letter and a number");
        let mut app = App::new(id, self.snapshot.now_ns);
        app.program = Some(format!("p{}", self.arrived % 4));
        if self.kinds == Kinds::All {
            self.vary(&mut app, random);
        }
        self.snapshot.apps.push(app);
    }

    fn vary(&mut self, app: &mut App, random: &mut Random) {
        let cpus = self.snapshot.allowed.len() as u64;
        let kinds = [
            Malleability::Rigid,
            Malleability::Moldable,
            Malleability::Malleable,
            Malleability::Malleable,
            Malleability::Malleable,
            Malleability::Evolving,
        ];
        app.demand = Demand { malleability: *random.pick(&kinds), ..Demand::default() };
        if random.chance(15) {
            app.demand.weight_milli = *random.pick(&[0, 100, 500, 3000]);
        }
        if random.chance(40) {
            app.demand.max_threads = Some(1 + random.below(cpus) as u32);
        }
        if random.chance(10) {
            app.demand.min_threads = 1 + random.below(u64::from(app.demand.max_threads.unwrap_or(4))) as u32;
        }
        app.demand.coschedule = !random.chance(10);
        if random.chance(20) {
            let speeds = (1..=8).map(|threads| (threads, 1000 + random.below(8000) as u32)).skip(1);
            app.speedup = Some(Speedup::new(speeds).expect("speeds above 0"));
        }
        app.waits_passively = random.chance(20);
        app.stoppable = !random.chance(15);
        if random.chance(10) {
            app.within = Some(some_of(random, &self.snapshot.allowed));
        }
        if random.chance(30) {
            app.team = Some(1 + random.below(cpus) as u32);
        }
        let mut maybe = |most: u64| {
            let error_milli = random.below(500) as u32;
            random.chance(30).then(|| Known {
                value: random.below(most),
                error_milli,
                source: Source::Remembered,
            })
        };
        let (left_ns, bandwidth_milli) = (maybe(100_000_000_000), maybe(2000));
        app.evidence = Evidence {
            left_ns,
            bandwidth_milli,
            cache_milli: maybe(2000),
            move_ns: maybe(50_000_000_000),
            // Not drawn, so that each seed keeps its world.
            loads_per_s: bandwidth_milli.map(|known| Known { value: known.value * 1_000_000, ..known }),
        };
    }

    /// One thing happens.
    pub fn step(&mut self, random: &mut Random) {
        self.snapshot.now_ns += 1 + random.below(80_000_000);
        let count = self.snapshot.apps.len() as u64;
        let at = random.below(count) as usize;
        let crowded = count as usize > 2 * self.snapshot.allowed.len() + 2;
        match random.below(if self.kinds == Kinds::All { 20 } else { 12 }) {
            0..=6 if !crowded => self.arrive(random),
            _ if count == 0 => self.arrive(random),
            0..=10 => {
                self.snapshot.apps.remove(at);
            }
            11 => {
                let all = self.snapshot.allowed.clone();
                self.snapshot.usable = if random.chance(50) { all } else { some_of(random, &all) };
            }
            12 => {
                let all = self.snapshot.machine.all_cpus().clone();
                self.snapshot.allowed = if random.chance(50) { all } else { some_of(random, &all) };
                let allowed = self.snapshot.allowed.clone();
                let usable = self.snapshot.usable.intersection(&allowed);
                self.snapshot.usable = if usable.is_empty() { allowed } else { usable };
            }
            13 | 14 => self.snapshot.apps[at].suspended ^= true,
            15 => {
                let all = self.snapshot.allowed.clone();
                let app = &mut self.snapshot.apps[at];
                app.within = if app.within.is_none() { Some(some_of(random, &all)) } else { None };
            }
            16 => self.snapshot.apps[at].demand.malleability = Malleability::Rigid,
            17 => self.snapshot.apps[at].waits_passively ^= true,
            18 => {
                let team = 1 + random.below(self.snapshot.allowed.len() as u64) as u32;
                self.snapshot.apps[at].team = Some(team);
            }
            _ => self.snapshot.load_average_15min_milli = random.below(30_000),
        }
    }

    /// Programs do what the plan asks of them.
    pub fn follow(&mut self, plan: &plan::Plan) {
        for run in plan.runs() {
            let app = self.snapshot.apps.iter_mut().find(|app| app.id == run.app);
            if let Some(app) = app
                && (app.team.is_none() || app.accepts_width())
            {
                app.team = Some(run.threads);
            }
        }
    }
}
