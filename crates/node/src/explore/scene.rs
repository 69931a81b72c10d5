//! What a seed means: a machine, programs, and what befalls them.

use model::{Hierarchy, Op, Script, phases};
use topology::CpuSet;
use workload::Random;

use crate::mechanism::{PlacementChoice, TurnsChoice};

const MS: u64 = 1_000_000;

/// What sort of program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Teams that follow what they are asked for.
    Resizable,
    /// Teams with the preload library that keep their threads.
    Rigid,
    /// Threads that no library tells of.
    Foreign,
    Serial,
    /// A script that starts others and waits for them.
    Forking,
    /// Goes on in a child of init.
    Daemon,
    /// Becomes another program.
    Executing,
    /// Restricts itself, or binds its first thread.
    Choosing,
    /// A launcher with ranks.
    Launcher,
    /// Waits without spinning.
    Passive,
}

#[derive(Clone, Debug)]
pub struct Planned {
    pub at_ms: u64,
    pub kind: Kind,
    pub script: Script,
    /// As its user started it; empty: all CPUs.
    pub mask: CpuSet,
    pub nice: i32,
}

impl Planned {
    pub fn name(&self, number: usize) -> String {
        match self.kind {
            Kind::Launcher => "mpirun".to_owned(),
            _ => format!("p{number}"),
        }
    }
}

/// A process of coplace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Scheduler,
    Guard,
    /// The `coplace run` of a program.
    Run(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// Killed after so many more calls.
    Kill(Target, u64),
    /// Kept from running after so many more calls, for so many milliseconds.
    Stall(Target, u64, u64),
    /// The whole machine stands still.
    Standstill(u64),
    /// It is so busy for so many milliseconds that each call of coplace takes up to so many microseconds.
    Slow(u64, u64),
    /// Its user stops a program by its `run` (Ctrl-Z), continues it, ends it (Ctrl-C). Some do so twice.
    Stop(usize),
    Continue(usize),
    Terminate(usize),
    /// The same by hand, past its `run` (`kill -STOP`, `kill -CONT`).
    StopByHand(usize),
    ContinueByHand(usize),
    /// A program is killed outright.
    KillProgram(usize),
    /// No file can be written for so long.
    DiskFull(u64),
    /// A service manager removes groups that are empty.
    RemoveGroups,
    DaemonStarts,
    DaemonEnds,
}

#[derive(Clone, Debug)]
pub struct Scene {
    pub seed: u64,
    pub cpus: CpuSet,
    pub mounted: Vec<Hierarchy>,
    pub uid: u32,
    pub keeps_masks: bool,
    pub pids: u32,
    pub policy: &'static str,
    pub slice_ms: u64,
    pub placement: PlacementChoice,
    pub turns: TurnsChoice,
    pub programs: Vec<Planned>,
    pub incidents: Vec<(u64, Incident)>,
}

impl Scene {
    pub fn of(seed: u64) -> Scene {
        let mut random = Random::for_purpose(seed, "scene");
        let count = 2 + random.below(5) as u32;
        let mounted = random_mounts(&mut random);
        let uid = if random.chance(70) { 0 } else { 1000 };
        let policies = ["TA", "TA", "TA", "TA", "EQ", "CO", "LV", "UE", "BP", "LA"];
        let has_groups = !mounted.is_empty() && uid == 0;
        let placement = match has_groups && random.chance(25) {
            true if mounted.contains(&Hierarchy::Cpuset) || mounted.contains(&Hierarchy::V2) => {
                PlacementChoice::Cpuset
            }
            _ => PlacementChoice::Auto,
        };
        let turns = match random.below(6) {
            0 => TurnsChoice::Stop,
            1 if has_groups => TurnsChoice::Idle,
            _ => TurnsChoice::Auto,
        };
        let many = 1 + random.below(4) as usize;
        let programs: Vec<Planned> = (0..many).map(|_| random_program(&mut random, count)).collect();
        let mut scene = Scene {
            seed,
            cpus: CpuSet::first(count),
            mounted,
            uid,
            keeps_masks: random.chance(60),
            pids: 150 + random.below(200) as u32,
            policy: policies[random.below(policies.len() as u64) as usize],
            slice_ms: *random.pick(&[20, 50, 100]),
            placement,
            turns,
            programs,
            incidents: Vec::new(),
        };
        scene.add_incidents(&mut random);
        scene
    }

