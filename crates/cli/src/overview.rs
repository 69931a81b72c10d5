//! Bare `coplace`: what a newcomer needs.

use std::process::ExitCode;

use crate::exit::Outcome;

const TEXT: &str = "\
coplace lets parallel programs share this machine without slowing each other down.

  coplace run ./solver &        each program gets a share of the CPUs or takes turns,
  coplace run ./train --fast    and neither has to know of the other

Share
  run PROGRAM…    run one program together with the others under coplace
  mix FILE        run several programs from a file, and show what each one lost
  attach PID…     bring running programs under coplace; release gives them back as they were
  offload         let programs take turns on devices, and choose which variant of a step runs where

See
  advise          show which running programs hurt each other now, and what helps
  status          show what runs where, with how many threads, and which programs take turns
  explain [APP]   explain the plan in force
  record FILE     record what the scheduler sees and decides; replay plays it again
  doctor          show what this machine lets coplace do, and how to get more

Plan
  simulate        show what policies would do with a workload, on any machine, running nothing
  sweep FILE      simulate a grid of machines, arrival rates and policies
  policy          list the policies, show or change the one in force, write your own
  lab             measure memory accesses and slowdowns, predict slowdowns, pair programs
  profile         measure a program once, and keep what it demands and what it loses to neighbours
  config          show the configuration

Serve
  daemon          schedule until stopped, for all users if root starts it (--observe: never act)

`coplace COMMAND --help` explains a command, with an example.
";

pub fn main() -> Outcome {
    print!("{TEXT}");
    Ok(ExitCode::SUCCESS)
}
