//! Threads, bubbles and what makes threads wait, as programs have them.

pub(super) mod bubble;
pub(super) mod channel;
pub(crate) mod foreign;
pub(super) mod handle;
pub(super) mod join;
pub(super) mod life;
pub(super) mod local;
pub(super) mod park;
pub(super) mod pause;
pub(super) mod sync;
pub(super) mod tree;
mod wait;
