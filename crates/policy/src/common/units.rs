//! What programs share without meaning to.

use topology::{CpuSet, Level, Machine};

/// The machine's units of a level, if they hold all of it.
pub(crate) fn units(machine: &Machine, level: Level) -> Vec<CpuSet> {
    let units: Vec<CpuSet> = machine.units(level).map(|unit| unit.cpus.clone()).collect();
    let covered: usize = units.iter().map(CpuSet::len).sum();
    if covered == machine.pu_count() { units } else { Vec::new() }
}

/// CPUs that share memory (NUMA node, else package, else last-level cache, else the machine).
pub(crate) fn domains(machine: &Machine) -> Vec<CpuSet> {
    let levels = [Level::Numa, Level::Package, Level::Llc].into_iter();
    let found = levels.map(|level| units(machine, level)).find(|units| !units.is_empty());
    found.unwrap_or_else(|| vec![machine.all_cpus().clone()])
}
