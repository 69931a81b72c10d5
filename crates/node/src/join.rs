//! How programs come under a scheduler and stay under one.
//!
//! A [`Membership`] connects to whoever schedules in its home; if nobody does it leads: it hosts
//! the scheduler in a thread, and is its client like anybody else. When the connection is lost it
//! tries at once to reconnect or to lead, and brings its programs along; if neither works within
//! [`ORPHANED_NS`] it sets them free, and keeps trying.

mod host;
mod trying;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use linux::Root;
use linux::clock::now_ns;
use protocol::{Account, AppRecord, Client, ClientError, FromScheduler, Role, ToScheduler};
use workload::AppId;

use crate::home::{Home, HomeError, LockError, SchedulerLock};
use crate::lease::Lease;
use crate::registry::Registry;
use crate::restore;
use crate::scheduler::{Options, StartError};
use host::Host;
use trying::Trying;

/// After this long without a scheduler, programs are set free.
pub const ORPHANED_NS: u64 = 400_000_000;
/// Between attempts, at first and when it lasts.
const SHORTEST_PAUSE_NS: u64 = 5_000_000;
const PAUSE_NS: u64 = 20_000_000;
const LONGEST_PAUSE_NS: u64 = 250_000_000;
/// How often a leader looks whether root's daemon has started.
const SUPERIOR_NS: u64 = 1_000_000_000;
/// How long a leader may take to let go of everything for a daemon.
const YIELD_NS: u64 = 5_000_000_000;
/// How long a scheduler may take to say what an ended program got.
const LAST_ANSWER: Duration = Duration::from_millis(2500);

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// What was asked for cannot be had here: the caller's own mistake.
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("nobody schedules, and this process cannot: {0}")]
    Nobody(String),
}

/// A place under a scheduler for the programs of one process.
pub struct Membership {
    home: Home,
    /// How to lead; `None`: never.
    options: Option<Options>,
    link: Link,
    host: Option<Host>,
    programs: Vec<Program>,
    inbox: Vec<FromScheduler>,
    /// Time without a scheduler, up to the latest that was found.
    lost_ns: u64,
    superior_looked_ns: u64,
    root: Root,
}

enum Link {
    To(Client),
    Lost(Lost),
}

struct Lost {
    since_ns: u64,
    next_ns: u64,
    pause_ns: u64,
    freed: bool,
    why: String,
}

struct Program {
    /// The name that the caller knows it by.
    id: AppId,
    /// `record.id` is the name that the present scheduler knows it by.
    record: AppRecord,
    suspended: bool,
    /// What it got under schedulers that have ended since.
    past: Option<Account>,
    /// How much time without a scheduler there had been when it was let go.
    lost_before_ns: u64,
}

impl Lost {
    fn now(why: String) -> Lost {
        let now = now_ns();
        Lost { since_ns: now, next_ns: now, pause_ns: SHORTEST_PAUSE_NS, freed: false, why }
    }
}

impl Membership {
    /// Joins whoever schedules in `home`, or leads with these options.
    pub fn new(home: Home, options: Option<Options>) -> Result<Membership, JoinError> {
        let mut membership = Membership {
            home,
            options,
            link: Link::Lost(Lost::now(String::new())),
            host: None,
            programs: Vec::new(),
            inbox: Vec::new(),
            lost_ns: 0,
            superior_looked_ns: now_ns(),
            root: Root::live(),
        };
        membership.connect(Trying::now())?;
        Ok(membership)
    }

    /// Attempts until somebody who lives schedules, be it this process.
    fn connect(&mut self, trying: Trying) -> Result<(), JoinError> {
        while let Link::Lost(_) = self.link {
            let Err(error) = self.try_once() else { break };
            match (&error, self.home.fallback()) {
                // Root's daemon has gone since its home was chosen.
                (JoinError::Client(ClientError::NotThere { .. }), Some(home)) => self.go_to(home),
                (_, None) if !self.may_lead() => return Err(error),
                _ => trying.again(error, &self.home)?,
            }
        }
        Ok(())
    }

    fn may_lead(&self) -> bool {
        self.options.is_some() && self.home.may_schedule()
    }

    /// Whether this process hosts the scheduler.
    pub fn leads(&self) -> bool {
        self.host.is_some()
    }

    /// Who schedules: its role and process; `None` while there is nobody.
    pub fn scheduler(&self) -> Option<(Role, u32)> {
        match &self.link {
            Link::To(client) => Some((client.role, client.scheduler_pid)),
            Link::Lost(_) => None,
        }
    }

