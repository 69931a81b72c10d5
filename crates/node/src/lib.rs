//! The live node: programs on a real Linux machine under one scheduler.
//!
//! A scheduler ([`scheduler`]) is a daemon or a thread inside the leading `coplace run`; every
//! `run` and `mix` is its client ([`join`]). It watches programs ([`watch`]), lets the engine
//! decide, and carries plans out ([`live`]) by the mechanisms that the machine allows
//! ([`mechanism`]); a thread of its own turns the wheels ([`clock`], [`rotor`]). A small separate
//! process ([`guard`]) sets everything free when the scheduler is lost ([`restore`]). Adapters of other kinds
//! of work run beside the scheduler as its [`service`]s.

/// Whether a test has the node be wrong in this way (`mutants::Mutant`); never outside of tests.
#[cfg(test)]
macro_rules! broken {
    ($mutant:ident) => {
        crate::mutants::is_active(crate::mutants::Mutant::$mutant)
    };
}
#[cfg(not(test))]
macro_rules! broken {
    ($mutant:ident) => {
        false
    };
}

mod account;
mod acts;
pub mod adopt;
mod attach;
mod clock;
pub mod environment;
pub mod error;
#[cfg(test)]
mod explore;
mod follow;
pub mod guard;
pub mod home;
pub mod identity;
pub mod join;
#[cfg(test)]
mod killed;
pub mod launch;
pub mod lease;
mod live;
pub mod mechanism;
#[cfg(test)]
mod mutants;
mod observed;
pub mod preload;
mod prior_state;
mod rates;
pub mod registry;
pub mod remember;
pub mod resizing;
pub mod restore;
mod rotor;
pub mod scheduler;
mod server;
pub mod service;
mod switch_log;
mod watch;
