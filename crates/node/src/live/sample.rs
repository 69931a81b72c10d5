//! Looking at programs: what became of them since the last look, and what others did to them meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use linux::{Root, signals};
use workload::AppId;

use super::managed::rebind;
use super::{Failure, Live, Managed};
use crate::account::Standing;
use crate::clock::ClockStats;
use crate::error::Error;
use crate::mechanism::{Harness, Keep};
use crate::rates::Beside;
use crate::watch::{Nature, Observation};

/// Why a program is not resized whose threads keep CPUs of their own.
const EACH_BOUND: &str = "its threads are bound to CPUs one by one, by the program or by who started it";

/// Looks in a row that must find a program stopped before somebody else counts as having done it.
const STOPPED_SAMPLES: u32 = 2;

/// Processes that are asked whether they are being killed. Whoever means a job of more kills its first one, or all.
const MOST_ASKED: usize = 32;

/// What somebody other than the scheduler did to a program.
pub enum ExternalChange {
    Stopped(AppId),
    Continued(AppId),
    Ended(AppId),
    /// Its groups were removed, empty as those of a launcher are that has started nobody yet.
    GroupsRemoved(AppId),
}

/// The same of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Stopped,
    Continued,
    Ended,
}

/// What one look at a program found, as far as it tells what others did.
#[derive(Clone, Copy, Debug)]
struct Found {
    ended: bool,
    stopped: bool,
    /// Somebody else stopped it, as far as is known already.
    user_stopped: bool,
    /// Looks in a row, with this one, that found it stopped and not by us.
    stopped_samples: u32,
}

fn external_change(found: Found) -> Option<Done> {
    match found {
        Found { ended: true, .. } => Some(Done::Ended),
        Found { stopped_samples: STOPPED_SAMPLES, user_stopped: false, .. } => Some(Done::Stopped),
        Found { user_stopped: true, stopped: false, .. } => Some(Done::Continued),
        _ => None,
    }
}

impl Live {
    /// Looks at every program; returns what others did to them meanwhile.
    pub fn sample(&mut self, now_ns: u64) -> Vec<ExternalChange> {
        let (mut news, mut killed) = (Vec::new(), Vec::new());
        let stats = self.clock.stats();
        let running: BTreeSet<AppId> =
            self.apps.values().filter(|m| m.record.started).map(|m| m.record.id.clone()).collect();
        let (sharing, company) = (self.plan.sharing(), self.plan.company());
        let names: BTreeMap<AppId, AppId> =
            self.apps.iter().map(|(app, managed)| (app.clone(), managed.program())).collect();
        for (app, managed) in self.apps.iter_mut().filter(|(_, managed)| managed.record.started) {
            let keep = |traces: &_| self.registry.write_traces(app, traces);
            let still_ns = stats.still_ns.get(app).copied().unwrap_or(0);
            // On a busy machine the clock may turn several times while one program is looked at.
            let began_ns = linux::clock::now_ns();
            let out_of_turn = || self.clock.stopped_since(app, began_ns);
            let (observation, failed) = managed.observe(now_ns, still_ns, out_of_turn, keep, &self.root);
            self.failures.extend(failed.into_iter().map(|error| Failure::of(app, error)));
            let ours = out_of_turn();
            if ours && managed.is_killed(&self.root) {
                killed.push(app.clone());
            }
            managed.stopped_samples =
                if observation.stopped && !ours { managed.stopped_samples + 1 } else { 0 };
            let found = Found {
                ended: observation.ended,
                stopped: observation.stopped,
                user_stopped: managed.user_stopped,
                stopped_samples: managed.stopped_samples,
            };
            news.extend(external_change(found).map(|done| match done {
                Done::Ended => ExternalChange::Ended(app.clone()),
                Done::Stopped => ExternalChange::Stopped(app.clone()),
                Done::Continued => ExternalChange::Continued(app.clone()),
            }));
            if managed.harness.as_ref().is_some_and(Harness::has_lost_groups) {
                news.push(ExternalChange::GroupsRemoved(app.clone()));
            }
            managed.charge(now_ns, &observation, &stats, &running);
            managed.observation = Some(observation);
            let beside = concurrent(company.get(app), &names);
            if self.follower.is_moving(app) {
                // What it does meanwhile belongs neither to the old place nor to the new one.
                managed.rates.mark_moved();
            }
            managed.learn_speed(!self.settling && !sharing.contains(app), beside);
        }
        killed.iter().for_each(|app| self.mark_terminating(app));
        news
    }
}

/// Who ran at the same time, by the names that programs have in all their runs.
fn concurrent(others: Option<&BTreeSet<AppId>>, names: &BTreeMap<AppId, AppId>) -> Beside {
    // Of one that no plan has it is not known.
    let Some(others) = others else { return Beside::Several };
    let mut others = others.iter();
    match (others.next(), others.next()) {
        (None, _) => Beside::Nobody,
        (Some(one), None) => names.get(one).cloned().map_or(Beside::Several, Beside::One),
        (Some(_), Some(_)) => Beside::Several,
    }
}

