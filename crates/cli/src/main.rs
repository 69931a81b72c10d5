//! `coplace`: several parallel programs share one machine without slowing each other down.

mod completions;
mod config;
mod config_cmd;
mod exit;
mod man;
mod overview;
mod run;
mod units;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "coplace",
    version,
    about = "Lets parallel programs share one machine without slowing each other down",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Config(config_cmd::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

fn main() -> ExitCode {
    // Exit status 2 for wrong usage is clap's own and ours alike.
    let result = match Cli::parse().command {
        None => overview::main(),
        Some(Command::Run(args)) => return run::main(args),
        Some(Command::Config(args)) => config_cmd::main(&args),
        Some(Command::Completions(args)) => completions::main(&args),
        Some(Command::Man(args)) => man::main(&args),
    };
    exit::report(result)
}
