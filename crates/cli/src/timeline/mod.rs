//! Who ran where and when: from plans and the times at which they came into force to segments that
//! pictures are drawn from.

pub mod html;
pub mod picture;
pub mod terminal;

#[cfg(test)]
mod tests;

use plan::{Plan, Tree, TurnMode};
use serde::Serialize;
use topology::CpuSet;
use workload::AppId;

/// One application on one place from one change of plan to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    pub app: AppId,
    pub cpus: CpuSet,
    pub from_ns: u64,
    pub to_ns: u64,
    pub threads: u32,
    /// How it shares the place with others, outermost first; empty: it has it to itself.
    pub shares: Vec<Share>,
    /// Those it takes turns with on this place, in their order.
    pub in_turn_with: Vec<AppId>,
}

/// One way in which a segment shares its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Share {
    /// It has the place from `offset_ns` to `offset_ns + slice_ns` of every period. The clock of an
    /// inner turn stands still while the outer slot does not run.
    Turn { period_ns: u64, offset_ns: u64, slice_ns: u64, strict: bool },
    /// The kernel shares the CPUs among `of` programs; `index` tells them apart.
    Kernel { index: u32, of: u32 },
}

impl Segment {
    /// Whether it has its place at `at_ns`, by the plan.
    #[cfg(test)]
    fn runs_at(&self, at_ns: u64) -> bool {
        if !(self.from_ns..self.to_ns).contains(&at_ns) {
            return false;
        }
        let mut clock_ns = at_ns - self.from_ns;
        for share in &self.shares {
            let &Share::Turn { period_ns, offset_ns, slice_ns, .. } = share else { continue };
            let phase_ns = clock_ns % period_ns;
            if !(offset_ns..offset_ns + slice_ns).contains(&phase_ns) {
                return false;
            }
            clock_ns = clock_ns / period_ns * slice_ns + phase_ns - offset_ns;
        }
        true
    }

    /// The share of time for which it has its place, and where in a row of height 1 its band lies
    /// when the single slots are too short to be drawn: (top, height).
    pub fn band(&self) -> (f64, f64) {
        self.shares.iter().fold((0.0, 1.0), |(top, height), share| {
            let (from, part) = match *share {
                Share::Turn { period_ns, offset_ns, slice_ns, .. } => {
                    (offset_ns as f64 / period_ns as f64, slice_ns as f64 / period_ns as f64)
                }
                Share::Kernel { index, of } => (f64::from(index) / f64::from(of), 1.0 / f64::from(of)),
            };
            (top + from * height, part * height)
        })
    }
}

/// Segments of a run whose plans came into force at the given times (ascending) and which ended at
/// `end_ns`. What two plans have in common is one segment.
pub fn segments(plans: &[(u64, Plan)], end_ns: u64) -> Vec<Segment> {
    let mut done: Vec<Segment> = Vec::new();
    let mut open: Vec<Segment> = Vec::new();
    for (index, (from_ns, plan)) in plans.iter().enumerate() {
        let to_ns = plans.get(index + 1).map_or(end_ns.max(*from_ns), |(next_ns, _)| *next_ns);
        let mut now = Vec::new();
        if let Some(tree) = &plan.tree {
            collect(tree, *from_ns, to_ns, &mut Vec::new(), &[], &mut now);
        }
        for segment in &mut now {
            let same = |old: &Segment| {
                old.to_ns == segment.from_ns
                    && (&old.app, &old.cpus, old.threads) == (&segment.app, &segment.cpus, segment.threads)
                    && (&old.shares, &old.in_turn_with) == (&segment.shares, &segment.in_turn_with)
            };
            if let Some(position) = open.iter().position(same) {
                segment.from_ns = open.swap_remove(position).from_ns;
            }
        }
        done.append(&mut open);
        open = now;
    }
    done.append(&mut open);
    done.retain(|segment| segment.to_ns > segment.from_ns);
    done.sort_by(|a, b| (a.from_ns, &a.cpus, &a.app).cmp(&(b.from_ns, &b.cpus, &b.app)));
    done
}

