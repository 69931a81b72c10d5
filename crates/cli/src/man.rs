//! `coplace man DIR`: manual pages, for packagers and `make install`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::exit::{Failure, Outcome};

/// Writes a manual page for each command into a directory
#[derive(clap::Args)]
pub struct Args {
    /// The directory; it is created if it does not exist
    directory: PathBuf,
}

pub fn main(args: &Args) -> Outcome {
    std::fs::create_dir_all(&args.directory).map_err(|error| Failure::unwritable(&args.directory, error))?;
    clap_mangen::generate_to(crate::Cli::command(), &args.directory)
        .map_err(|error| Failure::unwritable(&args.directory, error))?;
    Ok(ExitCode::SUCCESS)
}
