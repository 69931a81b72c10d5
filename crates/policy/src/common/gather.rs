//! Putting trees beside one another: side by side where they are disjoint, else mixed.

use std::collections::BTreeMap;

use plan::{Run, Tree};
use topology::CpuSet;

/// A run, under `mixed` where it has more threads than CPUs.
pub(crate) fn leaf(run: Run) -> Tree {
    if run.threads as usize > run.place.len() { mixed(vec![Tree::Run(run)]) } else { Tree::Run(run) }
}

/// Everything below `trees` mixed; turns are dissolved, because turns beside a program that never
/// stops coordinate nothing.
pub(crate) fn mixed(trees: Vec<Tree>) -> Tree {
    let mut parts = Vec::new();
    trees.into_iter().for_each(|tree| flatten(tree, &mut parts));
    Tree::Mixed { owner: BTreeMap::new(), parts }
}

fn flatten(tree: Tree, parts: &mut Vec<Tree>) {
    match tree {
        Tree::Run(_) => parts.push(tree),
        Tree::SideBySide(inner) | Tree::Mixed { parts: inner, .. } => {
            inner.into_iter().for_each(|tree| flatten(tree, parts));
        }
        Tree::InTurn { slots, .. } => slots.into_iter().for_each(|slot| flatten(slot.tree, parts)),
    }
}

/// `disjoint` trees side by side, and `others` beside or, where they overlap with anything, mixed
/// with that. `None` where there is nothing.
pub(crate) fn beside(disjoint: Vec<Tree>, others: Vec<Tree>) -> Option<Tree> {
    let mut parts = disjoint;
    if !others.is_empty() {
        let mut groups: Vec<(CpuSet, Vec<Tree>)> =
            parts.into_iter().map(|tree| (tree.place(), vec![tree])).collect();
        for tree in others {
            let mut place = tree.place();
            let (mut trees, mut apart) = (Vec::new(), Vec::new());
            for (other_place, other_trees) in groups {
                if other_place.intersects(&place) {
                    place = place.union(&other_place);
                    trees.extend(other_trees);
                } else {
                    apart.push((other_place, other_trees));
                }
            }
            trees.push(tree);
            groups = merge_overlapping(apart, place, trees);
        }
        parts = groups
            .into_iter()
            .map(|(_, mut trees)| if trees.len() == 1 { trees.swap_remove(0) } else { mixed(trees) })
            .collect();
    }
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(Tree::SideBySide(parts)),
    }
}

/// `groups` (disjoint) and one more, whose place has grown while it took others in.
fn merge_overlapping(
    mut groups: Vec<(CpuSet, Vec<Tree>)>,
    mut place: CpuSet,
    mut trees: Vec<Tree>,
) -> Vec<(CpuSet, Vec<Tree>)> {
    while let Some(at) = groups.iter().position(|(other, _)| other.intersects(&place)) {
        let (other_place, other_trees) = groups.remove(at);
        place = place.union(&other_place);
        trees.extend(other_trees);
    }
    groups.push((place, trees));
    groups
}
