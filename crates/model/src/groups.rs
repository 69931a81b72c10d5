//! Control groups of both versions, as far as coplace uses them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use topology::CpuSet;

/// A mounted hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hierarchy {
    /// Version 2, with the controllers cpuset and cpu.
    V2,
    /// Version 1 with the controller cpuset.
    Cpuset,
    /// Version 1 with the controller cpu.
    Cpu,
    /// Version 1 with the controller freezer.
    Freezer,
}

/// All of them, in the order of the model's `/proc/PID/cgroup`.
pub const ALL: [Hierarchy; 4] = [Hierarchy::V2, Hierarchy::Cpuset, Hierarchy::Cpu, Hierarchy::Freezer];

impl Hierarchy {
    /// The directory where it is mounted, if it is.
    pub fn mount(self) -> &'static str {
        match self {
            Hierarchy::V2 => "/sys/fs/cgroup/unified",
            Hierarchy::Cpuset => "/sys/fs/cgroup/cpuset",
            Hierarchy::Cpu => "/sys/fs/cgroup/cpu",
            Hierarchy::Freezer => "/sys/fs/cgroup/freezer",
        }
    }

    /// Its controller as `/proc/PID/cgroup` names it; empty for version 2.
    pub fn controller(self) -> &'static str {
        match self {
            Hierarchy::V2 => "",
            Hierarchy::Cpuset => "cpuset",
            Hierarchy::Cpu => "cpu",
            Hierarchy::Freezer => "freezer",
        }
    }

    fn has(self, file: &str) -> bool {
        let own: &[&str] = match self {
            Hierarchy::V2 => &[
                "cgroup.controllers",
                "cgroup.subtree_control",
                "cgroup.freeze",
                "cgroup.events",
                "cpuset.cpus",
                "cpuset.cpus.effective",
                "cpu.idle",
                "cpu.weight",
                "cpu.max",
            ],
            Hierarchy::Cpuset => &["cpuset.cpus", "cpuset.mems", "cpuset.effective_cpus"],
            Hierarchy::Cpu => &["cpu.idle", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"],
            Hierarchy::Freezer => &["freezer.state"],
        };
        file == "cgroup.procs" || own.contains(&file)
    }
}

/// What was written to the files of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What was written; empty: nothing (in version 2 that of the group above).
    pub cpus: CpuSet,
    /// Whether `cpuset.mems` names any memory node; without one a version 1 cpuset takes no process.
    pub mems: bool,
    /// By its own `cgroup.freeze` or `freezer.state`, whatever the groups above are.
    pub frozen: bool,
    /// By its own `cpu.idle`, whatever the groups above are.
    pub idle: bool,
    /// Version 2: the controllers that are handed down.
    pub handed_down: Vec<String>,
}

/// A file of a group: the hierarchy, the group's path in it (`/` is the top), and the file's name.
pub(crate) type GroupFile = (Hierarchy, String, String);

/// All groups of the mounted hierarchies.
#[derive(Debug)]
pub struct Groups {
    groups: BTreeMap<(Hierarchy, String), Group>,
    mounted: Vec<Hierarchy>,
    cpus: CpuSet,
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

pub(crate) fn parent(group: &str) -> &str {
    match group.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((above, _)) => above,
    }
}

impl Groups {
    /// The top groups alone, each of which has all these CPUs.
    pub fn new(mounted: &[Hierarchy], cpus: &CpuSet) -> Groups {
        let top = |hierarchy: &Hierarchy| {
            let top = Group { cpus: cpus.clone(), mems: true, ..Group::default() };
            ((*hierarchy, "/".to_owned()), top)
        };
        Groups { groups: mounted.iter().map(top).collect(), mounted: mounted.to_vec(), cpus: cpus.clone() }
    }

    /// The hierarchies that this machine has.
    pub fn mounted(&self) -> &[Hierarchy] {
        &self.mounted
    }

    /// A group by its path in the hierarchy (`/` is the top); `None` where there is none.
    pub fn get(&self, hierarchy: Hierarchy, group: &str) -> Option<&Group> {
        self.groups.get(&(hierarchy, group.to_owned()))
    }

    /// Which group, or file of one, a path is; the name is empty for the group itself.
    pub(crate) fn find(&self, path: &Path) -> Option<GroupFile> {
        for hierarchy in &self.mounted {
            let Ok(rest) = path.strip_prefix(hierarchy.mount()) else { continue };
            let whole = format!("/{}", rest.display());
            let whole = if whole == "/" { "/" } else { whole.trim_end_matches('/') };
            if self.groups.contains_key(&(*hierarchy, whole.to_owned())) {
                return Some((*hierarchy, whole.to_owned(), String::new()));
            }
            let file = rest.file_name()?.to_str()?.to_owned();
            let above = parent(whole).to_owned();
            let known = self.groups.contains_key(&(*hierarchy, above.clone())) && hierarchy.has(&file);
            // The top group has no such files.
            let at_top =
                above == "/" && (file == "cgroup.freeze" || file == "cpu.idle" || file == "freezer.state");
            return (known && !at_top).then_some((*hierarchy, above, file));
        }
        None
    }

