//! `coplace lab`: tools that measure, and what follows from what was measured.

mod bubbles;
mod distgen;
mod heat;
mod matrix;
mod pair;
mod predict;
mod reuse;
pub mod slowdown;
mod twins;

pub use self::reuse::Summary;
use crate::exit::Outcome;

/// Measuring tools, and what follows from what they measured: memory accesses, who slows whom, who suits whom
#[derive(clap::Args)]
#[command(
    long_about = "Measuring tools, and what follows from what they measured. They need no scheduler; some run
programs, and none changes settings of the machine.

Example: measure for ten minutes, predict the rest, and see who should stand beside whom
  coplace lab matrix --out pairs.csv --budget 10min ./cg ./ft ./ep ./sort
  coplace lab predict --matrix pairs.csv
  coplace lab pair --matrix pairs.csv --places 4"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Distgen(distgen::Args),
    Reuse(reuse::Args),
    Slowdown(slowdown::Args),
    Matrix(matrix::Args),
    Predict(predict::Args),
    Pair(pair::Args),
    Twins(twins::Args),
    Bubbles(bubbles::Args),
}

pub fn main(args: &Args) -> Outcome {
    match &args.what {
        What::Distgen(args) => distgen::main(args),
        What::Reuse(args) => reuse::main(args),
        What::Slowdown(args) => slowdown::main(args),
        What::Matrix(args) => matrix::main(args),
        What::Predict(args) => predict::main(args),
        What::Pair(args) => pair::main(args),
        What::Twins(args) => twins::main(args),
        What::Bubbles(args) => bubbles::main(args),
    }
}
