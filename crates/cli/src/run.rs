//! `coplace run PROGRAM…`: one program under coplace.
//!
//! Terminal, job control, signals, output and exit status are as without coplace: the program is
//! this process's child in this process's group. Signals of the terminal reach it by themselves, and so
//! does what is sent to the group or to each process; what is sent to us alone is passed on, after
//! whatever holds the program still was undone.

mod copies;
mod signals;
mod summary;
mod witness;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use linux::cgroup2::scope;
use linux::clock::now_ns;
use linux::{Root, procfs};
use node::home::Home;
use node::join::{JoinError, Membership};
use node::launch::{Ended, Held, Launch, Running};
use node::preload;
use node::scheduler::{Options, StartError};
use node::{environment, identity};
use protocol::{AppRecord, FromScheduler, ProcessId, Role, Terms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use workload::{AppId, WaitPolicy};

use crate::choices::{Choices, join_failure};
use crate::demand::DemandArgs;
use crate::exit::Failure;
use copies::Copies;
pub use signals::ignore_file_limits;
use signals::{Arrival, STOPS, Signals, die_by};
use witness::Witness;

/// How often is looked whether the program has stopped itself, if nothing else happens.
const POLL_NS: u64 = 250_000_000;
/// The same where the kernel cannot tell of its end.
const POLL_WITHOUT_PIDFD_NS: u64 = 20_000_000;
/// A program that outlives a terminating signal for this long has handled it, and is scheduled again.
const SURVIVED_NS: u64 = 1_000_000_000;
/// How long a program is given to stop after Ctrl-Z, before it counts as unwilling.
const STOPPING_NS: u64 = 500_000_000;

/// Runs one program together with whatever else runs under coplace
#[derive(clap::Args)]
#[command(
    long_about = "Runs one program together with whatever else runs under coplace.

The scheduler decides on which CPUs the program runs, with how many threads, and with which others it \
takes turns. The first `coplace run` leads: it schedules for all programs that come while its own runs, \
unless a `coplace daemon` runs.

Terminal, job control, signals, output and exit status are the program's own. At the end, one line on \
stderr gives its response time, the widths of its places in CPUs, its neighbours and, if it is known, its \
slowdown.

The scheduling options override the configuration, and count only while this run leads.",
    after_long_help = "Exit status: the program's own; 1 a mechanism that was asked for is not available; \
2 wrong usage or bad input; 125 coplace failed; 126 the program cannot be executed; 127 it was not found. \
If a signal ends the program, coplace ends by the same signal.

Examples:
  coplace run ./cg
  coplace run --name big --max-threads 8 -- ./solver -n 1000"
)]
pub struct Args {
    /// The name to show [default: the program's file name]
    #[arg(long, value_name = "NAME")]
    name: Option<AppId>,
    /// Print no line at the end, and no notices
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    demand: DemandArgs,
    /// A library that computes the same with fewer threads than its regions ask for: a pattern for its path
    /// or the last part of its path, such as libmine.so, or 1 for the whole program; repeatable
    #[arg(long, value_name = "LIBRARY", value_parser = library_pattern)]
    tolerant: Vec<String>,
    /// Resize only this program, not those that it executes
    #[arg(long)]
    no_inherit: bool,
    /// Start narrow: tell every runtime in the program, by its own variables, to have N threads, for good
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// The program's results are good with any number of threads: a policy may start it with fewer if it then
    /// ends sooner
    #[arg(long, conflicts_with = "threads")]
    may_start_narrow: bool,
    /// The most memory that the program needs, such as 2G: it waits until that is available [default: what it
    /// needed last time]
    #[arg(long, value_name = "SIZE", value_parser = workload::parse_bytes)]
    mem: Option<u64>,
    /// Disregard the binding to CPUs that the program's launcher was told to do (mpirun --bind-to)
    #[arg(long)]
    rebind: bool,
    /// How the program's threads are told to wait for one another: passive (sleep), active (spin), as-is
    /// (not told anything) or auto (passive if nothing else helps against their spinning); the program's own
    /// variables take precedence
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = PossibleValuesParser::new(WaitPolicy::NAMES).try_map(|word| word.parse::<WaitPolicy>()))]
    waiting: WaitPolicy,
    /// Write what the program got into FILE, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    choices: Choices,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

