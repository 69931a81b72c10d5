//! The machine as hwloc describes it: its XML files (version 2, and 1 as far as it is alike), and
//! the library itself where it is installed. It is loaded at run time, and nothing needs it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use roxmltree::{Document, Node, ParsingOptions};

use crate::machine::{Cache, CpuKind, Distances, FULL_CAPACITY, Group, Level, Machine};
use crate::{CpuSet, Discovery, MAX_CPUS, MachineError};

impl Machine {
    /// Reads what `lstopo file.xml` writes. The machine has a name only where the text names its host.
    /// Fails with [`MachineError::NotHwloc`] where that is no XML, is no `<topology>`, or names no CPUs.
    pub fn from_hwloc_xml(text: &str) -> Result<Discovery, MachineError> {
        let error = |why: String| MachineError::NotHwloc { path: None, why };
        // hwloc's files name a DTD, which is not fetched.
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|e| error(e.to_string()))?;
        let root = document.root_element();
        if root.tag_name().name() != "topology" {
            return Err(error(format!(
                "its outermost element is <{}>, not <topology>",
                root.tag_name().name()
            )));
        }
        let mut notes = Vec::new();
        let mut groups = Vec::new();
        let mut caches = Vec::new();
        let mut cpus = CpuSet::new();
        let mut numa_nodes: Vec<u32> = Vec::new();
        for node in root.descendants().filter(|node| node.has_tag_name("object")) {
            let (kind, os_index) = (node.attribute("type").unwrap_or(""), number(&node, "os_index"));
            if kind == "NUMANode" {
                numa_nodes.extend(os_index);
            }
            let set = match node.attribute("cpuset").map(parse_bitmap) {
                None => continue,
                Some(Ok(set)) => set,
                Some(Err(why)) => {
                    notes.push(format!("the cpuset of a {kind} is passed over: {why}"));
                    continue;
                }
            };
            if let Some(level) = cache_level(&node, kind) {
                caches.push(Cache {
                    level,
                    cpus: set,
                    size_bytes: number(&node, "cache_size").filter(|&size| size > 0),
                    line_bytes: number(&node, "cache_linesize").filter(|&line| line > 0),
                });
                continue;
            }
            let level = match kind {
                "Package" | "Socket" => Level::Package,
                "NUMANode" => Level::Numa,
                "Die" | "Group" | "Module" => Level::Group,
                "Core" => Level::Core,
                "PU" => {
                    cpus = cpus.union(&set);
                    continue;
                }
                _ => continue,
            };
            groups.push(Group { level, os_index, cpus: set });
        }
        if cpus.is_empty() {
            return Err(error("it has no object of type PU with a cpuset".into()));
        }
        caches.retain(|cache| cache.cpus.intersects(&cpus));
        add_cache_groups(&cpus, &caches, &mut groups);
        groups.dedup_by(|a, b| (a.level, &a.cpus) == (b.level, &b.cpus));
        let (mut machine, more) = Machine::from_groups(Level::Node, &cpus, groups);
        notes.extend(more);
        caches.sort();
        caches.dedup();
        machine.caches = caches;
        machine.distances = distances(&root, &numa_nodes);
        (machine.kinds, machine.capacities) = kinds(&root, &cpus);
        machine.name = info(&root, "HostName").unwrap_or_default();
        machine.source = "hwloc XML".into();
        Ok(Discovery { machine, notes })
    }
}

fn number<T: std::str::FromStr>(node: &Node<'_, '_>, name: &str) -> Option<T> {
    node.attribute(name)?.trim().parse().ok()
}

fn info(node: &Node<'_, '_>, name: &str) -> Option<String> {
    let info =
        node.descendants().find(|node| node.has_tag_name("info") && node.attribute("name") == Some(name))?;
    Some(info.attribute("value")?.to_owned())
}

/// `L3Cache` in version 2; type `Cache` and a depth in version 1. `None` for instruction caches too.
fn cache_level(node: &Node<'_, '_>, kind: &str) -> Option<u8> {
    if node.attribute("cache_type") == Some("2") {
        return None;
    }
    if kind == "Cache" {
        return number(node, "depth");
    }
    kind.strip_prefix('L')?.strip_suffix("Cache")?.parse().ok()
}

