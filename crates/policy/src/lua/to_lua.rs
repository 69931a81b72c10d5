//! The snapshot as a table.

use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{IntoLua, Lua, Table, Value};
use plan::{App, Evidence, Known, Source, Speedup, TurnMode};
use topology::{Level, Machine, Object, Shape};
use workload::Malleability;

use super::cpus::Cpus;
use super::world::World;
use crate::common::needs::Need;
use crate::{LevelDecision, Lever, Neighbours, Settings};

pub(super) fn snapshot(lua: &Lua, world: &Rc<World>) -> mlua::Result<Table> {
    let from = &world.snapshot;
    let table = lua.create_table()?;
    table.raw_set("now_ns", from.now_ns)?;
    table.raw_set("usable", Cpus::to_lua(lua, from.usable.clone())?)?;
    table.raw_set("allowed", Cpus::to_lua(lua, from.allowed.clone())?)?;
    table.raw_set("load_average_15min_milli", from.load_average_15min_milli)?;
    table.raw_set("settings", settings(lua, &world.settings)?)?;
    let apps = lua.create_table_with_capacity(from.apps.len(), 0)?;
    for program in &from.apps {
        apps.raw_push(app(lua, world, program)?)?;
    }
    table.raw_set("apps", apps)?;
    // What is large is made when it is looked at.
    let meta = lua.create_table()?;
    let world = Rc::clone(world);
    let made = move |lua: &Lua, (table, key): (Table, Value)| {
        let key = key.as_string().map(|key| key.to_string_lossy()).unwrap_or_default();
        let snapshot = &world.snapshot;
        let value = match key.as_str() {
            "machine" => machine(lua, &snapshot.machine)?.into_lua(lua)?,
            "shapes" => shapes(lua, &snapshot.machine.shapes(&snapshot.usable))?.into_lua(lua)?,
            _ => return Err(mlua::Error::runtime(format!("a snapshot has no '{key}'"))),
        };
        table.raw_set(key, &value)?;
        Ok(value)
    };
    meta.raw_set("__index", lua.create_function(made)?)?;
    meta.raw_set("__metatable", false)?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

fn app(lua: &Lua, world: &World, app: &App) -> mlua::Result<Table> {
    let snapshot = &world.snapshot;
    let need = Need::of(app, snapshot, snapshot.usable.len(), snapshot.allowed.len());
    let room = need.scope.as_ref().unwrap_or(&snapshot.usable);
    let cpus = |lua: &Lua, cpus: Option<&topology::CpuSet>| match cpus {
        Some(cpus) => Cpus::to_lua(lua, cpus.clone()),
        None => Ok(Value::Nil),
    };
    let table = lua.create_table_with_capacity(0, 26)?;
    table.raw_set("name", app.id.as_str())?;
    table.raw_set("program", app.program())?;
    table.raw_set("arrived_ns", app.arrived_ns)?;
    table.raw_set("malleability", malleability(app.demand.malleability))?;
    table.raw_set("min_threads", app.demand.min_threads)?;
    table.raw_set("max_threads", app.demand.max_threads)?;
    table.raw_set("weight_milli", app.demand.weight_milli)?;
    table.raw_set("coschedule", app.demand.coschedule)?;
    table.raw_set("team", app.team)?;
    table.raw_set("waits_passively", app.waits_passively)?;
    table.raw_set("stoppable", app.stoppable)?;
    table.raw_set("suspended", app.suspended)?;
    table.raw_set("within", cpus(lua, app.within.as_ref())?)?;
    table.raw_set("before", cpus(lua, world.memory.places.get(&app.id))?)?;
    table.raw_set("room", Cpus::to_lua(lua, room.clone())?)?;
    table.raw_set("resizable", app.accepts_width())?;
    table.raw_set("threads", need.own_threads)?;
    table.raw_set("fewest_cpus", need.floor)?;
    table.raw_set("most_cpus", need.cap.min(room.len() as u32))?;
    table.raw_set("fewest_threads", need.least_threads)?;
    if let Some(curve) = &app.speedup {
        table.raw_set("speedup_milli", speedup(lua, curve)?)?;
    }
    table.raw_set("evidence", evidence(lua, &app.evidence)?)?;
    let served = world.account.served(&app.id);
    table.raw_set("used_ns", served.used_ns)?;
    table.raw_set("entitled_ns", served.entitled_ns)?;
    Ok(table)
}

fn speedup(lua: &Lua, curve: &Speedup) -> mlua::Result<Table> {
    lua.create_table_from(BTreeMap::from(curve.clone()))
}

/// Always a table, so that asking for what is not known is no error.
fn evidence(lua: &Lua, from: &Evidence) -> mlua::Result<Table> {
    let Evidence { left_ns, bandwidth_milli, cache_milli, move_ns, loads_per_s } = from;
    let table = lua.create_table()?;
    for (name, known) in [
        ("left_ns", left_ns),
        ("bandwidth_milli", bandwidth_milli),
        ("cache_milli", cache_milli),
        ("move_ns", move_ns),
        ("loads_per_s", loads_per_s),
    ] {
        let Some(Known { value, error_milli, source }) = known else { continue };
        let inner = lua.create_table_with_capacity(0, 3)?;
        inner.raw_set("value", *value)?;
        inner.raw_set("error_milli", *error_milli)?;
        let source = match source {
            Source::Measured => "measured",
            Source::Remembered => "remembered",
        };
        inner.raw_set("source", source)?;
        table.raw_set(name, inner)?;
    }
    Ok(table)
}

fn malleability(malleability: Malleability) -> &'static str {
    match malleability {
        Malleability::Rigid => "rigid",
        Malleability::Moldable => "moldable",
        Malleability::Malleable => "malleable",
        Malleability::Evolving => "evolving",
    }
}