    pub(crate) fn is_below_mount(&self, path: &Path) -> bool {
        self.mounted.iter().any(|hierarchy| path.starts_with(hierarchy.mount()))
    }

    pub(crate) fn make(&mut self, path: &Path) -> io::Result<()> {
        let hierarchy = self.mounted.iter().copied().find(|hierarchy| path.starts_with(hierarchy.mount()));
        let hierarchy = hierarchy.ok_or_else(|| error(libc::ENOENT))?;
        let group = format!("/{}", path.strip_prefix(hierarchy.mount()).expect("just found").display());
        if self.groups.contains_key(&(hierarchy, group.clone())) {
            return Err(error(libc::EEXIST));
        }
        if !self.groups.contains_key(&(hierarchy, parent(&group).to_owned())) {
            return Err(error(libc::ENOENT));
        }
        self.groups.insert((hierarchy, group), Group::default());
        Ok(())
    }

    pub(crate) fn has_children(&self, hierarchy: Hierarchy, group: &str) -> bool {
        self.children(hierarchy, group).next().is_some()
    }

    fn children<'a>(&'a self, hierarchy: Hierarchy, group: &'a str) -> impl Iterator<Item = &'a String> {
        let all = self.groups.keys().filter(move |(of, path)| *of == hierarchy && path != "/");
        all.map(|(_, path)| path).filter(move |path| parent(path) == group)
    }

    pub(crate) fn child_names(&self, hierarchy: Hierarchy, group: &str) -> Vec<String> {
        let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        self.children(hierarchy, group).map(name).collect()
    }

    pub(crate) fn remove(&mut self, hierarchy: Hierarchy, group: &str) {
        self.groups.remove(&(hierarchy, group.to_owned()));
    }

    fn edit(&mut self, hierarchy: Hierarchy, group: &str) -> &mut Group {
        self.groups.get_mut(&(hierarchy, group.to_owned())).expect("it was found")
    }

    /// The groups from this one up to the top.
    fn levels<'a>(&'a self, hierarchy: Hierarchy, group: &'a str) -> impl Iterator<Item = &'a Group> {
        let mut at = Some(group);
        std::iter::from_fn(move || {
            let here = at?;
            at = (here != "/").then(|| parent(here));
            Some(here)
        })
        .filter_map(move |path| self.get(hierarchy, path))
    }

    /// The CPUs that members may really use.
    pub fn effective_cpus(&self, hierarchy: Hierarchy, group: &str) -> CpuSet {
        let own = |group: &Group| (!group.cpus.is_empty()).then(|| group.cpus.clone());
        // In version 2 what nobody wrote is what the group above has.
        let all = self.levels(hierarchy, group).filter_map(own);
        all.fold(self.cpus.clone(), |cpus, own| {
            let both = cpus.intersection(&own);
            if both.is_empty() { cpus } else { both }
        })
    }

    /// Whether a group, or one above it, is frozen.
    pub fn is_frozen(&self, hierarchy: Hierarchy, group: &str) -> bool {
        self.levels(hierarchy, group).any(|level| level.frozen)
    }

    /// Whether `cpu.idle` is set for a group or one above it.
    pub fn is_idle(&self, hierarchy: Hierarchy, group: &str) -> bool {
        self.levels(hierarchy, group).any(|level| level.idle)
    }

    /// Text of a file other than `cgroup.procs`; `populated`: somebody lives in it or below.
    pub(crate) fn read(&self, (hierarchy, group, file): &GroupFile, populated: bool) -> io::Result<String> {
        let own = self.get(*hierarchy, group).ok_or_else(|| error(libc::ENODEV))?;
        Ok(match file.as_str() {
            "cgroup.controllers" => "cpuset cpu\n".to_owned(),
            "cgroup.subtree_control" => own.handed_down.join(" ") + "\n",
            "cgroup.freeze" => format!("{}\n", u8::from(own.frozen)),
            "cgroup.events" => {
                let frozen = self.is_frozen(*hierarchy, group);
                format!("populated {}\nfrozen {}\n", u8::from(populated), u8::from(frozen))
            }
            "cpuset.cpus" => format!("{}\n", own.cpus),
            "cpuset.cpus.effective" | "cpuset.effective_cpus" => {
                format!("{}\n", self.effective_cpus(*hierarchy, group))
            }
            "cpuset.mems" => if own.mems { "0\n" } else { "\n" }.to_owned(),
            "cpu.idle" => format!("{}\n", u8::from(own.idle)),
            "cpu.weight" => "100\n".to_owned(),
            "cpu.shares" => "1024\n".to_owned(),
            "cpu.max" => "max 100000\n".to_owned(),
            "cpu.cfs_quota_us" => "-1\n".to_owned(),
            "cpu.cfs_period_us" => "100000\n".to_owned(),
            "freezer.state" => match self.is_frozen(*hierarchy, group) {
                true => "FROZEN\n".to_owned(),
                false => "THAWED\n".to_owned(),
            },
            _ => return Err(error(libc::EINVAL)),
        })
    }

