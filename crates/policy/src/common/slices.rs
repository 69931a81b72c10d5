//! How long the slots of one `in_turn` last.
//!
//! Each slot gets the part of the period that its claim is of all claims. The period is one
//! `slice_ns` for every slot, longer where the smallest claim would else be less than the shortest
//! slice, but shortened so that nobody stands still for longer than `max_still_ns`; a slot is never shorter than `min_slice_ns`, because below that the mechanism
//! no longer makes a gang run at the same time. Where the floor and the bound on standing still
//! contradict each other the floor wins, and the caller's report says so.

use crate::Settings;

/// How long all slots together last.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Period {
    /// As the settings have it.
    Usual,
    /// The same, but up to twice as long as programs may stand still where the smallest claim needs
    /// that: exact shares go before.
    Exact,
    /// Exactly so many nanoseconds, as far as the shortest slice allows: a turn inside a turn.
    Of(u64),
}

/// Slices in nanoseconds for slots with the given claims (any unit, none 0).
pub(crate) fn slices(claims: &[u64], settings: &Settings, period: Period) -> Vec<u64> {
    let count = claims.len() as u64;
    let shortest = settings.min_slice_ns.max(1);
    let all_claims: u128 = claims.iter().map(|&claim| u128::from(claim.max(1))).sum();
    let least = u128::from(claims.iter().copied().min().unwrap_or(1).max(1));
    let exact = u64::try_from((u128::from(shortest) * all_claims).div_ceil(least)).unwrap_or(u64::MAX);
    let usual = settings.slice_ns.max(1).saturating_mul(count);
    let period = match period {
        Period::Usual => usual.max(exact).min(settings.max_still_ns),
        Period::Exact => {
            usual.min(settings.max_still_ns).max(exact.min(settings.max_still_ns.saturating_mul(2)))
        }
        Period::Of(period_ns) => period_ns,
    };
    let period = period.max(shortest.saturating_mul(count));
    let mut slices = vec![0; claims.len()];
    let mut rest_period = period;
    let mut rest_claims = all_claims;
    // Smallest claims first: who falls below the shortest slice takes it off the others' time.
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|&index| (claims[index], index));
    for index in order {
        let claim = u128::from(claims[index].max(1));
        let slice = (u128::from(rest_period) * claim / rest_claims) as u64;
        slices[index] = slice.max(shortest);
        rest_period = rest_period.saturating_sub(slices[index]);
        rest_claims -= claim;
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn equal_claims_get_the_default_slice_each() {
        assert_eq!(slices(&[7, 7], &Settings::default(), Period::Usual), [100 * MS; 2]);
    }

    #[test]
    fn many_slots_are_shortened_to_bound_standing_still() {
        let slices = slices(&[1; 20], &Settings::default(), Period::Usual);
        assert_eq!(slices, [10 * MS; 20]);
    }

    #[test]
    fn a_slot_is_never_shorter_than_the_mechanism_can_keep_together() {
        let slices = slices(&[1; 100], &Settings::default(), Period::Usual);
        assert_eq!(slices, [5 * MS; 100]);
    }

    #[test]
    fn the_period_grows_until_the_smallest_claim_fills_a_slice() {
        let settings = Settings { slice_ns: 60 * MS, ..Settings::default() };
        assert_eq!(slices(&[1000, 29_000], &settings, Period::Usual), [5 * MS, 145 * MS]);
        assert_eq!(slices(&[1000, 59_000], &settings, Period::Usual), [5 * MS, 195 * MS]);
        assert_eq!(slices(&[1000, 59_000], &settings, Period::Exact), [5 * MS, 295 * MS]);
        assert_eq!(slices(&[1000, 99_000], &settings, Period::Exact), [5 * MS, 395 * MS]);
    }

    #[test]
    fn a_double_claim_gets_double_time() {
        assert_eq!(slices(&[2000, 1000], &Settings::default(), Period::Of(60 * MS)), [40 * MS, 20 * MS]);
    }

    #[test]
    fn a_tiny_claim_takes_the_shortest_slice_off_the_others() {
        let slices = slices(&[1, 1_000_000, 1_000_000], &Settings::default(), Period::Of(65 * MS));
        assert_eq!(slices, [5 * MS, 30 * MS, 30 * MS]);
    }
}
