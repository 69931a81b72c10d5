//! Forms of units, and arithmetic with them: fractions, what two have in common, how many of one
//! fit into another.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::Level;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FormId(u32);

/// Counted children, widest first.
type Children = Vec<(FormId, u32)>;

struct Form {
    /// The level at which it branches; `Pu` for a leaf.
    level: Level,
    width: u32,
    children: Children,
    /// Capacity classes of the leaves.
    classes: BTreeSet<u32>,
    /// What a unit of this form is called; `None` for one that was made by cutting or trimming.
    name: Option<Level>,
    /// The form of which this is one of so many equal parts.
    part_of: Option<(FormId, u32)>,
}

/// All forms met so far; equal forms have equal ids.
#[derive(Default)]
pub(super) struct Forms {
    forms: Vec<Form>,
    leaves: BTreeMap<u32, FormId>,
    branches: BTreeMap<(Level, Children), FormId>,
    /// Most neighbours look alike: the form found last, by level.
    recent: BTreeMap<Level, FormId>,
    scratch: Children,
    counts: Memo,
    copies: Memo,
    meets: BTreeMap<(FormId, FormId), Option<FormId>>,
}

/// Numbers for pairs of forms, found by position: laying out asks for them at every unit.
#[derive(Default)]
struct Memo(Vec<Vec<Option<u32>>>);

impl Memo {
    fn get(&self, host: FormId, part: FormId) -> Option<u32> {
        *self.0.get(host.0 as usize)?.get(part.0 as usize)?
    }

    fn set(&mut self, host: FormId, part: FormId, value: u32) {
        let (host, part) = (host.0 as usize, part.0 as usize);
        if self.0.len() <= host {
            self.0.resize_with(host + 1, Vec::new);
        }
        if self.0[host].len() <= part {
            self.0[host].resize(part + 1, None);
        }
        self.0[host][part] = Some(value);
    }
}

impl Forms {
    fn get(&self, id: FormId) -> &Form {
        &self.forms[id.0 as usize]
    }

    pub(super) fn width(&self, id: FormId) -> u32 {
        self.get(id).width
    }

    pub(super) fn children(&self, id: FormId) -> &[(FormId, u32)] {
        &self.get(id).children
    }

    pub(super) fn has_unlike_leaves(&self) -> bool {
        self.leaves.len() > 1
    }

    pub(super) fn is_of_one_class(&self, id: FormId) -> bool {
        self.get(id).classes.len() == 1
    }

    fn push(&mut self, level: Level, width: u32, children: Children, classes: BTreeSet<u32>) -> FormId {
        self.forms.push(Form { level, width, children, classes, name: None, part_of: None });
        FormId(self.forms.len() as u32 - 1)
    }

    pub(super) fn leaf(&mut self, class: u32) -> FormId {
        if let Some(&id) = self.leaves.get(&class) {
            return id;
        }
        let id = self.push(Level::Pu, 1, Vec::new(), BTreeSet::from([class]));
        self.leaves.insert(class, id);
        id
    }

    /// The form of a unit with these children; a single child is looked through.
    pub(super) fn branch(
        &mut self,
        level: Level,
        children: impl IntoIterator<Item = (FormId, u32)>,
    ) -> FormId {
        let mut counted = std::mem::take(&mut self.scratch);
        counted.clear();
        for (id, count) in children {
            match counted.iter_mut().rev().find(|(known, _)| *known == id) {
                Some((_, known)) => *known += count,
                None => counted.push((id, count)),
            }
        }
        counted.sort_by_key(|&(id, _)| (std::cmp::Reverse(self.width(id)), id));
        let id = self.intern(level, &counted);
        self.scratch = counted;
        id
    }

    fn intern(&mut self, level: Level, children: &[(FormId, u32)]) -> FormId {
        if let [(only, 1)] = children {
            return *only;
        }
        if let Some(&id) = self.recent.get(&level).filter(|&&id| self.children(id) == children) {
            return id;
        }
        let key = (level, children.to_vec());
        let id = match self.branches.get(&key) {
            Some(&id) => id,
            None => {
                let width = children.iter().map(|&(id, count)| self.width(id) * count).sum();
                let classes =
                    children.iter().flat_map(|&(id, _)| self.get(id).classes.iter().copied()).collect();
                let id = self.push(level, width, children.to_vec(), classes);
                self.branches.insert(key, id);
                id
            }
        };
        self.recent.insert(level, id);
        id
    }

    /// Notes that the machine has a unit of this form. Of several names the narrowest is right for all.
    pub(super) fn occurs(&mut self, id: FormId, name: Level) {
        let known = &mut self.forms[id.0 as usize].name;
        *known = (*known).max(Some(name));
    }

