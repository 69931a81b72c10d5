//! Programs that bring variants of a step for several devices, and strategies that decide which variant runs where.
//!
//! # Problem
//!
//! A program has code for one core, for all cores and for an accelerator. Which of them is best now depends on what
//! else runs on the node, which no single program sees.
//!
//! # Source
//!
//! "Impact of the Scheduling Strategy in Heterogeneous Systems That Provide Co-Scheduling" (VarySched), section 3, in
//! the proceedings of COSH 2016. A program registers a *kernel collection* for a task: its kernels, ranked. A strategy
//! decides which runs where and when; it can be exchanged while everything runs.
//!
//! # Where we differ
//!
//! Strategies run in the sandbox of coplace's policies, and one that fails is replaced by the one before. Resources
//! that have cores in common run one after another unless the node's owner allows otherwise; in the paper they compete.
//!
//! | module | |
//! |---|---|
//! | [`task`] | resources, tasks, kernels |
//! | [`board`] | the queues, and what may be done to them |
//! | [`strategy`] | what decides, and how it acts |
//! | [`lua`] | strategies in Lua |
//! | [`registry`] | those that come with coplace: the paper's four and our own |
//! | [`adaptive`], [`earliest`] | our own: everything that waits is planned for the earliest end |
//! | [`dispatch`] | events in, kernels that start out; failures and swaps |
//! | [`scenario`], [`simulate`](mod@simulate) | the same in simulated time |
//! | [`messages`], [`registrar`] | what programs and the service say to each other, and what becomes of it |
//! | [`server`], [`client`] | both ends of the socket |
//!
//! # Properties
//!
//! - each task is in one place, whatever strategies do: `no_event_loses_or_doubles_a_task`
//! - a strategy that fails loses no task: `a_failing_strategy_gives_way_to_the_one_before`
//! - a swap loses no task: `swaps_under_load_lose_no_task`
//! - tasks for the whole machine come to their turn: `tasks_start_in_order_of_assignment_where_cores_are_free`
//! - the paper's short-term strategy in Lua does what the one in Rust does: `short_term_in_lua_does_as_in_rust`
//!
//! # Limits
//!
//! Which cores and devices a program uses is up to the program: it is told, and not confined. The plan of a scheduler that
//! runs beside the service does not know the service's resources.

pub mod adaptive;
pub mod board;
pub mod client;
pub mod dispatch;
pub mod earliest;
pub mod lua;
pub mod messages;
pub mod registrar;
pub mod registry;
pub mod scenario;
pub mod server;
pub mod simulate;
pub mod strategy;
pub mod task;
