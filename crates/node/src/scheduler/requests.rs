//! What peers ask for.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};

use engine::{Entry, Event, Recorder};
use linux::clock::{now_ns, process_cpu_ns};
use linux::{Root, procfs};
use protocol::{AppExplanation, AppRecord, Explanation, FromScheduler, News, Role, Status, ToScheduler};
use workload::AppId;

use super::{Scheduler, nice, settings_for};
use crate::mechanism::Mechanisms;
use crate::server::{Incoming, PeerId};
use crate::{identity, restore};

impl Scheduler {
    pub(super) fn handle(&mut self, peer: PeerId, incoming: Incoming) -> Vec<Event> {
        let message = match incoming {
            Incoming::Message(message) => message,
            Incoming::Gone => return self.handle_hang_up(peer),
        };
        let now = now_ns();
        if matches!(
            message,
            ToScheduler::Register { .. } | ToScheduler::Resume { .. } | ToScheduler::Attach { .. }
        ) {
            self.withdraw_services();
        }
        match message {
            ToScheduler::Hello { .. } => Vec::new(),
            ToScheduler::Register { record } => self.register(peer, *record),
            ToScheduler::Started { id } if self.owns(peer, &id) => {
                self.live.mark_started(&id, now);
                Vec::new()
            }
            ToScheduler::Ended { id } if self.owns(peer, &id) => self.handle_root_end(peer, id, now),
            ToScheduler::Suspend { id } if self.owns(peer, &id) => {
                self.live.mark_user_stopped(&id);
                self.server.send(peer, &FromScheduler::Done);
                vec![Event::Suspend(id)]
            }
            ToScheduler::Resume { id } if self.owns(peer, &id) => {
                self.server.send(peer, &FromScheduler::Done);
                // Its user has stopped it again since then, and its `run` is just saying so. The note of the stop that is
                // over is taken away by the `run`, never here: it may be that of the next one.
                let stopped_again = self.registry.is_noted_as_stopped(&id);
                if stopped_again { Vec::new() } else { self.resumed(id).into_iter().collect() }
            }
            ToScheduler::Terminating { id } if self.owns(peer, &id) => {
                self.live.mark_terminating(&id);
                self.server.send(peer, &FromScheduler::Done);
                Vec::new()
            }
            ToScheduler::Attach { pid, name, demand } => self.attach(peer, pid, name, demand),
            ToScheduler::Release { which } => self.release(peer, &which),
            ToScheduler::Status => {
                let mut status = self.status(now);
                status.apps.iter_mut().for_each(|app| self.drop_arguments(peer, app.uid, &mut app.command));
                self.server.send(peer, &FromScheduler::Status { status });
                Vec::new()
            }
            ToScheduler::Explain { id } => {
                self.explain_to(peer, id.as_ref());
                Vec::new()
            }
            ToScheduler::GetPolicy => {
                self.send_policy(peer);
                Vec::new()
            }
            ToScheduler::SetPolicy { policy, settings, script } => {
                self.set_policy(peer, &policy, settings, script)
            }
            ToScheduler::Record => {
                self.record_for(peer);
                Vec::new()
            }
            ToScheduler::Yield => {
                self.yield_to(peer);
                Vec::new()
            }
            ToScheduler::Started { id }
            | ToScheduler::Ended { id }
            | ToScheduler::Suspend { id }
            | ToScheduler::Resume { id }
            | ToScheduler::Terminating { id } => {
                let why = format!("{id} is not a program of yours here");
                self.server.send(peer, &FromScheduler::Refused { why });
                Vec::new()
            }
        }
    }

    /// The programs of a peer that is gone live on under this scheduler; the guard looks after them now.
    fn handle_hang_up(&mut self, peer: PeerId) -> Vec<Event> {
        let of_peer = |entry: &(&AppId, &PeerId)| *entry.1 == peer;
        let its: Vec<AppId> = self.owners.iter().filter(of_peer).map(|(id, _)| id.clone()).collect();
        self.owners.retain(|_, owner| *owner != peer);
        self.readers.retain(|reader| reader.peer != peer);
        its.into_iter().filter_map(|id| self.abandon_if_held(id)).collect()
    }

    /// A program's topmost process has ended, as its `run` says.
    fn handle_root_end(&mut self, peer: PeerId, id: AppId, now: u64) -> Vec<Event> {
        // Descendants that outlive the root stay under the scheduler until they end too. What else this look
        // shows the engine is to know before it decides: who is rigid is not placed as if he were not.
        let mut events = self.sample_apps(now);
        let account = self.live.account(&id, now).unwrap_or_default();
        self.server.send(peer, &FromScheduler::Account { account });
        self.owners.remove(&id);
        if let Some(held) = self.pending.take(&id) {
            self.registry.remove(&id);
            restore::remove_pages(&held.record);
            events.push(Event::Left(id));
            return events;
        }
        events.extend(self.remove_if_ended(&id));
        events
    }

