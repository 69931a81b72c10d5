//! Which CPUs there are to share out, and which of them each program may have.
//!
//! What counts is what programs were given by who started them: mask and cpuset, as they were before anything
//! was done to them (`AppRecord::original_cpus`), and the CPU time that their groups pay for. What the process
//! is given in which the scheduler happens to run, a `coplace run` under `taskset` for example, is its own
//! program's affair. CPUs that nobody here may use are none of ours; so programs that all have the same part
//! of a machine share that part as if it were the machine.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use engine::Event;
use linux::cgroup::{self, CpuMax};
use linux::clock::now_ns;
use linux::{Root, host, procfs, unmanaged};
use plan::App;
use protocol::{AppRecord, News};
use topology::{Allowance, CpuSet};

use super::{ALLOWANCE_NS, Scheduler, chosen};

/// What there is to share out among programs that may use these CPUs: of those that are online and configured.
/// As long as no program is here that may use any of them, it is what our own group has.
fn shared_out<'a>(allowance: &Allowance, programs: impl IntoIterator<Item = &'a CpuSet>) -> CpuSet {
    let there = match &allowance.configured {
        Some(configured) => allowance.online.intersection(configured),
        None => allowance.online.clone(),
    };
    let theirs = programs.into_iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let both = there.intersection(&theirs);
    if both.is_empty() { allowance.allowed.clone() } else { both }
}

/// Where a program that may use these CPUs has to stay; `None`: anywhere.
pub(super) fn within(original: &CpuSet, allowed: &CpuSet) -> Option<CpuSet> {
    // Of one whose mask could not be read nothing is known.
    (!original.is_empty() && !allowed.is_subset(original)).then(|| allowed.intersection(original))
}

/// The CPU time, in thousandths of a CPU, that all of these programs have together: the least of the limits
/// that hold for every one of them. What limits some only is kept by the kernel.
fn paid_milli_cpus(limits: impl IntoIterator<Item = BTreeMap<PathBuf, CpuMax>>) -> Option<u32> {
    let mut limits = limits.into_iter();
    let first = limits.next()?;
    let common = limits.fold(first, |mut common, other| {
        common.retain(|group, _| other.contains_key(group));
        common
    });
    let least = common.values().map(CpuMax::milli_cpus).min()?;
    Some(u32::try_from(least).unwrap_or(u32::MAX).max(1))
}

/// What the machine has for the programs of everybody.
pub(super) fn machine_allowance(configured: Option<&CpuSet>) -> io::Result<Allowance> {
    host::with(|host| host.allowance(configured))
}

impl Scheduler {
    /// What changes in that when programs come and go, with `newcomer`; `afresh`: as the kernel says now.
    pub(super) fn allow(&mut self, newcomer: Option<&AppRecord>, afresh: bool) -> Vec<Event> {
        let now = now_ns();
        if afresh || now >= self.allowance_at_ns {
            self.allowance_at_ns = now + ALLOWANCE_NS;
            // What could be read last holds while it cannot be read.
            let read = machine_allowance(self.options.cpus.as_ref());
            self.allowance = read.ok().or(self.allowance.take());
            self.paid_milli_cpus = self.paid(newcomer);
        }
        let Some(allowance) = &self.allowance else { return Vec::new() };
        let allowed = shared_out(allowance, self.records(newcomer).map(|record| &record.original_cpus));
        let unmanaged_milli = match self.options.leave_unmanaged {
            true => self.live.unmanaged().clone(),
            false => unmanaged::MilliCpus::new(),
        };
        let left = engine::Allowance {
            allowed: allowed.clone(),
            paid_milli_cpus: self.paid_milli_cpus,
            unmanaged_milli,
        };
        let mut events = Vec::new();
        let reasons = self.engine.would_change(&left);
        // What was said last may not have reached the engine yet, as several programs come at once.
        if reasons.is_some() || allowed != *self.live.allowed() {
            reasons.into_iter().flatten().for_each(|reason| self.note(News::Withheld(reason)));
            self.live.allow(&allowed);
            events.push(Event::Allowance(left));
        }
        let apps = self.engine.apps().iter().cloned();
        events.extend(apps.filter_map(|app| self.update_within(app, &allowed)));
        events
    }

