//! `coplace guard`: the small process that sets programs free when their scheduler is lost.

use std::path::PathBuf;

use node::home::Home;

use crate::exit::{Failure, Outcome};

/// Sets a scheduler's programs free if the scheduler is lost; started by schedulers
#[derive(clap::Args)]
pub struct Args {
    /// The scheduler's directory
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
}

pub fn main(args: &Args) -> Outcome {
    // A mix that was over before its guard began has removed its directory, which is to stay so.
    let Some(home) = Home::find_existing(&args.home) else { return Ok(std::process::ExitCode::SUCCESS) };
    node::guard::run(&home).map_err(Failure::ours)?;
    Ok(std::process::ExitCode::SUCCESS)
}
