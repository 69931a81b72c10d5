//! Whether the code of one region computes the same with any number of threads.
//!
//! Three passes over its blocks. The first finds the loops over a thread's share: loops that end by
//! comparing with a bound of it, or when the runtime has no further chunk. What such a loop carries from
//! one iteration to the next is then sorted: what advances by a fixed step from a bound is the index
//! of the iteration, as good as any other data; what does so from a constant is an offset to a bound;
//! integers that only add up from zero are a sum; anything else depends on where shares begin. The
//! second pass follows the code again with these. The third asks of every instruction whether what leaves
//! the thread depends on the team, and whether it happens for the thread's share only.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{ConditionCode, Instruction};

use crate::code::{End, Graph, Loop};
use crate::image::{Function, Image};
use crate::reason::Cause;
use crate::state::{Location, State};
use crate::step::{By, Event, Stepper};
use crate::value::Value;

/// Each pass ends; a bound against mistakes.
const MOST_VISITS: usize = 400;

/// What a branch decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    None,
    /// Whether the thread has a share, or has more of it.
    Share,
    /// The same, told by the runtime: true on the way with this index.
    MoreWork(usize),
    /// Whether the thread is the one that is chosen.
    Chosen(usize),
}

type Overrides = BTreeMap<usize, Vec<(Location, Value)>>;

struct Region<'a> {
    graph: Graph,
    stepper: Stepper<'a>,
    entry: State,
}

/// `Ok` if it does.
pub fn analyse(image: &Image, function: &Function, is_llvm: bool) -> Result<(), Cause> {
    let mut entry = State::at_entry();
    if is_llvm {
        entry.set(Location::General(crate::state::ARGUMENTS[0]), Value::GlobalAt);
        entry.set(Location::General(crate::state::ARGUMENTS[1]), Value::GlobalAt);
    }
    let region = Region { graph: Graph::of(image, function)?, stepper: Stepper::new(image), entry };
    let plain = region.follow(&Overrides::new(), &[])?;
    let shares = region.share_loops(&plain);
    let overrides = region.overrides(&plain, &shares);
    let states = region.follow(&overrides, &shares)?;
    region.judge(&states, &shares)
}

