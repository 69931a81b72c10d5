//! Starts the programs of a mix when they arrive, sees to them until they end, and counts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linux::Root;
use linux::cgroup2::scope;
use linux::clock::{now_ns, process_cpu_ns};
use linux::unmanaged::Sample;
use node::home::Home;
use node::join::Membership;
use node::launch::{Ended, Held};
use node::scheduler::Options;
use node::{environment, identity, preload};
use protocol::{AppRecord, Client, ClientError, FromScheduler, Role, Status, Terms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use workload::{Instance, Mix, Program, WaitPolicy};

use super::entry::{Entry, State, close, launch, own_cpus, register};
use super::foreign;
use super::output::{self, Output, Scratch};
use super::plans::Plans;
use super::progress::Progress;
use super::result::{Ending, MixResult, ProgramResult};
use crate::choices::join_failure;
use crate::exit::Failure;
use crate::scheduler::{mix_directories, mix_directory};

/// How often output is shown and ends are looked for where nothing announces them.
const TICK_NS: u64 = 250_000_000;
/// A program that no scheduler takes in is started without one after this long.
const UNMANAGED_AFTER_NS: u64 = 3_000_000_000;
/// What interrupted programs are given to end by themselves.
const GRACE_NS: u64 = 5_000_000_000;

pub struct How {
    pub title: String,
    pub options: Options,
    /// The command line says how to schedule, which a daemon would not hear.
    pub insists: bool,
    pub output: Option<PathBuf>,
    /// Where the record of events and plans is kept.
    pub trace: Option<PathBuf>,
    /// What others took of the CPUs while the programs ran alone; empty where they did not.
    pub alone_foreign_shares: Vec<Option<f64>>,
    pub keep_going: bool,
    pub quiet: bool,
}

pub struct Driven {
    pub result: MixResult,
    pub interrupted: bool,
    /// Why a plan of the policy's was not carried out.
    pub refused: Option<String>,
}

/// Interrupts so far: the first ends programs in order, the second at once.
pub fn interrupts() -> Result<Arc<AtomicUsize>, Failure> {
    let count = Arc::new(AtomicUsize::new(0));
    let all = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];
    // Under nohup a mix outlives its terminal.
    for signal in all.into_iter().filter(|signal| !node::launch::was_ignored(*signal)) {
        let count = Arc::clone(&count);
        let add = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        // SAFETY: adding to an atomic number is all that the handler does.
        unsafe { signal_hook::low_level::register(signal, add) }.map_err(Failure::ours)?;
    }
    Ok(count)
}

pub fn drive(mix: &Mix, mut how: How) -> Result<Driven, Failure> {
    let interrupts = interrupts()?;
    let base = Home::find().map_err(Failure::ours)?;
    let scratch = Scratch::create(scratch_path(&base))?;
    let daemon = daemon_at(&base)?;
    if let (Some(pid), true) = (daemon, how.insists) {
        return Err(Failure::bad_input(format!(
            "a daemon (process {pid}) schedules here and decides how; change that with `coplace policy set`, or stop it"
        )));
    }
    let home = match daemon {
        Some(_) => base,
        None => Home::at(&scratch.path().join("home")).map_err(Failure::ours)?,
    };
    if daemon.is_some() && how.trace.is_some() {
        return Err(Failure::bad_input(
            "a daemon schedules here; `coplace record FILE` records what it does",
        ));
    }
    let trace = how.trace.clone().unwrap_or_else(|| scratch.path().join("trace.jsonl"));
    how.options.trace = Some(trace.clone());
    if let Some(directory) = &how.output {
        std::fs::create_dir_all(directory).map_err(|error| Failure::unwritable(directory, error))?;
    }
    if home.may_schedule() {
        // All programs with us. Where that is not possible `doctor` says why.
        let _ = scope::enter(std::process::id(), &Root::live());
    }
    let membership = Membership::new(home, Some(how.options.clone())).map_err(join_failure)?;
    let before = status(&membership)?;
    let instances = mix.instances();
    let drive = Drive {
        mix,
        progress: Progress::new(instances.len(), how.quiet),
        entries: Vec::new(),
        plans: Plans::begin(membership.is_leader().then_some(trace), before.uptime_ns),
        began_ns: now_ns(),
        sample: foreign::sample(&before.allowed),
        membership,
        how,
        before,
    };
    drive.run(instances, &interrupts)
}

/// A directory of this mix alone; those of mixes that were killed are swept.
fn scratch_path(base: &Home) -> PathBuf {
    for (pid, path) in mix_directories(base) {
        if identity::of_pid(pid).is_none() {
            // Whoever else removes it at the same time has done our work.
            let _ = std::fs::remove_dir_all(path);
        }
    }
    mix_directory(base, std::process::id())
}

