//! The benchmark by hand: sums that can be done on paper.

use coplace_sessions::allocation::{Allocation, Layout, Shape};
use coplace_sessions::djsb::{Benchmark, Outcome};
use coplace_sessions::session::{Pause, Share, WhenFull};
use coplace_sessions::simulate::Memory;

fn benchmark(when_full: WhenFull) -> Benchmark {
    Benchmark {
        allocation: Allocation { nodes: 4, cores: 40 },
        memory: Memory { saturating: 1000.0 },
        simulation: Shape { processes: 160, threads: 1 },
        analysis: Shape { processes: 32, threads: 1 },
        layout: Layout::Compact,
        when_full,
        simulation_s: 100.0,
        analysis_s: 20.0,
        requested_s: 30.0,
        normalisation_s: 70.0,
    }
}

fn run(when_full: WhenFull) -> Outcome {
    benchmark(when_full).run().unwrap()
}

#[track_caller]
fn about(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
}

#[test]
fn a_waiting_analysis_runs_alone_after_the_simulation() {
    let outcome = run(WhenFull::Wait);
    about(outcome.wait_s, 70.0);
    about(outcome.wait_coefficient, 0.5);
    about(outcome.analysis_efficiency, 2.0);
    // 32 of 160 slots for a fifth of the time.
    about(outcome.simulation_efficiency, 1.04);
    about(outcome.dynamicity_ratio, 1.04);
}

#[test]
fn a_paused_simulation_ends_later_by_the_time_of_the_analysis() {
    let outcome = run(WhenFull::Pause(Pause::Needed));
    about(outcome.simulation_s, 120.0);
    about(outcome.response_s, 20.0);
    about(outcome.simulation_efficiency, 1.04 / 1.2);
}

#[test]
fn shared_cores_halve_both_or_all_of_a_node() {
    let pinned = run(WhenFull::Share(Share::Pinned));
    about(pinned.execution_s, 40.0);
    about(pinned.simulation_s, 120.0);
    // 72 threads on the 40 cores of the first node.
    let free = run(WhenFull::Share(Share::Free));
    about(free.execution_s, 20.0 * 72.0 / 40.0);
    about(free.simulation_s, 100.0 + 36.0 * (1.0 - 40.0 / 72.0));
}

#[test]
fn a_simulation_that_moves_aside_has_a_fifth_of_a_node() {
    let outcome = run(WhenFull::MoveAside);
    about(outcome.execution_s, 20.0);
    // 40 threads on eight cores for 20 s.
    about(outcome.simulation_s, 100.0 + 20.0 * 0.8);
    // Eight neighbours run beside its 32 threads where 20 of them would use all of the memory's bandwidth.
    let narrow = Benchmark { memory: Memory { saturating: 20.0 }, ..benchmark(WhenFull::MoveAside) };
    about(narrow.run().unwrap().execution_s, 20.0 * 40.0 / 32.0);
}