    /// Whether a guard may be missing at times.
    pub fn has_guard_faults(&self) -> bool {
        self.incidents.iter().any(|(_, what)| {
            matches!(
                what,
                Incident::Kill(Target::Guard, _) | Incident::Stall(Target::Guard, ..) | Incident::DiskFull(_)
            )
        })
    }

    /// For how long guards are kept from running.
    pub fn guard_stall_ns(&self) -> u64 {
        let stall_ms = |what: &Incident| match what {
            Incident::Stall(Target::Guard, _, ms) => *ms,
            _ => 0,
        };
        self.incidents.iter().map(|(_, what)| stall_ms(what) * MS).sum()
    }

    fn add_incidents(&mut self, random: &mut Random) {
        let many = self.programs.len();
        if random.chance(55) {
            self.incidents.push((0, Incident::DaemonStarts));
        }
        for app in 0..many {
            let at_ms = self.programs[app].at_ms + 20 + random.below(400);
            match random.below(12) {
                0 | 1 => {
                    self.incidents.push((at_ms, Incident::Stop(app)));
                    self.incidents.push((at_ms + 50 + random.below(500), Incident::Continue(app)));
                }
                2 => self.incidents.push((at_ms, Incident::Terminate(app))),
                3 => self.incidents.push((at_ms, Incident::KillProgram(app))),
                _ => {}
            }
        }
        for _ in 0..random.below(4) {
            let at_ms = random.below(900);
            let target = match random.below(5) {
                0 => Target::Guard,
                1 => Target::Run(random.below(many as u64) as usize),
                _ => Target::Scheduler,
            };
            let calls = 1 + random.below(400);
            let incident = match random.below(10) {
                0..=4 => Incident::Kill(target, calls),
                5 | 6 => Incident::Stall(target, calls, 100 + random.below(1500)),
                7 => Incident::Standstill(100 + random.below(2000)),
                8 => Incident::DiskFull(20 + random.below(300)),
                _ => Incident::RemoveGroups,
            };
            self.incidents.push((at_ms, incident));
        }
        if random.chance(35) {
            self.incidents.push((100 + random.below(900), Incident::DaemonStarts));
        }
        if random.chance(20) {
            self.incidents.push((300 + random.below(900), Incident::DaemonEnds));
        }
        let mut again = Random::for_purpose(self.seed, "again");
        for (at_ms, incident) in self.incidents.clone() {
            if let Incident::Continue(app) = incident
                && again.chance(40)
            {
                let stops_ms = at_ms + 1 + again.below(150);
                self.incidents.push((stops_ms, Incident::Stop(app)));
                self.incidents.push((stops_ms + 50 + again.below(500), Incident::Continue(app)));
            }
        }
        let mut by_hand = Random::for_purpose(self.seed, "by hand");
        for app in 0..many {
            let is_meant = |what: &Incident| {
                use Incident::{Continue, KillProgram, Stop, Terminate};
                matches!(what, Stop(other) | Continue(other) | Terminate(other) | KillProgram(other) if *other == app)
            };
            if by_hand.chance(15) && !self.incidents.iter().any(|(_, what)| is_meant(what)) {
                let at_ms = self.programs[app].at_ms + 20 + by_hand.below(400);
                self.incidents.push((at_ms, Incident::StopByHand(app)));
                self.incidents.push((at_ms + 50 + by_hand.below(900), Incident::ContinueByHand(app)));
            }
        }
        let mut slow = Random::for_purpose(self.seed, "slow");
        if slow.chance(10) {
            let incident = Incident::Slow(200 + slow.below(3000), 500 + slow.below(20_000));
            self.incidents.push((slow.below(900), incident));
            // What went wrong meanwhile is to show when it is over.
            let plain = [Kind::Resizable, Kind::Rigid, Kind::Passive];
            for program in self.programs.iter_mut().filter(|program| plain.contains(&program.kind)) {
                program.script.extend(phases(80, 25 * MS, 2 * MS, 0));
            }
        }
        self.incidents.sort_by_key(|(at_ms, _)| *at_ms);
    }
}

