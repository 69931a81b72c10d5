//! The machine as Linux describes it in sysfs, from any root directory: the live `/`, or a
//! recorded one. Containers, virtual machines and WSL2 leave out much of it: what is missing is a
//! level or a fact that the machine then lacks, and a note where something else stood in for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::machine::{Cache, CpuKind, Distances, FULL_CAPACITY, Group, Level, Machine};
use crate::{CpuSet, Discovery, MachineError};

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

impl Machine {
    /// Fails only where not even the numbers of the CPUs can be found below `root`.
    pub fn from_sysfs(root: &Path) -> Result<Discovery, MachineError> {
        Machine::from_sysfs_with(root, None)
    }

    /// The same of the running machine, whose kernel answered this process with `mask` when it asked where it
    /// may run (`sched_getaffinity`).
    pub(crate) fn from_sysfs_with(root: &Path, mask: Option<&CpuSet>) -> Result<Discovery, MachineError> {
        let mut files = Files { root, notes: Vec::new() };
        let cpus = files.online_with(mask)?;
        let mut groups: BTreeMap<Level, BTreeMap<CpuSet, Option<u32>>> = BTreeMap::new();
        let mut caches: BTreeSet<Cache> = BTreeSet::new();
        for cpu in cpus.iter() {
            files.topology(cpu, &mut groups);
            files.caches(cpu, &cpus, &mut caches);
        }
        for cpu in cpus.iter() {
            let outermost = caches.iter().filter(|c| c.cpus.contains(cpu)).max_by_key(|cache| cache.level);
            if let Some(cache) = outermost {
                groups.entry(Level::Llc).or_default().insert(cache.cpus.clone(), None);
            }
        }
        // A cache that several cores share inside the last-level cache (an Atom module's L2).
        let shared = caches.iter().filter(|cache| cache.level >= 2).map(|cache| (cache.cpus.clone(), None));
        groups.entry(Level::Group).or_default().extend(shared);
        let distances = files.numa(&cpus, &mut groups);
        let named: BTreeSet<CpuSet> = groups
            .iter()
            .filter(|(level, _)| **level != Level::Group)
            .flat_map(|(_, units)| units.keys().cloned())
            .collect();
        if let Some(extra) = groups.get_mut(&Level::Group) {
            extra.retain(|set, _| set.len() > 1 && !named.contains(set) && *set != cpus);
        }
        let groups = groups.into_iter().flat_map(|(level, units)| {
            units.into_iter().map(move |(cpus, os_index)| Group { level, os_index, cpus })
        });
        let (mut machine, notes) = Machine::from_groups(Level::Node, &cpus, groups);
        files.notes.extend(notes);
        machine.caches = caches.into_iter().collect();
        machine.distances = distances;
        machine.kinds = files.kinds(&cpus);
        machine.capacities = files.capacities(&cpus);
        machine.source = "sysfs".into();
        machine.name = files.read(Path::new("proc/sys/kernel/hostname")).unwrap_or_else(|| {
            root.file_name().map_or_else(|| "this".into(), |name| name.to_string_lossy().into_owned())
        });
        Ok(Discovery { machine, notes: files.notes })
    }
}

/// The CPUs that are online, and notes on how that was found out. `mask` as above.
pub(crate) fn online(root: &Path, mask: &CpuSet) -> Result<(CpuSet, Vec<String>), MachineError> {
    let mut files = Files { root, notes: Vec::new() };
    Ok((files.online_with(Some(mask))?, files.notes))
}

/// Whether a list of CPUs counts them otherwise than the kernel does. That names only such as are online in
/// a mask, so that whoever says less speaks of others: lxcfs puts files of its own over those of /sys, which
/// count a container's CPUs from 0.
fn counts_otherwise(online: &CpuSet, mask: &CpuSet) -> bool {
    !mask.is_subset(online)
}

struct Files<'a> {
    root: &'a Path,
    notes: Vec<String>,
}

