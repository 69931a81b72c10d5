//! The Lua state of one decision: what a script may use, and how much of it.
//!
//! Nothing is collected while a script runs: what it allocates adds up, so that the bound on memory
//! is also one on time spent copying (`s = s .. s`), which no count of instructions sees.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::OnceLock;

use mlua::{ChunkMode, Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};
use plan::{MoveReason, Remark, Snapshot};
use workload::AppId;

use crate::{Account, Failed, LevelMemory, Memory, Settings};

/// Most instructions of Lua's machine in one decision: some 50 ms. A live scheduler must give a sign
/// of life every 400 ms.
pub const INSTRUCTIONS: u64 = 20_000_000;
/// Most memory that one decision may allocate.
pub const MEMORY_BYTES: u64 = 64 << 20;
/// How often is looked.
const EVERY: u32 = 1000;
/// What Lua itself refuses, between two looks.
const HARD_BYTES: usize = 2 * MEMORY_BYTES as usize;
/// A chunk's name in messages; a path would be cut short by Lua.
const CHUNK: &str = "@";

const LIBRARY: &str = include_str!("library.lua");
/// The library compiled, which takes longer than most decisions.
static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();

/// What a decision is made from, and what is said on the way.
pub(super) struct World {
    pub snapshot: Snapshot,
    pub settings: Settings,
    pub memory: Memory,
    /// The memory's, up to now.
    pub account: Account,
    pub reported: RefCell<Reported>,
}

/// What a script said by calling functions.
#[derive(Default)]
pub(super) struct Reported {
    pub remarks: Vec<Remark>,
    pub moves: BTreeMap<AppId, MoveReason>,
    /// What a built-in policy wants to remember, and when it wants to be woken.
    pub level: Option<LevelMemory>,
    pub wake_at_ns: Option<u64>,
}

/// What a decision has used up.
#[derive(Default)]
pub(super) struct Budget {
    instructions: Cell<u64>,
    /// Of values that live outside Lua's memory.
    bytes: Cell<u64>,
    /// Most that Lua's memory held.
    peak_bytes: Cell<u64>,
}

impl Budget {
    pub fn spend(&self, instructions: u64) -> mlua::Result<()> {
        let spent = self.instructions.get().saturating_add(instructions);
        self.instructions.set(spent);
        if spent > INSTRUCTIONS {
            return Err(Error::runtime(format!(
                "the decision takes more than {INSTRUCTIONS} instructions and was stopped"
            )));
        }
        Ok(())
    }

    pub fn allocate(&self, bytes: usize) -> mlua::Result<()> {
        let bytes = self.bytes.get().saturating_add(bytes as u64);
        self.bytes.set(bytes);
        Self::within(bytes)
    }

    fn check(&self, lua: &Lua) -> mlua::Result<()> {
        self.spend(u64::from(EVERY))?;
        let held = lua.used_memory() as u64;
        let peak = self.peak_bytes.get().max(held);
        self.peak_bytes.set(peak);
        // So much is only ever set free when Lua found no memory left and collected after all.
        let collected = peak - held > MEMORY_BYTES;
        Self::within(if collected { u64::MAX } else { self.bytes.get().saturating_add(held) })
    }

    fn within(bytes: u64) -> mlua::Result<()> {
        if bytes > MEMORY_BYTES { Err(Error::runtime(too_much_memory())) } else { Ok(()) }
    }
}

fn too_much_memory() -> String {
    format!("the decision needs more than {} MiB of memory and was stopped", MEMORY_BYTES >> 20)
}

/// The budget of the state that a function was called from.
pub(super) fn budget(lua: &Lua) -> Rc<Budget> {
    Rc::clone(&lua.app_data_ref::<Rc<Budget>>().expect("every state has a budget"))
}

pub(super) struct Vm {
    pub lua: Lua,
    /// Globals of the script.
    pub globals: Table,
}

