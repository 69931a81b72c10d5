//! `coplace lab`: measuring tools.

mod distgen;
mod reuse;

use crate::exit::Outcome;

/// Measuring tools: what programs take from the memory hierarchy, and what that costs others
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Distgen(distgen::Args),
    Reuse(reuse::Args),
}

pub fn main(args: &Args) -> Outcome {
    match &args.what {
        What::Distgen(args) => distgen::main(args),
        What::Reuse(args) => reuse::main(args),
    }
}
