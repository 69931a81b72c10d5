//! Who meets whom in a plan, and how those stand still who are not in turn: folds that actuators ask.

use std::collections::{BTreeMap, BTreeSet};

use workload::AppId;

use crate::{Plan, Run, Tree, TurnMode};

impl Plan {
    /// Who runs at the same time as whom, anywhere on the machine; also those that fill what others in turn leave.
    pub fn company(&self) -> BTreeMap<AppId, BTreeSet<AppId>> {
        fn walk(tree: &Tree, others: &BTreeSet<AppId>, into: &mut BTreeMap<AppId, BTreeSet<AppId>>) {
            let together = match tree {
                Tree::Run(run) => return drop(into.insert(run.app.clone(), others.clone())),
                Tree::SideBySide(_) | Tree::Mixed { .. } => true,
                Tree::InTurn { mode, .. } => *mode == TurnMode::Filling,
            };
            for (at, part) in tree.children().enumerate() {
                let siblings = tree.children().enumerate().filter(|(other, _)| together && *other != at);
                let apps = siblings.flat_map(|(_, sibling)| sibling.apps()).cloned();
                walk(part, &others.iter().cloned().chain(apps).collect(), into);
            }
        }
        let mut company = BTreeMap::new();
        self.tree.iter().for_each(|tree| walk(tree, &BTreeSet::new(), &mut company));
        company
    }

    /// Programs that have CPUs in common with others at the same time: left to the kernel, or in turn with some that
    /// fill what they leave.
    pub fn sharing(&self) -> BTreeSet<AppId> {
        fn walk(tree: &Tree, shared: bool, into: &mut BTreeSet<AppId>) {
            match tree {
                Tree::Run(run) if shared => drop(into.insert(run.app.clone())),
                Tree::Run(_) => {}
                Tree::SideBySide(parts) => parts.iter().for_each(|part| walk(part, shared, into)),
                Tree::Mixed { parts, .. } => {
                    parts.iter().for_each(|part| walk(part, shared || parts.len() > 1, into));
                }
                Tree::InTurn { mode, slots } => {
                    let filled = *mode == TurnMode::Filling && slots.len() > 1;
                    slots.iter().for_each(|slot| walk(&slot.tree, shared || filled, into));
                }
            }
        }
        let mut shared = BTreeSet::new();
        self.tree.iter().for_each(|tree| walk(tree, false, &mut shared));
        shared
    }

    /// How each program is kept from running while it is not in turn. Programs that take no turns are absent.
    pub fn turn_modes(&self) -> BTreeMap<AppId, TurnMode> {
        fn walk(tree: &Tree, within: Option<TurnMode>, into: &mut BTreeMap<AppId, TurnMode>) {
            match tree {
                Tree::Run(run) => into.extend(within.map(|mode| (run.app.clone(), mode))),
                Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
                    parts.iter().for_each(|part| walk(part, within, into));
                }
                Tree::InTurn { mode, slots } => {
                    // Inside a strict wheel standing still is strict, whatever an inner wheel says.
                    let within = match (within, slots.len()) {
                        (_, 0 | 1) | (Some(TurnMode::Strict), _) => within,
                        _ => Some(*mode),
                    };
                    slots.iter().for_each(|slot| walk(&slot.tree, within, into));
                }
            }
        }
        let mut modes = BTreeMap::new();
        self.tree.iter().for_each(|tree| walk(tree, None, &mut modes));
        modes
    }

    /// The runs that are left to the kernel together with others: those anywhere below a `mixed`.
    pub fn mixed_runs(&self) -> Vec<&Run> {
        fn walk<'a>(tree: &'a Tree, mixed: bool, into: &mut Vec<&'a Run>) {
            let mixed = mixed || matches!(tree, Tree::Mixed { .. });
            match tree {
                Tree::Run(run) => into.extend(mixed.then_some(run)),
                _ => tree.children().for_each(|child| walk(child, mixed, into)),
            }
        }
        let mut runs = Vec::new();
        self.tree.iter().for_each(|tree| walk(tree, false, &mut runs));
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        text.parse().unwrap()
    }

    #[test]
    fn company_is_the_programs_that_run_at_the_same_time() {
        let company = |text: &str| {
            let of = |(app, others): (AppId, BTreeSet<AppId>)| {
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                format!("{app}:{}", others.join("+"))
            };
            plan(text).company().into_iter().map(of).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(company("a on 0-1"), "a:");
        assert_eq!(company("side_by_side [a on 0, b on 1]"), "a:b b:a");
        assert_eq!(
            company("in_turn strict [20ms a on 0-1, 20ms side_by_side [b on 0, c on 1]]"),
            "a: b:c c:b"
        );
        assert_eq!(company("in_turn filling [20ms a on 0-1, 20ms b on 0-1]"), "a:b b:a");
        let nested = "side_by_side [in_turn strict [20ms a on 0, 20ms b on 0], c on 1]";
        assert_eq!(company(nested), "a:c b:c c:a+b");
    }

    #[test]
    fn a_program_alone_on_its_place_shares_nothing() {
        let shared =
            |text: &str| plan(text).sharing().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(shared("side_by_side [a on 0, b on 1]"), "");
        assert_eq!(shared("in_turn strict [20ms a on 0-1, 20ms side_by_side [b on 0, c on 1]]"), "");
        assert_eq!(shared("side_by_side [mixed [a on 0, b on 0], c on 1]"), "a b");
        assert_eq!(shared("in_turn filling [20ms a on 0-1, 20ms b on 0-1]"), "a b");
    }

    #[test]
    fn inside_a_strict_wheel_everybody_stands_still_strictly() {
        let modes = plan("in_turn strict [in_turn filling [a on 0, b on 0], c on 0]").turn_modes();
        assert!(modes.values().all(|mode| *mode == TurnMode::Strict) && modes.len() == 3);
        let modes = plan("side_by_side [a on 0, in_turn filling [b on 1, c on 1]]").turn_modes();
        assert_eq!(modes.len(), 2);
        assert!(modes.values().all(|mode| *mode == TurnMode::Filling));
    }

    #[test]
    fn mixed_runs_are_those_left_to_the_kernel() {
        let mixed = |text: &str| {
            plan(text).mixed_runs().iter().map(|run| run.app.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(mixed("side_by_side [a on 0, mixed [b on 1, c on 1]]"), "b c");
        assert_eq!(mixed("in_turn [20ms mixed [in_turn [a on 0, b on 0], c on 0], 20ms d on 0]"), "a b c");
        assert_eq!(mixed("a on 0"), "");
    }
}
