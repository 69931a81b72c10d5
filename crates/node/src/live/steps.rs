//! The way from what a plan wishes of one program to what is done next: teams shrink before CPUs are taken, and CPUs
//! come before teams widen (invariant 4 of ARCHITECTURE.md).

use topology::CpuSet;

use crate::watch::Nature;

/// Whether the team is asked to change before the program is placed. A team that is to widen is asked once the CPUs are
/// there, wherever those lie. Both as numbers of threads: what is `asked` for so far, and what is `wished`; 0: as many as
/// it likes.
pub(super) fn resizes_first(asked: u32, wished: u32) -> bool {
    asked == 0 || (1..=asked).contains(&wished)
}

/// How a program stands on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing<'a> {
    pub wished: &'a CpuSet,
    /// Where its threads may run at the moment.
    pub placed: &'a CpuSet,
    /// The CPUs that it came with.
    pub original: &'a CpuSet,
    /// `None`: it was not looked at yet.
    pub nature: Option<&'a Nature>,
    /// Threads that may run at this moment, as far as is known.
    pub threads: Option<u32>,
    /// The most that were seen by a look, which whoever plans knows of.
    pub widest: u32,
    /// Threads that it has when its teams obey.
    pub asked: u32,
    pub waits_passively: bool,
    /// A runtime of it has read the CPU mask.
    pub has_runtime: bool,
}

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The CPUs that its threads get now.
    pub cpus: CpuSet,
    /// More is to follow soon.
    pub on_its_way: bool,
    /// It has more threads than the plan knows of, which would lose CPUs by it: it is to be looked at first.
    pub outgrew: bool,
}

pub(super) fn next(standing: &Standing<'_>) -> Next {
    let Standing { wished, placed, original, nature, threads, widest, asked, waits_passively, has_runtime } =
        *standing;
    let fits = |cpus: &CpuSet| threads.is_none_or(|threads| threads as usize <= cpus.len());
    let unknown = threads.is_some_and(|threads| threads > widest);
    let outgrew = unknown && !waits_passively && !fits(wished) && !placed.is_subset(wished);
    let (cpus, on_its_way) = match nature {
        Some(Nature::Resizable) => {
            let most = wished.len().max(asked as usize);
            let too_wide = !waits_passively && threads.is_some_and(|threads| threads as usize > most);
            if too_wide { (wished.union(placed), true) } else { (wished.clone(), false) }
        }
        Some(Nature::Rigid(_) | Nature::StuckInRegion(_)) if outgrew && !broken!(TeamsOutgrown) => {
            return Next { cpus: wished.union(placed), on_its_way: true, outgrew };
        }
        Some(Nature::Rigid(_) | Nature::StuckInRegion(_)) => (wished.clone(), false),
        // Its runtime may be about to read the mask: what it sees is the widest that it may ever get.
        Some(Nature::Starting | Nature::Serial) | None => (original.clone(), has_runtime),
    };
    Next { cpus, on_its_way, outgrew: false }
}

#[cfg(test)]
mod tests {
    use workload::Random;

    use super::*;

    const CPUS: u32 = 8;
    const SEEDS: u64 = 2000;

    /// How a program is brought to its wish: [`resizes_first`] and [`next`], or something broken.
    struct Way {
        resizes_first: fn(u32, u32) -> bool,
        next: fn(&Standing<'_>) -> Next,
    }

    /// A program whose threads spin for each other: squeezed, it would stand still. It follows what it is asked for at
    /// the entry of its next parallel region, whenever that is.
    struct Program {
        team: u32,
        target: u32,
        placed: CpuSet,
    }

    impl Program {
        fn is_squeezed(&self) -> bool {
            self.team as usize > self.placed.len()
        }

        /// Time passes; perhaps it enters a region.
        fn run(&mut self, random: &mut Random) -> Result<(), String> {
            if random.chance(40) {
                self.team = self.target;
            }
            match self.is_squeezed() {
                true => Err(format!("{} threads on CPUs {}", self.team, self.placed)),
                false => Ok(()),
            }
        }

        fn step(&mut self, way: &Way, wished: &CpuSet, random: &mut Random) -> Result<(), String> {
            let threads = wished.len() as u32;
            let first = (way.resizes_first)(self.target, threads);
            if first {
                self.target = threads;
                self.run(random)?;
            }
            let original = CpuSet::first(CPUS);
            let next = (way.next)(&Standing {
                wished,
                placed: &self.placed,
                original: &original,
                nature: Some(&Nature::Resizable),
                threads: Some(self.team.max(self.target)),
                widest: CPUS,
                asked: self.target,
                waits_passively: false,
                has_runtime: true,
            });
            // Between the look at its team and this it may have entered a region, with the team it was asked for.
            self.run(random)?;
            self.placed = next.cpus;
            self.run(random)?;
            if !first {
                self.target = threads;
                self.run(random)?;
            }
            Ok(())
        }
    }

