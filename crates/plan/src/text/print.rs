//! A plan as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use topology::CpuSet;
use workload::AppId;

use super::display_ns;
use crate::{Bind, Memory, Plan, Run, Slot, Tree, TurnMode};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tree {
            Some(tree) => write!(f, "{tree}")?,
            None => f.write_str("idle")?,
        }
        for (title, names) in [("waiting", &self.waiting), ("suspended", &self.suspended)] {
            write_names(f, title, names)?;
        }
        Ok(())
    }
}

fn write_names(f: &mut fmt::Formatter<'_>, title: &str, names: &BTreeSet<AppId>) -> fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    write!(f, " {title} [")?;
    write_list(f, names)?;
    f.write_str("]")
}

fn write_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Run(run) => return write!(f, "{run}"),
            Tree::SideBySide(parts) => {
                f.write_str("side_by_side [")?;
                write_list(f, parts)?;
            }
            Tree::InTurn { mode, slots } => {
                write!(f, "in_turn {mode} [")?;
                write_list(f, slots)?;
            }
            Tree::Mixed { owner, parts } => {
                f.write_str("mixed ")?;
                write_owners(f, owner)?;
                f.write_str("[")?;
                write_list(f, parts)?;
            }
        }
        f.write_str("]")
    }
}

fn write_owners(f: &mut fmt::Formatter<'_>, owner: &BTreeMap<u32, AppId>) -> fmt::Result {
    if owner.is_empty() {
        return Ok(());
    }
    let mut places: BTreeMap<&AppId, CpuSet> = BTreeMap::new();
    for (&cpu, app) in owner {
        places.entry(app).or_default().insert(cpu);
    }
    f.write_str("{")?;
    write_list(f, places.iter().map(|(app, cpus)| format!("{cpus}: {app}")))?;
    f.write_str("} ")
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            write!(f, "{} on none", self.app)?;
        } else {
            write!(f, "{} on {}", self.app, self.place)?;
        }
        if self.threads as usize != self.place.len() {
            write!(f, " x {}", self.threads)?;
        }
        if self.bind == Bind::Each {
            f.write_str(" bind each")?;
        }
        if self.memory == Memory::Follow {
            f.write_str(" memory follow")?;
        }
        if self.lends {
            f.write_str(" lends")?;
        }
        Ok(())
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", display_ns(self.slice_ns), self.tree)
    }
}

impl fmt::Display for TurnMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TurnMode::Strict => "strict",
            TurnMode::Filling => "filling",
        })
    }
}
