//! `coplace offload serve | run | status | set`: programs that take turns on cores and devices.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use node::home::Home;
use offload::board::{Board, Overlap};
use offload::client::{Client, ClientError};
use offload::dispatch::Dispatcher;
use offload::messages::{Answer, Offer, Request, Started, Status};
use offload::registrar::Registrar;
use offload::registry::strategy;
use offload::server::Server;
use offload::task::{Governor, Kind, Resource};
use rustix::fs::FlockOperation;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use topology::CpuSet;

use super::{find_strategy, parse_governor, read_strategy};
use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::table::Table;
use crate::units::parse_duration_ns;

/// What a program is told of where it runs.
const RESOURCE_VARIABLE: &str = "COPLACE_RESOURCE";
const INDEX_VARIABLE: &str = "COPLACE_RESOURCE_INDEX";
const CORES_VARIABLE: &str = "COPLACE_CORES";
/// By which a library of some kinds of devices is told which of them it may use.
const VISIBLE: [(&str, &str); 3] =
    [("cuda", "CUDA_VISIBLE_DEVICES"), ("hip", "HIP_VISIBLE_DEVICES"), ("rocr", "ROCR_VISIBLE_DEVICES")];

#[derive(clap::Args)]
pub struct ServeArgs {
    /// A name or a Lua file
    #[arg(long, default_value = "adaptive", value_name = "STRATEGY")]
    strategy: String,
    /// high or low
    #[arg(long, default_value = "high", value_parser = parse_governor, value_name = "GOVERNOR")]
    governor: Governor,
    /// A kind of device, and how many there are, such as gpu or cuda=2; repeatable
    #[arg(long = "device", value_parser = parse_device, value_name = "KIND[=COUNT]")]
    devices: Vec<(Kind, u32)>,
    /// Cores to share out [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cores: Option<CpuSet>,
    /// Let kernels run side by side on cores that they have in common
    #[arg(long)]
    overlap: bool,
}

#[derive(clap::Args)]
pub struct RunArgs {
    /// A kind of resource (core, all-cores or a device's) and the command for it, the best first; repeatable
    #[arg(long = "kernel", required = true, value_parser = parse_kernel, value_name = "KIND=COMMAND")]
    kernels: Vec<(Kind, String)>,
    /// Expected time of each kernel, in the order of the kernels
    #[arg(long = "expected", value_delimiter = ',', value_parser = parse_duration_ns, value_name = "TIME,…")]
    expected_ns: Vec<u64>,
    /// What it is called in reports [default: the first word of the first command]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(clap::Args)]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// A name or a Lua file
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<String>,
    /// high or low
    #[arg(long, value_parser = parse_governor, value_name = "GOVERNOR")]
    governor: Option<Governor>,
}

fn parse_device(text: &str) -> Result<(Kind, u32), String> {
    let (kind, count) = text.split_once('=').unwrap_or((text, "1"));
    let kind: Kind = kind.parse().map_err(|error| format!("{error}"))?;
    if !matches!(kind, Kind::Device(_)) {
        return Err(format!("{kind} is no device: cores are given by --cores"));
    }
    let count = count.parse().ok().filter(|count| (1..=1024).contains(count));
    Ok((kind, count.ok_or("the number of devices is from 1 to 1024")?))
}

fn parse_kernel(text: &str) -> Result<(Kind, String), String> {
    let (kind, command) =
        text.split_once('=').ok_or("a kernel is KIND=COMMAND, as in gpu='./solve --gpu'")?;
    let kind = kind.parse().map_err(|error| format!("{error}"))?;
    match command.trim() {
        "" => Err(format!("there is no command for {kind}")),
        command => Ok((kind, command.to_owned())),
    }
}

/// Where the service of this user listens.
fn socket() -> Result<PathBuf, Failure> {
    let home = Home::find().map_err(Failure::ours)?;
    // Root's scheduler is everybody's; a service is its user's own.
    Ok(home.fallback().unwrap_or(home).path().join("offload"))
}

/// For libraries that connect by themselves.
pub fn print_socket() -> Outcome {
    println!("{}", socket()?.display());
    Ok(ExitCode::SUCCESS)
}

