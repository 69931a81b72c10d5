//! Running programs that are taken in, asked for or by a rule, and given back.

use std::collections::BTreeSet;

use engine::Event;
use linux::clock::now_ns;
use linux::{Process, Root, procfs, protection};
use protocol::{FromScheduler, News, Role, Which};
use workload::{AppId, Demand};

use super::requests::unique;
use super::{Scheduler, nice};
use crate::attach::{self, Candidate};
use crate::error::Error;
use crate::prior_state::{PriorState, PriorStateError};
use crate::server::PeerId;
use crate::{identity, restore};

/// Why a running program is not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAttached {
    #[error("this daemon only observes; start one without --observe")]
    Observes,
    #[error(transparent)]
    Refused(#[from] attach::Refusal),
    #[error(transparent)]
    Failed(#[from] Error),
    #[error("process {pid} is under coplace already, as {id}")]
    IsUnder { pid: u32, id: AppId },
    #[error("process {pid} has started {id}, which is under coplace already")]
    HasStarted { pid: u32, id: AppId },
    #[error("process {pid}: {error}")]
    PriorState { pid: u32, error: PriorStateError },
    #[error("process {pid}: {}", join_errors(errors))]
    Unmanaged { pid: u32, errors: Vec<Error> },
}

fn join_errors(errors: &[Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Scheduler {
    pub(super) fn attach(
        &mut self,
        peer: PeerId,
        pid: u32,
        name: Option<AppId>,
        demand: Demand,
    ) -> Vec<Event> {
        let uid = self.server.uid(peer).unwrap_or(u32::MAX);
        let answer = match self.role {
            Role::Observer => Err(NotAttached::Observes),
            _ => attach::inspect(pid, uid, linux::host::own_uid(), &Root::live())
                .map_err(NotAttached::from)
                .and_then(|candidate| self.attach_running(candidate, name, demand)),
        };
        match answer {
            Ok((id, notes, events)) => {
                self.server.send(peer, &FromScheduler::Attached { id, notes });
                events
            }
            Err(why) => {
                self.server.send(peer, &FromScheduler::Refused { why: why.to_string() });
                Vec::new()
            }
        }
    }

    /// Takes a program in that runs already, with everything it has noted first.
    pub(super) fn attach_running(
        &mut self,
        candidate: Candidate,
        name: Option<AppId>,
        demand: Demand,
    ) -> Result<(AppId, Vec<String>, Vec<Event>), NotAttached> {
        let root = Root::live();
        let process = candidate.process;
        let tree = procfs::tree(process.pid, &root).map_err(Error::from)?;
        if candidate.job
            && let Some(id) = self.app_of_process(process.pid)
            && self.live.apps().get(&id).is_some_and(|app| app.record.terms.attached)
        {
            return Ok((
                id,
                vec!["it belongs to a parallel job, which is under coplace already".into()],
                vec![],
            ));
        }
        if let Some((member, id)) =
            tree.iter().find_map(|member| Some((member, self.app_of_process(member.pid)?)))
        {
            let pid = process.pid;
            return Err(match member.pid == pid {
                true => NotAttached::IsUnder { pid, id },
                false => NotAttached::HasStarted { pid, id },
            });
        }
        let before = PriorState::read(&tree, &root)
            .map_err(|error| NotAttached::PriorState { pid: process.pid, error })?;
        let mut notes = Vec::new();
        if !candidate.has_pages() {
            notes.push("it does not carry the preload library, so its teams keep their size".to_owned());
        }
        let foreground = candidate.foreground;
        let id = unique(&name.unwrap_or_else(|| candidate.name.clone()), |id| self.has_app(id));
        // Launchers are mostly allowed more than the ranks that they have bound.
        let inside: Vec<Process> =
            tree.iter().copied().filter(|member| !protection::is_launcher(*member, &root)).collect();
        if candidate.job {
            let ranks = inside.len();
            notes.push(format!("its whole job was taken in, as one program of {ranks} processes"));
        }
        let mut record = candidate.record(id.clone(), demand, before.cpus_of_all(&inside), now_ns());
        nice::weigh_by_nice(&mut record.demand, process.pid);
        self.registry.write(&record).map_err(Error::from)?;
        // What follows may take a while, and is no sign that nobody schedules.
        self.lease.beat();
        let events = self.begin_managing(record);
        self.lease.beat();
        let managed = &self.live.apps()[&id];
        if !managed.has_harness() {
            let errors = self.live.take_failures().into_iter().map(|failure| failure.error).collect();
            self.forget(&id);
            return Err(NotAttached::Unmanaged { pid: process.pid, errors });
        }
        if foreground && managed.stops_by_signal() {
            notes.push(
                "it is the foreground job of a terminal and keeps running while others take turns: here turns \
                 are taken by signals, which its shell would see"
                    .to_owned(),
            );
        }
        Ok((id, notes, events))
    }

    pub(super) fn release(&mut self, peer: PeerId, which: &Which) -> Vec<Event> {
        let id = match which {
            Which::Pid(pid) => self.app_of_process(*pid),
            Which::Id(id) => self.has_app(id).then(|| id.clone()),
        };
        let uid = self.server.uid(peer).unwrap_or(u32::MAX);
        let answer = match id {
            None => Err(match which {
                Which::Pid(pid) => {
                    format!("process {pid} is not under coplace; coplace status names what is")
                }
                Which::Id(id) => format!("no program {id} is under coplace; coplace status names what is"),
            }),
            Some(id) => match self.uid_of(&id) {
                Some(owner) if uid != 0 && uid != owner => {
                    Err(format!("{id} belongs to user {owner}; only that user and root may release it"))
                }
                _ => Ok(id),
            },
        };
        let id = match answer {
            Ok(id) => id,
            Err(why) => {
                self.server.send(peer, &FromScheduler::Refused { why });
                return Vec::new();
            }
        };
        let owner = self.owners.remove(&id);
        if let Some(owner) = owner {
            // Held, it would wait for a word that nobody gives any more.
            self.server.send(owner, &FromScheduler::Start { id: id.clone(), threads: None, passive: None });
        }
        let report = self.forget(&id);
        self.note(News::Released { app: id.clone() });
        let problems = report.problems.iter().map(ToString::to_string).collect();
        let processes = report.processes;
        let message = FromScheduler::Released { id: id.clone(), processes, problems };
        self.server.send(peer, &message);
        if let Some(owner) = owner.filter(|owner| *owner != peer) {
            self.server.send(owner, &message);
        }
        vec![Event::Left(id)]
    }

    /// Undoes everything that was done to a program and forgets it.
    pub(super) fn forget(&mut self, id: &AppId) -> restore::Report {
        if self.pending.take(id).is_some() {
            self.registry.remove(id);
            return restore::Report { processes: 1, ..restore::Report::default() };
        }
        let Some(app) = self.live.apps().get(id) else { return restore::Report::default() };
        let record = app.record.clone();
        let members = app.members().iter().copied();
        members.chain([identity::to_linux(record.process)]).for_each(|process| self.adopter.exclude(process));
        let known = self.live.forget(id);
        self.lease.beat();
        let report = restore::set_free_knowing(&record, known, &Root::live(), &self.home);
        self.lease.beat();
        self.registry.remove(id);
        self.live.members_changed();
        report
    }

    /// The program to which a process belongs.
    pub(super) fn app_of_process(&self, pid: u32) -> Option<AppId> {
        let has = |members: &[Process]| members.iter().any(|member| member.pid == pid);
        let found =
            self.live.apps().iter().find(|(_, app)| app.record.process.pid == pid || has(app.members()));
        found.map(|(id, _)| id.clone()).or_else(|| self.pending.id_of(pid))
    }

    pub(super) fn has_app(&self, id: &AppId) -> bool {
        self.live.apps().contains_key(id) || self.pending.get(id).is_some()
    }

    fn uid_of(&self, id: &AppId) -> Option<u32> {
        let live = self.live.apps().get(id).map(|app| &app.record);
        live.or_else(|| self.pending.get(id)).map(|record| record.uid)
    }

    /// Takes in what the rules of the configuration name.
    pub(super) fn adopt_by_rules(&mut self) -> Vec<Event> {
        if self.role == Role::Observer || self.adopter.is_idle() {
            return Vec::new();
        }
        let root = Root::live();
        let own = linux::host::own_uid();
        let roots = self.live.apps().values().map(|app| identity::to_linux(app.record.process));
        let managed: BTreeSet<Process> =
            roots.chain(self.live.apps().values().flat_map(|app| app.members()).copied()).collect();
        let mut events = Vec::new();
        for found in self.adopter.scan(&managed, now_ns(), &root) {
            let uid = found.uid;
            // Another rank of a job that came with the first.
            if self.app_of_process(found.process.pid).is_some() {
                continue;
            }
            let Ok(candidate) = attach::inspect(found.process.pid, uid, own, &root) else { continue };
            let pid = candidate.process.pid;
            match self.attach_running(candidate, found.name, found.demand) {
                Ok((id, _, more)) => {
                    self.note(News::TakenIn { app: id, pid, rule: found.rule.to_string() });
                    events.extend(more);
                }
                Err(why) => {
                    self.note(News::NotTakenIn { pid, rule: found.rule.to_string(), why: why.to_string() })
                }
            }
        }
        events
    }
}