fn library_pattern(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("expected a library, such as libmine.so, or 1 for the whole program".into()),
        false => Ok(text.to_owned()),
    }
}

pub fn main(args: Args) -> ExitCode {
    let failure = match run(&args) {
        Ok(Ended::Status(status)) => return ExitCode::from(status as u8),
        Ok(Ended::Signal(signal)) => {
            die_by(signal);
            return ExitCode::from(128_u8.wrapping_add(signal as u8));
        }
        Err(failure) => failure,
    };
    write_stderr(&format!("coplace: {}", failure.message));
    ExitCode::from(failure.status)
}

fn run(args: &Args) -> Result<Ended, Failure> {
    args.demand.check()?;
    let options = args.choices.options()?;
    let signals = Signals::catch().map_err(Failure::ours)?;
    // Before there are threads, and before the program: who goes through processes in order comes to it first.
    let witness = Witness::start();
    let launch = Launch { command: args.command.clone(), ..Launch::default() };
    // Held before anything else, so that a program that cannot be run starts no scheduler.
    let mut held = Held::spawn(launch).map_err(|error| Failure::new(error.exit_status(), error))?;
    // A result that cannot be written is reported before the program has run for an hour.
    if let Some(path) = &args.json {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| Failure::unwritable(path, error))?;
    }
    let name = args.name.clone().unwrap_or_else(|| identity::name_of(&args.command[0]));
    let mut guardian = Guardian {
        signals,
        witness,
        copies: Copies::default(),
        member: None,
        pages: PathBuf::new(),
        released: false,
        name,
        began_ns: now_ns(),
        may_start: true,
        unmanaged: None,
        quiet: args.quiet,
        resume_at_ns: None,
        decided: None,
    };
    if let Some(variable) = environment::waiting_variable(|name| held.variable(name))
        && matches!(args.waiting, WaitPolicy::Passive | WaitPolicy::Active)
    {
        args.notice(&format!(
            "--waiting {} has no effect: {variable} is set in the program's environment",
            args.waiting
        ));
    }
    // What was asked for is told to it, whoever schedules.
    let mut additions = match (args.threads, args.waiting) {
        (None, WaitPolicy::Auto | WaitPolicy::AsIs) => BTreeMap::new(),
        _ => environment::additions(|name| held.variable(name), args.rebind, args.threads, args.waiting),
    };
    match guardian.join(args, options, &held, &mut additions) {
        Ok(()) => {}
        // A policy or mechanism that was asked for is not silently left out.
        Err(JoinError::Start(error @ (StartError::Policy(_) | StartError::Mechanism(_)))) => {
            return Err(join_failure(error.into()));
        }
        Err(error) => {
            guardian.member = None;
            guardian.unmanaged = Some(error.to_string());
            args.notice(&format!("{error}; {} runs as without coplace", guardian.name));
        }
    }
    let ended = loop {
        if guardian.may_start {
            if let Some((threads, waiting)) = guardian.decided {
                let present = |name: &str| held.variable(name);
                additions.extend(environment::additions(present, args.rebind, threads, waiting));
            }
            break guardian.execute(held, &additions)?;
        }
        if let Some(ended) = guardian.watch(held.running()).map_err(Failure::ours)? {
            break ended;
        }
    };
    guardian.finish(args, ended);
    Ok(ended)
}

impl Args {
    fn notice(&self, text: &str) {
        if !self.quiet {
            write_stderr(&format!("coplace: {text}"));
        }
    }

