//! Machines as commands take and show them.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use topology::{Level, Machine, Object};

use crate::exit::Failure;

/// The machine that this runs on.
pub fn here() -> Result<Machine, Failure> {
    Machine::discover().map_err(Failure::ours)
}

/// `here`, a file of hwloc XML, or a description in one line.
pub fn named(spec: &str) -> Result<Machine, Failure> {
    if spec == "here" {
        return here();
    }
    let path = Path::new(spec);
    if path.exists() || spec.ends_with(".xml") {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::bad_input(format!("cannot read the machine file {spec}: {error}")))?;
        return Machine::from_hwloc_xml(&text).map_err(|error| Failure::bad_input(format!("{spec}: {error}")));
    }
    Machine::synthetic(spec).map_err(Failure::bad_input)
}

/// A machine in a few lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub name: String,
    pub source: String,
    /// How many units of each level there are, widest first.
    pub levels: Vec<(String, usize)>,
    /// Equal parts that it can be cut into, widest first.
    pub shapes: Vec<String>,
}

pub fn summary(machine: &Machine) -> Summary {
    let count = |level: Level| {
        fn count(object: &Object, level: Level) -> usize {
            usize::from(object.level == level) + object.children.iter().map(|child| count(child, level)).sum::<usize>()
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
    Summary { name: machine.name.clone(), source: machine.source.clone(), levels, shapes }
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
        writeln!(f, "  equal parts {}", self.shapes.join("; "))
    }
}
