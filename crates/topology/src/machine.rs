//! The machine tree, and what is known about its parts.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CpuSet;
use crate::shapes::Memo;

/// The levels of a machine, widest first. A level that a machine does not have has no units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Several machines.
    Cluster,
    /// One machine (not a NUMA node).
    Node,
    /// A virtual machine or container.
    Box,
    /// A processor in its socket.
    Package,
    /// CPUs that are equally near to one memory.
    Numa,
    /// CPUs that share a last-level cache.
    Llc,
    /// Cores that share something inside the levels above: an L2 cache, a die, a core cluster.
    Group,
    /// PUs that share execution units.
    Core,
    /// Processing unit: a hardware thread, what Linux calls a CPU.
    Pu,
}

impl Level {
    /// All of them, widest first.
    pub const ALL: [Level; 9] = [
        Level::Cluster,
        Level::Node,
        Level::Box,
        Level::Package,
        Level::Numa,
        Level::Llc,
        Level::Group,
        Level::Core,
        Level::Pu,
    ];

    /// The name in running text, singular.
    pub fn name(self) -> &'static str {
        match self {
            Level::Cluster => "cluster",
            Level::Node => "machine",
            Level::Box => "box",
            Level::Package => "package",
            Level::Numa => "NUMA node",
            Level::Llc => "LLC",
            Level::Group => "core group",
            Level::Core => "core",
            Level::Pu => "PU",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One object of the tree: a package, a NUMA node, a core …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// What kind of object it is; a [`Level::Group`] may stand inside another.
    pub level: Level,
    /// Number among the objects of its level, in tree order, from 0.
    pub logical_index: u32,
    /// The kernel's number, where the kernel has one at this level.
    pub os_index: Option<u32>,
    /// All PUs below, by `os_index`.
    pub cpus: CpuSet,
    /// By their lowest CPU; disjoint, and together all of `cpus`. Only a PU has none.
    pub children: Vec<Object>,
}

/// A data or unified cache; instruction caches are left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// 1 = nearest to the core.
    pub level: u8,
    /// The CPUs that share it.
    pub cpus: CpuSet,
    /// What it holds; `None` where the system does not tell.
    pub size_bytes: Option<u64>,
    /// Its line (`coherency_line_size` in sysfs); `None` where the system does not tell.
    pub line_bytes: Option<u32>,
}

/// How far NUMA nodes are from one another (ACPI SLIT: 10 = local, 20 = twice as far).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    /// Kernel's numbers of the NUMA nodes, also of those without CPUs.
    pub nodes: Vec<u32>,
    /// `matrix[from][to]`, in the order of `nodes`.
    pub matrix: Vec<Vec<u32>>,
}

/// CPUs of one micro-architecture, where a machine has several (`cpu_core`, `cpu_atom`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuKind {
    /// In sysfs the device that counts its events (`cpu_atom`), in hwloc the `CoreType` (`IntelAtom`).
    pub name: String,
    /// By `os_index`; never empty.
    pub cpus: CpuSet,
}

/// A unit for [`Machine::from_groups`]: at `level`, these CPUs belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Groups at [`Level::Pu`] are passed over: every CPU gets its PU anyway.
    pub level: Level,
    /// The kernel's number, where the kernel has one at this level.
    pub os_index: Option<u32>,
    /// By `os_index`; those that the machine lacks are left out.
    pub cpus: CpuSet,
}

/// Capacity of a PU of the biggest kind, as in Linux's `cpu_capacity`.
pub const FULL_CAPACITY: u32 = 1024;

/// A machine: the tree and what is known about its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The widest object, which has all CPUs: one machine, or a cluster.
    pub root: Object,
    /// What people call it; a host name, a file's name, or the synthetic description.
    #[serde(default)]
    pub name: String,
    /// Where the description comes from: `sysfs`, `hwloc XML`, `synthetic` …
    #[serde(default)]
    pub source: String,
    /// Sorted by level, then by CPUs. Empty where the system does not tell.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// Between NUMA nodes; `None` where there is only one, or the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<Distances>,
    /// Capacity by PU, [`FULL_CAPACITY`] = biggest. Empty: all PUs are alike.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacities: BTreeMap<u32, u32>,
    /// Empty: all PUs are of one kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<CpuKind>,
    #[serde(skip)]
    pub(crate) memo: Memo,
}

