//! Every program that a plan or its snapshot names, by number: the checks look at each program
//! several times, and names are slow to compare.

use workload::{AppId, ByApp};

use crate::{App, Plan, Run, Snapshot};

/// The snapshot's programs have the numbers of their order; strangers come after them.
pub struct Cast<'a> {
    /// Only looked into, never walked through: its order is not the same twice.
    numbers: ByApp<'a, usize>,
    names: Vec<&'a AppId>,
    apps: &'a [App],
    /// Every run of the plan, left to right, with the number of its program.
    pub runs: Vec<(&'a Run, usize)>,
    /// The numbers of those who wait, in order of the names.
    pub waiting: Vec<usize>,
    /// The numbers of those who are suspended, in order of the names.
    pub suspended: Vec<usize>,
}

impl<'a> Cast<'a> {
    pub fn of(plan: &'a Plan, snapshot: &'a Snapshot) -> Cast<'a> {
        let names: Vec<&AppId> = snapshot.apps.iter().map(|app| &app.id).collect();
        let numbers = names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
        let (waiting, suspended) = Default::default();
        let runs = Vec::with_capacity(names.len());
        let mut cast = Cast { numbers, runs, names, apps: &snapshot.apps, waiting, suspended };
        plan.for_each_run(&mut |run| {
            let number = cast.add(&run.app);
            cast.runs.push((run, number));
        });
        cast.waiting = plan.waiting.iter().map(|app| cast.add(app)).collect();
        cast.suspended = plan.suspended.iter().map(|app| cast.add(app)).collect();
        cast
    }

    fn add(&mut self, name: &'a AppId) -> usize {
        let next = self.names.len();
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        number
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Of a program that the plan or the snapshot names.
    pub fn number(&self, name: &AppId) -> usize {
        self.numbers[name]
    }

    /// Of a program that the plan or the snapshot may name.
    pub fn known(&self, name: &AppId) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// Whether the snapshot has it.
    pub fn is_live(&self, name: &AppId) -> bool {
        self.known(name).is_some_and(|number| number < self.apps.len())
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
