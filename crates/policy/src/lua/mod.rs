//! Policies in Lua 5.4.
//!
//! # Problem
//!
//! Whoever wants to try an idea for sharing a machine should need neither Rust nor a build, and the
//! same file should run in the simulator and on a live machine.
//!
//! # Source
//!
//! None; Lua 5.4 (Ierusalimschy, de Figueiredo, Celes), built in. `docs/policies/lua.md` teaches it.
//!
//! # How it works
//!
//! A decision gets a Lua state of its own: the file runs from its beginning, then its `decide` is
//! called. So nothing can be carried over but `memory`, which the engine owns and records, and the
//! same snapshot and memory give the same decision, today and in a replay.
//!
//! ```text
//! decide(snapshot, memory) = fresh state → library → file → decide → plan, memory, wake-up, report
//! ```
//!
//! | | |
//! |---|---|
//! | `sandbox` (beside this) | the state: what a script may use, and how much of it; `library.lua` has Lua's own functions in the form in which a script may have them |
//! | `world` | what a decision is made from, and the state with all that a policy has |
//! | `to_lua` | the snapshot as Lua sees it, with what is known of each program |
//! | `cpus`, `trees` | values that scripts compute with: CPU sets and parts of a plan |
//! | `helpers` | what Rust's policies share, for scripts: dealing out partitions, built-in policies |
//! | `from_lua` | what `decide` returned, as a decision |
//! | `plain` | plain data: what a script remembers |
//!
//! # Properties
//!
//! - the same decision for the same input, whatever tables hash to:
//!   `nothing_is_carried_over_but_memory`, `tables_are_walked_in_order_of_their_keys`
//! - a script ends: `a_script_that_runs_away_is_stopped`
//! - it reaches nothing outside: `files_clock_and_randomness_are_not_there`
//! - errors name file and line: `errors_name_the_file_and_the_line`
//! - it sees what the policies in Rust see: `knowledge_about_programs_reaches_a_script`,
//!   `every_setting_reaches_a_script`
//! - TA written in Lua decides as TA does: `ta_in_lua_makes_the_plans_of_ta`
//!
//! # Cost
//!
//! About 0.1 ms a decision for the state and the library, then what the script does: TA in Lua takes
//! 0.25 ms where TA in Rust takes 7 µs (`cargo bench -p coplace-policy --bench lua`; six programs on 24
//! CPUs). At most [`INSTRUCTIONS`] and [`MEMORY_BYTES`].
//!
//! # Limits
//!
//! Logarithms, exponentials and `^` come from the platform's C library, whose last digit is its own.

mod cpus;
mod from_lua;
mod helpers;
mod plain;
mod to_lua;
mod trees;
mod world;

use std::rc::Rc;

use plan::{Promise, Rejection, Remark, Snapshot};

pub use crate::plain::Plain;
use crate::sandbox;
use crate::{Decision, Failed, Memory, Policy, Settings};
use world::World;

/// Most instructions of Lua's machine in one decision: some 50 ms. A live scheduler must give a sign
/// of life every 400 ms.
pub const INSTRUCTIONS: u64 = 20_000_000;
/// Most memory that one decision may allocate.
pub const MEMORY_BYTES: u64 = 64 << 20;
const LIMITS: sandbox::Limits = sandbox::Limits { instructions: INSTRUCTIONS, memory_bytes: MEMORY_BYTES };

/// What `coplace policy new` writes: a policy that works, with comments to begin from.
pub const START: &str = include_str!("start.lua");

/// Annotations for editors with a Lua language server: everything that a policy can use.
pub const STUBS: &str = include_str!("coplace.lua");

/// Whether a policy's name is that of a Lua file.
pub fn is_script(name: &str) -> bool {
    name.trim().len() > 4 && name.trim().to_ascii_lowercase().ends_with(".lua")
}

/// One Lua file.
pub(crate) struct Script {
    /// As it was named; what errors begin with.
    file: String,
    compiled: Vec<u8>,
    words: String,
    promise: Promise,
    settings: Settings,
}

impl Script {
    /// Reads the file's text once, to see that it is a policy.
    pub fn new(file: &str, text: &str, settings: Settings) -> Result<Script, Failed> {
        let failed = |error| sandbox::error_message(file, &error, LIMITS);
        let vm = world::state(&None).map_err(failed)?;
        let compiled = vm.compile(text).map_err(failed)?;
        vm.run(&compiled).map_err(failed)?;
        let declared = from_lua::declared(&vm).map_err(failed)?;
        let words = declared.words.unwrap_or_else(|| "a policy in Lua".to_owned());
        Ok(Script { file: file.to_owned(), compiled, words, promise: declared.promise, settings })
    }

    fn call(&self, snapshot: &Snapshot, memory: &Memory) -> mlua::Result<Decision> {
        let (snapshot, settings, memory) = (snapshot.clone(), self.settings.clone(), memory.clone());
        let account = memory.account.until(&snapshot);
        let world = Rc::new(World { snapshot, settings, memory, account, reported: Default::default() });
        let vm = world::state(&Some(Rc::clone(&world)))?;
        vm.run(&self.compiled)?;
        let remembered = plain::to_lua(&world.memory.script, &vm.lua)?;
        let input = to_lua::snapshot(&vm.lua, &world)?;
        let answer: mlua::Value = world::decide(&vm)?.call((input, remembered.clone()))?;
        from_lua::decision(&vm.lua, &world, answer, remembered)
    }
}

impl Policy for Script {
    fn letters(&self) -> &str {
        &self.file
    }

    fn words(&self) -> &str {
        &self.words
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn try_decide(&self, snapshot: &Snapshot, memory: &Memory) -> Result<Decision, Failed> {
        self.call(snapshot, memory).map_err(|error| sandbox::error_message(&self.file, &error, LIMITS))
    }

    /// For callers without a fallback of their own: everybody everywhere where the script fails.
    fn decide(&self, snapshot: &Snapshot, memory: &Memory) -> Decision {
        self.try_decide(snapshot, memory).unwrap_or_else(|failed| {
            let mut decision = crate::ue::overlapping(snapshot, memory, &self.settings, |threads| threads);
            let why = vec![Rejection::Failed(failed.to_string())];
            decision.report.remarks.insert(0, Remark::Rejected { policy: self.name(), why });
            decision
        })
    }
}
