//! Applications and what they demand.

mod app;

pub use app::{AppId, Demand, Malleability, ParseAppIdError};
