//! The form that actuators take: levels in turn › side by side › in turn › run, where a leaf may also
//! be a `mixed` of runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use workload::{AppId, ByApp};

use crate::{Plan, Run, Slot, Tree, TurnMode};

/// What the mechanisms of a world can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Whether programs can be made to take turns at all.
    pub in_turn: bool,
    /// Whether what the gang in turn leaves idle can be used by the others; else `filling` becomes
    /// `strict`.
    pub filling: bool,
    /// Slots are stretched, all alike, until the shortest lasts this long.
    pub shortest_slice_ns: u64,
    /// Slots are shortened, all alike and not below the shortest, until nobody stands still longer
    /// than this; `None`: as the policy says.
    pub longest_standstill_ns: Option<u64>,
}

impl Default for Limits {
    /// Everything that a plan can say.
    fn default() -> Limits {
        Limits { in_turn: true, filling: true, shortest_slice_ns: 1, longest_standstill_ns: None }
    }
}

/// Why a plan has no normal form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// `found` stands below `below`, where actuators take only `takes`.
    TooDeep {
        /// Kind of the node above: `in_turn` or `mixed`.
        below: String,
        /// Kind of the node that stands too deep.
        found: String,
        /// What may stand there, in words: `mixed and runs`, or `runs`.
        takes: String,
    },
    /// Nothing runs in a slot; time that nobody may use is not in a plan's power.
    IdleSlot {
        /// Its number in its `in_turn`, from 0.
        slot: usize,
    },
    /// Two nested `mixed` give one CPU to two owners.
    TwoOwners {
        /// Which CPU, by `os_index`.
        cpu: u32,
        /// Its owner in the outer `mixed`.
        outer: AppId,
        /// Its owner in the inner one.
        inner: AppId,
    },
    /// Nothing on this machine can make programs take turns.
    NoTurns,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooDeep { below, found, takes } => {
                write!(f, "{found} stands below {below}, where only {takes} can be carried out")
            }
            Refusal::IdleSlot { slot } => write!(f, "nothing runs in slot {slot}; leave the slot out"),
            Refusal::TwoOwners { cpu, outer, inner } => {
                write!(f, "CPU {cpu} belongs to {outer} and, further inside, to {inner}")
            }
            Refusal::NoTurns => {
                f.write_str("programs cannot be made to take turns here; place them side by side, or mixed")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// `plan` in the form that actuators take, with the same meaning, itself where it has that form; or why
/// that cannot be.
pub fn normalise<'a>(plan: &'a Plan, limits: &Limits) -> Result<Cow<'a, Plan>, Refusal> {
    let mut normal = match &plan.tree {
        Some(tree) if !is_flat(tree) => {
            let (waiting, suspended) = (plan.waiting.clone(), plan.suspended.clone());
            Cow::Owned(Plan { tree: flatten(tree)?, waiting, suspended })
        }
        _ => Cow::Borrowed(plan),
    };
    let Some(tree) = &normal.tree else { return Ok(normal) };
    check_levels(tree, Level::Turns)?;
    let turns = fit_turns(tree, limits)?;
    let filling_fits = limits.filling || !fills(tree);
    if (turns != Turns::AsTheyAre || !filling_fits)
        && let Some(tree) = &mut normal.to_mut().tree
    {
        for_each_slot(tree, limits, &mut |slice_ns| turns.fitted(slice_ns));
    }
    Ok(normal)
}

/// Whether there is nothing in the tree that [`flatten`] would change.
fn is_flat(tree: &Tree) -> bool {
    match tree {
        Tree::Run(_) => true,
        Tree::SideBySide(parts) => {
            parts.len() > 1 && parts.iter().all(|part| !matches!(part, Tree::SideBySide(_)) && is_flat(part))
        }
        Tree::Mixed { parts, .. } => match &parts[..] {
            [Tree::Run(run)] => !fits_alone(run),
            _ => parts.len() > 1 && parts.iter().all(|part| matches!(part, Tree::Run(_))),
        },
        Tree::InTurn { slots, .. } => slots.len() > 1 && slots.iter().all(|slot| is_flat(&slot.tree)),
    }
}

/// Whether a program that is alone in a `mixed` can do without it: it has nobody to share with, and needs
/// one only for more threads than CPUs.
fn fits_alone(run: &Run) -> bool {
    run.threads as usize <= run.place.len()
}

