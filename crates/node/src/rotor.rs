//! Who is in turn: the rotation that a plan describes, as a pure value that time moves on.
//!
//! Every `in_turn` of the plan is a wheel with slots. The outermost wheels turn with the clock; a
//! nested one turns only while its parent's slot runs, so that each of its members gets its share
//! of that slot however often the parent comes round. Nothing here looks at a clock or acts.

use std::collections::BTreeSet;

use plan::Tree;
use workload::AppId;

/// The rotation of one plan.
#[derive(Clone, Debug)]
pub struct Rotation {
    root: Wheel,
}

#[derive(Clone, Debug)]
enum Wheel {
    App(AppId),
    Together(Vec<Wheel>),
    Turn { slots: Vec<(u64, Wheel)>, current: usize, left_ns: u64 },
}

impl Wheel {
    fn new(tree: &Tree) -> Wheel {
        match tree {
            Tree::Run(run) => Wheel::App(run.app.clone()),
            Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
                Wheel::Together(parts.iter().map(Wheel::new).collect())
            }
            Tree::InTurn { slots, .. } => {
                let slots: Vec<_> =
                    slots.iter().map(|slot| (slot.slice_ns.max(1), Wheel::new(&slot.tree))).collect();
                let left_ns = slots.first().map_or(0, |slot| slot.0);
                Wheel::Turn { slots, current: 0, left_ns }
            }
        }
    }

    fn running(&self, into: &mut BTreeSet<AppId>) {
        match self {
            Wheel::App(app) => {
                into.insert(app.clone());
            }
            Wheel::Together(parts) => parts.iter().for_each(|part| part.running(into)),
            Wheel::Turn { slots, current, .. } => {
                if let Some((_, wheel)) = slots.get(*current) {
                    wheel.running(into);
                }
            }
        }
    }

    /// Time until something changes here, if it ever does.
    fn next_change_ns(&self) -> Option<u64> {
        match self {
            Wheel::App(_) => None,
            Wheel::Together(parts) => parts.iter().filter_map(Wheel::next_change_ns).min(),
            Wheel::Turn { slots, current, left_ns } => {
                let inner = slots.get(*current).and_then(|slot| slot.1.next_change_ns());
                let own = (slots.len() > 1).then_some(*left_ns);
                inner.into_iter().chain(own).min()
            }
        }
    }

    /// Moves on by `by_ns`, which is at most `next_change_ns()`.
    fn step(&mut self, by_ns: u64) {
        match self {
            Wheel::App(_) => {}
            Wheel::Together(parts) => parts.iter_mut().for_each(|part| part.step(by_ns)),
            Wheel::Turn { slots, current, left_ns } => {
                let Some((_, inner)) = slots.get_mut(*current) else { return };
                inner.step(by_ns);
                if slots.len() > 1 {
                    *left_ns -= by_ns;
                    if *left_ns == 0 {
                        *current = (*current + 1) % slots.len();
                        *left_ns = slots[*current].0;
                    }
                }
            }
        }
    }
}

impl Rotation {
    pub fn new(tree: Option<&Tree>) -> Rotation {
        Rotation { root: tree.map_or(Wheel::Together(Vec::new()), Wheel::new) }
    }

    /// The applications in turn now.
    pub fn running(&self) -> BTreeSet<AppId> {
        let mut running = BTreeSet::new();
        self.root.running(&mut running);
        running
    }

    /// Time until the next switch; `None` where nothing takes turns.
    pub fn next_change_ns(&self) -> Option<u64> {
        self.root.next_change_ns()
    }

    /// Moves on by `by_ns`, over as many switches as that takes.
    pub fn advance(&mut self, mut by_ns: u64) {
        while by_ns > 0 {
            let Some(next) = self.next_change_ns() else { return };
            let step = by_ns.min(next);
            self.root.step(step);
            by_ns -= step;
        }
    }

    /// Begins each wheel at the slot in which most of `running` stand, so that a change of plan
    /// stops nobody who may go on.
    pub fn begin_with(&mut self, running: &BTreeSet<AppId>) {
        fn align(wheel: &mut Wheel, running: &BTreeSet<AppId>) {
            match wheel {
                Wheel::App(_) => {}
                Wheel::Together(parts) => parts.iter_mut().for_each(|part| align(part, running)),
                Wheel::Turn { slots, current, left_ns } => {
                    let kept = |wheel: &Wheel| {
                        let mut members = BTreeSet::new();
                        wheel.running(&mut members);
                        members.intersection(running).count()
                    };
                    slots.iter_mut().for_each(|slot| align(&mut slot.1, running));
                    let best = (0..slots.len()).max_by_key(|&at| (kept(&slots[at].1), std::cmp::Reverse(at)));
                    if let Some(best) = best {
                        *current = best;
                        *left_ns = slots[best].0;
                    }
                }
            }
        }
        align(&mut self.root, running);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plan::Plan;

    use super::*;

    const MS: u64 = 1_000_000;

    fn rotation(text: &str) -> Rotation {
        Rotation::new(text.parse::<Plan>().unwrap().tree.as_ref())
    }

    fn running(rotation: &Rotation) -> String {
        rotation.running().iter().map(AppId::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_plan_without_turns_never_changes() {
        let mut still = rotation("side_by_side [a on 0-1, b on 2-3]");
        assert_eq!(still.next_change_ns(), None);
        still.advance(u64::MAX);
        assert_eq!(running(&still), "a b");
        assert_eq!(running(&Rotation::new(None)), "");
    }

    #[test]
    fn two_gangs_alternate_by_their_slices() {
        let mut two = rotation("in_turn [20ms a on 0-1, 10ms b on 0-1]");
        assert_eq!((running(&two).as_str(), two.next_change_ns()), ("a", Some(20 * MS)));
        two.advance(19 * MS);
        assert_eq!((running(&two).as_str(), two.next_change_ns()), ("a", Some(MS)));
        two.advance(MS);
        assert_eq!((running(&two).as_str(), two.next_change_ns()), ("b", Some(10 * MS)));
        two.advance(10 * MS);
        assert_eq!(running(&two), "a");
        two.advance(30 * MS * 1000 + 25 * MS);
        assert_eq!((running(&two).as_str(), two.next_change_ns()), ("b", Some(5 * MS)));
    }

    #[test]
    fn a_nested_wheel_turns_only_while_its_parents_slot_runs() {
        let mut nested = rotation(
            "in_turn [20ms side_by_side [in_turn [15ms a on 0, 15ms b on 0], c on 1], 20ms d on 0-1]",
        );
        let mut turns_of: BTreeMap<String, u64> = BTreeMap::new();
        for _ in 0..12_000 {
            for app in nested.running() {
                *turns_of.entry(app.to_string()).or_default() += 1;
            }
            nested.advance(MS / 10);
        }
        // 1,200 ms: d and c half of it each, a and b half of c's time each.
        assert_eq!(turns_of["d"], 6000);
        assert_eq!(turns_of["c"], 6000);
        assert_eq!((turns_of["a"], turns_of["b"]), (3000, 3000));
    }

    #[test]
    fn a_change_of_plan_begins_with_running_programs() {
        let mut two = rotation("in_turn [20ms a on 0-1, 20ms b on 0-1, 20ms c on 0-1]");
        two.begin_with(&["c".parse().unwrap()].into());
        assert_eq!((running(&two).as_str(), two.next_change_ns()), ("c", Some(20 * MS)));
    }
}
