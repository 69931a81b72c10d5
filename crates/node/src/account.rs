//! What one program got, and how much slower that made it: the account behind `status`, the last
//! line of `coplace run` and the table of `coplace mix`.

use std::collections::BTreeSet;

use protocol::Account;
use topology::CpuSet;
use workload::AppId;

/// Intervals shorter than this say nothing about a rate: a region may be longer.
const SHORTEST_SAMPLE_NS: u64 = 20_000_000;
/// Samples of the lone rate that must be there before a slowdown is stated.
const FEWEST_SAMPLES: usize = 5;

/// Keeps the account of one program.
#[derive(Clone, Debug)]
pub struct Ledger {
    account: Account,
    came_ns: u64,
    started_ns: Option<u64>,
    /// Until when time has been written up.
    until_ns: u64,
    /// Region counts per second over intervals in which it ran alone at its widest.
    lone_rates: Vec<f64>,
    sample_from: (u64, u64),
}

/// How a program stood over the interval that is written up.
pub struct Standing<'a> {
    pub place: &'a CpuSet,
    pub in_turn_ns: u64,
    pub turns: u64,
    pub neighbours: &'a BTreeSet<AppId>,
    /// Alone on everything that it may use, at its full team, and not held up by anything of ours.
    pub alone: bool,
    pub regions: u64,
    pub cpu_time_ns: u64,
}

impl Ledger {
    pub fn new(id: AppId, now_ns: u64) -> Ledger {
        Ledger {
            account: Account { id: Some(id), ..Account::default() },
            came_ns: now_ns,
            started_ns: None,
            until_ns: now_ns,
            lone_rates: Vec::new(),
            sample_from: (now_ns, 0),
        }
    }

    /// It runs already; another scheduler had it before, or none.
    pub fn mark_running(&mut self, now_ns: u64) {
        self.mark_started(now_ns);
        self.account.waited_ns = 0;
    }

    pub fn mark_started(&mut self, now_ns: u64) {
        self.account.waited_ns = now_ns.saturating_sub(self.came_ns);
        self.started_ns = Some(now_ns);
        self.until_ns = now_ns;
        self.sample_from = (now_ns, 0);
    }

    pub fn mark_reconfigured(&mut self) {
        self.account.reconfigurations += 1;
    }

    pub fn mark_moved(&mut self) {
        self.account.moves += 1;
    }

    /// Writes up the time since the last call, during which the program stood as given.
    pub fn charge(&mut self, now_ns: u64, standing: &Standing<'_>) {
        if self.started_ns.is_none() {
            return;
        }
        let passed = now_ns.saturating_sub(self.until_ns);
        self.until_ns = now_ns;
        *self.account.width_ns.entry(standing.place.len() as u32).or_default() += passed;
        for neighbour in standing.neighbours {
            *self.account.neighbours_ns.entry(neighbour.clone()).or_default() += passed;
        }
        self.account.in_turn_ns = standing.in_turn_ns;
        self.account.turns = standing.turns;
        self.account.regions = self.account.regions.max(standing.regions);
        self.account.cpu_time_ns = self.account.cpu_time_ns.max(standing.cpu_time_ns);
        self.sample(now_ns, standing);
    }

    fn sample(&mut self, now_ns: u64, standing: &Standing<'_>) {
        let (from_ns, from_regions) = self.sample_from;
        if !standing.alone {
            self.sample_from = (now_ns, standing.regions);
            return;
        }
        let regions = standing.regions.saturating_sub(from_regions);
        // An interval needs some regions, else the rate is the sampling's and not the program's.
        if now_ns.saturating_sub(from_ns) >= SHORTEST_SAMPLE_NS && regions >= 8 {
            self.lone_rates.push(regions as f64 * 1e9 / (now_ns.saturating_sub(from_ns)) as f64);
            self.sample_from = (now_ns, standing.regions);
        }
    }

    /// The account as of `now_ns`.
    pub fn read(&self, now_ns: u64) -> Account {
        let mut account = self.account.clone();
        account.response_ns = now_ns.saturating_sub(self.came_ns);
        let (slowdown, source) = self.slowdown(now_ns);
        account.slowdown = slowdown;
        account.slowdown_source = source;
        account
    }

