//! Into which equal partitions a machine can be cut (paper 001, II-A).
//!
//! # Problem
//!
//! Programs that share a machine fairly get partitions that look alike: the same number of CPUs,
//! of the same kind, that share the same caches. "A partition is either equivalent to a unit
//! defined by the hardware topology or a reasonable sized fraction of it" (Schönherr, Juurlink,
//! Richling: Topology-aware Equipartitioning with Coscheduling on Multicore Systems, 2013).
//!
//! # Method
//!
//! 1. The tree is restricted to the usable CPUs; units with a single child are looked through.
//!    Every unit gets a *form*: its level and how many children of which forms it has. PUs have
//!    the form of their capacity class. Units of one form look alike.
//! 2. Candidates are the forms that occur, and their fractions: a form with children of the forms
//!    f₁ … fₖ, nᵢ of each, can be cut into d parts of ⌊nᵢ/d⌋ children each; where children are
//!    unlike, also after trimming them to what they have in common, and by each kind alone.
//! 3. For each candidate: how often it fits into the machine without overlap. Of the candidates of
//!    one width the one that leaves least over is taken; of those that give the same number of
//!    partitions the widest.
//! 4. Candidates that leave nothing over are all kept. On a regular machine these are exactly the
//!    cuts into d parts where d divides the number of children of every form. One that leaves CPUs
//!    over is kept only where the next finer one would otherwise have more than 2c + 2 partitions,
//!    c being the partitions of the next coarser: so that for every number of programs up to the
//!    number of CPUs at least half of the partitions are in use (seven CPUs: 7, 3, 2 and 1 wide, not 7 and 1).
//!
//! # Where we differ
//!
//! The paper assumes a homogeneous machine; trimming and left-over CPUs are ours.
//!
//! # Cost
//!
//! Counting works on forms, of which a regular machine has one a level; only the shapes that are
//! kept are laid out on CPUs. On a 2.25 GHz EPYC, 1,024 CPUs take about 0.2 ms when all are usable
//! and 0.6 to 1.3 ms when holes make units unlike (`cargo test --release -p coplace-topology --test
//! shapes -- --ignored --nocapture`). The answers for the last few usable sets are kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::CpuSet;
use crate::machine::{Classes, Level, Machine, Object};

mod forms;
mod memo;

use forms::{FormId, Forms};
pub(crate) use memo::Memo;

/// One way to cut the usable CPUs into equal partitions (paper 001, II-A).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// PUs in each partition.
    pub width: u32,
    /// The partitions, disjoint, in tree order.
    pub places: Vec<CpuSet>,
    /// Usable CPUs that belong to no partition.
    pub left_over: CpuSet,
    /// Level of the smallest unit that contains a place: a whole package and half a package belong
    /// to the package, two of four packages to the machine.
    pub level: Level,
    /// In words: "machine", "2 packages", "half a package", "core".
    pub description: String,
}

/// A unit of the restricted tree that has several children, or one PU.
struct Unit {
    form: FormId,
    /// Of the units with the same usable CPUs the widest, from the package on.
    name: Level,
    /// Range in `Restricted::leaves`.
    leaves: (u32, u32),
    /// Range in `Restricted::units`.
    children: (u32, u32),
}

struct Restricted {
    forms: Forms,
    /// Usable PUs in tree order.
    leaves: Vec<u32>,
    /// Children stand next to one another; the root last.
    units: Vec<Unit>,
    /// Units whose parents are not complete yet.
    pending: Vec<Unit>,
}

/// Partitions one after the other: their PUs, and where each ends.
#[derive(Default)]
struct Places {
    leaves: Vec<u32>,
    ends: Vec<usize>,
}

impl Places {
    fn end(&mut self) {
        self.ends.push(self.leaves.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.leaves[start..end])
    }
}

impl Machine {
    /// The equal partition shapes of `usable`, widest first; the first is always all of `usable`
    /// as one partition. Empty only where no CPU of the machine is usable.
    pub fn shapes(&self, usable: &CpuSet) -> Arc<[Shape]> {
        self.memo.get(usable, &self.capacities, || self.find_shapes(usable))
    }