    /// How many partitions of form `part` fit into a unit of form `host` without overlap.
    pub(super) fn count(&mut self, host: FormId, part: FormId) -> u32 {
        if host == part {
            return 1;
        }
        if self.width(host) < self.width(part) {
            return 0;
        }
        if let Some(known) = self.counts.get(host, part) {
            return known;
        }
        let mut below = 0;
        for at in 0..self.children(host).len() {
            let (child, number) = self.children(host)[at];
            below += number * self.count(child, part);
        }
        let count = below.max(self.copies(host, part));
        self.counts.set(host, part, count);
        count
    }

    /// How many pieces of kind `at` of `part` a child may give that can give `count`: where a
    /// partition has several pieces of a kind, they must not come from one child, for then they
    /// would not look like pieces of several; and a child that could as well be another piece is not
    /// divided between two partitions, for these would have one and a half of its like each.
    pub(super) fn pieces_a_host(&mut self, part: FormId, at: usize, child: FormId, count: u32) -> u32 {
        let kinds = self.children(part).to_vec();
        let like_another =
            |(other, &(piece, _)): (usize, &(FormId, u32))| other != at && self.count(child, piece) > 0;
        if kinds[at].1 > 1 || kinds.iter().enumerate().any(like_another) { count.min(1) } else { count }
    }

    /// How many partitions of form `part` can be put together from the children of `host`.
    pub(super) fn copies(&mut self, host: FormId, part: FormId) -> u32 {
        let (h, p) = (self.get(host), self.get(part));
        if h.level != p.level || h.children.is_empty() || p.children.is_empty() || h.width < p.width {
            return 0;
        }
        if let Some(known) = self.copies.get(host, part) {
            return known;
        }
        let single = p.children.iter().any(|child| child.1 == 1);
        let pieces: u32 = p.children.iter().map(|child| child.1).sum();
        let hosts: u32 = h.children.iter().map(|child| child.1).sum();
        let most = if single { h.width / p.width } else { (hosts / pieces).min(h.width / p.width) };
        let copies = (1..=most).rev().find(|&k| self.assign(host, part, k).is_some()).unwrap_or(0);
        self.copies.set(host, part, copies);
        copies
    }

    /// Which children of `host`, by form and number, give the pieces of `copies` partitions of form
    /// `part`: one list for each kind of piece. The narrowest child that a piece fits into is taken.
    pub(super) fn assign(&mut self, host: FormId, part: FormId, copies: u32) -> Option<Vec<Children>> {
        let mut free: Children = self.children(host).iter().rev().copied().collect();
        let mut assigned = Vec::new();
        for at in 0..self.children(part).len() {
            let (piece, number) = self.children(part)[at];
            let mut need = number * copies;
            let mut taken = Vec::new();
            for (child, left) in &mut free {
                if need == 0 || *left == 0 {
                    continue;
                }
                let count = self.count(*child, piece);
                let each = self.pieces_a_host(part, at, *child, count);
                if each > 0 {
                    let take = need.div_ceil(each).min(*left);
                    (need, *left) = (need.saturating_sub(take * each), *left - take);
                    taken.push((*child, take));
                }
            }
            if need > 0 {
                return None;
            }
            assigned.push(taken);
        }
        Some(assigned)
    }

