//! When another team size is taken up: at the next parallel region, and not before. A program is a
//! sequence of equally long regions (which is what the mean delays of Table I say: half a region).

/// Work that is left to be done until the next region begins, as a fraction of all the work, when
/// `left` of it is left.
pub fn until_next(regions: u64, left: f64) -> f64 {
    let regions = regions as f64;
    // Counted from the end, so that the last boundary is the end itself.
    let boundary = (left * regions).ceil() - 1.0;
    (left - boundary / regions).clamp(0.0, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_region_begins_at_the_next_multiple() {
        assert!((until_next(10, 0.95) - 0.05).abs() < 1e-12);
        assert!((until_next(10, 0.9) - 0.1).abs() < 1e-9);
        assert!((until_next(10, 0.03) - 0.03).abs() < 1e-12);
        assert_eq!(until_next(1, 0.7), 0.7);
        assert_eq!(until_next(5, 0.0), 0.0);
    }
}