impl Region<'_> {
    /// The state at the start of each block.
    fn follow(&self, overrides: &Overrides, shares: &[usize]) -> Result<Vec<Option<State>>, Cause> {
        let blocks = &self.graph.blocks;
        let mut states: Vec<Option<State>> = vec![None; blocks.len()];
        let mut visits = vec![0; blocks.len()];
        states[0] = Some(self.entry.clone());
        let mut open = BTreeSet::from([0]);
        while let Some(at) = open.pop_first() {
            visits[at] += 1;
            if visits[at] > MOST_VISITS {
                return Err(Cause::NotFollowed);
            }
            let Some(state) = &states[at] else { continue };
            let state = self.through(state.clone(), &blocks[at].instructions);
            for &next in &blocks[at].successors {
                let mut arriving = state.clone();
                let leaves = |body: &BTreeSet<usize>| body.contains(&at) && !body.contains(&next);
                if shares.iter().any(|share| leaves(&self.graph.loops[*share].body)) {
                    arriving.leave_share();
                }
                for (location, value) in overrides.get(&next).into_iter().flatten() {
                    // A sum has no more bytes in the next iteration than were added up in this one.
                    let value = match arriving.get(*location) {
                        Value::Sum(bytes) | Value::Total(bytes) => value.narrowed(usize::from(bytes)),
                        _ => *value,
                    };
                    arriving.set(*location, value);
                }
                let changed = match &mut states[next] {
                    Some(known) => known.join(&arriving),
                    none => {
                        *none = Some(arriving);
                        true
                    }
                };
                if changed {
                    open.insert(next);
                }
            }
        }
        Ok(states)
    }

    fn through(&self, mut state: State, instructions: &[Instruction]) -> State {
        for instruction in instructions {
            self.stepper.step(&mut state, instruction, &mut |_| {});
        }
        state
    }

    fn at_end(&self, states: &[Option<State>], block: usize) -> Option<State> {
        states[block].clone().map(|state| self.through(state, &self.graph.blocks[block].instructions))
    }

    fn guard(&self, states: &[Option<State>], block: usize) -> Guard {
        let blocks = &self.graph.blocks;
        let (End::Condition, Some(state), Some(branch)) =
            (blocks[block].end, self.at_end(states, block), blocks[block].instructions.last())
        else {
            return Guard::None;
        };
        guard_of(state.compared, branch.condition_code())
    }

    /// Loops over a share: the outermost, and those right inside a loop over chunks.
    fn share_loops(&self, states: &[Option<State>]) -> Vec<usize> {
        let loops = &self.graph.loops;
        let exits = |each: &Loop| -> Vec<Guard> {
            let leaves =
                |at: &&usize| self.graph.blocks[**at].successors.iter().any(|to| !each.body.contains(to));
            each.body.iter().filter(leaves).map(|at| self.guard(states, *at)).collect()
        };
        let guards: Vec<Vec<Guard>> = loops.iter().map(exits).collect();
        let over_chunks = |at: usize| guards[at].iter().any(|guard| matches!(guard, Guard::MoreWork(_)));
        let over_share = |at: usize| over_chunks(at) || guards[at].contains(&Guard::Share);
        let encloses = |outer: usize, inner: usize| {
            outer != inner
                && loops[outer].body.contains(&loops[inner].header)
                && loops[inner].body.is_subset(&loops[outer].body)
        };
        (0..loops.len())
            .filter(|&at| over_share(at))
            .filter(|&at| {
                !(0..loops.len()).any(|outer| encloses(outer, at) && over_share(outer) && !over_chunks(outer))
            })
            .collect()
    }

    /// What the loops over shares carry along, and as what it counts.
    fn overrides(&self, states: &[Option<State>], shares: &[usize]) -> Overrides {
        let live = self.live(states);
        let mut overrides = Overrides::new();
        for each in shares.iter().map(|at| &self.graph.loops[*at]) {
            let written = self.written(states, each);
            let Some(entering) = self.entering(states, each) else { continue };
            let steps = self.steps(states, each, &written);
            let carried = written.iter().filter(|at| live[each.header].contains(at));
            let sorted = carried.filter_map(|&at| {
                if let Location::Frame(offset) = at
                    && !entering.begins_slot(offset)
                {
                    return None;
                }
                // Computed anew in each iteration, and always the same.
                if states[each.header]
                    .as_ref()
                    .is_some_and(|state| matches!(state.get(at), Value::Const(_) | Value::Fixed(_)))
                {
                    return None;
                }
                let value =
                    carried_as(entering.get(at), steps.get(&at).copied(), matches!(at, Location::Vector(_)))?;
                Some((at, value))
            });
            overrides.insert(each.header, sorted.collect());
        }
        overrides
    }

    /// The state in which a loop is entered from outside.
    fn entering(&self, states: &[Option<State>], each: &Loop) -> Option<State> {
        let from_outside =
            self.graph.blocks[each.header].predecessors.iter().filter(|at| !each.body.contains(at));
        let mut entering: Option<State> = None;
        for state in from_outside.filter_map(|at| self.at_end(states, *at)) {
            match &mut entering {
                Some(known) => {
                    known.join(&state);
                }
                none => *none = Some(state),
            }
        }
        entering
    }

    /// Instructions of a block with the state before each.
    fn each_instruction(
        &self,
        states: &[Option<State>],
        block: usize,
        mut visit: impl FnMut(&State, &Instruction),
    ) {
        let Some(mut state) = states[block].clone() else { return };
        for instruction in &self.graph.blocks[block].instructions {
            visit(&state, instruction);
            self.stepper.step(&mut state, instruction, &mut |_| {});
        }
    }

    fn written(&self, states: &[Option<State>], each: &Loop) -> BTreeSet<Location> {
        let mut written = BTreeSet::new();
        for &block in &each.body {
            self.each_instruction(states, block, |state, instruction| {
                written.extend(self.stepper.accesses(state, instruction).writes);
            });
        }
        written
    }

    /// What is read at or after the start of each block before it is written again.
    fn live(&self, states: &[Option<State>]) -> Vec<BTreeSet<Location>> {
        let blocks = &self.graph.blocks;
        let mut needs = Vec::new();
        for block in 0..blocks.len() {
            let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
            self.each_instruction(states, block, |state, instruction| {
                let accesses = self.stepper.accesses(state, instruction);
                read.extend(accesses.reads.into_iter().filter(|at| !written.contains(at)));
                written.extend(accesses.writes.into_iter().chain(accesses.clobbers));
            });
            needs.push((read, written));
        }
        let mut live: Vec<BTreeSet<Location>> = needs.iter().map(|(read, _)| read.clone()).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..blocks.len()).rev() {
                let after: BTreeSet<Location> =
                    blocks[block].successors.iter().flat_map(|next| live[*next].iter().copied()).collect();
                for at in after.into_iter().filter(|at| !needs[block].1.contains(at)) {
                    changed |= live[block].insert(at);
                }
            }
        }
        live
    }

    /// Of everything that the loop writes: by how much it has advanced when an iteration ends, where that is
    /// one step whatever way was taken.
    fn steps(
        &self,
        states: &[Option<State>],
        each: &Loop,
        written: &BTreeSet<Location>,
    ) -> BTreeMap<Location, Step> {
        let mut known: BTreeMap<usize, Offsets> = BTreeMap::new();
        let start = written.iter().map(|at| (*at, (*at, Step::By(0)))).collect();
        known.insert(each.header, start);
        let mut open = BTreeSet::from([each.header]);
        let mut ends: Vec<Offsets> = Vec::new();
        let mut visits = 0;
        while let Some(block) = open.pop_first() {
            visits += 1;
            if visits > MOST_VISITS * each.body.len() {
                return BTreeMap::new();
            }
            let offsets = self.advanced(states, block, known[&block].clone(), written);
            for &next in self.graph.blocks[block].successors.iter().filter(|next| each.body.contains(next)) {
                if next == each.header {
                    continue;
                }
                let changed = match known.get_mut(&next) {
                    Some(there) => {
                        let before = there.len();
                        there.retain(|at, offset| offsets.get(at) == Some(offset));
                        there.len() != before
                    }
                    None => {
                        known.insert(next, offsets.clone());
                        true
                    }
                };
                if changed {
                    open.insert(next);
                }
            }
        }
        for latch in &each.latches {
            if let Some(offsets) = known.get(latch) {
                ends.push(self.advanced(states, *latch, offsets.clone(), written));
            }
        }
        let Some((first, rest)) = ends.split_first() else { return BTreeMap::new() };
        first
            .iter()
            .filter(|(at, (from, _))| *at == from)
            .filter(|(at, offset)| rest.iter().all(|other| other.get(at) == Some(offset)))
            .map(|(at, (_, step))| (*at, *step))
            .collect()
    }

    fn advanced(
        &self,
        states: &[Option<State>],
        block: usize,
        mut offsets: Offsets,
        written: &BTreeSet<Location>,
    ) -> Offsets {
        self.each_instruction(states, block, |state, instruction| {
            let moved = self.stepper.advance(state, instruction).and_then(|advance| {
                let (origin, step) = *offsets.get(&advance.from)?;
                let step = match (advance.by, step) {
                    (By::Constant(0), step) => step,
                    (By::Constant(by), Step::By(before)) => Step::By(before.wrapping_add(by)),
                    (By::Constant(_), Step::Varies) => Step::Varies,
                    (By::Location(other), _) if !written.contains(&other) => Step::Varies,
                    (By::Location(_), _) => return None,
                };
                Some((advance.to, (origin, step)))
            });
            let accesses = self.stepper.accesses(state, instruction);
            for at in accesses.writes.iter().chain(&accesses.clobbers) {
                offsets.remove(at);
            }
            if let Some((to, offset)) = moved {
                offsets.insert(to, offset);
            }
        });
        offsets
    }

    /// Asks every instruction.
    fn judge(&self, states: &[Option<State>], shares: &[usize]) -> Result<(), Cause> {
        let blocks = &self.graph.blocks;
        let guards: Vec<Guard> = (0..blocks.len()).map(|block| self.guard(states, block)).collect();
        let in_share_loop =
            |block: usize| shares.iter().any(|at| self.graph.loops[*at].body.contains(&block));
        for (block, code) in blocks.iter().enumerate() {
            let Some(mut state) = states[block].clone() else { continue };
            let leave = self.leave_to(block, &guards);
            for instruction in &code.instructions {
                let mut found = None;
                self.stepper.step(&mut state, instruction, &mut |event| {
                    let cause = match event {
                        Event::Forbidden(cause) => Some(cause),
                        Event::Effect { at_bound } => match leave {
                            Leave::Chosen => None,
                            Leave::Share if in_share_loop(block) || at_bound => None,
                            _ => Some(Cause::EachThread),
                        },
                    };
                    found = found.or(cause);
                });
                if let Some(cause) = found {
                    return Err(cause);
                }
            }
        }
        Ok(())
    }

    /// On what it depends that a block runs.
    fn leave_to(&self, block: usize, guards: &[Guard]) -> Leave {
        let (mut reached, mut open) = (BTreeSet::from([block]), vec![block]);
        let mut leave = Leave::None;
        while let Some(at) = open.pop() {
            for &(branch, way) in &self.graph.depends_on[at] {
                // That a loop goes round again is no reason for its first iteration.
                if self.graph.is_back_edge(branch, way) {
                    continue;
                }
                match guards[branch] {
                    Guard::Chosen(chosen) if chosen == way => return Leave::Chosen,
                    Guard::MoreWork(more) if more == way => leave = Leave::Share,
                    Guard::Share => leave = Leave::Share,
                    _ => {}
                }
                if reached.insert(branch) {
                    open.push(branch);
                }
            }
        }
        leave
    }
}

