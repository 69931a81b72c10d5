//! The plans of a mix and when they came into force: from the record of its own scheduler, or, under
//! a daemon, from asking it again and again.

use std::path::PathBuf;

use linux::clock::now_ns;
use node::home::Home;
use node::join::Membership;
use plan::Plan;
use protocol::{Client, ClientError, FromScheduler, Status, ToScheduler};

use super::result::PlanAt;

/// How often a daemon is asked.
const ASK_NS: u64 = 100_000_000;

pub struct Plans {
    /// The record, and when its clock began.
    trace: Option<(PathBuf, u64)>,
    /// Plans in text form as a daemon told them, with the time.
    asked: Vec<(u64, String)>,
    client: Option<Client>,
    next_ns: u64,
}

impl Plans {
    pub fn begin(trace: Option<PathBuf>, uptime_ns: u64) -> Plans {
        let trace = trace.map(|path| (path, now_ns().saturating_sub(uptime_ns)));
        Plans { trace, asked: Vec::new(), client: None, next_ns: 0 }
    }

    pub fn poll(&mut self, membership: &Membership) {
        let now = now_ns();
        if self.trace.is_some() || now < self.next_ns {
            return;
        }
        self.next_ns = now + ASK_NS;
        if self.client.is_none() {
            self.client = Client::connect(&membership.home().socket()).ok();
        }
        let Some(client) = &mut self.client else { return };
        match status_from(client) {
            Ok(status) if self.asked.last().is_none_or(|(_, plan)| *plan != status.plan) => {
                self.asked.push((now, status.plan));
            }
            Ok(_) => {}
            Err(_) => self.client = None,
        }
    }

    /// Why the first plan that was not carried out was not, if there is one. A policy that is somebody's
    /// own should not fail in silence.
    pub fn first_refusal(&self) -> Option<String> {
        let recorded = std::fs::read_to_string(&self.trace.as_ref()?.0).ok()?;
        recorded.lines().find_map(|line| match serde_json::from_str(line) {
            Ok(engine::Entry::Rejected { snapshot, why, .. }) => {
                let why: Vec<String> = why.iter().map(ToString::to_string).collect();
                Some(format!("with {} programs: {}", snapshot.apps.len(), why.join("; ")))
            }
            _ => None,
        })
    }

    /// All plans, with times from `began_ns`.
    pub fn end(self, began_ns: u64, end_ns: u64) -> Vec<PlanAt> {
        let timed = match &self.trace {
            Some((path, clock_ns)) => {
                let recorded = std::fs::read_to_string(path).unwrap_or_default();
                recorded.lines().filter_map(plan_of).map(|(at_ns, plan)| (clock_ns + at_ns, plan)).collect()
            }
            None => self
                .asked
                .iter()
                .filter_map(|(at, text)| Some((*at, text.parse().ok()?)))
                .collect::<Vec<(u64, Plan)>>(),
        };
        let mut plans: Vec<PlanAt> = Vec::new();
        for (at_ns, plan) in timed {
            let at_ns = at_ns.saturating_sub(began_ns).min(end_ns);
            if plans.last().is_none_or(|last| last.plan != plan) {
                plans.push(PlanAt { at_ns, plan });
            }
        }
        plans
    }
}

/// The plan that a line of a trace tells, if it tells one.
fn plan_of(line: &str) -> Option<(u64, Plan)> {
    match serde_json::from_str(line) {
        Ok(engine::Entry::Plan { now_ns, plan, .. }) => Some((now_ns, plan.parse().ok()?)),
        _ => None,
    }
}

fn status_from(client: &mut Client) -> Result<Status, ClientError> {
    let is_status = |message: &FromScheduler| matches!(message, FromScheduler::Status { .. });
    match client.ask(&ToScheduler::Status, &mut Vec::new(), is_status)? {
        FromScheduler::Status { status } => Ok(status),
        _ => Err(ClientError::Unexpected),
    }
}

pub fn ask_status(home: &Home) -> Result<Status, ClientError> {
    status_from(&mut Client::connect(&home.socket())?)
}
