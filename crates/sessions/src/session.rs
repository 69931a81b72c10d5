//! Sessions of an allocation: who runs where, who is suspended, who waits.
//!
//! # Problem
//!
//! A simulation occupies an allocation; its user starts a short analysis beside it.
//!
//! # Source
//!
//! "Dynamic Process Management with Allocation-Internal Co-Scheduling towards Interactive Supercomputing"
//! (ParaStation), section 3.2, in the proceedings of COSH 2016.
//!
//! # Rule
//!
//! While slots are free, sessions have theirs for themselves. When a newcomer does not fit any more, its policy says
//! what happens:
//!
//! | policy | the paper's name | |
//! |---|---|---|
//! | `wait` | wait | it waits until slots are free, in order of arrival |
//! | `pause` | surpass | sessions are suspended until it ends: the latest first, only as many as it needs, or all; only another that pauses may have their slots meanwhile |
//! | `share` | overbook | it runs on cores that others have; pinned beside them, or all of a node's processes free on all its cores |
//! | `move-aside` | sidestep | it gets cores for itself; the processes that had them move to the other cores of their node until it ends |
//!
//! Where a policy does not help (nothing to pause, no other core to move to), a newcomer waits.
//!
//! # Where we differ
//!
//! The paper has all predecessors suspended; [`Pause::Needed`] leaves those alone whose slots are not needed.
//!
//! # Properties
//!
//! - whoever has waited starts at last: `every_session_starts_and_ends`
//! - what was moved or suspended for a newcomer is as before when it ends: `guests_leave_everything_as_it_was`
//! - free slots are used before anybody is disturbed: `nobody_is_disturbed_while_slots_are_free`

use std::collections::BTreeMap;

use plan::{Plan, Run, Tree};
use topology::CpuSet;
use workload::AppId;

use crate::allocation::{Allocation, Layout, Process, Shape, place};

/// What happens for a newcomer when slots are exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits.
    Wait,
    /// Others are suspended for it.
    Pause(Pause),
    /// It runs on cores that others have.
    Share(Share),
    /// Others make room on their nodes.
    MoveAside,
}

/// Who is suspended for a newcomer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pause {
    /// The latest sessions, as many as it takes.
    #[default]
    Needed,
    /// All.
    All,
}

/// Who may use which of the cores that are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// On the newcomer's nodes, every process may use every core.
    #[default]
    Free,
    /// The newcomer's processes have the same cores as some that were there before.
    Pinned,
}

/// What a session's user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique among the sessions of an allocation.
    pub id: AppId,
    /// Its processes.
    pub shape: Shape,
    /// Where they begin.
    pub layout: Layout,
    /// What happens when slots are exhausted.
    pub when_full: WhenFull,
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It is stopped until others end.
    Suspended,
    /// It has not begun.
    Waiting,
}

#[derive(Clone, Debug)]
struct Session {
    request: Request,
    state: State,
    /// Where its processes stood when it began; empty while it waits.
    own: Vec<Process>,
    /// Sessions that are suspended for it.
    suspends: Vec<AppId>,
}

/// Why a session is not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The allocation is smaller than the session, whoever makes room.
    #[error(
        "{id} needs {slots} slots in processes of {threads} threads; this allocation has {nodes} nodes of {cores} cores"
    )]
    TooLarge {
        /// Whose.
        id: AppId,
        /// Of all its processes.
        slots: u64,
        /// Of each process.
        threads: u32,
        /// Of the allocation.
        nodes: usize,
        /// Of each node.
        cores: u32,
    },
    /// A session of this name is there.
    #[error("there is a session {0} already")]
    NameTaken(AppId),
    /// It has no process, or processes without threads.
    #[error("{0} has no process, or processes without threads")]
    Empty(AppId),
}

/// All sessions of an allocation.
#[derive(Clone, Debug)]
pub struct Sessions {
    allocation: Allocation,
    /// In order of arrival.
    sessions: Vec<Session>,
}

impl Sessions {
    /// Nobody is there.
    pub fn new(allocation: Allocation) -> Sessions {
        Sessions { allocation, sessions: Vec::new() }
    }

    /// Somebody asks for a session; whoever can, starts.
    pub fn request(&mut self, request: Request) -> Result<(), Refused> {
        let (id, shape) = (request.id.clone(), request.shape);
        if shape.slots() == 0 {
            return Err(Refused::Empty(id));
        }
        if self.find(&id).is_some() {
            return Err(Refused::NameTaken(id));
        }
        let Allocation { nodes, cores } = self.allocation;
        if place(shape, request.layout, &vec![self.allocation.all(); nodes]).is_none() {
            return Err(Refused::TooLarge { id, slots: shape.slots(), threads: shape.threads, nodes, cores });
        }
        self.sessions.push(Session { request, state: State::Waiting, own: Vec::new(), suspends: Vec::new() });
        self.start_waiting();
        Ok(())
    }