    /// What the preload library is told beside its pages (`preload/README.md`); what the user's own
    /// variables name stays.
    fn library_variables(&self, variable: impl Fn(&str) -> Option<OsString>) -> Vec<(OsString, OsString)> {
        let mut variables = Vec::new();
        if self.no_inherit {
            variables.push(("COPLACE_INHERIT".into(), "0".into()));
        }
        if !self.tolerant.is_empty() {
            let already = variable("COPLACE_TOLERANT").filter(|value| !value.is_empty());
            let named = self.tolerant.iter().map(OsString::from);
            let all: Vec<OsString> = already.into_iter().chain(named).collect();
            variables.push(("COPLACE_TOLERANT".into(), all.join(OsStr::new(":"))));
        }
        variables
    }
}

/// Looks after the program from its first moment to its last.
struct Guardian {
    signals: Signals,
    /// Tells what the program has got by itself; `None`: nobody does, and everything is passed on.
    witness: Option<Witness>,
    copies: Copies,
    /// `None`: it runs as without coplace.
    member: Option<Membership>,
    /// Where its processes have their pages. Once it was released no scheduler removes them any more.
    pages: PathBuf,
    released: bool,
    name: AppId,
    began_ns: u64,
    may_start: bool,
    /// Why it was started without a scheduler, if it was.
    unmanaged: Option<String>,
    quiet: bool,
    /// What its scheduler decided when it let it go: a narrow start, and how it waits.
    decided: Option<(Option<u32>, WaitPolicy)>,
    /// When a program that got a terminating signal is taken to have survived it.
    resume_at_ns: Option<u64>,
}

impl Guardian {
    /// Brings the program under a scheduler.
    fn join(
        &mut self,
        args: &Args,
        options: Options,
        held: &Held,
        additions: &mut BTreeMap<OsString, OsString>,
    ) -> Result<(), JoinError> {
        let home = Home::find()?;
        let library = preload::find(&home);
        let process = held.process();
        if home.may_schedule() {
            // Before we may lead: by then it shows what can be done there. Where it cannot be brought there, `doctor`
            // says why.
            let _ = scope::enter(process.pid, &Root::live());
        }
        let mut member = Membership::new(home, Some(options))?;
        let pages = member.home().create_pages(process)?;
        let terms = Terms {
            attached: false,
            threads: args.threads,
            memory_bytes: args.mem,
            rebind: args.rebind,
            waiting: environment::open_wait_policy(args.waiting, |name| held.variable(name)),
            may_start_narrow: args.may_start_narrow
                && environment::may_start_narrow(|name| held.variable(name)),
            narrow: None,
            passive: None,
            launches: held.is_launcher(),
            key: held.key(&args.command),
        };
        self.pages = pages.clone();
        let record = record(args, self.name.clone(), process, pages.clone(), terms);
        let registered = member.register_until_accepted(&record);
        let (name, environment) = registered.inspect_err(|_| drop(std::fs::remove_dir_all(&pages)))?;
        self.name = name;
        let bindings =
            environment::additions(|name| held.variable(name), args.rebind, None, WaitPolicy::AsIs);
        additions.extend(bindings);
        // What the user says goes before what the policy recommends.
        let open = environment.into_iter().filter(|(name, _)| held.variable(name).is_none());
        additions.extend(open.map(|(name, value)| (name.into(), value.into())));
        additions.insert("COPLACE_PAGES".into(), pages.clone().into());
        match library {
            Ok(library) => {
                let file = held.file().unwrap_or_default();
                additions.extend(preload::environment(&file, &library, &pages, |name| held.variable(name)));
                additions.extend(args.library_variables(|name| held.variable(name).map(OsStr::to_owned)));
            }
            Err(preload::Absent::SwitchedOff) => {}
            Err(absent) => args.notice(&absent.to_string()),
        }
        if !args.choices.is_empty()
            && !member.is_leader()
            && let Some((role, pid)) = member.scheduler()
        {
            let rival = if role == Role::Leader { "another coplace run" } else { "a coplace daemon" };
            args.notice(&format!(
                "{rival} (process {pid}) schedules; the scheduling options count only once this run leads"
            ));
        }
        self.may_start = false;
        self.member = Some(member);
        Ok(())
    }

