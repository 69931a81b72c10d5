//! Whose page a file is: by its name, which tells the process's number within its PID namespace, and by what
//! the processes of the program are called there.

use std::fmt;
use std::str::FromStr;

use crate::procfs::{self, Process};
use crate::root::Root;

/// The file of a process's page: `PID`, or `PID-NAMESPACE` in a PID namespace of its own, where many have the
/// number 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageName {
    /// As the process itself sees it.
    pub pid: u32,
    /// The number of its PID namespace.
    pub namespace: u64,
}

impl PageName {
    /// The name that this process's page has.
    pub fn of(pid: u32, root: &Root) -> PageName {
        let namespace = procfs::pid_namespace(pid, root);
        let innermost =
            procfs::status(pid, root).ok().and_then(|status| status.namespace_pids.last().copied());
        match (namespace, innermost) {
            (Ok(namespace), Some(pid)) => PageName { pid, namespace },
            _ => pid.into(),
        }
    }
}

impl From<u32> for PageName {
    fn from(pid: u32) -> PageName {
        PageName { pid, namespace: procfs::FIRST_PID_NAMESPACE }
    }
}

impl fmt::Display for PageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            procfs::FIRST_PID_NAMESPACE => write!(f, "{}", self.pid),
            namespace => write!(f, "{}-{namespace}", self.pid),
        }
    }
}

/// It is no page's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPage;

impl FromStr for PageName {
    type Err = NoPage;

    fn from_str(text: &str) -> Result<PageName, NoPage> {
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u64>().map_err(|_| NoPage),
            false => Err(NoPage),
        };
        let (pid, namespace) = match text.split_once('-') {
            Some((pid, namespace)) => (pid, number(namespace)?),
            None => (text, procfs::FIRST_PID_NAMESPACE),
        };
        let pid = number(pid)?.try_into().map_err(|_| NoPage)?;
        Ok(PageName { pid, namespace })
    }
}

/// To whom a page belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// To this living process; its pid is the one in our own PID namespace.
    Is(Process),
    /// It is not told which of these; what it wishes would be heard by somebody unknown.
    OneOf(Vec<Process>),
    /// To nobody who lives.
    Nobody,
}

/// What a process is called in its own PID namespace; `None`: not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Called {
    namespace: Option<u64>,
    pid: Option<u32>,
}

/// The owner among processes that live. `start_time_ticks`: 0 where the program could not read its own /proc,
/// and then not its namespace either.
pub(super) fn owner(name: PageName, start_time_ticks: u64, living: &[Process], root: &Root) -> Owner {
    let own = procfs::own_pid(root).and_then(|pid| procfs::pid_namespace(pid, root));
    if start_time_ticks != 0 && name.namespace == own.unwrap_or(procfs::FIRST_PID_NAMESPACE) {
        let process = Process { pid: name.pid, start_time_ticks };
        // It may have started since `living` was found.
        return if process.is_alive(root) { Owner::Is(process) } else { Owner::Nobody };
    }
    let called = |process: &Process| Called {
        namespace: procfs::pid_namespace(process.pid, root).ok(),
        pid: procfs::status(process.pid, root).ok().and_then(|status| status.namespace_pids.last().copied()),
    };
    let processes: Vec<_> = living.iter().map(|process| (*process, called(process))).collect();
    owner_among(name, start_time_ticks, &processes)
}

fn owner_among(name: PageName, start_time_ticks: u64, processes: &[(Process, Called)]) -> Owner {
    let is = |(process, called): &&(Process, Called)| {
        *called == Called { namespace: Some(name.namespace), pid: Some(name.pid) }
            && process.start_time_ticks == start_time_ticks
    };
    if let Some((process, _)) = processes.iter().find(is) {
        return Owner::Is(*process);
    }
    let may_be = |(_, called): &&(Process, Called)| {
        called.pid.is_none_or(|pid| pid == name.pid)
            && (start_time_ticks == 0 || called.namespace.is_none_or(|namespace| namespace == name.namespace))
    };
    let candidates: Vec<Process> = processes.iter().filter(may_be).map(|(process, _)| *process).collect();
    if candidates.is_empty() { Owner::Nobody } else { Owner::OneOf(candidates) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: u64 = 4_026_532_201;
    const OTHER: u64 = 4_026_532_202;

    fn process(pid: u32, start_time_ticks: u64) -> Process {
        Process { pid, start_time_ticks }
    }

    fn called(namespace: u64, pid: u32) -> Called {
        Called { namespace: Some(namespace), pid: Some(pid) }
    }

    #[test]
    fn names_come_back_and_other_files_are_no_pages() {
        for text in ["7", "4194304", "2-4026532201"] {
            assert_eq!(text.parse::<PageName>().unwrap().to_string(), text);
        }
        for text in
            ["", "default", ".default", "cpus", "7.bubbles", "2-", "-2", "+2", "2-x", "2-3-4", "5000000000"]
        {
            assert_eq!(text.parse::<PageName>(), Err(NoPage), "{text}");
        }
    }

    #[test]
    fn two_containers_with_the_same_number_are_distinguished() {
        let all = [
            (process(100, 5), called(procfs::FIRST_PID_NAMESPACE, 100)),
            (process(101, 5), called(INNER, 2)),
            (process(201, 5), called(OTHER, 2)),
            (process(102, 6), called(INNER, 3)),
        ];
        let owner = |pid, namespace, start| owner_among(PageName { pid, namespace }, start, &all);
        assert_eq!(owner(2, INNER, 5), Owner::Is(process(101, 5)));
        assert_eq!(owner(2, OTHER, 5), Owner::Is(process(201, 5)));
        assert_eq!(owner(3, INNER, 6), Owner::Is(process(102, 6)));
        assert_eq!(owner(4, INNER, 6), Owner::Nobody);
        assert_eq!(owner(2, 9, 5), Owner::Nobody, "its container has gone");
    }

    #[test]
    fn another_possible_owner_makes_the_owner_uncertain() {
        // A start time that differs: an ended process of the same number, or another time namespace.
        let all = [(process(101, 5), called(INNER, 2))];
        let page = PageName { pid: 2, namespace: INNER };
        assert_eq!(owner_among(page, 4, &all), Owner::OneOf(vec![process(101, 5)]));
        // Nothing but the number is known of a program without /proc.
        assert_eq!(owner_among(2.into(), 0, &all), Owner::OneOf(vec![process(101, 5)]));
        assert_eq!(owner_among(3.into(), 0, &all), Owner::Nobody);
        // A process that must not be looked at may be anybody.
        let hidden = [(process(101, 5), Called { namespace: None, pid: None })];
        assert_eq!(owner_among(page, 5, &hidden), Owner::OneOf(vec![process(101, 5)]));
    }
}
