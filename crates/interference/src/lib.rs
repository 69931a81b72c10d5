//! Who slows whom by how much, and what follows from it: from a slowdown matrix, whole, in part or not
//! there at all, to predictions with their errors, and from predictions to who stands beside whom.
//!
//! A slowdown is response time over time alone: 1 is undisturbed, 2 is half as fast. Errors are relative
//! standard errors: 0.05 means that two of three values lie within 5%.
//!
//! Results do not depend on the platform: exponentials and logarithms are `libm`'s, sums have a fixed
//! order, randomness comes from a seed.

pub mod judge;
pub mod learn;
mod linear;
pub mod matrix;
mod names;
pub mod pairing;
pub mod predict;
pub mod profile;
pub mod schedules;
mod table;
pub mod uniform;

pub use judge::{Judged, judge};
pub use matrix::{Matrix, Unreadable};
pub use predict::{Estimate, Grid, Knowledge, Predictor, by_name, measured, predictors};
