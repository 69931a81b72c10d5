//! The gang clock: one thread that turns the wheels in time.
//!
//! At each switch it stops who goes out and lets go who comes in, the one right after the other, so
//! that two gangs never run together longer than the mechanism takes. It runs at the highest priority it can
//! get, because on a machine full of spinning threads a clock of ordinary priority comes late by
//! whole slices. It plans nothing: the rotation and the members come from the actuator.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use linux::clock::{Priority, now_ns, raise_priority};
use linux::host::{self, Thread};
use plan::TurnMode;
use workload::AppId;

use crate::rotor::Rotation;
use crate::switch_log::SwitchLog;

/// Keeps one application from running, and lets it run again. Both must be idempotent.
pub trait Turn: Send {
    fn stop(&mut self) -> linux::Result<()>;
    fn resume(&mut self) -> linux::Result<()>;
    /// Whether it is let go before those who go out are stopped, so that its threads wait for their CPUs
    /// when these become free: a CPU that goes idle in between has to be woken, which in a virtual machine
    /// costs more than the switch.
    fn resumes_first(&self) -> bool {
        false
    }
    /// Whether all of it stands because somebody else has stopped it, as was found when it was last to stop or to go.
    fn is_stopped_by_others(&self) -> bool {
        false
    }
}

/// What the clock counted.
#[derive(Clone, Debug, Default)]
pub struct ClockStats {
    pub switches: u64,
    /// How late the latest switches came, and how long their calls took; at most `KEPT` each.
    pub lateness_ns: Vec<u64>,
    pub switching_ns: Vec<u64>,
    pub turns: BTreeMap<AppId, u64>,
    pub in_turn_ns: BTreeMap<AppId, u64>,
    /// How long each has been kept from running.
    pub still_ns: BTreeMap<AppId, u64>,
    /// Applications that could not be stopped or let go, with the reason; emptied when read.
    pub failures: BTreeMap<AppId, linux::Error>,
    /// What the thread's priority is, in words.
    pub priority: String,
}

const KEPT: usize = 4096;

/// Nobody who stands still for longer than this is passed over when a new plan begins.
const STOOD_LONG_NS: u64 = 100_000_000;

/// Everybody that the clock may have to stop, and by which way of taking turns.
pub type Members = BTreeMap<AppId, (TurnMode, Box<dyn Turn>)>;

#[derive(Default)]
struct State {
    rotation: Option<Rotation>,
    members: Members,
    /// Members that stand still for as long as the plan is in force, whatever the wheels say.
    held: BTreeSet<AppId>,
    /// Since when each stopped member has stood still.
    stopped: BTreeMap<AppId, u64>,
    /// When each was let go last.
    let_go: BTreeMap<AppId, u64>,
    /// When the rotation was last moved on.
    at_ns: u64,
    /// When the time in turn was last counted.
    counted_ns: u64,
    stats: ClockStats,
    log: SwitchLog,
    end: bool,
}

impl State {
    fn running(&self) -> BTreeSet<AppId> {
        self.rotation.as_ref().map(Rotation::running).unwrap_or_default()
    }

    /// Makes the members' state what the wheels say.
    fn switch(&mut self) {
        let (running, now) = (self.running(), now_ns());
        let came = self.resume_in_turn(&running, true);
        let went = self.stop_out_of_turn(&running, now);
        if self.resume_in_turn(&running, false) | came | went {
            self.stats.switches += 1;
            let written = now_ns();
            keep(&mut self.stats.switching_ns, self.stats.switches, written - now);
            self.log.note(now, written);
        }
    }

    /// Stops those who are not to run; whether there were any.
    fn stop_out_of_turn(&mut self, running: &BTreeSet<AppId>, now: u64) -> bool {
        let State { members, held, stopped, stats, .. } = self;
        let mut changed = false;
        for (app, (_, turn)) in members.iter_mut() {
            if (held.contains(app) || !running.contains(app)) && !stopped.contains_key(app) {
                changed = true;
                match turn.stop() {
                    Ok(()) => drop(stopped.insert(app.clone(), now)),
                    Err(error) => drop(stats.failures.insert(app.clone(), error)),
                }
            }
        }
        changed
    }

    /// Lets go those who stand still and are to run; whether there were any.
    fn resume_in_turn(&mut self, running: &BTreeSet<AppId>, first: bool) -> bool {
        let State { members, held, stopped, let_go, stats, .. } = self;
        let mut changed = false;
        for (app, (_, turn)) in members.iter_mut().filter(|entry| entry.1.1.resumes_first() == first) {
            if running.contains(app) && !held.contains(app) && stopped.contains_key(app) {
                changed = true;
                match turn.resume() {
                    Ok(()) => {
                        stopped.remove(app);
                        let_go.insert(app.clone(), now_ns());
                        *stats.turns.entry(app.clone()).or_default() += 1;
                    }
                    Err(error) => drop(stats.failures.insert(app.clone(), error)),
                }
            }
        }
        changed
    }