/// The levels that caches make, as in sysfs.
fn add_cache_groups(cpus: &CpuSet, caches: &[Cache], groups: &mut Vec<Group>) {
    let mut last_level: Vec<&CpuSet> = cpus
        .iter()
        .filter_map(|cpu| caches.iter().filter(|c| c.cpus.contains(cpu)).max_by_key(|cache| cache.level))
        .map(|cache| &cache.cpus)
        .collect();
    last_level.sort();
    last_level.dedup();
    let group = |level, cpus: &CpuSet| Group { level, os_index: None, cpus: cpus.clone() };
    groups.extend(last_level.into_iter().map(|set| group(Level::Llc, set)));
    for cache in caches.iter().filter(|cache| cache.level >= 2 && cache.cpus.len() > 1) {
        if !groups.iter().any(|known| known.cpus == cache.cpus) {
            groups.push(group(Level::Group, &cache.cpus));
        }
    }
    // hwloc also makes groups that say what another level says.
    let named: Vec<CpuSet> =
        groups.iter().filter(|g| g.level != Level::Group).map(|g| g.cpus.clone()).collect();
    groups.retain(|g| g.level != Level::Group || !(named.contains(&g.cpus) || g.cpus == *cpus));
}

/// hwloc's bitmaps: 32-bit words in hexadecimal, the highest first, an empty word being 0.
fn parse_bitmap(text: &str) -> Result<CpuSet, String> {
    let mut set = CpuSet::new();
    for (index, word) in text.trim().rsplit(',').enumerate() {
        let digits = word.trim().trim_start_matches("0x");
        let word = match digits {
            "" => 0,
            "f...f" => return Err(format!("'{text}' has no end")),
            digits => u32::from_str_radix(digits, 16).map_err(|_| format!("'{text}' is not a bitmap"))?,
        };
        for bit in (0..32).filter(|bit| word >> bit & 1 == 1) {
            let cpu = index as u32 * 32 + bit;
            if cpu >= MAX_CPUS {
                return Err(format!("CPU {cpu} is beyond {}", MAX_CPUS - 1));
            }
            set.insert(cpu);
        }
    }
    Ok(set)
}

fn distances(root: &Node<'_, '_>, numa_nodes: &[u32]) -> Option<Distances> {
    let words = |parent: &Node<'_, '_>, tag: &str| -> Vec<u64> {
        let texts = parent.children().filter(|node| node.has_tag_name(tag)).filter_map(|node| node.text());
        texts.flat_map(str::split_whitespace).filter_map(|word| word.parse().ok()).collect()
    };
    let square = |nodes: Vec<u32>, values: Vec<u32>| {
        let fits = nodes.len() > 1 && values.len() == nodes.len() * nodes.len();
        let matrix = values.chunks(nodes.len().max(1)).map(<[u32]>::to_vec).collect();
        fits.then_some(Distances { nodes, matrix })
    };
    // Kind 5: from the operating system (1), and a latency (4); bandwidths are not distances.
    let new = root.children().find(|node| {
        node.has_tag_name("distances2")
            && node.attribute("type") == Some("NUMANode")
            && number::<u32>(node, "kind").is_none_or(|kind| kind & 4 != 0)
    });
    if let Some(new) = new {
        let narrow = |values: Vec<u64>| values.into_iter().filter_map(|v| u32::try_from(v).ok()).collect();
        return square(narrow(words(&new, "indexes")), narrow(words(&new, "u64values")));
    }
    let old = root
        .descendants()
        .find(|node| node.has_tag_name("distances") && number(node, "nbobjs") == Some(numa_nodes.len()))?;
    let base: f64 = number(&old, "latency_base")?;
    let values = old.children().filter(|node| node.has_tag_name("latency"));
    let values = values.filter_map(|node| Some((number::<f64>(&node, "value")? * base).round() as u32));
    square(numa_nodes.to_vec(), values.collect())
}

