//! `coplace offload`: which variant of a step runs on which device, by strategies in Lua.

mod live;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use offload::lua::START;
use offload::registry::{self, STRATEGIES};
use offload::scenario::Scenario;
use offload::simulate::{Played, simulate};
use offload::strategy::Strategy;
use offload::task::Governor;
use serde_json::{Value, json};

use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::table::Table;
use crate::units::{format_ns, seconds};

/// Decides which variant of a step runs on which device, by strategies in Lua
#[derive(clap::Args)]
#[command(
    long_about = "Decides which variant of a step runs on which device, by strategies in Lua.

Programs may bring a step as kernels for one core, for all cores and for devices. A strategy decides which kernel \
runs where and when. `serve` runs it for live programs, `simulate` plays a scenario.",
    after_long_help = "Exit status: 0; 1 a strategy leaves tasks where they are, or fails while it is played, or no \
service runs; 2 a file is wrong, or there is no such strategy. `run` has the status of its command.

Example: two trainings take turns on a GPU; a third may also use all cores
  coplace offload serve --device gpu &
  coplace offload run --kernel gpu='python train.py a' &
  coplace offload run --kernel gpu='python train.py b' &
  coplace offload run --kernel gpu='python train.py c' --kernel all-cores='python train.py c --cpu' &

Example: the four strategies that come with coplace, with all resources and with few
  coplace offload simulate products.toml --governor high,low

Example: a strategy of your own
  coplace offload new mine.lua && coplace offload simulate products.toml --strategy mine.lua,short-term"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Serves programs until it is stopped: they take turns on cores and devices
    Serve(live::ServeArgs),
    /// Waits for a resource, and runs the command for it there
    Run(live::RunArgs),
    /// Shows resources, what runs there, and what waits
    Status(live::StatusArgs),
    /// Changes the strategy or the governor while everything runs
    Set(live::SetArgs),
    /// Prints where the service of this user listens, whether it runs or not
    Socket,
    /// Plays tasks on a node in simulated time
    Simulate(SimulateArgs),
    /// Reads strategies in Lua, and says whether they can be used
    Check {
        /// Lua files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Lists the strategies that come with coplace
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Prints the text of a strategy that comes with coplace
    Show {
        /// Its name, such as short-term
        strategy: String,
    },
    /// Writes a strategy in Lua to start from
    New {
        /// The file to write, such as mine.lua
        file: PathBuf,
    },
}

#[derive(clap::Args)]
struct SimulateArgs {
    /// The scenario, in TOML: docs/formats/offload-scenario.md
    file: PathBuf,
    /// Names or Lua files, separated by commas; all that come with coplace if none is given
    #[arg(long, value_delimiter = ',', value_name = "STRATEGY")]
    strategy: Vec<String>,
    /// Governors, separated by commas, instead of the scenario's: high, low
    #[arg(long, value_delimiter = ',', value_parser = parse_governor, value_name = "GOVERNOR")]
    governor: Vec<Governor>,
    /// Print where and when each task ran
    #[arg(long, conflicts_with = "json")]
    schedule: bool,
    /// Print JSON, with where and when each task ran
    #[arg(long)]
    json: bool,
}

fn parse_governor(text: &str) -> Result<Governor, String> {
    [Governor::High, Governor::Low]
        .into_iter()
        .find(|governor| governor.as_str() == text)
        .ok_or_else(|| "a governor is high or low".to_owned())
}

