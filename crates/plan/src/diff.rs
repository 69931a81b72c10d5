//! What changed between two plans, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::{AppId, ByApp};

use crate::{Bind, Memory, Plan, Run, Slot, Tree, TurnMode};

/// The difference between two plans; names only what differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Programs whose standing changed, each with what changed about it.
    pub apps: BTreeMap<AppId, Vec<AppChange>>,
    /// Who takes turns with whom, for how long, or how, is not what it was.
    pub turns: bool,
    /// Who shares CPUs with whom, or who owns them, is not what it was.
    pub mixing: bool,
}

/// What happens to one program from one plan to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppChange {
    /// New to the plan, and runs.
    Started(Standing),
    /// It waited, and runs now.
    Admitted(Standing),
    /// It was suspended, and runs now.
    Resumed(Standing),
    /// It waits now: new, running or suspended before.
    Waits,
    /// A user asked that it stand still.
    Suspended,
    /// The plan no longer mentions it.
    Gone,
    /// It stands on other CPUs.
    Moved {
        /// All CPUs that it used before.
        from: CpuSet,
        /// All that it uses now.
        to: CpuSet,
    },
    /// It is asked for a team of another size.
    Resized {
        /// Threads that it was asked for.
        from: u32,
        /// Threads that it is asked for now; of several slots the widest.
        to: u32,
    },
    /// It binds its threads, keeps its memory or lends its place in another way.
    Manner {
        /// How its threads are bound now.
        bind: Bind,
        /// What becomes of its pages now.
        memory: Memory,
        /// Whether others may now use what it leaves idle of its place.
        lends: bool,
    },
}

/// How one program stands in a plan: its run, or where it has several slots, all its places and its
/// widest team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// All CPUs that it uses at some time.
    pub place: CpuSet,
    /// Team size that it is asked to have, the largest of its slots.
    pub threads: u32,
    /// [`Bind::Each`] if it is that in any of its slots.
    pub bind: Bind,
    /// [`Memory::Follow`] if it is that in any of its slots.
    pub memory: Memory,
    /// Whether others may use its place while it leaves it idle, in any of its slots.
    pub lends: bool,
}

/// What a plan makes of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It stands somewhere in the tree, whether or not it is in turn.
    Running(Standing),
    /// It waits to be admitted: not started yet, or stopped.
    Waiting,
    /// Its user asked that it stand still.
    Suspended,
}

impl Standing {
    fn of(run: &Run) -> Standing {
        let Run { place, threads, bind, memory, lends, .. } = run.clone();
        Standing { place, threads, bind, memory, lends }
    }

    fn widen(&mut self, run: &Run) {
        self.place = self.place.union(&run.place);
        self.threads = self.threads.max(run.threads);
        if run.bind == Bind::Each {
            self.bind = Bind::Each;
        }
        if run.memory == Memory::Follow {
            self.memory = Memory::Follow;
        }
        self.lends |= run.lends;
    }
}

impl Plan {
    /// What the plan makes of each program that it mentions.
    pub fn states(&self) -> BTreeMap<AppId, State> {
        let mut states: BTreeMap<AppId, State> = BTreeMap::new();
        states.extend(self.waiting.iter().map(|app| (app.clone(), State::Waiting)));
        states.extend(self.suspended.iter().map(|app| (app.clone(), State::Suspended)));
        self.for_each_run(&mut |run| match states.get_mut(&run.app) {
            Some(State::Running(standing)) => standing.widen(run),
            _ => {
                states.insert(run.app.clone(), State::Running(Standing::of(run)));
            }
        });
        states
    }

    /// What the plan makes of one program; `None` where it does not mention it.
    pub fn state(&self, app: &AppId) -> Option<State> {
        let mut runs: Option<Standing> = None;
        self.for_each_run(&mut |run| {
            if run.app == *app {
                match &mut runs {
                    Some(standing) => standing.widen(run),
                    none => *none = Some(Standing::of(run)),
                }
            }
        });
        let in_list = |list: &BTreeSet<AppId>, state| list.contains(app).then_some(state);
        runs.map(State::Running)
            .or_else(|| in_list(&self.suspended, State::Suspended))
            .or_else(|| in_list(&self.waiting, State::Waiting))
    }
}

/// What must happen to get from `old` to `new`.
pub fn diff(old: &Plan, new: &Plan) -> Change {
    let mut roles: ByApp<'_, [Role<'_>; 2]> = ByApp::default();
    let mut count = 0;
    new.for_each_run(&mut |_| count += 1);
    roles.reserve(count);
    // Nothing changes for those who wait in both, who may be very many.
    let (waited, waits) = (old.waiting.difference(&new.waiting), new.waiting.difference(&old.waiting));
    let often = [assign_roles(old, waited, 0, &mut roles), assign_roles(new, waits, 1, &mut roles)];
    let mut change = Change::default();
    for (app, [before, after]) in &roles {
        let steps = app_changes(before, after);
        if !steps.is_empty() {
            change.apps.insert((*app).clone(), steps);
        }
    }
    let roles = &roles;
    let structure = |plan, number: usize| {
        // A program with one slot is described by its standing; only one with several needs to be told
        // apart here.
        let several = move |app: &AppId| often[number] && matches!(roles[app][number], Role::RunsOften(_));
        Structure::of(plan, several)
    };
    let (before, after) = (structure(old, 0), structure(new, 1));
    change.turns = before.turns != after.turns;
    change.mixing = before.mixed != after.mixed;
    change
}