/// The process of the daemon that acts in this home, if one does.
fn daemon_at(home: &Home) -> Result<Option<u32>, Failure> {
    match Client::connect(&home.socket()) {
        Ok(client) => Ok((client.role == Role::Daemon).then_some(client.scheduler_pid)),
        Err(ClientError::NotThere { .. }) => Ok(None),
        Err(error) => Err(Failure::ours(error)),
    }
}

fn status(membership: &Membership) -> Result<Status, Failure> {
    super::plans::ask_status(membership.home()).map_err(Failure::ours)
}

struct Drive<'a> {
    mix: &'a Mix,
    how: How,
    membership: Membership,
    entries: Vec<Entry>,
    plans: Plans,
    progress: Progress,
    began_ns: u64,
    /// How its CPUs stood at the beginning.
    sample: Option<Sample>,
    before: Status,
}

impl Drive<'_> {
    fn run(mut self, instances: Vec<Instance>, interrupts: &AtomicUsize) -> Result<Driven, Failure> {
        let mut coming = instances.into_iter().peekable();
        let (mut interrupted, mut stop) = (false, false);
        loop {
            let now = now_ns();
            while !stop && coming.peek().is_some_and(|next| self.began_ns + next.arrive_ns <= now) {
                let instance = coming.next().expect("just seen");
                self.arrive(instance);
            }
            let messages = self.membership.pump();
            for message in messages {
                match message {
                    FromScheduler::Start { id, threads, passive } => {
                        let waiting = passive.map_or(WaitPolicy::AsIs, |_| WaitPolicy::Passive);
                        let its = self.entries.iter_mut().filter(|entry| entry.result.name == id);
                        its.for_each(|entry| entry.apply_start(threads, waiting));
                        self.let_go(|entry| entry.result.name == id);
                    }
                    FromScheduler::Waits { id, why } => {
                        self.progress.print(id.as_str(), &format!("waits: {why}"))
                    }
                    _ => {}
                }
            }
            self.plans.poll(&self.membership);
            self.register_late();
            self.reap();
            self.show_progress(coming.len());
            if interrupts.load(Ordering::Relaxed) > 0 {
                interrupted = true;
                self.end_all(interrupts);
                break;
            }
            // As make does: those that run are not made to lose their work, no further ones begin.
            let failed = |entry: &Entry| matches!(entry.state, State::Ended) && !entry.result.succeeded();
            stop = !self.how.keep_going && self.entries.iter().any(failed);
            let all_ended = self.entries.iter().all(|entry| matches!(entry.state, State::Ended));
            if all_ended && (stop || coming.peek().is_none()) {
                break;
            }
            self.wait(coming.peek().map(|next| self.began_ns + next.arrive_ns).filter(|_| !stop));
        }
        let skipped: Vec<Instance> = coming.collect();
        skipped.into_iter().for_each(|instance| {
            let result = self.empty_result(&instance);
            self.entries.push(Entry {
                result,
                output: None,
                additions: BTreeMap::new(),
                state: State::Ended,
            });
        });
        self.progress.end();
        self.finish(interrupted)
    }

    fn program(&self, instance: &Instance) -> &Program {
        &self.mix.programs[instance.program]
    }

    fn empty_result(&self, instance: &Instance) -> ProgramResult {
        let program = self.program(instance);
        ProgramResult {
            name: instance.id.clone(),
            program: program.name.to_string(),
            command: program.command.clone(),
            arrived_ns: instance.arrive_ns,
            started_ns: None,
            ended_ns: None,
            alone_ns: program.alone_ns,
            alone_foreign_share: self.how.alone_foreign_shares.get(instance.program).copied().flatten(),
            turns: 0,
            in_turn_ns: 0,
            reconfigurations: 0,
            moves: 0,
            width_ns: BTreeMap::new(),
            cpu_time_ns: 0,
            regions: 0,
            estimated: None,
            ending: Ending::Skipped,
            verified: None,
        }
    }

    /// Makes the process, held before its first instruction, and brings it under the scheduler.
    fn arrive(&mut self, instance: Instance) {
        let mut result = self.empty_result(&instance);
        result.arrived_ns = now_ns() - self.began_ns;
        let mut entry = Entry { result, output: None, additions: BTreeMap::new(), state: State::Ended };
        match self.hold(&instance, &mut entry) {
            Ok(()) => {}
            Err(why) => {
                entry.result.ended_ns = Some(now_ns() - self.began_ns);
                entry.result.ending = Ending::NotStarted(why);
            }
        }
        self.entries.push(entry);
    }

    fn hold(&mut self, instance: &Instance, entry: &mut Entry) -> Result<(), String> {
        let program = &self.mix.programs[instance.program];
        let show = !self.how.quiet && self.how.output.is_none();
        let (files, output) = output::open(program, &instance.id, self.how.output.as_deref(), show)
            .map_err(|failure| failure.message)?;
        let launch = launch(program, files).map_err(|error| error.to_string())?;
        let held = Held::spawn(launch).map_err(|error| error.to_string())?;
        let home = self.membership.home();
        let pages = home.create_pages(held.process()).map_err(|error| error.to_string())?;
        entry.additions.insert("COPLACE_PAGES".into(), pages.clone().into());
        // Without the library programs count as rigid; `doctor` tells why there is none.
        if let Ok(library) = preload::find(home) {
            let file = held.file().unwrap_or_default();
            let additions = preload::environment(&file, &library, &pages, |name| held.variable(name));
            entry.additions.extend(additions);
        }
        let command: Vec<OsString> = program.command.iter().map(OsString::from).collect();
        let present = |name: &str| held.variable(name);
        let more = environment::additions(present, false, program.threads, program.waiting);
        entry.additions.extend(more);
        let record = AppRecord {
            id: instance.id.clone(),
            uid: rustix::process::getuid().as_raw(),
            process: held.process(),
            guardian: identity::own(),
            command: program.command.clone(),
            directory: program.directory.clone(),
            pages,
            original_cpus: own_cpus().map_err(|error| error.to_string())?,
            demand: program.demand.clone(),
            arrived_ns: now_ns(),
            started: false,
            terms: Terms {
                attached: false,
                threads: program.threads,
                memory_bytes: program.memory_bytes,
                rebind: false,
                waiting: environment::open_wait_policy(program.waiting, |name| held.variable(name)),
                may_start_narrow: program.may_start_narrow
                    && environment::may_start_narrow(|name| held.variable(name)),
                narrow: None,
                passive: None,
                launches: held.is_launcher(),
                key: held.key(&command),
            },
        };
        entry.output = Some(output);
        entry.state = State::Held(Box::new(held), Box::new(record), false);
        register(&mut self.membership, entry);
        Ok(())
    }

    /// Those that came while nobody scheduled are brought in when somebody does; programs run
    /// without a scheduler rather than not at all.
    fn register_late(&mut self) {
        let now = now_ns();
        for entry in &mut self.entries {
            register(&mut self.membership, entry);
        }
        let began_ns = self.began_ns;
        self.let_go(|entry| {
            matches!(entry.state, State::Held(_, _, false))
                && began_ns + entry.result.arrived_ns + UNMANAGED_AFTER_NS < now
        });
    }

    fn let_go(&mut self, which: impl Fn(&Entry) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| which(entry)) {
            let State::Held(held, _, _) = std::mem::replace(&mut entry.state, State::Ended) else { continue };
            match held.let_go(&entry.additions) {
                Ok(running) => {
                    entry.result.started_ns = Some(now_ns() - self.began_ns);
                    entry.state = State::Runs(running);
                    self.membership.report_started(&entry.result.name);
                }
                Err(error) => {
                    let account = self.membership.report_ended(&entry.result.name);
                    let ending = Ending::NotStarted(error.to_string());
                    close(entry, account, ending, now_ns() - self.began_ns);
                }
            }
        }
    }

    /// Collects those that have ended, also while they were held.
    fn reap(&mut self) {
        for entry in &mut self.entries {
            let ended = match &mut entry.state {
                State::Held(held, _, _) => held.running().try_wait(),
                State::Runs(running) => running.try_wait(),
                State::Ended => continue,
            };
            let Ok(Some(ended)) = ended else { continue };
            let at_ns = now_ns() - self.began_ns;
            let account = self.membership.report_ended(&entry.result.name);
            let ending = match ended {
                Ended::Status(status) => Ending::Status(status),
                Ended::Signal(signal) => Ending::Signal(signal),
            };
            entry.state = State::Ended;
            close(entry, account, ending, at_ns);
        }
    }

    /// Output of the programs, and the line that shows how far they are.
    fn show_progress(&mut self, coming: usize) {
        let (mut running, mut waiting, mut done) = (Vec::new(), Vec::new(), 0);
        self.show_output();
        for entry in &mut self.entries {
            let name = entry.result.name.to_string();
            match entry.state {
                State::Held(..) => waiting.push(name),
                State::Runs(_) => running.push(name),
                State::Ended => {
                    if let Some(mut output) = entry.output.take() {
                        output.pump(true, |line| self.progress.print(&name, line));
                        entry.result.verified = output.verified();
                    }
                    done += 1;
                }
            }
        }
        if coming > 0 {
            waiting.push(format!("({coming} to come)"));
        }
        self.progress.update(done, &running, &waiting);
    }

    /// Until something can be done. What programs print meanwhile is read: they are not to wait for that.
    fn wait(&mut self, arrival_ns: Option<u64>) {
        let until = [Some(now_ns() + TICK_NS), arrival_ns, self.membership.wake_at_ns()];
        let until_ns = until.into_iter().flatten().min().unwrap_or(0);
        while !self.wait_once(until_ns.saturating_sub(now_ns())) {
            self.show_output();
        }
    }

    /// Whether something else came than output.
    fn wait_once(&self, at_most_ns: u64) -> bool {
        let ends = self.entries.iter().filter_map(|entry| match &entry.state {
            State::Runs(running) => running.end_fd(),
            _ => None,
        });
        let others: Vec<BorrowedFd> = ends.chain(self.membership.poll_fd()).collect();
        let pipes = self.entries.iter().filter_map(|entry| entry.output.as_ref()).flat_map(Output::pipes);
        let mut fds: Vec<PollFd> = others
            .iter()
            .copied()
            .chain(pipes)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec {
            tv_sec: (at_most_ns / 1_000_000_000) as i64,
            tv_nsec: (at_most_ns % 1_000_000_000) as _,
        };
        // An interrupted or failed poll only means looking a little earlier.
        let printed = matches!(poll(&mut fds, Some(&timeout)), Ok(1..));
        !printed || at_most_ns == 0 || fds[..others.len()].iter().any(|fd| !fd.revents().is_empty())
    }

    fn show_output(&mut self) {
        for entry in &mut self.entries {
            if let Some(output) = &mut entry.output {
                output.pump(false, |line| self.progress.print(entry.result.name.as_str(), line));
            }
        }
    }

    /// Ends every program: made to run so that it can, asked, and made to after a while. Held ones
    /// have done nothing yet and go with their holder.
    fn end_all(&mut self, interrupts: &AtomicUsize) {
        for entry in &mut self.entries {
            if let State::Held(..) = entry.state {
                entry.state = State::Ended;
                self.membership.report_ended(&entry.result.name);
            }
        }
        let asked = interrupts.load(Ordering::Relaxed);
        let until = now_ns() + GRACE_NS;
        self.signal_all(libc::SIGTERM);
        while self.entries.iter().any(|entry| matches!(entry.state, State::Runs(_))) {
            if now_ns() > until || interrupts.load(Ordering::Relaxed) > asked {
                self.signal_all(libc::SIGKILL);
            }
            self.membership.pump();
            self.wait(None);
            self.reap();
            self.show_progress(0);
        }
        self.show_progress(0);
    }

    /// To the whole process tree of every program.
    fn signal_all(&mut self, number: i32) {
        let root = linux::Root::live();
        for entry in &self.entries {
            let State::Runs(running) = &entry.state else { continue };
            self.membership.report_terminating(&entry.result.name);
            let own = identity::to_linux(running.process());
            for process in linux::procfs::tree(own.pid, &root).unwrap_or_default() {
                if process != own
                    && let Some(pid) = rustix::process::Pid::from_raw(process.pid as i32)
                    && let Some(signal) = rustix::process::Signal::from_named_raw(number)
                {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
            running.signal(number);
        }
    }

    fn finish(self, interrupted: bool) -> Result<Driven, Failure> {
        let end_ns = now_ns() - self.began_ns;
        let leads = self.membership.is_leader();
        let own_cpu_ns = match (leads, status(&self.membership)) {
            (true, _) => process_cpu_ns(),
            (false, Ok(after)) => {
                process_cpu_ns() + after.cpu_time_ns.saturating_sub(self.before.cpu_time_ns)
            }
            (false, Err(_)) => process_cpu_ns(),
        };
        let before = self.before;
        let foreign_share =
            self.sample.as_ref().and_then(|sample| foreign::sample_share(sample, &before.allowed));
        // The scheduler's record is whole only when it has ended.
        drop(self.membership);
        let refused = self.plans.first_refusal();
        let plans = self.plans.end(self.began_ns, end_ns);
        let mut programs: Vec<ProgramResult> = self.entries.into_iter().map(|entry| entry.result).collect();
        programs.sort_by_key(|program| program.arrived_ns);
        let result = MixResult {
            title: self.how.title,
            policy: before.policy,
            placement: before.placement,
            turns: before.turns,
            cpus: before.allowed,
            end_ns,
            own_cpu_ns,
            foreign_share,
            programs,
            plans,
        };
        Ok(Driven { result, interrupted, refused })
    }
}
