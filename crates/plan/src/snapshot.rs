//! What a policy may know when it decides: one immutable picture of the machine and its programs.

use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use topology::{CpuSet, Machine};
use workload::{AppId, Demand, Malleability};

use crate::{Evidence, Known, Speedup, parse_ns};

/// The machine and its programs at one moment: all that a policy may know of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Nanoseconds since the engine began; never a date.
    pub now_ns: u64,
    /// The whole machine, including CPUs that are not allowed.
    pub machine: Arc<Machine>,
    /// affinity ∩ cpuset ∩ configured CPUs that are online. Never empty.
    pub allowed: CpuSet,
    /// `allowed`, no more than `cpu.max` pays for, less what unmanaged programs use. Never empty.
    /// Only a rigid team that is wider than this may reach beyond it, into `allowed`.
    pub usable: CpuSet,
    /// Load average over 15 minutes, in thousandths (what libgomp's OMP_DYNAMIC looks at).
    pub load_average_15min_milli: u64,
    /// Live programs in order of arrival.
    pub apps: Vec<App>,
}

/// One live application as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Its name, which no other live program has.
    pub id: AppId,
    /// The program that it is a run of, where its name does not say that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// When it came, on the clock of [`Snapshot::now_ns`]; 0 if that was before the engine began.
    pub arrived_ns: u64,
    /// As declared, corrected by what was observed (a program that proved rigid is rigid here).
    pub demand: Demand,
    /// Team that is running now; `None` before anything was observed.
    pub team: Option<u32>,
    /// Its threads sleep while they wait, so that it may be given fewer CPUs than it has threads.
    pub waits_passively: bool,
    /// Whether it may be stopped or frozen (shells, launchers, traced programs may not).
    pub stoppable: bool,
    /// A user asked that it stand still.
    pub suspended: bool,
    /// Where it must stay, if it or its user restricted it; always within `Snapshot::allowed`.
    pub within: Option<CpuSet>,
    /// How its speed grows with its threads, as learned from its region rates; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup: Option<Speedup>,
    /// What else was learned about it.
    #[serde(default, skip_serializing_if = "Evidence::is_empty")]
    pub evidence: Evidence,
}

impl Snapshot {
    /// The machine with all its CPUs usable and no program on it, at time 0.
    pub fn for_machine(machine: Arc<Machine>) -> Snapshot {
        let all = machine.all_cpus().clone();
        Snapshot {
            now_ns: 0,
            machine,
            allowed: all.clone(),
            usable: all,
            load_average_15min_milli: 0,
            apps: Vec::new(),
        }
    }

    /// Restricts everything to `allowed`.
    pub fn with_allowed(mut self, allowed: CpuSet) -> Snapshot {
        self.usable = self.usable.intersection(&allowed);
        self.allowed = allowed;
        self
    }

    /// Leaves only `usable` of what is allowed to ordinary partitions.
    pub fn with_usable(mut self, usable: CpuSet) -> Snapshot {
        self.usable = usable.intersection(&self.allowed);
        self
    }

    /// Adds the programs that `text` describes, separated by `;`, each as [`App::from_str`] reads
    /// it; they arrived in this order, a nanosecond apart, where the text does not say when.
    pub fn with_apps(mut self, text: &str) -> Result<Snapshot, ParseAppError> {
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let mut app: App = part.parse()?;
            if app.arrived_ns == 0 {
                app.arrived_ns = self.apps.last().map_or(0, |last| last.arrived_ns + 1);
            }
            self.apps.push(app);
        }
        Ok(self)
    }

    /// The live program of this name, if there is one.
    pub fn app(&self, id: &AppId) -> Option<&App> {
        self.apps.iter().find(|app| app.id == *id)
    }

    /// CPUs that `app` may stand on without need: what is usable of where it must stay; where nothing
    /// of that is usable, all of where it must stay.
    pub fn room(&self, app: &App) -> CpuSet {
        let Some(within) = &app.within else { return self.usable.clone() };
        let usable = self.usable.intersection(within);
        if usable.is_empty() { self.wide_room(app) } else { usable }
    }

    /// CPUs that `app` may stand on at all: what is allowed of where it must stay. A restriction
    /// that leaves nothing is none, as it is for the kernel.
    pub fn wide_room(&self, app: &App) -> CpuSet {
        let within = app.within.as_ref().map(|within| self.allowed.intersection(within));
        within.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| self.allowed.clone())
    }

    /// Fewest CPUs that `app` may be given now: what its threads spin on, if it cannot shrink; never
    /// more than it may stand on at all.
    pub fn fewest_cpus(&self, app: &App) -> usize {
        self.fewest_of(app, self.allowed.len())
    }

    /// The same for who knows how many CPUs are allowed.
    pub(crate) fn fewest_of(&self, app: &App, allowed: usize) -> usize {
        let most = if app.within.is_some() { self.wide_room(app).len() } else { allowed };
        let needed = if app.waits_passively { 1 } else { app.fewest_threads(allowed as u32) };
        (needed as usize).clamp(1, most.max(1))
    }

    /// CPUs for a program that needs more than [`Snapshot::room`] has: exactly as many as it needs,
    /// the usable ones first. `None` where its room is wide enough.
    pub fn overflow_place(&self, app: &App) -> Option<CpuSet> {
        let (room, needed) = (self.room(app), self.fewest_cpus(app));
        (needed > room.len()).then(|| {
            let more = self.wide_room(app).difference(&room).take(needed - room.len());
            room.union(&more)
        })
    }
}

