//! How fast everybody is where it stands: the laws, applied.

use crate::laws::contention::{self, Demand};
use crate::laws::{place, smt, turns, waiting};
use crate::standing::{Leaf, NONE};

use super::{Phase, Program, World};

impl World {
    /// How fast `left` of a program falls, and how many CPUs it keeps busy.
    pub(super) fn rate(&self, at: usize, parts: &mut Vec<(f64, f64)>) -> (f64, f64) {
        let program = &self.programs[at];
        if program.phase == Phase::Starting {
            let share = |leaf: &Leaf| leaf.share() / leaf.crowd.max(1.0);
            let kept = |leaf: &Leaf| share(leaf) * self.core(program, leaf);
            return (program.leaves.iter().map(kept).sum(), program.leaves.iter().map(share).sum());
        }
        let (mut speed, mut cpus) = (0.0, 0.0);
        for leaf in &program.leaves {
            let (fast, busy) = self.leaf_speed(program, leaf, parts);
            speed += leaf.share() * fast;
            cpus += leaf.share() * busy;
        }
        let memory = program.pages.keeps(&program.profile, &self.laws, self.now_ns);
        (speed * memory / program.profile.sequential_ns as f64, cpus)
    }

    /// Load instructions a second that counters would show of a program now, for a whole domain; `None`: it executes none.
    pub(super) fn loads(&self, program: &Program) -> Option<f64> {
        let profile = &program.profile;
        if program.phase != Phase::Running || profile.loads_per_s == 0.0 || program.cpus_used == 0.0 {
            return None;
        }
        let size = self.domains.size(0);
        let full = profile.curve.speedup(profile.domain_cpus.map_or(size, f64::from));
        let speed = program.rate * profile.sequential_ns as f64;
        Some(profile.loads_per_s * (speed / full) * (size / program.cpus_used))
    }

    /// Speed against one thread while the leaf is in turn, and CPUs kept busy then.
    fn leaf_speed(&self, program: &Program, leaf: &Leaf, parts: &mut Vec<(f64, f64)>) -> (f64, f64) {
        let (team, cpus) = (f64::from(program.team), f64::from(leaf.cpus));
        if leaf.cpus == 0 {
            return (0.0, 0.0);
        }
        let used = team.min(cpus);
        let part = |&(domain, count): &(u16, u16)| {
            (f64::from(count) * used / cpus, self.slow(program, leaf, domain))
        };
        parts.clear();
        parts.extend(leaf.domains.iter().map(part));
        let profile = &program.profile;
        let alone = place::speedup(profile, parts) * self.core(program, leaf);
        let (crowd, busy) = match leaf.around.mixture {
            NONE => (team / cpus, used),
            _ => (leaf.crowd, used / leaf.crowd.max(1.0)),
        };
        let turns = if leaf.around.slice_ns > 0 {
            turns::keeps(profile, leaf.around.slice_ns, &self.laws)
        } else {
            1.0
        };
        if crowd <= 1.0 {
            return (alone * turns, busy);
        }
        let keeps = waiting::keeps(profile, program.waiting, program.team, alone, crowd, &self.laws);
        // More threads than CPUs and all its own: each CPU does its pieces of the work in whole rounds.
        let rounds = if leaf.around.mixture == NONE { crowd * crowd / crowd.ceil() } else { 1.0 };
        (alone * keeps * rounds * turns, busy)
    }

    /// Threads on each CPU of a leaf's place: those of all whose places in its mixture overlap with it,
    /// spread evenly over their own.
    pub(super) fn crowd(&self, leaf: &Leaf) -> f64 {
        if leaf.around.mixture == NONE {
            return 1.0;
        }
        let mut crowd = 0.0;
        for &(other, number) in &self.neighbours.mixtures[leaf.around.mixture as usize] {
            let (other, theirs) = (&self.programs[other], &self.programs[other].leaves[number]);
            if theirs.place.intersects(&leaf.place) {
                let team = if other.phase == Phase::Running { other.team } else { 1 };
                crowd += f64::from(team) / f64::from(theirs.cpus.max(1));
            }
        }
        crowd
    }

    /// By how much others in a domain slow a program down there.
    fn slow(&self, program: &Program, leaf: &Leaf, domain: u16) -> f64 {
        let profile = &program.profile;
        if profile.bandwidth == 0.0 && profile.cache == 0.0 {
            return 1.0;
        }
        let mut others = Demand::default();
        let mut own = Demand::default();
        for &(at, number) in &self.neighbours.occupants[domain as usize] {
            let other = &self.programs[at];
            if other.phase != Phase::Running {
                continue;
            }
            let theirs = &other.leaves[number];
            let crowd = theirs.crowd.max(1.0);
            let demand = self.demand(other, theirs, domain);
            if std::ptr::eq(theirs, leaf) {
                own.add(demand, 1.0 / crowd);
            } else if other.app.id != program.app.id {
                others.add(demand, leaf.overlap(theirs) / crowd);
            }
        }
        contention::slow(profile, own, others, &self.laws)
    }

    /// What a program keeps of its speed beside those who are on the other CPUs of its cores.
    fn core(&self, program: &Program, leaf: &Leaf) -> f64 {
        if program.profile.core_share == 1.0 || leaf.beside.is_empty() {
            return 1.0;
        }
        let mut beside = 0.0;
        for &(domain, _) in &leaf.domains {
            for &(at, number) in &self.neighbours.occupants[domain as usize] {
                let (other, theirs) = (&self.programs[at], &self.programs[at].leaves[number]);
                // Who is in several domains stands in the list of each.
                let counts =
                    leaf.domains.iter().find(|mine| theirs.domains.iter().any(|its| its.0 == mine.0));
                let first = counts.is_some_and(|&(first, _)| first == domain);
                if first && other.app.id != program.app.id && theirs.place.intersects(&leaf.beside) {
                    let team = if other.phase == Phase::Running { other.team } else { 1 };
                    let busy = (f64::from(team) / f64::from(theirs.cpus.max(1))).min(1.0);
                    beside += leaf.overlap(theirs) * busy / theirs.crowd.max(1.0);
                }
            }
        }
        smt::keeps(&program.profile, beside)
    }

    fn demand(&self, program: &Program, leaf: &Leaf, domain: u16) -> Demand {
        let count = leaf.domains.iter().find(|(known, _)| *known == domain).map_or(0, |&(_, count)| count);
        let used = f64::from(program.team).min(f64::from(leaf.cpus)) / f64::from(leaf.cpus.max(1));
        Demand::of(&program.profile, f64::from(count) * used, self.domains.size(domain))
    }
}