    /// What writing to a file other than `cgroup.procs` does.
    pub(crate) fn write(
        &mut self,
        (hierarchy, group, file): &GroupFile,
        text: &str,
        holds: bool,
    ) -> io::Result<()> {
        let text = text.trim();
        let hierarchy = *hierarchy;
        let flag = || match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(error(libc::EINVAL)),
        };
        match file.as_str() {
            "cgroup.subtree_control" => {
                // Only the top may hold processes and hand controllers down.
                if holds && group != "/" {
                    return Err(error(libc::EBUSY));
                }
                for controller in text.split_ascii_whitespace() {
                    let name = controller.trim_start_matches('+').to_owned();
                    let handed_down = &mut self.edit(hierarchy, group).handed_down;
                    if !handed_down.contains(&name) {
                        handed_down.push(name);
                    }
                }
            }
            "cgroup.freeze" => self.edit(hierarchy, group).frozen = flag()?,
            "freezer.state" => {
                self.edit(hierarchy, group).frozen = match text {
                    "FROZEN" => true,
                    "THAWED" => false,
                    _ => return Err(error(libc::EINVAL)),
                }
            }
            "cpu.idle" => self.edit(hierarchy, group).idle = flag()?,
            "cpuset.cpus" => {
                let cpus: CpuSet = text.parse().map_err(|_| error(libc::EINVAL))?;
                let above = self.effective_cpus(hierarchy, parent(group));
                let needs_some = hierarchy == Hierarchy::Cpuset || holds;
                if cpus.is_empty() && needs_some {
                    return Err(error(libc::ENOSPC));
                }
                // Version 1 refuses what the group above has not, and what a group below still has.
                let below = self.child_names(hierarchy, group);
                let lost = |name: &String| {
                    let path = if group == "/" { format!("/{name}") } else { format!("{group}/{name}") };
                    self.get(hierarchy, &path).is_some_and(|below| !below.cpus.is_subset(&cpus))
                };
                if hierarchy == Hierarchy::Cpuset && !cpus.is_subset(&above) {
                    return Err(error(libc::EACCES));
                }
                if hierarchy == Hierarchy::Cpuset && below.iter().any(lost) {
                    return Err(error(libc::EBUSY));
                }
                self.edit(hierarchy, group).cpus = cpus;
            }
            "cpuset.mems" => self.edit(hierarchy, group).mems = !text.is_empty(),
            "cpu.shares" | "cpu.weight" => {}
            _ => return Err(error(libc::EACCES)),
        }
        Ok(())
    }

    /// Whether a group takes processes.
    pub(crate) fn takes(&self, hierarchy: Hierarchy, group: &str) -> io::Result<()> {
        let own = self.get(hierarchy, group).ok_or_else(|| error(libc::ENODEV))?;
        match hierarchy {
            Hierarchy::Cpuset if own.cpus.is_empty() || !own.mems => Err(error(libc::ENOSPC)),
            Hierarchy::V2 if group != "/" && !own.handed_down.is_empty() => Err(error(libc::EBUSY)),
            _ => Ok(()),
        }
    }

    /// Whether this is the directory of a group.
    pub fn exists(&self, path: &Path) -> bool {
        self.paths().iter().any(|own| own == path)
    }

    /// Everything below a mount, for questions about what is left behind.
    pub fn paths(&self) -> Vec<PathBuf> {
        let path = |(hierarchy, group): &(Hierarchy, String)| {
            PathBuf::from(hierarchy.mount()).join(group.trim_start_matches('/'))
        };
        self.groups.keys().filter(|(_, group)| group != "/").map(path).collect()
    }

    /// Somebody else, a service manager for example, removes a group that is empty.
    pub fn forget(&mut self, path: &Path) {
        if let Some((hierarchy, group, file)) = self.find(path)
            && file.is_empty()
            && group != "/"
            && !self.has_children(hierarchy, &group)
        {
            self.remove(hierarchy, &group);
        }
    }
}
