//! What it costs when threads outnumber CPUs and nobody coordinates them.
//!
//! With L threads on each CPU a thread runs for 1/L of the time. Besides, whenever the threads of a
//! program wait for one another, the one they wait for may not be running: each wait costs (L - 1) × τ,
//! and τ depends on how they wait. Asleep (passive), the CPU goes to the one who has work. Spinning
//! before they sleep they take the CPU from it for a while. Spinning for ever (active) they keep it
//! for a whole slice. With w waits in the time that the program would take at this size alone:
//!
//! ```text
//! time = alone × L × (1 + uneven × (1 - 1/L)) + w × (L - 1) × τ
//! ```
//!
//! `uneven` is the unequal progress of threads that the kernel treats one by one: at every wait the
//! slowest decides. A single thread waits for nobody and pays nothing but its share.

use workload::{Profile, Waiting};

use crate::model::Laws;

/// How a program's threads wait: as it does itself, else as its runtime does.
pub fn of(profile: &Profile, runtime: Waiting) -> Waiting {
    profile.waiting.unwrap_or(runtime)
}

/// Factor on the speed of a team that is `speedup` times faster than one thread and has to share its
/// CPUs with `threads_a_cpu` - 1 others, or with itself.
pub fn keeps(
    profile: &Profile,
    waiting: Waiting,
    team: u32,
    speedup: f64,
    threads_a_cpu: f64,
    laws: &Laws,
) -> f64 {
    let l = threads_a_cpu;
    if l <= 1.0 {
        return 1.0;
    }
    if team <= 1 {
        return 1.0 / l;
    }
    let wait_ns = match waiting {
        Waiting::Passive => laws.wait_passive_ns,
        Waiting::Spinning => laws.wait_spinning_ns,
        Waiting::Active => laws.wait_active_ns,
    };
    let waits_a_ns =
        profile.regions as f64 * profile.waits_per_region * speedup / profile.sequential_ns as f64;
    1.0 / (l * (1.0 + laws.uneven * (1.0 - 1.0 / l)) + waits_a_ns * (l - 1.0) * wait_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn named(name: &str, waiting: Waiting, l: f64) -> f64 {
        let model = Model::built_in();
        let profile = model.profiles.iter().find(|profile| profile.name == name).unwrap();
        keeps(profile, of(profile, waiting), 24, profile.curve.speedup(24.0), l, &model.laws)
    }

    #[test]
    fn with_a_cpu_for_each_thread_nothing_is_lost() {
        assert_eq!(named("ua.A", Waiting::Spinning, 1.0), 1.0);
    }

    #[test]
    fn passive_waiting_loses_little_where_spinning_loses_much() {
        assert!(named("ua.A", Waiting::Passive, 2.0) > 0.4);
        assert!(named("ua.A", Waiting::Spinning, 2.0) < 0.2);
        assert!(named("ft.B", Waiting::Spinning, 2.0) > 0.45);
    }

    #[test]
    fn a_program_that_spins_by_itself_is_not_helped_by_its_runtime() {
        assert_eq!(named("lu.A", Waiting::Passive, 2.0), named("lu.A", Waiting::Spinning, 2.0));
        assert!(named("lu.A", Waiting::Passive, 2.0) < 0.1);
    }

    #[test]
    fn a_single_thread_pays_its_share_alone() {
        let model = Model::built_in();
        let lu = &model.profiles[4];
        assert_eq!(keeps(lu, Waiting::Active, 1, 1.0, 4.0, &model.laws), 0.25);
    }
}