    fn find_shapes(&self, usable: &CpuSet) -> Vec<Shape> {
        let Some(mut tree) = Restricted::new(self, usable) else { return Vec::new() };
        let root = tree.units.len() as u32 - 1; // pushed last
        let total = tree.leaves.len() as u32;
        let root_form = tree.units[root as usize].form;
        let forms = &mut tree.forms;
        let candidates = forms.candidates(root_form);
        // Best candidate of each width: most partitions, then the form found first.
        let mut by_width: BTreeMap<u32, (u32, FormId)> = BTreeMap::new();
        for form in candidates {
            let (width, count) = (forms.width(form), forms.count(root_form, form));
            let best = by_width.entry(width).or_insert((0, form));
            if count > best.0 {
                *best = (count, form);
            }
        }
        select(&by_width, total)
            .into_iter()
            .map(|form| {
                let mut places = Places::default();
                tree.lay_out(root, form, &mut places);
                tree.shape(self, form, &places)
            })
            .collect()
    }
}

/// Which candidates are kept, widest first; see the module's step 4.
fn select(by_width: &BTreeMap<u32, (u32, FormId)>, total: u32) -> Vec<FormId> {
    let mut most = 0;
    let widest_first: Vec<(u32, u32, FormId)> = by_width
        .iter()
        .rev()
        .map(|(&width, &(count, form))| (width, count, form))
        .filter(|&(_, count, _)| {
            let more = count > most;
            most = most.max(count);
            more
        })
        .collect();
    let exact = |&(width, count, _): &(u32, u32, FormId)| width * count == total;
    let mut kept = Vec::new();
    let mut coarser = 0;
    for (at, candidate) in widest_first.iter().enumerate() {
        let finer = widest_first[at..].iter().find(|c| exact(c)).map_or(total, |c| c.1);
        if exact(candidate) || finer > 2 * coarser + 2 {
            kept.push(candidate.2);
            coarser = candidate.1;
        }
    }
    kept
}

impl Restricted {
    fn new(machine: &Machine, usable: &CpuSet) -> Option<Restricted> {
        let mut tree = Restricted { forms: Forms::default(), leaves: vec![], units: vec![], pending: vec![] };
        let root = tree.restrict(&machine.root, usable, &machine.classes())?;
        tree.forms.occurs(root.form, root.name);
        tree.units.push(root);
        Some(tree)
    }

    fn restrict(&mut self, object: &Object, usable: &CpuSet, classes: &Classes) -> Option<Unit> {
        let start = self.leaves.len() as u32;
        if object.children.is_empty() {
            let cpu = object.cpus.lowest().filter(|&cpu| usable.contains(cpu))?;
            self.leaves.push(cpu);
            let form = self.forms.leaf(classes.of(cpu));
            return Some(Unit { form, name: object.level, leaves: (start, start + 1), children: (0, 0) });
        }
        let mine = self.pending.len();
        for child in &object.children {
            let unit = self.restrict(child, usable, classes);
            self.pending.extend(unit);
        }
        if self.pending.len() <= mine + 1 {
            let only = self.pending.drain(mine..).next()?;
            // What lies above a package is named after the package where it has only one.
            let name = if object.level >= Level::Package { object.level } else { only.name };
            return Some(Unit { name, ..only });
        }
        let children = &self.pending[mine..];
        children.iter().for_each(|child| self.forms.occurs(child.form, child.name));
        let form = self.forms.branch(object.level, children.iter().map(|child| (child.form, 1)));
        let first = self.units.len() as u32;
        self.units.extend(self.pending.drain(mine..));
        let (leaves, units) = (self.leaves.len() as u32, self.units.len() as u32);
        Some(Unit { form, name: object.level, leaves: (start, leaves), children: (first, units) })
    }

    fn children(&self, unit: u32) -> std::ops::Range<u32> {
        let (first, last) = self.units[unit as usize].children;
        first..last
    }