    /// Lets the program go and looks after it until it ends.
    fn execute(&mut self, held: Held, additions: &BTreeMap<OsString, OsString>) -> Result<Ended, Failure> {
        let mut running = match held.let_go(additions) {
            Ok(running) => running,
            Err(error) => {
                if let Some(mut member) = self.member.take() {
                    member.report_ended(&self.name);
                }
                return Err(Failure::new(error.exit_status(), error));
            }
        };
        if let Some(member) = &mut self.member {
            member.report_started(&self.name);
        }
        loop {
            if let Some(ended) = self.watch(&mut running).map_err(Failure::ours)? {
                return Ok(ended);
            }
        }
    }

    /// Waits for one thing to happen and deals with it; `Some` when the program has ended.
    fn watch(&mut self, child: &mut Running) -> io::Result<Option<Ended>> {
        let waited = !self.may_start;
        self.handle_messages();
        if waited && self.may_start {
            return Ok(None);
        }
        if let Some(ended) = child.try_wait()? {
            return Ok(Some(ended));
        }
        self.wait(child);
        let arrivals = self.signals.arrivals();
        self.handle_arrivals(arrivals, child)?;
        if let Some(signal) = child.stop_signal().filter(|signal| STOPS.contains(signal)) {
            // It stopped itself, as editors do at Ctrl-Z.
            self.stop_together(signal, child)?;
        }
        if self.resume_at_ns.is_some_and(|at| now_ns() >= at) {
            self.resume_at_ns = None;
            if let Some(member) = &mut self.member {
                member.resume(&self.name);
            }
        }
        child.try_wait()
    }

    fn handle_messages(&mut self) {
        let Some(member) = &mut self.member else { return };
        for message in member.pump() {
            match message {
                FromScheduler::Start { id, threads, passive } if id == self.name => {
                    self.may_start = true;
                    let waiting = passive.map_or(WaitPolicy::AsIs, |_| WaitPolicy::Passive);
                    self.decided = Some((threads, waiting));
                }
                FromScheduler::Waits { id, why } if id == self.name && !self.quiet => {
                    write_stderr(&format!("coplace: {id} waits: {why}"));
                }
                FromScheduler::Released { id, .. } if id == self.name => {
                    self.may_start = true;
                    self.released = true;
                    if !self.quiet {
                        write_stderr(&format!("coplace: {id} was released; it goes on as without coplace"));
                    }
                }
                _ => {}
            }
        }
        // Where nobody schedules, nobody is waited for.
        if !self.may_start && member.is_abandoned() {
            self.may_start = true;
            self.unmanaged = Some("no scheduler runs any more".into());
        }
    }

    fn wait(&self, child: &Running) {
        let end = child.end_fd();
        let now = now_ns();
        let poll_ns = if end.is_some() { POLL_NS } else { POLL_WITHOUT_PIDFD_NS };
        let member_wakes_ns = self.member.as_ref().and_then(Membership::wake_at_ns);
        let times = [Some(now + poll_ns), self.resume_at_ns, member_wakes_ns, self.copies.next_ns()];
        let until = times.into_iter().flatten().min().unwrap_or(now);
        let left = until.saturating_sub(now);
        let timeout =
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as _ };
        let member = self.member.as_ref().and_then(Membership::poll_fd);
        let fds = [Some(self.signals.as_fd()), end, member];
        let mut fds: Vec<PollFd> =
            fds.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted poll only means looking a little earlier.
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn handle_arrivals(&mut self, arrivals: Vec<Arrival>, child: &mut Running) -> io::Result<()> {
        let now = now_ns();
        if arrivals.is_empty() && self.copies.next_ns().is_none_or(|at| now < at) {
            return Ok(());
        }
        if let Some(witness) = &mut self.witness {
            match witness.signals() {
                Some(signals) => {
                    signals.into_iter().for_each(|signal| self.copies.note_witnessed(signal, now))
                }
                None => self.witness = None,
            }
        }
        for arrival in arrivals {
            self.handle_arrival(arrival, now, child)?;
        }
        for signal in self.copies.due(now) {
            self.forward(signal, child)?;
        }
        Ok(())
    }

