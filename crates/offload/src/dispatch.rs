//! A node's queues under a strategy: what happens goes in, kernels that start come out.
//!
//! A strategy that fails (an error, no end, too much memory, a task that it puts where it cannot run) loses what it
//! did in that call and its place: the one that was in force before it comes back, or [`ShortTerm`]. Queues stay, so
//! no task is lost by a failure or by a swap.

use policy::Failed;

use crate::board::{Board, Start};
use crate::strategy::{Draft, Occasion, ShortTerm, Strategy};
use crate::task::{Governor, ResourceId, Task, TaskId};

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program brings a task.
    Arrived(Task),
    /// A task has ended, or its program has gone.
    Ended(TaskId),
    /// The time that the strategy asked for has come.
    Tick,
    /// The user changes how much may be used.
    Governor(Governor),
}

/// What is worth reporting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A strategy failed and another one took its place.
    Replaced {
        /// What failed.
        strategy: String,
        /// Why, with file and line of a strategy in Lua.
        why: Failed,
        /// What is in force now.
        by: String,
    },
}

/// A node's queues, and who decides about them.
pub struct Dispatcher {
    board: Board,
    strategy: Box<dyn Strategy>,
    /// In force before, and taken back if the present one fails.
    previous: Option<Box<dyn Strategy>>,
    notes: Vec<Note>,
    calls: u64,
}

impl Dispatcher {
    /// With the first strategy in force.
    pub fn new(board: Board, strategy: Box<dyn Strategy>) -> Dispatcher {
        let mut dispatcher = Dispatcher { board, strategy, previous: None, notes: Vec::new(), calls: 0 };
        dispatcher.call(Occasion::Begin);
        dispatcher
    }

    /// The queues.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What is in force.
    pub fn strategy(&self) -> &dyn Strategy {
        &*self.strategy
    }

    /// The number that the next task gets.
    pub fn next_task(&self) -> TaskId {
        self.board.next_task()
    }

    /// How often strategies were called.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What is worth reporting since the last call of this.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Another strategy takes over the queues as they are; what starts by that.
    pub fn swap(&mut self, strategy: Box<dyn Strategy>, now_ns: u64) -> Vec<Start> {
        self.board.set_now_ns(now_ns);
        self.previous = Some(std::mem::replace(&mut self.strategy, strategy));
        self.call(Occasion::Begin);
        self.offer()
    }

    /// Something happens at this time; what starts by that.
    pub fn handle(&mut self, event: Event, now_ns: u64) -> Vec<Start> {
        self.board.set_now_ns(now_ns);
        match event {
            Event::Arrived(task) => {
                let id = self.board.arrive(task);
                self.call(Occasion::Arrived(id));
            }
            Event::Ended(id) => {
                if self.board.end(id).is_some() {
                    self.call(Occasion::Ended(id));
                }
            }
            Event::Tick => self.call(Occasion::Tick),
            Event::Governor(governor) => {
                self.board.set_governor(governor);
                self.call(Occasion::Governor);
            }
        }
        self.offer()
    }

    /// Asks the strategy for a task for each resource that has nothing to do, and starts what can start.
    fn offer(&mut self) -> Vec<Start> {
        let mut starts = self.board.start_ready();
        for id in (0..self.board.resources().len()).map(ResourceId) {
            if self.board.waiting_count() > 0 && self.board.is_free(id) {
                self.call(Occasion::Free(id));
                starts.extend(self.board.start_ready());
            }
        }
        starts
    }

    fn call(&mut self, occasion: Occasion) {
        self.calls += 1;
        let Err(mut why) = self.attempt(occasion) else { return };
        // The fallback in Rust ends this: it does not fail.
        loop {
            let next = self.previous.take().unwrap_or_else(|| Box::new(ShortTerm));
            let failed = std::mem::replace(&mut self.strategy, next);
            let (strategy, by) = (failed.name().to_owned(), self.strategy.name().to_owned());
            self.notes.push(Note::Replaced { strategy, why, by });
            let again = self.attempt(Occasion::Begin).and_then(|()| self.attempt(occasion));
            match again {
                Ok(()) => return,
                Err(error) => why = error,
            }
        }
    }

    fn attempt(&mut self, occasion: Occasion) -> Result<(), Failed> {
        let mut draft = Draft::new(std::mem::take(&mut self.board));
        let done = self.strategy.call(&mut draft, occasion);
        self.board = draft.finish(done.is_ok());
        done
    }
}
