//! The probe on a live node: short bursts of DistGen on CPUs that nobody uses, beside whatever program runs. What a
//! program loses by them, and takes from them, is kept as evidence; nobody has to run anything for it.
//!
//! A burst is harmless by construction: it runs in idle time only (the kernel takes its CPU for any ordinary thread
//! at once), it ends when the scheduler says that somebody asks for CPUs or that anything changed, its memory is a
//! small part of what is free, and all bursts together stay within one percent of the machine's time ([`budget`]).
//! It begins only where exactly one program shares the last-level cache with the CPU, so that what it says is said
//! of that program, and only until enough is known of it.

pub mod budget;
mod burst;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::clock::{now_ns, thread_cpu_ns};
use linux::{Root, procfs};
use node::identity;
use node::service::{Scene, Service};
use protocol::{AppRecord, ProcessId};
use topology::{CpuSet, Machine};

use budget::Budget;
pub use burst::Burst;
use burst::{Nothing, Order};

use crate::distgen::Width;
use crate::spread::Spread;

/// At least so long between two bursts.
const PAUSE: Duration = Duration::from_secs(1);
/// Bursts of one size that are enough to know a program by.
pub const ENOUGH: usize = 15;
/// Bursts on the idle machine of which the median counts, and how long each of them does.
const ENOUGH_ALONE: usize = 5;
const ALONE_LASTS_NS: u64 = 600_000_000_000;
/// Of the memory that is available a burst takes at most this part.
const MEMORY_PART: u64 = 8;
const THREAD_SCANS: u32 = 3;
/// Reading speed that a first burst is expected to have at least, to know its cost.
const EXPECTED_BYTES_PER_S: f64 = 1e9;
/// What a burst may take beyond the last one of its size.
const MARGIN: f64 = 1.5;

/// The program beside a burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Company {
    /// As the scheduler keeps it.
    pub record: AppRecord,
    /// Threads that run together, at least 1; evidence is kept for each number of them.
    pub threads: u32,
}

/// Where what was found is kept.
pub trait Evidence: Send {
    /// How many bursts of each footprint are known of the program with so many threads.
    fn known(&mut self, company: &Company) -> Result<BTreeMap<u64, usize>, String>;
    /// Adds a burst to what is known of the program; an error becomes part of the service's status.
    fn keep(&mut self, company: &Company, burst: &Burst) -> Result<(), String>;
}

/// Where a burst would say something.
#[derive(Clone, Debug, PartialEq)]
struct Opening {
    /// Of these, one whose core nobody uses at that moment.
    cpus: CpuSet,
    /// `None`: no program is there at all.
    company: Option<Company>,
}

/// What is behind one last-level cache with one program, whose place is wider than its team or leaves CPUs there
/// to nobody; or with none, where there is none at all.
fn opening(scene: &Scene, machine: &Machine) -> Option<Opening> {
    if !scene.settled {
        return None;
    }
    scene.usable.iter().find_map(|cpu| {
        let cache = &machine.last_level_cache_of(cpu)?.cpus;
        let mut near = scene.programs.iter().filter(|program| program.place.intersects(cache));
        let here = scene.usable.intersection(cache);
        match (near.next(), near.next()) {
            (Some(program), None) => {
                let threads = program.team.filter(|&threads| threads > 0)?;
                let has_room = (threads as usize) < program.place.len();
                let cpus = if has_room { here } else { here.difference(&program.place) };
                let company = Some(Company { record: program.record.clone(), threads });
                (!cpus.is_empty()).then_some(Opening { cpus, company })
            }
            (None, _) if scene.programs.is_empty() => Some(Opening { cpus: here, company: None }),
            _ => None,
        }
    })
}

