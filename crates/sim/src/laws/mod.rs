//! What happens to programs on a machine, each a law of its own.
//!
//! | law | says |
//! |---|---|
//! | [`place`] | how fast a team is on its CPUs, by how many of them share a domain |
//! | [`contention`] | what programs in one domain cost each other |
//! | [`smt`] | what programs on one core cost each other |
//! | [`waiting`] | what it costs when threads outnumber CPUs |
//! | [`turns`] | what taking turns costs |
//! | [`memory`] | what it costs when memory lies in another domain, and how it follows |
//! | [`regions`] | when another team size is taken up |
//! | [`start`] | what comes before the first region |
//! | [`load`] | the load average |

pub mod contention;
pub mod load;
pub mod memory;
pub mod place;
pub mod regions;
pub mod smt;
pub mod start;
pub mod turns;
pub mod waiting;
