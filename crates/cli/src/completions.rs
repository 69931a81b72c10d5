//! `coplace completions SHELL`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Outcome;

/// Prints completions for a shell
#[derive(clap::Args)]
#[command(
    long_about = "Prints completions for a shell.",
    after_long_help = "Example:
  coplace completions bash > ~/.local/share/bash-completion/completions/coplace"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn main(args: &Args) -> Outcome {
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "coplace", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