/// The CPUs on which threads of a program want to run now. They are seen a few times: a thread may wait for
/// another for a moment.
fn in_use(company: &Company) -> CpuSet {
    let (root, mut used) = (Root::live(), CpuSet::default());
    let members = procfs::tree_fast(&[identity::to_linux(company.record.process)], &root).unwrap_or_default();
    for _ in 0..THREAD_SCANS {
        for member in &members {
            let threads = procfs::threads(member.pid, &root).unwrap_or_default();
            let stats =
                threads.into_iter().filter_map(|tid| procfs::thread_stat(member.pid, tid, &root).ok());
            stats.filter(|stat| stat.state == 'R').for_each(|stat| used.insert(stat.processor));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    used
}

/// The first of these whose core has none of the CPUs in use.
fn free_cpu(cpus: &CpuSet, used: &CpuSet, machine: &Machine) -> Option<u32> {
    let core_is_free = |cpu: &u32| match machine.core_of(*cpu) {
        Some(core) => !core.cpus.intersects(used),
        None => !used.contains(*cpu),
    };
    cpus.iter().find(core_is_free)
}

#[derive(Default)]
struct State {
    opening: Option<Opening>,
    /// Of the burst that runs, if one does.
    stop: Option<Arc<AtomicBool>>,
    quit: bool,
    tally: Tally,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    bursts: u64,
    ended_early: u64,
    share: f64,
    /// What went wrong last.
    failure: Option<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked with it left nothing half done: it holds plain values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another opening ends the burst that made use of the old one.
    fn open(&self, opening: Option<Opening>) {
        let mut state = self.lock();
        if state.opening == opening {
            return;
        }
        if let Some(stop) = &state.stop {
            stop.store(true, Relaxed);
        }
        state.opening = opening;
        self.changed.notify_all();
    }
}

/// The service.
pub struct Online {
    shared: Arc<Shared>,
    machine: Arc<Machine>,
    thread: Option<JoinHandle<()>>,
}

impl Online {
    /// Bursts are of these footprints.
    pub fn start(
        machine: Arc<Machine>,
        footprints: Vec<u64>,
        evidence: Box<dyn Evidence>,
    ) -> std::io::Result<Online> {
        let shared = Arc::new(Shared::default());
        let prober = Prober {
            shared: Arc::clone(&shared),
            machine: Arc::clone(&machine),
            budget: Budget::new(now_ns(), machine.pu_count() as u32),
            footprints,
            alone: BTreeMap::new(),
            costs: BTreeMap::new(),
            known: None,
            width: None,
            evidence,
        };
        let thread = std::thread::Builder::new().name("probe".into()).spawn(move || prober.run())?;
        Ok(Online { shared, machine, thread: Some(thread) })
    }
}

impl Service for Online {
    fn observe(&mut self, scene: &Scene) {
        self.shared.open(opening(scene, &self.machine));
    }

    fn withdraw(&mut self) {
        self.shared.open(None);
    }

    fn status(&self) -> String {
        let Tally { bursts, ended_early, share, failure } = self.shared.lock().tally.clone();
        let failure = failure.map_or(String::new(), |failure| format!("; {failure}"));
        format!(
            "probe: {bursts} short bursts, {ended_early} of them ended early, {:.2}% of the machine's time{failure}",
            share * 100.0
        )
    }
}

impl Drop for Online {
    fn drop(&mut self) {
        self.shared.lock().quit = true;
        self.shared.open(None);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of its own has been told.
            let _ = thread.join();
        }
    }
}

struct Prober {
    shared: Arc<Shared>,
    machine: Arc<Machine>,
    budget: Budget,
    footprints: Vec<u64>,
    /// By footprint: when the idle machine's bandwidth was taken, and what it was, the latest last.
    alone: BTreeMap<u64, Vec<(u64, f64)>>,
    /// What the last burst of a footprint cost.
    costs: BTreeMap<u64, u64>,
    /// The program that was looked up last, its threads, and what is known of it with these.
    known: Option<(ProcessId, u32, BTreeMap<u64, usize>)>,
    width: Option<Width>,
    evidence: Box<dyn Evidence>,
}

impl Prober {
    fn run(mut self) {
        // Of ordinary priority, unlike the burst: the scheduler must not wait for a lock whose owner is not let run.
        loop {
            let Some((opening, stop)) = self.wait() else { return };
            let pause = match self.due(&opening) {
                Some(footprint) => self.try_burst(&opening, footprint, &stop),
                None => PAUSE,
            };
            self.shared.lock().stop = None;
            self.pause(pause);
        }
    }

    /// Waits for an opening, and takes it; `None`: the end.
    fn wait(&self) -> Option<(Opening, Arc<AtomicBool>)> {
        let state = self.shared.lock();
        let mut state = self
            .shared
            .changed
            .wait_while(state, |state| state.opening.is_none() && !state.quit)
            .unwrap_or_else(PoisonError::into_inner);
        if state.quit {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        state.stop = Some(Arc::clone(&stop));
        Some((state.opening.clone()?, stop))
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.shared.lock();
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|_| !state.quit) {
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The footprint of which least is known, if not enough is.
    fn due(&mut self, opening: &Opening) -> Option<u64> {
        let available = linux::memory::available_bytes(&Root::live()).unwrap_or(0);
        let fits = |footprint: &u64| *footprint <= available / MEMORY_PART;
        let Some(company) = &opening.company else {
            let now = now_ns();
            let lasts = |(at_ns, _): &&(u64, f64)| now.saturating_sub(*at_ns) <= ALONE_LASTS_NS;
            let count =
                |footprint: &u64| self.alone.get(footprint).into_iter().flatten().filter(lasts).count();
            let missing = |footprint: &u64| count(footprint) < ENOUGH_ALONE;
            return self.footprints.iter().copied().filter(fits).filter(missing).min_by_key(count);
        };
        let (process, threads) = (company.record.process, company.threads);
        if self.known.as_ref().is_none_or(|(known, n, _)| (*known, *n) != (process, threads)) {
            let known = match self.evidence.known(company) {
                Ok(known) => known,
                // What cannot be looked up is not added to either.
                Err(why) => {
                    self.shared.lock().tally.failure = Some(format!("{}: {why}", company.record.id));
                    return None;
                }
            };
            self.known = Some((process, threads, known));
        }
        let (.., known) = self.known.as_ref()?;
        let count = |footprint: &u64| known.get(footprint).copied().unwrap_or(0);
        self.footprints.iter().copied().filter(fits).filter(|f| count(f) < ENOUGH).min_by_key(count)
    }

    /// The median of what the probe read while no program ran.
    fn alone_bytes_per_s(&self, footprint_bytes: u64) -> Option<f64> {
        let taken = self.alone.get(&footprint_bytes)?.iter().map(|(_, bytes_per_s)| *bytes_per_s);
        Some(Spread::of(taken)?.median)
    }

    /// Makes a burst if it may cost what it will; how long to wait then.
    fn try_burst(&mut self, opening: &Opening, footprint_bytes: u64, stop: &Arc<AtomicBool>) -> Duration {
        let now = now_ns();
        // It is touched, read once, and read for a window.
        let first = || (3.0 * footprint_bytes as f64 / EXPECTED_BYTES_PER_S * 1e9) as u64 + 100_000_000;
        let expected_ns =
            self.costs.get(&footprint_bytes).map_or_else(first, |ns| (*ns as f64 * MARGIN) as u64);
        let wait_ns = self.budget.until_ns(now, expected_ns);
        if wait_ns > 0 {
            return Duration::from_nanos(wait_ns).min(PAUSE);
        }
        let used = opening.company.as_ref().map(in_use).unwrap_or_default();
        let Some(cpu) = free_cpu(&opening.cpus, &used, &self.machine) else { return PAUSE };
        let order = Order {
            cpu,
            footprint_bytes,
            most: Duration::from_nanos(self.budget.left_ns(now)),
            width: self.width,
            stop: Arc::clone(stop),
        };
        let alone = self.alone_bytes_per_s(footprint_bytes);
        let own_ns = thread_cpu_ns();
        let made = burst::make(&order, opening.company.as_ref(), alone);
        self.budget.spend(made.cost_ns + thread_cpu_ns().saturating_sub(own_ns));
        self.width = made.width;
        let mut failure = None;
        match (&made.result, &opening.company) {
            (Ok(burst), Some(company)) => {
                failure = self.evidence.keep(company, burst).err();
                // One that could not be kept counts too: it is not to be tried for ever.
                if let Some((.., known)) = &mut self.known {
                    *known.entry(footprint_bytes).or_default() += 1;
                }
            }
            (Ok(burst), None) => {
                let taken = self.alone.entry(footprint_bytes).or_default();
                taken.drain(..(taken.len() + 1).saturating_sub(ENOUGH_ALONE));
                taken.push((now, burst.probe_bytes_per_s));
            }
            // It was expected to cost too little.
            (Err(Nothing::TooDear), _) => drop(self.costs.insert(footprint_bytes, expected_ns)),
            (Err(Nothing::Failed(error)), _) => failure = Some(error.to_string()),
            (Err(Nothing::Withdrawn | Nothing::Disturbed), _) => {}
        }
        if made.result.is_ok() {
            self.costs.insert(footprint_bytes, made.cost_ns);
        }
        let mut state = self.shared.lock();
        state.tally.bursts += 1;
        state.tally.ended_early += u64::from(made.result.is_err());
        state.tally.share = self.budget.share(now_ns());
        state.tally.failure = failure.or(state.tally.failure.take());
        PAUSE
    }
}

#[cfg(test)]
mod tests {
    use node::service::Occupant;
    use workload::Demand;

    use super::*;

    fn program(name: &str, place: &str, team: Option<u32>) -> Occupant {
        let process = ProcessId { pid: 1, start_time_ticks: 1 };
        let record = serde_json::from_value(serde_json::json!({
            "id": name, "uid": 0, "process": process, "guardian": process, "command": [name], "directory": "/",
            "pages": "", "original_cpus": "0-7", "demand": Demand::default(), "arrived_ns": 0, "started": true,
        }))
        .unwrap();
        Occupant { record, place: place.parse().unwrap(), team }
    }

    fn found(machine: &str, usable: &str, programs: &[Occupant]) -> Option<(String, Option<String>)> {
        let scene = Scene { usable: usable.parse().unwrap(), programs: programs.to_vec(), settled: true };
        let machine = Machine::synthetic(machine).unwrap();
        assert_eq!(opening(&Scene { settled: false, ..scene.clone() }, &machine), None);
        let opening = opening(&scene, &machine)?;
        Some((opening.cpus.to_string(), opening.company.map(|company| company.record.id.to_string())))
    }

    const TWO: &str = "pack:2 l3:1 core:2 pu:2";

    #[test]
    fn a_burst_goes_where_one_program_shares_the_cache() {
        let beside = |cpus: &str, name: &str| Some((cpus.to_owned(), Some(name.to_owned())));
        assert_eq!(found(TWO, "0-7", &[]), Some(("0-3".into(), None)));
        assert_eq!(found(TWO, "0-7", &[program("a", "0", Some(1))]), beside("1-3", "a"));
        // Its place has more room than its team needs.
        assert_eq!(found(TWO, "0-7", &[program("a", "0-7", Some(2))]), beside("0-3", "a"));
        // Beside two nobody could tell which of them lost what.
        assert_eq!(found(TWO, "0-3", &[program("a", "0", Some(1)), program("b", "1", Some(1))]), None);
        let apart = [program("a", "0-3", Some(4)), program("b", "4-5", Some(2))];
        assert_eq!(found(TWO, "0-7", &apart), beside("6-7", "b"));
        // Far from every program nothing would be learned of any.
        assert_eq!(found(TWO, "4-7", &[program("a", "0-1", Some(2))]), None);
        // One that has shown no team is not measured yet, and who fills the CPUs leaves none.
        assert_eq!(found(TWO, "0-7", &[program("a", "0", None)]), None);
        assert_eq!(found(TWO, "0-1", &[program("a", "0-1", Some(2))]), None);
    }

    #[test]
    fn the_core_of_the_probe_is_nobodys() {
        let machine = Machine::synthetic(TWO).unwrap();
        let free =
            |cpus: &str, used: &str| free_cpu(&cpus.parse().unwrap(), &used.parse().unwrap(), &machine);
        assert_eq!(free("1-3", "0"), Some(2));
        assert_eq!(free("0-3", "1"), Some(2));
        assert_eq!(free("0-3", "0,3"), None);
        // Threads that run are seen on their CPUs, those that sleep are not.
        let mut spinning =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut record = program("a", "0", Some(1)).record;
        record.process = identity::from_linux(procfs::Process::of(spinning.id(), &Root::live()).unwrap());
        let used =
            (0..50).map(|_| in_use(&Company { record: record.clone(), threads: 1 })).find(|u| !u.is_empty());
        spinning.kill().unwrap();
        spinning.wait().unwrap();
        assert!(used.is_some_and(|used| used.len() <= THREAD_SCANS as usize));
    }

    /// Counts what is kept.
    struct Kept(Arc<Mutex<Vec<(String, Burst)>>>);

    impl Evidence for Kept {
        fn known(&mut self, _: &Company) -> Result<BTreeMap<u64, usize>, String> {
            Ok(BTreeMap::new())
        }

        fn keep(&mut self, company: &Company, burst: &Burst) -> Result<(), String> {
            self.0.lock().unwrap().push((company.record.id.to_string(), *burst));
            Ok(())
        }
    }

    fn prober(known: BTreeMap<u64, usize>) -> Prober {
        Prober {
            shared: Arc::default(),
            machine: Arc::new(Machine::synthetic(TWO).unwrap()),
            budget: Budget::new(0, 2),
            footprints: vec![10, 20, 40],
            alone: BTreeMap::new(),
            costs: BTreeMap::new(),
            known: Some((program("a", "0", Some(1)).record.process, 1, known)),
            width: None,
            evidence: Box::new(Kept(Arc::default())),
        }
    }

    #[test]
    fn the_least_known_program_comes_next_until_enough_is_known() {
        let company = Company { record: program("a", "0", Some(1)).record, threads: 1 };
        let beside = Opening { cpus: CpuSet::first(2), company: Some(company) };
        let due = |known: [usize; 3]| prober([10, 20, 40].into_iter().zip(known).collect()).due(&beside);
        assert_eq!(due([0, 0, 0]), Some(10));
        assert_eq!(due([2, 1, 1]), Some(20));
        assert_eq!(due([ENOUGH, ENOUGH, 3]), Some(40));
        assert_eq!(due([ENOUGH; 3]), None);
        // The idle machine is measured once for a while.
        let idle = Opening { cpus: CpuSet::first(2), company: None };
        let mut prober = prober(BTreeMap::new());
        assert_eq!(prober.due(&idle), Some(10));
        let now = now_ns();
        let taken = |count: usize| (0..count).map(|at| (now, at as f64)).collect::<Vec<_>>();
        prober.alone = [(10, taken(ENOUGH_ALONE)), (20, taken(1)), (40, taken(2))].into();
        assert_eq!(prober.due(&idle), Some(20));
        assert_eq!((prober.alone_bytes_per_s(10), prober.alone_bytes_per_s(80)), (Some(2.0), None));
        prober.alone = [10, 20, 40].map(|footprint| (footprint, taken(ENOUGH_ALONE))).into();
        assert_eq!(prober.due(&idle), None);
        prober.alone.get_mut(&40).unwrap()[0].0 = now.saturating_sub(2 * ALONE_LASTS_NS);
        assert_eq!(prober.due(&idle), Some(40));
    }

    #[test]
    fn a_service_that_gets_no_scenes_does_nothing_and_ends() {
        let machine = Arc::new(Machine::synthetic(TWO).unwrap());
        let kept = Arc::new(Mutex::new(Vec::new()));
        let mut online = Online::start(machine, vec![1 << 20], Box::new(Kept(Arc::clone(&kept)))).unwrap();
        online.withdraw();
        assert!(online.status().contains("0 short bursts"));
        drop(online);
        assert!(kept.lock().unwrap().is_empty());
    }
}
