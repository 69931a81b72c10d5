//! What a member's programs do, told to whoever schedules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use linux::clock::now_ns;
use protocol::{Account, AppRecord, ClientError, FromScheduler, ToScheduler};
use workload::AppId;

use super::retry::Retry;
use super::{JoinError, LAST_ANSWER, Link, Membership, NoSchedulerReason, Program, is_done};
use crate::home::LOCK_PATIENCE_NS;
use crate::registry::Registry;
use crate::restore;

impl Membership {
    /// [`Membership::register`], again and again while schedulers go, until one that lives has the program.
    pub fn register_until_accepted(
        &mut self,
        record: &AppRecord,
    ) -> Result<(AppId, BTreeMap<String, String>), JoinError> {
        let retry = Retry::now();
        loop {
            self.connect(retry)?;
            match self.register(record.clone()) {
                Err(error) => retry.wait_before_next(error, &self.home)?,
                registered => return registered,
            }
        }
    }

    /// Brings a program under the scheduler; answers with its name, and with what its environment
    /// is to hold when it is let go. `Start` follows.
    pub fn register(&mut self, record: AppRecord) -> Result<(AppId, BTreeMap<String, String>), JoinError> {
        let Link::To(client) = &mut self.link else {
            return Err(JoinError::Nobody(self.no_scheduler_reason()));
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
                let is_known = self.programs.iter().any(|program| program.id == id);
                debug_assert!(!is_known, "the scheduler gave the name {id} twice");
                let record = AppRecord { id: id.clone(), ..record };
                self.programs.push(Program {
                    id: id.clone(),
                    record,
                    suspended: false,
                    to_be_continued: false,
                    past: None,
                    lost_before_ns: self.lost_ns,
                });
                Ok((id, environment))
            }
            Ok(_) => Err(ClientError::Unexpected.into()),
            Err(error) => {
                if matches!(error, ClientError::Refused(_)) {
                    return Err(error.into());
                }
                let error = Arc::new(JoinError::from(error));
                self.drop_link(NoSchedulerReason::Failed(Arc::clone(&error)));
                Err(JoinError::Lost(error))
            }
        }
    }

    pub(super) fn no_scheduler_reason(&self) -> NoSchedulerReason {
        match &self.link {
            Link::Lost(lost) => lost.why.clone(),
            Link::To(_) => NoSchedulerReason::NotTried,
        }
    }

    /// Asks and waits for the answer; a scheduler that is lost meanwhile is none.
    pub(super) fn ask(
        &mut self,
        request: &ToScheduler,
        is_answer: impl Fn(&FromScheduler) -> bool,
    ) -> Option<FromScheduler> {
        let Link::To(client) = &mut self.link else { return None };
        match client.ask(request, &mut self.inbox, is_answer) {
            Ok(answer) => Some(answer),
            Err(ClientError::Refused(_)) => None,
            Err(error) => {
                self.drop_link(error.into());
                None
            }
        }
    }

    pub(super) fn set_patience(&mut self, answer_within: Duration) -> Option<Duration> {
        match &mut self.link {
            Link::To(client) => Some(client.set_patience(answer_within)),
            Link::Lost(_) => None,
        }
    }

    pub(super) fn program(&mut self, id: &AppId) -> Option<&mut Program> {
        self.programs.iter_mut().find(|program| program.id == *id)
    }

    /// It was executed.
    pub fn report_started(&mut self, id: &AppId) {
        let lost_so_far_ns = self.lost_so_far_ns();
        let Some(program) = self.program(id) else { return };
        program.record.started = true;
        program.lost_before_ns = lost_so_far_ns;
        let id = program.record.id.clone();
        if let Link::To(client) = &mut self.link
            && let Err(error) = client.send(&ToScheduler::Started { id })
        {
            self.drop_link(error.into());
        }
    }

    /// It has ended; its account, if there is a scheduler that kept one. Descendants may live on
    /// under the scheduler.
    pub fn report_ended(&mut self, id: &AppId) -> Option<Account> {
        let asked = self.program(id)?.record.id.clone();
        let request = ToScheduler::Ended { id: asked.clone() };
        let is_its = |account: &Account| account.id.as_ref().is_none_or(|id| *id == asked);
        let is_answer = |message: &FromScheduler| matches!(message, FromScheduler::Account { account } if is_its(account));
        // It runs no more: nothing depends on how soon this comes, and who hears nothing has no account.
        let usual = self.set_patience(LAST_ANSWER);
        let answer = self.ask(&request, is_answer);
        if let Some(usual) = usual {
            self.set_patience(usual);
        }
        self.collect_accounts();
        let index = self.programs.iter().position(|program| program.id == *id)?;
        let program = self.programs.remove(index);
        let last = match answer {
            Some(FromScheduler::Account { account }) => {
                if !self.home.may_schedule() {
                    // Root's scheduler does not remove what is in another user's hands.
                    let pages = program.record.pages.to_string_lossy();
                    let users = linux::procfs::with_variable("COPLACE_PAGES", &pages, &self.root);
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

    pub(super) fn set_suspended(&mut self, id: &AppId, suspended: bool) {
        let Some(program) = self.program(id) else { return };
        program.suspended = suspended;
        let known_as = program.record.id.clone();
        self.note_stopped(&known_as, suspended);
        let request = match suspended {
            true => ToScheduler::Suspend { id: known_as },
            false => ToScheduler::Resume { id: known_as },
        };
        let done = self.ask(&request, is_done).is_some();
        if let Some(program) = self.program(id) {
            program.to_be_continued = !suspended && !done;
        }
    }

    /// On record, too: who schedules may be just leaving, or coming, and would continue what its user has stopped.
    fn note_stopped(&self, id: &AppId, stopped: bool) {
        // In root's home nothing can be noted.
        if !self.home.may_schedule() {
            return;
        }
        // Who is at it now has read the record already.
        let _lock = self.home.lock_programs_until(now_ns() + LOCK_PATIENCE_NS, || ());
        Registry::new(&self.home).note_stopped(id, stopped);
    }

    /// Makes it run, whatever is done to it now, so that a signal reaches it.
    pub fn report_terminating(&mut self, id: &AppId) {
        let Some(program) = self.program(id) else { return };
        let request = ToScheduler::Terminating { id: program.record.id.clone() };
        if self.ask(&request, is_done).is_none()
            && let Some(program) = self.programs.iter().find(|program| program.id == *id)
        {
            self.set_program_free(program);
        }
    }

    /// Passes the lead on, if this process has it: everything is set free in order, and whoever
    /// else is there takes over. The next `pump` joins again.
    pub fn step_down(&mut self) {
        if let Some(host) = self.host.take() {
            // What it hands out when it ends is there then.
            host.stop();
            self.drop_link(NoSchedulerReason::SteppedDown);
        }
    }
}
