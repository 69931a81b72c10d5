//! Strategies in Lua, in the sandbox that policies have.
//!
//! Unlike a policy, a strategy keeps its state between calls: what it counts (credits, histories) is part of it. It
//! has no clock, no file and no random number, so it still does the same whenever the same happens.
//!
//! A call may take [`INSTRUCTIONS`] and allocate [`MEMORY_BYTES`]; what goes beyond is stopped and counts as a failure
//! of the strategy.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{AnyUserData, Error, IntoLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods, Value};
use policy::Failed;
use policy::sandbox::{Limits, Sandbox, error_message};

use crate::strategy::{Draft, Occasion, Strategy};
use crate::task::{ResourceId, Task, TaskId};

/// Most instructions of Lua's machine in one call: some 2.5 ms.
pub const INSTRUCTIONS: u64 = 1_000_000;
/// Most memory that a strategy may hold and allocate in one call.
pub const MEMORY_BYTES: u64 = 16 << 20;
const LIMITS: Limits = Limits { instructions: INSTRUCTIONS, memory_bytes: MEMORY_BYTES };
/// The shortest time between two ticks, ns.
pub const SHORTEST_TICK_NS: u64 = 1_000_000;

/// What `coplace offload new` writes: a strategy that works, with comments to begin from.
pub const START: &str = include_str!("strategies/start.lua");

/// The functions of a strategy, one of which at least it must have; what each is called for.
const FUNCTIONS: [&str; 6] =
    ["begin", "task_arrived", "resource_free", "task_ended", "tick", "governor_changed"];

type Shared = Rc<RefCell<Draft>>;

/// One Lua file.
pub struct Script {
    file: String,
    sandbox: Sandbox,
    shared: Shared,
    tick_ns: Option<u64>,
    /// Those of [`FUNCTIONS`] that the file has.
    functions: [Option<mlua::Function>; 6],
    node: Value,
}

impl Script {
    /// Reads the file's text and runs it once: it defines functions and what they remember.
    pub fn new(file: &str, text: &str) -> Result<Script, Failed> {
        Script::load(file, text).map_err(|error| error_message(file, &error, LIMITS))
    }

    fn load(file: &str, text: &str) -> mlua::Result<Script> {
        let sandbox = Sandbox::new(LIMITS)?;
        let shared = Shared::default();
        install(&sandbox, &shared)?;
        let compiled = sandbox.compile(text)?;
        sandbox.run(&compiled)?;
        let mut functions = [const { None }; 6];
        for (function, name) in functions.iter_mut().zip(FUNCTIONS) {
            *function = sandbox.function(name)?;
        }
        let [_, arrived, free, ..] = &functions;
        if arrived.is_none() && free.is_none() {
            return Err(Error::runtime(
                "there is neither a function task_arrived(node, task) nor resource_free(node, resource), so no task \
                 would ever be assigned; `coplace offload new` writes a file to begin from",
            ));
        }
        let tick_ns = tick_ns(sandbox.globals.raw_get("tick_s")?)?;
        let node = Node(Rc::clone(&shared)).into_lua(&sandbox.lua)?;
        Ok(Script { file: file.to_owned(), sandbox, shared, tick_ns, functions, node })
    }

    fn run(&self, occasion: Occasion) -> mlua::Result<()> {
        let lua = &self.sandbox.lua;
        let task = |id| TaskRef { id, shared: Rc::clone(&self.shared) }.into_lua(lua);
        let (at, subject) = match occasion {
            Occasion::Begin => (0, None),
            Occasion::Arrived(id) => (1, Some(task(id)?)),
            Occasion::Free(id) => {
                (2, Some(ResourceRef { id, shared: Rc::clone(&self.shared) }.into_lua(lua)?))
            }
            Occasion::Ended(id) => (3, Some(task(id)?)),
            Occasion::Tick => (4, None),
            Occasion::Governor => (5, None),
        };
        let Some(function) = &self.functions[at] else { return Ok(()) };
        self.sandbox.renew()?;
        match subject {
            Some(subject) => function.call::<()>((&self.node, subject)),
            None => function.call::<()>(&self.node),
        }
    }
}