    /// Whether nobody has scheduled for so long that the programs are on their own.
    pub fn is_orphaned(&self) -> bool {
        matches!(&self.link, Link::Lost(lost) if now_ns() - lost.since_ns >= ORPHANED_NS)
    }

    /// The same for so long that a program that was not let go yet is not kept waiting any longer.
    pub fn is_abandoned(&self) -> bool {
        matches!(&self.link, Link::Lost(lost) if Trying::since(lost.since_ns).is_over(&self.home))
    }

    /// For how long this program, since it was let go, had nobody who schedules.
    pub fn unscheduled_ns(&self, id: &AppId) -> u64 {
        let program = self.programs.iter().find(|program| program.id == *id);
        program.map_or(0, |program| self.lost_so_far_ns().saturating_sub(program.lost_before_ns))
    }

    fn lost_so_far_ns(&self) -> u64 {
        match &self.link {
            Link::To(_) => self.lost_ns,
            Link::Lost(lost) => self.lost_ns + now_ns().saturating_sub(lost.since_ns),
        }
    }

    fn set_link(&mut self, link: Link) {
        self.lost_ns = self.lost_so_far_ns();
        self.link = link;
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Readable when `pump` has something to do; `None` while nobody schedules.
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::To(client) => Some(client.as_fd()),
            Link::Lost(_) => None,
        }
    }

    /// When `pump` is to be called even if nothing is readable, in CLOCK_MONOTONIC nanoseconds.
    pub fn wake_at_ns(&self) -> Option<u64> {
        if !self.inbox.is_empty() {
            // It came beside an answer; the socket will not be readable for it again.
            return Some(0);
        }
        match &self.link {
            Link::Lost(lost) => Some(lost.next_ns),
            Link::To(_) if self.host.is_some() => Some(self.superior_looked_ns + SUPERIOR_NS),
            Link::To(_) => None,
        }
    }

    /// Does what is to be done now, without waiting for anybody who lives, and hands out what the
    /// scheduler said, with the names that the caller knows.
    pub fn pump(&mut self) -> Vec<FromScheduler> {
        if let Link::To(client) = &mut self.link {
            match client.drain() {
                Ok(messages) => self.inbox.extend(messages),
                Err(error) => self.lose(error.to_string()),
            }
        }
        self.keep_accounts();
        self.look_for_superior();
        if let Link::Lost(lost) = &self.link
            && now_ns() >= lost.next_ns
        {
            self.recover();
        }
        let messages = std::mem::take(&mut self.inbox);
        let messages: Vec<_> = messages.into_iter().map(|message| self.in_callers_names(message)).collect();
        for message in &messages {
            if let FromScheduler::Start { id, threads, passive } = message
                && let Some(program) = self.programs.iter_mut().find(|program| program.id == *id)
            {
                program.record.started_with(*threads, passive.clone());
            }
            if let FromScheduler::GivenBack { id, .. } = message {
                // It runs on without any scheduler, and is not brought to the next one.
                self.programs.retain(|program| program.id != *id);
            }
        }
        messages
    }

    fn in_callers_names(&self, message: FromScheduler) -> FromScheduler {
        let known = |id: AppId| self.programs.iter().find(|p| p.record.id == id).map_or(id, |p| p.id.clone());
        match message {
            FromScheduler::Start { id, threads, passive } => {
                FromScheduler::Start { id: known(id), threads, passive }
            }
            FromScheduler::Waits { id, why } => FromScheduler::Waits { id: known(id), why },
            FromScheduler::GivenBack { id, processes, problems } => {
                FromScheduler::GivenBack { id: known(id), processes, problems }
            }
            other => other,
        }
    }

    fn lose(&mut self, why: String) {
        if let Link::To(client) = &mut self.link {
            // Its last words.
            while let Ok(messages) = client.drain()
                && !messages.is_empty()
            {
                self.inbox.extend(messages);
            }
            self.keep_accounts();
            self.set_link(Link::Lost(Lost::now(why)));
        }
    }

    /// A scheduler that ends in order hands out what it wrote up about our programs.
    fn keep_accounts(&mut self) {
        for message in std::mem::take(&mut self.inbox) {
            match message {
                FromScheduler::Account { account } => {
                    let its = self.programs.iter_mut().find(|p| account.id.as_ref() == Some(&p.record.id));
                    if let Some(program) = its {
                        program.past = Some(match program.past.take() {
                            Some(past) => past.followed_by(account),
                            None => account,
                        });
                    }
                }
                other => self.inbox.push(other),
            }
        }
    }

    /// One attempt to be under a scheduler again; sets the programs free when that lasts.
    fn recover(&mut self) {
        let result = self.try_once();
        let now = now_ns();
        let Link::Lost(lost) = &mut self.link else { return };
        if let Err(error) = result {
            lost.why = error.to_string();
        }
        let orphaned = now - lost.since_ns >= ORPHANED_NS;
        lost.pause_ns = if orphaned { LONGEST_PAUSE_NS } else { (lost.pause_ns * 2).min(PAUSE_NS) };
        lost.next_ns = now + lost.pause_ns;
        let to_be_freed = orphaned && !lost.freed;
        if to_be_freed
            && self.free_all()
            && let Link::Lost(lost) = &mut self.link
        {
            lost.freed = true;
        }
        if orphaned && let Some(home) = self.home.fallback() {
            self.go_to(home);
        }
    }

    /// Sets the programs free, unless somebody has them in his care: `false`.
    fn free_all(&self) -> bool {
        // A scheduler that comes back late takes back what is noted as free, and nothing else. So it must not
        // come back between our look at its lease and the note.
        let lock = match self.home.lock_programs() {
            Ok(None) => return false,
            // In root's home nothing can be locked or noted; root's guard sees to them.
            other => other.ok().flatten(),
        };
        // Who beats a lease has our programs in its care, even if it does not answer us.
        if Lease::is_fresh(&self.home) {
            return false;
        }
        for program in &self.programs {
            self.free(program);
            if lock.is_some() {
                Registry::new(&self.home).note_free(&program.record.id);
            }
        }
        true
    }

    fn free(&self, program: &Program) {
        let mut traces = Registry::new(&self.home).traces(&program.record.id);
        traces.user_stopped |= program.suspended;
        // What this user may not undo (root's groups) root's guard undoes.
        let _ = restore::set_free_by(&program.record, &traces, &self.home.group_name(), &self.root);
    }

    /// A leader gives way to root's daemon, and to one that leads in a better home of the same user; who is
    /// led follows when the leader has gone.
    fn look_for_superior(&mut self) {
        let now = now_ns();
        if now < self.superior_looked_ns + SUPERIOR_NS && matches!(self.link, Link::To(_)) {
            return;
        }
        self.superior_looked_ns = now;
        let is_free = self.host.is_some() || matches!(self.link, Link::Lost(_));
        let better = || self.home.better().filter(|_| is_free);
        if let Some(home) = self.home.superior().or_else(better) {
            self.step_down();
            self.go_to(home);
        }
    }

    fn go_to(&mut self, home: Home) {
        // In the old home nobody else is to adopt them.
        let registry = Registry::new(&self.home);
        for program in self.programs.iter().filter(|_| self.home.may_schedule()) {
            registry.remove(&program.record.id);
        }
        self.home = home;
        self.set_link(Link::Lost(Lost::now("the scheduler is elsewhere now".into())));
    }

    /// Connects to whoever schedules, or leads, and brings the programs along.
    fn try_once(&mut self) -> Result<(), JoinError> {
        if let Some(host) = self.host.take_if(|host| host.has_ended()) {
            host.collect();
        }
        let client = match Client::connect(&self.home.socket()) {
            Err(ClientError::NotThere { .. }) if self.may_lead() && self.host.is_none() => {
                self.lead()?;
                Client::connect(&self.home.socket())?
            }
            other => other?,
        };
        self.greet(client)
    }

    fn lead(&mut self) -> Result<(), JoinError> {
        let Some(options) = self.options.clone() else {
            return Err(JoinError::Nobody("it was not asked to lead".into()));
        };
        let lock = self.home.lock_scheduler(Role::Leader)?;
        self.host = Some(Host::start(self.home.clone(), lock, options)?);
        Ok(())
    }

    fn greet(&mut self, mut client: Client) -> Result<(), JoinError> {
        for program in &mut self.programs {
            let request = ToScheduler::Register { record: Box::new(program.record.clone()) };
            let is_answer = |message: &FromScheduler| matches!(message, FromScheduler::Registered { .. });
            match client.ask(&request, &mut self.inbox, is_answer) {
                Ok(FromScheduler::Registered { id, .. }) => program.record.id = id,
                // It is ending, which its guardian is about to notice.
                Ok(_) | Err(ClientError::Refused(_)) => continue,
                Err(error) => return Err(error.into()),
            }
            if program.suspended {
                let request = ToScheduler::Suspend { id: program.record.id.clone() };
                client.ask(&request, &mut self.inbox, is_done)?;
            }
        }
        self.set_link(Link::To(client));
        Ok(())
    }

    /// [`Membership::register`], again and again while schedulers go, until one that lives has the program.
    pub fn bring(&mut self, record: &AppRecord) -> Result<(AppId, BTreeMap<String, String>), JoinError> {
        let trying = Trying::now();
        loop {
            self.connect(trying)?;
            match self.register(record.clone()) {
                Err(error) => trying.again(error, &self.home)?,
                registered => return registered,
            }
        }
    }

    /// Brings a program under the scheduler; answers with its name, and with what its environment
    /// is to hold when it is let go. `Start` follows.
    pub fn register(&mut self, record: AppRecord) -> Result<(AppId, BTreeMap<String, String>), JoinError> {
        let Link::To(client) = &mut self.link else {
            return Err(JoinError::Nobody(self.why_lost()));
        };
        let request = ToScheduler::Register { record: Box::new(record.clone()) };
        let asked_for = record.id.clone();
        let answer = client.ask(
            &request,
            &mut self.inbox,
            |message| matches!(message, FromScheduler::Registered { asked, .. } if *asked == asked_for),
        );
        match answer {
            Ok(FromScheduler::Registered { id, environment, .. }) => {
                let taken = self.programs.iter().any(|program| program.id == id);
                debug_assert!(!taken, "the scheduler gave the name {id} twice");
                let record = AppRecord { id: id.clone(), ..record };
                self.programs.push(Program {
                    id: id.clone(),
                    record,
                    suspended: false,
                    past: None,
                    lost_before_ns: self.lost_ns,
                });
                Ok((id, environment))
            }
            Ok(_) => Err(ClientError::Ended.into()),
            Err(error) => {
                if !matches!(error, ClientError::Refused(_)) {
                    self.lose(error.to_string());
                }
                Err(error.into())
            }
        }
    }

    fn why_lost(&self) -> String {
        match &self.link {
            Link::Lost(lost) => lost.why.clone(),
            Link::To(_) => String::new(),
        }
    }

    /// Asks and waits for the answer; a scheduler that is lost meanwhile is none.
    fn ask(
        &mut self,
        request: &ToScheduler,
        is_answer: impl Fn(&FromScheduler) -> bool,
    ) -> Option<FromScheduler> {
        let Link::To(client) = &mut self.link else { return None };
        match client.ask(request, &mut self.inbox, is_answer) {
            Ok(answer) => Some(answer),
            Err(ClientError::Refused(_)) => None,
            Err(error) => {
                self.lose(error.to_string());
                None
            }
        }
    }

    fn be_patient(&mut self, answer_within: Duration) -> Option<Duration> {
        match &mut self.link {
            Link::To(client) => Some(client.be_patient(answer_within)),
            Link::Lost(_) => None,
        }
    }

    fn program(&mut self, id: &AppId) -> Option<&mut Program> {
        self.programs.iter_mut().find(|program| program.id == *id)
    }

    /// It was executed.
    pub fn started(&mut self, id: &AppId) {
        let lost_so_far_ns = self.lost_so_far_ns();
        let Some(program) = self.program(id) else { return };
        program.record.started = true;
        program.lost_before_ns = lost_so_far_ns;
        let id = program.record.id.clone();
        if let Link::To(client) = &mut self.link
            && let Err(error) = client.send(&ToScheduler::Started { id })
        {
            self.lose(error.to_string());
        }
    }

    /// It has ended; its account, if there is a scheduler that kept one. Descendants may live on
    /// under the scheduler.
    pub fn ended(&mut self, id: &AppId) -> Option<Account> {
        let asked = self.program(id)?.record.id.clone();
        let request = ToScheduler::Ended { id: asked.clone() };
        let is_its = |account: &Account| account.id.as_ref().is_none_or(|id| *id == asked);
        let is_answer = |message: &FromScheduler| matches!(message, FromScheduler::Account { account } if is_its(account));
        // It runs no more: nothing depends on how soon this comes, and who hears nothing has no account.
        let usual = self.be_patient(LAST_ANSWER);
        let answer = self.ask(&request, is_answer);
        if let Some(usual) = usual {
            self.be_patient(usual);
        }
        self.keep_accounts();
        let index = self.programs.iter().position(|program| program.id == *id)?;
        let program = self.programs.remove(index);
        let last = match answer {
            Some(FromScheduler::Account { account }) => {
                if !self.home.may_schedule() {
                    // Root's scheduler does not remove what is in another user's hands.
                    let pages = program.record.pages.to_string_lossy();
                    let users = linux::procfs::carrying("COPLACE_PAGES", &pages, &self.root);
                    if users.is_ok_and(|users| users.is_empty()) {
                        restore::remove_pages(&program.record);
                    }
                }
                Some(account)
            }
            _ => {
                // A program that is known to nobody is to leave nothing behind.
                let registry = Registry::new(&self.home);
                let traces = registry.traces(&program.record.id);
                let group = self.home.group_name();
                let alive = restore::set_free_by(&program.record, &traces, &group, &self.root);
                if alive.processes == 0 {
                    if self.home.may_schedule() {
                        registry.remove(&program.record.id);
                    }
                    restore::remove_pages(&program.record);
                }
                None
            }
        };
        let whole = match (program.past, last) {
            (Some(past), Some(last)) => past.followed_by(last),
            (past, last) => past.or(last)?,
        };
        Some(Account { id: Some(program.id), ..whole })
    }

    /// Its user stopped it. When this returns the scheduler does not hold it any more.
    pub fn suspend(&mut self, id: &AppId) {
        self.set_suspended(id, true);
    }

    /// Its user continued it.
    pub fn resume(&mut self, id: &AppId) {
        self.set_suspended(id, false);
    }

    fn set_suspended(&mut self, id: &AppId, suspended: bool) {
        let Some(program) = self.program(id) else { return };
        program.suspended = suspended;
        let id = program.record.id.clone();
        let request = if suspended { ToScheduler::Suspend { id } } else { ToScheduler::Resume { id } };
        self.ask(&request, is_done);
    }

    /// Makes it run, whatever is done to it now, so that a signal reaches it.
    pub fn release(&mut self, id: &AppId) {
        let Some(program) = self.program(id) else { return };
        let request = ToScheduler::Release { id: program.record.id.clone() };
        if self.ask(&request, is_done).is_none()
            && let Some(program) = self.programs.iter().find(|program| program.id == *id)
        {
            self.free(program);
        }
    }

    /// Passes the lead on, if this process has it: everything is set free in order, and whoever
    /// else is there takes over. The next `pump` joins again.
    pub fn step_down(&mut self) {
        if let Some(host) = self.host.take() {
            // What it hands out when it ends is there then.
            host.stop();
            self.lose("this process gave up the lead".into());
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.step_down();
    }
}