impl Files<'_> {
    /// The file's text without surrounding blanks; `None` if there is none, or nothing in it.
    fn read(&self, path: &Path) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, path: &Path) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    fn list(&mut self, path: &Path) -> Option<CpuSet> {
        match self.read(path)?.parse::<CpuSet>() {
            Ok(set) => Some(set).filter(|set| !set.is_empty()),
            Err(error) => {
                self.notes.push(format!("{} is passed over: {error}", self.root.join(path).display()));
                None
            }
        }
    }

    /// Subdirectories called `prefix` and a number, by number.
    fn numbered(&self, path: &str, prefix: &str) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut numbers: Vec<u32> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
            .filter(|&number| number < crate::MAX_CPUS)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// By the mask, where the files contradict it.
    fn online_with(&mut self, mask: Option<&CpuSet>) -> Result<CpuSet, MachineError> {
        match (self.online(), mask) {
            (Ok(online), Some(mask)) if counts_otherwise(&online, mask) => {
                self.notes.push(format!(
                    "/{CPU}/online says {online}, the kernel lets this process run on {mask}: the file counts \
                     otherwise than the kernel (as lxcfs's does in containers) and is disregarded"
                ));
                Ok(mask.clone())
            }
            (found, _) => found,
        }
    }

    fn online(&mut self) -> Result<CpuSet, MachineError> {
        let online = Path::new(CPU).join("online");
        if let Some(cpus) = self.list(&online) {
            return Ok(cpus);
        }
        let directories = self.numbered(CPU, "cpu").into_iter();
        // cpu0 often cannot be taken offline, and then has no such file.
        let cpus: CpuSet = directories
            .filter(|cpu| self.read(&Path::new(CPU).join(format!("cpu{cpu}/online"))).as_deref() != Some("0"))
            .collect();
        if !cpus.is_empty() {
            self.notes
                .push(format!("{} is missing: the directories beside it were counted", online.display()));
            return Ok(cpus);
        }
        let info = self.read(Path::new("proc/cpuinfo")).unwrap_or_default();
        let processors = info.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "processor").then(|| value.trim().parse().ok())?
        });
        let cpus: CpuSet = processors.filter(|&cpu| cpu < crate::MAX_CPUS).collect();
        if cpus.is_empty() {
            return Err(MachineError::NoCpus { path: self.root.join(CPU) });
        }
        self.notes.push(format!(
            "/{CPU} is missing: CPUs were counted in /proc/cpuinfo, caches and packages are unknown"
        ));
        Ok(cpus)
    }

    fn topology(&mut self, cpu: u32, groups: &mut BTreeMap<Level, BTreeMap<CpuSet, Option<u32>>>) {
        let base = PathBuf::from(CPU).join(format!("cpu{cpu}/topology"));
        // Files of today's kernels first, then their names before Linux 5.3; the id that says that
        // the kernel knows nothing at this level is −1, in 16 bits for clusters.
        let levels: [(Level, &[&str], &str); 4] = [
            (Level::Package, &["package_cpus_list", "core_siblings_list"], "physical_package_id"),
            (Level::Group, &["die_cpus_list"], "die_id"),
            (Level::Group, &["cluster_cpus_list"], "cluster_id"),
            (Level::Core, &["core_cpus_list", "thread_siblings_list"], "core_id"),
        ];
        for (level, lists, id) in levels {
            let id: Option<i64> = self.number(&base.join(id));
            let known = id.is_none_or(|id| id >= 0 && (level != Level::Group || id != 65_535));
            let Some(cpus) = lists.iter().find_map(|list| self.list(&base.join(list))).filter(|_| known)
            else {
                continue;
            };
            let os_index = id.and_then(|id| u32::try_from(id).ok());
            groups.entry(level).or_default().entry(cpus).or_insert(os_index);
        }
    }

    fn caches(&mut self, cpu: u32, online: &CpuSet, caches: &mut BTreeSet<Cache>) {
        let base = format!("{CPU}/cpu{cpu}/cache");
        for index in self.numbered(&base, "index") {
            let at = PathBuf::from(&base).join(format!("index{index}"));
            if self.read(&at.join("type")).as_deref() == Some("Instruction") {
                continue;
            }
            let Some(level) = self.number(&at.join("level")) else { continue };
            // Without a list nobody knows who shares it, and so it says nothing about places.
            let Some(cpus) = self.list(&at.join("shared_cpu_list")) else { continue };
            caches.insert(Cache {
                level,
                cpus: cpus.intersection(online),
                size_bytes: self.read(&at.join("size")).and_then(|size| crate::synthetic::parse_size(&size)),
                line_bytes: self.number(&at.join("coherency_line_size")),
            });
        }
    }

    fn numa(
        &mut self,
        online: &CpuSet,
        groups: &mut BTreeMap<Level, BTreeMap<CpuSet, Option<u32>>>,
    ) -> Option<Distances> {
        let nodes = self.numbered(NODE, "node");
        let mut matrix = Vec::new();
        for &node in &nodes {
            let at = PathBuf::from(NODE).join(format!("node{node}"));
            // Memory without CPUs (CXL, high-bandwidth memory) has distances, but is no place to run.
            if let Some(cpus) = self.list(&at.join("cpulist")) {
                let cpus = cpus.intersection(online);
                groups.entry(Level::Numa).or_default().entry(cpus).or_insert(Some(node));
            }
            let row = self.read(&at.join("distance"))?;
            matrix.push(row.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<u32>>());
        }
        let square = matrix.iter().all(|row| row.len() == nodes.len());
        (square && nodes.len() > 1).then_some(Distances { nodes, matrix })
    }

    /// Intel's hybrid processors have a PMU for each kind of core, with the CPUs that it serves.
    fn kinds(&mut self, online: &CpuSet) -> Vec<CpuKind> {
        let mut kinds = Vec::new();
        for name in ["cpu_core", "cpu_atom", "cpu_lowpower"] {
            let cpus = self.list(&PathBuf::from("sys/devices").join(name).join("cpus"));
            let cpus = cpus.unwrap_or_default().intersection(online);
            if !cpus.is_empty() {
                kinds.push(CpuKind { name: name.into(), cpus });
            }
        }
        if kinds.len() > 1 { kinds } else { Vec::new() }
    }

    /// The kernel's own figures, else relative maximum frequencies; nothing where all are alike.
    fn capacities(&mut self, online: &CpuSet) -> BTreeMap<u32, u32> {
        for file in ["cpu_capacity", "cpufreq/cpuinfo_max_freq"] {
            let known: BTreeMap<u32, u64> = online
                .iter()
                .filter_map(|cpu| {
                    Some((cpu, self.number(&PathBuf::from(CPU).join(format!("cpu{cpu}/{file}")))?))
                })
                .collect();
            let most = known.values().copied().max().unwrap_or(0);
            if known.len() < online.len() || most == 0 {
                continue;
            }
            if known.values().all(|&capacity| capacity == most) {
                return BTreeMap::new();
            }
            let relative =
                |capacity: u64| (u128::from(capacity) * u128::from(FULL_CAPACITY) / u128::from(most)) as u32;
            return known.into_iter().map(|(cpu, capacity)| (cpu, relative(capacity))).collect();
        }
        BTreeMap::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn an_online_file_from_0_gives_the_machine_of_the_mask() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(CPU).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("online", "0-3");
        for (cpu, core) in [(24, "24,56"), (25, "25,57"), (26, "26,58")] {
            write(&format!("cpu{cpu}/topology/core_cpus_list"), core);
            write(&format!("cpu{cpu}/topology/core_id"), "7");
            write(&format!("cpu{cpu}/cache/index3/level"), "3");
            write(&format!("cpu{cpu}/cache/index3/shared_cpu_list"), "16-31");
        }
        let found = Machine::from_sysfs_with(root.path(), Some(&cpus("24-27"))).unwrap();
        assert_eq!(found.machine.all_cpus(), &cpus("24-27"));
        // Of CPU 27 /sys tells nothing here.
        assert_eq!(found.machine.caches.iter().map(|cache| cache.cpus.len()).max(), Some(4));
        assert!(found.notes.iter().any(|note| note.contains("is disregarded")), "{:?}", found.notes);
        let within = Machine::from_sysfs_with(root.path(), Some(&cpus("1-2"))).unwrap();
        assert_eq!(within.machine.all_cpus(), &cpus("0-3"));
    }
}
