//! Carrying out: teams, places and turns, brought step by step to what the plan wishes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use engine::Actuator;
use plan::{Change, Plan, State, TurnMode};
use workload::AppId;

use super::{Live, Managed};
use crate::clock::Members;
use crate::mechanism::Harness;
use crate::rotor::{self, Rotation};
use crate::watch::Nature;

impl Live {
    /// Brings teams and places nearer to the plan; returns whether something is still on its way.
    pub fn settle(&mut self) -> bool {
        let mut on_its_way = false;
        for (app, managed) in &mut self.apps {
            let Some((place, threads)) = managed.wanted() else { continue };
            if !managed.record.started {
                // Its very first region is to have the right size already.
                if let Err(error) = managed.watch.set_target(threads) {
                    self.warnings.push(format!("{app}: {error}"));
                }
                continue;
            }
            let Some(harness) = &mut managed.harness else { continue };
            let narrower = !managed.placed.is_subset(&place);
            if narrower && let Err(error) = managed.watch.set_target(threads) {
                self.warnings.push(format!("{app}: {error}"));
            }
            if managed.sight.is_none() {
                managed.watch.look_for_pages();
            }
            let next = match managed.sight.as_ref().map(|sight| &sight.nature) {
                Some(Nature::Resizable) => match managed.watch.threads_now() {
                    Some(team)
                        if team as usize > place.len().max(managed.watch.told_to_have() as usize)
                            && !managed.sight.as_ref().is_some_and(|s| s.waits_passively) =>
                    {
                        on_its_way = true;
                        place.union(&managed.placed)
                    }
                    _ => place.clone(),
                },
                Some(Nature::Rigid(_) | Nature::Stays(_)) => place.clone(),
                // Its runtime may be about to read the mask.
                _ => {
                    on_its_way |= managed.watch.has_runtime();
                    managed.record.original_cpus.clone()
                }
            };
            let newcomers = std::mem::take(&mut managed.newcomers) && harness.places_by_thread();
            if next != managed.placed || newcomers {
                let keep = |traces: &_| self.registry.write_traces(app, traces).map_err(io::Error::other);
                match harness.place(&managed.watch.insiders(), &next, keep) {
                    Ok(()) => {
                        if self.follower.moved(app, managed.watch.members(), &managed.placed, &next) {
                            managed.rates.moved();
                        }
                        managed.placed = next;
                        managed.unplaced = None;
                    }
                    Err(error) => {
                        let why = format!("{app} could not be placed on {next}: {error}");
                        if managed.unplaced.as_ref() != Some(&why) {
                            self.warnings.push(why.clone());
                            managed.unplaced = Some(why);
                        }
                    }
                }
            }
            if !narrower && let Err(error) = managed.watch.set_target(threads) {
                self.warnings.push(format!("{app}: {error}"));
            }
        }
        self.settling = on_its_way;
        on_its_way
    }

    /// Gives the clock the rotation of the plan in force.
    pub(super) fn turn_wheels(&mut self) {
        if self.mechanisms.is_none() {
            return;
        }
        let mut modes = rotor::modes(self.plan.tree.as_ref());
        self.only_siblings_fill(&mut modes);
        let mut members = Members::new();
        let mut held = BTreeSet::new();
        for (app, managed) in self.apps.iter_mut().filter(|(_, managed)| managed.takes_turns()) {
            let waits = self.plan.waiting.contains(app);
            let mode = match modes.get(app) {
                _ if waits => TurnMode::Strict,
                Some(mode) => *mode,
                None => continue,
            };
            let harness = managed.harness.as_mut().expect("who takes turns has a harness");
            let keep = |traces: &_| self.registry.write_traces(app, traces).map_err(io::Error::other);
            match harness.turn(mode, keep) {
                Ok(turn) => drop(members.insert(app.clone(), (mode, turn))),
                Err(error) => self.warnings.push(format!("{app} cannot take turns: {error}")),
            }
            if waits {
                held.insert(app.clone());
            }
        }
        self.clock.set(Rotation::new(self.plan.tree.as_ref()), members, held);
    }

    /// Who is not in turn runs by `cpu.idle` only where its group leaves CPUs idle: programs of different groups do
    /// not yield to one another by it, and stand still instead.
    fn only_siblings_fill(&self, modes: &mut BTreeMap<AppId, TurnMode>) {
        let fills: Vec<&Managed> = modes
            .iter()
            .filter(|(_, mode)| **mode == TurnMode::Filling)
            .filter_map(|(app, _)| self.apps.get(app).filter(|managed| managed.takes_turns()))
            .collect();
        let mut groups = fills.iter().map(|managed| managed.harness.as_ref().and_then(Harness::idles_within));
        let first = groups.next().flatten();
        if first.is_none() || groups.any(|group| group != first) {
            modes.values_mut().for_each(|mode| *mode = TurnMode::Strict);
        }
    }

    /// Sets every program free, in order: the scheduler stops, but the programs go on.
    pub fn let_all_go(&mut self) {
        self.plan = Plan::default();
        self.clock.set(Rotation::new(None), Members::new(), BTreeSet::new());
    }
}

impl Actuator for Live {
    type Error = io::Error;

    fn carry_out(&mut self, plan: &Plan, _change: &Change) -> io::Result<()> {
        // One that stands in several slots has all of their places, because masks do not change
        // with the slots.
        let states = plan.states();
        for (app, managed) in &mut self.apps {
            let wish = match states.get(app) {
                Some(State::Running(standing)) => Some((standing.place.clone(), standing.threads)),
                _ => None,
            };
            if let (Some(old), Some(new)) = (&managed.wish, &wish) {
                if old.0.len() != new.0.len() {
                    managed.ledger.reconfigured();
                }
                if !new.0.is_subset(&old.0) && !old.0.is_subset(&new.0) {
                    managed.ledger.moved();
                }
            }
            // Who waits or is suspended keeps its place until it runs again.
            managed.wish = wish.or(managed.wish.take());
        }
        self.plan = plan.clone();
        self.settle();
        self.turn_wheels();
        Ok(())
    }
}
