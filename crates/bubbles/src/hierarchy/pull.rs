//! Where a bubble bursts that a processor pulls.

use super::bubble::BurstAt;
use super::levels::Levels;
use super::scheduler::Facts;

/// The unit on the way from `unit` to `processor` on which a bubble bursts by its maker's wishes.
pub fn burst_unit(levels: &Levels, bubble: &Facts, unit: usize, processor: usize) -> usize {
    let wishes = bubble.wishes;
    let wanted = match wishes.burst {
        BurstAt::Processors(count) => count,
        _ => bubble.threads.clamp(wishes.fewest, wishes.most.max(wishes.fewest)),
    };
    let mut at = unit;
    while let Some(child) = levels.towards(at, processor) {
        let (here, below) = (levels.unit(at), levels.unit(child));
        let goes_down = match wishes.burst {
            BurstAt::Level(level) => here.narrowest < level,
            // Too wide for it: narrower, unless that is less than it must have.
            _ if here.width() > wishes.most => below.width() >= wishes.fewest,
            _ => below.width() >= wanted,
        };
        if !goes_down {
            break;
        }
        at = child;
    }
    at
}

#[cfg(test)]
mod tests {
    use topology::{Level, Machine};

    use super::*;
    use crate::hierarchy::{Lists, Wishes};

    fn levels() -> Levels {
        let machine = Machine::synthetic("pack:2 core:2 pu:4").expect("it is a machine");
        Levels::new(&machine, machine.all_cpus(), Lists::Distinct)
    }

    fn width(wishes: Wishes, threads: usize) -> usize {
        let levels = levels();
        levels.unit(burst_unit(&levels, &Facts { threads, wishes }, 0, 5)).width()
    }

    #[test]
    fn a_bubble_bursts_on_the_smallest_unit_with_enough_processors() {
        let wishes = Wishes::default();
        let widths: Vec<usize> = [1, 2, 4, 5, 8, 9, 17].iter().map(|&count| width(wishes, count)).collect();
        assert_eq!(widths, [1, 4, 4, 8, 8, 16, 16]);
    }

    #[test]
    fn a_level_that_the_machine_lacks_means_the_next_narrower_one() {
        let at = |level| width(Wishes { burst: BurstAt::Level(level), ..Wishes::default() }, 1);
        assert_eq!([at(Level::Node), at(Level::Package), at(Level::Numa), at(Level::Pu)], [16, 8, 4, 1]);
    }

    #[test]
    fn its_fewest_and_most_processors_widen_and_narrow_it() {
        let elastic = |fewest, most, threads| width(Wishes { fewest, most, ..Wishes::default() }, threads);
        assert_eq!(elastic(5, 8, 1), 8);
        assert_eq!(elastic(1, 3, 16), 1);
        assert_eq!(elastic(2, 3, 16), 4);
        assert_eq!(elastic(1, 8, 16), 8);
    }
}
