//! How a command ends: exit statuses and the one error line (docs/commands/exit-codes.md).

use std::fmt::Display;
use std::process::ExitCode;

/// What was asked does not hold: a program of a mix failed, no scheduler runs, programs hurt one
/// another, the machine lacks what coplace needs.
pub const DOES_NOT_HOLD: u8 = 1;
/// Wrong usage or bad input.
pub const BAD_INPUT: u8 = 2;
/// Somebody wanted it to stop.
pub const INTERRUPTED: u8 = 130;
/// coplace itself failed.
pub const OURS: u8 = 125;
/// Why a command ends without having done what it was asked for.
#[derive(Debug)]
pub struct Failure {
    pub status: u8,
    pub message: String,
}

pub type Outcome = Result<ExitCode, Failure>;

impl Failure {
    pub fn new(status: u8, message: impl Display) -> Failure {
        Failure { status, message: message.to_string() }
    }

    pub fn bad_input(message: impl Display) -> Failure {
        Failure::new(BAD_INPUT, message)
    }

    pub fn ours(message: impl Display) -> Failure {
        Failure::new(OURS, message)
    }

    /// A file that could not be written.
    pub fn unwritable(path: &std::path::Path, error: impl Display) -> Failure {
        Failure::ours(format!("cannot write {}: {error}", path.display()))
    }
}

/// The last act of every command.
pub fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("coplace: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}
