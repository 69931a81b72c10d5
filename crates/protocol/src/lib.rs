//! What programs under coplace and their scheduler say to one another.
//!
//! One JSON object a line over a Unix stream socket. The first line each way is a `Hello` with
//! the version; a peer of another version is told so in words and the connection ends. New
//! optional fields may appear within a version; unknown messages are an error.

mod client;
mod history;
mod line;
mod message;

pub use client::{Client, ClientError};
pub use history::{AppExplanation, Choice, Explanation, HistoryEntry, News};
pub use line::{LineError, Lines};
pub use message::{
    Account, AppRecord, AppState, AppStatus, Brought, FromScheduler, MemoryMoves, ProcessId, ProgramKey,
    Role, Status, Terms, ToScheduler, VERSION, Which,
};