impl Vm {
    /// A state for one decision in `world`; without one only to look at the file.
    pub fn new(world: &Option<Rc<World>>) -> mlua::Result<Vm> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        lua.gc_stop();
        lua.set_memory_limit(HARD_BYTES)?;
        let budget = Rc::new(Budget::default());
        lua.set_app_data(Rc::clone(&budget));
        let spender = Rc::clone(&budget);
        let spend = lua.create_function(move |_, instructions: u64| spender.spend(instructions))?;
        let library = match COMPILED.get() {
            Some(library) => library,
            None => {
                let library = lua.load(LIBRARY).set_name("=coplace").into_function()?.dump(false);
                COMPILED.get_or_init(|| library)
            }
        };
        let globals: Table = lua.load(library).set_mode(ChunkMode::Binary).call(spend)?;
        lua.set_hook(HookTriggers::new().every_nth_instruction(EVERY), move |lua, _| {
            budget.check(lua).map_err(|error| at_line(lua, error))?;
            Ok(VmState::Continue)
        })?;
        super::cpus::install(&lua, &globals)?;
        super::trees::install(&lua, &globals, world)?;
        super::helpers::install(&lua, &globals, world)?;
        Ok(Vm { lua, globals })
    }

    /// The file's text as this machine's Lua runs it.
    pub fn compile(&self, text: &str) -> mlua::Result<Vec<u8>> {
        if text.as_bytes().starts_with(b"\x1b") {
            return Err(Error::runtime("this is compiled Lua; a policy is its source text"));
        }
        refuse_closing(text)?;
        Ok(self.lua.load(text).set_name(format!("={CHUNK}")).into_function()?.dump(false))
    }

    /// Runs the file, which defines `decide`.
    pub fn run(&self, compiled: &[u8]) -> mlua::Result<()> {
        let chunk = self.lua.load(compiled).set_mode(ChunkMode::Binary);
        chunk.set_environment(self.globals.clone()).exec()
    }

    pub fn decide(&self) -> mlua::Result<Function> {
        match self.globals.raw_get("decide")? {
            Value::Function(decide) => Ok(decide),
            Value::Nil => Err(Error::runtime(
                "there is no function decide(snapshot, memory); `coplace policy new` writes a file to begin from",
            )),
            other => Err(Error::runtime(format!("decide is a {}, not a function", other.type_name()))),
        }
    }
}

/// What is said of a script that was stopped in its midst: with the line of the file.
fn at_line(lua: &Lua, error: Error) -> Error {
    let line = |level| {
        lua.inspect_stack(level, |frame| {
            let of_file = frame.source().short_src.as_deref() == Some(CHUNK);
            frame.current_line().filter(|_| of_file)
        })
    };
    // The innermost function of the file; those of the library stand above it.
    let found = (0..).map_while(line).flatten().next();
    match (found, error) {
        (Some(line), Error::RuntimeError(what)) => Error::runtime(format!("{CHUNK}:{line}: {what}")),
        (_, error) => error,
    }
}

/// Code that runs while an error is on its way up cannot be stopped in time.
fn refuse_closing(text: &str) -> mlua::Result<()> {
    for (at, line) in text.lines().enumerate() {
        let bare: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        if bare.contains("<close>") {
            return Err(Error::runtime(format!("{CHUNK}:{}: a policy has no <close> variables", at + 1)));
        }
    }
    Ok(())
}

/// An error of Lua's as people read it: file, line, what.
pub(super) fn error_message(file: &str, error: &Error) -> Failed {
    let (what, trace) = parts(error);
    let what = what.trim_end();
    if line_of(what).is_some_and(|(before, _, _)| before.trim().is_empty()) {
        return Failed(named(file, what));
    }
    // Raised inside a function of ours: the innermost line of the script is the caller's.
    match line_of(&trace) {
        Some((_, line, _)) => Failed(format!("{file}:{line}: {}", named(file, what))),
        None => Failed(format!("{file}: {}", named(file, what))),
    }
}

/// What went wrong, and the stack of calls.
fn parts(error: &Error) -> (String, String) {
    match error {
        Error::CallbackError { traceback, cause } => {
            let (what, inner) = parts(cause);
            (what, if inner.is_empty() { traceback.clone() } else { inner })
        }
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            let (what, trace) = text.split_once("\nstack traceback:").unwrap_or((text, ""));
            (what.to_owned(), trace.to_owned())
        }
        Error::MemoryError(_) => (too_much_memory(), String::new()),
        Error::BadArgument { to, pos, name, cause } => {
            let (what, _) = parts(cause);
            let to = to.as_ref().map_or(String::new(), |to| format!(" of {to}"));
            let name = name.as_ref().map_or_else(|| format!("argument {pos}"), |name| name.clone());
            (format!("{name}{to}: {what}"), String::new())
        }
        Error::FromLuaConversionError { from, to, message } => {
            let why = message.as_ref().map_or(String::new(), |why| format!(": {why}"));
            (format!("a {from} stands where {to} is expected{why}"), String::new())
        }
        other => (other.to_string(), String::new()),
    }
}

/// The first place in the script that a text speaks of: what stands before it, its line, the rest.
fn line_of(text: &str) -> Option<(&str, &str, &str)> {
    for (at, mark) in text.match_indices("@:") {
        let rest = &text[at + mark.len()..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 && rest[digits..].starts_with(':') {
            return Some((&text[..at], &rest[..digits], &rest[digits..]));
        }
    }
    None
}

fn named(file: &str, text: &str) -> String {
    match line_of(text) {
        Some((before, line, rest)) => format!("{before}{file}:{line}{}", named(file, rest)),
        None => text.to_owned(),
    }
}
