//! Parts of a plan as values, and the functions that put them together.

use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Error, FromLua, IntoLua, Lua, MetaMethod, Table, UserData, UserDataFields};
use mlua::{UserDataMethods, Value};
use plan::{App, Bind, Memory, MoveReason, Run, Slot, Tree, TurnMode};
use topology::CpuSet;
use workload::AppId;

use super::cpus::{AnyCpus, Cpus};
use super::world::World;
use crate::common::gather;
use crate::common::needs::Need;
use crate::sandbox::budget;

/// What a node of a tree costs, about.
const NODE_BYTES: usize = 256;

/// A part of a plan; `None`: nothing runs.
pub(super) struct Branch(pub Option<Tree>);

impl Branch {
    pub fn to_lua(lua: &Lua, tree: Option<Tree>) -> mlua::Result<Value> {
        budget(lua).allocate(tree.as_ref().map_or(1, nodes) * NODE_BYTES)?;
        lua.create_userdata(Branch(tree))?.into_lua(lua)
    }
}

fn nodes(tree: &Tree) -> usize {
    1 + tree.children().map(nodes).sum::<usize>()
}

impl UserData for Branch {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("cpus", |lua, this| {
            Cpus::to_lua(lua, this.0.as_ref().map_or_else(CpuSet::new, Tree::place))
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| {
            Ok(this.0.as_ref().map_or_else(|| "idle".to_owned(), Tree::to_string))
        });
    }
}

/// A tree where one is expected: a part of a plan, or its text.
pub(super) struct AnyTree(pub Option<Tree>);

impl FromLua for AnyTree {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<AnyTree> {
        match &value {
            Value::UserData(data) => match data.borrow::<Branch>() {
                Ok(branch) => Ok(AnyTree(branch.0.clone())),
                Err(_) => Err(Error::runtime("a CPU set stands where a part of a plan is expected")),
            },
            Value::String(text) => {
                let text = text.to_str()?;
                let plan: plan::Plan = text.parse().map_err(Error::runtime)?;
                if !plan.waiting.is_empty() || !plan.suspended.is_empty() {
                    return Err(Error::runtime("only a whole plan says who waits or is suspended"));
                }
                Ok(AnyTree(plan.tree))
            }
            other => Err(Error::runtime(format!(
                "a {} stands where a part of a plan is expected: run(…), side_by_side {{…}} or its text",
                other.type_name()
            ))),
        }
    }
}

fn list(parts: &Table) -> mlua::Result<Vec<Tree>> {
    if parts.raw_len() == 0 && !parts.is_empty() {
        return Err(Error::runtime("the parts are to be a list: { a, b, c }"));
    }
    let mut trees = Vec::with_capacity(parts.raw_len());
    for part in parts.sequence_values::<AnyTree>() {
        trees.extend(part?.0);
    }
    Ok(trees)
}

/// A name, or a program's table.
pub(super) struct Named(pub AppId);

impl FromLua for Named {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Named> {
        let name: Value = match &value {
            Value::Table(app) => app.raw_get("name")?,
            other => other.clone(),
        };
        match &name {
            Value::String(name) => Ok(Named(AppId::new(&name.to_string_lossy()).map_err(Error::runtime)?)),
            _ => Err(Error::runtime(format!(
                "a {} stands where a program is expected: one of snapshot.apps, or its name",
                value.type_name()
            ))),
        }
    }
}

impl Named {
    pub fn find<'w>(&self, world: &'w World) -> mlua::Result<&'w App> {
        let missing = || Error::runtime(format!("there is no program '{}' in the snapshot", self.0));
        world.snapshot.app(&self.0).ok_or_else(missing)
    }
}

/// What a function says that only makes sense inside of `decide`.
pub(super) fn inside(world: &Option<Rc<World>>) -> mlua::Result<&Rc<World>> {
    world.as_ref().ok_or_else(|| Error::runtime("this can be called inside of decide only"))
}

pub(super) fn install(lua: &Lua, globals: &Table, world: &Option<Rc<World>>) -> mlua::Result<()> {
    let of = world.clone();
    let run = move |lua: &Lua, (app, cpus, how): (Named, AnyCpus, Option<Table>)| {
        let run = one_run(inside(&of)?, &app, &cpus.0, how)?;
        Branch::to_lua(lua, Some(gather::leaf(run)))
    };
    globals.raw_set("run", lua.create_function(run)?)?;
    let side_by_side = |lua: &Lua, parts: Table| {
        let mut trees = list(&parts)?;
        let tree = if trees.len() > 1 { Some(Tree::SideBySide(trees)) } else { trees.pop() };
        Branch::to_lua(lua, tree)
    };
    globals.raw_set("side_by_side", lua.create_function(side_by_side)?)?;
    let mixed = |lua: &Lua, (parts, owners): (Table, Option<Table>)| {
        let trees = list(&parts)?;
        if trees.is_empty() {
            return Branch::to_lua(lua, None);
        }
        let mut tree = gather::mixed(trees);
        if let (Tree::Mixed { owner, .. }, Some(owners)) = (&mut tree, owners) {
            for pair in owners.pairs::<u32, Named>() {
                let (cpu, app) = pair?;
                owner.insert(cpu, app.0);
            }
        }
        Branch::to_lua(lua, Some(tree))
    };
    globals.raw_set("mixed", lua.create_function(mixed)?)?;
    let of = world.clone();
    let in_turn = move |lua: &Lua, (slots, how): (Table, Option<Table>)| {
        Branch::to_lua(lua, turns(inside(&of)?, lua, slots, how)?)
    };
    globals.raw_set("in_turn", lua.create_function(in_turn)?)
}