/// `tick_s` of a file, as nanoseconds.
fn tick_ns(value: Value) -> mlua::Result<Option<u64>> {
    let seconds = match value {
        Value::Nil => return Ok(None),
        Value::Integer(seconds) => seconds as f64,
        Value::Number(seconds) => seconds,
        other => {
            return Err(Error::runtime(format!("tick_s is to be a number, not a {}", other.type_name())));
        }
    };
    let ns = seconds * 1e9;
    if !(SHORTEST_TICK_NS as f64..=1e18).contains(&ns) {
        return Err(Error::runtime(format!(
            "tick_s is {seconds}; it is the time between two ticks, at least {} s",
            SHORTEST_TICK_NS as f64 / 1e9
        )));
    }
    Ok(Some(ns.round() as u64))
}

impl Strategy for Script {
    fn name(&self) -> &str {
        &self.file
    }

    fn tick_ns(&self) -> Option<u64> {
        self.tick_ns
    }

    fn call(&mut self, draft: &mut Draft, occasion: Occasion) -> Result<(), Failed> {
        // The script's functions reach it through the cell, for as long as the call lasts.
        self.shared.replace(std::mem::take(draft));
        let done = self.run(occasion);
        *draft = self.shared.take();
        done.map_err(|error| error_message(&self.file, &error, LIMITS))
    }
}

/// The functions by which a script acts.
fn install(sandbox: &Sandbox, shared: &Shared) -> mlua::Result<()> {
    let draft = Rc::clone(shared);
    let assign = sandbox.lua.create_function(move |_, (task, resource): (Value, Value)| {
        let task = subject::<TaskRef>("assign", "a task", &task)?.borrow::<TaskRef>()?.id;
        let resource = subject::<ResourceRef>("assign", "a resource", &resource)?.borrow::<ResourceRef>()?.id;
        draft.borrow_mut().assign(task, resource).map_err(Error::runtime)
    })?;
    sandbox.globals.raw_set("assign", assign)?;
    let draft = Rc::clone(shared);
    let withdraw = sandbox.lua.create_function(move |_, task: Value| {
        let task = subject::<TaskRef>("withdraw", "a task", &task)?.borrow::<TaskRef>()?.id;
        draft.borrow_mut().withdraw(task).map_err(Error::runtime)
    })?;
    sandbox.globals.raw_set("withdraw", withdraw)
}

fn subject<'v, T: 'static>(
    function: &str,
    expected: &str,
    value: &'v Value,
) -> mlua::Result<&'v AnyUserData> {
    match value {
        Value::UserData(data) if data.is::<T>() => Ok(data),
        Value::UserData(_) => Err(Error::runtime(format!("{function} takes {expected} there"))),
        other => Err(Error::runtime(format!("{function} takes {expected}, not a {}", other.type_name()))),
    }
}

/// The node as a script sees it.
struct Node(Shared);

/// A resource as a script sees it.
struct ResourceRef {
    id: ResourceId,
    shared: Shared,
}

/// A task as a script sees it. The last one that has ended is still known; of those before, only the number is left.
struct TaskRef {
    id: TaskId,
    shared: Shared,
}

impl TaskRef {
    fn with<T>(&self, of: impl Fn(&Task) -> T) -> Option<T> {
        let draft = self.shared.borrow();
        let ended = || Some(&draft.board().last_ended().filter(|ended| ended.id == self.id)?.task);
        draft.board().task(self.id).or_else(ended).map(of)
    }

    /// Where it ran and for how long, once it has ended.
    fn run(&self) -> Option<(String, u64)> {
        let draft = self.shared.borrow();
        let ended = draft.board().last_ended().filter(|ended| ended.id == self.id)?;
        let (on, ns) = ended.run?;
        Some((draft.board().resource(on)?.kind.to_string(), ns))
    }
}

fn tasks(lua: &Lua, shared: &Shared, ids: Vec<TaskId>) -> mlua::Result<Value> {
    let refs = ids.into_iter().map(|id| TaskRef { id, shared: Rc::clone(shared) });
    lua.create_sequence_from(refs)?.into_lua(lua)
}