/// All but what says which policy it is: a plan, others' places, a text.
fn settings(lua: &Lua, settings: &Settings) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("slice_ns", settings.slice_ns)?;
    table.raw_set("min_slice_ns", settings.min_slice_ns)?;
    table.raw_set("max_still_ns", settings.max_still_ns)?;
    let turn_mode = match settings.turn_mode {
        TurnMode::Strict => "strict",
        TurnMode::Filling => "filling",
    };
    table.raw_set("turn_mode", turn_mode)?;
    table.raw_set("hold_ns", settings.hold_ns)?;
    let level_decision = match settings.level_decision {
        LevelDecision::Global => "global",
        LevelDecision::Local => "local",
    };
    table.raw_set("level_decision", level_decision)?;
    // Who slows whom is asked pair by pair: all pairs would be made anew for every decision.
    let neighbours = settings.neighbours.as_ref().map(|neighbours| match neighbours {
        Neighbours::Twins => "twins",
        Neighbours::Profile => "profile",
        Neighbours::LoadRates => "load_rates",
        Neighbours::Predicted(_) => "predicted",
    });
    table.raw_set("neighbours", neighbours)?;
    table.raw_set("rebalance_every_ns", settings.rebalance_every_ns)?;
    table.raw_set("rebalance_within_nodes", settings.rebalance_within_nodes)?;
    table.raw_set("allowed_widths", settings.allowed_widths.clone())?;
    table.raw_set("upper_threshold", settings.upper_threshold)?;
    table.raw_set("lower_threshold", settings.lower_threshold)?;
    table.raw_set("settle_ns", settings.settle_ns)?;
    table.raw_set("grace_ns", settings.grace_ns)?;
    let without = settings.without.iter().map(|lever| match lever {
        Lever::Widths => "widths",
        Lever::Neighbours => "neighbours",
        Lever::Homes => "homes",
        Lever::Parity => "parity",
    });
    table.raw_set("without", lua.create_sequence_from(without)?)?;
    Ok(table)
}

fn machine(lua: &Lua, machine: &Machine) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("name", machine.name.as_str())?;
    table.raw_set("cpus", Cpus::to_lua(lua, machine.all_cpus().clone())?)?;
    let levels = lua.create_table()?;
    table.raw_set("root", object(lua, &machine.root, &levels)?)?;
    table.raw_set("levels", levels)?;
    if !machine.capacities.is_empty() {
        table.raw_set("capacities", machine.capacities.clone())?;
    }
    if let Some(distances) = &machine.distances {
        let inner = lua.create_table()?;
        inner.raw_set("nodes", distances.nodes.clone())?;
        inner.raw_set("matrix", distances.matrix.clone())?;
        table.raw_set("distances", inner)?;
    }
    let caches = lua.create_table()?;
    for cache in &machine.caches {
        let inner = lua.create_table()?;
        inner.raw_set("level", cache.level)?;
        inner.raw_set("cpus", Cpus::to_lua(lua, cache.cpus.clone())?)?;
        inner.raw_set("size_bytes", cache.size_bytes)?;
        inner.raw_set("line_bytes", cache.line_bytes)?;
        caches.raw_push(inner)?;
    }
    table.raw_set("caches", caches)?;
    Ok(table)
}

/// An object and all below, each also in the list of its level.
fn object(lua: &Lua, from: &Object, levels: &Table) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("level", level(from.level))?;
    table.raw_set("logical_index", from.logical_index)?;
    table.raw_set("os_index", from.os_index)?;
    table.raw_set("cpus", Cpus::to_lua(lua, from.cpus.clone())?)?;
    let of_level: Table = match levels.raw_get(level(from.level))? {
        Value::Table(of_level) => of_level,
        _ => {
            let fresh = lua.create_table()?;
            levels.raw_set(level(from.level), &fresh)?;
            fresh
        }
    };
    of_level.raw_push(&table)?;
    let children = lua.create_table_with_capacity(from.children.len(), 0)?;
    for child in &from.children {
        children.raw_push(object(lua, child, levels)?)?;
    }
    table.raw_set("children", children)?;
    Ok(table)
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Cluster => "cluster",
        Level::Node => "node",
        Level::Box => "box",
        Level::Package => "package",
        Level::Numa => "numa",
        Level::Llc => "llc",
        Level::Group => "group",
        Level::Core => "core",
        Level::Pu => "pu",
    }
}

fn shapes(lua: &Lua, from: &[Shape]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(from.len(), 0)?;
    for shape in from {
        let inner = lua.create_table()?;
        inner.raw_set("width", shape.width)?;
        inner.raw_set("description", shape.description.as_str())?;
        inner.raw_set("left_over", Cpus::to_lua(lua, shape.left_over.clone())?)?;
        let places = lua.create_table_with_capacity(shape.places.len(), 0)?;
        for place in &shape.places {
            places.raw_push(Cpus::to_lua(lua, place.clone())?)?;
        }
        inner.raw_set("places", places)?;
        table.raw_push(inner)?;
    }
    Ok(table)
}
