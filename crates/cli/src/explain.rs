//! `coplace explain`: why it is so.

use std::process::ExitCode;

use protocol::{FromScheduler, ToScheduler};
use workload::AppId;

use crate::exit::{Failure, Outcome};
use crate::scheduler;

/// Tells why programs run where they run
#[derive(clap::Args)]
#[command(
    long_about = "Tells why the plan is as it is: what the policy went by, and for one program why it stands
where it stands, with as many threads, or waits.

Exit status: 0, 1 where no scheduler runs, 2 for a program that it does not know.

Example:
  coplace explain cg"
)]
pub struct Args {
    /// The program, as `coplace status` names it; without it: all
    app: Option<AppId>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    let request = ToScheduler::Explain { id: args.app.clone() };
    let answer = scheduler::ask(&request, |m| matches!(m, FromScheduler::Explanation { .. }))?;
    let FromScheduler::Explanation { lines } = answer else {
        return Err(Failure::ours("the scheduler answered something else than an explanation"));
    };
    if args.json {
        println!("{:#}", serde_json::json!({ "app": args.app, "lines": lines }));
    } else {
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}
