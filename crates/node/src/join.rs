//! How programs come under a scheduler and stay under one.
//!
//! A [`Membership`] connects to whoever schedules in its home; if nobody does it leads: it hosts
//! the scheduler in a thread, and is its client like anybody else. When the connection is lost it
//! tries at once to reconnect or to lead, and brings its programs along; if neither works within
//! [`ORPHANED_NS`] it sets them free, and keeps trying.

mod host;
mod programs;
mod recover;
mod retry;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use linux::Root;
use linux::clock::now_ns;
use protocol::{Account, AppRecord, Client, ClientError, FromScheduler, Role, ToScheduler};
use workload::AppId;

use crate::home::{Home, HomeError, LockError, SchedulerLock};
use crate::scheduler::{Options, StartError};
use host::Host;
use retry::Retry;

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

/// Why a process found no scheduler to join, could not lead, or could not take over.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// What was asked for cannot be had here: the caller's own mistake.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No home could be found or made, or no directory in it.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Somebody else holds the scheduler's lock, or it cannot be taken at all.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The scheduler does not answer, speaks another version, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The scheduler was lost over what was asked of it.
    #[error(transparent)]
    Lost(Arc<JoinError>),
    /// There is no connection to a scheduler, and none is hosted here.
    #[error("nobody schedules, and this process cannot: {0}")]
    Nobody(NoSchedulerReason),
}

/// Why there is no scheduler.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoSchedulerReason {
    /// This process has made no attempt to join or to lead yet.
    #[error("none was looked for yet")]
    NotTried,
    /// The last attempt failed, or the connection broke.
    #[error(transparent)]
    Failed(Arc<JoinError>),
    /// This process led and has given that up: [`Membership::step_down`].
    #[error("this process gave up the lead")]
    SteppedDown,
    /// This process has moved to another home and has not joined there yet.
    #[error("the scheduler is elsewhere now")]
    Elsewhere,
}

impl<E: Into<JoinError>> From<E> for NoSchedulerReason {
    fn from(error: E) -> NoSchedulerReason {
        NoSchedulerReason::Failed(Arc::new(error.into()))
    }
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
    superior_polled_ns: u64,
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
    why: NoSchedulerReason,
}

struct Program {
    /// The name that the caller knows it by.
    id: AppId,
    /// `record.id` is the name that the present scheduler knows it by.
    record: AppRecord,
    suspended: bool,
    /// Its user has continued it, and the scheduler of that time may not have heard of it: one that left had it stand
    /// as its user's.
    to_be_continued: bool,
    /// What it got under schedulers that have ended since.
    past: Option<Account>,
    /// How much time without a scheduler there had been when it was let go.
    lost_before_ns: u64,
}

impl Lost {
    fn now(why: NoSchedulerReason) -> Lost {
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
            link: Link::Lost(Lost::now(NoSchedulerReason::NotTried)),
            host: None,
            programs: Vec::new(),
            inbox: Vec::new(),
            lost_ns: 0,
            superior_polled_ns: now_ns(),
            root: Root::live(),
        };
        membership.connect(Retry::now())?;
        Ok(membership)
    }

    /// Attempts until somebody who lives schedules, be it this process.
    fn connect(&mut self, retry: Retry) -> Result<(), JoinError> {
        while let Link::Lost(_) = self.link {
            let Err(error) = self.try_once() else { break };
            match (&error, self.home.fallback()) {
                // Root's daemon has gone since its home was chosen.
                (JoinError::Client(ClientError::NotThere { .. }), Some(home)) => self.move_to_home(home),
                (_, None) if !self.may_lead() => return Err(error),
                _ => retry.wait_before_next(error, &self.home)?,
            }
        }
        Ok(())
    }

    fn may_lead(&self) -> bool {
        self.options.is_some() && self.home.may_schedule()
    }

    /// Whether this process hosts the scheduler.
    pub fn is_leader(&self) -> bool {
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
        matches!(&self.link, Link::Lost(lost) if Retry::since(lost.since_ns).is_over(&self.home))
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

    /// The home that it is in now; it moves when root's daemon comes or goes, or when another home is better.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Readable when `pump` has something to do; `None` while nobody schedules.
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::To(client) => client.poll_fd(),
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
            Link::To(_) if self.host.is_some() => Some(self.superior_polled_ns + SUPERIOR_NS),
            Link::To(_) => None,
        }
    }

    /// Does what is to be done now, without waiting for anybody who lives, and hands out what the
    /// scheduler said, with the names that the caller knows.
    pub fn pump(&mut self) -> Vec<FromScheduler> {
        if let Link::To(client) = &mut self.link {
            match client.drain() {
                Ok(messages) => self.inbox.extend(messages),
                Err(error) => self.drop_link(error.into()),
            }
        }
        self.collect_accounts();
        self.poll_superior();
        if let Link::Lost(lost) = &self.link
            && now_ns() >= lost.next_ns
        {
            self.recover();
        }
        let messages = std::mem::take(&mut self.inbox);
        let messages: Vec<_> = messages.into_iter().map(|message| self.with_callers_names(message)).collect();
        for message in &messages {
            if let FromScheduler::Start { id, threads, passive } = message
                && let Some(program) = self.programs.iter_mut().find(|program| program.id == *id)
            {
                program.record.started_with(*threads, passive.clone());
            }
            if let FromScheduler::Released { id, .. } = message {
                // It runs on without any scheduler, and is not brought to the next one.
                self.programs.retain(|program| program.id != *id);
            }
        }
        messages
    }

    fn with_callers_names(&self, message: FromScheduler) -> FromScheduler {
        let known = |id: AppId| self.programs.iter().find(|p| p.record.id == id).map_or(id, |p| p.id.clone());
        match message {
            FromScheduler::Start { id, threads, passive } => {
                FromScheduler::Start { id: known(id), threads, passive }
            }
            FromScheduler::Waits { id, why } => FromScheduler::Waits { id: known(id), why },
            FromScheduler::Released { id, processes, problems } => {
                FromScheduler::Released { id: known(id), processes, problems }
            }
            other => other,
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
            Ok(mut client) => {
                let answer = client.ask(&ToScheduler::Yield, &mut Vec::new(), is_done);
                // Otherwise it has yielded, or it has just gone by itself.
                if let Err(error @ ClientError::Refused(_)) = answer {
                    return Err(error.into());
                }
            }
            Err(error @ (ClientError::Version { .. } | ClientError::GreetingRefused(_))) => {
                return Err(error.into());
            }
            Err(_) => {}
        }
        linux::clock::sleep_until(now_ns() + SHORTEST_PAUSE_NS);
    }
}