/// Without empty and single nodes, and with nested `side_by_side` and `mixed` merged into one.
fn flatten(tree: &Tree) -> Result<Option<Tree>, Refusal> {
    match tree {
        Tree::Run(run) => Ok(Some(Tree::Run(run.clone()))),
        Tree::SideBySide(parts) => {
            let mut flat = Vec::with_capacity(parts.len());
            for part in parts {
                match flatten(part)? {
                    Some(Tree::SideBySide(more)) => flat.extend(more),
                    other => flat.extend(other),
                }
            }
            Ok(if flat.len() > 1 { Some(Tree::SideBySide(flat)) } else { flat.pop() })
        }
        Tree::Mixed { owner, parts } => {
            let mut owner = owner.clone();
            let mut flat = Vec::with_capacity(parts.len());
            for part in parts {
                match flatten(part)? {
                    Some(Tree::Mixed { owner: inner, parts: more }) => {
                        merge_owners(&mut owner, inner)?;
                        flat.extend(more);
                    }
                    // Disjoint places among places that may overlap are just more of these.
                    Some(Tree::SideBySide(more)) if more.iter().all(|part| matches!(part, Tree::Run(_))) => {
                        flat.extend(more);
                    }
                    other => flat.extend(other),
                }
            }
            let alone = match &flat[..] {
                [Tree::Run(run)] => fits_alone(run),
                [_] => true,
                _ => false,
            };
            Ok(match flat.len() {
                0 => None,
                1 if alone => flat.pop(),
                _ => Some(Tree::Mixed { owner, parts: flat }),
            })
        }
        Tree::InTurn { mode, slots } => {
            let mut flat = Vec::with_capacity(slots.len());
            for (index, slot) in slots.iter().enumerate() {
                let tree = flatten(&slot.tree)?.ok_or(Refusal::IdleSlot { slot: index })?;
                flat.push(Slot { slice_ns: slot.slice_ns, tree });
            }
            Ok(match flat.len() {
                0 => None,
                1 => flat.pop().map(|slot| slot.tree),
                _ => Some(Tree::InTurn { mode: *mode, slots: flat }),
            })
        }
    }
}

fn merge_owners(outer: &mut BTreeMap<u32, AppId>, inner: BTreeMap<u32, AppId>) -> Result<(), Refusal> {
    for (cpu, inner) in inner {
        if let Some(outer) = outer.get(&cpu).filter(|outer| **outer != inner) {
            return Err(Refusal::TwoOwners { cpu, outer: outer.clone(), inner });
        }
        outer.insert(cpu, inner);
    }
    Ok(())
}

/// The levels of the normal form, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Turns,
    Sides,
    InnerTurns,
    Leaf,
    /// Below `mixed`: runs alone.
    Run,
}

/// Of a tree in which nested `side_by_side` are one.
fn check_levels(tree: &Tree, level: Level) -> Result<(), Refusal> {
    let children = match tree {
        Tree::Run(_) => return Ok(()),
        Tree::InTurn { .. } if level <= Level::Turns => Level::Sides,
        Tree::SideBySide(_) if level <= Level::Sides => Level::InnerTurns,
        Tree::InTurn { .. } if level <= Level::InnerTurns => Level::Leaf,
        Tree::Mixed { .. } if level <= Level::Leaf => Level::Run,
        other => {
            let found = match other {
                Tree::SideBySide(_) => "side_by_side",
                Tree::InTurn { .. } => "in_turn",
                _ => "mixed",
            };
            // The levels further out take whatever can stand there.
            let (below, takes) = match level {
                Level::Run => ("mixed", "runs"),
                _ => ("in_turn", "mixed and runs"),
            };
            let (below, takes) = (below.to_owned(), takes.to_owned());
            return Err(Refusal::TooDeep { below, found: found.to_owned(), takes });
        }
    };
    tree.children().try_for_each(|child| check_levels(child, children))
}

/// What must be done to slices, keeping everybody's share.
#[derive(Clone, Copy, PartialEq)]
enum Turns {
    AsTheyAre,
    /// By numerator ÷ denominator; rounded up, lest the shortest end up shorter than it may be.
    Stretched(u128, u128),
    /// The same, rounded down, but no shorter than so many nanoseconds.
    Shortened(u128, u128, u64),
}

impl Turns {
    fn fitted(self, slice_ns: u64) -> u64 {
        match self {
            Turns::AsTheyAre => slice_ns,
            Turns::Stretched(numerator, denominator) => scale(slice_ns, numerator, denominator).1,
            Turns::Shortened(numerator, denominator, floor) => {
                scale(slice_ns, numerator, denominator).0.max(floor)
            }
        }
    }
}