    fn handle_arrival(&mut self, arrival: Arrival, now_ns: u64, child: &mut Running) -> io::Result<()> {
        let signal = arrival.signal;
        if !STOPS.contains(&signal) && is_ignored(signal, child) {
            // It changes nothing about the program, with or without us.
            self.copies.was_delivered(signal, now_ns);
            return Ok(());
        }
        let terminates = matches!(signal, libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM);
        if let Some(member) = self.member.as_mut().filter(|_| terminates) {
            member.report_terminating(&self.name);
            self.resume_at_ns = Some(now_ns + SURVIVED_NS);
        }
        if arrival.from_terminal {
            // The program has it, as the witness has.
            self.copies.was_delivered(signal, now_ns);
            return if STOPS.contains(&signal) { self.stop_together(signal, child) } else { Ok(()) };
        }
        if self.witness.is_some() && acts_on_each_copy(signal, child) {
            self.copies.note_arrived(signal, now_ns);
            return Ok(());
        }
        self.copies.was_delivered(signal, now_ns);
        self.forward(signal, child)
    }

    /// What was sent to us alone, or does no more than the program's own copy of it.
    fn forward(&mut self, signal: i32, child: &mut Running) -> io::Result<()> {
        child.signal(signal);
        if STOPS.contains(&signal) { self.stop_together(signal, child) } else { Ok(()) }
    }

    /// The program was stopped by its user: it leaves the rotation, and we stop with it, so that
    /// the shell sees a stopped job. Returns when both go on.
    fn stop_together(&mut self, signal: i32, child: &mut Running) -> io::Result<()> {
        if let Some(member) = &mut self.member {
            member.suspend(&self.name);
        }
        let mut arrivals = Vec::new();
        if has_stopped(signal, child)? {
            if let Some(member) = &mut self.member {
                // A stopped leader would leave the others without a scheduler.
                member.step_down();
            }
            arrivals = self.signals.stop_by(signal);
            // A shell continues the whole group; somebody else perhaps only us.
            if child.stop_signal().is_some() {
                child.signal(libc::SIGCONT);
            }
            self.handle_messages();
        }
        if let Some(member) = &mut self.member {
            member.resume(&self.name);
        }
        self.handle_arrivals(arrivals, child)
    }

    fn finish(mut self, args: &Args, ended: Ended) {
        let took_ns = now_ns() - self.began_ns;
        self.signals.leave_job_control();
        let managed = self.member.is_some();
        let led = self.member.as_ref().is_some_and(Membership::is_leader);
        let unscheduled_ns = self.member.as_ref().map(|member| member.unscheduled_ns(&self.name));
        let account = self.member.as_mut().and_then(|member| member.report_ended(&self.name));
        // Others take the lead over before anybody reads what we write.
        drop(self.member);
        if self.released {
            // They may be gone already.
            let _ = std::fs::remove_dir_all(&self.pages);
        }
        let result = summary::Result::new(&self.name, &args.command, ended, took_ns).scheduled(
            self.unmanaged,
            unscheduled_ns,
            led,
            account.as_ref(),
        );
        if let Some(path) = &args.json
            && let Err(failure) = summary::write_json(path, &result)
        {
            write_stderr(&format!("coplace: {}", failure.message));
        }
        if managed && !args.quiet {
            write_stderr(&summary::line(&self.name, took_ns, account.as_ref()));
        }
    }
}

/// Whether the program acts on each copy of the signal: one that it does not handle ends or stops it, or does
/// nothing, and a second one changes nothing about that.
fn acts_on_each_copy(signal: i32, child: &Running) -> bool {
    let handled = |status: procfs::Status| (status.sig_caught | status.sig_blocked) >> (signal - 1) & 1 == 1;
    procfs::status(child.process().pid, &Root::live()).is_ok_and(handled)
}

