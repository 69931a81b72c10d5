//! Which of the allowed CPUs are usable: what quotas pay for and unmanaged programs leave, without roaming.

use topology::{CpuSet, Machine, Withheld};

use crate::event::Allowance;

/// How much freer other CPUs must be, in thousandths of a CPU, before programs move to them.
const WORTH_A_MOVE_MILLI: u32 = 400;

/// The usable CPUs, and why not all that are allowed; `current` are those in use so far.
pub(crate) fn usable(current: &CpuSet, allowance: &Allowance, machine: &Machine) -> (CpuSet, Vec<Withheld>) {
    let Allowance { allowed, paid_milli_cpus, unmanaged_milli } = allowance;
    let (usable, reasons) = topology::usable(allowed, *paid_milli_cpus, unmanaged_milli, machine);
    // Unmanaged programs that roam must not make managed ones roam too.
    let used = |cpus: &CpuSet| cpus.iter().filter_map(|cpu| unmanaged_milli.get(&cpu)).sum::<u32>();
    let same = current.len() == usable.len() && current.is_subset(allowed);
    let stays = same && used(current) <= used(&usable) + WORTH_A_MOVE_MILLI;
    (if stays { current.clone() } else { usable }, reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_cpus_stay_while_others_are_hardly_freer() {
        let machine = Machine::synthetic("core:4").unwrap();
        let usable_with = |current: &str, busy: &[(u32, u32)]| {
            let allowance = Allowance {
                allowed: "0-3".parse().unwrap(),
                paid_milli_cpus: None,
                unmanaged_milli: busy.iter().copied().collect(),
            };
            usable(&current.parse().unwrap(), &allowance, &machine).0.to_string()
        };
        assert_eq!(usable_with("0-3", &[]), "0-3");
        assert_eq!(usable_with("0-3", &[(3, 1000)]), "0-2");
        // One CPU is lost either way; the other program moved a little, and then for good.
        assert_eq!(usable_with("0-2", &[(3, 600), (2, 390)]), "0-2");
        assert_eq!(usable_with("0-2", &[(2, 1000)]), "0-1,3");
    }
}