/// Kinds by the type of core alone: hwloc also separates cores that only clock a little higher,
/// which the capacities say.
fn kinds(root: &Node<'_, '_>, cpus: &CpuSet) -> (Vec<CpuKind>, BTreeMap<u32, u32>) {
    let mut kinds: BTreeMap<String, CpuSet> = BTreeMap::new();
    let mut capacities: BTreeMap<u32, u64> = BTreeMap::new();
    for node in root.children().filter(|node| node.has_tag_name("cpukind")) {
        let Some(Ok(set)) = node.attribute("cpuset").map(parse_bitmap) else { continue };
        let set = set.intersection(cpus);
        if let Some(name) = info(&node, "CoreType") {
            let kind = kinds.entry(name).or_default();
            *kind = kind.union(&set);
        }
        let capacity = info(&node, "LinuxCapacity").or_else(|| info(&node, "FrequencyMaxMHz"));
        if let Some(capacity) = capacity.and_then(|text| text.parse().ok()) {
            capacities.extend(set.iter().map(|cpu| (cpu, capacity)));
        }
    }
    let kinds: Vec<CpuKind> =
        kinds.into_iter().map(|(name, cpus)| CpuKind { name, cpus }).filter(|k| !k.cpus.is_empty()).collect();
    let most = capacities.values().copied().max().unwrap_or(0);
    let alike = capacities.values().all(|&capacity| capacity == most);
    let relative = if alike || capacities.len() < cpus.len() {
        BTreeMap::new()
    } else {
        let scale =
            |capacity: u64| (u128::from(capacity) * u128::from(FULL_CAPACITY) / u128::from(most)) as u32;
        capacities.into_iter().map(|(cpu, capacity)| (cpu, scale(capacity))).collect()
    };
    (if kinds.len() > 1 { kinds } else { Vec::new() }, relative)
}

type Topology = *mut c_void;

/// XML of the machine that this runs on, from libhwloc; the error says why there is none.
pub(crate) fn live_xml() -> Result<String, String> {
    // SAFETY: the signatures are those of hwloc 2's ABI, which the library's name promises; the
    // topology is used between init and destroy only, and the buffer is copied before it is freed
    // by the library that made it.
    unsafe {
        let library =
            libloading::Library::new("libhwloc.so.15").map_err(|_| "libhwloc.so.15 is not installed")?;
        macro_rules! symbol {
            ($name:literal, $type:ty) => {
                *library
                    .get::<$type>($name)
                    .map_err(|_| format!("libhwloc.so.15 lacks {}", String::from_utf8_lossy($name)))?
            };
        }
        let init = symbol!(b"hwloc_topology_init", unsafe extern "C" fn(*mut Topology) -> c_int);
        let set_flags =
            symbol!(b"hwloc_topology_set_flags", unsafe extern "C" fn(Topology, c_ulong) -> c_int);
        let load = symbol!(b"hwloc_topology_load", unsafe extern "C" fn(Topology) -> c_int);
        let export = symbol!(
            b"hwloc_topology_export_xmlbuffer",
            unsafe extern "C" fn(Topology, *mut *mut c_char, *mut c_int, c_ulong) -> c_int
        );
        let free = symbol!(b"hwloc_free_xmlbuffer", unsafe extern "C" fn(Topology, *mut c_char));
        let destroy = symbol!(b"hwloc_topology_destroy", unsafe extern "C" fn(Topology));
        let version = symbol!(b"hwloc_get_api_version", unsafe extern "C" fn() -> c_uint);
        if version() >> 16 != 2 {
            return Err(format!("libhwloc.so.15 has API version {:#x}, not 2", version()));
        }
        let mut topology: Topology = std::ptr::null_mut();
        if init(&mut topology) != 0 {
            return Err("hwloc_topology_init failed".into());
        }
        // HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED: what is allowed is asked elsewhere.
        set_flags(topology, 1);
        let mut xml = Err("hwloc could not describe this machine".to_owned());
        if load(topology) == 0 {
            let (mut buffer, mut length) = (std::ptr::null_mut(), 0);
            if export(topology, &mut buffer, &mut length, 0) == 0 && !buffer.is_null() {
                xml = Ok(CStr::from_ptr(buffer).to_string_lossy().into_owned());
                free(topology, buffer);
            }
        }
        destroy(topology);
        xml
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Discovery asks the library only where sysfs leaves something open, which may be nowhere here.
    #[test]
    fn the_library_and_sysfs_see_the_same_processors_and_packages() {
        let xml = match live_xml() {
            Ok(xml) => xml,
            Err(why) => return coplace_skipped::skipped_here(format!("no library of hwloc: {why}")),
        };
        let ours = Machine::from_sysfs(Path::new("/")).unwrap().machine;
        let theirs = Machine::from_hwloc_xml(&xml).unwrap().machine;
        assert_eq!(theirs.all_cpus(), ours.all_cpus());
        assert_eq!(theirs.units(Level::Package).count(), ours.units(Level::Package).count());
    }
}
