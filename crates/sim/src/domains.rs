//! The machine's domains: CPUs that share last-level cache and memory bandwidth.

use topology::{CpuSet, Level, Machine};

/// NUMA nodes, else packages, else the CPUs of a last-level cache, else the whole machine. Every CPU is
/// in one of them. Cores never reach over two.
#[derive(Clone, Debug)]
pub struct Domains {
    units: Vec<CpuSet>,
    /// Those with several CPUs.
    cores: Vec<CpuSet>,
}

impl Domains {
    /// The machine's NUMA nodes, else its packages or last-level caches; where none cover it, the whole machine.
    pub fn of(machine: &Machine) -> Domains {
        let levels = [Level::Numa, Level::Package, Level::Llc];
        let units = |level: Level| -> Vec<CpuSet> {
            let units: Vec<CpuSet> = machine.units(level).map(|unit| unit.cpus.clone()).collect();
            let covered: usize = units.iter().map(CpuSet::len).sum();
            if covered == machine.pu_count() { units } else { Vec::new() }
        };
        let units = levels.into_iter().map(units).find(|units| !units.is_empty());
        let units = units.unwrap_or_else(|| vec![machine.all_cpus().clone()]);
        let cores = machine.units(Level::Core).map(|core| core.cpus.clone()).filter(|cpus| cpus.len() > 1);
        Domains { units, cores: cores.collect() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// CPUs of one of them.
    pub fn size(&self, domain: u16) -> f64 {
        self.units[domain as usize].len() as f64
    }

    /// Whether CPUs share cores.
    pub fn share_cores(&self) -> bool {
        !self.cores.is_empty()
    }

    /// The other CPUs of the cores of a place.
    pub fn beside(&self, place: &CpuSet) -> CpuSet {
        let mut beside = CpuSet::default();
        for core in self.cores.iter().filter(|core| core.intersects(place)) {
            beside.add_all(&core.difference(place));
        }
        beside
    }

    /// CPUs of a place by domain, in order, without domains that it does not touch.
    pub fn counts(&self, place: &CpuSet) -> Vec<(u16, u16)> {
        let counts =
            self.units.iter().zip(0u16..).map(|(unit, domain)| (domain, unit.common_len(place) as u16));
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numa_nodes_precede_packages_and_a_flat_machine_is_one() {
        let domains = |text: &str| Domains::of(&Machine::synthetic(text).unwrap());
        assert_eq!(domains("pack:4 [numa] l3:1 core:6 pu:1").count(), 4);
        assert_eq!(domains("pack:2 l3:2 core:4 pu:2").count(), 2);
        assert_eq!(domains("core:7").count(), 1);
        let two = domains("pack:2 core:3");
        assert_eq!(two.counts(&"1-3".parse().unwrap()), [(0, 2), (1, 1)]);
        assert_eq!(two.size(1), 3.0);
    }

    #[test]
    fn beside_a_place_are_the_other_cpus_of_its_cores() {
        let domains = |text: &str| Domains::of(&Machine::synthetic(text).unwrap());
        let place = "0,2-3".parse().unwrap();
        assert_eq!(domains("core:3 pu:2").beside(&place), "1".parse().unwrap());
        assert!(!domains("core:6").share_cores() && domains("core:6").beside(&place).is_empty());
    }
}
