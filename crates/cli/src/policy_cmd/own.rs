//! `coplace policy new` and `test`: policies of one's own, in Lua.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use policy::{Settings, by_name, lua, trial};

use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::policy_name;

/// Annotations for editors; a file of this name that does not begin as ours does is somebody else's.
const STUBS_NAME: &str = "coplace.lua";

/// Writes a policy to begin from, and the annotations beside it.
pub fn new(file: &Path) -> Outcome {
    let name = file.to_string_lossy();
    if !lua::is_script(&name) {
        return Err(Failure::bad_input(format!(
            "{name}: the name of a Lua policy ends in .lua, as in mine.lua"
        )));
    }
    if file.file_name().is_some_and(|name| name == STUBS_NAME) {
        return Err(Failure::bad_input(format!(
            "{name}: {STUBS_NAME} is for the annotations; choose another name"
        )));
    }
    let mut opened = OpenOptions::new().write(true).create_new(true).open(file).map_err(|error| {
        let there = error.kind() == std::io::ErrorKind::AlreadyExists;
        match there {
            true => Failure::bad_input(format!("{name} is there already; it was left as it is")),
            false => Failure::unwritable(file, error),
        }
    })?;
    let text = lua::START.replace("FILE", &name);
    opened.write_all(text.as_bytes()).map_err(|error| Failure::unwritable(file, error))?;
    println!("{name}: a policy that works; change it, then try it:");
    let stubs = file.with_file_name(STUBS_NAME);
    let foreign = std::fs::read_to_string(&stubs).is_ok_and(|text| !text.starts_with("---@meta coplace"));
    println!("  coplace policy test {name}");
    println!("  coplace simulate --machine 'pack:2 core:4' --steps 8 --policy {name},TA");
    println!("  coplace simulate set:B --seeds 10 --machine 'pack:4 [numa] l3:1 core:6' --policy {name},TA");
    if foreign {
        println!("{} is something else and was left as it is; no annotations were written", stubs.display());
    } else {
        std::fs::write(&stubs, lua::STUBS).map_err(|error| Failure::unwritable(&stubs, error))?;
        println!("{}: what it can use, for editors with a Lua language server", stubs.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub struct TestArgs {
    /// The Lua file, or a built-in policy
    #[arg(value_parser = policy_name::policy_letters)]
    policy: String,
    /// Seed of the first sequence of events
    #[arg(long, default_value = "1", value_name = "N")]
    seed: u64,
    /// Number of sequences of events
    #[arg(long, default_value = "1000", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Tries the policy with the checker beside it.
pub fn test(args: &TestArgs) -> Outcome {
    let script = policy_name::script(&args.policy).map_err(Failure::bad_input)?;
    let of = |settings: &Settings| {
        let settings = Settings { script: script.clone(), ..settings.clone() };
        by_name(&args.policy, &settings)
    };
    let name = of(&Settings::default()).map_err(Failure::bad_input)?.name();
    let make = |settings: &Settings| of(settings).expect("it was read with other settings before");
    let tried = trial::sequences(args.seed, args.cases, &|seed| trial::sequence(seed, &make));
    if args.json {
        let value = match &tried {
            Ok(decisions) => serde_json::json!({ "policy": name, "decisions": decisions, "seed": null }),
            Err((seed, why)) => serde_json::json!({ "policy": name, "seed": seed, "why": why }),
        };
        println!("{value:#}");
    }
    match tried {
        Ok(decisions) => {
            if !args.json {
                let (first, last) = (args.seed, args.seed.saturating_add(args.cases - 1));
                println!(
                    "{name}: {decisions} decisions on random machines, each passed the checker (seeds {first} to {last})"
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        Err((seed, why)) => {
            if !args.json {
                println!("{name}: seed {seed} leads to a plan that is wrong\n\n{why}\n");
                println!("repeat with: coplace policy test {} --seed {seed} --cases 1", args.policy);
            }
            Ok(ExitCode::from(DOES_NOT_HOLD))
        }
    }
}