    fn random_place(random: &mut Random) -> CpuSet {
        let width = 1 + random.below(u64::from(CPUS)) as u32;
        let from = random.below(u64::from(CPUS - width + 1)) as u32;
        (from..from + width).collect()
    }

    /// The first seed under which a program is squeezed on this way.
    fn first_squeezed(way: &Way) -> Option<(u64, String)> {
        (0..SEEDS).find_map(|seed| {
            let mut random = Random::new(seed);
            let mut program = Program { team: CPUS, target: CPUS, placed: CpuSet::first(CPUS) };
            for _ in 0..10 {
                let wished = random_place(&mut random);
                for _ in 0..random.below(6) {
                    if let Err(why) = program.step(way, &wished, &mut random) {
                        return Some((seed, why));
                    }
                }
            }
            None
        })
    }

    #[test]
    fn a_program_is_never_squeezed_on_its_way() {
        assert_eq!(first_squeezed(&Way { resizes_first, next }), None);
    }

    #[test]
    fn a_team_is_asked_to_widen_only_once_the_cpus_are_there() {
        assert!(
            resizes_first(4, 2) && resizes_first(4, 4) && resizes_first(0, 2),
            "nothing was asked for yet"
        );
        assert!(!resizes_first(2, 4) && !resizes_first(2, 0));
    }

    #[test]
    fn broken_ways_squeeze_it() {
        let at_once = |standing: &Standing<'_>| Next {
            cpus: standing.wished.clone(),
            on_its_way: false,
            outgrew: false,
        };
        let taken_at_once = Way { resizes_first, next: at_once };
        let widened_first = Way { resizes_first: |_, _| true, next };
        let never_asked_first = Way { resizes_first: |_, _| false, next: at_once };
        for (way, what) in [
            (taken_at_once, "CPUs taken before the team shrank"),
            (widened_first, "the team widened before the CPUs came"),
            (never_asked_first, "the team asked after the CPUs were taken"),
        ] {
            assert!(first_squeezed(&way).is_some(), "{what} is not found");
        }
    }

    fn standing<'a>(nature: Option<&'a Nature>, sets: &'a [CpuSet; 3]) -> Standing<'a> {
        let [wished, placed, original] = sets;
        Standing {
            wished,
            placed,
            original,
            nature,
            threads: Some(4),
            widest: 4,
            asked: 2,
            waits_passively: false,
            has_runtime: false,
        }
    }

    #[test]
    fn a_program_that_shows_nothing_yet_keeps_its_cpus() {
        let sets = ["0-1", "0-7", "0-7"].map(|text| text.parse::<CpuSet>().unwrap());
        for nature in [None, Some(&Nature::Starting), Some(&Nature::Serial)] {
            let next = next(&standing(nature, &sets));
            assert_eq!(next, Next { cpus: sets[2].clone(), on_its_way: false, outgrew: false });
        }
        assert!(next(&Standing { has_runtime: true, ..standing(None, &sets) }).on_its_way);
    }

    #[test]
    fn a_program_that_cannot_shrink_is_placed_at_once() {
        let sets = ["0-1", "2-5", "0-7"].map(|text| text.parse::<CpuSet>().unwrap());
        let wished = |on_its_way| Next { cpus: sets[0].clone(), on_its_way, outgrew: false };
        assert_eq!(next(&standing(Some(&Nature::Rigid("so".into())), &sets)), wished(false));
        let passive = Standing { waits_passively: true, ..standing(Some(&Nature::Resizable), &sets) };
        assert_eq!(next(&passive), wished(false));
        // Ranks are more than the CPUs, and have no team to give up.
        let ranks = Standing { asked: 4, ..standing(Some(&Nature::Resizable), &sets) };
        assert_eq!(next(&ranks), wished(false));
        let union: CpuSet = "0-5".parse().unwrap();
        let shrinking = standing(Some(&Nature::Resizable), &sets);
        assert_eq!(next(&shrinking), Next { cpus: union, on_its_way: true, outgrew: false });
    }

    #[test]
    fn a_team_wider_than_the_plan_assumes_is_sampled_first() {
        let sets = ["0-1", "2-5", "0-7"].map(|text| text.parse::<CpuSet>().unwrap());
        let (rigid, union) = (Nature::Rigid("so".into()), "0-5".parse().unwrap());
        let outgrown = Standing { widest: 2, ..standing(Some(&rigid), &sets) };
        assert_eq!(next(&outgrown), Next { cpus: union, on_its_way: true, outgrew: true });
        let at_once = Next { cpus: sets[0].clone(), on_its_way: false, outgrew: false };
        let passive = Standing { waits_passively: true, ..outgrown };
        let loses_nothing = Standing { placed: &sets[0], ..outgrown };
        for standing in [passive, loses_nothing, Standing { widest: 4, ..outgrown }] {
            assert_eq!(next(&standing), at_once);
        }
    }
}
