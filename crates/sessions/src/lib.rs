//! Sessions inside an allocation: a parallel program is started beside another that has all slots.
//!
//! | module | |
//! |---|---|
//! | [`allocation`] | nodes, slots, and where processes stand |
//! | [`session`] | who runs where, who is suspended, who waits: the four policies |
//! | [`simulate`](mod@simulate) | the same in simulated time |
//! | [`djsb`] | the measures of the Dynamic Job Scheduler Benchmark |
//!
//! # Limits
//!
//! Live sessions cannot be started yet: what is here decides and simulates.

pub mod allocation;
pub mod djsb;
pub mod session;
pub mod simulate;
