//! `coplace profile`: measures a program once, and keeps what was found out.

mod known;
mod measure;
mod verdicts;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use evidence::{Kind, Program, Store};
use protocol::ProgramKey;

use crate::exit::{Failure, Outcome};
use crate::units::parse_duration_ns;

pub use known::machine_description;

/// Names the file of the evidence store.
const STORE_VARIABLE: &str = "COPLACE_EVIDENCE";
/// Where root keeps it.
const SYSTEM: &str = "/var/lib/coplace/evidence.sqlite";

/// Measures a program once, and keeps what was found out about it
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "Measures a program once, and keeps what was found out about it.

Measures what is not yet known of the program with a given number of threads on this machine: its time \
alone; the reuse distances of its accesses (from a sample of 1% of the lines; needs valgrind, see `coplace \
lab reuse`); hardware counters, if there are any; and what it loses beside a probe and takes from it \
(`coplace lab slowdown`, in five rounds with a probe in private caches, one of seven eighths of the \
last-level cache, and one of twice that cache's size). Then it shows which class each kind of measurement \
suggests.

The program runs some thirty times, nearly all of them for the slowdowns; its output is discarded. A \
program is recognised by the content of its file and by its arguments; if the file changes, it is another \
program. A run that exceeds --limit is ended with everything that it started, and nothing of it is kept, \
except what the reuse tool saw until then.

The evidence store is the file $COPLACE_EVIDENCE; otherwise /var/lib/coplace/evidence.sqlite for root, and \
coplace/evidence.sqlite below $XDG_DATA_HOME or ~/.local/share for other users.",
    after_long_help = "Exit status: 0; 1 something could not be measured here or not to its end, or \
nothing is known of the program; 2 the program cannot be measured, or a line is wrong (import); 130 \
interrupted (what was measured before is kept).

Examples:
  coplace profile --threads 2 -- ./cg --size S
  coplace profile --only alone,reuse -- ./cg --size S
  coplace profile show cg --json
  coplace profile export > evidence.jsonl"
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// OpenMP threads [default: half as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Measure only these kinds: alone, reuse, counters, slowdown (bursts come from `coplace daemon --probe`)
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    only: Vec<Kind>,
    /// End a run that takes longer [default: 10min; under the reuse tool 120min]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    limit: Option<u64>,
    /// Also measure again what is known already; all samples are kept
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
    /// Shows the samples of a program, and the classes that they suggest
    Show {
        /// The program's command, or the name of its file
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Prints all samples, one line of JSON each
    Export,
    /// Adds samples from a file that `export` printed; those already in the store are skipped
    Import {
        /// The file of samples, one line of JSON each
        file: PathBuf,
    },
    /// Forgets a program with all its samples
    Forget {
        /// The program's command, or the name of its file
        name: String,
    },
}

pub fn main(args: &Args) -> Outcome {
    if args.what.is_none() && args.program.is_empty() {
        return Err(Failure::bad_input(
            "no program is given: coplace profile -- PROGRAM (or list, show, export, import, forget)",
        ));
    }
    if args.only.contains(&Kind::Burst) {
        return Err(Failure::bad_input(
            "--only burst: bursts are measured beside running programs, by `coplace daemon --probe`",
        ));
    }
    let mut store = open()?;
    match &args.what {
        Some(What::List { json }) => known::list(&store, *json),
        Some(What::Show { name, json }) => known::show(&store, name, *json),
        Some(What::Export) => known::export(&store),
        Some(What::Import { file }) => known::import(&mut store, file),
        Some(What::Forget { name }) => known::forget(&mut store, name),
        None => measure::main(&mut store, args),
    }
}

/// A program as samples name it.
pub fn program(key: ProgramKey, name: String) -> Program {
    let ProgramKey { binary, main_argument, arguments } = key;
    Program { binary, main_argument, arguments, name }
}

/// Now, as samples name it: nanoseconds since 1970.
pub fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64
}

/// The store of this user.
pub fn open() -> Result<Store, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = || {
        let data =
            absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
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