impl Machine {
    /// Builds the tree from groups in any order, by inclusion. Where two groups are equal, the
    /// wider level goes above. A group that crosses one already placed is left out and named in
    /// the second value. A PU is made for every CPU.
    pub fn from_groups(
        root_level: Level,
        cpus: &CpuSet,
        groups: impl IntoIterator<Item = Group>,
    ) -> (Machine, Vec<String>) {
        let mut groups: Vec<Group> = groups
            .into_iter()
            .map(|group| Group { cpus: group.cpus.intersection(cpus), ..group })
            .filter(|group| !group.cpus.is_empty() && group.level != Level::Pu)
            .collect();
        groups.extend(cpus.iter().map(|cpu| Group {
            level: Level::Pu,
            os_index: Some(cpu),
            cpus: CpuSet::from_cpus(&[cpu]),
        }));
        groups
            .sort_by_cached_key(|g| (std::cmp::Reverse(g.cpus.len()), g.level, g.cpus.lowest(), g.os_index));
        let mut notes = Vec::new();
        let mut root = Object {
            level: root_level,
            logical_index: 0,
            os_index: None,
            cpus: cpus.clone(),
            children: vec![],
        };
        for group in groups {
            let what = format!("{} {}", group.level, group.cpus);
            if let Err(why) = insert(&mut root, group) {
                notes.push(format!("{what} is left out: {why}"));
            }
        }
        number(&mut root, &mut BTreeMap::new());
        let machine = Machine {
            root,
            name: String::new(),
            source: String::new(),
            caches: Vec::new(),
            distances: None,
            capacities: BTreeMap::new(),
            kinds: Vec::new(),
            memo: Memo::default(),
        };
        (machine, notes)
    }

    /// All that are described, allowed or not; by `os_index`.
    pub fn all_cpus(&self) -> &CpuSet {
        &self.root.cpus
    }

    /// How many CPUs it has.
    pub fn pu_count(&self) -> usize {
        self.root.cpus.len()
    }

    /// All objects in tree order, the root first.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        let mut stack = vec![&self.root];
        std::iter::from_fn(move || {
            let object = stack.pop()?;
            stack.extend(object.children.iter().rev());
            Some(object)
        })
    }

    /// The objects of one level in tree order; none where the machine lacks the level.
    pub fn units(&self, level: Level) -> impl Iterator<Item = &Object> {
        self.objects().filter(move |object| object.level == level)
    }

    /// The levels that this machine has, widest first.
    pub fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = self.objects().map(|object| object.level).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// The unit of a level that contains a CPU.
    pub fn unit_of(&self, cpu: u32, level: Level) -> Option<&Object> {
        let mut at = &self.root;
        loop {
            if !at.cpus.contains(cpu) {
                return None;
            }
            if at.level == level {
                return Some(at);
            }
            at = at.children.iter().find(|child| child.cpus.contains(cpu))?;
        }
    }

    /// The core that contains a CPU; `None` where the machine lacks the CPU or its cores are not known.
    pub fn core_of(&self, cpu: u32) -> Option<&Object> {
        self.unit_of(cpu, Level::Core)
    }

    /// The object directly above one of this machine's objects; `None` above the root, and for
    /// objects of other machines.
    pub fn parent(&self, object: &Object) -> Option<&Object> {
        let is = |o: &Object| o.level == object.level && o.logical_index == object.logical_index;
        let mut at = &self.root;
        loop {
            if at.children.iter().any(is) {
                return Some(at);
            }
            at = at.children.iter().find(|child| object.cpus.is_subset(&child.cpus))?;
        }
    }

    /// The smallest object that contains all of `cpus`.
    pub fn enclosing(&self, cpus: &CpuSet) -> Option<&Object> {
        let mut at = cpus.is_subset(&self.root.cpus).then_some(&self.root)?;
        while let Some(child) = at.children.iter().find(|child| cpus.is_subset(&child.cpus)) {
            at = child;
        }
        Some(at)
    }

    /// Capacity of a PU relative to [`FULL_CAPACITY`], which is also the answer where nothing is known.
    pub fn capacity(&self, cpu: u32) -> u32 {
        self.capacities.get(&cpu).copied().unwrap_or(FULL_CAPACITY)
    }

    /// The cache of the highest level that serves a CPU.
    pub fn last_level_cache_of(&self, cpu: u32) -> Option<&Cache> {
        self.caches.iter().filter(|cache| cache.cpus.contains(cpu)).max_by_key(|cache| cache.level)
    }

    /// Distance between two NUMA nodes by their kernel's numbers, 10 = local.
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        let distances = self.distances.as_ref()?;
        let position = |node: u32| distances.nodes.iter().position(|&n| n == node);
        distances.matrix.get(position(from)?)?.get(position(to)?).copied()
    }

    /// Class of every PU by what it can do, 0 = biggest: PUs are alike when they are of one kind
    /// and their capacities differ by no more than 10% of the class's biggest.
    pub(crate) fn classes(&self) -> Classes {
        if self.capacities.is_empty() && self.kinds.is_empty() {
            return Classes(BTreeMap::new());
        }
        let kind = |cpu: u32| self.kinds.iter().position(|kind| kind.cpus.contains(cpu));
        let mut cpus: Vec<(std::cmp::Reverse<u32>, Option<usize>, u32)> = self
            .root
            .cpus
            .iter()
            .map(|cpu| (std::cmp::Reverse(self.capacity(cpu)), kind(cpu), cpu))
            .collect();
        cpus.sort_unstable();
        let mut heads: Vec<(u32, Option<usize>)> = Vec::new();
        let mut classes = BTreeMap::new();
        for (std::cmp::Reverse(capacity), kind, cpu) in cpus {
            let fits = |&(head, of): &(u32, Option<usize>)| {
                of == kind && u64::from(capacity) * 10 >= u64::from(head) * 9
            };
            let class = heads.iter().position(fits).unwrap_or_else(|| {
                heads.push((capacity, kind));
                heads.len() - 1
            });
            classes.insert(cpu, class as u32);
        }
        Classes(classes)
    }

    /// The part of it that these CPUs are; what has none of them is gone.
    pub fn only(&self, cpus: &CpuSet) -> Machine {
        let groups = self.objects().skip(1);
        let groups = groups.map(|o| Group { level: o.level, os_index: o.os_index, cpus: o.cpus.clone() });
        // What is in one tree crosses nothing.
        let (part, _) = Machine::from_groups(self.root.level, &self.root.cpus.intersection(cpus), groups);
        let caches =
            self.caches.iter().map(|cache| Cache { cpus: cache.cpus.intersection(cpus), ..cache.clone() });
        let kinds =
            self.kinds.iter().map(|kind| CpuKind { cpus: kind.cpus.intersection(cpus), ..kind.clone() });
        Machine {
            name: self.name.clone(),
            source: self.source.clone(),
            caches: caches.filter(|cache| !cache.cpus.is_empty()).collect(),
            distances: self.distances.clone(),
            capacities: self.capacities.clone(),
            kinds: kinds.filter(|kind| !kind.cpus.is_empty()).collect(),
            ..part
        }
    }

    /// Whether packages, cores, caches and, between several NUMA nodes, distances are known.
    pub fn is_whole(&self) -> bool {
        let levels = self.levels();
        let nodes = self.objects().filter(|object| object.level == Level::Numa).count();
        levels.contains(&Level::Package)
            && levels.contains(&Level::Core)
            && !self.caches.is_empty()
            && (nodes < 2 || self.distances.is_some())
    }

    /// Takes from another description of the same machine what this one lacks: whole levels,
    /// caches, distances, capacities, kinds. Nothing that is known here is changed.
    pub fn refine(&mut self, other: &Machine) {
        let mine = self.levels();
        let missing: Vec<Group> = other
            .objects()
            .filter(|object| !mine.contains(&object.level) && object.level > Level::Node)
            .map(|o| Group { level: o.level, os_index: o.os_index, cpus: o.cpus.clone() })
            .collect();
        if !missing.is_empty() {
            let present = self.objects().skip(1).map(|o| Group {
                level: o.level,
                os_index: o.os_index,
                cpus: o.cpus.clone(),
            });
            // The present groups never cross each other, and so none of them is lost; a missing
            // one that crosses them is.
            let mut groups: Vec<Group> = present.collect();
            groups.extend(missing.into_iter().filter(|new| {
                let crosses = |old: &Group| {
                    new.cpus.intersects(&old.cpus)
                        && !new.cpus.is_subset(&old.cpus)
                        && !old.cpus.is_subset(&new.cpus)
                };
                !self
                    .objects()
                    .any(|o| crosses(&Group { level: o.level, os_index: None, cpus: o.cpus.clone() }))
            }));
            self.root = Machine::from_groups(self.root.level, &self.root.cpus, groups).0.root;
        }
        if self.caches.is_empty() {
            self.caches = other
                .caches
                .iter()
                .map(|c| Cache { cpus: c.cpus.intersection(&self.root.cpus), ..c.clone() })
                .filter(|cache| !cache.cpus.is_empty())
                .collect();
        }
        if self.distances.is_none() {
            self.distances.clone_from(&other.distances);
        }
        if self.capacities.is_empty() {
            self.capacities.clone_from(&other.capacities);
        }
        if self.kinds.is_empty() {
            self.kinds.clone_from(&other.kinds);
        }
    }
}