impl App {
    /// A malleable program that nothing is known about yet.
    pub fn new(id: AppId, arrived_ns: u64) -> App {
        App {
            id,
            program: None,
            arrived_ns,
            demand: Demand::default(),
            team: None,
            waits_passively: false,
            stoppable: true,
            suspended: false,
            within: None,
            speedup: None,
            evidence: Evidence::default(),
        }
    }

    /// The program that it is a run of, as slowdown matrices name it: `cg` of `cg` and `cg.2`.
    pub fn program(&self) -> &str {
        self.program.as_deref().unwrap_or_else(|| self.id.unnumbered())
    }

    /// Whether its next team is as wide as it is told: malleable programs always, moldable and
    /// evolving ones before their first team. What runs with a team that it alone decides about
    /// must not be given fewer CPUs than that.
    pub fn accepts_width(&self) -> bool {
        match self.demand.malleability {
            Malleability::Malleable => true,
            Malleability::Moldable | Malleability::Evolving => self.team.is_none(),
            Malleability::Rigid => false,
        }
    }

    /// Threads that it runs with when it decides: the observed team, else what it demands.
    pub fn width(&self, cpus: u32) -> u32 {
        self.team.or(self.demand.max_threads).unwrap_or(cpus).max(1)
    }

    /// Fewest threads that it can be made to run with.
    pub fn fewest_threads(&self, cpus: u32) -> u32 {
        if self.accepts_width() { self.demand.min_threads.max(1) } else { self.width(cpus) }
    }
}

/// Why a text does not describe a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' does not describe a program: {why}")]
pub struct ParseAppError {
    /// What was to describe one program, without the spaces around it.
    pub text: String,
    /// What is wrong with it, in words.
    pub why: String,
}

impl FromStr for App {
    type Err = ParseAppError;

    /// `cg`, `lg rigid max 8 team 8`, `sh fixed within 0-3`: the name, then in any order `of PROGRAM`,
    /// `rigid|moldable|malleable|evolving`, `min N`, `max N`, `team N` (threads), `weight N` (in
    /// thousandths), `within CPULIST`, `arrived DURATION`, `speedup 2:1900,4:3500` (threads and
    /// thousandths of one thread's speed), `left DURATION`, `move DURATION`,
    /// `bandwidth N`, `cache N`, `loads N` (what earlier runs showed, as [`Evidence`] has it), `passive`, `uncoordinated` (its threads need not run at
    /// the same time), `fixed` (must not be stopped), `suspended`. What is not said is as in [`App::new`].
    fn from_str(text: &str) -> Result<App, ParseAppError> {
        let error = |why: String| ParseAppError { text: text.trim().to_owned(), why };
        let mut tokens = text.split_whitespace();
        let name = tokens.next().unwrap_or_default();
        let id = AppId::new(name).map_err(|wrong| error(wrong.to_string()))?;
        let mut app = App::new(id, 0);
        let remembered = |value: u64| Known::remembered(value, 0);
        while let Some(token) = tokens.next() {
            let mut value = || tokens.next().ok_or_else(|| error(format!("'{token}' needs a value")));
            let number = |value: &str| -> Result<u32, ParseAppError> {
                value.parse().map_err(|_| error(format!("'{value}' after '{token}' is not a number")))
            };
            match token {
                "rigid" => app.demand.malleability = Malleability::Rigid,
                "moldable" => app.demand.malleability = Malleability::Moldable,
                "malleable" => app.demand.malleability = Malleability::Malleable,
                "evolving" => app.demand.malleability = Malleability::Evolving,
                "of" => app.program = Some(value()?.to_owned()),
                "min" => app.demand.min_threads = number(value()?)?,
                "max" => app.demand.max_threads = Some(number(value()?)?),
                "team" => app.team = Some(number(value()?)?),
                "weight" => app.demand.weight_milli = number(value()?)?,
                "within" => {
                    let cpus = value()?.parse().map_err(|wrong| error(format!("{wrong}")))?;
                    app.within = Some(cpus);
                }
                "arrived" => app.arrived_ns = parse_ns(value()?).map_err(error)?,
                "speedup" => app.speedup = Some(value()?.parse().map_err(error)?),
                "left" => app.evidence.left_ns = Some(remembered(parse_ns(value()?).map_err(error)?)),
                "move" => app.evidence.move_ns = Some(remembered(parse_ns(value()?).map_err(error)?)),
                "bandwidth" => app.evidence.bandwidth_milli = Some(remembered(number(value()?)?.into())),
                "cache" => app.evidence.cache_milli = Some(remembered(number(value()?)?.into())),
                "loads" => app.evidence.loads_per_s = Some(remembered(number(value()?)?.into())),
                "uncoordinated" => app.demand.coschedule = false,
                "passive" => app.waits_passively = true,
                "fixed" => app.stoppable = false,
                "suspended" => app.suspended = true,
                _ => return Err(error(format!("'{token}' is not a property"))),
            }
        }
        Ok(app)
    }
}
