//! Applications, what they demand, and the files that describe them.

mod app;
mod mix;
mod reader;
mod words;

pub use app::{AppId, Demand, Malleability, ParseAppIdError};
pub use mix::{Instance, Mix, Program};
pub use reader::MixError;
