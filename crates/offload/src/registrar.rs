//! Programs with their tasks, between messages and the [`Dispatcher`]: a function of what comes, without sockets.
//!
//! # Properties
//!
//! - whatever programs say, in whatever order, resources and queues stay whole: `no_message_breaks_the_queues`
//! - a program that goes leaves nothing: `a_program_that_goes_frees_what_it_had`

use std::collections::BTreeMap;

use crate::board::Start;
use crate::dispatch::{Dispatcher, Event, Note};
use crate::messages::{Answer, Busy, Offer, Request, Shown, Started, Status, VERSION};
use crate::registry;
use crate::task::{Kernel, ResourceId, Task, TaskId};

/// A program by its connection; numbers are never given again.
pub type ProgramId = u64;

/// Tasks that one program may have at a time.
pub const MOST_TASKS: usize = 10_000;
/// Kernels that one task may have.
pub const MOST_KERNELS: usize = 64;
/// Letters of a program's name.
const MOST_LETTERS: usize = 64;
/// Failures that are kept for `status`.
const MOST_FAILURES: usize = 20;

#[derive(Debug, Default)]
struct Program {
    /// `None`: it has not said hello.
    name: Option<String>,
    /// By its own numbers.
    tasks: BTreeMap<u64, TaskId>,
}

/// All programs of a node.
pub struct Registrar {
    dispatcher: Dispatcher,
    programs: BTreeMap<ProgramId, Program>,
    /// Whose a task is, and the program's own number of it.
    owners: BTreeMap<TaskId, (ProgramId, u64)>,
    shown: Vec<Shown>,
    ended: u64,
    failures: Vec<String>,
}

/// What programs are told.
pub type Answers = Vec<(ProgramId, Answer)>;

impl Registrar {
    /// Nobody is there.
    pub fn new(dispatcher: Dispatcher) -> Registrar {
        let mut counts = BTreeMap::new();
        let show = |resource: &crate::task::Resource| {
            let count: &mut usize = counts.entry(resource.kind.clone()).or_default();
            *count += 1;
            let (name, kind, index) = (resource.name.clone(), resource.kind.clone(), *count - 1);
            Shown { name, kind, index, cores: resource.cores.to_string() }
        };
        let shown = dispatcher.board().resources().iter().map(show).collect();
        let (programs, owners) = Default::default();
        Registrar { dispatcher, programs, owners, shown, ended: 0, failures: Vec::new() }
    }

    /// A program has connected.
    pub fn join(&mut self, id: ProgramId) {
        self.programs.entry(id).or_default();
    }

    /// It has gone, whatever it had promised.
    pub fn leave(&mut self, id: ProgramId, now_ns: u64) -> Answers {
        let Some(program) = self.programs.remove(&id) else { return Vec::new() };
        let mut answers = Vec::new();
        for task in program.tasks.into_values() {
            answers.extend(self.finish(task, now_ns));
        }
        answers
    }

    /// How often [`Registrar::tick`] wants to be called.
    pub fn tick_ns(&self) -> Option<u64> {
        self.dispatcher.strategy().tick_ns()
    }

    /// So much time has passed.
    pub fn tick(&mut self, now_ns: u64) -> Answers {
        let starts = self.dispatcher.handle(Event::Tick, now_ns);
        self.answers_to(starts)
    }

    /// A program says something. It is told more than once where others start by it.
    pub fn handle(&mut self, from: ProgramId, request: Request, now_ns: u64) -> Answers {
        let Some(program) = self.programs.get_mut(&from) else { return Vec::new() };
        let refused = |task, why: String| vec![(from, Answer::Refused { task, why })];
        match request {
            Request::Hello { version: VERSION, program: name } => {
                let name: String = name.chars().filter(|c| !c.is_control()).take(MOST_LETTERS).collect();
                program.name = Some(if name.is_empty() { format!("program {from}") } else { name });
                vec![(from, Answer::Hello { version: VERSION, resources: self.shown.clone() })]
            }
            Request::Hello { version, .. } => {
                refused(None, format!("it speaks version {version}, and this service {VERSION}"))
            }
            _ if program.name.is_none() => refused(None, "hello comes first".to_owned()),
            Request::Submit { task, kernels } => match self.submit(from, task, kernels, now_ns) {
                Ok(answers) => answers,
                Err(why) => refused(Some(task), why),
            },
            Request::Ended { task } => match program.tasks.remove(&task) {
                Some(id) => self.finish(id, now_ns),
                None => refused(Some(task), "there is no such task".to_owned()),
            },
            Request::Status => vec![(from, Answer::Status(self.status()))],
            Request::SetGovernor(governor) => {
                let starts = self.dispatcher.handle(Event::Governor(governor), now_ns);
                let mut answers = self.answers_to(starts);
                answers.push((from, Answer::Done));
                answers
            }
            Request::SetStrategy { name, text } => match registry::strategy(&name, text.as_deref()) {
                Ok(strategy) => {
                    let starts = self.dispatcher.swap(strategy, now_ns);
                    let mut answers = self.answers_to(starts);
                    answers.push((from, Answer::Done));
                    answers
                }
                Err(why) => refused(None, why.to_string()),
            },
        }
    }

