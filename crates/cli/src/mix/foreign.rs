//! What others than the mix took of its CPUs meanwhile: foreign programs, and the hypervisor for other machines.

use linux::{Root, clock, procfs};
use topology::CpuSet;

/// From this share of the CPUs' time on, a measurement counts as disturbed. Below it lie the daemons of any machine, and
/// the clock ticks in which the kernel counts.
pub const DISTURBED: f64 = 0.05;

/// Measurements shorter than this tell no share: a clock tick of 10 ms is too large a part of them.
const SHORTEST_NS: u64 = 200_000_000;

/// A moment of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    at_ns: u64,
    cpus: u64,
    /// That these CPUs have been busy, or were taken away while they had something to do.
    used_ns: u64,
    /// CPU time of this process, its descendants, and those of them that have ended.
    own_ns: u64,
}

impl Moment {
    /// Now, on these CPUs; `None` where the kernel does not tell.
    pub fn now(cpus: &CpuSet) -> Option<Moment> {
        let root = Root::live();
        let times = procfs::cpu_times(&root).ok()?;
        let own_ns = procfs::tree_cpu_time_ns(&procfs::tree(std::process::id(), &root).ok()?, &root);
        let ours = times.cpus.iter().filter(|(cpu, _)| cpus.contains(**cpu));
        let used: u64 = ours.map(|(_, ticks)| ticks.busy_ticks + ticks.stolen_ticks).sum();
        let used_ns = used * (1_000_000_000 / procfs::ticks_per_second());
        Some(Moment { at_ns: clock::now_ns(), cpus: cpus.len() as u64, used_ns, own_ns })
    }

    /// The share of the CPUs' time since an earlier moment that others took; `None` where that was too short a time.
    pub fn measure_foreign_share(&self, earlier: &Moment) -> Option<f64> {
        let passed_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let used_ns = self.used_ns.saturating_sub(earlier.used_ns);
        let own_ns = self.own_ns.saturating_sub(earlier.own_ns);
        let capacity_ns = passed_ns.saturating_mul(self.cpus);
        (passed_ns >= SHORTEST_NS && capacity_ns > 0)
            .then(|| (used_ns.saturating_sub(own_ns) as f64 / capacity_ns as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn moment(at_s: u64, used_s: u64, own_s: u64) -> Moment {
        Moment { at_ns: at_s * SECOND, cpus: 2, used_ns: used_s * SECOND, own_ns: own_s * SECOND }
    }

    #[test]
    fn one_of_two_cpus_used_by_others_is_a_half() {
        // Ten seconds of two CPUs: both busy throughout, half of it ours.
        assert_eq!(moment(11, 25, 14).measure_foreign_share(&moment(1, 5, 4)), Some(0.5));
    }

    #[test]
    fn own_use_is_no_foreign_load() {
        assert_eq!(moment(11, 25, 24).measure_foreign_share(&moment(1, 5, 4)), Some(0.0));
        // The kernel counts in ticks: ours may seem more than all.
        assert_eq!(moment(11, 24, 24).measure_foreign_share(&moment(1, 5, 4)), Some(0.0));
    }

    #[test]
    fn too_short_a_time_has_no_share() {
        assert_eq!(moment(1, 5, 4).measure_foreign_share(&moment(1, 5, 4)), None);
    }

    #[test]
    fn this_machine_keeps_these_times() {
        let cpus = linux::affinity::get(std::process::id()).unwrap();
        let moment = Moment::now(&cpus).expect("the kernel keeps these times");
        assert!(moment.used_ns > 0 && moment.cpus == cpus.len() as u64);
    }
}
