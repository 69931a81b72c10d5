//! Distributing a whole program at once: plans for a bubble and all that is in it.

use super::{Branch, Facts, How, Put, memory_unit};
use crate::hierarchy::Levels;

fn put(puts: &mut Vec<Put>, branch: &Branch, unit: usize, how: How) {
    puts.push(Put { what: branch.what, unit, how });
}

/// Everything onto one list.
pub fn all_on(unit: usize, branch: &Branch, puts: &mut Vec<Put>) {
    put(puts, branch, unit, How::Burst);
    for member in branch.bubble.iter().flat_map(|(_, members)| members) {
        all_on(unit, member, puts);
    }
}

/// The threads in their order, as many to each processor; bubbles burst at the top.
pub fn in_order(levels: &Levels, top: usize, branch: &Branch, puts: &mut Vec<Put>) {
    fn threads<'a>(branch: &'a Branch, top: usize, found: &mut Vec<&'a Branch>, puts: &mut Vec<Put>) {
        match &branch.bubble {
            None => found.push(branch),
            Some((_, members)) => {
                put(puts, branch, top, How::Burst);
                members.iter().for_each(|member| threads(member, top, found, puts));
            }
        }
    }
    let mut found = Vec::new();
    threads(branch, top, &mut found, puts);
    let processors = levels.unit(top).processors.clone();
    let count = found.len();
    for (number, thread) in found.into_iter().enumerate() {
        let processor = processors.start + number * processors.len() / count.max(processors.len());
        put(puts, thread, levels.own(processor), How::Burst);
    }
}

/// Lets the members of the bubble at `at` out on `unit`, in its place.
fn let_out(items: &mut Vec<&Branch>, at: usize, unit: usize, puts: &mut Vec<Put>) {
    let branch = items[at];
    put(puts, branch, unit, How::Burst);
    let members = branch.bubble.iter().flat_map(|(_, members)| members);
    items.splice(at..=at, members);
}

fn may_be_let_out(levels: &Levels, branch: &Branch, unit: usize) -> bool {
    branch
        .bubble
        .as_ref()
        .is_some_and(|(facts, members)| !members.is_empty() && facts.may_burst_on(levels, unit))
}

/// What goes onto the list of a unit as it is: threads, and bubbles that are not let out there.
fn settle(levels: &Levels, unit: usize, items: Vec<&Branch>, puts: &mut Vec<Put>) {
    for item in items {
        match &item.bubble {
            Some((facts, members)) if facts.may_burst_on(levels, unit) => {
                put(puts, item, unit, How::Burst);
                settle(levels, unit, members.iter().collect(), puts);
            }
            _ => put(puts, item, unit, How::Whole),
        }
    }
}

/// Balances load from the top: at every unit the heaviest bubbles are let out until each unit below can
/// be given something and none gets more than its share in one piece; then the heaviest goes to the
/// unit with the least.
pub fn spread(levels: &Levels, unit: usize, mut items: Vec<&Branch>, puts: &mut Vec<Put>) {
    let children = &levels.unit(unit).children;
    if children.is_empty() {
        return settle(levels, unit, items, puts);
    }
    let width = levels.unit(unit).width();
    loop {
        let total: usize = items.iter().map(|item| item.threads()).sum();
        let widest = children.iter().map(|&child| levels.unit(child).width()).max().unwrap_or(1);
        let share = (total * widest).div_ceil(width);
        let heaviest = (0..items.len())
            .filter(|&at| may_be_let_out(levels, items[at], unit))
            .max_by_key(|&at| (items[at].threads(), std::cmp::Reverse(at)));
        match heaviest {
            Some(at) if items.len() < children.len() || items[at].threads() > share => {
                let_out(&mut items, at, unit, puts);
            }
            _ => break,
        }
    }
    items.sort_by_key(|item| std::cmp::Reverse(item.threads()));
    let mut parts: Vec<(usize, Vec<&Branch>)> = children.iter().map(|_| (0, Vec::new())).collect();
    for item in items {
        let threads = item.threads();
        let least = (0..parts.len())
            .min_by_key(|&at| ((parts[at].0 + threads) * width / levels.unit(children[at]).width(), at))
            .expect("a unit without children ended above");
        parts[least].0 += threads;
        parts[least].1.push(item);
    }
    for (&child, (_, items)) in children.iter().zip(parts) {
        if !items.is_empty() {
            spread(levels, child, items, puts);
        }
    }
}

/// Keeps together: all of it goes down as long as a unit below has room for all. Otherwise the units are
/// filled one after the other in the order of the program, and bubbles are let out that fit nowhere.
/// Room is a processor for every thread, or as many threads to each as are needed to place them all.
pub fn together(levels: &Levels, unit: usize, mut items: Vec<&Branch>, puts: &mut Vec<Put>) {
    let here = levels.unit(unit);
    if here.children.is_empty() {
        return settle(levels, unit, items, puts);
    }
    let total: usize = items.iter().map(|item| item.threads()).sum();
    let each = total.div_ceil(here.width()).max(1);
    let mut room: Vec<usize> = here.children.iter().map(|&child| levels.unit(child).width() * each).collect();
    let mut parts: Vec<Vec<&Branch>> = room.iter().map(|_| Vec::new()).collect();
    let mut at = 0;
    while at < items.len() {
        let threads = items[at].threads();
        if let Some(child) = room.iter().position(|&room| room >= threads) {
            room[child] -= threads;
            parts[child].push(items[at]);
            at += 1;
        } else if may_be_let_out(levels, items[at], unit) {
            let_out(&mut items, at, unit, puts);
        } else {
            // Its maker wants it kept whole: the unit with the most room takes more than its share.
            let (child, _) = room
                .iter()
                .enumerate()
                .max_by_key(|&(at, &room)| (room, std::cmp::Reverse(at)))
                .expect("some");
            room[child] = 0;
            parts[child].push(items[at]);
            at += 1;
        }
    }
    for (&child, items) in here.children.iter().zip(parts) {
        if !items.is_empty() {
            together(levels, child, items, puts);
        }
    }
}

/// Bubbles whose data are on a NUMA node go there; what is left is spread.
pub fn near_memory(levels: &Levels, top: usize, branch: &Branch, puts: &mut Vec<Put>) {
    let node = |facts: &Facts| facts.wishes.memory.and_then(|node| memory_unit(levels, top, node));
    let mut rest = Vec::new();
    fn has_wish(branch: &Branch) -> bool {
        branch
            .bubble
            .as_ref()
            .is_some_and(|(facts, members)| facts.wishes.memory.is_some() || members.iter().any(has_wish))
    }
    match &branch.bubble {
        Some((facts, _)) if node(facts).is_some() => {
            spread(levels, node(facts).unwrap_or(top), vec![branch], puts);
        }
        Some((_, members)) if members.iter().any(has_wish) => {
            put(puts, branch, top, How::Burst);
            for member in members {
                match has_wish(member) {
                    true => near_memory(levels, top, member, puts),
                    false => rest.push(member),
                }
            }
        }
        _ => rest.push(branch),
    }
    if !rest.is_empty() {
        spread(levels, top, rest, puts);
    }
}
