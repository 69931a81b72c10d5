//! Local level decisions (paper II-A): "as soon as a node in the hierarchy has accumulated enough
//! jobs, it switches to the next lower level; if a node has nothing to do, despite balancing, its
//! siblings return their jobs to their parent".

use std::collections::BTreeMap;

use topology::CpuSet;

use plan::Remark;

use crate::LevelMemory;
use crate::common::compose::Division;
use crate::common::context::{Context, Part};
use crate::common::levels::{Cut, left_over, spread};

/// A walk down the hierarchy.
struct Walk<'a, 'c> {
    cx: &'c Context<'a>,
    /// Levels that nest: every place lies in one of the level above, and every place has several
    /// places of the level below.
    levels: Vec<&'c Cut>,
    /// Of each level but the last, the places of the next one in each of its places.
    children: Vec<Vec<Vec<CpuSet>>>,
    level: LevelMemory,
    wake_at_ns: Option<u64>,
    parts: Vec<Part>,
}

pub(crate) fn divide(cx: &Context<'_>, cuts: &[Cut], members: &[usize]) -> Division {
    let (first, finer) = cuts.split_first().expect("never without cuts");
    let (mut levels, mut children) = (vec![first], Vec::new());
    for cut in finer {
        if let Some(nested) = nested(levels[levels.len() - 1], cut) {
            levels.push(cut);
            children.push(nested);
        }
    }
    let now = cx.snapshot.now_ns;
    let mut walk =
        Walk { cx, levels, children, level: LevelMemory::default(), wake_at_ns: None, parts: Vec::new() };
    let top = spread(cx, &walk.levels[0].places, members);
    let seated: usize = top.iter().map(|part| part.members.len()).sum();
    for part in top {
        let place = walk.levels[0].places.iter().position(|place| *place == part.place);
        walk.node(0, place.unwrap_or(0), part, now);
    }
    let Walk { levels, mut level, wake_at_ns, parts, .. } = walk;
    level.width = parts.iter().map(|part| part.place.len() as u32).min();
    let count_of = |cut: &Cut| parts.iter().filter(|part| part.place.len() == cut.width as usize).count();
    let in_use = || levels.iter().filter(|cut| count_of(cut) > 0);
    let widths = in_use().map(|cut| (cut.width, count_of(cut) as u32)).collect();
    let mut remarks = vec![Remark::Partitions { programs: seated as u32, widths }];
    remarks.extend(in_use().filter_map(|cut| left_over(cut)));
    Division { layers: vec![parts], level, wake_at_ns, remarks, ..Division::default() }
}

/// The places of `cut` in each place of `above`; `None` where the two do not nest.
fn nested(above: &Cut, cut: &Cut) -> Option<Vec<Vec<CpuSet>>> {
    let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
    for (number, place) in above.places.iter().enumerate() {
        owner.extend(place.iter().map(|cpu| (cpu, number)));
    }
    let mut children: Vec<Vec<CpuSet>> = vec![Vec::new(); above.places.len()];
    for place in &cut.places {
        let number = *owner.get(&place.lowest()?)?;
        if !place.is_subset(&above.places[number]) {
            return None;
        }
        children[number].push(place.clone());
    }
    children.iter().all(|children| children.len() > 1).then_some(children)
}

impl Walk<'_, '_> {
    /// `node` stands on the place with number `place` of the level.
    fn node(&mut self, level: usize, place: usize, node: Part, now: u64) {
        let Some(children) = self.children.get_mut(level).map(|places| std::mem::take(&mut places[place]))
        else {
            self.parts.push(node);
            return;
        };
        let (settings, old) = (self.cx.settings, &self.cx.memory.level);
        let (upper, lower) = (settings.upper_threshold as usize, settings.lower_threshold as usize);
        let jobs = node.members.len();
        let since = old.split.get(&node.place);
        let was_split = since.is_some();
        let wants_split =
            if was_split { jobs + lower >= children.len() } else { jobs >= children.len() + upper };
        let changed_ns = since.or_else(|| old.joined.get(&node.place)).copied();
        let held_until = changed_ns.map_or(0, |changed| changed.saturating_add(settings.hold_ns));
        // Neither threshold nor hold keeps anybody on less than half of what it would have undivided.
        let worth_it = jobs > 1 && 2 * jobs >= children.len();
        let wants_split = wants_split && worth_it;
        let held = wants_split != was_split && now < held_until && (worth_it || !was_split);
        let split = if held { was_split } else { wants_split };
        if held {
            self.wake_at_ns = Some(self.wake_at_ns.map_or(held_until, |wake| wake.min(held_until)));
        }
        let dealt = if split { spread(self.cx, &children, &node.members) } else { Vec::new() };
        // A restriction that no child satisfies keeps the node whole.
        let seated: usize = dealt.iter().map(|part| part.members.len()).sum();
        if seated < jobs || dealt.is_empty() {
            if was_split {
                self.level.joined.insert(node.place.clone(), now);
            } else if let Some(&joined) = old.joined.get(&node.place) {
                self.level.joined.insert(node.place.clone(), joined);
            }
            self.parts.push(node);
            return;
        }
        self.level.split.insert(node.place, since.copied().unwrap_or(now));
        let below = &self.levels[level + 1].places;
        let numbers: Vec<usize> = dealt
            .iter()
            .map(|part| below.iter().position(|place| *place == part.place).unwrap_or(0))
            .collect();
        for (part, number) in dealt.into_iter().zip(numbers) {
            self.node(level + 1, number, part, now);
        }
    }
}