    fn update_within(&self, app: App, allowed: &CpuSet) -> Option<Event> {
        let managed = self.live.apps().get(&app.id)?;
        let came = within(&managed.record.original_cpus, allowed);
        let within = chosen::within(&managed.chosen, came.as_ref(), allowed);
        (within != app.within).then_some(Event::Within { app: app.id, within })
    }

    /// What a program was given by who started it. A mask that is the place which a program has from us is none
    /// of its choice where it comes from that program.
    pub(super) fn original_cpus(&self, record: &AppRecord) -> CpuSet {
        let root = Root::live();
        let mut at = record.process.pid;
        // Bounded: a torn /proc can name ancestors in a circle.
        for _ in 0..64 {
            let Ok(stat) = procfs::stat(at, &root) else { break };
            at = stat.ppid;
            if let Some(outer) = self.app_of_process(at).and_then(|id| self.live.apps().get(&id)) {
                let ours = *outer.placed() == record.original_cpus;
                return if ours { &outer.record.original_cpus } else { &record.original_cpus }.clone();
            }
        }
        record.original_cpus.clone()
    }

    /// Of all programs here, whether they are admitted or not, and of `newcomer`.
    fn records<'a>(&'a self, newcomer: Option<&'a AppRecord>) -> impl Iterator<Item = &'a AppRecord> {
        let admitted = self.live.apps().values().map(|app| &app.record);
        admitted.chain(self.pending.records()).chain(newcomer)
    }

    fn paid(&self, newcomer: Option<&AppRecord>) -> Option<u32> {
        let root = Root::live();
        let pids: Vec<u32> = self.records(newcomer).map(|record| record.process.pid).collect();
        let pids = if pids.is_empty() { vec![host::own_pid()] } else { pids };
        paid_milli_cpus(pids.into_iter().filter_map(|pid| cgroup::cpu_limits(pid, &root).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn the_cpus_of_all_programs_together_are_shared_out() {
        let allowance = Allowance {
            affinity: cpus("0-9"),
            cpuset: Some(cpus("0-3")),
            online: cpus("0-9"),
            configured: Some(cpus("0-7")),
            allowed: cpus("0-3"),
            quota_milli_cpus: None,
            notes: Vec::new(),
        };
        let out = |programs: &[&str]| {
            let programs: Vec<CpuSet> = programs.iter().map(|text| cpus(text)).collect();
            shared_out(&allowance, &programs).to_string()
        };
        // Our own cpuset says something only as long as no program does.
        assert_eq!(out(&[]), "0-3");
        assert_eq!(out(&["1"]), "1");
        assert_eq!(out(&["1", "0-7"]), "0-7");
        assert_eq!(out(&["2-3", "3-4"]), "2-4");
        // One that may use nothing of it restricts nobody else.
        assert_eq!(out(&["9"]), "0-3");
        assert_eq!(out(&["9", "2"]), "2");
    }

    #[test]
    fn a_program_stays_within_its_own_cpus_and_nowhere_else() {
        assert_eq!(within(&cpus("0-7"), &cpus("2-3")), None);
        assert_eq!(within(&CpuSet::new(), &cpus("2-3")), None);
        assert_eq!(within(&cpus("1"), &cpus("0-3")), Some(cpus("1")));
        assert_eq!(within(&cpus("3-9"), &cpus("0-7")), Some(cpus("3-7")));
    }

    #[test]
    fn only_a_limit_on_all_programs_limits_their_sum() {
        let limits = |groups: &[(&str, u64)]| -> BTreeMap<PathBuf, CpuMax> {
            let limit = |quota_us| CpuMax { quota_us, period_us: 100_000 };
            groups.iter().map(|(group, quota_us)| (PathBuf::from(group), limit(*quota_us))).collect()
        };
        let tight = limits(&[("/c/tight", 50_000), ("/c", 400_000)]);
        assert_eq!(paid_milli_cpus([tight.clone()]), Some(500));
        assert_eq!(paid_milli_cpus([tight.clone(), limits(&[("/c", 400_000)])]), Some(4000));
        assert_eq!(paid_milli_cpus([tight.clone(), limits(&[("/d", 50_000)])]), None);
        assert_eq!(paid_milli_cpus([tight, limits(&[])]), None);
        assert_eq!(paid_milli_cpus([]), None);
    }
}
