//! How much memory there is for another program: on the machine, in its cgroup, and whether what
//! runs is short of it already.

use std::path::Path;

use crate::cgroup::{membership, mounts};
use crate::error::{Absent, Error, Result};
use crate::procfs::dir;
use crate::root::{Root, number, read};

/// What can be used without swapping, as the kernel estimates it (`MemAvailable`).
pub fn available_bytes(root: &Root) -> Result<u64> {
    let path = root.proc.join("meminfo");
    let text = read(&path)?;
    field_bytes(&path, &text, "MemAvailable")?
        .ok_or_else(|| Error::parse(&path, "", "there is no MemAvailable line"))
}

/// What the memory limits on a process's cgroup and those above leave it; `None`: no limit. Pages
/// of files that nobody uses count as left.
pub fn limit_left_bytes(pid: u32, root: &Root) -> Result<Option<u64>> {
    let (mounts, membership) = (mounts(root)?, membership(pid, root)?);
    let mut least: Option<u64> = None;
    let mut tighten = |left: Option<u64>| least = [least, left].into_iter().flatten().min();
    if let (Some(mount), Some(path)) = (&mounts.v2, &membership.v2) {
        let dir = mount.dir(path);
        for level in dir.ancestors().take_while(|level| level.starts_with(&mount.point)) {
            tighten(left(level, "memory.max", "memory.current", "inactive_file"));
        }
    }
    if let (Some(mount), Some(path)) = (mounts.v1.get("memory"), membership.v1.get("memory")) {
        let dir = mount.dir(path);
        for level in dir.ancestors().take_while(|level| level.starts_with(&mount.point)) {
            tighten(left(level, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"));
        }
    }
    Ok(least)
}

/// A group without the files, or with `max`, limits nothing.
fn left(group: &Path, limit: &str, used: &str, inactive: &str) -> Option<u64> {
    // Version 1 writes "no limit" as a number near the greatest.
    const NO_LIMIT: u64 = 1 << 60;
    let bytes = |file: &str| -> Option<u64> {
        let path = group.join(file);
        number(&path, &read(&path).ok()?).ok()
    };
    let limit = bytes(limit).filter(|limit| *limit < NO_LIMIT)?;
    let text = read(&group.join("memory.stat")).unwrap_or_default();
    let inactive = text.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(bytes(used)?.saturating_sub(inactive.unwrap_or(0))))
}

/// Share of the last ten seconds, in percent, for which somebody (`some`) or everybody (`full`)
/// waited for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one thread waited (`avg10` of the line `some`).
    pub some_percent: f64,
    /// All threads with something to do waited (`avg10` of the line `full`); 0 where there is no such line.
    pub full_percent: f64,
}

/// Reads `/proc/pressure/memory` (Linux 4.20, CONFIG_PSI).
pub fn pressure(root: &Root) -> Result<Pressure> {
    let path = root.proc.join("pressure/memory");
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) => {
            let remedy = "Linux 4.20 with CONFIG_PSI, booted with psi=1, tells it";
            return Err(Absent::new("memory pressure", error, remedy).into());
        }
    };
    let average = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind));
        let value =
            line.and_then(|line| line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")));
        value
            .and_then(|value| value.parse::<f64>().ok())
            .ok_or_else(|| Error::parse(&path, &text, format!("there is no avg10 of '{kind}'")))
    };
    Ok(Pressure { some_percent: average("some")?, full_percent: average("full").unwrap_or(0.0) })
}

/// A process's memory in RAM: now, and the most since its last exec. Pages that it shares count whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// What it has now (`VmRSS`).
    pub now_bytes: u64,
    /// The most that it had since its last exec (`VmHWM`).
    pub peak_bytes: u64,
    /// Of what it has now: not pages of files nor shared memory. All of it before Linux 4.5.
    pub anonymous_bytes: u64,
}

/// Reads `/proc/PID/status`; all 0 for kernel threads and zombies, which have no memory. Fails once the
/// process is gone ([`Error::is_gone`]).
pub fn resident(pid: u32, root: &Root) -> Result<Resident> {
    let path = dir(pid, root).join("status");
    let text = read(&path)?;
    let now_bytes = field_bytes(&path, &text, "VmRSS")?.unwrap_or(0);
    let anonymous_bytes = field_bytes(&path, &text, "RssAnon")?.unwrap_or(now_bytes);
    Ok(Resident {
        now_bytes,
        peak_bytes: field_bytes(&path, &text, "VmHWM")?.unwrap_or(0),
        anonymous_bytes: anonymous_bytes.min(now_bytes),
    })
}

