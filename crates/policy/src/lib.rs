//! Policies: from a snapshot to a plan, each a pure function in a file of its own.
//!
//! | letters | words | paper (Schönherr, Juurlink, Richling 2013) |
//! |---|---|---|
//! | UE | uncontrolled | III-B a |
//! | LA | load-adaptive | III-B b |
//! | EQ | equal parts | III-B c |
//! | BP | one after another | III-B d |
//! | TA | equal parts by topology; the default | II-A, III-B e |
//! | CO | equal parts by topology with coscheduling | II-A, Listing 1, III-B f |
//! | LV | equilibrium over levels | II-B, II-C |
//! | twins | twins apart | none: de Blanche and Lundqvist, Terrible Twins, 2016 |
//! | adaptive | by evidence | none: our own, after II-C and V |
//! | fixed | a fixed plan | none: for experiments |
//! | FILE.lua | what the file says | none: anybody's own ([`lua`]) |
//!
//! The files of the policies say what each does; `common` holds what several of them need: what a
//! program must have (`needs`), the partitions of a level (`levels`), who keeps which (`keep`, `matching`), equal
//! numbers in all of them (`seats`), who suits whom (`company`), how gangs are packed into slots (`matrix`), how long slots last (`slices`) and how all that becomes
//! one tree (`compose`).

mod adaptive;
mod bp;
mod builtin;
mod co;
mod common;
mod decision;
mod eq;
mod fixed;
mod la;
mod lira;
pub mod lua;
mod lv;
mod neighbours;
mod places;
mod plain;
mod registry;
pub mod sandbox;
mod settings;
mod ta;
pub mod trial;
mod twins;
mod ue;

pub use adaptive::account::{Account, Served};
pub use builtin::{Listed, UnknownPolicy, list};
pub use decision::{Asked, Decision, Failed, LevelMemory, Memory, NarrowStart, Policy};
pub use neighbours::{Neighbours, Predictions};
pub use places::Places;
pub use registry::by_name;
pub use settings::{LevelDecision, Lever, SLICE_RANGE_NS, Settings, TimeOutOfRange};
