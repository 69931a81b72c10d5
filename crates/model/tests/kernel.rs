//! The model against the kernel of this machine: the same random scripts in both show the same.
//!
//! As root, where the version 1 hierarchies of the freezer and of cpusets are mounted; a mounted version 2 is tried
//! too. `COPLACE_SCRIPTS=from..to` runs others than the usual scripts.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use coplace_model::{Hierarchy, Machine, Op, World};
use linux::host::{self, Host, Kernel};
use linux::{Root, cgroup};
use rustix::process::Signal;
use topology::CpuSet;
use workload::Random;

/// Scripts of a usual run.
const SCRIPTS: u64 = 2000;
const STEPS: u64 = 14;
/// As a bit of what is pending.
const STOP: u64 = 1 << (libc::SIGSTOP - 1);
/// The kernel may take as long as this for what it does in its own time.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
enum Step {
    Start,
    Fork(usize),
    Exec(usize),
    Mask(usize, CpuSet),
    Make(Hierarchy),
    Enter(usize, Hierarchy),
    Leave(usize, Hierarchy),
    Confine(CpuSet),
    Freeze(Hierarchy, bool),
    Signal(usize, Signal),
    /// A stop of its first thread.
    StopThread(usize),
    Remove(Hierarchy),
}

fn any_step(random: &mut Random, processes: usize, hierarchies: &[Hierarchy], cpus: &CpuSet) -> Step {
    let index = random.below(processes as u64) as usize;
    let hierarchy = *random.pick(hierarchies);
    let freezes = *random.pick(&[Hierarchy::Freezer, hierarchy]);
    let freezes = if freezes == Hierarchy::Cpuset { Hierarchy::Freezer } else { freezes };
    let last = cpus.iter().last().unwrap_or(0);
    let mask: CpuSet = match random.below(3) {
        0 => cpus.clone(),
        1 => CpuSet::first(1),
        _ => [last].into_iter().collect(),
    };
    let signals = [Signal::STOP, Signal::STOP, Signal::CONT, Signal::CONT, Signal::TERM, Signal::KILL];
    match random.below(15) {
        0 => Step::Start,
        1 => Step::Fork(index),
        2 => Step::Exec(index),
        3 | 4 => Step::Mask(index, mask),
        5 => Step::Make(hierarchy),
        6 | 7 => Step::Enter(index, hierarchy),
        8 => Step::Leave(index, hierarchy),
        9 => Step::Confine(mask),
        10 => Step::Freeze(freezes, true),
        11 => Step::Freeze(freezes, false),
        12 => Step::Signal(index, *random.pick(&signals)),
        13 => Step::StopThread(index),
        _ => Step::Remove(hierarchy),
    }
}

/// A machine in which scripts run: this one, or the model.
trait Side {
    /// `Err`: the number of the error.
    fn step(&mut self, step: &Step) -> Result<(), i32>;
    fn show(&mut self) -> Vec<String>;
    /// Whether a process stands still, so that nothing can be asked of it.
    fn stands(&mut self, index: usize) -> bool;
}

/// The group of a hierarchy that the scripts use.
fn group(mount: &Path) -> PathBuf {
    mount.join("coplace-model")
}

