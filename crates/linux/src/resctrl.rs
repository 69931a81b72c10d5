//! Traffic with memory and occupancy of the last-level cache of programs that this thread starts, as the processor
//! monitors them (Intel RDT, AMD QoS, Arm MPAM): a monitoring group of resctrl's root group.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::cgroup::create_dir;
use crate::error::{Absent, Result};
use crate::host;
use crate::root::{Root, read, write};

/// What a group was seen to do, over all last-level caches. What the processor does not monitor is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Bytes between the last-level caches and memory.
    pub total_bytes: Option<u64>,
    /// Of these, with the memory next to each cache.
    pub local_bytes: Option<u64>,
    /// Bytes that the group has in the last-level caches.
    pub occupancy_bytes: Option<u64>,
}

/// This thread and what it starts, until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    group: PathBuf,
    /// Of the root group, where this thread goes back to.
    tasks: PathBuf,
    before: Traffic,
}

impl Monitor {
    /// From now on this thread, and all that it starts, is in a group of its own.
    pub fn of_children(root: &Root) -> Result<Monitor, Absent> {
        Monitor::named(&new_name(), root)
    }

    fn named(name: &str, root: &Root) -> Result<Monitor, Absent> {
        let absent =
            |why: &dyn std::fmt::Display, remedy: &str| Absent::new("memory monitoring", why, remedy);
        let resctrl = root.sys.join("fs/resctrl");
        if !host::is_directory(&resctrl.join("info/L3_MON")) {
            return Err(absent(
                &"resctrl shows no monitoring here",
                "a server CPU with RDT, QoS or MPAM is needed, and as root: mount -t resctrl resctrl /sys/fs/resctrl",
            ));
        }
        let group = resctrl.join("mon_groups").join(name);
        create_dir(&group)
            .map_err(|error| absent(&error, "root may make a group, while the CPU has one left"))?;
        let mut monitor = Monitor { tasks: resctrl.join("tasks"), group, before: Traffic::default() };
        enter(&monitor.group.join("tasks"))
            .map_err(|error| absent(&error, "this thread must be in resctrl's root group"))?;
        // The processor may have counted for somebody else in the same place.
        monitor.before = monitor.now();
        Ok(monitor)
    }

    /// Since it was made. Occupancy is what is left in the caches now.
    pub fn read(&self) -> Traffic {
        let now = self.now();
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        Traffic {
            total_bytes: since(now.total_bytes, self.before.total_bytes),
            local_bytes: since(now.local_bytes, self.before.local_bytes),
            occupancy_bytes: now.occupancy_bytes,
        }
    }

    fn now(&self) -> Traffic {
        let data = self.group.join("mon_data");
        let caches: Vec<PathBuf> = host::with(|host| host.names(&data))
            .unwrap_or_default()
            .into_iter()
            .filter(|entry| entry.name.to_string_lossy().starts_with("mon_L3_"))
            .map(|entry| data.join(entry.name))
            .collect();
        // A sum over some of the caches would be none.
        let sum = |what: &str| -> Option<u64> {
            let each: Option<Vec<u64>> = caches.iter().map(|cache| number(&cache.join(what))).collect();
            each.filter(|each| !each.is_empty()).map(|each| each.iter().sum())
        };
        Traffic {
            total_bytes: sum("mbm_total_bytes"),
            local_bytes: sum("mbm_local_bytes"),
            occupancy_bytes: sum("llc_occupancy"),
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // What goes on running after us is counted nowhere from here on; the kernel moves it to the root group.
        let _ = enter(&self.tasks);
        let _ = host::with(|host| host.remove_directory(&self.group));
    }
}

/// Of a group that nobody else has.
fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("coplace-{}-{}", host::own_pid(), NUMBER.fetch_add(1, Relaxed))
}

/// The calling thread into the group of these tasks: 0 is whoever writes.
fn enter(tasks: &Path) -> Result<()> {
    write(tasks, "0\n")
}

/// `None` for `Unavailable` and `Error`, which the kernel writes where it has no value.
fn number(path: &Path) -> Option<u64> {
    read(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// With groups of these names, as the kernel fills them: nobody but it makes a file there.
    fn machine(groups: &[&str]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let resctrl = directory.path().join("sys/fs/resctrl");
        fs::create_dir_all(resctrl.join("info/L3_MON")).unwrap();
        fs::write(resctrl.join("tasks"), "").unwrap();
        for group in groups.iter().map(|name| resctrl.join("mon_groups").join(name)) {
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("tasks"), "").unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    fn write_values(group: &Path, cache: &str, values: [&str; 3]) {
        let cache = group.join("mon_data").join(cache);
        fs::create_dir_all(&cache).unwrap();
        for (name, value) in ["mbm_total_bytes", "mbm_local_bytes", "llc_occupancy"].iter().zip(values) {
            fs::write(cache.join(name), format!("{value}\n")).unwrap();
        }
    }

    #[test]
    fn a_group_of_its_own_is_summed_over_the_caches_and_left_again() {
        let (directory, root) = machine(&["one"]);
        let mut monitor = Monitor::named("one", &root).unwrap();
        assert_eq!(monitor.read(), Traffic::default());
        let tasks = |path: &Path| fs::read_to_string(path.join("tasks")).unwrap_or_default();
        assert_eq!(tasks(&monitor.group), "0\n");
        write_values(&monitor.group, "mon_L3_00", ["1000", "600", "64"]);
        write_values(&monitor.group, "mon_L3_01", ["500", "100", "128"]);
        monitor.before = monitor.now();
        write_values(&monitor.group, "mon_L3_00", ["5000", "Unavailable", "640"]);
        let found = monitor.read();
        assert_eq!(found.total_bytes, Some(4000));
        assert_eq!((found.local_bytes, found.occupancy_bytes), (None, Some(768)));
        let top = directory.path().join("sys/fs/resctrl");
        assert_eq!(tasks(&top), "");
        drop(monitor);
        assert_eq!(tasks(&top), "0\n");
    }

    #[test]
    fn two_at_once_have_groups_of_their_own() {
        let names = [new_name(), new_name()];
        let (_directory, root) = machine(&[&names[0], &names[1]]);
        let both = names.each_ref().map(|name| Monitor::named(name, &root).unwrap());
        assert_ne!(both[0].group, both[1].group);
    }

    #[test]
    fn a_missing_kernel_file_is_an_absence_and_never_made() {
        let (directory, root) = machine(&["one"]);
        let group = directory.path().join("sys/fs/resctrl/mon_groups/one");
        fs::remove_file(group.join("tasks")).unwrap();
        let absent = Monitor::named("one", &root).unwrap_err();
        assert!(absent.why.contains("one/tasks"), "{absent}");
        assert!(!group.join("tasks").exists());
    }

    #[test]
    fn without_monitoring_the_missing_feature_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let absent = Monitor::of_children(&Root::at(directory.path())).unwrap_err();
        assert!(absent.to_string().contains("mount -t resctrl"), "{absent}");
        match Monitor::of_children(&Root::live()) {
            Ok(monitor) => assert!(monitor.group.is_dir()),
            Err(absent) => assert!(!absent.remedy.is_empty()),
        }
    }
}
