//! The evidence store: raw samples of what was measured about programs, in an SQLite file.
//!
//! A sample belongs to a program (its file's content and its arguments), a number of threads and a machine,
//! and says what was measured and when. Samples are never changed, only added and forgotten; whoever
//! wants an average makes one. What [`Store::add`] has returned for is on the disk: it survives a kill at
//! any moment (`tests/kills.rs`) and, as far as the disk keeps its word, a power cut. Several processes
//! may read while one writes.
//!
//! The node remembers by itself what its scheduler saw of a program's nature, memory and speed-up curve
//! (`node::remember`); this store has measurements that somebody asked for. Neither has the other's.

mod sample;
mod store;

pub use sample::{Kind, Program, Sample};
pub use store::{Known, Store, StoreError};
