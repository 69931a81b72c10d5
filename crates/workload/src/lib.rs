//! Applications, what they demand, and the files that describe them.

mod app;
mod bytes;
mod curve;
mod generate;
mod mix;
mod profile;
mod random;
mod reader;
mod scenario;
mod scenario_file;
mod shell_words;
mod swf;
pub mod text;
mod wait_policy;

pub use app::{AppId, ByApp, Demand, Malleability, NameHasher, ParseAppIdError};
pub use bytes::{format_bytes, parse_bytes};
pub use curve::Curve;
pub use generate::{Drawn, Generator};
pub use mix::{Instance, Mix, Program};
pub use profile::{PhaseDemand, Profile, Waiting};
pub use random::Random;
pub use reader::MixError;
pub use scenario::{Job, Scenario, SlowsDown, TooWide};
pub use scenario_file::{ScenarioFile, profiles};
pub use wait_policy::WaitPolicy;
