//! A node in simulated time: the same queues and strategies as anywhere, kernels that take as long as the scenario
//! says.
//!
//! # Law
//!
//! A kernel that has its cores for itself takes its stated time. Where kernels may overlap, threads of all that run
//! share the cores equally: with more threads than cores, each kernel goes on at cores / threads of its speed. (A team
//! whose threads wait for one another loses more than that on a real machine; nothing is known of how much.) A device
//! kernel takes part with its host threads; one without any is never slowed.

use std::collections::BTreeMap;

use policy::Failed;

use crate::board::{Board, Start};
use crate::dispatch::{Dispatcher, Event, Note};
use crate::scenario::Scenario;
use crate::strategy::Strategy;
use crate::task::TaskId;

/// Ticks in a row without anything that runs or comes, after which nothing is expected any more.
const IDLE_TICKS: u32 = 10_000;

/// A task from its arrival to its end, ns since the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As in the scenario.
    pub program: String,
    /// The name of the resource that it ran on.
    pub resource: String,
    /// The rank of the kernel that ran, 0 the best.
    pub rank: usize,
    /// When it came.
    pub arrived_ns: u64,
    /// When its kernel began.
    pub began_ns: u64,
    /// When its kernel ended.
    pub ended_ns: u64,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// In order of their ends.
    pub tasks: Vec<Ended>,
    /// When the last task ended, ns.
    pub makespan_ns: u64,
    /// How long each resource ran kernels, ns, by its name.
    pub busy_ns: BTreeMap<String, u64>,
    /// How often strategies were called.
    pub calls: u64,
    /// What strategies failed at.
    pub notes: Vec<Note>,
}

impl Played {
    /// Median time from a kernel's begin to its end, ns; 0 of no task.
    pub fn median_run_ns(&self) -> u64 {
        median(self.tasks.iter().map(|task| task.ended_ns - task.began_ns).collect())
    }

    /// Median time from a task's arrival to its end, ns; 0 of no task.
    pub fn median_response_ns(&self) -> u64 {
        median(self.tasks.iter().map(|task| task.ended_ns - task.arrived_ns).collect())
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    match values.len() {
        0 => 0,
        count if count % 2 == 1 => values[count / 2],
        count => values[count / 2 - 1].midpoint(values[count / 2]),
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// The strategy leaves tasks where they are, and nothing will happen any more.
    #[error(
        "under {strategy}, {waiting} tasks wait at {:.3} s with nothing running: it assigns none of them",
        *at_ns as f64 / 1e9
    )]
    Stuck {
        /// Its name.
        strategy: String,
        /// Tasks that have not ended.
        waiting: usize,
        /// When, ns.
        at_ns: u64,
    },
    /// The strategy failed; in a simulation no other one takes its place.
    #[error("{0}")]
    Failed(Failed),
}

struct Run {
    start: Start,
    began_ns: u64,
    /// What is left of its stated time.
    left_ns: f64,
    threads: f64,
}

struct Simulation<'s> {
    scenario: &'s Scenario,
    dispatcher: Dispatcher,
    running: BTreeMap<TaskId, Run>,
    now_ns: u64,
    played: Played,
}

/// Plays a scenario to its end.
pub fn simulate(scenario: &Scenario, strategy: Box<dyn Strategy>) -> Result<Played, SimulationError> {
    let board = Board::new(scenario.resources.clone(), scenario.overlap, scenario.governor);
    let dispatcher = Dispatcher::new(board, strategy);
    let mut simulation =
        Simulation { scenario, dispatcher, running: BTreeMap::new(), now_ns: 0, played: Played::default() };
    simulation.play()?;
    Ok(simulation.played)
}

