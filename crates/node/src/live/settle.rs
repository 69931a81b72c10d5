//! Carrying out: teams, places and turns, brought step by step to what the plan wishes.

use std::collections::{BTreeMap, BTreeSet};

use engine::Actuator;
use plan::{AppChange, Change, Plan, TurnMode};
use topology::CpuSet;
use workload::AppId;

use super::managed::Wish;
use super::steps::{self, Next, Standing};
use super::{Failure, Live, Managed, NotWhole};
use crate::clock::Members;
use crate::error::{Error, Result};
use crate::mechanism::{Harness, Keep};
use crate::rotor::Rotation;

impl Live {
    /// Brings teams and places nearer to the plan; returns whether something is still on its way.
    pub fn settle(&mut self) -> bool {
        let mut on_its_way = false;
        for (app, managed) in &mut self.apps {
            let Some((place, threads)) = managed.wanted() else { continue };
            if !managed.record.started {
                // Its very first region is to have the right size already.
                if let Err(error) = managed.watch.set_target(threads) {
                    self.failures.push(Failure::of(app, error));
                }
                continue;
            }
            if managed.harness.is_none() {
                continue;
            }
            let asks_first =
                steps::resizes_first(managed.watch.target(), threads) || broken!(TeamsWidenedFirst);
            if asks_first && let Err(error) = managed.watch.set_target(threads) {
                self.failures.push(Failure::of(app, error));
            }
            let next = managed.next(&place);
            on_its_way |= next.on_its_way;
            managed.outgrew = next.outgrew;
            let keep = |traces: &_| self.registry.write_traces(app, traces);
            let placed = managed.place(&next.cpus, keep);
            // A team is widened on CPUs that it has.
            let widens = !asks_first && placed.is_ok();
            match placed {
                Ok(true) => {
                    let members = managed.watch.members();
                    if self.follower.start_following(app, members, &managed.placed, &next.cpus) {
                        managed.rates.mark_moved();
                    }
                    managed.placed = next.cpus;
                    managed.unplaced = None;
                }
                Ok(false) => {}
                Err(error) => {
                    // Said once, however often it is tried again.
                    let answer = error.linux().and_then(linux::Error::raw_os_error);
                    let unplaced = Some((next.cpus.clone(), answer));
                    if managed.unplaced != unplaced {
                        let error = Error::NotPlaced { cpus: next.cpus, error: Box::new(error) };
                        self.failures.push(Failure::of(app, error));
                        managed.unplaced = unplaced;
                    }
                }
            }
            if widens && let Err(error) = managed.watch.set_target(threads) {
                self.failures.push(Failure::of(app, error));
            }
        }
        self.settling = on_its_way;
        on_its_way
    }

    /// Gives the clock the rotation of the plan in force.
    pub(super) fn turn_wheels(&mut self) -> Result<(), NotWhole> {
        if self.mechanisms.is_none() {
            return Ok(());
        }
        let mut modes = self.plan.turn_modes();
        self.restrict_filling_to_siblings(&mut modes);
        let mut members = Members::new();
        let (mut held, mut whole) = (BTreeSet::new(), Ok(()));
        for (app, managed) in self.apps.iter_mut().filter(|(_, managed)| managed.may_take_turns()) {
            let waits = self.plan.waiting.contains(app);
            let mode = match modes.get(app) {
                _ if waits => TurnMode::Strict,
                Some(mode) => *mode,
                None => continue,
            };
            let harness = managed.harness.as_mut().expect("who takes turns has a harness");
            let keep = |traces: &_| self.registry.write_traces(app, traces);
            let (registry, id) = (self.registry.clone(), app.clone());
            let stopped_by_user = Box::new(move || registry.is_noted_as_stopped(&id));
            match harness.turn(mode, keep, stopped_by_user) {
                Ok(turn) => drop(members.insert(app.clone(), (mode, turn))),
                Err(error) => {
                    self.failures.push(Failure::of(app, Error::NoTurns(Box::new(error))));
                    whole = Err(NotWhole);
                }
            }
            if waits {
                held.insert(app.clone());
            }
        }
        self.clock.set(Rotation::new(self.plan.tree.as_ref()), members, held);
        whole
    }

    /// Who is not in turn runs by `cpu.idle` only where its group leaves CPUs idle: programs of different groups do
    /// not yield to one another by it, and stand still instead.
    fn restrict_filling_to_siblings(&self, modes: &mut BTreeMap<AppId, TurnMode>) {
        let fills: Vec<&Managed> = modes
            .iter()
            .filter(|(_, mode)| **mode == TurnMode::Filling)
            .filter_map(|(app, _)| self.apps.get(app).filter(|managed| managed.may_take_turns()))
            .collect();
        let mut groups = fills.iter().map(|managed| managed.harness.as_ref().and_then(Harness::idle_scope));
        let first = groups.next().flatten();
        if first.is_none() || groups.any(|group| group != first) {
            modes.values_mut().for_each(|mode| *mode = TurnMode::Strict);
        }
    }

