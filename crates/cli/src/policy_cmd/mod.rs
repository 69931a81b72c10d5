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

/// Lists the policies, shows or changes the one in force, helps to write one in Lua
#[derive(clap::Args)]
#[command(
    long_about = "Lists the policies, shows the one in force, or changes it while programs run. A file that ends in .lua
is a policy, too: `new` writes one to begin from, `test` tries it on random machines and programs.

Exit status: 0, 1 where no scheduler runs (get, set) or a plan is wrong (test), 2 for a policy or
setting that does not exist.

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
    /// The policy in force
    Get {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the policy of the scheduler that runs, until it ends
    Set {
        /// Letters or words, or a Lua file: TA, "equal parts", mine.lua
        #[arg(value_parser = crate::policy_name::policy_letters)]
        policy: String,
        /// A setting of the policy, in TOML: `allowed_widths=[2]` (repeatable)
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a policy in Lua to begin from, and annotations for your editor beside it
    New {
        /// The file, mine.lua
        file: PathBuf,
    },
    /// Try a policy on random machines with random programs and events
    Test(own::TestArgs),
    /// All policies, and what each does
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
    println!(
        "\nA file that ends in .lua is a policy, too: `coplace policy new mine.lua` writes one to begin from."
    );
}
