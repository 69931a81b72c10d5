//! What others than the mix take of its CPUs meanwhile: foreign programs, and the hypervisor for other machines.

use linux::unmanaged::{self, Sample};
use linux::{Root, procfs};
use topology::CpuSet;

/// From this share of the CPUs' time on, a measurement counts as disturbed. Below it lie the daemons of any machine, and
/// the clock ticks in which the kernel counts.
pub const DISTURBED: f64 = 0.05;

/// How these CPUs stand. What this process, its descendants and those of them that have ended use is not foreign. `None`
/// where the kernel does not tell.
pub fn sample(cpus: &CpuSet) -> Option<Sample> {
    let root = Root::live();
    let own = procfs::tree(std::process::id(), &root).ok()?;
    unmanaged::sample([(0, &own[..], cpus)], &root).ok()
}

/// The share of their time that others have taken since then; `None` where that cannot be known.
pub fn sample_share(before: &Sample, cpus: &CpuSet) -> Option<f64> {
    unmanaged::usage_share_between(before, &sample(cpus)?, cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_keeps_these_times() {
        let cpus = linux::affinity::get(std::process::id()).unwrap();
        let sample = sample(&cpus).expect("the kernel keeps these times");
        assert!(sample.managed[&0].cpu_ns > 0 && cpus.iter().all(|cpu| sample.cpus.cpus.contains_key(&cpu)));
    }
}
