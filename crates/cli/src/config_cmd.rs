//! `coplace config`.

use std::process::ExitCode;

use crate::accounts::GROUPS;
use crate::config::{Config, DEFAULT};
use crate::exit::{Failure, Outcome};

/// Shows the configuration that applies, and the file that it comes from
#[derive(clap::Args)]
#[command(
    long_about = "Shows the configuration that applies, and the file that it comes from.

`probe` and `[[adopt]]` are not shown. A mistake in the file is reported with its line and column.",
    after_long_help = "Exit status: 0; 2 the file has a mistake.

Example: start a configuration of your own
  mkdir -p ~/.config/coplace
  coplace config --print-default > ~/.config/coplace/config.toml"
)]
pub struct Args {
    /// Print the commented default file instead
    #[arg(long, conflicts_with = "json")]
    print_default: bool,
    /// Print what applies as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    if args.print_default {
        print!("{DEFAULT}");
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::load().map_err(Failure::bad_input)?;
    let source = config.source.as_ref().map(|path| path.display().to_string());
    let slice_ms = config.slice_ns.map(|ns| ns as f64 / 1e6);
    let placement = format!("{:?}", config.placement).to_lowercase();
    let turns = format!("{:?}", config.turns).to_lowercase();
    let unmanaged = format!("{:?}", config.unmanaged).to_lowercase();
    let group = config.group.map(|group| GROUPS.name_of(group));
    let cpus = config.cpus.as_ref().map(ToString::to_string);
    if args.json {
        let value = serde_json::json!({
            "source": source, "policy": config.policy, "settings": config.settings, "slice_ms": slice_ms,
            "cpus": cpus, "placement": placement, "turns": turns,
            "unmanaged": unmanaged, "group": group,
        });
        println!("{value:#}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("from       {}", source.as_deref().unwrap_or("no file: all defaults"));
    println!("policy     {}", config.policy.as_deref().unwrap_or("TA"));
    let slice_ns = config.slice_ns.unwrap_or(policy::Settings::default().slice_ns);
    println!("slice      {}", plan::display_ns(slice_ns));
    println!("cpus       {}", cpus.as_deref().unwrap_or("all that this user may use"));
    println!("placement  {placement}");
    println!("turns      {turns}");
    println!("unmanaged  {unmanaged}");
    if let Some(group) = &group {
        println!("group      {group}");
    }
    if let Some(settings) = &config.settings {
        println!("settings   {settings}");
    }
    Ok(ExitCode::SUCCESS)
}
