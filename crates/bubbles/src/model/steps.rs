//! What happens to a model, as text: one step a line.

use super::{Made, Model};
use crate::hierarchy::{Entity, Kind, Place, Yielded};
use crate::schedulers;

/// Why a step cannot be taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("step '{step}': {what}")]
pub struct StepError {
    /// The step as it was given.
    pub step: String,
    /// What is wrong with it, in words.
    pub what: String,
}

impl Model {
    /// One of: `wake`, `look`, `look 3`, `wake NAME`, `yield 3`, `block 3`, `end 3`, `close NAME`,
    /// `insert NAME into BUBBLE`, `remove NAME`, `use SCHEDULER`, `processors 0 1 2`.
    pub fn step(&mut self, step: &str) -> Result<(), StepError> {
        let wrong = |what: String| StepError { step: step.to_owned(), what };
        let tokens: Vec<&str> = step.split_whitespace().collect();
        let processor = |token: &str| match token.parse() {
            Ok(number) if number < self.running.len() => Ok(number),
            _ => Err(wrong(format!("'{token}' is no processor"))),
        };
        let known =
            |name: &str| self.made.get(name).ok_or_else(|| wrong(format!("nothing has the name '{name}'")));
        let bubble = |name: &str| match known(name)? {
            Made::Bubble(bubble) => Ok(bubble),
            Made::Thread(_) => Err(wrong(format!("'{name}' is no bubble"))),
        };
        match tokens[..] {
            ["wake"] => self.wake_all(),
            ["wake", name] => self.hierarchy.wake(known(name)?.entity(), 0),
            ["look"] => self.find_work_all(),
            ["look", at] => {
                let at = processor(at)?;
                self.find_work(at);
            }
            ["yield", at] => {
                let at = processor(at)?;
                let thread = self.runs(at).ok_or_else(|| wrong("nothing runs there".into()))?;
                match self.hierarchy.yield_processor(thread, at, false) {
                    Yielded::Stay => {}
                    Yielded::Next(next) => self.running[at] = Some(next),
                    Yielded::Nothing => self.running[at] = None,
                }
            }
            ["block" | "end", at] => {
                let at = processor(at)?;
                let thread = self.runs(at).ok_or_else(|| wrong("nothing runs there".into()))?;
                match tokens[0] {
                    "block" => self.hierarchy.block(thread, at),
                    _ => self.hierarchy.finish(thread),
                }
                self.running[at] = None;
            }
            ["close", name] => {
                self.hierarchy.close(bubble(name)?);
            }
            ["insert", name, "into", around] => {
                let entity = known(name)?.entity();
                self.hierarchy.insert(bubble(around)?, entity).map_err(|error| wrong(error.to_string()))?;
            }
            ["remove", name] => self.hierarchy.remove(known(name)?.entity()),
            ["use", name] => {
                let scheduler = schedulers::by_name(name)
                    .ok_or_else(|| wrong(format!("schedulers are {}", schedulers::NAMES.join(", "))))?;
                self.hierarchy.exchange(0, scheduler, 0);
            }
            ["processors", ref left @ ..] if !left.is_empty() => {
                let left = left.iter().map(|token| processor(token)).collect::<Result<Vec<_>, _>>()?;
                self.hierarchy.set_processors(&|at| left.contains(&at));
                // As a worker whose processor is taken: what it runs goes back.
                for at in (0..self.running.len()).filter(|at| !left.contains(at)) {
                    if let Some(thread) = self.running[at].take() {
                        // SAFETY: the model's entities live as long as it does.
                        self.hierarchy.requeue(unsafe { &*thread }, at);
                    }
                }
            }
            _ => return Err(wrong("there is no such step".into())),
        }
        Ok(())
    }

    fn runs(&self, processor: usize) -> Option<&'static Entity> {
        // SAFETY: the model's entities live as long as it does, and the reference is used up within a
        // step.
        self.running[processor].map(|thread| unsafe { &*thread })
    }

    /// What must hold at any moment while nothing is under way: each running thread is on its
    /// processor's hands, what is queued is on the list that it names, and nothing is in two places.
    pub fn check(&self) -> Result<(), String> {
        let mut placed = std::collections::BTreeSet::new();
        for number in 0..self.hierarchy.levels().units().len() {
            for entity in self.hierarchy.queued(number) {
                // SAFETY: the model's entities live as long as it does.
                let place = unsafe { &*entity }.place();
                if place != Place::Queued(number) || !placed.insert(entity) {
                    return Err(format!("{} lies on list {number} and is at {place:?}", self.name(entity)));
                }
            }
        }
        for (number, running) in self.running.iter().enumerate() {
            let Some(thread) = *running else { continue };
            // SAFETY: as above.
            let place = unsafe { &*thread }.place();
            let fits = matches!(place, Place::Active { processor, .. } if processor == number);
            if !fits || !placed.insert(thread) {
                return Err(format!("{} runs on {number} and is at {place:?}", self.name(thread)));
            }
        }
        for (name, made) in &self.made {
            let entity = made.entity();
            let around = match self
                .made
                .values()
                .find(|made| std::ptr::eq(std::ptr::from_ref(made.entity()).cast(), entity.holder()))
            {
                Some(Made::Bubble(bubble)) => Some(bubble),
                _ => None,
            };
            let fits = match entity.place() {
                Place::Queued(_) => placed.contains(&std::ptr::from_ref(entity)),
                Place::Active { .. } => {
                    entity.kind() == Kind::Thread && placed.contains(&std::ptr::from_ref(entity))
                }
                Place::Inside => around.is_some_and(|bubble| {
                    !matches!(bubble.entity.place(), Place::Burst(_)) || self.hierarchy.is_closing(bubble)
                }),
                Place::Burst(_) => entity.kind() == Kind::Bubble,
                Place::Nowhere => true,
            };
            if !fits {
                return Err(format!("{name} is at {:?}, and that cannot be", entity.place()));
            }
        }
        Ok(())
    }
}