fn client_failure(error: ClientError) -> Failure {
    match error {
        ClientError::NotThere { .. } => {
            Failure::new(DOES_NOT_HOLD, format!("{error}; `coplace offload serve` starts one"))
        }
        ClientError::Refused { why, .. } => Failure::bad_input(why),
        other => Failure::ours(other),
    }
}

fn list_resources(cores: &CpuSet, devices: &[(Kind, u32)]) -> Vec<Resource> {
    let resource = |name: String, kind: &Kind, cores: CpuSet, threads: f64| Resource {
        name,
        kind: kind.clone(),
        cores,
        threads,
    };
    let count = cores.len() as f64;
    let mut all = vec![resource(Kind::AllCores.to_string(), &Kind::AllCores, cores.clone(), count)];
    all.extend(
        cores
            .iter()
            .map(|core| resource(format!("core{core}"), &Kind::Core, CpuSet::from_cpus(&[core]), 1.0)),
    );
    // A device's host thread has a core, counted from the last one down.
    let mut hosts: Vec<u32> = cores.iter().collect();
    hosts.reverse();
    let mut given = 0;
    for (kind, count) in devices {
        for index in 0..*count {
            let host = CpuSet::from_cpus(&[hosts[given % hosts.len()]]);
            given += 1;
            all.push(resource(format!("{kind}{index}"), kind, host, 0.0));
        }
    }
    all
}

pub fn run_service(args: &ServeArgs) -> Outcome {
    let own = linux::affinity::get(std::process::id()).map_err(Failure::ours)?;
    let cores = match &args.cores {
        Some(cores) if !cores.is_subset(&own) || cores.is_empty() => {
            return Err(Failure::bad_input(format!("--cores {cores}: this process may use {own}")));
        }
        Some(cores) => cores.clone(),
        None => own,
    };
    // Read here for its error only: strategies stay in the thread that decides.
    read_strategy(&args.strategy)?;
    let (name, text) = find_strategy(&args.strategy)?;
    let path = socket()?;
    let lock_path = path.with_extension("lock");
    let lock = File::create(&lock_path).map_err(|error| Failure::unwritable(&lock_path, error))?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let why = format!("an offload service runs at {} already", path.display());
        return Err(Failure::new(DOES_NOT_HOLD, why));
    }
    // One that was killed has left it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(|error| Failure::unwritable(&path, error))?;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, private).map_err(|error| Failure::unwritable(&path, error))?;
    let overlap = if args.overlap { Overlap::Allowed } else { Overlap::Refused };
    let board = Board::new(list_resources(&cores, &args.devices), overlap, args.governor);
    let make = move || Ok(Registrar::new(Dispatcher::new(board, strategy(&name, text.as_deref())?)));
    let mut server = Server::start(make).map_err(Failure::ours)?;
    server.listen(listener).map_err(Failure::ours)?;
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::ours)?;
    eprintln!("coplace: offloading at {}", path.display());
    signals.forever().next();
    drop(server);
    drop(lock);
    Ok(ExitCode::SUCCESS)
}

/// Waits for a resource, and becomes the command for it.
pub fn run(args: &RunArgs) -> Outcome {
    if !args.expected_ns.is_empty() && args.expected_ns.len() != args.kernels.len() {
        return Err(Failure::bad_input("--expected has a time for each kernel, in their order"));
    }
    let offers: Vec<Offer> = args
        .kernels
        .iter()
        .enumerate()
        .map(|(at, (on, _))| Offer { on: on.clone(), expected_ns: args.expected_ns.get(at).copied() })
        .collect();
    let first_word = || args.kernels[0].1.split_whitespace().next().unwrap_or_default();
    let base = || first_word().rsplit('/').next().unwrap_or_default().to_owned();
    let name = args.name.clone().unwrap_or_else(base);
    let error = match Client::connect(&socket()?, &name).and_then(|client| request(client, &offers)) {
        Ok((client, started)) => execute_kernel(&args.kernels[started.rank].1, Some((&client, &started))),
        Err(ClientError::NotThere { .. } | ClientError::Gone(_)) => {
            eprintln!(
                "coplace: no offload service runs: {name} runs its first kernel, for {}",
                args.kernels[0].0
            );
            execute_kernel(&args.kernels[0].1, None)
        }
        Err(error) => return Err(client_failure(error)),
    };
    Err(error)
}

fn request(mut client: Client, offers: &[Offer]) -> Result<(Client, Started), ClientError> {
    client.submit(offers)?;
    let started = client.wait()?;
    Ok((client, started))
}

