//! Switching: what it takes to leave one stack and go on with another. Knows nothing of threads and workers.

pub(super) mod context;
pub(super) mod fence;
pub(super) mod sanitize;
pub(super) mod stack;
pub(super) mod values;
