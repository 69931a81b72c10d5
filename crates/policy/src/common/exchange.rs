//! Programs that exchange places so that those who share a domain suit one another.
//!
//! ```text
//! cost = sum over programs that share a domain of what they lose by each other
//!      + a move's cost for every program, as far as it does not keep the CPUs that it could
//! until nothing helps: two programs of different domains exchange places, or one goes to an empty place
//! ```

const NONE: usize = usize::MAX;
/// What changes the cost by less is no reason.
const LEAST: f64 = 1e-9;
/// Pairs of programs looked at.
const MOST_STEPS: usize = 4_000_000;

/// Programs by number, places by number.
pub(super) struct Exchange<'e> {
    /// Of every place the domain that it lies in; `NONE` where it spans several.
    pub domain: &'e [usize],
    pub domains: usize,
    /// What two programs lose by each other, both together.
    pub both: &'e dyn Fn(usize, usize) -> f64,
    /// Whether it makes no difference to anybody which of two programs stands where.
    pub interchangeable: &'e dyn Fn(usize, usize) -> bool,
    /// Of each program, domain by domain, whether some place there may cost it less than its dearest one.
    pub wanted: &'e [bool],
    /// What it costs a program to stand on a place; never below 0.
    pub moving: &'e dyn Fn(usize, usize) -> f64,
    /// Whether a program may be moved to a place.
    pub may: &'e dyn Fn(usize, usize) -> bool,
    /// Whether two programs leave everybody's share as it is when they exchange places.
    pub alike: &'e dyn Fn(usize, usize) -> bool,
    /// Where each program stands.
    pub at: Vec<usize>,
    /// Who stands on each place.
    pub on: Vec<Vec<usize>>,
}