impl Simulation<'_> {
    fn play(&mut self) -> Result<(), SimulationError> {
        let (tasks, changes) = (&self.scenario.tasks, &self.scenario.changes);
        let (mut coming, mut changing) = (0, 0);
        let mut tick_at_ns = self.dispatcher.strategy().tick_ns();
        let mut idle_ticks = 0;
        loop {
            self.refuse_failures()?;
            let ending = self.next_end();
            let arriving = tasks.get(coming).map(|coming| coming.task.arrived_ns);
            if ending.is_none() && arriving.is_none() {
                if self.dispatcher.board().task_count() == 0 {
                    break;
                }
                idle_ticks += 1;
                let changes_to_come = changing < changes.len();
                if !changes_to_come && (tick_at_ns.is_none() || idle_ticks > IDLE_TICKS) {
                    return Err(self.stuck());
                }
            } else {
                idle_ticks = 0;
            }
            // At one moment: first what ends, then what changes, then what comes, last the tick.
            let change_at = changes.get(changing).map(|(at_ns, _)| *at_ns);
            let candidates = [ending.map(|(at_ns, _)| at_ns), change_at, arriving, tick_at_ns];
            let soonest =
                candidates.iter().enumerate().filter_map(|(kind, at_ns)| Some(((*at_ns)?, kind))).min();
            let Some((at_ns, kind)) = soonest else { return Err(self.stuck()) };
            self.advance(at_ns);
            let event = match kind {
                0 => Event::Ended(self.finish(ending.map(|(_, id)| id).unwrap_or(TaskId(0)))),
                1 => {
                    changing += 1;
                    Event::Governor(changes[changing - 1].1)
                }
                2 => {
                    coming += 1;
                    Event::Arrived(tasks[coming - 1].task.clone())
                }
                _ => {
                    tick_at_ns =
                        self.dispatcher.strategy().tick_ns().map(|tick_ns| at_ns.saturating_add(tick_ns));
                    Event::Tick
                }
            };
            let starts = self.dispatcher.handle(event, at_ns);
            starts.into_iter().for_each(|start| self.begin(start));
        }
        self.played.makespan_ns = self.played.tasks.iter().map(|task| task.ended_ns).max().unwrap_or(0);
        self.played.calls = self.dispatcher.calls();
        Ok(())
    }

    fn refuse_failures(&mut self) -> Result<(), SimulationError> {
        match self.dispatcher.take_notes().into_iter().next() {
            Some(Note::Replaced { why, .. }) => Err(SimulationError::Failed(why)),
            None => Ok(()),
        }
    }

    fn stuck(&self) -> SimulationError {
        SimulationError::Stuck {
            strategy: self.dispatcher.strategy().name().to_owned(),
            waiting: self.dispatcher.board().task_count(),
            at_ns: self.now_ns,
        }
    }

    /// What part of its speed a kernel has now.
    fn rate(&self, run: &Run) -> f64 {
        let threads: f64 = self.running.values().map(|run| run.threads).sum();
        let cores = f64::from(self.scenario.cores);
        if run.threads == 0.0 || threads <= cores { 1.0 } else { cores / threads }
    }

    fn next_end(&self) -> Option<(u64, TaskId)> {
        let end = |(id, run): (&TaskId, &Run)| {
            (self.now_ns + (run.left_ns / self.rate(run)).ceil().max(0.0) as u64, *id)
        };
        self.running.iter().map(end).min()
    }

    fn advance(&mut self, to_ns: u64) {
        let passed_ns = (to_ns - self.now_ns) as f64;
        let rates: Vec<f64> = self.running.values().map(|run| self.rate(run)).collect();
        for (run, rate) in self.running.values_mut().zip(rates) {
            run.left_ns = (run.left_ns - passed_ns * rate).max(0.0);
        }
        self.now_ns = to_ns;
    }

    fn begin(&mut self, start: Start) {
        // Tasks are numbered as they come, and they come in the scenario's order.
        let duration_ns = self.scenario.tasks[start.task.0 as usize].duration_ns[start.rank];
        let threads = self.scenario.resources[start.on.0].threads;
        let run = Run { start, began_ns: self.now_ns, left_ns: duration_ns as f64, threads };
        self.running.insert(start.task, run);
    }

    fn finish(&mut self, id: TaskId) -> TaskId {
        let Some(run) = self.running.remove(&id) else { return id };
        let resource = self.scenario.resources[run.start.on.0].name.clone();
        *self.played.busy_ns.entry(resource.clone()).or_default() += self.now_ns - run.began_ns;
        let task = &self.scenario.tasks[id.0 as usize].task;
        self.played.tasks.push(Ended {
            program: task.program.clone(),
            resource,
            rank: run.start.rank,
            arrived_ns: task.arrived_ns,
            began_ns: run.began_ns,
            ended_ns: self.now_ns,
        });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::{Draft, Occasion, ShortTerm};

    fn scenario(text: &str) -> Scenario {
        Scenario::parse(text).unwrap()
    }

    const TWO: &str = "cores = 2\noverlap = true\n[[resource]]\nkind = 'core'\n[[resource]]\nkind = 'all-cores'\n\
                       [[task]]\nprogram = 'p'\ncount = 2\n\
                       kernels = [{ on = 'all-cores', takes_s = 2 }, { on = 'core', takes_s = 2 }]\n";

    #[test]
    fn threads_share_the_cores_where_kernels_overlap() {
        // Three threads on two cores: both kernels at two thirds of their speed, so both end after 3 s.
        let played = simulate(&scenario(TWO), Box::new(ShortTerm)).unwrap();
        assert_eq!(played.tasks.iter().map(|task| task.ended_ns).collect::<Vec<_>>(), [3_000_000_000; 2]);
        // One after the other where they may not.
        let apart = simulate(&scenario(&TWO.replace("true", "false")), Box::new(ShortTerm)).unwrap();
        assert_eq!(apart.makespan_ns, 4_000_000_000);
    }

    #[test]
    fn a_strategy_that_assigns_nothing_is_named() {
        struct Nothing;
        impl Strategy for Nothing {
            fn name(&self) -> &str {
                "nothing"
            }
            fn call(&mut self, _: &mut Draft, _: Occasion) -> Result<(), Failed> {
                Ok(())
            }
        }
        let error = simulate(&scenario(TWO), Box::new(Nothing)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "under nothing, 2 tasks wait at 0.000 s with nothing running: it assigns none of them"
        );
    }

    #[test]
    fn medians_of_even_counts_lie_in_the_middle() {
        assert_eq!((median(vec![]), median(vec![3, 1, 2]), median(vec![4, 1])), (0, 2, 2));
    }
}