    /// Response time over the time that all its regions would have taken at the lone rate.
    fn slowdown(&self, now_ns: u64) -> (Option<(f64, f64)>, String) {
        let count = self.lone_rates.len();
        if self.account.regions == 0 {
            return (None, "no parallel regions were counted".into());
        }
        if count < FEWEST_SAMPLES {
            return (None, "it never ran alone for long enough".into());
        }
        let mean = self.lone_rates.iter().sum::<f64>() / count as f64;
        let variance =
            self.lone_rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        let error = (variance / count as f64).sqrt() / mean;
        let alone_ns = self.account.regions as f64 / mean * 1e9;
        let slowdown = (now_ns.saturating_sub(self.came_ns)) as f64 / alone_ns;
        // Two standard errors: the 95% interval of the mean rate.
        let error = slowdown * error * 2.0;
        if slowdown + error < 1.0 {
            return (None, "it ran faster beside others than alone: its lone time was disturbed".into());
        }
        (Some((slowdown, error)), format!("region rates, {count} samples of the lone rate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn run(ledger: &mut Ledger, from: u64, to: u64, rate_per_ms: u64, regions: &mut u64, alone: bool) {
        let place: CpuSet = "0-1".parse().unwrap();
        for now in (from + 1..=to).step_by(1) {
            *regions += rate_per_ms;
            let neighbours = if alone { BTreeSet::new() } else { ["b".parse().unwrap()].into() };
            ledger.charge(
                now * MS,
                &Standing {
                    place: &place,
                    in_turn_ns: 0,
                    turns: 0,
                    neighbours: &neighbours,
                    alone,
                    regions: *regions,
                    cpu_time_ns: now * MS,
                },
            );
        }
    }

    #[test]
    fn half_the_lone_rate_for_half_the_work_is_a_slowdown_by_half() {
        let mut ledger = Ledger::new("a".parse().unwrap(), 0);
        ledger.mark_started(0);
        let mut regions = 0;
        run(&mut ledger, 0, 400, 10, &mut regions, true);
        run(&mut ledger, 400, 1200, 5, &mut regions, false);
        let account = ledger.read(1200 * MS);
        let (slowdown, error) = account.slowdown.unwrap();
        assert!((slowdown - 1.5).abs() < 0.02 && error < 0.02, "{slowdown} ± {error}");
        assert_eq!(account.width_ns[&2], 1200 * MS);
        assert_eq!(account.neighbours_ns[&"b".parse().unwrap()], 800 * MS);
    }

    #[test]
    fn a_program_faster_beside_others_has_no_slowdown() {
        let mut ledger = Ledger::new("a".parse().unwrap(), 0);
        ledger.mark_started(0);
        let mut regions = 0;
        run(&mut ledger, 0, 400, 5, &mut regions, true);
        run(&mut ledger, 400, 1200, 10, &mut regions, false);
        let account = ledger.read(1200 * MS);
        assert_eq!(account.slowdown, None);
        assert!(account.slowdown_source.contains("disturbed"), "{}", account.slowdown_source);
    }

    #[test]
    fn a_program_that_runs_already_has_not_waited_here() {
        let mut ledger = Ledger::new("a".parse().unwrap(), 5 * MS);
        ledger.mark_running(9000 * MS);
        assert_eq!(ledger.read(9100 * MS).waited_ns, 0);
        assert_eq!(ledger.read(9100 * MS).response_ns, 9095 * MS);
    }

    #[test]
    fn without_a_lone_interval_a_reason_replaces_the_slowdown() {
        let mut ledger = Ledger::new("a".parse().unwrap(), 0);
        ledger.mark_started(5 * MS);
        let mut regions = 0;
        run(&mut ledger, 5, 500, 5, &mut regions, false);
        let account = ledger.read(500 * MS);
        assert_eq!(account.slowdown, None);
        assert_eq!(account.slowdown_source, "it never ran alone for long enough");
        assert_eq!(account.waited_ns, 5 * MS);
    }
}
