//! How programs start: admitted when the memory is there that they are expected to need, with fewer threads where the
//! policy says so, and waiting passively where nothing else helps against spinning. All of it is decided once for each
//! program, before its first instruction.
//!
//! **Memory.** Expected is what a program's user says, else what it needed last time. A program about which nothing is
//! known waits only while what runs is short of memory already. Who expects something is admitted in order of arrival,
//! so that a large program is not passed by small ones for ever; and whoever is first when nothing else runs is
//! admitted whatever it expects, for nothing here could free memory for it. So waiting ends, given that programs end.
//!
//! **Passive waiting** is for programs that cannot be resized, where a plan cannot help against spinning: threads of one
//! program that are more than its CPUs, and programs that share CPUs with others that take no turns with them. Such a
//! program is given no fewer CPUs for that: nobody knows whether it listens.

use std::collections::BTreeMap;
use std::fmt;

use plan::{App, Plan, Run};
use policy::NarrowStart;
use serde::{Deserialize, Serialize};
use workload::{AppId, Malleability, format_bytes};

/// Nothing new starts while somebody waits for memory for more than this share of ten seconds, in thousandths.
const PRESSURE_MILLI: u32 = 100;

/// A program that is held before its first instruction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// It, as its `run` describes it.
    pub app: App,
    /// Memory that it is expected to need at most, in bytes; `None`: nothing is known.
    #[serde(default)]
    pub expected_bytes: Option<u64>,
    /// Nothing stands against fewer threads than it would have, for good.
    #[serde(default)]
    pub may_start_narrow: bool,
    /// Its runtimes may be told to sleep while they wait.
    #[serde(default)]
    pub may_wait_passively: bool,
    /// What there was for it when it came.
    pub room: MemoryRoom,
}

/// Memory for programs that are to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRoom {
    /// For what share of the time somebody waits for memory, in thousandths.
    pub pressure_milli: u32,
    /// Bytes that are there for each of them, under its own limits, and that no admitted program is expected to take
    /// yet. For one that is not named there is enough.
    pub left_bytes: BTreeMap<AppId, u64>,
}

/// Why a program waits before it is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortage {
    /// What runs is short of memory: it waits for some for so many thousandths of the time.
    Pressure {
        /// That share, in thousandths.
        milli: u32,
    },
    /// It needs more memory than is left.
    Bytes {
        /// Bytes that it is expected to need.
        expected: u64,
        /// Bytes that are left for it.
        left: u64,
    },
    /// Another came before it and waits for memory.
    Behind {
        /// That program.
        app: AppId,
    },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Pressure { milli } => write!(
                f,
                "what runs is short of memory already (it waited for some during {:.0}% of the last ten seconds)",
                f64::from(*milli) / 10.0
            ),
            Shortage::Bytes { expected, left } => write!(
                f,
                "it is expected to need {} of memory, and {} are left",
                format_bytes(*expected),
                format_bytes(*left)
            ),
            Shortage::Behind { app } => write!(f, "{app} came before it and waits for memory"),
        }
    }
}

/// Why the plan leaves threads waiting for one another while some of them have no CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassiveReason {
    /// It has fewer CPUs than threads.
    MoreThreads {
        /// Threads that the plan has it run with.
        threads: u32,
        /// CPUs of its place.
        cpus: u32,
    },
    /// It shares CPUs with another program, and they take no turns.
    SharesWith {
        /// That program.
        app: AppId,
    },
}

impl fmt::Display for PassiveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassiveReason::MoreThreads { threads, cpus: 1 } => {
                write!(f, "it runs {threads} threads on 1 CPU")
            }
            PassiveReason::MoreThreads { threads, cpus } => {
                write!(f, "it runs {threads} threads on {cpus} CPUs")
            }
            PassiveReason::SharesWith { app } => {
                write!(f, "it shares CPUs with {app}, and they take no turns")
            }
        }
    }
}

/// What was decided about starts in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Starts {
    /// Who is under the policy from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admitted: Vec<Admitted>,
    /// Who has to wait for memory first, and did not before.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queued: BTreeMap<AppId, Shortage>,
    /// Who may be executed, and whether its runtimes are told to sleep while they wait.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub let_go: BTreeMap<AppId, Option<PassiveReason>>,
}

