//! A model of a kernel with programs in it, deterministic to the last call.
//!
//! A [`World`] stands in for the machine ([`linux::host::Host`]): files that survive crashes, processes and threads with
//! masks, control groups of both versions, sockets, locks, pages of the preload library, a clock. Programs run in it by
//! scripts ([`process::Op`]): teams that follow their page at the entry of regions, processes that fork, execute, become
//! daemons, choose CPUs, stop themselves and end. Processes of coplace run in it too: their real code, each thread a
//! coroutine that is suspended wherever it calls the world while something else is due. So everything may happen between
//! any two calls, and the same seed makes the same things happen.
//!
//! What the model leaves out: contention between programs (a program goes on at full speed unless it stands still, idles
//! or is squeezed), memory, and everything that coplace does not ask about.

mod calls;
mod ends;
mod files;
pub mod groups;
mod handles;
mod host;
pub mod kernel;
mod pages;
pub mod process;
mod procfs;
mod sockets;
pub mod world;

pub use groups::Hierarchy;
pub use kernel::{Act, Kernel, Machine, phases};
pub use process::{Op, Process, Script};
pub use world::World;
