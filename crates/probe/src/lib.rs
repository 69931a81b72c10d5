//! Programs of known behaviour, and runs that measure others.
//!
//! - [`distgen`]: accesses with exactly given stack reuse distances, at a given rate, on given CPUs; as
//!   a program of its own (`coplace lab distgen`) and as a short probe inside another.
//! - [`tool`]: unmodified programs under the reuse tool.
//! - [`latency`]: how long a line takes from one CPU to another, and whether they share a cache therefore.
//! - [`slowdown`]: what a program loses beside DistGen, and takes from it.
//! - [`online`]: the same in short bursts on idle CPUs, beside whatever runs on a live node.
//! - [`counters`]: what hardware counters say of a program, where there are any.
//! - [`classes`]: what a program lives from, by what flows into its caches.

pub mod classes;
pub mod counters;
pub mod distgen;
pub mod latency;
pub mod online;
pub mod slowdown;
pub mod spread;
mod started;
pub mod timed;
pub mod tool;
