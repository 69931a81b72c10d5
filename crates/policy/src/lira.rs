//! LIRA: load rates balanced.
//!
//! # Problem
//!
//! Programs that read much from memory slow each other down where they share a socket; beside programs that read
//! little they would not. Bandwidth and misses need uncore counters; how many load instructions a program executes can
//! be counted nearly everywhere.
//!
//! # Source
//!
//! LIRA, a load instruction rate aware heuristic for co-scheduling on several sockets (its abstract is what is public):
//! sockets are filled so that the difference of load instruction rates within each is as large as possible; static with
//! rates of earlier runs, adaptive with those of the last interval.
//!
//! # Where we differ
//!
//! - The parts are those of TA, not all cores of a socket for each of its programs. Whoever shares a NUMA node (else a
//!   package, else a last-level cache) is a neighbour.
//! - "As large as possible within each" is defined for two programs a socket. For any number we take what comes to the
//!   same with two: the sum of the squares of the sockets' rates is to be least.
//! - A move has a price (`common::company`): one changes sockets only where that balances more than it costs: 0.5
//!   for each program that moves, where two with the highest rate of all cost 2 as neighbours. The paper's thresholds
//!   are not public.
//! - Rates are asked for again every second. The paper's interval is not public.
//!
//! # Terms
//!
//! load rate: load instructions of all threads of a program in a second when it has a whole node
//! (`plan::Evidence::loads_per_s`).
//!
//! # Pseudocode
//!
//! ```text
//! cost(arrangement) = 2 × sum over domains of the products of the rates of each two programs there ÷ highest rate²
//!                   + the price of moves
//! TA; then programs exchange partitions while that costs less (`common::company`);
//! where two share a domain, also from the pairs that cost least without moves: the better of the two
//! again at every event, and every second while rates of this run are known
//! ```
//!
//! # Properties
//!
//! - `load_rates_of_pairs_are_balanced_exactly`: with two partitions a domain no assignment is more even
//! - `programs_change_places_when_their_load_rates_do`, `nobody_moves_while_load_rates_stay`
//! - a program of which nothing is known counts as the mean; where fewer than two are known, twins stand apart
//! - partitions of one shape, shares, nobody waits: `every_plan_of_lira_passes_the_checker`
//!
//! # Cost
//!
//! As twins.
//!
//! # Limits
//!
//! A load instruction that hits the nearest cache counts like one that goes to memory. With one domain there is nothing
//! to choose but who shares a slot.

use plan::{Promise, Snapshot};

use crate::ta::ByTopology;
use crate::{Decision, Memory, Neighbours, Policy, Settings};

/// How often rates are asked for if nothing happens.
const INTERVAL_NS: u64 = 1_000_000_000;

pub(crate) struct LoadRates(ByTopology);

impl LoadRates {
    pub fn new(settings: Settings) -> LoadRates {
        LoadRates(ByTopology { settings: Settings { neighbours: Some(Neighbours::LoadRates), ..settings } })
    }
}

impl Policy for LoadRates {
    fn letters(&self) -> &'static str {
        "LIRA"
    }

    fn words(&self) -> &'static str {
        "load rates balanced"
    }

    fn promise(&self) -> Promise {
        self.0.promise()
    }

    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        let mut decision = self.0.decide(snapshot, memory);
        // Rates change only where this run shows them.
        let changes = |app: &plan::App| {
            app.evidence.loads_per_s.is_some_and(|known| known.source == plan::Source::Measured)
        };
        if snapshot.apps.len() > 1 && snapshot.apps.iter().any(changes) {
            let again_ns = snapshot.now_ns.saturating_add(INTERVAL_NS);
            decision.wake_at_ns = Some(decision.wake_at_ns.map_or(again_ns, |at| at.min(again_ns)));
        }
        decision
    }
}