/// A program that was admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admitted {
    /// The program.
    pub app: AppId,
    /// It waited for memory before.
    #[serde(default)]
    pub queued: bool,
    /// It starts with fewer threads than it would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow: Option<NarrowStart>,
}

impl Admitted {
    /// The program as the policy sees it from now on.
    pub fn apply(&self, app: &mut App) {
        if let Some(start) = &self.narrow {
            let demand = &mut app.demand;
            demand.malleability = Malleability::Rigid;
            demand.max_threads = Some(start.threads);
            demand.min_threads = demand.min_threads.min(start.threads);
        }
    }
}

impl Starts {
    /// Whether nothing was decided about starts.
    pub fn is_empty(&self) -> bool {
        *self == Starts::default()
    }
}

/// What whoever carries the plans out may do to programs that start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Powers {
    /// Hold them back while the plan makes them wait.
    pub holds_back: bool,
    /// Tell their runtimes how to wait.
    pub sets_waiting: bool,
}

/// Programs that are held: those that wait for memory, in order of arrival, and those that the plan may still keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    queue: Vec<Queued>,
    /// Admitted, and not let go yet; whether they may wait passively.
    admitted: BTreeMap<AppId, bool>,
    /// What those admitted in this instant are expected to take.
    #[serde(skip)]
    reserved_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Queued {
    arrival: Arrival,
    why: Shortage,
}

impl Held {
    pub(crate) fn begin_instant(&mut self) {
        self.reserved_bytes = 0;
    }

    /// Whether nobody is held.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.admitted.is_empty()
    }

    pub(crate) fn forget(&mut self, app: &AppId) {
        self.queue.retain(|entry| entry.arrival.app.id != *app);
        self.admitted.remove(app);
    }

    /// Who waits for memory, and why.
    pub(crate) fn queue(&self) -> impl Iterator<Item = (&AppId, &Shortage)> {
        self.queue.iter().map(|entry| (&entry.arrival.app.id, &entry.why))
    }

    /// Who would have to wait with this room, and why.
    pub(crate) fn shortages(&self, room: &MemoryRoom, occupied: bool) -> BTreeMap<AppId, Shortage> {
        let why = |at: usize| {
            let arrival = &self.queue[at].arrival;
            let why = self.shortage(arrival, &self.queue[..at], room, occupied)?;
            Some((arrival.app.id.clone(), why))
        };
        (0..self.queue.len()).filter_map(why).collect()
    }

    /// Admits a program, or queues it; `occupied`: something runs that may give memory back.
    pub(crate) fn arrive(&mut self, arrival: Arrival, occupied: bool) -> Result<Arrival, (AppId, Shortage)> {
        self.forget(&arrival.app.id);
        match self.shortage(&arrival, &self.queue, &arrival.room, occupied) {
            None => Ok(self.admit(arrival)),
            Some(why) => {
                let queued = (arrival.app.id.clone(), why.clone());
                self.queue.push(Queued { arrival, why });
                Err(queued)
            }
        }
    }

    /// Admits who may come in by now, one at a time: whoever comes in occupies the machine.
    pub(crate) fn next(&mut self, room: &MemoryRoom, occupied: bool) -> Option<Arrival> {
        for at in 0..self.queue.len() {
            let (before, rest) = self.queue.split_at(at);
            match self.shortage(&rest[0].arrival, before, room, occupied) {
                Some(why) => self.queue[at].why = why,
                None => {
                    let arrival = self.queue.remove(at).arrival;
                    return Some(self.admit(arrival));
                }
            }
        }
        None
    }

    fn admit(&mut self, arrival: Arrival) -> Arrival {
        self.reserved_bytes = self.reserved_bytes.saturating_add(arrival.expected_bytes.unwrap_or(0));
        self.admitted.insert(arrival.app.id.clone(), arrival.may_wait_passively);
        arrival
    }

    /// Why a program must wait behind those `before` it in the queue; `None`: it is admitted.
    fn shortage(
        &self,
        arrival: &Arrival,
        before: &[Queued],
        room: &MemoryRoom,
        occupied: bool,
    ) -> Option<Shortage> {
        // Who expects something does not pass by others who do.
        let ahead = before.iter().find(|entry| entry.arrival.expected_bytes.is_some());
        if let (Some(ahead), Some(_)) = (ahead, arrival.expected_bytes) {
            return Some(Shortage::Behind { app: ahead.arrival.app.id.clone() });
        }
        if !occupied {
            return None;
        }
        if room.pressure_milli >= PRESSURE_MILLI {
            return Some(Shortage::Pressure { milli: room.pressure_milli });
        }
        let left = room.left_bytes.get(&arrival.app.id)?.saturating_sub(self.reserved_bytes);
        let expected = arrival.expected_bytes.filter(|expected| *expected > left)?;
        Some(Shortage::Bytes { expected, left })
    }

    /// Who may be executed by now: admitted, and not made to wait by the plan.
    pub(crate) fn let_go(
        &mut self,
        plan: &Plan,
        apps: &[App],
        powers: Powers,
    ) -> BTreeMap<AppId, Option<PassiveReason>> {
        let passive = |id: &AppId| passive_reason(plan, apps.iter().find(|app| app.id == *id)?);
        let mut let_go = BTreeMap::new();
        self.admitted.retain(|id, may_wait_passively| {
            let waits = powers.holds_back && plan.waiting.contains(id);
            if !waits {
                let sets_waiting = powers.sets_waiting && *may_wait_passively;
                let_go.insert(id.clone(), if sets_waiting { passive(id) } else { None });
            }
            waits
        });
        let_go
    }
}

