//! Bare `coplace`: what a newcomer needs.

use std::process::ExitCode;

use crate::exit::Outcome;

const TEXT: &str = "\
coplace lets parallel programs share this machine without slowing each other down.

  coplace run ./solver &        each program gets its share of the CPUs, or its turns,
  coplace run ./train --fast    and neither has to know of the other

Share
  run PROGRAM…    run one program together with the others under coplace
  mix FILE        run several programs from a file, and show what each one lost
  attach PID…     take running programs in; release gives them back as they were

See
  advise          which running programs hurt each other now, and what mends it
  status          what runs where, with how many threads, in turn with whom
  explain [APP]   why it is so
  record FILE     what the scheduler sees and decides; replay plays it again
  doctor          what this machine lets coplace do, and how to get more

Plan
  simulate        what policies would do with a workload, on any machine, without running anything
  sweep FILE      the same over many machines, policies and arrival rates
  policy          list the policies, see or change the one in force, write your own
  lab             measure memory accesses and pairs; who slows whom, who should stand beside whom
  profile         measure a program once, and keep what it takes and what it suffers
  config          the configuration file

Serve
  daemon          schedule for every user of this machine (--observe: look, never touch)

`coplace COMMAND --help` explains a command with an example.
";

pub fn main() -> Outcome {
    print!("{TEXT}");
    Ok(ExitCode::SUCCESS)
}
