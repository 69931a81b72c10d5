//! What a program can do with threads, as its user says it: for `run` and `attach` alike.

use workload::{Demand, Malleability};

use crate::exit::Failure;

#[derive(clap::Args, Clone, Debug)]
pub struct DemandArgs {
    /// The program's teams must keep their size: it gets a place of its width, in turn with others
    #[arg(long)]
    rigid: bool,
    /// The program's team is made as wide as its place when it starts, and must keep that size
    #[arg(long, conflicts_with = "rigid")]
    moldable: bool,
    /// The program changes its number of threads itself, and its place follows
    #[arg(long, conflicts_with_all = ["rigid", "moldable"])]
    evolving: bool,
    /// The fewest threads that the program can run with [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    min_threads: Option<u32>,
    /// The most threads that the program can use [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_threads: Option<u32>,
    /// The program's share of the machine relative to other programs, from 0.01 to 100
    #[arg(long, value_name = "W", default_value = "1", value_parser = weight_milli)]
    weight: u32,
    /// The program's threads need not run at the same time
    #[arg(long)]
    no_coschedule: bool,
}

impl DemandArgs {
    pub fn check(&self) -> Result<(), Failure> {
        match self.min_threads.zip(self.max_threads) {
            Some((least, most)) if least > most => Err(Failure::bad_input(format!(
                "--min-threads {least} is greater than --max-threads {most}; lower one or raise the other"
            ))),
            _ => Ok(()),
        }
    }

    /// Of a program that starts with so many threads, where that is told to it.
    pub fn demand(&self, threads: Option<u32>) -> Demand {
        let malleability = match () {
            () if self.rigid => Malleability::Rigid,
            () if self.moldable => Malleability::Moldable,
            () if self.evolving => Malleability::Evolving,
            () => Malleability::Malleable,
        };
        Demand {
            malleability,
            min_threads: self.min_threads.unwrap_or(1).min(threads.unwrap_or(u32::MAX)),
            max_threads: self.max_threads.into_iter().chain(threads).min(),
            weight_milli: self.weight,
            coschedule: !self.no_coschedule,
        }
    }
}

fn weight_milli(text: &str) -> Result<u32, String> {
    let weight: f64 = text.parse().map_err(|_| "expected a number, for example 2 or 0.5".to_owned())?;
    if (0.01..=100.0).contains(&weight) {
        Ok((weight * 1000.0).round() as u32)
    } else {
        Err("it must lie between 0.01 and 100".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: DemandArgs,
    }

    fn read(options: &[&str]) -> Result<DemandArgs, String> {
        let arguments = ["coplace"].iter().chain(options);
        <Cli as clap::Parser>::try_parse_from(arguments)
            .map(|cli| cli.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_can_be_declared_and_only_one_per_program() {
        let kind = |options: &[&str]| read(options).unwrap().demand(None).malleability;
        assert_eq!(kind(&[]), Malleability::Malleable);
        assert_eq!(kind(&["--rigid"]), Malleability::Rigid);
        assert_eq!(kind(&["--moldable"]), Malleability::Moldable);
        assert_eq!(kind(&["--evolving"]), Malleability::Evolving);
        for two in [["--rigid", "--moldable"], ["--moldable", "--evolving"], ["--evolving", "--rigid"]] {
            assert!(read(&two).unwrap_err().contains("cannot be used with"), "{two:?}");
        }
    }

    #[test]
    fn threads_weight_and_coscheduling_are_used_as_stated() {
        let args = read(&["--min-threads=3", "--max-threads=8", "--weight=0.5", "--no-coschedule"]).unwrap();
        assert!(args.check().is_ok());
        let demand = args.demand(None);
        assert_eq!((demand.min_threads, demand.max_threads), (3, Some(8)));
        assert_eq!((demand.weight_milli, demand.coschedule), (500, false));
        let narrow = args.demand(Some(2));
        assert_eq!((narrow.min_threads, narrow.max_threads), (2, Some(2)));
        assert!(read(&[]).unwrap().demand(None).coschedule);
        let crossed = read(&["--min-threads=3", "--max-threads=2"]).unwrap().check().unwrap_err();
        assert!(crossed.message.contains("--min-threads 3"), "{}", crossed.message);
        assert!(read(&["--min-threads=0"]).is_err());
    }

    #[test]
    fn a_weight_is_a_positive_number_of_reasonable_size() {
        assert_eq!(weight_milli("2"), Ok(2000));
        assert_eq!(weight_milli("0.25"), Ok(250));
        for wrong in ["0", "-1", "1e9", "NaN", "much"] {
            assert!(weight_milli(wrong).is_err(), "{wrong}");
        }
    }
}