/// Why the plan leaves threads of `app` waiting for one another while some of them have no CPU; `None` where it does
/// not, and where they need not run at the same time or follow the plan.
fn passive_reason(plan: &Plan, app: &App) -> Option<PassiveReason> {
    if app.accepts_width() || !app.demand.coschedule {
        return None;
    }
    let its = |run: &&&Run| run.app == app.id && run.threads > 1;
    let (runs, mixed) = (plan.runs(), plan.mixed_runs());
    let crowded = runs.iter().filter(its).find(|run| run.threads as usize > run.place.len());
    if let Some(run) = crowded {
        return Some(PassiveReason::MoreThreads { threads: run.threads, cpus: run.place.len() as u32 });
    }
    let run = mixed.iter().find(its)?;
    let beside = |other: &&&Run| other.app != app.id && other.place.intersects(&run.place);
    let other = mixed.iter().find(beside)?;
    Some(PassiveReason::SharesWith { app: other.app.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn id(name: &str) -> AppId {
        AppId::new(name).unwrap()
    }

    fn room(pressure_milli: u32, left: &[(&str, u64)]) -> MemoryRoom {
        let left_bytes = left.iter().map(|(name, gib)| (id(name), gib * GIB)).collect();
        MemoryRoom { pressure_milli, left_bytes }
    }

    fn arrival(name: &str, expected_gib: Option<u64>, left_gib: u64) -> Arrival {
        Arrival {
            app: App::new(id(name), 0),
            expected_bytes: expected_gib.map(|gib| gib * GIB),
            may_start_narrow: false,
            may_wait_passively: true,
            room: room(0, &[(name, left_gib)]),
        }
    }

    fn admitted(held: &mut Held, room: &MemoryRoom) -> Vec<String> {
        held.begin_instant();
        std::iter::from_fn(|| held.next(room, true)).map(|arrival| arrival.app.id.to_string()).collect()
    }

    #[test]
    fn a_program_waits_for_the_memory_it_is_expected_to_need() {
        let mut held = Held::default();
        assert!(held.arrive(arrival("small", Some(2), 2), true).is_ok());
        assert!(held.arrive(arrival("unknown", None, 0), true).is_ok());
        held.begin_instant();
        let (_, why) = held.arrive(arrival("big", Some(3), 2), true).unwrap_err();
        assert_eq!(why.to_string(), "it is expected to need 3.0 GiB of memory, and 2.0 GiB are left");
        assert_eq!(admitted(&mut held, &room(0, &[("big", 2)])), [""; 0]);
        assert_eq!(admitted(&mut held, &room(0, &[("big", 3)])), ["big"]);
    }

    #[test]
    fn no_program_waits_for_memory_that_never_comes() {
        let mut held = Held::default();
        assert!(held.arrive(arrival("big", Some(9), 1), false).is_ok());
        let pressed = Arrival { room: room(400, &[]), ..arrival("any", None, 9) };
        assert!(held.arrive(pressed.clone(), false).is_ok());
        let (_, why) = held.arrive(pressed, true).unwrap_err();
        assert!(why.to_string().contains("during 40%"), "{why}");
    }

    #[test]
    fn a_program_that_expects_memory_does_not_overtake_others() {
        let mut held = Held::default();
        held.arrive(arrival("big", Some(8), 4), true).unwrap_err();
        let (_, why) = held.arrive(arrival("small", Some(1), 4), true).unwrap_err();
        assert_eq!(why, Shortage::Behind { app: id("big") });
        assert!(held.arrive(arrival("unknown", None, 4), true).is_ok(), "nothing is known of it");
        held.forget(&id("big"));
        assert_eq!(admitted(&mut held, &room(0, &[("small", 4)])), ["small"]);
    }

    #[test]
    fn memory_is_not_promised_twice_in_one_instant() {
        let mut held = Held::default();
        for name in ["a", "b", "c"] {
            held.arrive(arrival(name, Some(2), 0), true).unwrap_err();
        }
        let plenty = room(0, &[("a", 4), ("b", 4), ("c", 4)]);
        assert_eq!(admitted(&mut held, &plenty), ["a", "b"]);
        assert_eq!(held.queue().count(), 1);
    }

    #[test]
    fn a_program_is_let_go_once_the_plan_has_it_run() {
        let mut held = Held::default();
        let came = held.arrive(arrival("a", None, 9), false).unwrap();
        let apps = [came.app];
        let waits: Plan = "b on 0-1 waiting [a]".parse().unwrap();
        let acting = Powers { holds_back: true, sets_waiting: true };
        assert!(held.let_go(&waits, &apps, acting).is_empty());
        let observing = Powers { holds_back: false, sets_waiting: false };
        assert_eq!(held.let_go(&waits, &apps, observing).len(), 1);
        assert!(held.let_go(&waits, &apps, observing).is_empty(), "once");
    }

    #[test]
    fn waiting_is_made_passive_only_where_nothing_else_helps() {
        let why = |plan: &str, app: &str| {
            let reason = passive_reason(&plan.parse().unwrap(), &app.parse().unwrap());
            reason.map_or(String::new(), |reason| reason.to_string())
        };
        let rigid = "r rigid max 4 team 4";
        assert_eq!(why("mixed [r on 0-1 x 4]", rigid), "it runs 4 threads on 2 CPUs");
        let shared = "mixed [r on 0-3, s on 0-3]";
        assert_eq!(why(shared, rigid), "it shares CPUs with s, and they take no turns");
        let in_a_slot = "in_turn [20ms a on 0-3, 20ms mixed [r on 0-3, s on 3]]";
        assert_eq!(why(in_a_slot, rigid), "it shares CPUs with s, and they take no turns");
        for (plan, app) in [
            ("r on 0-3", rigid),
            ("in_turn [20ms r on 0-3, 20ms s on 0-3]", rigid),
            ("side_by_side [r on 0-3, mixed [s on 4-5, t on 4-5]]", rigid),
            ("mixed [r on 0-3, s on 4-5, t on 4-5]", rigid),
            // What is told how many threads to have follows the plan, ...
            (shared, "r"),
            (shared, "r max 4"),
            // ... what needs no partner does not wait for one, and a single thread has none.
            (shared, "r rigid max 4 uncoordinated"),
            ("mixed [r on 0 x 1, s on 0 x 1]", "r rigid max 1"),
            ("s on 0-3 waiting [r]", rigid),
        ] {
            assert_eq!(why(plan, app), "", "{plan}: {app}");
        }
    }
}
