//! Processes as the tests look at them from outside, without any of coplace's code.

use std::fs;
use std::path::{Path, PathBuf};

/// Every process that was started with this in its environment (`NAME=VALUE`), newest first.
pub fn with_environment(mark: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let carries = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
    };
    let mut found: Vec<u32> = pids.filter(|pid| *pid != own).filter(carries).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

/// What a process was started with; empty for a zombie.
pub fn command(pid: u32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = text.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// The file name of the program that runs in it.
pub fn program(pid: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

fn status(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches(':').trim().to_owned())
}

/// `R`, `S`, `T` …; `None`: it has ended.
pub fn state(pid: u32) -> Option<char> {
    status(&format!("/proc/{pid}/status"), "State")?.chars().next()
}

/// The CPUs of each thread, in the kernel's list form.
pub fn masks(pid: u32) -> Vec<String> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mask = |entry: fs::DirEntry| status(entry.path().join("status").to_str()?, "Cpus_allowed_list");
    tasks.flatten().filter_map(mask).collect()
}

/// How each thread of a process and of its descendants stands, for the message of a failed test.
pub fn standing(pid: u32) -> String {
    let children =
        fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().flat_map(|task| {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace().filter_map(|child| child.parse::<u32>().ok()).collect::<Vec<_>>()
        });
    standing_alone(pid) + &children.map(standing).collect::<String>()
}

/// How each thread of a process stands, without its descendants.
pub fn standing_alone(pid: u32) -> String {
    let mut lines = format!("{pid} {}\n", command(pid).join(" "));
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let path = task.path();
        let of = |key: &str| status(path.join("status").to_str()?, key);
        let text = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        // Field 39 of stat, counted behind the name, which may contain anything: the CPU that it ran on last.
        let stat = text("stat");
        let cpu = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(36)).unwrap_or("?");
        let (state, cpus) = (of("State").unwrap_or_default(), of("Cpus_allowed_list").unwrap_or_default());
        lines += &format!(
            "  thread {:?}: {state}, on CPU {cpu} of {cpus}, ran, waited, times: {}, in {}\n",
            task.file_name(),
            text("schedstat").trim(),
            text("wchan")
        );
    }
    lines
}

/// This process's own CPUs.
pub fn own_mask() -> String {
    status("/proc/self/status", "Cpus_allowed_list").expect("the kernel tells the mask")
}

/// How many CPUs this process may use, by its mask and quota; 1 where that cannot be found out.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Nanoseconds for which all threads of a process have run.
pub fn run_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let time = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(time).sum()
}

/// The cgroups of a process: (controllers, path within the hierarchy).
pub fn groups(pid: u32) -> Vec<(String, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    text.lines().filter_map(group).collect()
}

/// Files that freeze a process, with what thaws it.
fn freezers(pid: u32) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    for (controllers, path) in groups(pid).into_iter().filter(|group| group.1 != "/") {
        let at = |mount: &str, file: &str| Path::new(mount).join(path.trim_start_matches('/')).join(file);
        if controllers.split(',').any(|controller| controller == "freezer") {
            found.push((at("/sys/fs/cgroup/freezer", "freezer.state"), "THAWED"));
        } else if controllers.is_empty() {
            found.push((at("/sys/fs/cgroup/unified", "cgroup.freeze"), "0"));
            found.push((at("/sys/fs/cgroup", "cgroup.freeze"), "0"));
        }
    }
    found
}

/// Whether a cgroup keeps it from running.
pub fn is_frozen(pid: u32) -> bool {
    freezers(pid)
        .iter()
        .any(|(file, thawed)| fs::read_to_string(file).is_ok_and(|text| text.trim() != *thawed))
}

/// Ends a process whatever state it is in.
pub fn end(pid: u32) {
    // Frozen by cgroup v1 it would ignore even SIGKILL.
    for (file, thawed) in freezers(pid) {
        let _ = fs::write(file, thawed);
    }
    signal(pid, libc::SIGCONT);
    signal(pid, libc::SIGKILL);
}

/// Sends a signal; a process that has ended already does not mind.
pub fn signal(pid: u32, number: i32) {
    // SAFETY: kill takes two numbers and touches no memory.
    unsafe { libc::kill(pid as i32, number) };
}