/// What processes take together, without counting twice what they share: their proportional shares, of which each
/// shared page adds one part for each process that has it.
///
/// The kernel walks all pages for that, some 0.1 ms for each 100 MiB, and shows it to those only who may read the
/// process's memory.
pub fn proportional_bytes(pid: u32, root: &Root) -> Result<u64> {
    let path = dir(pid, root).join("smaps_rollup");
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) if error.is_gone() && dir(pid, root).exists() => {
            return Err(Absent::new("proportional memory", error, "Linux 4.14 tells it").into());
        }
        Err(error) => return Err(error),
    };
    field_bytes(&path, &text, "Pss")?.ok_or_else(|| Error::parse(&path, "", "there is no Pss line"))
}

/// A line `Name:   123 kB`.
fn field_bytes(path: &Path, text: &str, name: &str) -> Result<Option<u64>> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = |value: &str| number::<u64>(path, value.trim().trim_end_matches("kB"));
    Ok(value.map(kib).transpose()?.map(|kib| kib * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn world(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    #[test]
    fn the_tightest_limit_above_a_process_counts_less_what_is_used() {
        let (_dir, root) = world(&[
            (
                "proc/self/mountinfo",
                "1 0 0:1 / /cg rw - cgroup2 none rw\n2 0 0:2 / /m rw - cgroup none rw,memory\n",
            ),
            ("proc/7/cgroup", "0::/a/b\n5:memory:/x\n"),
            ("cg/a/memory.max", "1000000\n"),
            ("cg/a/memory.current", "900000\n"),
            ("cg/a/memory.stat", "anon 5\ninactive_file 100000\n"),
            ("cg/a/b/memory.max", "max\n"),
            ("cg/a/b/memory.current", "7\n"),
            ("m/x/memory.limit_in_bytes", "9223372036854771712\n"),
            ("m/x/memory.usage_in_bytes", "5\n"),
        ]);
        assert_eq!(limit_left_bytes(7, &root).unwrap(), Some(200_000));
        fs::write(root.base.join("m/x/memory.limit_in_bytes"), "150005\n").unwrap();
        assert_eq!(limit_left_bytes(7, &root).unwrap(), Some(150_000));
    }

    #[test]
    fn memory_is_read_and_pressure_may_be_absent() {
        let (_dir, root) = world(&[
            ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"),
            ("proc/7/status", "Name:\tx\nVmHWM:\t   30 kB\nVmRSS:\t   20 kB\n"),
        ]);
        assert_eq!(available_bytes(&root).unwrap(), 2 << 20);
        assert_eq!(
            resident(7, &root).unwrap(),
            Resident { now_bytes: 20 << 10, peak_bytes: 30 << 10, anonymous_bytes: 20 << 10 }
        );
        let path = root.proc.join("7/smaps_rollup");
        assert!(matches!(proportional_bytes(7, &root), Err(Error::Absent(_))));
        fs::write(path, "00400000-7fff rollup\nRss:     20 kB\nPss:       5 kB\nPss_Anon:   3 kB\n").unwrap();
        assert_eq!(proportional_bytes(7, &root).unwrap(), 5 << 10);
        assert!(!matches!(proportional_bytes(8, &root), Ok(_) | Err(Error::Absent(_))));
        let error = pressure(&root).unwrap_err();
        assert!(matches!(error, Error::Absent(_)) && error.to_string().contains("CONFIG_PSI"), "{error}");
        fs::create_dir_all(root.proc.join("pressure")).unwrap();
        let text =
            "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=3.25 avg60=0 avg300=0 total=1\n";
        fs::write(root.proc.join("pressure/memory"), text).unwrap();
        assert_eq!(pressure(&root).unwrap(), Pressure { some_percent: 12.5, full_percent: 3.25 });
    }

    #[test]
    fn the_memory_of_this_machine_is_read() {
        let root = Root::live();
        assert!(available_bytes(&root).unwrap() > 1 << 20);
        let resident = resident(std::process::id(), &root).unwrap();
        assert!(resident.peak_bytes > 1 << 16);
        // As far as this kernel tells it.
        if let Ok(bytes) = proportional_bytes(std::process::id(), &root) {
            assert!((1..=resident.peak_bytes).contains(&bytes));
        }
        limit_left_bytes(std::process::id(), &root).unwrap();
    }
}
