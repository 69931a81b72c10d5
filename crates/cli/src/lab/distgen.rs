//! `coplace lab distgen`: accesses of known reuse distances.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use probe::distgen::{DistGen, Interval, Mixture, Order, Settings, StartError};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use topology::CpuSet;

use crate::exit::{Failure, Outcome};
use crate::units::{parse_duration_ns, seconds};

/// How often it is looked whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reads memory with exactly the given stack reuse distances
#[derive(clap::Args)]
#[command(
    long_about = "Reads memory with exactly the given stack reuse distances.

A distance is how many bytes of other lines lie between two reads of a line. With 32K, every read finds \
its line in a first-level cache; with a distance beyond the last-level cache, every read goes to memory. \
Other programs beside it show what they lose to it, and it shows what it loses to them.

Each thread has memory of its own. Bandwidth counts the lines of 64 bytes that were read; with --order \
linked, the time of an access is the latency of the memory or cache where it is found.",
    after_long_help = "Exit status: 0; 2 wrong usage; 125 the memory is not available.

Examples:
  coplace lab distgen 64M --threads 2              # as much memory traffic as possible
  coplace lab distgen 32K:3,8M:1 --duration 5s     # three of four reads near, one far
  coplace lab distgen 256M --order linked          # latency of the memory"
)]
pub struct Args {
    /// Distances and their weights, such as 32K:3,8M:1
    #[arg(value_name = "DISTANCE[:WEIGHT],…")]
    mixture: Mixture,
    /// The order of reads: stream (by address), random (nothing is prefetched) or linked (each needs the one
    /// before)
    #[arg(long, default_value = "stream")]
    order: Order,
    /// Number of threads, each with memory of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Bind thread i to CPU i of this list, such as 0-3,8
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Bytes per second of all threads together, such as 500M [default: full speed]
    #[arg(long, value_name = "BYTES", value_parser = workload::parse_bytes)]
    rate: Option<u64>,
    /// How often to print what is achieved
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration_ns)]
    interval: u64,
    /// End after this time [default: when interrupted]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    duration: Option<u64>,
    /// End after this many reads of each thread
    #[arg(long, value_name = "N")]
    accesses: Option<u64>,
    /// Seed of random orders
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON for each interval
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::ours)?;
    }
    let settings = Settings {
        order: args.order,
        threads: args.threads,
        cpus: args.cpus.as_ref().map(|cpus| cpus.iter().collect()).unwrap_or_default(),
        bytes_per_s: args.rate.map(|rate| rate as f64),
        accesses: args.accesses,
        seed: args.seed,
        ..Settings::new(args.mixture.clone())
    };
    let mut generator = DistGen::start(&settings).map_err(|error| match error {
        StartError::Cpu { .. } => Failure::bad_input(error),
        other => Failure::ours(other),
    })?;
    if !args.json {
        eprintln!("coplace: {}, {} threads, {}", args.mixture, args.threads, generator.width());
    }
    let began = Instant::now();
    let end = args.duration.map(|ns| began + Duration::from_nanos(ns));
    let mut next = began + Duration::from_nanos(args.interval);
    loop {
        let over = generator.is_done()
            || stop.load(Ordering::Relaxed)
            || end.is_some_and(|end| Instant::now() >= end);
        if over || Instant::now() >= next {
            next += Duration::from_nanos(args.interval);
            let interval = generator.interval();
            // What is left at the end may be next to nothing.
            if interval.accesses > 0 {
                print_interval(&interval, began.elapsed(), args.json);
            }
        }
        if over {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
    }
}

fn print_interval(interval: &Interval, since: Duration, json: bool) {
    if json {
        let line = json!({
            "at_s": since.as_secs_f64(),
            "seconds": interval.seconds,
            "accesses": interval.accesses,
            "bytes_per_s": interval.bytes_per_s(),
            "ns_per_access": interval.ns_per_access(),
        });
        println!("{line}");
    } else {
        println!(
            "{:8.2} s  {:8.2} GB/s  {:8.2} ns an access",
            seconds(since.as_nanos() as u64),
            interval.bytes_per_s() / 1e9,
            interval.ns_per_access()
        );
    }
}