/// Whether the program ignores the signal, as under nohup.
fn is_ignored(signal: i32, child: &Running) -> bool {
    let ignored = |status: procfs::Status| status.sig_ignored >> (signal - 1) & 1 == 1;
    procfs::status(child.process().pid, &Root::live()).is_ok_and(ignored)
}

/// Waits until the program stands stopped by the signal; `false` if it does not obey, or has ended.
fn has_stopped(signal: i32, child: &mut Running) -> io::Result<bool> {
    let began_ns = now_ns();
    let mut repeated = false;
    while now_ns() - began_ns < STOPPING_NS {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        match child.stop_signal() {
            // It stood still by turns when the signal came, and has not noticed it: SIGCONT would
            // take the signal back.
            Some(libc::SIGSTOP) if !repeated => {
                repeated = true;
                repeat(signal, child.process());
            }
            Some(_) => return Ok(true),
            None => {}
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(child.stop_signal().is_some())
}

/// Sends a signal of job control again to those of the program whom the terminal sent it to.
fn repeat(signal: i32, process: ProcessId) {
    let root = Root::live();
    let group = rustix::process::getpgrp().as_raw_nonzero().get();
    let tree = procfs::tree(process.pid, &root).unwrap_or_default();
    let in_group = |process: &linux::Process| process.stat(&root).is_ok_and(|stat| stat.pgrp == group);
    let members: Vec<linux::Process> = tree.into_iter().filter(in_group).collect();
    let stopping = |process: &&linux::Process| linux::signals::is_stopping(**process, &root);
    let stopped: Vec<linux::Process> = members.iter().filter(stopping).copied().collect();
    linux::signals::cont(&stopped, &root);
    let signal = match signal {
        libc::SIGTTIN => rustix::process::Signal::TTIN,
        libc::SIGTTOU => rustix::process::Signal::TTOU,
        _ => rustix::process::Signal::TSTP,
    };
    linux::signals::send(&members, signal, &root);
}

fn record(args: &Args, id: AppId, process: ProcessId, pages: PathBuf, terms: Terms) -> AppRecord {
    AppRecord {
        id,
        uid: rustix::process::geteuid().as_raw(),
        process,
        guardian: identity::own(),
        command: args.command.iter().map(|text| text.to_string_lossy().into_owned()).collect(),
        directory: std::env::current_dir().unwrap_or_default(),
        pages,
        original_cpus: linux::affinity::get(process.pid).unwrap_or_default(),
        demand: args.demand.demand(args.threads),
        arrived_ns: now_ns(),
        started: false,
        terms,
    }
}

/// One line on stderr, once: where the terminal refuses it (a background job under `stty tostop`)
/// trying again would never end.
fn write_stderr(text: &str) {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_gets_the_options_beside_the_users_settings() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let variables = |options: &[&str], set: Option<&str>| {
            let arguments = ["coplace"].iter().chain(options).chain(&["--", "prog", "--tolerant", "x"]);
            let args = <Cli as clap::Parser>::try_parse_from(arguments).unwrap().args;
            let variables =
                args.library_variables(|name| set.filter(|_| name == "COPLACE_TOLERANT").map(Into::into));
            let variables = variables
                .into_iter()
                .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
            variables.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(variables(&[], Some("liba.so")), "");
        assert_eq!(variables(&["--no-inherit"], None), "COPLACE_INHERIT=0");
        let two = ["--tolerant", "liba.so", "--tolerant=libb*"];
        assert_eq!(variables(&two, None), "COPLACE_TOLERANT=liba.so:libb*");
        assert_eq!(variables(&two[..2], Some("libc.so")), "COPLACE_TOLERANT=libc.so:liba.so");
        assert_eq!(variables(&two[..2], Some("")), "COPLACE_TOLERANT=liba.so");
        assert!(library_pattern("").is_err());
    }
}
