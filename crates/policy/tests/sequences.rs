//! Random machines × programs × events: every plan and every sequence of plans of every policy
//! passes the checker. `COPLACE_CASES` sequences (10,000 by default) from `COPLACE_SEED` on.

mod support;

use coplace_policy::{by_name, trial};
use support::from_environment;

const POLICIES: [&str; 8] = ["UE", "LA", "BP", "EQ", "TA", "CO", "LV", "adaptive"];

/// One sequence; the policy is chosen by the seed.
fn sequence(seed: u64) -> Result<u64, String> {
    let policy = POLICIES[(seed % POLICIES.len() as u64) as usize];
    trial::sequence(seed, &|settings| by_name(policy, settings).expect("a known policy"))
}

#[test]
fn every_plan_of_every_policy_passes_the_checker() {
    let (first, cases) = (from_environment("COPLACE_SEED", 1), from_environment("COPLACE_CASES", 10_000));
    if let Err((seed, why)) = trial::sequences(first, cases, &sequence) {
        panic!(
            "{why}\nrepeat with: COPLACE_SEED={seed} COPLACE_CASES=1 cargo test -p coplace-policy --test sequences"
        );
    }
}
