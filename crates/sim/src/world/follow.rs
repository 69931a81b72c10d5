//! The world led by a record: who came, was seen and left when, and which plans were in force. What
//! nobody knows, how much work that was, is what comes out.

use std::convert::Infallible;

use engine::Actuator;
use plan::{Plan, diff};

use super::{Phase, World};
use crate::laws::start;
use crate::queue::Kind;

impl World {
    /// Goes on to `now_ns`, and lets happen what happens by itself until then.
    pub fn passes(&mut self, now_ns: u64) {
        while let Some(next_ns) = self.next_ns().filter(|&next_ns| next_ns <= now_ns) {
            self.now_ns = next_ns.max(self.now_ns);
            while let Some((at, kind)) = self.happens() {
                match kind {
                    Kind::End => _ = self.ends(at),
                    Kind::PhaseChange => self.next_phase(at),
                    Kind::TeamChange => self.apply_team(at),
                    Kind::Migrated => self.migrated(at),
                }
            }
            self.settle();
        }
        self.now_ns = now_ns.max(self.now_ns);
    }

    pub fn is_starting(&self, at: usize) -> bool {
        self.programs[at].phase == Phase::Starting
    }

    /// It was seen with this team, which ends its start-up.
    pub fn set_observed_team(&mut self, at: usize, team: u32) {
        self.catch_up(at);
        let program = &mut self.programs[at];
        if program.phase == Phase::Starting {
            (program.phase, program.left) = (Phase::Running, 1.0);
        }
        program.team = team;
        program.app.team = Some(team);
        self.disturbed(at);
    }

    /// What it has done so far: start-up in nanoseconds, and a part of its work.
    pub fn did(&mut self, at: usize) -> (f64, f64) {
        self.catch_up(at);
        let (program, laws) = (&self.programs[at], &self.laws);
        match program.phase {
            Phase::Starting => (start::ns(&program.profile, laws) - program.left, 0.0),
            Phase::Running => (0.0, 1.0 - program.left),
            Phase::Absent | Phase::Ended => (0.0, 0.0),
        }
    }

    /// Everybody stands where the plan says.
    pub fn stands_by(&mut self, plan: &Plan) {
        let change = diff(&Plan::default(), plan);
        // A plan may say nothing of somebody, who then stands nowhere.
        for at in self.present.clone() {
            if !change.apps.contains_key(&self.programs[at].app.id) {
                self.vacates(at);
            }
        }
        let Ok(()): Result<(), Infallible> = self.carry_out(plan, &change);
        self.settle();
    }

    /// It ended.
    pub fn left(&mut self, at: usize) {
        self.vacates(at);
        self.leaves(at);
        self.index.remove(&self.programs[at].app.id);
    }

    fn vacates(&mut self, at: usize) {
        self.disturbed(at);
        self.neighbours.remove(at);
        self.programs[at].leaves.clear();
    }
}