/// What a plan makes of one program.
#[derive(Default)]
enum Role<'a> {
    #[default]
    Absent,
    /// With one run, which says all.
    Runs(&'a Run),
    /// With several.
    RunsOften(Box<Standing>),
    Waits,
    Suspended,
}

/// Notes as the roles of that number what a plan makes of each program that it mentions, of those who wait only these.
/// Whether somebody has several runs.
fn assign_roles<'a>(
    plan: &'a Plan,
    waiting: impl Iterator<Item = &'a AppId>,
    number: usize,
    roles: &mut ByApp<'a, [Role<'a>; 2]>,
) -> bool {
    for app in waiting {
        roles.entry(app).or_default()[number] = Role::Waits;
    }
    for app in &plan.suspended {
        roles.entry(app).or_default()[number] = Role::Suspended;
    }
    let mut often = false;
    plan.for_each_run(&mut |run| {
        let role = &mut roles.entry(&run.app).or_default()[number];
        match role {
            Role::Runs(first) => {
                let mut standing = Standing::of(first);
                standing.widen(run);
                *role = Role::RunsOften(Box::new(standing));
                often = true;
            }
            Role::RunsOften(standing) => standing.widen(run),
            Role::Absent | Role::Waits | Role::Suspended => *role = Role::Runs(run),
        }
    });
    often
}

impl Role<'_> {
    fn standing(&self) -> Option<Stands<'_>> {
        match self {
            Role::Runs(run) => Some((&run.place, run.threads, (run.bind, run.memory, run.lends))),
            Role::RunsOften(it) => Some((&it.place, it.threads, (it.bind, it.memory, it.lends))),
            Role::Absent | Role::Waits | Role::Suspended => None,
        }
    }
}

/// Place, team, and in which manner.
type Stands<'a> = (&'a CpuSet, u32, (Bind, Memory, bool));

fn app_changes(before: &Role<'_>, after: &Role<'_>) -> Vec<AppChange> {
    let standing = |(place, threads, (bind, memory, lends)): Stands<'_>| Standing {
        place: place.clone(),
        threads,
        bind,
        memory,
        lends,
    };
    match (before, after) {
        (Role::Absent, Role::Absent) | (Role::Waits, Role::Waits) | (Role::Suspended, Role::Suspended) => {
            Vec::new()
        }
        (_, Role::Absent) => vec![AppChange::Gone],
        (_, Role::Waits) => vec![AppChange::Waits],
        (_, Role::Suspended) => vec![AppChange::Suspended],
        (before, after) => {
            let Some(to) = after.standing() else { return Vec::new() };
            let Some(from) = before.standing() else {
                return vec![match before {
                    Role::Absent => AppChange::Started(standing(to)),
                    Role::Suspended => AppChange::Resumed(standing(to)),
                    _ => AppChange::Admitted(standing(to)),
                }];
            };
            let mut steps = Vec::new();
            if from.0 != to.0 {
                steps.push(AppChange::Moved { from: from.0.clone(), to: to.0.clone() });
            }
            if from.1 != to.1 {
                steps.push(AppChange::Resized { from: from.1, to: to.1 });
            }
            if from.2 != to.2 {
                let (bind, memory, lends) = to.2;
                steps.push(AppChange::Manner { bind, memory, lends });
            }
            steps
        }
    }
}

impl Change {
    /// Whether nothing is to be carried out.
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && !self.turns && !self.mixing
    }

    /// Of `app` nothing that was carried out holds any more: it is another program of the same name, or was set free.
    /// What `new` makes of it is all to be done.
    pub fn begin_anew(&mut self, app: &AppId, new: &Plan) {
        let step = match new.state(app) {
            Some(State::Running(standing)) => AppChange::Started(standing),
            Some(State::Waiting) => AppChange::Waits,
            Some(State::Suspended) => AppChange::Suspended,
            None => return,
        };
        self.apps.insert(app.clone(), vec![step]);
    }

    /// Carries the change out on what the old plan made of its programs.
    pub fn apply(&self, states: &mut BTreeMap<AppId, State>) {
        for (app, steps) in &self.apps {
            for step in steps {
                let standing = match states.get_mut(app) {
                    Some(State::Running(standing)) => Some(standing),
                    _ => None,
                };
                match (step, standing) {
                    (AppChange::Started(to) | AppChange::Admitted(to) | AppChange::Resumed(to), _) => {
                        states.insert(app.clone(), State::Running(to.clone()));
                    }
                    (AppChange::Waits, _) => {
                        states.insert(app.clone(), State::Waiting);
                    }
                    (AppChange::Suspended, _) => {
                        states.insert(app.clone(), State::Suspended);
                    }
                    (AppChange::Gone, _) => {
                        states.remove(app);
                    }
                    (AppChange::Moved { to, .. }, Some(standing)) => standing.place = to.clone(),
                    (AppChange::Resized { to, .. }, Some(standing)) => standing.threads = *to,
                    (AppChange::Manner { bind, memory, lends }, Some(standing)) => {
                        (standing.bind, standing.memory, standing.lends) = (*bind, *memory, *lends);
                    }
                    // The change does not belong to these states: what does not run has no place.
                    (
                        AppChange::Moved { .. } | AppChange::Resized { .. } | AppChange::Manner { .. },
                        None,
                    ) => {}
                }
            }
        }
    }
}

