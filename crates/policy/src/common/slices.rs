//! How long the slots of one `in_turn` last.
//!
//! Each slot gets the part of the period that its claim is of all claims. The period is one
//! `slice_ns` for every slot, shortened so that nobody stands still for longer than
//! `max_still_ns`; a slot is never shorter than `min_slice_ns`, because below that the mechanism
//! no longer makes a gang run at the same time. Where the floor and the bound on standing still
//! contradict each other the floor wins, and the caller's report says so.

use crate::Settings;

/// Slices in nanoseconds for slots with the given claims (any unit, none 0). With `period_ns` the
/// slices fill exactly that time as far as the shortest slice allows: a turn inside a turn.
pub(crate) fn slices(claims: &[u64], settings: &Settings, period_ns: Option<u64>) -> Vec<u64> {
    let count = claims.len() as u64;
    let shortest = settings.min_slice_ns.max(1);
    let period = period_ns
        .unwrap_or_else(|| settings.slice_ns.max(1).saturating_mul(count).min(settings.max_still_ns))
        .max(shortest.saturating_mul(count));
    let mut slices = vec![0; claims.len()];
    let mut rest_period = period;
    let mut rest_claims: u128 = claims.iter().map(|&claim| u128::from(claim.max(1))).sum();
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
        assert_eq!(slices(&[7, 7, 7], &Settings::default(), None), [20 * MS; 3]);
    }

    #[test]
    fn many_slots_are_shortened_so_that_nobody_stands_still_too_long() {
        let slices = slices(&[1; 20], &Settings::default(), None);
        assert_eq!(slices, [10 * MS; 20]);
    }

    #[test]
    fn a_slot_is_never_shorter_than_the_mechanism_can_keep_together() {
        let slices = slices(&[1; 100], &Settings::default(), None);
        assert_eq!(slices, [5 * MS; 100]);
    }

    #[test]
    fn a_double_claim_gets_double_time() {
        assert_eq!(slices(&[2000, 1000], &Settings::default(), Some(60 * MS)), [40 * MS, 20 * MS]);
    }

    #[test]
    fn a_tiny_claim_takes_the_shortest_slice_off_the_others() {
        let slices = slices(&[1, 1_000_000, 1_000_000], &Settings::default(), Some(65 * MS));
        assert_eq!(slices, [5 * MS, 30 * MS, 30 * MS]);
    }
}