/// What makes the turns such as the world can carry out.
fn fit_turns(tree: &Tree, limits: &Limits) -> Result<Turns, Refusal> {
    let Some(shortest) = shortest_slice_ns(tree) else { return Ok(Turns::AsTheyAre) };
    if !limits.in_turn {
        return Err(Refusal::NoTurns);
    }
    let floor = limits.shortest_slice_ns.max(1);
    if shortest < floor {
        return Ok(Turns::Stretched(floor.into(), shortest.max(1).into()));
    }
    // Nobody asks how long that is where there is no bound on it.
    let Some(goal) = limits.longest_standstill_ns.map(u128::from) else { return Ok(Turns::AsTheyAre) };
    let standstill = standstill(tree);
    let (least, shortest) = (u128::from(floor), u128::from(shortest));
    // Shortening by goal ÷ standstill, or by floor ÷ shortest where that is less of a change.
    Ok(if standstill <= goal {
        Turns::AsTheyAre
    } else if goal * shortest >= least.saturating_mul(standstill) {
        Turns::Shortened(goal, standstill, floor)
    } else {
        Turns::Shortened(least, shortest, floor)
    })
}

/// Whether in some turns others use what the gang in turn leaves idle.
fn fills(tree: &Tree) -> bool {
    matches!(tree, Tree::InTurn { mode: TurnMode::Filling, .. }) || tree.children().any(fills)
}

/// `value` × `numerator` ÷ `denominator`, rounded down and up.
fn scale(value: u64, numerator: u128, denominator: u128) -> (u64, u64) {
    let product = u128::from(value) * numerator;
    let down = u64::try_from(product / denominator).unwrap_or(u64::MAX);
    let up = u64::try_from(product.div_ceil(denominator)).unwrap_or(u64::MAX);
    (down, up)
}

fn for_each_slot(tree: &mut Tree, limits: &Limits, resize: &mut impl FnMut(u64) -> u64) {
    match tree {
        Tree::Run(_) => {}
        Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
            parts.iter_mut().for_each(|part| for_each_slot(part, limits, resize));
        }
        Tree::InTurn { mode, slots } => {
            if !limits.filling {
                *mode = TurnMode::Strict;
            }
            for slot in slots {
                slot.slice_ns = resize(slot.slice_ns);
                for_each_slot(&mut slot.tree, limits, resize);
            }
        }
    }
}

fn shortest_slice_ns(tree: &Tree) -> Option<u64> {
    let own = match tree {
        Tree::InTurn { slots, .. } => slots.iter().map(|slot| slot.slice_ns).min(),
        _ => None,
    };
    own.into_iter().chain(tree.children().filter_map(shortest_slice_ns)).min()
}

/// Longest time that anybody stands still between two of its turns, in nanoseconds.
///
/// Exact where turns are not nested; for nested ones an upper bound: while its outer slot is away a
/// program stands still, once for each outer round that the inner standstill reaches into.
pub fn standstill_ns(tree: &Tree) -> u64 {
    u64::try_from(standstill(tree)).unwrap_or(u64::MAX)
}

/// The same; slices are any numbers of 64 bits, and their sums need more.
fn standstill(tree: &Tree) -> u128 {
    match tree {
        Tree::Run(_) => 0,
        Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => {
            parts.iter().map(standstill).max().unwrap_or(0)
        }
        Tree::InTurn { slots, .. } => {
            let round: u128 = slots.iter().map(|slot| u128::from(slot.slice_ns)).sum();
            // Only who has a slot to itself and stands in another comes back before the round is over.
            let mut alone: ByApp<'_, usize> = ByApp::default();
            for (index, slot) in slots.iter().enumerate() {
                if let Tree::Run(run) = &slot.tree {
                    alone.insert(&run.app, index);
                }
            }
            let mut several = false;
            if !alone.is_empty() {
                for (index, slot) in slots.iter().enumerate() {
                    let elsewhere = |app: &AppId| alone.get(app).is_some_and(|&own| own != index);
                    slot.tree.for_each_run(&mut |run| several |= elsewhere(&run.app));
                }
            }
            let mut longest = 0;
            for (index, slot) in slots.iter().enumerate() {
                let away = round - u128::from(slot.slice_ns);
                let inner = standstill(&slot.tree);
                // A program with further slots in this round comes back sooner.
                let away = match &slot.tree {
                    Tree::Run(run) if several => gap_after(slots, index, &run.app),
                    _ => away,
                };
                let rounds = inner.div_ceil(slot.slice_ns.max(1).into()).max(1);
                longest = longest.max(inner.saturating_add(away.saturating_mul(rounds)));
            }
            longest
        }
    }
}

/// Time from the end of slot `index` until `app` is in turn again.
fn gap_after(slots: &[Slot], index: usize, app: &AppId) -> u128 {
    let others = (1..slots.len()).map(|step| &slots[(index + step) % slots.len()]);
    others.take_while(|slot| !slot.tree.apps().contains(app)).map(|slot| u128::from(slot.slice_ns)).sum()
}
