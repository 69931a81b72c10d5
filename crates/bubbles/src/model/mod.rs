//! The hierarchy without running threads: a program's tree, a machine and a scheduler give a placement.
//!
//! The lists, bubbles and schedulers are those of the runtime; only nobody runs what the processors
//! take.

mod program;
mod steps;

use std::collections::BTreeMap;
use std::fmt::Write;

use topology::Machine;

use crate::hierarchy::{Bubble, Entity, Hierarchy, Kind, Levels, Lists, Place, World};
use crate::schedulers::Scheduler;

pub use program::{Item, ProgramError, parse};
pub use steps::StepError;

/// Nobody needs to be told.
struct Quiet;

impl World for Quiet {
    fn queued(&self, _unit: usize, _count: usize) {}
    fn recalled(&self, _thread: &Entity, _processor: usize, _preempt: bool) {}
    fn emptied(_lists: &Hierarchy<Quiet>, _bubble: &Bubble) {}
}

enum Made {
    Thread(Box<Entity>),
    Bubble(Box<Bubble>),
}

impl Made {
    fn entity(&self) -> &Entity {
        match self {
            Made::Thread(entity) => entity,
            Made::Bubble(bubble) => &bubble.entity,
        }
    }
}

/// A program on a machine.
pub struct Model {
    // Before `made`: the lists name what is made.
    hierarchy: Hierarchy<Quiet>,
    made: BTreeMap<String, Made>,
    /// In the order of the program's text.
    roots: Vec<String>,
    running: Vec<Option<*const Entity>>,
}

impl Model {
    /// A machine on which nothing has been woken yet.
    pub fn new(machine: &Machine, scheduler: &'static dyn Scheduler, program: &[Item]) -> Model {
        let levels = Levels::new(machine, machine.all_cpus(), Lists::Distinct);
        let mut model = Model {
            running: vec![None; levels.width()],
            hierarchy: Hierarchy::new(levels, scheduler, Quiet),
            made: BTreeMap::new(),
            roots: program.iter().map(|item| item.name.clone()).collect(),
        };
        program.iter().for_each(|item| model.make(item, None));
        model
    }

    fn make(&mut self, item: &Item, holder: Option<&str>) {
        let made = match &item.members {
            None => Made::Thread(Box::new(Entity::new(Kind::Thread, item.priority))),
            Some(_) => {
                let bubble = Bubble::new(item.priority);
                bubble.set_wishes(item.wishes);
                Made::Bubble(Box::new(bubble))
            }
        };
        self.made.insert(item.name.clone(), made);
        for member in item.members.iter().flatten() {
            self.make(member, Some(&item.name));
        }
        if let Some(Made::Bubble(bubble)) = holder.and_then(|holder| self.made.get(holder)) {
            let inserted = self.hierarchy.insert(bubble, self.made[&item.name].entity());
            debug_assert!(inserted.is_ok(), "the text nests properly");
        }
    }

    /// Wakes the program's outermost threads and bubbles, in order, from the first processor.
    pub fn wake_all(&self) {
        for root in &self.roots {
            self.hierarchy.wake(self.made[root].entity(), 0);
        }
    }

    /// Each processor without a thread looks for one, in order: on its lists, then on those of others.
    pub fn find_work_all(&mut self) {
        (0..self.running.len()).for_each(|processor| self.find_work(processor));
    }

    /// One processor looks, if it runs nothing.
    pub fn find_work(&mut self, processor: usize) {
        if self.running[processor].is_none() {
            self.running[processor] =
                self.hierarchy.next(processor, false).or_else(|| self.hierarchy.steal(processor));
        }
    }

    fn name(&self, entity: *const Entity) -> &str {
        let is = |made: &Made| std::ptr::eq(made.entity(), entity);
        self.made.iter().find(|(_, made)| is(made)).map_or("?", |(name, _)| name)
    }

    /// The units with what is on their lists, first to be taken first, and after `>` what runs on a
    /// processor; units on which there is nothing are left out. Closed bubbles stand in brackets with
    /// what is in them, those that have burst where they did, as `{name}`; what waits stands at the end.
    pub fn placement(&self) -> String {
        let mut text = String::new();
        let levels = self.hierarchy.levels();
        for (number, unit) in levels.units().iter().enumerate() {
            let mut parts: Vec<String> = self
                .made
                .iter()
                .filter(|(_, made)| made.entity().place() == Place::Burst(number))
                .map(|(name, _)| format!("{{{name}}}"))
                .collect();
            parts.extend(self.hierarchy.queued(number).into_iter().map(|entity| self.describe(entity)));
            if unit.children.is_empty()
                && let Some(running) = self.running[unit.processors.start]
            {
                parts.push(format!("> {}", self.name(running)));
            }
            if !parts.is_empty() {
                let depth = levels.path(unit.processors.start).iter().position(|&at| at == number);
                let depth = levels.path(unit.processors.start).len() - 1 - depth.unwrap_or(0);
                let _ = writeln!(text, "{:1$}{unit}: {2}", "", 2 * depth, parts.join(" "));
            }
        }
        let waits = |made: &Made| made.entity().place() == Place::Nowhere && made.entity().holder().is_null();
        let waiting: Vec<&str> =
            self.made.iter().filter(|(_, made)| waits(made)).map(|(name, _)| name.as_str()).collect();
        if !waiting.is_empty() {
            let _ = writeln!(text, "nowhere: {}", waiting.join(" "));
        }
        text
    }

    fn describe(&self, entity: *const Entity) -> String {
        let name = self.name(entity);
        match self.made.get(name) {
            Some(Made::Bubble(bubble)) => {
                let members = self.hierarchy.members(bubble);
                let members: Vec<String> = members.into_iter().map(|member| self.describe(member)).collect();
                format!("{name}[{}]", members.join(" "))
            }
            _ => name.to_owned(),
        }
    }
}