    fn submit(
        &mut self,
        from: ProgramId,
        number: u64,
        offers: Vec<Offer>,
        now_ns: u64,
    ) -> Result<Answers, String> {
        let Some(program) = self.programs.get_mut(&from) else { return Ok(Vec::new()) };
        if program.tasks.contains_key(&number) {
            return Err("a task of this number has not ended".to_owned());
        }
        if program.tasks.len() >= MOST_TASKS {
            return Err(format!("it has {MOST_TASKS} tasks already"));
        }
        if offers.is_empty() || offers.len() > MOST_KERNELS {
            return Err(format!("a task has 1 to {MOST_KERNELS} kernels"));
        }
        let is_doubled = |at: &usize| offers[..*at].iter().any(|before| before.on == offers[*at].on);
        if let Some(at) = (0..offers.len()).find(is_doubled) {
            return Err(format!("it has two kernels for {}", offers[at].on));
        }
        if !offers.iter().any(|offer| self.shown.iter().any(|shown| shown.kind == offer.on)) {
            return Err("none of its kernels is for a resource that is here".to_owned());
        }
        let name = program.name.clone().unwrap_or_default();
        let task = Task {
            program: name,
            arrived_ns: now_ns,
            kernels: offers.into_iter().map(Kernel::from).collect(),
        };
        // The dispatcher gives it this number, and may start it at once.
        let id = self.dispatcher.next_task();
        program.tasks.insert(number, id);
        self.owners.insert(id, (from, number));
        let starts = self.dispatcher.handle(Event::Arrived(task), now_ns);
        Ok(self.answers_to(starts))
    }

    fn finish(&mut self, id: TaskId, now_ns: u64) -> Answers {
        self.owners.remove(&id);
        self.ended += 1;
        let starts = self.dispatcher.handle(Event::Ended(id), now_ns);
        self.answers_to(starts)
    }

    fn answers_to(&mut self, starts: Vec<Start>) -> Answers {
        for Note::Replaced { strategy, why, by } in self.dispatcher.take_notes() {
            self.failures.push(format!("{strategy} failed, and {by} took its place: {why}"));
        }
        let too_many = self.failures.len().saturating_sub(MOST_FAILURES);
        self.failures.drain(..too_many);
        let answer = |start: Start| {
            let (program, task) = *self.owners.get(&start.task)?;
            let resource = self.shown.get(start.on.0)?.clone();
            Some((program, Answer::Start(Started { task, rank: start.rank, resource })))
        };
        starts.into_iter().filter_map(answer).collect()
    }

    /// How everything stands.
    pub fn status(&self) -> Status {
        let board = self.dispatcher.board();
        let busy = |(at, shown): (usize, &Shown)| {
            let id = ResourceId(at);
            let running =
                board.running(id).and_then(|task| board.task(task)).map(|task| task.program.clone());
            Busy { resource: shown.clone(), running, queued: board.queue(id).count() }
        };
        Status {
            strategy: self.dispatcher.strategy().name().to_owned(),
            governor: board.governor(),
            waiting: board.waiting_count(),
            ended: self.ended,
            resources: self.shown.iter().enumerate().map(busy).collect(),
            failures: self.failures.clone(),
        }
    }

    /// What must hold at any time.
    pub fn check(&self) -> Result<(), String> {
        self.dispatcher.board().check()?;
        let known: usize = self.programs.values().map(|program| program.tasks.len()).sum();
        if known != self.owners.len() || known != self.dispatcher.board().task_count() {
            return Err(format!(
                "programs have {known} tasks, {} have owners, {} are in queues",
                self.owners.len(),
                self.dispatcher.board().task_count()
            ));
        }
        Ok(())
    }
}