fn is_done(message: &FromScheduler) -> bool {
    matches!(message, FromScheduler::Done)
}

/// For a daemon that starts: asks a leader to yield and takes the lock. Members find the daemon
/// again by themselves. Fails at once where another daemon schedules.
pub fn take_over(home: &Home, role: Role) -> Result<SchedulerLock, JoinError> {
    let held_by_daemon =
        LockError::Held { home: home.path().to_owned(), pid: None, role: Some(Role::Daemon) };
    // As long as it is held no member becomes the leader in our stead.
    let _claim = home.claim_for_daemon()?.ok_or(held_by_daemon)?;
    let began_ns = now_ns();
    loop {
        let held = match home.lock_scheduler(role) {
            Ok(lock) => return Ok(lock),
            Err(held @ LockError::Held { role: None | Some(Role::Leader), .. }) => held,
            Err(other) => return Err(other.into()),
        };
        if now_ns() - began_ns > YIELD_NS {
            return Err(held.into());
        }
        match Client::connect(&home.socket()) {
            Ok(mut client) => match client.ask(&ToScheduler::Yield, &mut Vec::new(), is_done) {
                Err(ClientError::Refused(why)) => return Err(ClientError::Refused(why).into()),
                Err(error @ ClientError::Version { .. }) => return Err(error.into()),
                // It has yielded, or it has just gone by itself.
                _ => {}
            },
            Err(error @ ClientError::Version { .. }) => return Err(error.into()),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_nanos(SHORTEST_PAUSE_NS));
    }
}
