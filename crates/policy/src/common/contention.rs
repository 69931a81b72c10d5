//! What is expected of programs that share a node's memory, as long as nothing was measured on this machine.
//!
//! Programs that together ask for more than a node delivers are served in proportion to what each asks for, and a program
//! waits for memory during the part of its time that is its share of the node's bandwidth when it runs there alone:
//!
//! ```text
//! slowdown = 1 + share × (demand of all - 1), where all ask for more than there is
//! ```
//!
//! No machine or simulation was fitted to this: memory controllers that favour some requests, and caches, make it too
//! low or too high. `experiments/adaptive` shows what that costs where the law is another one.

/// What the next doubling of a program's CPUs brings, as long as its speed-up is not known.
pub(crate) const DOUBLING: f64 = 1.6;

/// How much slower a program gets that asks for `share` of a node's bandwidth alone, and for `own` with the CPUs that it
/// has there, when all together ask for `all`.
pub(crate) fn slow_by_bandwidth(share: f64, own: f64, all: f64) -> f64 {
    1.0 + share * (all - own.max(1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_only_waits_for_memory_gets_its_part_of_it() {
        let each = 1.0 / DOUBLING;
        // Two that ask for 1.25 together: each gets four fifths of what it asks for.
        assert!((slow_by_bandwidth(1.0, each, 2.0 * each) - 1.25).abs() < 1e-12);
        assert_eq!(slow_by_bandwidth(0.5, 0.5, 1.5), 1.25);
    }

    #[test]
    fn what_a_node_delivers_slows_nobody() {
        assert_eq!(slow_by_bandwidth(1.0, 0.5, 1.0), 1.0);
        assert_eq!(slow_by_bandwidth(0.0, 0.0, 3.0), 1.0);
        assert_eq!(slow_by_bandwidth(1.0, 1.5, 1.5), 1.0);
    }
}
