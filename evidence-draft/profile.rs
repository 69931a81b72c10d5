//! `coplace profile`: measures a program once, and keeps what was found out.

mod known;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ::reuse::Rate;
use evidence::{Kind, Program, Sample, Store};
use probe::tool::{self, Options, RunError, Tool};
use serde_json::{Value, json};
use topology::Machine;

use crate::exit::{DOES_NOT_HOLD, Failure, Outcome};
use crate::lab::reuse_summary;

/// Names the file of the evidence store.
const STORE_VARIABLE: &str = "COPLACE_EVIDENCE";
/// Where root keeps it.
const SYSTEM: &str = "/var/lib/coplace/evidence.sqlite";
/// Share of the lines that are looked at.
const SAMPLE: f64 = 0.01;

/// Measures a program, and keeps what was found out about it
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "Measures what is not known yet of a program with so many threads on this machine, and keeps it: its time
alone, and the reuse distances of its accesses (from a sample of 1% of the lines; needs valgrind, see
`coplace lab reuse`). The program runs twice, its output goes nowhere. A program is known again by the
content of its file and by its arguments; one that was changed is another one.

The store is the file $COPLACE_EVIDENCE, else /var/lib/coplace/evidence.sqlite for root and
~/.local/share/coplace/evidence.sqlite for others.

Exit status: 0, 1 where a part could not be measured here or nothing is known, 2 for a program that cannot be measured.

Examples:
  coplace profile --threads 2 -- ./cg --size S
  coplace profile list
  coplace profile show cg --json
  coplace profile export > evidence.jsonl"
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// OpenMP threads; one for each CPU that we may use otherwise
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Measure again what is known already; both samples are kept
    #[arg(long)]
    again: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Lists what is known, by program, threads and machine
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows the samples of a program
    Show {
        /// Its command, or the name of its file
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Prints all samples, a line of JSON each
    Export,
    /// Takes in samples from such lines; those that are there already are passed over
    Import {
        /// The lines
        file: PathBuf,
    },
    /// Forgets a program with all its samples
    Forget {
        /// Its command, or the name of its file
        name: String,
    },
}

pub fn main(args: &Args) -> Outcome {
    let mut store = open()?;
    match &args.what {
        Some(What::List { json }) => known::list(&store, *json),
        Some(What::Show { name, json }) => known::show(&store, name, *json),
        Some(What::Export) => known::export(&store),
        Some(What::Import { file }) => known::import(&mut store, file),
        Some(What::Forget { name }) => known::forget(&mut store, name),
        None if args.program.is_empty() => Err(Failure::bad_input(
            "no program is given: coplace profile -- PROGRAM (or list, show, export, import, forget)",
        )),
        None => measure(&mut store, args),
    }
}

fn open() -> Result<Store, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = || {
        let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
        data.map(|data| data.join("coplace/evidence.sqlite"))
    };
    let path = match std::env::var_os(STORE_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None if rustix::process::geteuid().is_root() => PathBuf::from(SYSTEM),
        None => own().ok_or_else(|| {
            Failure::ours(format!("no place for the evidence store: set {STORE_VARIABLE} to a file"))
        })?,
    };
    Store::open(&path).map_err(Failure::ours)
}

fn measure(store: &mut Store, args: &Args) -> Outcome {
    let words = &args.program;
    let name: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let file = tool::check(&words[0]).map_err(failed)?;
    let key = node::remember::key_of(&file, words);
    let program = Program {
        binary: key.binary,
        main_argument: key.main_argument,
        arguments: key.arguments,
        name: name.join(" "),
    };
    let machine = Machine::discover().machine;
    let machine_words = known::machine_words(&machine);
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
    };
    let there = store.samples(Some(&program)).map_err(Failure::ours)?;
    let missing = |kind: Kind| {
        let same = |s: &&Sample| s.kind == kind && s.threads == threads && s.machine == machine_words;
        args.again || there.iter().find(same).is_none()
    };
    let mut add = |kind: Kind, value: Value| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sample = Sample {
            program: program.clone(),
            threads,
            machine: machine_words.clone(),
            kind,
            at_ns: now.as_nanos() as i64,
            value,
        };
        store.add(&sample).map_err(Failure::ours)
    };
    let mut whole = true;
    if missing(Kind::Alone) {
        let (status, cost) = tool::native(words, None, Some(threads)).map_err(failed)?;
        if !status.success() {
            return Err(Failure::new(DOES_NOT_HOLD, format!("{}: {status}; nothing was kept", program.name)));
        }
        add(Kind::Alone, json!({ "seconds": cost.seconds, "user_seconds": cost.user_seconds }))?;
    }
    if missing(Kind::Reuse) {
        match Tool::find() {
            Ok(tool) => {
                let options =
                    Options { sample: Some(Rate::Fixed(SAMPLE)), omp_threads: Some(threads), ..Options::default() };
                let run = tool.run(words, &options).map_err(failed)?;
                add(Kind::Reuse, reuse_summary(&run, &machine))?;
            }
            Err(missing) => {
                whole = false;
                eprintln!("coplace: no reuse distances: {missing}");
            }
        }
    }
    known::show(store, &program.name, false)?;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_HOLD) })
}

fn failed(error: RunError) -> Failure {
    match error {
        RunError::NotFound { .. } | RunError::Narrow { .. } | RunError::Foreign { .. } => Failure::bad_input(error),
        other => Failure::ours(other),
    }
}