/// Why a block may do what others see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    None,
    Share,
    Chosen,
}

type Offsets = BTreeMap<Location, (Location, Step)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    By(i64),
    /// By something that stays the same in the loop.
    Varies,
}

/// Bytes of the widest integer that a register holds.
const WIDEST: u8 = 8;

/// `None`: nothing is carried.
fn carried_as(entering: Value, step: Option<Step>, is_vector: bool) -> Option<Value> {
    match (entering, step) {
        (Value::Undefined | Value::Returned, _) | (_, Some(Step::By(0))) => None,
        (Value::Bound, Some(_)) => Some(Value::Clean),
        _ if is_vector => Some(Value::Carried),
        (Value::Count, Some(_)) => Some(Value::Count),
        (Value::Const(_) | Value::Fixed(_) | Value::Clean, Some(_)) => Some(Value::Local),
        (Value::Const(0), None) => Some(Value::Sum(WIDEST)),
        (Value::Sum(bytes) | Value::Total(bytes), None) => Some(Value::Sum(bytes)),
        (Value::MoreWork, _) => None,
        _ => Some(Value::Carried),
    }
}

fn guard_of(compared: (Value, Value), condition: ConditionCode) -> Guard {
    let guard_value = |with: i64| match (condition, with) {
        (ConditionCode::e, 0) | (ConditionCode::ne, 1) => Some(1),
        (ConditionCode::ne, 0) | (ConditionCode::e, 1) => Some(0),
        _ => None,
    };
    match compared {
        (Value::MoreWork, Value::Const(with)) => guard_value(with).map_or(Guard::None, Guard::MoreWork),
        (Value::Chosen, Value::Const(with)) => guard_value(with).map_or(Guard::None, Guard::Chosen),
        (Value::Thread, Value::Const(0)) | (Value::Const(0), Value::Thread) => {
            guard_value(1).map_or(Guard::None, Guard::Chosen)
        }
        (Value::QuotientEither, _) | (_, Value::QuotientEither) => Guard::Share,
        (a, b) if a.is_of_share() || b.is_of_share() => Guard::Share,
        _ => Guard::None,
    }
}
