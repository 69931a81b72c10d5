//! When the scheduler is lost: finding another, leading, and setting programs free where that lasts.

use std::io;

use linux::clock::now_ns;
use protocol::{Client, ClientError, FromScheduler, Role, ToScheduler};

use super::host::Host;
use super::{
    JoinError, LONGEST_PAUSE_NS, Link, Lost, Membership, NoSchedulerReason, ORPHANED_NS, PAUSE_NS, Program,
    SUPERIOR_NS, is_done,
};
use crate::home::{Home, LockError};
use crate::lease::Lease;
use crate::registry::Registry;
use crate::restore;
use crate::scheduler::Options;

impl Membership {
    pub(super) fn drop_link(&mut self, why: NoSchedulerReason) {
        if let Link::To(client) = &mut self.link {
            // Its last words.
            while let Ok(messages) = client.drain()
                && !messages.is_empty()
            {
                self.inbox.extend(messages);
            }
            self.collect_accounts();
            self.set_link(Link::Lost(Lost::now(why)));
            self.set_unrecorded_free();
        }
    }

    /// A scheduler that was lost leaves our programs on record. Of one whose record somebody has removed or damaged, no
    /// successor knows what was done to it.
    fn set_unrecorded_free(&self) {
        let registry = Registry::new(&self.home);
        let is_unrecorded =
            |program: &&Program| program.record.started && !registry.is_known(&program.record.id);
        let programs = self.programs.iter().filter(|_| self.home.may_schedule());
        programs.filter(is_unrecorded).for_each(|program| self.set_program_free(program));
    }

    /// A scheduler that ends in order hands out what it wrote up about our programs.
    pub(super) fn collect_accounts(&mut self) {
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
    pub(super) fn recover(&mut self) {
        let result = self.try_once();
        let now = now_ns();
        let Link::Lost(lost) = &mut self.link else { return };
        if let Err(error) = result {
            lost.why = error.into();
        }
        let orphaned = now - lost.since_ns >= ORPHANED_NS;
        lost.pause_ns = if orphaned { LONGEST_PAUSE_NS } else { (lost.pause_ns * 2).min(PAUSE_NS) };
        lost.next_ns = now + lost.pause_ns;
        let to_be_freed = orphaned && !lost.freed;
        if to_be_freed
            && self.set_programs_free()
            && let Link::Lost(lost) = &mut self.link
        {
            lost.freed = true;
        }
        if orphaned && let Some(home) = self.home.fallback() {
            self.move_to_home(home);
        }
    }

    /// Sets the programs free, unless somebody has them in his care: `false`.
    fn set_programs_free(&self) -> bool {
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
            let note = || {
                if lock.is_some() {
                    Registry::new(&self.home).note_free(&program.record.id);
                }
            };
            // As in `restore::set_all_free`.
            note();
            self.set_program_free(program);
            note();
        }
        true
    }

    pub(super) fn set_program_free(&self, program: &Program) {
        let mut traces = Registry::new(&self.home).traces(&program.record.id);
        traces.user_stopped = program.suspended || traces.user_stopped && !program.to_be_continued;
        // What this user may not undo (root's groups) root's guard undoes.
        let _ = restore::set_free_by(&program.record, &traces, &self.home.group_name(), &self.root);
    }

    /// A leader gives way to root's daemon, and to one that leads in a better home of the same user; who is
    /// led follows when the leader has gone.
    pub(super) fn poll_superior(&mut self) {
        let now = now_ns();
        if now < self.superior_polled_ns + SUPERIOR_NS && matches!(self.link, Link::To(_)) {
            return;
        }
        self.superior_polled_ns = now;
        let is_free = self.host.is_some() || matches!(self.link, Link::Lost(_));
        let better = || self.home.preferred().filter(|_| is_free);
        if let Some(home) = self.home.superior().or_else(better) {
            self.step_down();
            self.move_to_home(home);
        }
    }

    pub(super) fn move_to_home(&mut self, home: Home) {
        // In the old home nobody else is to adopt them.
        let registry = Registry::new(&self.home);
        for program in self.programs.iter().filter(|_| self.home.may_schedule()) {
            registry.remove(&program.record.id);
        }
        self.home = home;
        self.set_link(Link::Lost(Lost::now(NoSchedulerReason::Elsewhere)));
    }

    /// Connects to whoever schedules, or leads, and brings the programs along.
    pub(super) fn try_once(&mut self) -> Result<(), JoinError> {
        if let Some(host) = self.host.take_if(|host| host.has_ended()) {
            host.collect();
        }
        let may_lead = self.home.may_schedule() && self.host.is_none();
        let client = match (Client::connect(&self.home.socket()), &self.options) {
            (Err(ClientError::NotThere { .. }), Some(options)) if may_lead => {
                self.lead(options.clone())?;
                Client::connect(&self.home.socket())?
            }
            (other, _) => other?,
        };
        self.greet(client)
    }

    fn lead(&mut self, options: Options) -> Result<(), JoinError> {
        let lock = match self.home.lock_scheduler(Role::Leader) {
            // Somebody has removed the directory; our programs are to be on record again.
            Err(LockError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                self.home.create_again()?;
                self.home.lock_scheduler(Role::Leader)?
            }
            locked => locked?,
        };
        self.host = Some(Host::start(self.home.clone(), lock, options)?);
        Ok(())
    }

    fn greet(&mut self, mut client: Client) -> Result<(), JoinError> {
        let mut refused = Vec::new();
        for (index, program) in self.programs.iter_mut().enumerate() {
            let request = ToScheduler::Register { record: Box::new(program.record.clone()) };
            let is_answer = |message: &FromScheduler| matches!(message, FromScheduler::Registered { .. });
            match client.ask(&request, &mut self.inbox, is_answer) {
                Ok(FromScheduler::Registered { id, .. }) => program.record.id = id,
                // It is ending, which its guardian is about to notice, or it cannot be put on record.
                Ok(_) | Err(ClientError::Refused(_)) => {
                    refused.push(index);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if program.record.started {
                // It may have heard otherwise, from a connection that is no more.
                let id = program.record.id.clone();
                let request = match program.suspended {
                    true => ToScheduler::Suspend { id },
                    false => ToScheduler::Resume { id },
                };
                match client.ask(&request, &mut self.inbox, is_done) {
                    Err(ClientError::Refused(_)) | Ok(_) => {}
                    Err(error) => return Err(error.into()),
                }
                if std::mem::take(&mut program.to_be_continued) {
                    restore::continue_all(&program.record, &self.root);
                }
            }
        }
        // Whoever scheduled it before may have left it stopped or narrow.
        for program in refused.into_iter().map(|index| &self.programs[index]) {
            if program.record.started {
                self.set_program_free(program);
            }
        }
        self.set_link(Link::To(client));
        Ok(())
    }
}
