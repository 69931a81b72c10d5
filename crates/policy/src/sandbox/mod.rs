//! The Lua state in which a script decides something: what the script may use, and how much of it.
//!
//! Nothing is collected while a script runs: what it allocates adds up, so that the bound on memory
//! is also one on time spent copying (`s = s .. s`), which no count of instructions sees.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;

use mlua::{ChunkMode, Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};

use crate::Failed;

/// How often is looked.
const EVERY: u32 = 1000;
/// A chunk's name in messages; a path would be cut short by Lua.
const CHUNK: &str = "@";
/// Below so much a state is not collected between two calls.
const KEPT_BYTES: usize = 1 << 20;

const LIBRARY: &str = include_str!("library.lua");
/// The library compiled, which takes longer than most decisions.
static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();

/// What one decision may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of Lua's machine; some 400 of them take a microsecond.
    pub instructions: u64,
    /// Memory that it may allocate, with what a state that stays holds already.
    pub memory_bytes: u64,
}

impl Limits {
    fn too_much_memory(self) -> String {
        format!("the decision needs more than {} MiB of memory and was stopped", self.memory_bytes >> 20)
    }
}

/// What a decision has used up.
pub struct Budget {
    limits: Limits,
    instructions: Cell<u64>,
    /// Of values that live outside Lua's memory.
    bytes: Cell<u64>,
    /// Most that Lua's memory held.
    peak_bytes: Cell<u64>,
}

impl Budget {
    fn new(limits: Limits) -> Budget {
        let (instructions, bytes, peak_bytes) = Default::default();
        Budget { limits, instructions, bytes, peak_bytes }
    }

    /// What a function of ours did counts as so many instructions.
    pub fn spend(&self, instructions: u64) -> mlua::Result<()> {
        let spent = self.instructions.get().saturating_add(instructions);
        self.instructions.set(spent);
        let most = self.limits.instructions;
        if spent > most {
            return Err(Error::runtime(format!(
                "the decision takes more than {most} instructions and was stopped"
            )));
        }
        Ok(())
    }

    /// A value that lives outside Lua's memory takes so much.
    pub fn allocate(&self, bytes: usize) -> mlua::Result<()> {
        let bytes = self.bytes.get().saturating_add(bytes as u64);
        self.bytes.set(bytes);
        self.within(bytes)
    }

    fn check(&self, lua: &Lua) -> mlua::Result<()> {
        self.spend(u64::from(EVERY))?;
        let held = lua.used_memory() as u64;
        let peak = self.peak_bytes.get().max(held);
        self.peak_bytes.set(peak);
        // So much is only ever set free when Lua found no memory left and collected after all.
        let collected = peak - held > self.limits.memory_bytes;
        self.within(if collected { u64::MAX } else { self.bytes.get().saturating_add(held) })
    }

    fn within(&self, bytes: u64) -> mlua::Result<()> {
        if bytes > self.limits.memory_bytes {
            Err(Error::runtime(self.limits.too_much_memory()))
        } else {
            Ok(())
        }
    }

    /// The next call has all of it again.
    fn renew(&self) {
        self.instructions.set(0);
        self.bytes.set(0);
        self.peak_bytes.set(0);
    }
}

/// The budget of the state that a function was called from.
pub fn budget(lua: &Lua) -> Rc<Budget> {
    Rc::clone(&lua.app_data_ref::<Rc<Budget>>().expect("every state has a budget"))
}

/// A state with the library, and nothing else of ours.
pub struct Sandbox {
    /// Whoever makes functions for the script makes them here.
    pub lua: Lua,
    /// Globals of the script.
    pub globals: Table,
    budget: Rc<Budget>,
    /// What it held when it was collected last.
    collected_bytes: Cell<usize>,
}

impl Sandbox {
    /// A new state; what a script allocates in one call, and for how long it runs, stays within `limits`.
    pub fn new(limits: Limits) -> mlua::Result<Sandbox> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        lua.gc_stop();
        // What Lua itself refuses, between two looks.
        lua.set_memory_limit(2 * limits.memory_bytes as usize)?;
        let budget = Rc::new(Budget::new(limits));
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
        let watched = Rc::clone(&budget);
        lua.set_hook(HookTriggers::new().every_nth_instruction(EVERY), move |lua, _| {
            watched.check(lua).map_err(|error| at_line(lua, error))?;
            Ok(VmState::Continue)
        })?;
        Ok(Sandbox { lua, globals, budget, collected_bytes: Cell::new(0) })
    }

    /// For a state that stays: the next call has the whole budget, and what the last one left behind is collected
    /// now and then.
    pub fn renew(&self) -> mlua::Result<()> {
        self.budget.renew();
        if self.lua.used_memory() > 2 * self.collected_bytes.get() + KEPT_BYTES {
            self.lua.gc_collect()?;
            self.collected_bytes.set(self.lua.used_memory());
        }
        Ok(())
    }

    /// The file's text as this machine's Lua runs it.
    pub fn compile(&self, text: &str) -> mlua::Result<Vec<u8>> {
        if text.as_bytes().starts_with(b"\x1b") {
            return Err(Error::runtime("this is compiled Lua; a policy is its source text"));
        }
        refuse_closing(text)?;
        Ok(self.lua.load(text).set_name(format!("={CHUNK}")).into_function()?.dump(false))
    }

    /// Runs the file, which defines functions.
    pub fn run(&self, compiled: &[u8]) -> mlua::Result<()> {
        let chunk = self.lua.load(compiled).set_mode(ChunkMode::Binary);
        chunk.set_environment(self.globals.clone()).exec()
    }

    /// A function that the file has defined; `None` where it has none of that name.
    pub fn function(&self, name: &str) -> mlua::Result<Option<Function>> {
        match self.globals.raw_get(name)? {
            Value::Function(function) => Ok(Some(function)),
            Value::Nil => Ok(None),
            other => Err(Error::runtime(format!("{name} is a {}, not a function", other.type_name()))),
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
pub fn error_message(file: &str, error: &Error, limits: Limits) -> Failed {
    let (what, trace) = parts(error, limits);
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
fn parts(error: &Error, limits: Limits) -> (String, String) {
    match error {
        Error::CallbackError { traceback, cause } => {
            let (what, inner) = parts(cause, limits);
            (what, if inner.is_empty() { traceback.clone() } else { inner })
        }
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            let (what, trace) = text.split_once("\nstack traceback:").unwrap_or((text, ""));
            (what.to_owned(), trace.to_owned())
        }
        Error::MemoryError(_) => (limits.too_much_memory(), String::new()),
        Error::BadArgument { to, pos, name, cause } => {
            let (what, _) = parts(cause, limits);
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