    fn explain_to(&mut self, peer: PeerId, id: Option<&AppId>) {
        let answer = match self.explain(id) {
            Some(mut explanation) => {
                for entry in &mut explanation.history {
                    if let News::Came { uid, command, .. } = &mut entry.news {
                        self.drop_arguments(peer, *uid, command);
                    }
                }
                FromScheduler::Explanation { explanation: Box::new(explanation) }
            }
            None => FromScheduler::Refused {
                why: format!(
                    "no program {} is or was here lately; coplace status names them",
                    id.map_or("", AppId::as_str)
                ),
            },
        };
        self.server.send(peer, &answer);
    }

    /// Hands over to a daemon that starts.
    fn yield_to(&mut self, peer: PeerId) {
        if self.role == Role::Leader && self.may_command(peer) {
            self.yielded = true;
            self.server.send(peer, &FromScheduler::Done);
        } else {
            let why = "a daemon schedules here already; stop it first".to_owned();
            self.server.send(peer, &FromScheduler::Refused { why });
        }
    }

    /// A program whose `run` has hung up. What that last asked for may not have been heard; what its user wants is on
    /// record.
    fn abandon_if_held(&mut self, id: AppId) -> Option<Event> {
        let known_as_stopped = self.live.apps().get(&id).is_some_and(|app| app.user_stopped);
        if !known_as_stopped && self.registry.traces(&id).user_stopped {
            self.live.mark_user_stopped(&id);
            return Some(Event::Suspend(id));
        }
        self.abandon(id)
    }

    /// A program whose `run` went before it said that it has started: nobody will say so any more, and it runs as
    /// without coplace, where it runs. No turn is kept for it.
    fn abandon(&mut self, id: AppId) -> Option<Event> {
        self.live.apps().get(&id).filter(|app| !app.record.started)?;
        self.forget(&id);
        self.note(News::GivenUp { app: id.clone() });
        Some(Event::Left(id))
    }

    fn owns(&self, peer: PeerId, id: &AppId) -> bool {
        self.owners.get(id) == Some(&peer)
    }

    /// Whether a peer may change what concerns everybody.
    fn may_command(&self, peer: PeerId) -> bool {
        let own = linux::host::own_uid();
        self.server.uid(peer).is_some_and(|uid| uid == 0 || uid == own)
    }

    /// Arguments are for root and for the user whose program it is.
    fn drop_arguments(&self, peer: PeerId, owner: u32, command: &mut Vec<String>) {
        if !self.may_command(peer) && self.server.uid(peer) != Some(owner) {
            command.truncate(1);
        }
    }

