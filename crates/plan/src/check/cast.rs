//! Every program that a plan or its snapshot names, by number: the checks look at each program
//! several times, and names are slow to compare.

use std::collections::HashMap;

use workload::AppId;

use crate::{App, Plan, Snapshot};

/// The snapshot's programs have the numbers of their order; strangers come after them.
pub struct Cast<'a> {
    /// Only looked into, never walked through: its order is not the same twice.
    numbers: HashMap<&'a AppId, usize>,
    names: Vec<&'a AppId>,
    apps: &'a [App],
}

impl<'a> Cast<'a> {
    pub fn of(plan: &'a Plan, snapshot: &'a Snapshot) -> Cast<'a> {
        let names: Vec<&AppId> = snapshot.apps.iter().map(|app| &app.id).collect();
        let numbers = names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
        let mut cast = Cast { numbers, names, apps: &snapshot.apps };
        plan.for_each_run(&mut |run| cast.add(&run.app));
        plan.waiting.iter().chain(&plan.suspended).for_each(|app| cast.add(app));
        cast
    }

    fn add(&mut self, name: &'a AppId) {
        let next = self.names.len();
        if *self.numbers.entry(name).or_insert(next) == next {
            self.names.push(name);
        }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Of a program that the plan or the snapshot names.
    pub fn number(&self, name: &AppId) -> usize {
        self.numbers[name]
    }

    pub fn name(&self, number: usize) -> &'a AppId {
        self.names[number]
    }

    /// `None` for a stranger.
    pub fn app(&self, number: usize) -> Option<&'a App> {
        self.apps.get(number)
    }

    pub fn app_named(&self, name: &AppId) -> Option<&'a App> {
        self.app(self.number(name))
    }
}
