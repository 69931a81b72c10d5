//! One function as basic blocks: who follows whom, dominators, natural loops, control dependence.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, OpKind};

use crate::image::{Function, Image};
use crate::reason::Cause;

/// Functions of more instructions than this are not followed.
const MOST_INSTRUCTIONS: usize = 40_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Falls or jumps to its one successor.
    Next,
    /// `successors[0]` where the condition holds, else `successors[1]`.
    Condition,
    Return,
}

pub struct Block {
    pub instructions: Vec<Instruction>,
    pub successors: Vec<usize>,
    pub predecessors: Vec<usize>,
    pub end: End,
}

/// Blocks of one natural loop.
pub struct Loop {
    pub header: usize,
    pub body: BTreeSet<usize>,
    /// Blocks that jump back to the header.
    pub latches: Vec<usize>,
}

pub struct Graph {
    /// The entry is the first.
    pub blocks: Vec<Block>,
    pub loops: Vec<Loop>,
    /// Of each block, the branches on which it depends: block and index of the successor.
    pub depends_on: Vec<Vec<(usize, usize)>>,
}

/// Where a jump leads.
enum Jump {
    Inside(u64),
    /// To another function: a call that ends this one.
    Away,
}

impl Graph {
    pub fn of(image: &Image, function: &Function) -> Result<Graph, Cause> {
        let decoded = reach(image, function)?;
        let mut blocks = in_order(split(image, function, decoded)?);
        for at in 0..blocks.len() {
            for next in blocks[at].successors.clone() {
                blocks[next].predecessors.push(at);
            }
        }
        let dominators = dominators(&blocks);
        let loops = loops(&blocks, &dominators)?;
        let depends_on = control_dependence(&blocks);
        Ok(Graph { blocks, loops, depends_on })
    }

    /// Whether that successor is the way back to the header of a loop that holds the block.
    pub fn is_back_edge(&self, from: usize, successor: usize) -> bool {
        let to = self.blocks[from].successors[successor];
        self.loops.iter().any(|each| each.header == to && each.latches.contains(&from))
    }
}

fn jump(image: &Image, function: &Function, target: u64) -> Jump {
    let inside = (function.start..function.end).contains(&target);
    // GCC puts unlikely parts elsewhere.
    let is_cold_part = || {
        let base = function.name.split(".cold").next().unwrap_or_default();
        let of_it = |f: &Function| f.name.contains(".cold") && f.name.starts_with(base);
        image.function_of(target).is_some_and(of_it)
            || (function.name.contains(".cold") && image.function_of(target).is_some_and(|f| f.name == base))
    };
    if inside || is_cold_part() { Jump::Inside(target) } else { Jump::Away }
}

fn is_near_branch(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::NearBranch64
}

/// All instructions that can be reached from the entry.
fn reach(image: &Image, function: &Function) -> Result<BTreeMap<u64, Instruction>, Cause> {
    let mut decoded = BTreeMap::new();
    let mut open = vec![function.start];
    while let Some(start) = open.pop() {
        let bytes = image.code_at(start).ok_or(Cause::NotFollowed)?;
        for instruction in crate::image::decode(bytes, start) {
            if instruction.is_invalid() || decoded.len() > MOST_INSTRUCTIONS {
                return Err(Cause::NotFollowed);
            }
            if decoded.insert(instruction.ip(), instruction).is_some() {
                break;
            }
            let flow = instruction.flow_control();
            let follow = |open: &mut Vec<u64>| -> Result<(), Cause> {
                if !is_near_branch(&instruction) {
                    return Err(Cause::NotFollowed);
                }
                if let Jump::Inside(target) = jump(image, function, instruction.near_branch_target()) {
                    open.push(target);
                }
                Ok(())
            };
            match flow {
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
                FlowControl::ConditionalBranch => follow(&mut open)?,
                FlowControl::UnconditionalBranch => {
                    follow(&mut open)?;
                    break;
                }
                FlowControl::Return => break,
                // A jump through a slot is a call of an imported function that ends this one.
                FlowControl::IndirectBranch
                    if instruction.is_ip_rel_memory_operand()
                        && image.imported(instruction.ip_rel_memory_address()).is_some() =>
                {
                    break;
                }
                // `ud2` behind a call that does not return.
                FlowControl::Exception => break,
                _ => return Err(Cause::NotFollowed),
            }
            if image.function_of(instruction.next_ip()).is_none_or(|f| f.start != function.start)
                && !matches!(flow, FlowControl::ConditionalBranch)
                && image.function_of(instruction.ip()).is_none_or(|f| instruction.next_ip() >= f.end)
            {
                break; // behind a call that does not return stands nothing
            }
        }
    }
    Ok(decoded)
}