    fn leaves(&self, first: u32, last: u32) -> &[u32] {
        let (start, end) = (self.units[first as usize].leaves.0, self.units[last as usize].leaves.1);
        &self.leaves[start as usize..end as usize]
    }

    /// Appends to `places` every partition of form `part` that fits below `unit`.
    fn lay_out(&mut self, unit: u32, part: FormId, places: &mut Places) {
        let form = self.units[unit as usize].form;
        if form == part {
            places.leaves.extend_from_slice(self.leaves(unit, unit));
            return places.end();
        }
        let own = self.forms.copies(form, part);
        if own == 0 || own < self.forms.count(form, part) {
            for child in self.children(unit) {
                if self.forms.count(self.units[child as usize].form, part) > 0 {
                    self.lay_out(child, part, places);
                }
            }
            return;
        }
        if let (&[(piece, number)], &[(child, _)]) = (self.forms.children(part), self.forms.children(form))
            && piece == child
        {
            // Like children, whole: neighbours in the tree are neighbours among the leaves.
            let first = self.children(unit).start;
            for start in (first..first + own * number).step_by(number as usize) {
                places.leaves.extend_from_slice(self.leaves(start, start + number - 1));
                places.end();
            }
            return;
        }
        let mut pieces = self.pieces(unit, part, own);
        for _ in 0..own {
            for (number, queue) in &mut pieces {
                let mine = queue.drain(..(*number as usize).min(queue.len()));
                mine.for_each(|piece| places.leaves.extend(piece));
            }
            places.end();
        }
    }

    /// For each kind of piece of `part`: how many a partition has, and the pieces for so many
    /// copies, cut from the children of `unit`; neighbours stand next to each other.
    fn pieces(&mut self, unit: u32, part: FormId, copies: u32) -> Vec<(u32, VecDeque<Vec<u32>>)> {
        let form = self.units[unit as usize].form;
        let mut quota = self.forms.assign(form, part, copies).unwrap_or_default();
        let kinds = self.forms.children(part).to_vec();
        let mut pieces: Vec<(u32, VecDeque<Vec<u32>>)> =
            kinds.iter().map(|&(_, number)| (number, VecDeque::new())).collect();
        for child in self.children(unit) {
            let form = self.units[child as usize].form;
            // The piece that is furthest behind, so that a partition is complete before the next begins.
            let next = (0..kinds.len())
                .filter(|&at| quota[at].iter().any(|&(host, left)| host == form && left > 0))
                .min_by_key(|&at| (pieces[at].1.len() as u32 / kinds[at].1, at));
            let Some(at) = next else { continue };
            quota[at].iter_mut().filter(|(host, _)| *host == form).for_each(|(_, left)| *left -= 1);
            let mut cut = Places::default();
            self.lay_out(child, kinds[at].0, &mut cut);
            let number = self.forms.pieces_a_host(part, at, form, cut.ends.len() as u32);
            pieces[at].1.extend(cut.iter().take(number as usize).map(<[u32]>::to_vec));
        }
        pieces
    }

    fn shape(&self, machine: &Machine, form: FormId, places: &Places) -> Shape {
        let rest = if places.leaves.len() == self.leaves.len() {
            CpuSet::new()
        } else {
            CpuSet::from_cpus(&self.leaves).difference(&CpuSet::from_cpus(&places.leaves))
        };
        let (mut level, mut description) = self.forms.describe(form);
        if rest.is_empty() && places.ends.len() == 1 {
            level = machine.root.level;
            description = match self.leaves.len() == machine.pu_count() {
                true => level.name().to_owned(),
                false => "all usable CPUs".to_owned(),
            };
        } else if self.forms.has_unlike_leaves()
            && let Some(&cpu) = places.leaves.first()
            && self.forms.is_of_one_class(form)
        {
            description += &format!(" of capacity {}", machine.capacity(cpu));
        }
        Shape {
            width: self.forms.width(form),
            places: places.iter().map(CpuSet::from_cpus).collect(),
            left_over: rest,
            level,
            description,
        }
    }
}
