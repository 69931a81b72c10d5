//! How fast a team is on its CPUs, by their number and by how they lie.
//!
//! With S the program's curve, c the CPUs of a domain of the machine where it was measured, k_d the
//! CPUs that the team has in domain d, n their sum and m the number of domains:
//!
//! ```text
//! speed-up = n × min over d of (S(k_d) / k_d) / slow_d × x(m) / (1 + scatter × (m - ⌈n / c⌉))
//! x(m)     = S(m c) / (m S(c)), what crossing domains leaves
//! ```
//!
//! - Within a domain a thread is as fast as the curve says for k_d threads: that is where cache and
//!   bandwidth are shared. The slowest domain decides, because work is divided evenly in advance.
//! - What is lost (or won) between one full domain and m of them is x(m). A gain, x > 1, comes from
//!   having all of their caches and is scaled by the share of them that the team has.
//! - `slow_d` is what neighbours do (`contention`).
//! - `scatter` is a program's extra loss for each domain more than needed.
//!
//! A team that fills its domains is exactly as fast as the curve says. A program of whose curve
//! nothing about domains is known is as fast as the curve says for n.

use workload::Profile;

/// Speed-up of a team with `parts` CPUs in each domain that it touches, each with what neighbours
/// slow it down by there (1: nothing).
pub fn speedup(profile: &Profile, parts: &[(f64, f64)]) -> f64 {
    let cpus: f64 = parts.iter().map(|(cpus, _)| cpus).sum();
    if cpus <= 0.0 {
        return 0.0;
    }
    let worst = parts.iter().map(|(_, slow)| *slow).fold(1.0, f64::max);
    let Some(domain) = profile.domain_cpus.map(f64::from) else {
        return profile.curve.speedup(cpus) / worst;
    };
    let a_cpu = |&(cpus, slow): &(f64, f64)| profile.curve.speedup(cpus) / cpus / slow;
    let slowest = parts.iter().map(a_cpu).fold(f64::INFINITY, f64::min);
    let domains = parts.len() as f64;
    let mut crossing = 1.0;
    if domains > 1.0 {
        crossing = profile.curve.speedup(domains * domain) / (domains * profile.curve.speedup(domain));
        if crossing > 1.0 {
            crossing = 1.0 + (crossing - 1.0) * (cpus / (domains * domain)).min(1.0);
        }
    }
    let needed = (cpus / domain).ceil().max(1.0);
    let spread = 1.0 + profile.scatter * (domains - needed).max(0.0);
    cpus * slowest * crossing / spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn full(profile: &Profile, cpus: u32) -> f64 {
        let parts: Vec<(f64, f64)> =
            if cpus <= 6 { vec![(f64::from(cpus), 1.0)] } else { vec![(6.0, 1.0); cpus as usize / 6] };
        speedup(profile, &parts)
    }

    #[test]
    fn table_i_comes_out_at_its_sizes() {
        for profile in Model::built_in().profiles {
            for cpus in [1, 2, 3, 6, 12, 24] {
                let (is, table) = (full(&profile, cpus), profile.curve.speedup(f64::from(cpus)));
                assert!((is - table).abs() < 1e-9, "{} on {cpus}: {is}, not {table}", profile.name);
            }
        }
    }

    #[test]
    fn saturating_programs_gain_by_spreading_and_sharing_ones_lose() {
        let model = Model::built_in();
        let named = |name: &str| model.profiles.iter().find(|profile| profile.name == name).unwrap();
        let apart = |name| speedup(named(name), &[(2.0, 1.0), (2.0, 1.0), (2.0, 1.0)]);
        assert!(apart("mg.B") > 2.0 * full(named("mg.B"), 6));
        assert!(speedup(named("lu.A"), &[(1.0, 1.0), (1.0, 1.0)]) < full(named("lu.A"), 2));
    }

    #[test]
    fn the_slowest_domain_decides() {
        let model = Model::built_in();
        let bt = &model.profiles[0];
        assert!(speedup(bt, &[(5.0, 1.0), (1.0, 1.0)]) < full(bt, 6));
        assert_eq!(speedup(bt, &[(3.0, 1.0), (3.0, 2.0)]), speedup(bt, &[(3.0, 1.0), (3.0, 1.0)]) / 2.0);
    }
}