impl fmt::Display for Change {
    /// One line: `cg moved 0-3 → 0-1, resized 4 → 2; mg started on 2-3; turns change`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        for (app, steps) in &self.apps {
            let steps: Vec<String> = steps.iter().map(AppChange::to_string).collect();
            parts.push(format!("{app} {}", steps.join(", ")));
        }
        parts.extend(self.turns.then(|| "turns change".to_owned()));
        parts.extend(self.mixing.then(|| "sharing changes".to_owned()));
        if parts.is_empty() {
            parts.push("nothing changes".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

impl fmt::Display for AppChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppChange::Started(to) => write!(f, "starts on {to}"),
            AppChange::Admitted(to) => write!(f, "stops waiting, on {to}"),
            AppChange::Resumed(to) => write!(f, "resumes on {to}"),
            AppChange::Waits => f.write_str("waits"),
            AppChange::Suspended => f.write_str("is suspended"),
            AppChange::Gone => f.write_str("is gone"),
            AppChange::Moved { from, to } => write!(f, "moves {from} → {to}"),
            AppChange::Resized { from, to } => write!(f, "resizes {from} → {to}"),
            AppChange::Manner { bind, memory, lends } => {
                write!(f, "binds {bind:?}, memory {memory:?}, lends {lends}")
            }
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.place, self.threads)
    }
}

/// Everything about a plan that is not one program's own: who meets whom.
struct Structure<'a, F> {
    turns: Vec<Turns<'a, F>>,
    mixed: Vec<(BTreeSet<&'a AppId>, &'a BTreeMap<u32, AppId>)>,
}

/// One `in_turn`, outermost first in tree order.
struct Turns<'a, F> {
    mode: TurnMode,
    slots: &'a [Slot],
    /// Whether a program has several runs.
    several: F,
}

/// Place and team in one slot of a program that may have others in other slots.
type Elsewhere<'a> = Option<(&'a CpuSet, u32)>;

impl<'a, F: Fn(&AppId) -> bool> Turns<'a, F> {
    /// Who stands in a slot, in place of whatever was in the list.
    fn list(&self, slot: &'a Slot, members: &mut Vec<(&'a AppId, Elsewhere<'a>)>) {
        members.clear();
        slot.tree.for_each_run(&mut |run| {
            members.push((&run.app, (self.several)(&run.app).then_some((&run.place, run.threads))));
        });
    }
}

impl<F: Fn(&AppId) -> bool> PartialEq for Turns<'_, F> {
    /// The order in which programs stand in a slot does not count.
    fn eq(&self, other: &Self) -> bool {
        let length = |slot: &Slot| slot.slice_ns;
        // One list each for all slots: there are many, and each holds few.
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        self.mode == other.mode
            && self.slots.iter().map(length).eq(other.slots.iter().map(length))
            && self.slots.iter().zip(other.slots).all(|(one, another)| {
                self.list(one, &mut mine);
                other.list(another, &mut theirs);
                let by_name = |members: &[_]| members.iter().copied().collect::<BTreeMap<_, _>>();
                mine == theirs || by_name(&mine) == by_name(&theirs)
            })
    }
}

impl<'a, F: Fn(&AppId) -> bool + Copy> Structure<'a, F> {
    fn of(plan: &'a Plan, several: F) -> Self {
        let mut structure = Structure { turns: Vec::new(), mixed: Vec::new() };
        if let Some(tree) = &plan.tree {
            structure.collect(tree, several);
        }
        structure
    }

    fn collect(&mut self, tree: &'a Tree, several: F) {
        match tree {
            Tree::InTurn { mode, slots } => self.turns.push(Turns { mode: *mode, slots, several }),
            Tree::Mixed { owner, .. } => self.mixed.push((tree.apps(), owner)),
            Tree::Run(_) | Tree::SideBySide(_) => {}
        }
        tree.children().for_each(|child| self.collect(child, several));
    }
}
