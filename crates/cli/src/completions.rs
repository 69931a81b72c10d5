//! `coplace completions SHELL`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Outcome;

/// Prints completions for a shell
#[derive(clap::Args)]
#[command(long_about = "Prints completions for a shell.

Example:
  coplace completions bash > ~/.local/share/bash-completion/completions/coplace")]
pub struct Args {
    shell: Shell,
}

pub fn main(args: &Args) -> Outcome {
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "coplace", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
