//! Sessions in simulated time.
//!
//! # Law
//!
//! Processes of a session do the same amount of work, without messages; a session ends with the last of them. A thread
//! goes on at the product of
//!
//! - its share of a core: a core that is asked for by several is shared equally; a process that may use several cores
//!   asks for each of them with its threads divided by their number;
//! - what memory leaves it: the threads that run on a node at a time share its bandwidth equally, of which
//!   `saturating` threads can use all; fewer are not slowed.
//!
//! A session that is suspended stands still. Suspending, resuming and moving cost nothing.

use std::collections::BTreeMap;

use workload::AppId;

use crate::allocation::{Allocation, Process};
use crate::session::{Refused, Request, Sessions, State};

/// A session with its work.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What its user asks for.
    pub request: Request,
    /// When, s.
    pub requested_s: f64,
    /// How long each of its threads would take at full speed, s.
    pub work_s: f64,
}

/// What became of a session, s since the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// When its user asked for it.
    pub requested_s: f64,
    /// When it began to run.
    pub began_s: f64,
    /// When the last of its processes ended.
    pub ended_s: f64,
}

impl Times {
    /// From the request to the start.
    pub fn wait_s(&self) -> f64 {
        self.began_s - self.requested_s
    }

    /// From the start to the end.
    pub fn execution_s(&self) -> f64 {
        self.ended_s - self.began_s
    }

    /// From the request to the end.
    pub fn response_s(&self) -> f64 {
        self.ended_s - self.requested_s
    }
}

/// What a node's memory can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Threads of the benchmark that use up a node's bandwidth.
    pub saturating: f64,
}

struct Live {
    began_s: f64,
    /// Of each process, s at full speed.
    left_s: Vec<f64>,
}

/// Plays sessions to the end of all.
pub fn simulate(
    allocation: Allocation,
    memory: Memory,
    jobs: &[Job],
) -> Result<BTreeMap<AppId, Times>, Refused> {
    let mut sessions = Sessions::new(allocation);
    let mut live: BTreeMap<AppId, Live> = BTreeMap::new();
    let mut ended = BTreeMap::new();
    let mut coming: Vec<&Job> = jobs.iter().collect();
    // Those at the same time in their order.
    coming.sort_by(|one, other| other.requested_s.total_cmp(&one.requested_s));
    let job_of = |id: &AppId| jobs.iter().find(|job| job.request.id == *id);
    let mut now_s = 0.0;
    loop {
        let begun: Vec<AppId> = sessions
            .states()
            .filter(|(id, state)| *state == State::Running && !live.contains_key(id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in begun {
            let Some(job) = job_of(&id) else { continue };
            let left_s = vec![job.work_s; job.request.shape.processes as usize];
            live.insert(id, Live { began_s: now_s, left_s });
        }
        let speeds = speeds(allocation, memory, &sessions, jobs, &live);
        let ends = live.iter().flat_map(|(id, session)| {
            let speeds = speeds.get(id);
            session.left_s.iter().enumerate().filter_map(move |(at, left_s)| {
                let speed = *speeds?.get(at)?;
                (*left_s > 0.0 && speed > 0.0).then(|| left_s / speed)
            })
        });
        let step_s = ends.min_by(f64::total_cmp);
        let arrival_s = coming.last().map(|job| job.requested_s - now_s);
        let Some(passed_s) = [step_s, arrival_s].into_iter().flatten().min_by(f64::total_cmp) else {
            return Ok(ended);
        };
        now_s += passed_s;
        for (id, session) in &mut live {
            for (left_s, speed) in session.left_s.iter_mut().zip(speeds.get(id).into_iter().flatten()) {
                let rest_s = *left_s - passed_s * speed;
                // What is left of a subtraction is no work.
                *left_s = if rest_s > 1e-9 { rest_s } else { 0.0 };
            }
        }
        let done = |(id, session): (&AppId, &Live)| {
            session.left_s.iter().all(|left_s| *left_s == 0.0).then(|| id.clone())
        };
        let over: Vec<AppId> = live.iter().filter_map(done).collect();
        for id in over {
            let began_s = live.remove(&id).map_or(now_s, |session| session.began_s);
            let requested_s = job_of(&id).map_or(now_s, |job| job.requested_s);
            sessions.end(&id);
            ended.insert(id, Times { requested_s, began_s, ended_s: now_s });
        }
        while let Some(job) = coming.pop_if(|job| job.requested_s <= now_s) {
            sessions.request(job.request.clone())?;
        }
    }
}

/// How fast each process of the sessions that run goes on, in the order of its processes.
fn speeds(
    allocation: Allocation,
    memory: Memory,
    sessions: &Sessions,
    jobs: &[Job],
    live: &BTreeMap<AppId, Live>,
) -> BTreeMap<AppId, Vec<f64>> {
    let places = sessions.places();
    let threads_of = |id: &AppId| {
        let job = jobs.iter().find(|job| job.request.id == *id);
        job.map_or(0.0, |job| f64::from(job.request.shape.threads))
    };
    let works = |id: &AppId, at: usize| live.get(id).is_some_and(|session| session.left_s[at] > 0.0);
    // How many threads ask for each core of each node.
    let mut asked = vec![vec![0.0; allocation.cores as usize]; allocation.nodes];
    let each = || {
        places
            .iter()
            .flat_map(|(id, processes)| processes.iter().enumerate().map(move |(at, it)| (id, at, it)))
    };
    for (id, _, process) in each().filter(|(id, at, _)| works(id, *at)) {
        let density = threads_of(id) / process.cores.len().max(1) as f64;
        process.cores.iter().for_each(|core| asked[process.node][core as usize] += density);
    }
    let share = |process: &Process| {
        let of_core = |core: u32| 1.0 / asked[process.node][core as usize].max(1.0);
        process.cores.iter().map(of_core).sum::<f64>() / process.cores.len().max(1) as f64
    };
    let mut running = vec![0.0; allocation.nodes];
    for (id, _, process) in each().filter(|(id, at, _)| works(id, *at)) {
        running[process.node] += threads_of(id) * share(process);
    }
    let left = |node: usize| (memory.saturating / running[node]).min(1.0);
    let of_session = |(id, processes): (&AppId, &Vec<Process>)| {
        let speeds = processes.iter().map(|process| share(process) * left(process.node)).collect();
        (id.clone(), speeds)
    };
    places.iter().map(of_session).collect()
}