fn errno(result: std::io::Result<impl Sized>) -> Result<(), i32> {
    result.map(drop).map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// What both sides do by the same calls.
fn by_host(
    host: &dyn Host,
    step: &Step,
    mounts: &BTreeMap<Hierarchy, PathBuf>,
    pids: &[u32],
) -> Result<(), i32> {
    let text = |hierarchy: &Hierarchy, file: &str, text: &str| {
        errno(host.write(&group(&mounts[hierarchy]).join(file), text.as_bytes()))
    };
    match step {
        Step::Start | Step::Fork(_) | Step::Exec(_) => unreachable!("each side has its own way"),
        Step::Mask(index, cpus) => errno(host.set_affinity(pids[*index], cpus)),
        Step::Make(hierarchy) => {
            let dir = group(&mounts[hierarchy]);
            errno(host.create_directory(&dir, 0o755))?;
            if *hierarchy == Hierarchy::Cpuset {
                let all = host.read(&mounts[hierarchy].join("cpuset.cpus")).expect("the top has CPUs");
                text(hierarchy, "cpuset.cpus", &String::from_utf8_lossy(&all))?;
                text(hierarchy, "cpuset.mems", "0")?;
            }
            Ok(())
        }
        Step::Enter(index, hierarchy) => text(hierarchy, "cgroup.procs", &pids[*index].to_string()),
        Step::Leave(index, hierarchy) => {
            errno(host.write(&mounts[hierarchy].join("cgroup.procs"), pids[*index].to_string().as_bytes()))
        }
        Step::Confine(cpus) => text(&Hierarchy::Cpuset, "cpuset.cpus", &cpus.to_string()),
        Step::Freeze(Hierarchy::V2, on) => text(&Hierarchy::V2, "cgroup.freeze", if *on { "1" } else { "0" }),
        Step::Freeze(hierarchy, on) => {
            text(hierarchy, "freezer.state", if *on { "FROZEN" } else { "THAWED" })
        }
        Step::Signal(index, signal) => errno(host.send(pids[*index], *signal)),
        Step::StopThread(index) => errno(host.send_to_thread(pids[*index], pids[*index], Signal::STOP)),
        Step::Remove(hierarchy) => errno(host.remove_directory(&group(&mounts[hierarchy]))),
    }
}

/// What of the groups and processes can be seen. Who has ended is gone, waited for or not.
fn shown(
    host: &dyn Host,
    mounts: &BTreeMap<Hierarchy, PathBuf>,
    pids: &[u32],
    started: &[u64],
) -> Vec<String> {
    let root = Root::live();
    let mut lines = Vec::new();
    for (hierarchy, mount) in mounts {
        let dir = group(mount);
        let file = |name: &str| {
            host.read(&dir.join(name)).map(|text| String::from_utf8_lossy(&text).trim().to_owned())
        };
        let state = match hierarchy {
            Hierarchy::Freezer => file("freezer.state"),
            Hierarchy::V2 => {
                file("cgroup.events").map(|text| text.lines().filter(|l| l.contains("frozen")).collect())
            }
            _ => file("cpuset.effective_cpus"),
        };
        let members = file("cgroup.procs").map(|text| {
            let member = |line: &str| pids.iter().position(|pid| line.parse() == Ok(*pid));
            let mut members: Vec<usize> = text.lines().filter_map(member).collect();
            members.sort_unstable();
            members
        });
        lines.push(format!("{hierarchy:?}: {:?} {:?}", state.ok(), members.ok()));
    }
    for (index, (pid, start)) in pids.iter().zip(started).enumerate() {
        let process = linux::Process { pid: *pid, start_time_ticks: *start };
        let Ok(stat) = process.stat(&root) else {
            lines.push(format!("{index}: gone"));
            continue;
        };
        if stat.has_ended() {
            lines.push(format!("{index}: gone"));
            continue;
        }
        let own = cgroup::membership(*pid, &root).unwrap_or_default();
        let groups: Vec<bool> = mounts
            .keys()
            .map(|hierarchy| {
                let path = match hierarchy {
                    Hierarchy::V2 => own.v2.clone(),
                    other => own.v1.get(other.controller()).cloned(),
                };
                path.is_some_and(|path| path.ends_with("/coplace-model"))
            })
            .collect();
        // Who is frozen takes note of a stop only when it thaws.
        let freezes = |hierarchy: &Hierarchy, file: &str, on: &str| {
            let inside = mounts.keys().position(|own| own == hierarchy).is_some_and(|at| groups[at]);
            let state =
                mounts.get(hierarchy).map(|mount| host.read(&group(mount).join(file)).unwrap_or_default());
            inside && state.is_some_and(|state| String::from_utf8_lossy(&state).trim() == on)
        };
        let frozen = freezes(&Hierarchy::V2, "cgroup.freeze", "1")
            || freezes(&Hierarchy::Freezer, "freezer.state", "FROZEN");
        let stopped = if frozen { None } else { Some(stat.is_stopped()) };
        // Of one that stands the kernel keeps what else came.
        let kept = match stopped {
            Some(true) => linux::procfs::pending(*pid, *pid, &root)
                .ok()
                .map(|pending| (pending.own & STOP != 0, pending.shared & STOP != 0)),
            _ => None,
        };
        let cpus = host.affinity(*pid).ok();
        lines.push(format!(
            "{index}: {} stopped {stopped:?} kept {kept:?} in {groups:?} may use {cpus:?}",
            stat.comm
        ));
    }
    lines
}

/// This machine.
struct Real {
    mounts: BTreeMap<Hierarchy, PathBuf>,
    shells: Vec<(Child, Option<ChildStdin>)>,
    pids: Vec<u32>,
    started: Vec<u64>,
    shell_of: Vec<Option<usize>>,
}

impl Real {
    fn new(mounts: BTreeMap<Hierarchy, PathBuf>) -> Real {
        Real { mounts, shells: Vec::new(), pids: Vec::new(), started: Vec::new(), shell_of: Vec::new() }
    }

    fn note(&mut self, pid: u32, shell: Option<usize>) {
        self.pids.push(pid);
        let start = linux::Process::of(pid, &Root::live()).map_or(0, |process| process.start_time_ticks);
        self.started.push(start);
        self.shell_of.push(shell);
    }

    fn send_line(&mut self, index: usize, line: &str) -> bool {
        let Some(shell) = self.shell_of[index] else { return false };
        self.shells[shell].1.as_mut().is_some_and(|stdin| stdin.write_all(line.as_bytes()).is_ok())
    }
}

fn until(mut reached: impl FnMut() -> bool) {
    let began = Instant::now();
    while !reached() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Side for Real {
    fn step(&mut self, step: &Step) -> Result<(), i32> {
        match step {
            Step::Start => {
                let mut command = Command::new("/bin/sh");
                command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut child = command.spawn().expect("a shell starts");
                let (pid, stdin) = (child.id(), child.stdin.take());
                until(|| {
                    linux::procfs::stat(pid, &Root::live())
                        .is_ok_and(|stat| stat.comm == "sh" && stat.state == 'S')
                });
                self.shells.push((child, stdin));
                self.note(pid, Some(self.shells.len() - 1));
            }
            Step::Fork(index) => {
                let pid = self.pids[*index];
                let before = linux::procfs::children(pid, &Root::live()).unwrap_or_default();
                self.send_line(*index, "sleep 1000 &\n");
                let mut child = None;
                until(|| {
                    let now = linux::procfs::children(pid, &Root::live()).unwrap_or_default();
                    child = now.into_iter().find(|pid| !before.contains(pid));
                    child.is_some_and(|pid| {
                        linux::procfs::stat(pid, &Root::live()).is_ok_and(|s| s.comm == "sleep")
                    })
                });
                self.note(child.expect("the shell forks"), None);
            }
            Step::Exec(index) => {
                let pid = self.pids[*index];
                self.send_line(*index, "exec sleep 1000\n");
                until(|| linux::procfs::stat(pid, &Root::live()).is_ok_and(|stat| stat.comm == "sleep"));
                self.shell_of[*index] = None;
            }
            step => by_host(&Kernel, step, &self.mounts, &self.pids)?,
        }
        Ok(())
    }

    fn show(&mut self) -> Vec<String> {
        shown(&Kernel, &self.mounts, &self.pids, &self.started)
    }

    fn stands(&mut self, index: usize) -> bool {
        // What has executed something else obeys nobody.
        self.shell_of[index].is_none()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let thaw = [(Hierarchy::Freezer, "freezer.state", "THAWED"), (Hierarchy::V2, "cgroup.freeze", "0")];
        for (hierarchy, file, text) in thaw {
            if let Some(mount) = self.mounts.get(&hierarchy) {
                let _ = Kernel.write(&group(mount).join(file), text.as_bytes());
            }
        }
        for (pid, start) in self.pids.iter().zip(&self.started) {
            let process = linux::Process { pid: *pid, start_time_ticks: *start };
            linux::signals::kill(&[process], Signal::KILL, &Root::live());
        }
        for (child, _) in &mut self.shells {
            let _ = child.kill();
            let _ = child.wait();
        }
        for mount in self.mounts.values() {
            until(|| Kernel.remove_directory(&group(mount)).is_ok() || !group(mount).exists());
        }
    }
}

/// The model.
struct Imagined {
    world: Rc<World>,
    mounts: BTreeMap<Hierarchy, PathBuf>,
    pids: Vec<u32>,
    started: Vec<u64>,
}

impl Imagined {
    fn note(&mut self, pid: u32) {
        self.pids.push(pid);
        self.started.push(self.world.kernel.borrow().processes[&pid].start_ticks);
    }

    fn is_gone(&self, index: usize) -> bool {
        let kernel = self.world.kernel.borrow();
        kernel.processes.get(&self.pids[index]).is_none_or(|process| process.zombie)
    }

    fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        self.world.enter();
        let result = act();
        host::enter(None);
        result
    }
}

impl Side for Imagined {
    fn step(&mut self, step: &Step) -> Result<(), i32> {
        let world = Rc::clone(&self.world);
        let mut result = Ok(());
        match step {
            Step::Start => {
                let mut kernel = world.kernel.borrow_mut();
                let pid = kernel.start(coplace_model::kernel::INIT, "sh");
                kernel.processes.get_mut(&pid).expect("just started").is_waited_for = true;
                kernel.execute(pid, [Op::Sleep { ns: u64::MAX / 4000 }].into(), false, false);
                drop(kernel);
                self.note(pid);
            }
            Step::Fork(index) => {
                let mut kernel = world.kernel.borrow_mut();
                let pid = kernel.start(self.pids[*index], "sleep");
                kernel.execute(pid, [Op::Sleep { ns: u64::MAX / 4000 }].into(), false, false);
                drop(kernel);
                self.note(pid);
            }
            Step::Exec(index) => {
                let mut kernel = world.kernel.borrow_mut();
                if let Some(process) = kernel.processes.get_mut(&self.pids[*index]) {
                    process.name = "sleep".to_owned();
                }
            }
            step => result = self.within(|| host::with(|host| by_host(host, step, &self.mounts, &self.pids))),
        }
        result
    }

    fn show(&mut self) -> Vec<String> {
        self.within(|| host::with(|host| shown(host, &self.mounts, &self.pids, &self.started)))
    }

    fn stands(&mut self, index: usize) -> bool {
        let kernel = self.world.kernel.borrow();
        let process = kernel.processes.get(&self.pids[index]).filter(|process| !process.zombie);
        process.is_none_or(|process| kernel.stands_still(process))
    }
}

/// Where hierarchies are mounted here; `None`: not all that are needed.
fn mounted() -> Option<BTreeMap<Hierarchy, PathBuf>> {
    let mounts = cgroup::mounts(&Root::live()).ok()?;
    let mut found = BTreeMap::new();
    for hierarchy in [Hierarchy::Freezer, Hierarchy::Cpuset] {
        found.insert(hierarchy, mounts.v1.get(hierarchy.controller())?.point.clone());
    }
    if let Some(v2) = mounts.v2 {
        found.insert(Hierarchy::V2, v2.point);
    }
    Some(found)
}

fn play(script: u64, mounts: &BTreeMap<Hierarchy, PathBuf>) -> Result<(), String> {
    let mut random = Random::for_purpose(script, "script");
    let cpus = Kernel.affinity(0).expect("this thread has a mask");
    let hierarchies: Vec<Hierarchy> = mounts.keys().copied().collect();
    let machine =
        Machine { cpus: cpus.clone(), mounted: hierarchies.clone(), keeps_masks: true, pids: 1000, uid: 0 };
    let imagined_mounts = hierarchies.iter().map(|one| (*one, PathBuf::from(one.mount()))).collect();
    let world = World::new(machine, script);
    let mut imagined = Imagined { world, mounts: imagined_mounts, pids: Vec::new(), started: Vec::new() };
    let mut real = Real::new(mounts.clone());
    let mut done = Vec::new();
    for number in 0..STEPS {
        let step = match number {
            0 => Step::Start,
            _ => any_step(&mut random, real.pids.len(), &hierarchies, &cpus),
        };
        // What becomes of the dead is not compared: they are gone.
        let at = match step {
            Step::Mask(index, _) | Step::Enter(index, _) | Step::Leave(index, _) | Step::Signal(index, _) => {
                Some(index)
            }
            Step::StopThread(index) => Some(index),
            _ => None,
        };
        if let Some(index) = at
            && imagined.is_gone(index)
        {
            continue;
        }
        if let Step::Fork(index) | Step::Exec(index) = step
            && (real.stands(index) || imagined.stands(index))
        {
            continue;
        }
        done.push(step.clone());
        let (is, thought) = (real.step(&step), imagined.step(&step));
        if is != thought {
            return Err(format!("script {script}: {done:?}: here {is:?}, in the model {thought:?}"));
        }
        let thought = imagined.show();
        let mut shown = real.show();
        until(|| {
            shown = real.show();
            shown == thought
        });
        if shown != thought {
            return Err(format!("script {script}: {done:#?}\nhere {shown:#?}\nin the model {thought:#?}"));
        }
    }
    Ok(())
}

#[test]
fn the_model_shows_what_the_kernel_shows() {
    let (root, mounts) = (Kernel.own_uid() == 0, mounted());
    let Some(mounts) = mounts.filter(|_| root) else {
        return coplace_skipped::skipped_here("it takes root, and a cgroup v1 freezer and cpusets");
    };
    let range = std::env::var("COPLACE_SCRIPTS").ok();
    let range = range.and_then(|range| {
        let (from, to) = range.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let began = Instant::now();
    let scripts = range.unwrap_or(0..SCRIPTS);
    for script in scripts.clone() {
        if let Err(what) = play(script, &mounts) {
            panic!("{what}");
        }
    }
    eprintln!("{} scripts in {:.1} s", scripts.end - scripts.start, began.elapsed().as_secs_f64());
}

#[test]
fn a_group_is_populated_by_whoever_lives_below_it() {
    let mounted = vec![Hierarchy::V2];
    let machine = Machine { cpus: CpuSet::first(1), mounted, keeps_masks: true, pids: 1000, uid: 0 };
    let world = World::new(machine, 1);
    let mut imagined = Imagined { world, mounts: BTreeMap::new(), pids: Vec::new(), started: Vec::new() };
    imagined.step(&Step::Start).expect("it starts");
    let pid = imagined.pids[0].to_string();
    let groups = ["one", "one/below", "onerous"].map(|name| Path::new(Hierarchy::V2.mount()).join(name));
    let events = imagined.within(|| {
        host::with(|host| {
            for group in &groups {
                host.create_directory(group, 0o755).expect("its parent is there");
            }
            host.write(&groups[1].join("cgroup.procs"), pid.as_bytes()).expect("it takes processes");
            groups.map(|group| host.read(&group.join("cgroup.events")).expect("it is there"))
        })
    });
    assert_eq!(events.map(|text| text.starts_with(b"populated 1")), [true, true, false]);
}
