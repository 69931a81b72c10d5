//! What programs and the service say to each other: a line of JSON each, over a Unix socket.
//!
//! A program says `hello`, then submits tasks under numbers of its own; it is told when a task's kernel is to start,
//! runs it in its own thread, and says when it has ended. A program that goes takes its tasks with it: what it had is
//! free at once.

use serde::{Deserialize, Serialize};

use crate::task::{Governor, Kernel, Kind};

/// What both sides must agree on.
pub const VERSION: u32 = 1;
/// The longest line, bytes.
pub const MOST_BYTES: usize = 64 << 10;

/// From a program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Comes first.
    Hello {
        /// [`VERSION`]
        version: u32,
        /// What it is called in reports.
        program: String,
    },
    /// A task with all its kernels.
    Submit {
        /// A number that none of its tasks has that have not ended.
        task: u64,
        /// The one that it ranks highest first.
        kernels: Vec<Offer>,
    },
    /// A task has ended, or is given up before it has begun.
    Ended {
        /// Its number.
        task: u64,
    },
    /// How everything stands.
    Status,
    /// Another strategy takes over.
    SetStrategy {
        /// Its name, or that of its file.
        name: String,
        /// The text of a file in Lua; `None`: one that comes with coplace.
        text: Option<String>,
    },
    /// How much may be used.
    SetGovernor(Governor),
}

/// A kernel as a program offers it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Where it can run.
    pub on: Kind,
    /// How long its program expects it to take there, ns.
    #[serde(default)]
    pub expected_ns: Option<u64>,
}

impl From<Offer> for Kernel {
    fn from(offer: Offer) -> Kernel {
        Kernel { on: offer.on, expected_ns: offer.expected_ns }
    }
}

/// From the service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To `hello`.
    Hello {
        /// [`VERSION`]
        version: u32,
        /// What there is.
        resources: Vec<Shown>,
    },
    /// A task's kernel is to start now.
    Start(Started),
    /// What was asked for is not done. Of a task: there will be no other word of it.
    Refused {
        /// Which, if it was about one.
        task: Option<u64>,
        /// Why, for people.
        why: String,
    },
    /// To `status`.
    Status(Status),
    /// What was asked for is done.
    Done,
}

/// Where a task's kernel is to run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Started {
    /// The program's own number of the task.
    pub task: u64,
    /// Which of its kernels: its place in the list.
    pub rank: usize,
    /// The resource.
    pub resource: Shown,
}

/// A resource as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Shown {
    /// Unique in a node.
    pub name: String,
    /// What kernels for it are written for.
    pub kind: Kind,
    /// Its number among those of its kind, from 0.
    pub index: usize,
    /// Cores that a kernel on it may use, as a CPU list; of a device those of its host thread.
    pub cores: String,
}

/// How everything stands.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Status {
    /// What decides.
    pub strategy: String,
    /// How much may be used.
    pub governor: Governor,
    /// How many tasks wait for a decision.
    pub waiting: usize,
    /// How many tasks have ended since the service began.
    pub ended: u64,
    /// Each resource.
    pub resources: Vec<Busy>,
    /// The strategies that failed since the service began, and why, for people.
    pub failures: Vec<String>,
}

/// A resource and what it has to do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Busy {
    /// Which.
    pub resource: Shown,
    /// The program whose kernel runs there.
    pub running: Option<String>,
    /// How many tasks are in its queue.
    pub queued: usize,
}
