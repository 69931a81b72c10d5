//! Threads that want a CPU, in processes that show no teams.

use std::collections::BTreeMap;

use linux::binary::Binary;
use linux::page::PAGES_VARIABLE;
use linux::{Process, Root, procfs};

use super::{SELDOM_NS, Watch};

/// A thread that wants the CPU for more than this share of an interval counts as running.
const BUSY_SHARE: f64 = 0.3;
/// A thread beside another of its process counts once it has wanted the CPU for so long in all: libraries'
/// threads spin when they are made and then sleep, those of OpenBLAS for 2^28 cycles.
const SPUN_NS: u64 = 150_000_000;
/// Threads looked at one by one; of a program with more, all are taken to run.
const MOST_THREADS: usize = 256;

impl Watch {
    /// Counts the threads that want a CPU.
    pub(super) fn judge(&mut self, now_ns: u64, ran_ns: u64, unseen: &[Process], silent: &[Process]) {
        let mut wanted = BTreeMap::new();
        let mut busiest = (0, None);
        let least_ns = ran_ns as f64 * BUSY_SHARE;
        (self.busy, self.unproven) = (0, 0);
        for process in unseen {
            let busy = self.busy_threads(*process, least_ns, &mut wanted);
            self.busy += busy.proven;
            self.unproven += busy.unproven;
            busiest = busiest.max((busy.proven, Some(process.pid)));
        }
        for process in silent {
            let busy = self.busy_threads(*process, least_ns, &mut wanted);
            self.unproven += busy.unproven;
            let most = self.silent.entry(*process).or_default();
            *most = busy.proven.max(*most);
        }
        self.most_silent = self.most_silent.max(self.silent());
        self.wanted = wanted;
        self.most_busy = self.most_busy.max(self.busy);
        if let (2.., Some(pid)) = busiest
            && self.unheard.is_none()
            && now_ns >= self.unheard_at_ns
        {
            self.unheard_at_ns = now_ns + SELDOM_NS;
            self.unheard = missing_page_reason(pid, &self.root);
        }
    }

    pub(super) fn silent(&self) -> u32 {
        self.silent.values().sum()
    }

    /// Its threads that wanted a CPU for at least so long since they were last looked at; `wanted` takes up
    /// what they wanted so far.
    fn busy_threads(&self, process: Process, least_ns: f64, wanted: &mut BTreeMap<(u32, u32), u64>) -> Busy {
        let Ok(threads) = procfs::threads(process.pid, &self.root) else { return Busy::default() };
        if threads.len() > MOST_THREADS {
            return Busy { proven: threads.len() as u32, unproven: 0 };
        }
        let (mut busy, mut spun) = (0, 0);
        for tid in threads {
            let Ok(time) = procfs::task_runtime_ns(process.pid, tid, &self.root) else { continue };
            let total = time.run_ns + time.wait_ns;
            let before = self.wanted.get(&(process.pid, tid)).copied();
            if total.saturating_sub(before.unwrap_or(total)) as f64 > least_ns {
                busy += 1;
                spun += u32::from(total >= SPUN_NS);
            }
            wanted.insert((process.pid, tid), total);
        }
        let proven = spun.max(busy.min(1));
        Busy { proven, unproven: busy - proven }
    }
}

/// Threads of a process that want a CPU now.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    /// Those that will go on so, as far as can be seen.
    proven: u32,
    /// Those that may be about to sleep. Threads of a team prove themselves one after the other: nobody loses CPUs
    /// because some have not yet.
    unproven: u32,
}

/// Why a process that runs has made no page, if that can be seen from outside.
fn missing_page_reason(pid: u32, root: &Root) -> Option<String> {
    let file = procfs::exe(pid, root).ok().and_then(|path| Binary::read(&path).ok());
    if let Some(obstacle) = file.and_then(|file| file.obstacle) {
        return Some(format!("without the preload library: {obstacle}"));
    }
    let variables = procfs::environ(pid, root).ok()?;
    let has = |name: &str| variables.iter().any(|(variable, _)| variable == name);
    let why = match () {
        () if !has(PAGES_VARIABLE) => "its environment was cleared on the way",
        () if !has("LD_PRELOAD") => "it was given none, or took it out of LD_PRELOAD",
        () => return None,
    };
    Some(format!("without the preload library: {why}"))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    fn becomes(command: &mut Command, expected: impl Fn(Option<String>) -> bool) -> bool {
        let mut child: Child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // While it executes, its file and environment are seen half changed.
        let mut as_expected = false;
        while !as_expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            let executed = procfs::exe(child.id(), &Root::live()).is_ok_and(|exe| exe.ends_with("sleep"));
            as_expected = executed && expected(missing_page_reason(child.id(), &Root::live()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        as_expected
    }

    #[test]
    fn a_program_without_the_library_is_recognised_from_outside() {
        let mut whole = Command::new("sleep");
        whole.arg("100").env("LD_PRELOAD", "").env(PAGES_VARIABLE, "/nowhere");
        assert!(becomes(&mut whole, |why| why.is_none()));
        let mut without = Command::new("sleep");
        without.arg("100").env_remove("LD_PRELOAD").env(PAGES_VARIABLE, "/nowhere");
        assert!(becomes(&mut without, |why| why.is_some_and(|why| why.contains("LD_PRELOAD"))));
        let mut cleared = Command::new("env");
        cleared.args(["-i", "sleep", "100"]).env("LD_PRELOAD", "").env(PAGES_VARIABLE, "/nowhere");
        assert!(becomes(&mut cleared, |why| why.is_some_and(|why| why.contains("cleared"))));
    }
}
