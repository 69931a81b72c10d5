//! What taking turns costs: at the beginning of each slice the switch itself, and the time in which
//! the program fills the caches again that others had meanwhile.

use workload::Profile;

use crate::model::Laws;

/// However short the slices are, something gets done: the mechanisms see to that.
const LEAST: f64 = 0.05;

/// Part of a slice that is left for work.
pub fn keeps(profile: &Profile, slice_ns: u64, laws: &Laws) -> f64 {
    let refill_ns = if profile.memory_bytes > 0 { laws.refill_ns } else { 0.0 };
    (1.0 - (laws.switch_ns + refill_ns) / slice_ns.max(1) as f64).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn longer_slices_lose_less() {
        let model = Model::built_in();
        let keeps = |slice_ms: u64| keeps(&model.profiles[0], slice_ms * 1_000_000, &model.laws);
        assert!(keeps(5) < keeps(20) && keeps(20) < keeps(200) && keeps(200) < 1.0);
        assert_eq!(keeps(0), LEAST);
    }
}