/// See [`Machine::classes`].
pub(crate) struct Classes(BTreeMap<u32, u32>);

impl Classes {
    pub(crate) fn of(&self, cpu: u32) -> u32 {
        if self.0.is_empty() { 0 } else { self.0.get(&cpu).copied().unwrap_or(0) }
    }
}

fn insert(at: &mut Object, group: Group) -> Result<(), String> {
    if at.level == group.level && at.cpus == group.cpus {
        return Err("it is listed twice".into());
    }
    if let Some(child) = at.children.iter_mut().find(|child| group.cpus.is_subset(&child.cpus)) {
        return insert(child, group);
    }
    if let Some(child) = at.children.iter().find(|child| child.cpus.intersects(&group.cpus)) {
        return Err(format!("it crosses {} {}", child.level, child.cpus));
    }
    at.children.push(Object {
        level: group.level,
        logical_index: 0,
        os_index: group.os_index,
        cpus: group.cpus,
        children: Vec::new(),
    });
    Ok(())
}

/// Sorts the children by their lowest CPU and numbers every level in tree order.
fn number(object: &mut Object, next: &mut BTreeMap<Level, u32>) {
    let index = next.entry(object.level).or_default();
    object.logical_index = *index;
    *index += 1;
    object.children.sort_by_cached_key(|child| child.cpus.lowest());
    for child in &mut object.children {
        number(child, next);
    }
}