fn collect(
    tree: &Tree,
    from_ns: u64,
    to_ns: u64,
    shares: &mut Vec<Share>,
    in_turn: &[AppId],
    out: &mut Vec<Segment>,
) {
    match tree {
        Tree::Run(run) => out.push(Segment {
            app: run.app.clone(),
            cpus: run.place.clone(),
            from_ns,
            to_ns,
            threads: run.threads,
            shares: shares.clone(),
            in_turn_with: in_turn.iter().filter(|app| **app != run.app).cloned().collect(),
        }),
        Tree::SideBySide(parts) => {
            for part in parts {
                collect(part, from_ns, to_ns, shares, in_turn, out);
            }
        }
        Tree::InTurn { mode, slots } => {
            let period_ns = slots.iter().map(|slot| slot.slice_ns).sum();
            let mut everybody = in_turn.to_vec();
            slots.iter().for_each(|slot| apps(&slot.tree, &mut everybody));
            let mut offset_ns = 0;
            for slot in slots {
                let strict = *mode == TurnMode::Strict;
                shares.push(Share::Turn { period_ns, offset_ns, slice_ns: slot.slice_ns, strict });
                collect(&slot.tree, from_ns, to_ns, shares, &everybody, out);
                shares.pop();
                offset_ns += slot.slice_ns;
            }
        }
        Tree::Mixed { parts, .. } => {
            for (index, part) in parts.iter().enumerate() {
                shares.push(Share::Kernel { index: index as u32, of: parts.len() as u32 });
                collect(part, from_ns, to_ns, shares, in_turn, out);
                shares.pop();
            }
        }
    }
}

fn apps(tree: &Tree, into: &mut Vec<AppId>) {
    match tree {
        Tree::Run(run) => {
            if !into.contains(&run.app) {
                into.push(run.app.clone());
            }
        }
        Tree::SideBySide(parts) | Tree::Mixed { parts, .. } => parts.iter().for_each(|part| apps(part, into)),
        Tree::InTurn { slots, .. } => slots.iter().for_each(|slot| apps(&slot.tree, into)),
    }
}

/// One program of a picture.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    pub app: AppId,
    pub command: String,
    pub arrived_ns: u64,
    pub started_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    pub response_ns: Option<u64>,
    pub alone_ns: Option<u64>,
    pub slowdown: Option<f64>,
    /// How it ended, in words; empty while it runs.
    pub ending: String,
    pub well: bool,
}

/// All that a picture shows.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    pub title: String,
    /// "equal parts (EQ)".
    pub policy: String,
    /// Mechanisms, machine: what a reader must know to judge the figures.
    pub facts: Vec<String>,
    /// Rows of the picture.
    pub cpus: CpuSet,
    pub end_ns: u64,
    pub programs: Vec<Program>,
    pub segments: Vec<Segment>,
    pub makespan_ns: u64,
    pub antt: Option<f64>,
    pub stp: Option<f64>,
}

impl Timeline {
    /// Index of a program, which decides its colour.
    pub fn index(&self, app: &AppId) -> usize {
        self.programs.iter().position(|program| program.app == *app).unwrap_or(self.programs.len())
    }

    /// (time, programs present, programs that run by then) whenever one of the numbers changes.
    pub fn present(&self) -> Vec<(u64, u32, u32)> {
        let mut times: Vec<u64> = self
            .programs
            .iter()
            .flat_map(|p| [Some(p.arrived_ns), p.started_ns, p.ended_ns])
            .flatten()
            .chain([0, self.end_ns])
            .collect();
        times.sort_unstable();
        times.dedup();
        let within = |from: Option<u64>, p: &Program, t: u64| {
            from.is_some_and(|f| f <= t) && p.ended_ns.is_none_or(|e| t < e)
        };
        times
            .into_iter()
            .map(|t| {
                let count = |from: fn(&Program) -> Option<u64>| {
                    self.programs.iter().filter(|p| within(from(p), p, t)).count() as u32
                };
                (t, count(|p| Some(p.arrived_ns)), count(|p| p.started_ns))
            })
            .collect()
    }
}

/// Colours of Okabe and Ito (2008), told apart with any colour vision; programs beyond the eighth
/// get the same again with hatching.
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900", "#7f7f7f"];

/// Whether black or white is read better on a colour of `COLOURS`.
pub fn ink(index: usize) -> &'static str {
    match index % COLOURS.len() {
        0 | 2 | 5 | 7 => "#ffffff",
        _ => "#10141c",
    }
}