impl UserData for Node {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("now_ns", |_, node| Ok(node.0.borrow().board().now_ns()));
        fields.add_field_method_get("governor", |_, node| Ok(node.0.borrow().board().governor().as_str()));
        fields.add_field_method_get("waiting_count", |_, node| Ok(node.0.borrow().board().waiting_count()));
        fields.add_field_method_get("waiting", |lua, node| {
            let ids = node.0.borrow().board().waiting().collect();
            tasks(lua, &node.0, ids)
        });
        fields.add_field_method_get("resources", |lua, node| {
            let count = node.0.borrow().board().resources().len();
            let refs = (0..count).map(|at| ResourceRef { id: ResourceId(at), shared: Rc::clone(&node.0) });
            lua.create_sequence_from(refs)
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        // The first of that kind that is free, or nil.
        methods.add_method("free_resource", |_, node, kind: String| {
            let kind = kind.parse().map_err(Error::runtime)?;
            let draft = node.0.borrow();
            let board = draft.board();
            let is_of_kind = |id: &ResourceId| board.resource(*id).is_some_and(|it| it.kind == kind);
            let mut all = (0..board.resources().len()).map(ResourceId).filter(is_of_kind);
            let id = all.find(|id| board.is_free(*id));
            Ok(id.map(|id| ResourceRef { id, shared: Rc::clone(&node.0) }))
        });
        methods.add_meta_method(MetaMethod::ToString, |_, _, ()| Ok("node"));
    }
}

impl ResourceRef {
    fn text(&self, of: impl Fn(&crate::task::Resource) -> String) -> mlua::Result<String> {
        let draft = self.shared.borrow();
        draft
            .board()
            .resource(self.id)
            .map(of)
            .ok_or_else(|| Error::runtime("this resource is not there any more"))
    }
}

impl UserData for ResourceRef {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("name", |_, it| it.text(|resource| resource.name.clone()));
        fields.add_field_method_get("kind", |_, it| it.text(|resource| resource.kind.to_string()));
        fields.add_field_method_get("load", |_, it| Ok(it.shared.borrow().board().load(it.id)));
        fields.add_field_method_get("is_free", |_, it| Ok(it.shared.borrow().board().is_free(it.id)));
        fields.add_field_method_get("running", |_, it| {
            let id = it.shared.borrow().board().running(it.id);
            Ok(id.map(|id| TaskRef { id, shared: Rc::clone(&it.shared) }))
        });
        fields.add_field_method_get("queue", |lua, it| {
            let ids = it.shared.borrow().board().queue(it.id).collect();
            tasks(lua, &it.shared, ids)
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, it, ()| it.text(|resource| resource.name.clone()));
        methods.add_meta_method(MetaMethod::Eq, |_, it, other: AnyUserData| {
            Ok(other.borrow::<ResourceRef>().is_ok_and(|other| other.id == it.id))
        });
    }
}

impl UserData for TaskRef {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("id", |_, it| Ok(it.id.0));
        fields.add_field_method_get("program", |_, it| Ok(it.with(|task| task.program.clone())));
        fields.add_field_method_get("arrived_ns", |_, it| Ok(it.with(|task| task.arrived_ns)));
        fields.add_field_method_get("ran_on", |_, it| Ok(it.run().map(|(kind, _)| kind)));
        fields.add_field_method_get("ran_ns", |_, it| Ok(it.run().map(|(_, ns)| ns)));
        // The best first.
        fields.add_field_method_get("kernels", |lua, it| {
            let list = lua.create_table()?;
            for kernel in it.with(|task| task.kernels.clone()).unwrap_or_default() {
                let table = lua.create_table_with_capacity(0, 2)?;
                table.raw_set("on", kernel.on.to_string())?;
                table.raw_set("expected_ns", kernel.expected_ns)?;
                list.raw_push(table)?;
            }
            Ok(list)
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        // 1 is the best; nil: it has no kernel for that kind.
        methods.add_method("rank_on", |_, it, kind: String| {
            let kind = kind.parse().map_err(Error::runtime)?;
            Ok(it.with(|task| task.rank_on(&kind)).flatten().map(|rank| rank + 1))
        });
        methods.add_meta_method(MetaMethod::ToString, |_, it, ()| Ok(format!("task {}", it.id.0)));
        methods.add_meta_method(MetaMethod::Eq, |_, it, other: AnyUserData| {
            Ok(other.borrow::<TaskRef>().is_ok_and(|other| other.id == it.id))
        });
    }
}