impl Managed {
    /// What is seen of it, with its harness brought up to its processes and threads; and what failed of that.
    fn observe(
        &mut self,
        now_ns: u64,
        still_ns: u64,
        out_of_turn: impl Fn() -> bool,
        keep: impl Keep,
        root: &Root,
    ) -> (Observation, Vec<Error>) {
        let mut failed: Vec<Error> = Vec::new();
        let known = (self.watch.members().to_vec(), self.watch.outsiders().clone());
        let mut observation = self.watch.sample(now_ns, still_ns, out_of_turn);
        self.widest = self.widest.max(self.watch.threads_now().unwrap_or(0));
        self.outgrew = false;
        let (members, outsiders, insiders) =
            (self.watch.members(), self.watch.outsiders(), self.watch.insiders());
        if let Some(harness) = &mut self.harness
            && (known.0 != members || known.1 != *outsiders || self.observation.is_none())
        {
            let updated = harness.update(&insiders, outsiders, &self.record.original_cpus);
            failed.extend(updated.err().map(Error::from));
        }
        if let Some(harness) = &self.harness {
            harness.unbind_late(&insiders);
        }
        failed.extend(self.sample_masks(&keep).err());
        // Said once, by whoever stopped it; here it is tried again.
        let _ = self.record_stop(&keep);
        if self.chosen.is_each() && matches!(observation.nature, Nature::Resizable | Nature::StuckInRegion(_))
        {
            observation.nature = Nature::Rigid(EACH_BOUND.into());
        }
        if self.record.terms.rebind {
            let original = &self.record.original_cpus;
            self.newcomers |= rebind(&insiders, &self.placed, original, root);
        }
        // What a launcher starts was born outside of every place, and it may execute something else itself.
        self.newcomers |= known.0 != self.watch.members() && !self.watch.outsiders().is_empty();
        self.newcomers |= known.1.iter().any(|outsider| insiders.contains(outsider));
        (observation, failed)
    }

    /// Whether somebody kills it who cannot reach it while it is not in turn.
    fn is_killed(&self, root: &Root) -> bool {
        let holds = !self.terminating && self.harness.as_ref().is_some_and(Harness::delays_kills);
        let members = self.watch.members().iter().take(MOST_ASKED);
        holds && members.into_iter().any(|process| signals::is_killed(*process, root))
    }

    fn charge(
        &mut self,
        now_ns: u64,
        observation: &Observation,
        stats: &ClockStats,
        running: &BTreeSet<AppId>,
    ) {
        let app = &self.record.id;
        let neighbours: BTreeSet<AppId> = running.iter().filter(|other| *other != app).cloned().collect();
        let full = observation.max_team.unwrap_or(0);
        let alone = neighbours.is_empty() && full > 0 && observation.team == Some(full) && !self.user_stopped;
        let standing = Standing {
            place: &self.placed,
            in_turn_ns: stats.in_turn_ns.get(app).copied().unwrap_or(0),
            turns: stats.turns.get(app).copied().unwrap_or(0),
            alone,
            neighbours: &neighbours,
            regions: observation.regions,
            cpu_time_ns: observation.cpu_time_ns,
        };
        self.ledger.charge(now_ns, &standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: Found = Found { ended: false, stopped: false, user_stopped: false, stopped_samples: 0 };

    #[test]
    fn two_samples_confirm_a_stop_by_others() {
        assert_eq!(external_change(RUNS), None);
        let stopped = |stopped_samples| Found { stopped: true, stopped_samples, ..RUNS };
        assert_eq!(external_change(stopped(1)), None);
        assert_eq!(external_change(stopped(2)), Some(Done::Stopped));
        assert_eq!(external_change(stopped(3)), None, "it was said once");
        assert_eq!(external_change(Found { user_stopped: true, ..stopped(2) }), None, "its user said so");
    }

    #[test]
    fn a_program_that_runs_again_was_continued() {
        let known = Found { user_stopped: true, ..RUNS };
        assert_eq!(external_change(known), Some(Done::Continued));
        assert_eq!(external_change(Found { stopped: true, ..known }), None);
        assert_eq!(external_change(Found { ended: true, ..known }), Some(Done::Ended));
    }

    #[test]
    fn one_neighbour_is_named_and_several_are_not() {
        let id = |name: &str| AppId::new(name).unwrap();
        let names: BTreeMap<AppId, AppId> = [(id("cg.2"), id("cg")), (id("lu"), id("lu"))].into();
        assert_eq!(concurrent(None, &names), Beside::Several);
        assert_eq!(concurrent(Some(&BTreeSet::new()), &names), Beside::Nobody);
        assert_eq!(concurrent(Some(&[id("cg.2")].into()), &names), Beside::One(id("cg")));
        assert_eq!(concurrent(Some(&[id("gone")].into()), &names), Beside::Several);
        assert_eq!(concurrent(Some(&[id("cg.2"), id("lu")].into()), &names), Beside::Several);
    }
}