    fn register(&mut self, peer: PeerId, mut record: AppRecord) -> Vec<Event> {
        let uid = self.server.uid(peer).unwrap_or(u32::MAX);
        let process = identity::to_linux(record.process);
        let theirs =
            procfs::status(process.pid, &Root::live()).is_ok_and(|status| uid == 0 || status.uid == uid);
        if !theirs || !process.is_same(&Root::live()) {
            let why = format!("process {} is gone, or not yours", process.pid);
            self.server.send(peer, &FromScheduler::Refused { why });
            return Vec::new();
        }
        record.uid = uid;
        if !record.pages.is_absolute() {
            record.pages = PathBuf::new();
        }
        let asked = record.id.clone();
        let known = self.live.apps().values().find(|app| app.record.process == record.process);
        let known = known.map(|app| app.record.id.clone());
        let environment = || {
            let pairs = self.engine.policy().launch_environment();
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let environment: BTreeMap<String, String> = environment();
        if let Some(id) = known {
            // Its `run` has come back to a scheduler that adopted the program already.
            self.owners.insert(id.clone(), peer);
            self.live.set_guardian(&id, record.guardian);
            if !record.started {
                // Whatever was said to it before reached nobody.
                self.live.mark_held(&id);
            }
            self.server.send(peer, &FromScheduler::Registered { asked, id, environment });
            self.let_go();
            return Vec::new();
        }
        if let Some(id) = self.pending.find(record.process).map(|record| record.id.clone()) {
            let why = self.shortage(&id).unwrap_or_default();
            self.owners.insert(id.clone(), peer);
            self.server.send(peer, &FromScheduler::Registered { asked, id: id.clone(), environment });
            self.server.send(peer, &FromScheduler::Waits { id, why });
            return Vec::new();
        }
        record.original_cpus = self.original_cpus(&record);
        nice::weigh_by_nice(&mut record.demand, process.pid);
        record.id = unique(&asked, |id| self.has_app(id));
        if let Err(error) = self.registry.write(&record) {
            let why = error.to_string();
            self.server.send(peer, &FromScheduler::Refused { why });
            return Vec::new();
        }
        let id = record.id.clone();
        self.owners.insert(id.clone(), peer);
        self.server.send(peer, &FromScheduler::Registered { asked, id, environment });
        // One that runs already, brought along by its `run`, waits for nothing.
        if record.started { self.begin_managing(record) } else { self.enter(record) }
    }

    fn set_policy(
        &mut self,
        peer: PeerId,
        name: &str,
        settings: Option<serde_json::Value>,
        script: Option<String>,
    ) -> Vec<Event> {
        if !self.may_command(peer) {
            let why = "only root or the user of this scheduler may set its policy".to_owned();
            self.server.send(peer, &FromScheduler::Refused { why });
            return Vec::new();
        }
        let mut options = self.options.clone();
        if let Some(settings) = settings {
            match serde_json::from_value(settings) {
                Ok(settings) => options.settings = settings,
                Err(error) => {
                    let why = format!("these are no settings of a policy: {error}");
                    self.server.send(peer, &FromScheduler::Refused { why });
                    return Vec::new();
                }
            }
        }
        options.policy = name.to_owned();
        options.settings.script = script;
        if let Err(error) = options.settings.check_live_times() {
            self.server.send(peer, &FromScheduler::Refused { why: error.to_string() });
            return Vec::new();
        }
        let settings = settings_for(&options, self.live.mechanisms());
        match policy::by_name(name, &settings) {
            Ok(policy) => {
                self.engine.set_settings(settings);
                self.note(News::Policy { name: policy.name() });
                self.options = options;
                let (letters, words) = (policy.letters().to_owned(), policy.words().to_owned());
                self.server.send(peer, &FromScheduler::Policy { letters, words });
                vec![Event::Policy(policy)]
            }
            Err(error) => {
                self.server.send(peer, &FromScheduler::Refused { why: error.to_string() });
                Vec::new()
            }
        }
    }

    fn record_for(&mut self, peer: PeerId) {
        if !self.may_command(peer) {
            let why = "only root or the user of this scheduler may record what it does".to_owned();
            self.server.send(peer, &FromScheduler::Refused { why });
            return;
        }
        let (tape, lines) = std::sync::mpsc::channel();
        self.engine.record_to(Box::new(Tape(tape)));
        self.readers.push(Reader { peer, lines });
        self.notify_readers();
    }

    /// What was recorded since the last time, to those who asked for it.
    pub(super) fn notify_readers(&mut self) {
        for reader in &self.readers {
            for line in reader.lines.try_iter() {
                self.server.send(reader.peer, &FromScheduler::Recorded { line });
            }
        }
    }

    fn send_policy(&mut self, peer: PeerId) {
        let policy = self.engine.policy();
        let (letters, words) = (policy.letters().to_owned(), policy.words().to_owned());
        self.server.send(peer, &FromScheduler::Policy { letters, words });
    }

    /// `None` for a program that is not here and was not lately.
    fn explain(&self, id: Option<&AppId>) -> Option<Explanation> {
        let concerns = |news: &News| id.is_none_or(|id| news.concerns(id));
        let history: Vec<_> = self.history.iter().filter(|entry| concerns(&entry.news)).cloned().collect();
        if id.is_some_and(|id| history.is_empty() && !self.has_app(id)) {
            return None;
        }
        let (plan, report) = (self.engine.plan().clone(), self.engine.report().clone());
        let app = id.map(|id| AppExplanation {
            id: id.clone(),
            waits_for: self.shortage(id),
            waiting: self.live.apps().get(id).and_then(|app| app.waiting()),
            moved: report.moves.get(id).cloned(),
        });
        Some(Explanation { history, plan, report, app })
    }

    fn status(&self, now: u64) -> Status {
        let stats = self.live.clock_stats();
        let mut lateness = stats.lateness_ns;
        lateness.sort_unstable();
        let at = |share: f64| lateness.get((lateness.len() as f64 * share) as usize).copied().unwrap_or(0);
        let snapshot = self.engine.snapshot(now - self.began_ns);
        let mechanisms = self.live.mechanisms();
        Status {
            pid: linux::host::own_pid(),
            role: self.role,
            policy: self.engine.policy().name(),
            plan: self.engine.plan().to_string(),
            allowed: snapshot.allowed,
            usable: snapshot.usable,
            placement: mechanisms.map_or("none: observing".into(), Mechanisms::describe_placement),
            turns: mechanisms.map_or("none: observing".into(), Mechanisms::describe_turns),
            report: self.engine.report().clone(),
            apps: self.live.status(now).into_iter().chain(self.pending_status(now)).collect(),
            services: self.services.iter().map(|service| service.status()).collect(),
            switches: stats.switches,
            jitter_median_ns: at(0.5),
            jitter_p95_ns: at(0.95),
            cpu_time_ns: process_cpu_ns(),
            uptime_ns: now - self.began_ns,
        }
    }
}

/// A peer that reads what is recorded.
pub(super) struct Reader {
    peer: PeerId,
    lines: Receiver<String>,
}

/// Hands lines to a reader; broken when that is gone.
struct Tape(Sender<String>);

impl Recorder for Tape {
    fn record(&mut self, entry: &Entry) -> io::Result<()> {
        let line = serde_json::to_string(entry)?;
        self.0.send(line).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// `cg`, or `cg.2`, `cg.3` … where that is taken.
pub(super) fn unique(asked: &AppId, taken: impl Fn(&AppId) -> bool) -> AppId {
    if !taken(asked) {
        return asked.clone();
    }
    (2..).map(|number| asked.numbered(number)).find(|id| !taken(id)).expect("numbers outnumber programs")
}
