//! Machines as commands take and show them.

use std::fmt;

use serde::Serialize;
use topology::{Discovery, Level, Machine, Object};

use crate::exit::Failure;

/// `this`, a file of hwloc XML, a directory like /sys, or a description in one line.
pub fn named(spec: &str) -> Result<Machine, Failure> {
    let Discovery { machine, notes } = Machine::load(spec).map_err(Failure::bad_input)?;
    // Of the running machine `doctor` tells them.
    if spec != "this" {
        notes.iter().for_each(|note| eprintln!("coplace: {note}"));
    }
    Ok(machine)
}

/// A machine in a few lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub name: String,
    pub source: String,
    /// How many units of each level there are, widest first.
    pub levels: Vec<(String, usize)>,
    /// How it was found, where that is worth a word.
    pub notes: Vec<String>,
    /// Equal parts that it can be cut into, widest first.
    pub shapes: Vec<String>,
}

pub fn summary(Discovery { machine, notes }: &Discovery) -> Summary {
    let count = |level: Level| {
        fn count(object: &Object, level: Level) -> usize {
            usize::from(object.level == level)
                + object.children.iter().map(|child| count(child, level)).sum::<usize>()
        }
        count(&machine.root, level)
    };
    let levels = Level::ALL
        .into_iter()
        .map(|level| (level, count(level)))
        .filter(|(_, units)| *units > 0)
        .map(|(level, units)| (level.name().to_owned(), units))
        .collect();
    let shapes = machine
        .shapes(machine.all_cpus())
        .iter()
        .map(|shape| {
            let left_over = match shape.left_over.len() {
                0 => String::new(),
                _ => format!(", CPUs {} left over", shape.left_over),
            };
            format!("{} × {} CPUs ({}{left_over})", shape.places.len(), shape.width, shape.description)
        })
        .collect();
    Summary {
        name: machine.name.clone(),
        source: machine.source.clone(),
        levels,
        notes: notes.clone(),
        shapes,
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<String> = self
            .levels
            .iter()
            .map(|(level, units)| format!("{units} {level}{}", if *units == 1 { "" } else { "s" }))
            .collect();
        writeln!(f, "  {} (from {})", self.name, self.source)?;
        writeln!(f, "  units       {}", units.join(", "))?;
        writeln!(f, "  equal parts {}", self.shapes.join("; "))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  note        {note}"))
    }
}