    /// The widest form found that fits into both; `None` where their PUs are unlike.
    fn meet(&mut self, a: FormId, b: FormId) -> Option<FormId> {
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            return Some(a);
        }
        if let Some(&known) = self.meets.get(&(a, b)) {
            return known;
        }
        let (level_a, level_b) = (self.get(a).level, self.get(b).level);
        let meet = if level_a == level_b && level_a != Level::Pu {
            self.meet_children(a, b)
        } else {
            let (wider, narrower) = if level_a < level_b { (a, b) } else { (b, a) };
            let mut best: Option<FormId> = None;
            for at in 0..self.children(wider).len() {
                let child = self.children(wider)[at].0;
                let found = self.meet(child, narrower);
                if found.map(|id| self.width(id)) > best.map(|id| self.width(id)) {
                    best = found;
                }
            }
            best
        };
        self.meets.insert((a, b), meet);
        meet
    }

    /// Pairs up the children, widest with widest among those with PUs of the same classes.
    fn meet_children(&mut self, a: FormId, b: FormId) -> Option<FormId> {
        let level = self.get(a).level;
        let (groups_a, groups_b) = (self.groups(a), self.groups(b));
        let mut common = Vec::new();
        for (classes, group) in groups_a {
            let Some(other) = groups_b.get(&classes) else { continue };
            let (mut left, mut right) = (group.into_iter(), other.iter().copied());
            let (mut l, mut r) = (left.next(), right.next());
            while let (Some((of_a, count_a)), Some((of_b, count_b))) = (l, r) {
                let count = count_a.min(count_b);
                common.extend(self.meet(of_a, of_b).map(|id| (id, count)));
                l = if count_a > count { Some((of_a, count_a - count)) } else { left.next() };
                r = if count_b > count { Some((of_b, count_b - count)) } else { right.next() };
            }
        }
        (!common.is_empty()).then(|| self.branch(level, common))
    }

    /// The children by the classes of their leaves, each list widest first.
    fn groups(&self, id: FormId) -> BTreeMap<BTreeSet<u32>, Children> {
        let mut groups: BTreeMap<BTreeSet<u32>, Children> = BTreeMap::new();
        for &(child, count) in self.children(id) {
            match groups.get_mut(&self.get(child).classes) {
                Some(group) => group.push((child, count)),
                None => {
                    groups.insert(self.get(child).classes.clone(), vec![(child, count)]);
                }
            }
        }
        groups
    }

    /// Every form that is worth trying as a partition's.
    pub(super) fn candidates(&mut self, root: FormId) -> Vec<FormId> {
        let occurring: Vec<FormId> = (0..self.forms.len() as u32).map(FormId).collect();
        let mut candidates = vec![root];
        candidates.extend(occurring.iter().rev().filter(|&&id| id != root));
        for id in occurring.into_iter().rev() {
            self.fractions(id, &mut candidates);
        }
        candidates
    }

    /// The ways to cut a form into d like parts, all kinds of children together and each alone.
    fn fractions(&mut self, id: FormId, found: &mut Vec<FormId>) {
        let level = self.get(id).level;
        let groups: Vec<Children> = self.groups(id).into_values().collect();
        let sizes: Vec<u32> = groups.iter().map(|group| group.iter().map(|child| child.1).sum()).collect();
        let floors = |parts: u32| sizes.iter().map(move |n| n / parts);
        for parts in 1..=sizes.iter().copied().max().unwrap_or(0) {
            // Like children: more parts of the same size.
            if groups.iter().all(|group| group.len() == 1) && floors(parts).eq(floors(parts + 1)) {
                continue;
            }
            let mut together = Vec::new();
            for (group, &size) in groups.iter().zip(&sizes) {
                let mut blocks = self.blocks(group, parts);
                // Fewer units than parts, among others: each unit is cut as well. Not a core: only
                // where there is nothing else to cut, siblings get apart.
                if groups.len() > 1
                    && size < parts
                    && parts.is_multiple_of(size)
                    && let [(unit, _)] = group[..]
                    && self.get(unit).level < Level::Core
                {
                    blocks.extend(self.slice(unit, parts / size).map(|piece| (piece, 1)));
                }
                if groups.len() > 1 && !blocks.is_empty() {
                    found.push(self.branch(level, blocks.iter().copied()));
                }
                together.extend(blocks);
            }
            if !together.is_empty() {
                let part = self.branch(level, together);
                if self.width(part) * parts == self.width(id) && parts > 1 {
                    self.forms[part.0 as usize].part_of.get_or_insert((id, parts));
                }
                found.push(part);
            }
        }
    }

    /// One of `parts` like parts of a form.
    fn slice(&mut self, id: FormId, parts: u32) -> Option<FormId> {
        let groups: Vec<Children> = self.groups(id).into_values().collect();
        let blocks: Children = groups.iter().flat_map(|group| self.blocks(group, parts)).collect();
        (!blocks.is_empty()).then(|| self.branch(self.get(id).level, blocks))
    }

    /// Takes the children `size` at a time, widest first, and of each such block what all have in
    /// common: so much can each of `size` parts get.
    fn blocks(&mut self, group: &[(FormId, u32)], size: u32) -> Children {
        let mut blocks = Vec::new();
        let mut block: Option<(FormId, u32)> = None;
        for &(child, mut count) in group {
            if let Some((common, missing)) = block {
                let take = missing.min(count);
                count -= take;
                block = self.meet(common, child).map(|common| (common, missing - take));
                if let Some((common, 0)) = block {
                    blocks.push((common, 1));
                    block = None;
                }
            }
            if count >= size {
                blocks.push((child, count / size));
            }
            if count % size > 0 && block.is_none() {
                block = Some((child, size - count % size));
            }
        }
        blocks
    }

    /// The level that a partition of this form belongs to, and its description.
    pub(super) fn describe(&self, id: FormId) -> (Level, String) {
        let form = self.get(id);
        if let Some(name) = form.name {
            return (name, name.name().to_owned());
        }
        // Counting whole packages or caches says more than a fraction does.
        if let [(child, count)] = form.children[..]
            && let Some(name) = self.get(child).name
            && (name < Level::Core || form.part_of.is_none())
        {
            let whole = form.part_of.and_then(|(of, _)| self.get(of).name);
            return (whole.unwrap_or(form.level), format!("{count} {name}s"));
        }
        let Some((of, parts)) = form.part_of else {
            return (form.level, format!("{} CPUs of {} {}", form.width, article(form.level), form.level));
        };
        let level = self.get(of).name.unwrap_or(form.level);
        let fraction = match parts {
            2 => "half".to_owned(),
            3 => "a third of".to_owned(),
            4 => "a quarter of".to_owned(),
            n => format!("1/{n} of"),
        };
        (level, format!("{fraction} {} {level}", article(level)))
    }
}

fn article(level: Level) -> &'static str {
    if level == Level::Llc { "an" } else { "a" }
}
