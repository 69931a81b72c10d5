//! What CPUs that share a core (SMT) cost each other.
//!
//! Within a program the curve knows it. With b the part of the time in which other programs run on
//! CPUs of the team's cores that are not its own, at most 1:
//!
//! ```text
//! keeps = 1 - b × (1 - core_share)
//! ```
//!
//! One thread that shares its core slows the whole team down, because work is divided evenly in
//! advance. On a machine whose cores have one CPU each nobody feels anything.

use workload::Profile;

/// What a program keeps of its speed while others are on its cores for `beside` of the time.
pub fn keeps(profile: &Profile, beside: f64) -> f64 {
    1.0 - beside.min(1.0) * (1.0 - profile.core_share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Curve;

    #[test]
    fn a_program_keeps_its_smt_share_beside_one_and_several() {
        let profile = Profile { core_share: 0.6, ..Profile::plain("p", 1, Curve::Linear) };
        assert_eq!(keeps(&profile, 0.0), 1.0);
        assert!((keeps(&profile, 0.5) - 0.8).abs() < 1e-12);
        assert!((keeps(&profile, 3.0) - 0.6).abs() < 1e-12);
    }
}
