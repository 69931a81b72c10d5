//! Workers: the kernel threads that run ours, one on each processor, and all that they share.

pub(super) mod affinity;
pub(super) mod clock;
pub(super) mod helpers;
mod here;
pub(super) mod kept;
pub(super) mod limits;
pub(super) mod overflow;
pub(super) mod pool;
pub(super) mod preempt;
pub(super) mod recorder;
pub(super) mod status;
pub(super) mod system;
pub(super) mod worker;