/// Returns only if that fails. The connection stays open in the command: when that and all that inherited it have
/// ended, the resource is free.
fn execute_kernel(command: &str, granted: Option<(&Client, &Started)>) -> Failure {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]);
    if let Some((client, started)) = granted {
        if let Err(error) = rustix::io::fcntl_setfd(client.as_fd(), rustix::io::FdFlags::empty()) {
            return Failure::ours(format!("the connection to the service cannot be handed on: {error}"));
        }
        let resource = &started.resource;
        shell.env(RESOURCE_VARIABLE, &resource.name);
        shell.env(INDEX_VARIABLE, resource.index.to_string()).env(CORES_VARIABLE, &resource.cores);
        let kind = resource.kind.to_string();
        if let Some((_, variable)) = VISIBLE.iter().find(|(known, _)| *known == kind) {
            shell.env(variable, resource.index.to_string());
        }
        let cores: Option<CpuSet> = resource.cores.parse().ok();
        // A device's library may use threads of its own, wherever it likes.
        if let Some(cores) = cores.filter(|_| !matches!(resource.kind, Kind::Device(_)))
            && let Err(error) = linux::affinity::set(std::process::id(), &cores)
        {
            eprintln!("coplace: {} runs on any core: {error}", resource.name);
        }
    }
    let error = shell.exec();
    Failure::ours(format!("/bin/sh cannot be executed: {error}"))
}

fn connect() -> Result<Client, Failure> {
    Client::connect(&socket()?, "coplace offload").map_err(client_failure)
}

pub fn status(args: &StatusArgs) -> Outcome {
    let answer = connect()?.ask(&Request::Status).map_err(client_failure)?;
    let Answer::Status(status) = answer else {
        return Err(Failure::ours("the service answered something other than its status"));
    };
    match args.json {
        true => println!("{:#}", serde_json::to_value(&status).map_err(Failure::ours)?),
        false => print!("{}", render(&status)),
    }
    Ok(ExitCode::SUCCESS)
}

fn render(status: &Status) -> String {
    let mut table = Table::new(&["resource", "cores", "running", ">queued"]);
    for busy in &status.resources {
        let running = busy.running.clone().unwrap_or_else(|| "–".to_owned());
        table.row([
            busy.resource.name.clone(),
            busy.resource.cores.clone(),
            running,
            busy.queued.to_string(),
        ]);
    }
    let mut text = format!(
        "strategy  {}\ngovernor  {}\nwaiting   {}\nended     {}\n\n{table}",
        status.strategy,
        status.governor.as_str(),
        status.waiting,
        status.ended
    );
    status.failures.iter().for_each(|failure| text += &format!("{failure}\n"));
    text
}

pub fn set(args: &SetArgs) -> Outcome {
    let mut client = connect()?;
    let mut requests = Vec::new();
    if let Some(strategy) = &args.strategy {
        let (name, text) = find_strategy(strategy)?;
        requests.push(Request::SetStrategy { name, text });
    }
    requests.extend(args.governor.map(Request::SetGovernor));
    for request in requests {
        client.ask(&request).map_err(client_failure)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_by_their_cores_and_devices() {
        let devices = [parse_device("cuda=2").unwrap(), parse_device("opencl").unwrap()];
        let all = list_resources(&CpuSet::from_cpus(&[2, 5]), &devices);
        let names: Vec<String> = all.iter().map(|it| format!("{} on {}", it.name, it.cores)).collect();
        assert_eq!(
            names,
            ["all-cores on 2,5", "core2 on 2", "core5 on 5", "cuda0 on 5", "cuda1 on 2", "opencl0 on 5"]
        );
    }

    #[test]
    fn kernels_and_devices_are_read_as_they_are_written() {
        let kernel = parse_kernel("gpu=./solve --gpu=1").unwrap();
        assert_eq!((kernel.0.to_string().as_str(), kernel.1.as_str()), ("gpu", "./solve --gpu=1"));
        for wrong in ["./solve", "gpu=", "GPU=./solve"] {
            assert!(parse_kernel(wrong).is_err(), "{wrong}");
        }
        for wrong in ["core", "gpu=0", "gpu=x", "Gpu"] {
            assert!(parse_device(wrong).is_err(), "{wrong}");
        }
    }
}
