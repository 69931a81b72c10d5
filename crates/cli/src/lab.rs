//! `coplace lab`: tools that measure, and what follows from what was measured.

mod bubbles;
mod distgen;
mod djsb;
mod heat;
mod matrix;
mod pair;
mod predict;
mod reuse;
pub mod slowdown;
mod twins;

pub use self::reuse::Summary;
use crate::exit::Outcome;

/// Measures memory accesses and slowdowns, predicts slowdowns, pairs programs
#[derive(clap::Args)]
#[command(
    long_about = "Measures memory accesses and slowdowns, predicts slowdowns, pairs programs.

None of these tools needs a scheduler or changes anything on the machine; some of them run programs.",
    after_long_help = "Example: measure for ten minutes, predict the rest, and see which programs go well \
together
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
    Djsb(djsb::Args),
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
        What::Djsb(args) => djsb::main(args),
    }
}