fn split(
    image: &Image,
    function: &Function,
    decoded: BTreeMap<u64, Instruction>,
) -> Result<Vec<Block>, Cause> {
    let mut leaders = BTreeSet::from([function.start]);
    for instruction in decoded.values() {
        let branches = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        if branches {
            leaders.insert(instruction.next_ip());
            if let Jump::Inside(target) = jump(image, function, instruction.near_branch_target()) {
                leaders.insert(target);
            }
        }
    }
    leaders.retain(|leader| decoded.contains_key(leader));
    let mut starts: Vec<u64> = leaders.into_iter().collect();
    starts.sort_by_key(|start| (*start != function.start, *start));
    let number: BTreeMap<u64, usize> = starts.iter().enumerate().map(|(at, start)| (*start, at)).collect();
    let mut blocks = Vec::new();
    for start in starts {
        let mut instructions = Vec::new();
        let mut at = start;
        let (end, targets) = loop {
            let Some(instruction) = decoded.get(&at) else { break (End::Return, vec![]) };
            instructions.push(*instruction);
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::ConditionalBranch => {
                    match jump(image, function, instruction.near_branch_target()) {
                        Jump::Inside(target) => break (End::Condition, vec![target, next]),
                        Jump::Away => return Err(Cause::NotFollowed),
                    }
                }
                FlowControl::UnconditionalBranch => {
                    match jump(image, function, instruction.near_branch_target()) {
                        Jump::Inside(target) => break (End::Next, vec![target]),
                        Jump::Away => break (End::Return, vec![]),
                    }
                }
                FlowControl::Return | FlowControl::Exception | FlowControl::IndirectBranch => {
                    break (End::Return, vec![]);
                }
                _ => {}
            }
            if number.contains_key(&next) {
                break (End::Next, vec![next]);
            }
            at = next;
        };
        let successors: Option<Vec<usize>> =
            targets.iter().map(|target| number.get(target).copied()).collect();
        let successors = successors.ok_or(Cause::NotFollowed)?;
        blocks.push(Block { instructions, successors, predecessors: Vec::new(), end });
    }
    Ok(blocks)
}

/// Each block behind those that lead to it, but for the ways back in loops.
fn in_order(blocks: Vec<Block>) -> Vec<Block> {
    let mut order = Vec::new();
    let mut reached = vec![false; blocks.len()];
    let mut open = vec![(0, 0)];
    reached[0] = true;
    while let Some((at, next)) = open.pop() {
        match blocks[at].successors.get(next) {
            Some(&to) => {
                open.push((at, next + 1));
                if !reached[to] {
                    reached[to] = true;
                    open.push((to, 0));
                }
            }
            None => order.push(at),
        }
    }
    order.reverse();
    let mut place = vec![0; blocks.len()];
    for (at, old) in order.iter().enumerate() {
        place[*old] = at;
    }
    let mut blocks: Vec<Option<Block>> = blocks.into_iter().map(Some).collect();
    let taken = order.iter().filter_map(|old| blocks[*old].take());
    taken
        .map(|mut block| {
            block.successors.iter_mut().for_each(|to| *to = place[*to]);
            block
        })
        .collect()
}

