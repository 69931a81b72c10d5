//! `coplace run PROGRAM…`: one program under coplace.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Runs one program together with whatever else runs under coplace
#[derive(clap::Args)]
pub struct Args {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub fn main(args: Args) -> ExitCode {
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    eprintln!("coplace: cannot execute {}: {error}", args.command[0]);
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}
