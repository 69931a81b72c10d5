//! `coplace`: several parallel programs share one machine without slowing each other down.

mod accounts;
mod adopt;
mod advise;
mod attach;
mod chart;
mod choices;
mod completions;
mod config;
mod config_cmd;
mod daemon;
mod demand;
mod doctor;
#[cfg(test)]
mod documented;
mod exit;
mod explain;
mod guard;
mod known;
mod lab;
mod machine;
mod man;
mod mix;
mod neighbours;
mod offload_cmd;
mod overview;
mod policy_cmd;
mod policy_name;
mod position;
mod probing;
mod profile;
mod record;
mod replay;
mod run;
mod scheduler;
mod simulate;
mod status;
mod sweep;
mod table;
mod timeline;
mod units;

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
    Mix(mix::Args),
    Advise(advise::Args),
    Status(status::Args),
    Explain(explain::Args),
    Simulate(simulate::Args),
    Sweep(sweep::Args),
    Record(record::Args),
    Replay(replay::Args),
    Policy(policy_cmd::Args),
    Offload(offload_cmd::Args),
    Profile(profile::Args),
    Lab(lab::Args),
    Doctor(doctor::Args),
    Config(config_cmd::Args),
    Attach(attach::AttachArgs),
    Release(attach::ReleaseArgs),
    Daemon(daemon::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Guard(guard::Args),
    #[command(hide = true)]
    Drain(mix::drain::Args),
    #[command(hide = true)]
    Man(man::Args),
}

fn main() -> ExitCode {
    run::ignore_file_limits();
    // Wrong usage ends in there with status 2, which is ours for it, too.
    let result = match Cli::parse().command {
        None => overview::main(),
        Some(Command::Run(args)) => return run::main(args),
        Some(Command::Mix(args)) => mix::main(&args),
        Some(Command::Advise(args)) => advise::main(&args),
        Some(Command::Status(args)) => status::main(&args),
        Some(Command::Explain(args)) => explain::main(&args),
        Some(Command::Simulate(args)) => simulate::main(&args),
        Some(Command::Sweep(args)) => sweep::main(&args),
        Some(Command::Record(args)) => record::main(&args),
        Some(Command::Replay(args)) => replay::main(&args),
        Some(Command::Policy(args)) => policy_cmd::main(&args),
        Some(Command::Offload(args)) => offload_cmd::main(&args),
        Some(Command::Profile(args)) => profile::main(&args),
        Some(Command::Lab(args)) => lab::main(&args),
        Some(Command::Doctor(args)) => doctor::main(&args),
        Some(Command::Config(args)) => config_cmd::main(&args),
        Some(Command::Attach(args)) => attach::attach(&args),
        Some(Command::Release(args)) => attach::release(&args),
        Some(Command::Daemon(args)) => daemon::main(args),
        Some(Command::Completions(args)) => completions::main(&args),
        Some(Command::Guard(args)) => guard::main(&args),
        Some(Command::Drain(args)) => mix::drain::main(&args),
        Some(Command::Man(args)) => man::main(&args),
    };
    exit::report(result)
}