    /// Sets every program free, in order: the scheduler stops, but the programs go on.
    pub fn set_all_free(&mut self) {
        self.plan = Plan::default();
        self.clock.set(Rotation::new(None), Members::new(), BTreeSet::new());
    }
}

impl Actuator for Live {
    type Error = NotWhole;

    /// What fails is tried again with the next step, as the engine counts it as not done.
    fn carry_out(&mut self, plan: &Plan, change: &Change) -> Result<(), NotWhole> {
        for (app, steps) in &change.apps {
            if let Some(managed) = self.apps.get_mut(app) {
                managed.follow(steps);
            }
        }
        self.plan = plan.clone();
        self.settle();
        self.turn_wheels()
    }
}

impl Managed {
    /// What is next on the way to `wished`.
    fn next(&mut self, wished: &CpuSet) -> Next {
        if self.observation.is_none() {
            self.watch.scan_pages();
        }
        if broken!(CpusTakenFirst) {
            return Next { cpus: wished.clone(), on_its_way: false, outgrew: false };
        }
        steps::next(&Standing {
            wished,
            placed: &self.placed,
            original: &self.record.original_cpus,
            nature: self.observation.as_ref().map(|observation| &observation.nature),
            threads: self.watch.threads_now(),
            widest: self.widest,
            asked: self.watch.asked_team(),
            waits_passively: self.observation.as_ref().is_some_and(|observation| observation.waits_passively),
            has_runtime: self.watch.has_runtime(),
        })
    }

    /// Confines its threads to these CPUs, where that is not done already; whether it was anything to do.
    fn place(&mut self, cpus: &CpuSet, keep: impl Keep) -> Result<bool> {
        let Some(harness) = &mut self.harness else { return Ok(false) };
        let newcomers = std::mem::take(&mut self.newcomers) && harness.places_by_thread();
        if *cpus == self.placed && !newcomers {
            return Ok(false);
        }
        harness.place(&self.watch.insiders(), cpus, keep).map(|()| true)
    }

    fn follow(&mut self, steps: &[AppChange]) {
        let wish = wish_of(self.wish.clone(), steps);
        if let (Some((old, _)), Some((new, _))) = (&self.wish, &wish) {
            if old.len() != new.len() {
                self.ledger.mark_reconfigured();
            }
            if !new.is_subset(old) && !old.is_subset(new) {
                self.ledger.mark_moved();
            }
        }
        self.wish = wish;
    }
}

/// Where a program is to be from now on, and with how many threads. One that stands in several slots has all of their
/// places, because masks do not change with the slots; who waits or is suspended keeps its place until it runs again.
fn wish_of(wish: Option<Wish>, steps: &[AppChange]) -> Option<Wish> {
    steps.iter().fold(wish, |wish, step| match (step, wish) {
        (AppChange::Started(to) | AppChange::Admitted(to) | AppChange::Resumed(to), _) => {
            Some((to.place.clone(), to.threads))
        }
        (AppChange::Moved { to, .. }, Some((_, threads))) => Some((to.clone(), threads)),
        (AppChange::Resized { to, .. }, Some((place, _))) => Some((place, *to)),
        (_, wish) => wish,
    })
}

#[cfg(test)]
mod tests {
    use plan::diff;

    use super::*;

    #[test]
    fn a_wish_follows_each_difference_between_plans() {
        let a = AppId::new("a").unwrap();
        let mut wish = None;
        let mut before = Plan::default();
        for (text, place, threads) in [
            ("a on 0-3", "0-3", 4),
            ("side_by_side [a on 0-1, b on 2-3]", "0-1", 2),
            ("side_by_side [a on 2-3, b on 0-1]", "2-3", 2),
            ("side_by_side [a on 2-3 x 1, b on 0-1]", "2-3", 1),
            ("b on 0-3 waiting [a]", "2-3", 1),
            ("b on 0-3 suspended [a]", "2-3", 1),
            ("in_turn [20ms a on 0-1, 20ms side_by_side [a on 2-3, b on 0-1]]", "0-3", 2),
        ] {
            let plan: Plan = text.parse().unwrap();
            let change = diff(&before, &plan);
            wish = wish_of(wish, change.apps.get(&a).map_or(&[][..], |steps| steps));
            assert_eq!(wish, Some((place.parse().unwrap(), threads)), "{text}");
            before = plan;
        }
    }
}
