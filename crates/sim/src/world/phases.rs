//! Programs whose work asks for one thing after another.

use std::sync::Arc;

use workload::Profile;

/// The phases of a program's work, in order.
#[derive(Clone, Debug)]
pub struct Phases {
    /// Of one round: the program as it is in each, and the part of the round that is done at its end.
    each: Vec<(Arc<Profile>, f64)>,
    rounds: u32,
}

impl Phases {
    /// `None`: its work is all alike.
    pub fn of(profile: &Profile) -> Option<Phases> {
        let mut done = 0.0;
        let mut each = Vec::new();
        for phase in &profile.phases {
            done += phase.work;
            let (bandwidth, cache, loads_per_s) = (phase.bandwidth, phase.cache, phase.loads_per_s);
            let now = Profile { bandwidth, cache, loads_per_s, phases: Vec::new(), ..profile.clone() };
            each.push((Arc::new(now), done));
        }
        (!each.is_empty()).then_some(Phases { each, rounds: profile.rounds })
    }

    /// The program as it is in a phase, counted from the first.
    pub fn profile(&self, number: usize) -> &Arc<Profile> {
        &self.each[number % self.each.len()].0
    }

    /// What is left of all its work when a phase ends; `None`: it is the last.
    pub fn left_after(&self, number: usize) -> Option<f64> {
        let (round, within) = (number / self.each.len(), number % self.each.len());
        let last = number + 1 >= self.each.len() * self.rounds as usize;
        (!last).then(|| 1.0 - (round as f64 + self.each[within].1) / f64::from(self.rounds))
    }

    /// Whether it feels or causes contention in any of them.
    pub fn contend(&self) -> bool {
        self.each.iter().any(|(profile, _)| profile.bandwidth > 0.0 || profile.cache > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use workload::{Curve, PhaseDemand};

    use super::*;

    #[test]
    fn phases_follow_one_another_round_by_round() {
        let phase = |work, bandwidth| PhaseDemand { work, bandwidth, cache: 0.0, loads_per_s: 0.0 };
        let plain = Profile::plain("p", 1, Curve::Amdahl { serial: 0.0 });
        assert!(Phases::of(&plain).is_none());
        let profile = plain.in_phases(vec![phase(1.0, 0.25), phase(3.0, 0.5)], 2);
        assert_eq!(profile.bandwidth, 0.4375);
        let phases = Phases::of(&profile).expect("two");
        assert_eq!([0, 1, 2, 3].map(|at| phases.profile(at).bandwidth), [0.25, 0.5, 0.25, 0.5]);
        assert_eq!([0, 1, 2, 3].map(|at| phases.left_after(at)), [Some(0.875), Some(0.5), Some(0.375), None]);
        assert!(phases.contend());
    }
}
