//! `--dry-run`: what would be started, and the plan after each arrival if nobody ended before.

use std::process::ExitCode;
use std::sync::Arc;

use engine::{Engine, Event};
use node::scheduler::Options;
use plan::App;
use topology::{CpuSet, Machine};
use workload::Mix;

use crate::advise::shell;
use crate::exit::{Failure, Outcome};
use crate::units;

pub fn show(mix: &Mix, options: &Options) -> Outcome {
    let machine = Arc::new(Machine::discover().machine);
    let policy = policy::by_name(&options.policy, &options.settings).map_err(Failure::bad_input)?;
    let mask = linux::affinity::get(std::process::id()).map_err(Failure::ours)?;
    let allowed = match &options.cpus {
        Some(cpus) => allowed(cpus, &mask)?,
        None => mask,
    };
    println!("{} on CPUs {allowed}; if no program ends in between:\n", policy.name());
    let mut engine = Engine::new(machine, allowed.clone(), allowed, policy);
    for instance in mix.instances() {
        let program = &mix.programs[instance.program];
        println!("{:>8}  {}: {}", units::format_ns(instance.arrive_ns), instance.id, shell(&program.command));
        let app = App { demand: program.demand.clone(), ..App::new(instance.id, instance.arrive_ns) };
        println!("          {}", engine.handle(instance.arrive_ns, Event::Arrived(app)).plan);
    }
    Ok(ExitCode::SUCCESS)
}

fn allowed(cpus: &CpuSet, mask: &CpuSet) -> Result<CpuSet, Failure> {
    match cpus.is_subset(mask) {
        true => Ok(cpus.clone()),
        false => Err(Failure::bad_input(format!("CPUs {cpus}: this process may only use {mask}"))),
    }
}
