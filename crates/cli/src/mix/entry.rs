//! One program of a mix on its way from its arrival to its end.

use std::collections::BTreeMap;
use std::ffi::OsString;

use node::environment;
use node::join::Membership;
use node::launch::{Held, Launch, LaunchError, Running};
use protocol::{Account, AppRecord};
use topology::CpuSet;
use workload::{Program, WaitPolicy};

use super::output::{self, Output};
use super::result::{Ending, ProgramResult};

pub enum State {
    /// Exists and waits for its start; `true`: the scheduler knows it.
    Held(Box<Held>, Box<AppRecord>, bool),
    Runs(Running),
    Ended,
}

pub struct Entry {
    pub result: ProgramResult,
    pub output: Option<Output>,
    /// What it finds in its environment besides its own.
    pub additions: BTreeMap<OsString, OsString>,
    pub state: State,
}

impl Entry {
    /// What its scheduler decided when it let it go.
    pub fn apply_start(&mut self, threads: Option<u32>, waiting: WaitPolicy) {
        if let State::Held(held, ..) = &self.state {
            let decided = environment::additions(|name| held.variable(name), false, threads, waiting);
            self.additions.extend(decided);
        }
    }
}

pub fn register(membership: &mut Membership, entry: &mut Entry) {
    let State::Held(held, record, known @ false) = &mut entry.state else { return };
    if membership.scheduler().is_none() {
        return;
    }
    // Refused or unanswered, it is tried again; after a while it runs without a scheduler.
    if let Ok((id, environment)) = membership.register(AppRecord::clone(record)) {
        entry.result.name = id;
        // What the user says goes before what the policy recommends.
        for (name, value) in environment.into_iter().filter(|(name, _)| held.variable(name).is_none()) {
            entry.additions.entry(name.into()).or_insert(value.into());
        }
        *known = true;
    }
}

pub fn close(entry: &mut Entry, account: Option<Account>, ending: Ending, at_ns: u64) {
    entry.result.ended_ns = Some(at_ns);
    entry.result.ending = ending;
    let Some(account) = account else { return };
    let result = &mut entry.result;
    result.turns = account.turns;
    result.in_turn_ns = account.in_turn_ns;
    result.reconfigurations = account.reconfigurations;
    result.moves = account.moves;
    result.width_ns = account.width_ns;
    result.cpu_time_ns = account.cpu_time_ns;
    result.regions = account.regions;
    result.estimated = account.slowdown;
}

/// The program as its file describes it.
pub fn launch(program: &Program, files: output::Files) -> Result<Launch, LaunchError> {
    let stdin = match files.stdin {
        Some(file) => file,
        // Several programs cannot read one terminal.
        None => std::fs::File::open("/dev/null")?,
    };
    Ok(Launch {
        command: program.command.iter().map(OsString::from).collect(),
        directory: Some(program.directory.clone()),
        environment: program.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        stdin: Some(stdin.into()),
        stdout: Some(files.stdout.into()),
        stderr: Some(files.stderr.into()),
    })
}

pub fn own_cpus() -> linux::Result<CpuSet> {
    linux::affinity::get(std::process::id())
}
