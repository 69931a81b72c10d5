//! `coplace policy get | set | list`.

use std::process::ExitCode;

use protocol::{FromScheduler, ToScheduler};

use crate::choices::toml_settings;
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::scheduler;
use crate::table::Table;

/// Lists the policies, shows or changes the one in force
#[derive(clap::Args)]
#[command(long_about = "Lists the policies, shows the one in force, or changes it while programs run.

Exit status: 0, 1 where no scheduler runs (get, set), 2 for a policy or setting that does not exist.

Example: programs share in turns of two CPUs each
  coplace policy set CO --set allowed_widths=[2]")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The policy in force
    Get {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the policy of the scheduler that runs, until it ends
    Set {
        /// Letters or words: TA, "equal parts"
        #[arg(value_parser = crate::words::policy_letters)]
        policy: String,
        /// A setting of the policy, in TOML: `allowed_widths=[2]` (repeatable)
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// All policies, and what each does
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn main(args: &Args) -> Outcome {
    match &args.what {
        What::Get { json } => tell(&ToScheduler::GetPolicy, *json),
        What::Set { policy, set, json } => {
            // The file's settings hold for the scheduler too; those given now go before them.
            let file = Config::load().map_err(Failure::bad_input)?.settings.unwrap_or_default();
            let settings = toml_settings(file, set)?;
            policy::by_name(policy, &settings).map_err(Failure::bad_input)?;
            let settings = (!set.is_empty()).then(|| serde_json::to_value(settings)).transpose();
            let settings = settings.map_err(Failure::ours)?;
            tell(&ToScheduler::SetPolicy { policy: policy.clone(), settings }, *json)
        }
        What::List { json } => {
            list(*json);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn tell(request: &ToScheduler, json: bool) -> Outcome {
    let answer = scheduler::ask(request, |message| matches!(message, FromScheduler::Policy { .. }))?;
    let FromScheduler::Policy { letters, words } = answer else {
        return Err(Failure::ours("the scheduler answered something else than its policy"));
    };
    match json {
        true => println!("{:#}", serde_json::json!({ "letters": letters, "words": words })),
        false => println!("{words} ({letters})"),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) {
    let listed = policy::list();
    if json {
        let all: Vec<_> = listed
            .iter()
            .map(|policy| serde_json::json!({ "letters": policy.letters, "words": policy.words, "what": policy.summary }))
            .collect();
        println!("{:#}", serde_json::Value::from(all));
        return;
    }
    let mut table = Table::new(&["policy", "what it does"]);
    for policy in listed {
        table.row([format!("{} ({})", policy.words, policy.letters), policy.summary.to_string()]);
    }
    print!("{table}");
}