    /// A session has ended, or its user gave up waiting. What was done for it is undone.
    pub fn end(&mut self, id: &AppId) {
        let Some(at) = self.sessions.iter().position(|session| session.request.id == *id) else { return };
        let ended = self.sessions.remove(at);
        // What it had suspended goes on, unless another needs that, too.
        for suspended in &ended.suspends {
            if !self.sessions.iter().any(|session| session.suspends.contains(suspended))
                && let Some(session) =
                    self.sessions.iter_mut().find(|session| session.request.id == *suspended)
            {
                session.state = State::Running;
            }
        }
        self.start_waiting();
    }

    /// How each stands, in order of arrival.
    pub fn states(&self) -> impl Iterator<Item = (&AppId, State)> {
        self.sessions.iter().map(|session| (&session.request.id, session.state))
    }

    /// How one stands.
    pub fn state(&self, id: &AppId) -> Option<State> {
        self.find(id).map(|session| session.state)
    }

    fn find(&self, id: &AppId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.request.id == *id)
    }

    /// Those that run, the first to come first.
    fn running(&self) -> impl DoubleEndedIterator<Item = &Session> {
        self.sessions.iter().filter(|session| session.state == State::Running)
    }

    /// Of each node, the cores that nobody has who is not excepted. Those that are suspended keep theirs.
    fn free_without(&self, excepted: &[AppId]) -> Vec<CpuSet> {
        let mut free = vec![self.allocation.all(); self.allocation.nodes];
        let counted = self.sessions.iter().filter(|session| !excepted.contains(&session.request.id));
        // Who was moved aside has both: where it is now, and where it goes back to.
        let places = self.places();
        let now = places.iter().filter(|(id, _)| !excepted.contains(id)).flat_map(|(_, processes)| processes);
        for process in counted.flat_map(|session| &session.own).chain(now) {
            free[process.node] = free[process.node].difference(&process.cores);
        }
        free
    }

    /// Starts those that wait, in order of arrival; nobody overtakes.
    fn start_waiting(&mut self) {
        while let Some(at) = self.sessions.iter().position(|session| session.state == State::Waiting) {
            let request = &self.sessions[at].request;
            let Some((own, suspends)) = self.room_for(request) else { return };
            let suspended = self.sessions.iter_mut().filter(|session| suspends.contains(&session.request.id));
            suspended.for_each(|session| session.state = State::Suspended);
            let session = &mut self.sessions[at];
            (session.own, session.suspends, session.state) = (own, suspends, State::Running);
        }
    }

    /// Where a newcomer could begin now, and who would be suspended for it.
    fn room_for(&self, request: &Request) -> Option<(Vec<Process>, Vec<AppId>)> {
        let placed = |free: &[CpuSet]| place(request.shape, request.layout, free);
        if let Some(own) = placed(&self.free_without(&[])) {
            return Some((own, Vec::new()));
        }
        match request.when_full {
            WhenFull::Wait => None,
            WhenFull::Pause(pause) => self.paused_for(request, pause),
            WhenFull::Share(_) => {
                Some((placed(&vec![self.allocation.all(); self.allocation.nodes])?, Vec::new()))
            }
            WhenFull::MoveAside => Some((placed(&self.free_of_guests())?, Vec::new())),
        }
    }

    /// Cores from which others can be moved: those that no session has for which others have moved already, but for one
    /// on each node where somebody must have a core to go to (also who is suspended, and is to go on one day).
    fn free_of_guests(&self) -> Vec<CpuSet> {
        let mut free = vec![self.allocation.all(); self.allocation.nodes];
        let is_guest = |session: &&Session| session.request.when_full == WhenFull::MoveAside;
        let (guests, others): (Vec<&Session>, Vec<&Session>) = self.sessions.iter().partition(is_guest);
        for process in guests.iter().flat_map(|session| &session.own) {
            free[process.node] = free[process.node].difference(&process.cores);
        }
        for (node, free) in free.iter_mut().enumerate() {
            let is_here = |process: &Process| process.node == node;
            if others.iter().flat_map(|session| &session.own).any(is_here)
                && let Some(last) = free.highest()
            {
                free.remove(last);
            }
        }
        free
    }

    fn paused_for(&self, request: &Request, pause: Pause) -> Option<(Vec<Process>, Vec<AppId>)> {
        let of_state = |state: State| self.sessions.iter().filter(move |session| session.state == state);
        let id_of = |session: &Session| session.request.id.clone();
        // Who is suspended already is in nobody's way, and stays so for as long as the newcomer has its cores.
        let mut suspended: Vec<AppId> = of_state(State::Suspended).map(id_of).collect();
        let mut running: Vec<AppId> = of_state(State::Running).map(id_of).collect();
        loop {
            let is_tried = pause == Pause::Needed || running.is_empty();
            let own = is_tried
                .then(|| place(request.shape, request.layout, &self.free_without(&suspended)))
                .flatten();
            match (own, running.pop()) {
                (Some(own), _) => {
                    suspended
                        .retain(|id| self.state(id) == Some(State::Running) || self.has_any_of(id, &own));
                    return Some((own, suspended));
                }
                (None, Some(latest)) => suspended.push(latest),
                (None, None) => return None,
            }
        }
    }

    /// Whether a session has cores that these processes are to have.
    fn has_any_of(&self, id: &AppId, processes: &[Process]) -> bool {
        let overlaps = |own: &Process| {
            processes.iter().any(|other| own.node == other.node && own.cores.intersects(&other.cores))
        };
        self.find(id).is_some_and(|session| session.own.iter().any(overlaps))
    }

    /// Where the processes of each session that runs may be now, in the order of its processes. An empty set: there is
    /// no core left (which only a plan that is tried can have).
    pub fn places(&self) -> BTreeMap<AppId, Vec<Process>> {
        let (running, shared): (Vec<&Session>, Vec<bool>) = (self.running().collect(), self.shared_nodes());
        let all = self.allocation.all();
        let of_session = |(at, session): (usize, &&Session)| {
            let asides =
                running[at + 1..].iter().filter(|later| later.request.when_full == WhenFull::MoveAside);
            let mut taken = vec![CpuSet::default(); self.allocation.nodes];
            for process in asides.flat_map(|later| &later.own) {
                taken[process.node] = taken[process.node].union(&process.cores);
            }
            let place = |process: &Process| {
                let cores = if shared[process.node] { &all } else { &process.cores };
                let taken = &taken[process.node];
                // Not only those of its own that are left: all that the newcomers do not have.
                let cores = if cores.intersects(taken) { all.difference(taken) } else { cores.clone() };
                Process { node: process.node, cores }
            };
            (session.request.id.clone(), session.own.iter().map(place).collect())
        };
        running.iter().enumerate().map(of_session).collect()
    }

    /// Nodes on which every process may use every core: a session that shares freely came to cores of others there.
    fn shared_nodes(&self) -> Vec<bool> {
        let mut shared = vec![false; self.allocation.nodes];
        for session in
            self.running().filter(|session| session.request.when_full == WhenFull::Share(Share::Free))
        {
            for process in &session.own {
                shared[process.node] |= self.overlaps_anybody(session, process);
            }
        }
        shared
    }

    /// Whether a process stands on cores that a session had before its own.
    fn overlaps_anybody(&self, session: &Session, process: &Process) -> bool {
        let before = self.running().take_while(|other| other.request.id != session.request.id);
        let mut theirs = before.flat_map(|other| &other.own);
        theirs.any(|other| other.node == process.node && other.cores.intersects(&process.cores))
    }

    /// What a node is to do, as a plan: each session's part of it.
    pub fn node_plan(&self, node: usize) -> Plan {
        let mut runs: Vec<Run> = Vec::new();
        for (id, processes) in self.places() {
            let here: Vec<&Process> = processes.iter().filter(|process| process.node == node).collect();
            let place = here.iter().fold(CpuSet::default(), |place, process| place.union(&process.cores));
            if !here.is_empty() {
                let threads =
                    self.find(&id).map_or(0, |session| session.request.shape.threads) * here.len() as u32;
                runs.push(Run { threads, ..Run::new(id, place) });
            }
        }
        let is_apart =
            |(at, run): (usize, &Run)| runs[at + 1..].iter().all(|other| !other.place.intersects(&run.place));
        let has_room = |run: &Run| run.threads as usize <= run.place.len();
        let is_exclusive = runs.iter().enumerate().all(is_apart) && runs.iter().all(has_room);
        let parts: Vec<Tree> = runs.into_iter().map(Tree::Run).collect();
        let tree = match (parts.len(), is_exclusive) {
            (0, _) => None,
            (1, true) => parts.into_iter().next(),
            (_, true) => Some(Tree::SideBySide(parts)),
            (_, false) => Some(Tree::Mixed { owner: BTreeMap::new(), parts }),
        };
        let of_state = |state: State| {
            let is_here = |session: &&Session| {
                session.state == state
                    && (session.own.is_empty() || session.own.iter().any(|process| process.node == node))
            };
            self.sessions.iter().filter(is_here).map(|session| session.request.id.clone()).collect()
        };
        Plan { tree, waiting: of_state(State::Waiting), suspended: of_state(State::Suspended) }
    }
}