impl Exchange<'_> {
    fn domain_of(&self, program: usize) -> usize {
        self.domain[self.at[program]]
    }

    /// Whether two programs of different domains would go where nothing is dearer to either.
    fn is_unwanted(&self, one: usize, other: usize) -> bool {
        let wants =
            |program: usize, place_of: usize| self.wanted[program * self.domains + self.domain_of(place_of)];
        !wants(one, other) && !wants(other, one)
    }

    /// What all pay together.
    pub fn cost(&self) -> f64 {
        let mut cost = 0.0;
        for a in 0..self.at.len() {
            cost += (self.moving)(a, self.at[a]);
            let beside = (a + 1..self.at.len()).filter(|&b| {
                self.at[a] != self.at[b]
                    && self.domain_of(a) != NONE
                    && self.domain_of(a) == self.domain_of(b)
            });
            cost += beside.map(|b| (self.both)(a, b)).sum::<f64>();
        }
        cost
    }

    /// What `program` and all who stand in `domain` would lose by each other, but for those on `place` (they would
    /// take turns with it) and one who leaves.
    fn company(&self, around: &[f64], program: usize, place: usize, leaves: usize) -> f64 {
        let domain = self.domain[place];
        let mut lost = around[program * self.domains + domain];
        for &other in self.on[place].iter().filter(|&&other| other != program && other != leaves) {
            lost -= (self.both)(program, other);
        }
        if leaves != NONE {
            lost -= (self.both)(program, leaves);
        }
        lost
    }

    /// Of every program what it and all who stand in a domain lose by each other, domain by domain.
    fn around(&self) -> Vec<f64> {
        let mut around = vec![0.0; self.at.len() * self.domains];
        for a in 0..self.at.len() {
            for b in (0..self.at.len()).filter(|&b| b != a && self.domain_of(b) != NONE) {
                around[a * self.domains + self.domain_of(b)] += (self.both)(a, b);
            }
        }
        around
    }

    /// By how much the cost falls if two programs exchange their places.
    fn gain(&self, around: &[f64], one: usize, other: usize) -> f64 {
        let (here, there) = (self.at[one], self.at[other]);
        let pays = |program, place, leaves| {
            self.company(around, program, place, leaves) + (self.moving)(program, place)
        };
        pays(one, here, NONE) + pays(other, there, NONE) - pays(one, there, other) - pays(other, here, one)
    }

    /// A program goes somewhere, and what the others lose beside it with it.
    fn go(&mut self, around: &mut [f64], program: usize, place: usize) {
        let (from, to) = (self.domain_of(program), self.domain[place]);
        for other in (0..self.at.len()).filter(|&other| other != program) {
            let both = (self.both)(other, program);
            around[other * self.domains + from] -= both;
            around[other * self.domains + to] += both;
        }
        let stood = self.at[program];
        self.on[stood].retain(|&other| other != program);
        self.on[place].push(program);
        self.at[program] = place;
    }

    /// Improves until nothing helps any more.
    pub fn improve(&mut self) {
        let mut around = self.around();
        // Who pays nothing for where it stands.
        let mut settled: Vec<bool> = self
            .at
            .iter()
            .enumerate()
            .map(|(program, &place)| (self.moving)(program, place) == 0.0)
            .collect();
        let mut steps_left = MOST_STEPS;
        let is_empty = |place: &usize| self.on[*place].is_empty() && self.domain[*place] != NONE;
        let mut empty: Vec<usize> = (0..self.on.len()).filter(is_empty).collect();
        loop {
            let mut better = false;
            for one in 0..self.at.len() {
                let here = self.at[one];
                if self.domain[here] == NONE {
                    continue;
                }
                for place in &mut empty {
                    let here = self.at[one];
                    if self.on[here].len() > 1 || !(self.may)(one, *place) {
                        continue;
                    }
                    let pays = |place| self.company(&around, one, place, NONE) + (self.moving)(one, place);
                    if pays(here) - pays(*place) > LEAST {
                        self.go(&mut around, one, *place);
                        settled[one] = (self.moving)(one, *place) == 0.0;
                        *place = here;
                        better = true;
                    }
                }
                for other in one + 1..self.at.len() {
                    let (here, there) = (self.at[one], self.at[other]);
                    steps_left = steps_left.saturating_sub(1);
                    let apart = self.domain[there] != NONE && self.domain[there] != self.domain[here];
                    // Then only what they pay for their own places could change.
                    let in_vain = || {
                        (settled[one] && settled[other] || self.is_unwanted(one, other))
                            && (self.interchangeable)(one, other)
                    };
                    if !apart || in_vain() {
                        continue;
                    }
                    let may = (self.may)(one, there) && (self.may)(other, here);
                    if !may || !(self.alike)(one, other) {
                        continue;
                    }
                    if self.gain(&around, one, other) > LEAST {
                        self.go(&mut around, one, there);
                        self.go(&mut around, other, here);
                        settled[one] = (self.moving)(one, there) == 0.0;
                        settled[other] = (self.moving)(other, here) == 0.0;
                        better = true;
                    }
                }
            }
            if !better || steps_left == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::Random;

    #[test]
    fn the_predicted_gain_of_an_exchange_is_its_gain() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let count = 4 + random.below(8) as usize;
            let cells: Vec<f64> = (0..count * count).map(|_| random.below(1000) as f64).collect();
            let kind: Vec<usize> = (0..count).map(|_| random.below(count as u64) as usize).collect();
            let both = |a: usize, b: usize| cells[kind[a].min(kind[b]) * count + kind[a].max(kind[b])];
            let domain: Vec<usize> = vec![0, 0, 1, 1, 2, 2, 3, 3];
            let wanted: Vec<bool> = (0..count * 4).map(|_| random.chance(50)).collect();
            let moves: Vec<f64> = (0..count * 8)
                .map(|at| if wanted[at / 8 * 4 + domain[at % 8]] { random.below(300) as f64 } else { 300.0 })
                .collect();
            let mut at: Vec<usize> = (0..count).map(|program| program % 8).collect();
            (1..count).for_each(|last| at.swap(last, random.below(last as u64 + 1) as usize));
            let mut on = vec![Vec::new(); 8];
            at.iter().enumerate().for_each(|(program, &place)| on[place].push(program));
            let mut exchange = Exchange {
                domain: &domain,
                domains: 4,
                both: &both,
                interchangeable: &|a, b| kind[a] == kind[b],
                wanted: &wanted,
                moving: &|program, place| moves[program * 8 + place],
                may: &|_, _| true,
                alike: &|_, _| true,
                at,
                on,
            };
            let mut around = exchange.around();
            for _ in 0..10 {
                let (one, other) = (random.below(count as u64) as usize, random.below(count as u64) as usize);
                let (here, there) = (exchange.at[one], exchange.at[other]);
                if domain[here] != domain[there] {
                    let (before, gain) = (exchange.cost(), exchange.gain(&around, one, other));
                    exchange.go(&mut around, one, there);
                    exchange.go(&mut around, other, here);
                    assert!((before - gain - exchange.cost()).abs() < 1e-6);
                }
            }
            let before = exchange.cost();
            exchange.improve();
            assert!(exchange.cost() <= before);
            for one in 0..count {
                for other in one + 1..count {
                    let around = exchange.around();
                    assert!(
                        exchange.domain_of(one) == exchange.domain_of(other)
                            || exchange.gain(&around, one, other) < 1e-6
                    );
                }
            }
        }
    }
}
