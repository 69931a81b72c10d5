//! What decides which task goes where, and what it is called for.

use policy::Failed;

use crate::board::{Board, Misplaced, Undo};
use crate::task::{ResourceId, TaskId};

/// What a strategy is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// It comes into force, with whatever is in the queues.
    Begin,
    /// A task has come; it is the last of the global queue.
    Arrived(TaskId),
    /// A task that is assigned to this resource now starts at once, and tasks wait.
    Free(ResourceId),
    /// A task has ended, or its program has gone.
    Ended(TaskId),
    /// So much time has passed as [`Strategy::tick_ns`] asks for.
    Tick,
    /// The governor has another value.
    Governor,
}

/// The queues as a strategy sees and changes them. If it fails, its changes are taken back.
#[derive(Debug, Default)]
pub struct Draft {
    board: Board,
    changes: Vec<Undo>,
}

impl Draft {
    pub(crate) fn new(board: Board) -> Draft {
        Draft { board, changes: Vec::new() }
    }

    /// As it is with all changes up to now.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Takes a task from the global queue to the end of a resource's.
    pub fn assign(&mut self, task: TaskId, to: ResourceId) -> Result<(), Misplaced> {
        self.changes.push(self.board.assign(task, to)?);
        Ok(())
    }

    /// Takes a task that has not begun back into the global queue.
    pub fn withdraw(&mut self, task: TaskId) -> Result<(), Misplaced> {
        self.changes.push(self.board.withdraw(task)?);
        Ok(())
    }

    /// The queues; `keep`: with the changes.
    pub(crate) fn finish(mut self, keep: bool) -> Board {
        if !keep {
            self.board.revert(self.changes);
        }
        self.board
    }
}

/// Decides which task goes where. It may remember whatever it likes, and does the same whenever the same happens.
pub trait Strategy {
    /// What it is called in reports: its name, or its file.
    fn name(&self) -> &str;

    /// How often it wants [`Occasion::Tick`]; `None`: never.
    fn tick_ns(&self) -> Option<u64> {
        None
    }

    /// Does what it has to do now.
    fn call(&mut self, draft: &mut Draft, occasion: Occasion) -> Result<(), Failed>;
}

/// The short-term strategy in Rust: what is in force where no other works. It keeps every resource busy: one that is
/// free takes the first task that ranks it highest, else the first that ranks it second, and so on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortTerm;

impl Strategy for ShortTerm {
    fn name(&self) -> &str {
        "short-term"
    }

    fn call(&mut self, draft: &mut Draft, occasion: Occasion) -> Result<(), Failed> {
        let Occasion::Free(resource) = occasion else { return Ok(()) };
        let board = draft.board();
        let Some(kind) = board.resource(resource).map(|resource| &resource.kind) else { return Ok(()) };
        let ranked = board.waiting().filter_map(|id| Some((board.task(id)?.rank_on(kind)?, id)));
        // The first of those with the least rank.
        let Some((_, task)) = ranked.min() else { return Ok(()) };
        draft.assign(task, resource).map_err(|error| Failed(error.to_string()))
    }
}
