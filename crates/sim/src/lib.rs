//! The simulator: a modelled machine as an actuator of the engine that also drives the live node, with
//! the same policies and the same checker.
//!
//! ```text
//! scenario ─ arrivals ─┐                                  ┌─ laws: place, contention, waiting, turns, …
//!                      ▼                                  ▼
//!   run: next event ─→ engine: decide, check, diff ─→ world: who stands where, how fast everybody is
//!        ▲                                                │
//!        └────── ends, teams taken up, pages migrated ────┘
//! ```
//!
//! Time is integer nanoseconds; events are in a total order by time and by the order in which they were
//! foreseen; nothing depends on a clock, on the order of a hash map or on the platform's mathematical
//! library. The same scenario gives the same outcome everywhere.
//!
//! Not modelled: what a gang leaves idle is not used by others (`filling` is `strict` here); simultaneous
//! multithreading; input and output; frequencies.

mod domains;
pub mod laws;
pub mod many;
pub mod metrics;
mod model;
mod neighbours;
mod notebook;
mod queue;
mod record;
mod run;
mod standing;
mod world;

pub use domains::Domains;
pub use metrics::{COLUMNS, Column, Figures};
pub use model::{Laws, Model};
pub use notebook::Knowledge;
pub use record::{Record, is_record};
pub use run::{JobOutcome, Outcome, Setup, SimError, simulate, simulate_recorded};
