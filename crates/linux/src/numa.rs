//! NUMA nodes, and moving a process's pages from one to another in bounded batches.
//!
//! `move_pages` moves exactly the pages that it is told, so that a batch has a bound; asked without
//! nodes it only tells where pages are. On a machine of one node all of this is a typed absence.

use std::io;

use topology::CpuSet;

use crate::error::{Absent, Error, Result};
use crate::host;
use crate::procfs::{Process, dir};
use crate::root::{Root, read};

/// A node and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The N of `/sys/devices/system/node/nodeN`; gaps are possible.
    pub number: u32,
    /// By `os_index`, from `cpulist`; empty for a node that has memory only.
    pub cpus: CpuSet,
}

/// The nodes of this machine, two at least.
pub fn nodes(root: &Root) -> Result<Vec<Node>> {
    let path = root.sys.join("devices/system/node");
    let mut nodes = Vec::new();
    for entry in host::with(|host| host.names(&path)).unwrap_or_default() {
        let number =
            entry.name.to_str().and_then(|name| name.strip_prefix("node")).and_then(|n| n.parse().ok());
        let Some(number) = number else { continue };
        let file = path.join(&entry.name).join("cpulist");
        let text = read(&file)?;
        let cpus = text.trim().parse().map_err(|why| Error::parse(&file, &text, why))?;
        nodes.push(Node { number, cpus });
    }
    nodes.sort_by_key(|node: &Node| node.number);
    match nodes.len() {
        0 | 1 => {
            let why = format!("{} names {} of them", path.display(), nodes.len());
            Err(Absent::new("moving memory between NUMA nodes", why, "one node needs no moving").into())
        }
        _ => Ok(nodes),
    }
}

/// The nodes whose CPUs a place touches.
pub fn touched_nodes(nodes: &[Node], place: &CpuSet) -> Vec<u32> {
    nodes.iter().filter(|node| node.cpus.intersects(place)).map(|node| node.number).collect()
}

/// Part of an address space: from, to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Address of the first byte.
    pub from: u64,
    /// Address behind the last byte.
    pub to: u64,
}

/// The private writable memory of a process, where its data are: heap, stacks, anonymous and private
/// mappings. Shared pages stay, because others use them too.
pub fn data_ranges(process: Process, root: &Root) -> Result<Vec<Range>> {
    process.stat(root)?;
    let path = dir(process.pid, root).join("maps");
    let text = read(&path)?;
    let mut ranges = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(addresses), Some(rights)) = (fields.next(), fields.next()) else { continue };
        // Device memory and the kernel's own pages are no pages of the program.
        let special = line.ends_with("[vvar]") || line.ends_with("[vsyscall]") || line.contains(" /dev/");
        if !rights.starts_with("rw") || !rights.ends_with('p') || special {
            continue;
        }
        let Some((from, to)) = addresses.split_once('-') else { continue };
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|why| Error::parse(&path, line, why));
        ranges.push(Range { from: hex(from)?, to: hex(to)? });
    }
    Ok(ranges)
}

/// What one batch came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Pages looked at.
    pub examined: u64,
    /// Pages that were on none of the wanted nodes and are now on the one chosen for them.
    pub moved: u64,
    /// Pages that were to move and did not: other processes use them too, for example, or the node is full.
    pub failed: u64,
}

/// The size of a page in bytes (`sysconf(_SC_PAGESIZE)`); 4096 where that tells nothing.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf only looks up a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(4096)
}

/// Moves those of the pages in `range` that are there and on none of the nodes `to` onto one of
/// these, in turn. The caller bounds the range.
pub fn move_range(process: Process, range: Range, to: &[u32], root: &Root) -> Result<Batch> {
    let page = page_bytes();
    let mut pages: Vec<*mut libc::c_void> =
        (range.from..range.to).step_by(page as usize).map(|at| at as *mut libc::c_void).collect();
    let mut batch = Batch { examined: pages.len() as u64, ..Batch::default() };
    if !process.is_same(root) {
        return Err(Error::Gone(process));
    }
    let places = call(process, &pages, None)?;
    let elsewhere = |at: &i32| *at >= 0 && !to.contains(&(*at as u32));
    let mut chosen = places.iter().map(elsewhere);
    pages.retain(|_| chosen.next().unwrap_or(false));
    if pages.is_empty() || to.is_empty() {
        return Ok(batch);
    }
    // By address and not by order, so that a page's node does not depend on where a batch begins.
    let nodes: Vec<i32> = pages.iter().map(|at| to[(*at as u64 / page) as usize % to.len()] as i32).collect();
    for (status, wanted) in call(process, &pages, Some(&nodes))?.into_iter().zip(nodes) {
        match status == wanted {
            true => batch.moved += 1,
            false => batch.failed += 1,
        }
    }
    Ok(batch)
}