/// Of each block those that every way from the entry to it passes; plain sets, as functions are small.
fn dominators(blocks: &[Block]) -> Vec<BTreeSet<usize>> {
    let edges: Vec<Vec<usize>> = blocks.iter().map(|block| block.predecessors.clone()).collect();
    on_every_way(&edges, 0)
}

/// For each node the nodes on every way that leads from `root` to it; `before` are the edges backwards.
fn on_every_way(before: &[Vec<usize>], root: usize) -> Vec<BTreeSet<usize>> {
    let all: BTreeSet<usize> = (0..before.len()).collect();
    let mut sets = vec![all; before.len()];
    sets[root] = BTreeSet::from([root]);
    let mut changed = true;
    while changed {
        changed = false;
        for node in (0..before.len()).filter(|node| *node != root) {
            let mut ways = before[node].iter();
            let Some(first) = ways.next() else { continue };
            let mut set = sets[*first].clone();
            for way in ways {
                set.retain(|each| sets[*way].contains(each));
            }
            set.insert(node);
            if set != sets[node] {
                sets[node] = set;
                changed = true;
            }
        }
    }
    sets
}

fn loops(blocks: &[Block], dominators: &[BTreeSet<usize>]) -> Result<Vec<Loop>, Cause> {
    let mut loops: BTreeMap<usize, Loop> = BTreeMap::new();
    for (from, block) in blocks.iter().enumerate() {
        for &to in block.successors.iter().filter(|to| dominators[from].contains(to)) {
            let entry = loops.entry(to).or_insert_with(|| Loop {
                header: to,
                body: BTreeSet::from([to]),
                latches: Vec::new(),
            });
            entry.latches.push(from);
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                if entry.body.insert(at) {
                    open.extend(&blocks[at].predecessors);
                }
            }
        }
    }
    match has_other_circle(blocks, &loops) {
        true => Err(Cause::NotFollowed),
        false => Ok(loops.into_values().collect()),
    }
}

/// Whether a way leads in a circle without passing the header of a natural loop.
fn has_other_circle(blocks: &[Block], loops: &BTreeMap<usize, Loop>) -> bool {
    let is_back = |from: usize, to: usize| loops.get(&to).is_some_and(|each| each.latches.contains(&from));
    let mut waits: Vec<usize> = vec![0; blocks.len()];
    for (from, block) in blocks.iter().enumerate() {
        for &to in block.successors.iter().filter(|to| !is_back(from, **to)) {
            waits[to] += 1;
        }
    }
    let mut open: Vec<usize> = (0..blocks.len()).filter(|at| waits[*at] == 0).collect();
    let mut passed = 0;
    while let Some(from) = open.pop() {
        passed += 1;
        for &to in blocks[from].successors.iter().filter(|to| !is_back(from, **to)) {
            waits[to] -= 1;
            if waits[to] == 0 {
                open.push(to);
            }
        }
    }
    passed != blocks.len()
}

/// A block depends on a branch if one of its ways leads to the block for certain and another may not.
fn control_dependence(blocks: &[Block]) -> Vec<Vec<(usize, usize)>> {
    let end = blocks.len();
    let mut after: Vec<Vec<usize>> = blocks
        .iter()
        .map(|block| if block.successors.is_empty() { vec![end] } else { block.successors.clone() })
        .collect();
    after.push(Vec::new());
    let certain_after = on_every_way(&after, end);
    let mut depends = vec![Vec::new(); blocks.len()];
    for (from, block) in blocks.iter().enumerate().filter(|(_, block)| block.end == End::Condition) {
        for (index, &to) in block.successors.iter().enumerate() {
            for &certain in certain_after[to].iter().filter(|at| **at != end) {
                if certain == from || !certain_after[from].contains(&certain) {
                    depends[certain].push((from, index));
                }
            }
        }
    }
    depends
}
