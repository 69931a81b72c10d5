//! The one-line text form of a plan, which logs, tests, policies in other languages and people
//! read and write.
//!
//! ```text
//! plan     := ( tree | "idle" ) [ "waiting" names ] [ "suspended" names ]
//! tree     := run | "side_by_side" "[" trees "]" | "in_turn" [mode] "[" slots "]"
//!           | "mixed" [owners] "[" trees "]"
//! run      := ["run"] NAME "on" cpus ["x" THREADS] ["bind" "each"] ["memory" "follow"] ["lends"]
//! slot     := [DURATION] tree                       20ms where no duration is given
//! mode     := "strict" | "filling"                  strict where none is given
//! owners   := "{" cpus ":" NAME { "," cpus ":" NAME } "}"
//! names    := "[" NAME { "," NAME } "]"
//! cpus     := the kernel's list form, `0-3,8`, or "none"
//! DURATION := number and unit: 20ms, 1.5s, 500us, 7ns
//! ```
//!
//! Words are keywords only where the grammar expects them, so that a program may be called `idle`.
//! A comma after a CPU list continues the list when a bare number follows; a duration carries its
//! unit, so that `[a on 0-1, 20ms b on 0-1]` has one reading.

mod duration;
mod lexer;
mod parse;
mod print;

pub use duration::{display_ns, parse_ns};
pub use parse::ParsePlanError;

/// Length of a slot whose text gives none, in nanoseconds.
pub const DEFAULT_SLICE_NS: u64 = 20_000_000;