pub fn main(args: &Args) -> Outcome {
    match &args.what {
        What::Serve(args) => live::run_service(args),
        What::Run(args) => live::run(args),
        What::Status(args) => live::status(args),
        What::Set(args) => live::set(args),
        What::Socket => live::print_socket(),
        What::Simulate(args) => play(args),
        What::Check { files } => {
            for file in files {
                let strategy = read_strategy(&file.to_string_lossy())?;
                println!("{}: a strategy that can be used{}", file.display(), describe_tick(&*strategy));
            }
            Ok(ExitCode::SUCCESS)
        }
        What::List { json } => {
            list(*json);
            Ok(ExitCode::SUCCESS)
        }
        What::Show { strategy } => {
            let listed = registry::find(strategy).map_err(Failure::bad_input)?;
            let not_lua = || Failure::bad_input(format!("{strategy} is not written in Lua"));
            print!("{}", listed.text.ok_or_else(not_lua)?);
            Ok(ExitCode::SUCCESS)
        }
        What::New { file } => new(file),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", path.display())))
}

/// A strategy's name, and its text if it is a file.
fn find_strategy(name: &str) -> Result<(String, Option<String>), Failure> {
    let is_file = registry::find(name).is_err() && policy::lua::is_script(name);
    let text = is_file.then(|| read(Path::new(name))).transpose()?;
    Ok((name.to_owned(), text))
}

fn read_strategy(name: &str) -> Result<Box<dyn Strategy>, Failure> {
    let (name, text) = find_strategy(name)?;
    registry::strategy(&name, text.as_deref()).map_err(Failure::bad_input)
}

fn describe_tick(strategy: &dyn Strategy) -> String {
    strategy.tick_ns().map_or_else(String::new, |ns| format!("; called every {}", format_ns(ns)))
}

fn play(args: &SimulateArgs) -> Outcome {
    let scenario = Scenario::parse(&read(&args.file)?)
        .map_err(|error| Failure::bad_input(format!("{}: {error}", args.file.display())))?;
    let names = match args.strategy.is_empty() {
        true => STRATEGIES.iter().map(|listed| listed.name.to_owned()).collect(),
        false => args.strategy.clone(),
    };
    let governors = if args.governor.is_empty() { vec![scenario.governor] } else { args.governor.clone() };
    let mut results = Vec::new();
    for name in &names {
        for governor in &governors {
            let scenario = Scenario { governor: *governor, ..scenario.clone() };
            let played = simulate(&scenario, read_strategy(name)?)
                .map_err(|error| Failure::new(DOES_NOT_HOLD, error))?;
            results.push((name.as_str(), *governor, played));
        }
    }
    if args.json {
        let all: Vec<Value> =
            results.iter().map(|(name, governor, played)| to_json(name, *governor, played)).collect();
        println!("{:#}", json!({ "cores": scenario.cores, "results": all }));
        return Ok(ExitCode::SUCCESS);
    }
    print!("{}", render(&results));
    if args.schedule {
        for (name, governor, played) in &results {
            print!("\n{name}, governor {}\n{}", governor.as_str(), render_schedule(played));
        }
    }
    println!(
        "\nsimulated; a run is the time from a kernel's begin to its end, a response that from a task's arrival"
    );
    Ok(ExitCode::SUCCESS)
}

/// How many tasks each resource ran: `3 core0, 1 gpu0`.
fn describe_places(played: &Played) -> String {
    let count = |resource: &String| played.tasks.iter().filter(|task| task.resource == *resource).count();
    let texts: Vec<String> =
        played.busy_ns.keys().map(|resource| format!("{} {resource}", count(resource))).collect();
    texts.join(", ")
}

fn render(results: &[(&str, Governor, Played)]) -> Table {
    let mut table =
        Table::new(&["strategy", "governor", ">makespan", ">median run", ">median response", "tasks on"]);
    for (name, governor, played) in results {
        table.row([
            (*name).to_owned(),
            governor.as_str().to_owned(),
            format_ns(played.makespan_ns),
            format_ns(played.median_run_ns()),
            format_ns(played.median_response_ns()),
            describe_places(played),
        ]);
    }
    table
}

fn render_schedule(played: &Played) -> Table {
    let mut table = Table::new(&["program", "resource", ">arrived", ">began", ">ended"]);
    for task in &played.tasks {
        table.row([
            task.program.clone(),
            task.resource.clone(),
            format_ns(task.arrived_ns),
            format_ns(task.began_ns),
            format_ns(task.ended_ns),
        ]);
    }
    table
}

fn to_json(name: &str, governor: Governor, played: &Played) -> Value {
    let tasks: Vec<Value> = played
        .tasks
        .iter()
        .map(|task| {
            json!({
                "program": task.program,
                "resource": task.resource,
                "rank": task.rank + 1,
                "arrived_s": seconds(task.arrived_ns),
                "began_s": seconds(task.began_ns),
                "ended_s": seconds(task.ended_ns),
            })
        })
        .collect();
    let busy = played.busy_ns.iter().map(|(resource, ns)| (resource.clone(), json!(seconds(*ns))));
    json!({
        "strategy": name,
        "governor": governor.as_str(),
        "makespan_s": seconds(played.makespan_ns),
        "median_run_s": seconds(played.median_run_ns()),
        "median_response_s": seconds(played.median_response_ns()),
        "busy_s": busy.collect::<serde_json::Map<String, Value>>(),
        "calls": played.calls,
        "tasks": tasks,
    })
}

fn list(json: bool) {
    if json {
        let all: Vec<Value> =
            STRATEGIES.iter().map(|it| json!({ "name": it.name, "what": it.summary })).collect();
        println!("{:#}", Value::from(all));
        return;
    }
    let mut table = Table::new(&["strategy", "what it does"]);
    STRATEGIES.iter().for_each(|it| table.row([it.name.to_owned(), it.summary.to_owned()]));
    print!("{table}");
    println!(
        "\nA file that ends in .lua is a strategy, too: `coplace offload new mine.lua` writes one to begin from."
    );
}

fn new(file: &Path) -> Outcome {
    let name = file.to_string_lossy();
    if !policy::lua::is_script(&name) {
        return Err(Failure::bad_input(format!(
            "{name}: the name of a strategy in Lua ends in .lua, as in mine.lua"
        )));
    }
    let mut opened = OpenOptions::new().write(true).create_new(true).open(file).map_err(|error| {
        match error.kind() == std::io::ErrorKind::AlreadyExists {
            true => Failure::bad_input(format!("{name} is there already; it was left as it is")),
            false => Failure::unwritable(file, error),
        }
    })?;
    let text = START.replace("FILE", &name);
    opened.write_all(text.as_bytes()).map_err(|error| Failure::unwritable(file, error))?;
    println!("{name}: a strategy that works; change it, then try it:");
    println!("  coplace offload check {name}");
    println!("  coplace offload simulate SCENARIO.toml --strategy {name},short-term");
    Ok(ExitCode::SUCCESS)
}
