//! The strategies that come with coplace: the four of "Impact of the Scheduling Strategy in Heterogeneous Systems That
//! Provide Co-Scheduling", section 3.2, as Lua files with the paper's constants, and our own.

use policy::Failed;

use crate::adaptive::Adaptive;
use crate::lua::Script;
use crate::strategy::Strategy;

/// A strategy that comes with coplace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its text in Lua; `None`: it is written in Rust.
    pub text: Option<&'static str>,
}

/// All that come with coplace.
pub static STRATEGIES: [Listed; 5] = [
    Listed {
        name: "short-term",
        summary: "keeps every resource busy; which kernel that takes comes second",
        text: Some(include_str!("strategies/short_term.lua")),
    },
    Listed {
        name: "long-term",
        summary: "each task to the resource it prefers, unless that has too long a queue",
        text: Some(include_str!("strategies/long_term.lua")),
    },
    Listed {
        name: "banking",
        summary: "starting a kernel costs credits, which come back with time",
        text: Some(include_str!("strategies/banking.lua")),
    },
    Listed {
        name: "constraint",
        summary: "the kernels that run may cost a limited sum of credits",
        text: Some(include_str!("strategies/constraint.lua")),
    },
    Listed {
        name: "adaptive",
        summary: "our own: plans all that waits for the earliest end, by the times that kernels took",
        text: None,
    },
];

/// A file in Lua of this name, or one of [`STRATEGIES`].
pub fn strategy(name: &str, text: Option<&str>) -> Result<Box<dyn Strategy>, Failed> {
    let text = match text {
        Some(text) => text,
        None => match find(name)?.text {
            Some(text) => text,
            None => return Ok(Box::new(Adaptive::default())),
        },
    };
    Ok(Box::new(Script::new(name, text)?))
}

/// One of [`STRATEGIES`] by its name.
pub fn find(name: &str) -> Result<&'static Listed, Failed> {
    STRATEGIES.iter().find(|listed| listed.name == name).ok_or_else(|| {
        let names = STRATEGIES.map(|listed| listed.name).join(", ");
        Failed(format!("'{name}' is no strategy: it is {names}, or a file that ends in .lua"))
    })
}
