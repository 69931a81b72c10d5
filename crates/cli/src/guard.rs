//! `coplace guard`: the small process that sets programs free when their scheduler is lost.

use std::path::PathBuf;

use node::home::Home;

use crate::exit::{Failure, Outcome};

/// Watches a scheduler and sets its programs free when it is lost; started by schedulers
#[derive(clap::Args)]
pub struct Args {
    /// The scheduler's directory
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
}

pub fn main(args: &Args) -> Outcome {
    // A mix that was over before its guard began has removed its directory, which is to stay so.
    if !args.home.is_dir() {
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let home = Home::at(&args.home).map_err(Failure::ours)?;
    if !home.lock().exists() {
        // It was removed just now, and we made it again: only what is empty goes.
        let mix = args.home.parent().map(PathBuf::from).unwrap_or_default();
        for directory in [home.apps(), args.home.join("pages"), args.home.clone(), mix] {
            let _ = std::fs::remove_dir(directory);
        }
        return Ok(std::process::ExitCode::SUCCESS);
    }
    node::guard::run(&home).map_err(Failure::ours)?;
    Ok(std::process::ExitCode::SUCCESS)
}
