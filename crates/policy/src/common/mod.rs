//! What several policies need.

pub(crate) mod company;
pub(crate) mod compose;
pub(crate) mod contention;
pub(crate) mod context;
pub(crate) mod exchange;
pub(crate) mod gather;
pub(crate) mod keep;
pub(crate) mod levels;
pub(crate) mod matching;
pub(crate) mod matrix;
pub(crate) mod needs;
pub(crate) mod outcome;
pub(crate) mod place;
pub(crate) mod seats;
pub(crate) mod slices;
pub(crate) mod units;
pub(crate) mod weighing;