/// `app` on what it may use of `cpus`, with as many threads as it can use there unless told.
fn one_run(world: &World, app: &Named, cpus: &CpuSet, how: Option<Table>) -> mlua::Result<Run> {
    let (snapshot, app) = (&world.snapshot, app.find(world)?);
    let need = Need::of(app, snapshot, snapshot.usable.len(), snapshot.allowed.len());
    let place = need.open(cpus);
    if place.is_empty() {
        let why = match &need.scope {
            Some(scope) if !cpus.is_empty() => format!("of CPUs {cpus} it may use none, only {scope}"),
            _ => "it is given no CPU".to_owned(),
        };
        return Err(Error::runtime(format!("{} cannot run: {why}", app.id)));
    }
    let mut run = Run::new(app.id.clone(), place);
    run.threads = need.threads_on(run.place.len());
    let Some(how) = how else { return Ok(run) };
    for pair in how.pairs::<String, Value>() {
        let (key, value) = pair?;
        let wrong = |wanted: &str| Error::runtime(format!("run: {key} is to be {wanted}"));
        let word = value.as_string().map(|word| word.to_string_lossy());
        match (key.as_str(), word.as_deref()) {
            ("threads", None) => {
                let count = value.as_integer().and_then(|count| u32::try_from(count).ok());
                run.threads =
                    count.filter(|&count| count > 0).ok_or_else(|| wrong("a whole number from 1"))?;
            }
            ("bind", Some("free")) => run.bind = Bind::Free,
            ("bind", Some("each")) => run.bind = Bind::Each,
            ("bind", _) => return Err(wrong("\"free\" or \"each\"")),
            ("memory", Some("stay")) => run.memory = Memory::Stay,
            ("memory", Some("follow")) => run.memory = Memory::Follow,
            ("memory", _) => return Err(wrong("\"stay\" or \"follow\"")),
            ("lends", _) => run.lends = value.as_boolean().ok_or_else(|| wrong("true or false"))?,
            ("threads", _) => return Err(wrong("a whole number from 1")),
            _ => {
                return Err(Error::runtime(format!(
                    "run: there is no '{key}'; threads, bind, memory, lends"
                )));
            }
        }
    }
    Ok(run)
}

fn turns(world: &World, lua: &Lua, slots: Table, how: Option<Table>) -> mlua::Result<Option<Tree>> {
    let (mut mode, mut slice_ns) = (world.settings.turn_mode, world.settings.slice_ns);
    if let Some(how) = how {
        mode = match how.raw_get::<Option<String>>("mode")?.as_deref() {
            None => mode,
            Some("strict") => TurnMode::Strict,
            Some("filling") => TurnMode::Filling,
            Some(other) => {
                return Err(Error::runtime(format!(
                    "in_turn: mode is \"strict\" or \"filling\", not '{other}'"
                )));
            }
        };
        slice_ns = how.raw_get::<Option<u64>>("slice_ns")?.unwrap_or(slice_ns);
    }
    let mut trees: Vec<Slot> = Vec::new();
    for slot in slots.sequence_values::<Value>() {
        let (slice_ns, tree) = match slot? {
            Value::Table(slot) => {
                let slice: Option<u64> = slot.raw_get("slice_ns")?;
                (slice.unwrap_or(slice_ns), slot.raw_get::<Value>("plan")?)
            }
            tree => (slice_ns, tree),
        };
        if slice_ns == 0 {
            return Err(Error::runtime("in_turn: a slice of 0 ns is no time at all"));
        }
        trees.extend(AnyTree::from_lua(tree, lua)?.0.map(|tree| Slot { slice_ns, tree }));
    }
    Ok(match trees.len() {
        0 => None,
        1 => trees.pop().map(|slot| slot.tree),
        _ => Some(Tree::InTurn { mode, slots: trees }),
    })
}

/// The whole plan that a script returned, still without those whom it does not mention.
pub(super) fn plan(value: &Value, lua: &Lua) -> mlua::Result<plan::Plan> {
    match value {
        Value::String(text) => text.to_str()?.parse().map_err(Error::runtime),
        other => Ok(plan::Plan { tree: AnyTree::from_lua(other.clone(), lua)?.0, ..plan::Plan::default() }),
    }
}

/// Reasons by program.
pub(super) fn by_program(table: Table) -> mlua::Result<BTreeMap<AppId, MoveReason>> {
    let reason = |(app, why): (Named, String)| (app.0, MoveReason::Script(why));
    table.pairs().map(|pair| pair.map(reason)).collect()
}