    /// Counts the time since the last look for those who were in turn and for those who were not.
    fn count(&mut self, now: u64) {
        let passed = now - self.counted_ns;
        for app in self.members.keys() {
            let stopped = self.stopped.contains_key(app);
            let count = if stopped { &mut self.stats.still_ns } else { &mut self.stats.in_turn_ns };
            *count.entry(app.clone()).or_default() += passed;
        }
        self.counted_ns = now;
    }
}

fn keep(samples: &mut Vec<u64>, number: u64, sample: u64) {
    if samples.len() < KEPT {
        samples.push(sample);
    } else {
        samples[number as usize % KEPT] = sample;
    }
}

/// A handle on the running clock; dropping it lets everybody go.
pub struct Clock {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<Box<dyn Thread>>,
}

impl Clock {
    pub fn start() -> io::Result<Clock> {
        let log = SwitchLog::from_environment();
        let state = State { counted_ns: now_ns(), log, ..State::default() };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let thread = host::with(|host| host.spawn("gang-clock", Box::new(move || run(&theirs))))?;
        Ok(Clock { shared, thread: Some(thread) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        host::lock(&self.shared.0)
    }

    /// Turns by `rotation` from now on. `members` are all who take turns or stand still; whoever
    /// was a member and is none any more is let go. `held` members stand still.
    pub fn set(&self, rotation: Rotation, members: Members, held: BTreeSet<AppId>) {
        let mut state = self.state();
        let now = now_ns();
        state.count(now);
        let mut rotation = rotation;
        let longest =
            state.stopped.iter().filter(|entry| members.contains_key(entry.0) && !held.contains(entry.0));
        match longest.min_by_key(|entry| *entry.1) {
            Some((app, &since)) if now - since > STOOD_LONG_NS => {
                rotation.begin_with(&[app.clone()].into());
            }
            _ => rotation.begin_with(&state.running()),
        }
        let State { members: current, stopped, let_go, stats, .. } = &mut *state;
        let mut former = std::mem::replace(current, members);
        // Whoever stays goes on as it stands; whoever leaves, or takes turns in another way from
        // now on, is let go by the means by which it was stopped.
        for (app, member) in current.iter_mut() {
            if former.get(app).is_some_and(|old| old.0 == member.0) {
                std::mem::swap(member, former.get_mut(app).expect("just found"));
                former.remove(app);
            }
        }
        for (app, (_, mut turn)) in former {
            if stopped.remove(&app).is_none() {
                continue;
            }
            if let Err(error) = turn.resume() {
                stats.failures.insert(app.clone(), error);
            }
            let_go.insert(app, now_ns());
        }
        state.rotation = Some(rotation);
        state.at_ns = now;
        state.held = held;
        state.switch();
        drop(state);
        self.shared.1.notify_one();
    }

    /// Lets one application go now and takes it out of the rotation, because it is to die, or because its user has
    /// stopped it: a stop by somebody else holds.
    pub fn release(&self, app: &AppId) {
        let mut state = self.state();
        if let Some((_, mut turn)) = state.members.remove(app) {
            state.stopped.remove(app);
            if let Err(error) = turn.resume() {
                state.stats.failures.insert(app.clone(), error);
            }
            state.let_go.insert(app.clone(), now_ns());
        }
    }

    /// Whether the clock itself has kept this application from running at any time since then, and nobody else has.
    pub fn stopped_since(&self, app: &AppId, since_ns: u64) -> bool {
        let state = self.state();
        if state.members.get(app).is_some_and(|(_, turn)| turn.is_stopped_by_others()) {
            return false;
        }
        state.stopped.contains_key(app) || state.let_go.get(app).is_some_and(|at_ns| *at_ns >= since_ns)
    }

    pub fn stats(&self) -> ClockStats {
        let mut state = self.state();
        state.count(now_ns());
        let failures = std::mem::take(&mut state.stats.failures);
        ClockStats { failures, ..state.stats.clone() }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.set(Rotation::new(None), BTreeMap::new(), BTreeSet::new());
        self.state().end = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            // A clock that panicked has been reported by the panic itself; everybody is let go.
            thread.join();
        }
    }
}

fn run(shared: &(Mutex<State>, Condvar)) {
    let priority = match raise_priority() {
        Priority::RealTime { priority } => format!("real time, {priority}"),
        Priority::Nice { nice } => format!("nice {nice}"),
        Priority::Unchanged { why } => format!("ordinary: {why}"),
    };
    // A poisoned lock still holds consistent-enough state to let everybody go, which matters more.
    let mut state = host::lock(&shared.0);
    state.stats.priority = priority;
    loop {
        if state.end {
            return;
        }
        let now = now_ns();
        let due = state.rotation.as_ref().and_then(Rotation::next_change_ns);
        let Some(due_ns) = due.map(|left| state.at_ns + left) else {
            state = host::wait(&shared.1, &shared.0, state, None);
            continue;
        };
        if due_ns > now {
            state = host::wait(&shared.1, &shared.0, state, Some(due_ns));
            continue;
        }
        let passed = now - state.at_ns;
        let switches = state.stats.switches;
        keep(&mut state.stats.lateness_ns, switches, now - due_ns);
        state.count(now);
        state.at_ns = now;
        if let Some(rotation) = &mut state.rotation {
            rotation.advance(passed);
        }
        state.switch();
    }
}