/// `move_pages`; without nodes it asks. A status is a node, or a negative errno.
fn call(process: Process, pages: &[*mut libc::c_void], nodes: Option<&[i32]>) -> Result<Vec<i32>> {
    const MPOL_MF_MOVE: libc::c_int = 1 << 1;
    let mut status = vec![-libc::ENOENT; pages.len()];
    // SAFETY: the arrays have as many entries as stated and outlive the call, which writes only into
    // `status`; the addresses are the other process's and are not followed here.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process.pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // A positive answer counts pages that were not moved; their status says so, too.
    if rc >= 0 {
        return Ok(status);
    }
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::ESRCH) => Err(Error::Gone(process)),
        Some(libc::ENOSYS) => Err(Absent::new(
            "moving memory between NUMA nodes",
            "this kernel has no move_pages",
            "a kernel with CONFIG_MIGRATION has",
        )
        .into()),
        _ => Err(Error::call("move_pages", format!("process {}", process.pid), source)),
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
    fn nodes_are_read_and_a_machine_of_one_is_an_absence() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let node = |number: u32, text: &str| {
            let dir = root.sys.join(format!("devices/system/node/node{number}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cpulist"), text).unwrap();
        };
        assert!(matches!(nodes(&root), Err(Error::Absent(_))));
        node(0, "0-3\n");
        assert!(nodes(&root).unwrap_err().to_string().contains("one node needs no moving"));
        node(10, "4-7\n");
        let found = nodes(&root).unwrap();
        assert_eq!(found[1], Node { number: 10, cpus: cpus("4-7") });
        assert_eq!(touched_nodes(&found, &cpus("2-4")), [0, 10]);
        assert_eq!(touched_nodes(&found, &cpus("5")), [10]);
        fs::write(root.sys.join("devices/system/node/node0/cpulist"), "x").unwrap();
        assert!(nodes(&root).unwrap_err().to_string().contains("node0/cpulist"));
    }

    #[test]
    fn only_private_writable_memory_is_moved() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let dir = root.proc.join("7");
        fs::create_dir_all(&dir).unwrap();
        let stat =
            "7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 55 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0\n";
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(
            dir.join("maps"),
            "1000-2000 r-xp 0 08:01 5 /bin/x\n2000-3000 rw-p 0 08:01 5 /bin/x\n\
             5000-9000 rw-s 0 00:01 6 /dev/shm/y\na000-c000 rw-p 0 00:00 0 [heap]\n\
             d000-e000 rw-p 0 00:05 9 /dev/gpu0\n",
        )
        .unwrap();
        let process = Process { pid: 7, start_time_ticks: 55 };
        let ranges = data_ranges(process, &root).unwrap();
        assert_eq!(ranges, [Range { from: 0x2000, to: 0x3000 }, Range { from: 0xa000, to: 0xc000 }]);
        assert!(data_ranges(Process { start_time_ticks: 56, ..process }, &root).is_err());
    }

    #[test]
    fn pages_that_are_where_they_should_be_stay() {
        let root = Root::live();
        let own = Process::own(&root).unwrap();
        let memory = vec![1_u8; 64 << 10];
        let from = (memory.as_ptr() as u64).next_multiple_of(page_bytes());
        let range = Range { from, to: from + 8 * page_bytes() };
        match move_range(own, range, &[0], &root) {
            Ok(batch) => assert_eq!((batch.examined, batch.failed), (8, 0)),
            // A sandbox may forbid the call.
            Err(error) => assert!(error.is_denied() || matches!(error, Error::Absent(_)), "{error}"),
        }
        assert_eq!(memory[4096], 1);
    }
}
