//! What programs in one domain cost each other: memory bandwidth and the last-level cache.
//!
//! A program that fills a domain asks for the share `bandwidth` of what the domain's memory delivers;
//! with k of its c CPUs for that × S(k) / S(c), as its speed is. The demands of all who run there at
//! the same time add up to U. Beyond 1 everybody gets less in proportion, and is slowed down as far
//! as it depends on memory:
//!
//! ```text
//! slow by bandwidth = 1 + weight × bandwidth × (U - 1), where U > 1
//! slow by cache     = 1 + cache × share of the domain's CPUs that others with data of their own use
//! ```
//!
//! Alone nobody exceeds 1, so that curves measured alone stay what they are. Who runs only part of
//! the time beside a program (in other turns) counts for that part.

use workload::Profile;

use crate::model::Laws;

/// What a program asks of one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Share of the domain's bandwidth.
    pub bandwidth: f64,
    /// Share of the domain's cache.
    pub cache: f64,
}

impl Demand {
    /// Of `cpus` of a program's CPUs in a domain of `of` CPUs.
    pub fn of(profile: &Profile, cpus: f64, of: f64) -> Demand {
        if profile.memory_bytes == 0 && profile.bandwidth == 0.0 {
            return Demand::default();
        }
        let full = profile.domain_cpus.map_or(of, f64::from);
        let speed = profile.curve.speedup(cpus) / profile.curve.speedup(full);
        Demand { bandwidth: profile.bandwidth * speed.min(1.0), cache: (cpus / of).min(1.0) }
    }

    /// Adds what another program demands for a part of the time, from 0 to 1.
    pub fn add(&mut self, other: Demand, part_of_the_time: f64) {
        self.bandwidth += other.bandwidth * part_of_the_time;
        self.cache += other.cache * part_of_the_time;
    }
}

/// By how much `others` slow a program down that itself asks for `own`.
pub fn slow(profile: &Profile, own: Demand, others: Demand, laws: &Laws) -> f64 {
    let over = (own.bandwidth + others.bandwidth - own.bandwidth.max(1.0)).max(0.0);
    let bandwidth = 1.0 + laws.bandwidth_weight * profile.bandwidth * over;
    bandwidth * (1.0 + profile.cache * others.cache.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn pair(one: &str, other: &str) -> f64 {
        let model = Model::built_in();
        let named = |name: &str| model.profiles.iter().find(|profile| profile.name == name).unwrap();
        let (own, others) = (Demand::of(named(one), 3.0, 6.0), Demand::of(named(other), 3.0, 6.0));
        slow(named(one), own, others, &model.laws)
    }

    #[test]
    fn alone_nobody_is_slowed_down() {
        let model = Model::built_in();
        for profile in &model.profiles {
            for cpus in 1..=6 {
                let own = Demand::of(profile, f64::from(cpus), 6.0);
                assert_eq!(slow(profile, own, Demand::default(), &model.laws), 1.0);
            }
        }
    }

    #[test]
    fn two_bandwidth_bound_programs_hurt_each_other_more() {
        assert!(pair("mg.B", "ft.B") > 1.2);
        assert_eq!(pair("is.C", "is.C"), 1.0);
        assert!(pair("bt.A", "mg.B") < pair("mg.B", "mg.B"));
    }

    #[test]
    fn lu_suffers_from_anybody_in_its_cache() {
        assert!(pair("lu.A", "is.C") > 1.1);
        assert!(pair("lu.A", "is.C") > pair("cg.B", "is.C"));
    }
}
