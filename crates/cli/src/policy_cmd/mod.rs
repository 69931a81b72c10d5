//! `coplace policy get | set | list | new | test`.

mod own;

use std::path::PathBuf;
use std::process::ExitCode;

use protocol::{FromScheduler, ToScheduler};

use crate::choices::toml_settings;
use crate::config::Config;
use crate::exit::{Failure, Outcome};
use crate::scheduler;
use crate::table::Table;

/// Lists the policies, shows or changes the one in force, helps to write your own
#[derive(clap::Args)]
#[command(
    long_about = "Lists the policies, shows or changes the one in force, helps to write your own.

A policy is named by its letters or its words, or is a Lua file: `new` writes one to start from, `test` \
tries one on random machines with random programs.",
    after_long_help = "Exit status: 0; 1 no scheduler runs (get, set), or a plan is wrong (test); 2 a \
policy or setting does not exist.

Example: programs share in turns of two CPUs each
  coplace policy set CO --set allowed_widths=[2]

Example: a policy of your own
  coplace policy new mine.lua && coplace policy test mine.lua"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Shows the policy in force
    Get {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Changes the policy while programs run, until the scheduler ends
    Set {
        /// Letters, words or a Lua file, such as TA, "equal parts" or mine.lua
        #[arg(value_parser = crate::policy_name::policy_letters)]
        policy: String,
        /// A setting of the policy, in TOML, such as `allowed_widths=[2]`; repeatable
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Writes a policy in Lua to start from, and annotations for editors beside it
    New {
        /// The file to write, such as mine.lua
        file: PathBuf,
    },
    /// Tries a policy on random machines with random programs and events
    Test(own::TestArgs),
    /// Lists all policies, and what each does
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn main(args: &Args) -> Outcome {
    match &args.what {
        What::Get { json } => request_policy(&ToScheduler::GetPolicy, *json),
        What::Set { policy, set, json } => {
            // The file's settings hold for the scheduler too; those given now go before them.
            let file = Config::load().map_err(Failure::bad_input)?.settings.unwrap_or_default();
            let settings = toml_settings(file, set, None)?;
            crate::policy_name::policy(policy, &settings).map_err(Failure::bad_input)?;
            let settings = (!set.is_empty()).then(|| serde_json::to_value(settings)).transpose();
            let settings = settings.map_err(Failure::ours)?;
            // The scheduler may see other files than we, or none.
            let script = crate::policy_name::script(policy).map_err(Failure::bad_input)?;
            request_policy(&ToScheduler::SetPolicy { policy: policy.clone(), settings, script }, *json)
        }
        What::New { file } => own::new(file),
        What::Test(args) => own::test(args),
        What::List { json } => {
            list(*json);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn request_policy(request: &ToScheduler, json: bool) -> Outcome {
    let answer = scheduler::ask(request, |message| matches!(message, FromScheduler::Policy { .. }))?;
    let FromScheduler::Policy { letters, words } = answer else {
        return Err(Failure::ours("the scheduler answered something other than its policy"));
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
    println!(
        "\nA file that ends in .lua is a policy, too: `coplace policy new mine.lua` writes one to begin from."
    );
}