fn random_mounts(random: &mut Random) -> Vec<Hierarchy> {
    let v1 = [Hierarchy::Cpuset, Hierarchy::Cpu, Hierarchy::Freezer];
    match random.below(5) {
        0 => Vec::new(),
        1 | 2 => v1.to_vec(),
        3 => vec![Hierarchy::V2],
        _ => [Hierarchy::V2, Hierarchy::Cpu, Hierarchy::Freezer].to_vec(),
    }
}

fn random_place(random: &mut Random, cpus: u32) -> CpuSet {
    let width = 1 + random.below(u64::from(cpus)) as u32;
    let from = random.below(u64::from(cpus - width + 1)) as u32;
    (from..from + width).collect()
}

/// Some hundred milliseconds in teams.
fn random_teams(random: &mut Random, wide: u32) -> Script {
    let region_ms = 2 + random.below(30);
    phases(1 + (50 + random.below(350)) / region_ms, region_ms * MS, (1 + random.below(5)) * MS, wide)
}

fn random_program(random: &mut Random, cpus: u32) -> Planned {
    use Kind::{Choosing, Daemon, Executing, Foreign, Forking, Launcher, Passive, Resizable, Rigid, Serial};
    let kind = *random.pick(&[
        Resizable, Resizable, Resizable, Resizable, Rigid, Rigid, Foreign, Serial, Forking, Daemon,
        Executing, Choosing, Launcher, Passive,
    ]);
    let mask = if random.chance(15) { random_place(random, cpus) } else { CpuSet::new() };
    // Who has fewer CPUs from the beginning than threads that spin for each other has only himself to blame.
    let most = if mask.is_empty() { cpus } else { mask.len() as u32 };
    let wide = if random.chance(70) { 0 } else { 1 + random.below(u64::from(most)) as u32 };
    let mut script = match kind {
        Serial => [Op::Serial { ns: (50 + random.below(300)) * MS }].into(),
        Forking | Launcher => {
            let mut script: Script =
                (0..1 + random.below(3)).map(|_| Op::Fork(random_teams(random, wide))).collect();
            script.push_back(Op::Sleep { ns: random.below(20) * MS });
            script.push_back(Op::Wait);
            script
        }
        Daemon => {
            let mut script: Script = [Op::Serial { ns: 10 * MS }, Op::Daemonise].into();
            script.extend(random_teams(random, wide));
            script
        }
        Executing => {
            let mut script = random_teams(random, wide);
            script.push_back(Op::Exec { name: "other".to_owned() });
            script.extend(random_teams(random, wide));
            script
        }
        Choosing => {
            let mut script = random_teams(random, wide);
            script.truncate(6);
            script.push_back(match random.chance(50) {
                true => Op::Restrict(random_place(random, cpus)),
                false => Op::BindFirst(random_place(random, cpus)),
            });
            script.extend(random_teams(random, wide));
            script
        }
        Resizable | Rigid | Foreign | Passive => random_teams(random, wide),
    };
    if random.chance(20) {
        script.insert(script.len().min(3), Op::Sleep { ns: random.below(100) * MS });
    }
    let nice = *random.pick(&[0, 0, 0, 0, 0, 0, 5, 15]);
    Planned { at_ms: random.below(500), kind, script, mask, nice }
}
