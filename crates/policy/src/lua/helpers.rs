//! What the policies in Rust share, for scripts.

use std::rc::Rc;

use mlua::{Error, Lua, Table, Value, Variadic};
use plan::Remark;
use topology::CpuSet;

use super::cpus::{AnyCpus, Cpus};
use super::trees::{Branch, Named, inside};
use super::world::World;
use crate::Memory;
use crate::builtin;
use crate::common::company;
use crate::common::context::Context;
use crate::common::levels;
use crate::common::slices::{self, Period};
use crate::sandbox::budget;

/// What a decision of a built-in policy costs, in instructions: few of them, whatever a script does.
const BUILT_IN_COST: u64 = 500_000;
/// What finding two programs among the predictions costs.
const PAIR_COST: u64 = 100;

pub(super) fn install(lua: &Lua, globals: &Table, world: &Option<Rc<World>>) -> mlua::Result<()> {
    let of = world.clone();
    let built_in = move |lua: &Lua, name: String| built_in(inside(&of)?, lua, &name);
    globals.raw_set("built_in", lua.create_function(built_in)?)?;

    let of = world.clone();
    let predicted_slowdown = move |lua: &Lua, (app, beside): (Named, Named)| {
        let world = inside(&of)?;
        budget(lua).spend(PAIR_COST)?;
        let (app, beside) = (app.find(world)?, beside.find(world)?);
        let known =
            world.settings.neighbours.as_ref().and_then(|by| company::known_slowdown(by, app, beside));
        let milli = |value: f64| (value * 1000.0).round() as u64;
        Ok(match known {
            Some(known) => (Some(milli(known.value)), Some(milli(known.error))),
            None => (None, None),
        })
    };
    globals.raw_set("predicted_slowdown", lua.create_function(predicted_slowdown)?)?;

    let of = world.clone();
    let speed_milli = move |_: &Lua, (app, threads): (Named, u32)| {
        let app = app.find(inside(&of)?)?;
        Ok(app.speedup.as_ref().map(|curve| curve.milli(threads)))
    };
    globals.raw_set("speed_milli", lua.create_function(speed_milli)?)?;

    let of = world.clone();
    let spread = move |lua: &Lua, (places, apps): (Vec<AnyCpus>, Table)| {
        spread(inside(&of)?, lua, places.into_iter().map(|place| place.0).collect(), &apps)
    };
    globals.raw_set("spread", lua.create_function(spread)?)?;

    let of = world.clone();
    let slices = move |lua: &Lua, (claims, period_ns): (Vec<u64>, Option<u64>)| {
        if claims.is_empty() {
            return lua.create_sequence_from(claims);
        }
        lua.create_sequence_from(slices::slices(
            &claims,
            &inside(&of)?.settings,
            period_ns.map_or(Period::Usual, Period::Of),
        ))
    };
    globals.raw_set("slices", lua.create_function(slices)?)?;

    let (of, library) = (world.clone(), globals.clone());
    let print = move |lua: &Lua, values: Variadic<Value>| {
        let texts = values.iter().map(|value| {
            let tostring: mlua::Function = library.raw_get("tostring")?;
            tostring.call::<String>(value)
        });
        let line = texts.collect::<mlua::Result<Vec<_>>>()?.join(" ");
        budget(lua).allocate(line.len())?;
        // What a file says outside of `decide` would be said at every decision.
        if let Some(world) = &of {
            world.reported.borrow_mut().remarks.push(Remark::Script(line));
        }
        Ok(())
    };
    globals.raw_set("print", lua.create_function(print)?)
}

/// What a policy of ours would do; what it says and remembers is kept for it.
fn built_in(world: &World, lua: &Lua, name: &str) -> mlua::Result<Value> {
    if super::is_script(name) {
        return Err(Error::runtime(format!(
            "built_in: '{name}' is a file; only built-in policies can be asked"
        )));
    }
    budget(lua).spend(BUILT_IN_COST)?;
    let policy = builtin::built_in(name, &world.settings).map_err(Error::runtime)?;
    let memory = Memory { script: Default::default(), ..world.memory.clone() };
    let decision = policy.decide(&world.snapshot, &memory);
    let mut reported = world.reported.borrow_mut();
    reported.remarks.extend(decision.report.remarks);
    reported.moves.extend(decision.report.moves);
    reported.level = Some(decision.memory.level);
    reported.wake_at_ns = reported.wake_at_ns.into_iter().chain(decision.wake_at_ns).min();
    Branch::to_lua(lua, decision.plan.tree)
}

/// Programs over places as TA spreads them: a list of `{ cpus = place, apps = { … } }`.
fn spread(world: &World, lua: &Lua, places: Vec<CpuSet>, apps: &Table) -> mlua::Result<Table> {
    if places.iter().any(CpuSet::is_empty) {
        return Err(Error::runtime("spread: one of the places is empty"));
    }
    let overlap = places.iter().try_fold(CpuSet::new(), |all, place| {
        if all.intersects(place) { Err(place) } else { Ok(all.union(place)) }
    });
    if let Err(place) = overlap {
        return Err(Error::runtime(format!("spread: the places overlap at CPUs {place}")));
    }
    budget(lua).spend(100 * (places.len() + apps.raw_len()) as u64)?;
    let cx = Context::new(&world.snapshot, &world.settings, &world.memory);
    let mut members = Vec::new();
    for app in apps.sequence_values::<Named>() {
        let app = app?;
        app.find(world)?;
        let member = cx.needs.iter().position(|need| need.app.id == app.0);
        members.push(member.ok_or_else(|| Error::runtime(format!("spread: {} is suspended", app.0)))?);
    }
    let parts = levels::spread(&cx, &places, &members);
    let list = lua.create_table_with_capacity(parts.len(), 0)?;
    for part in parts {
        let table = lua.create_table()?;
        table.raw_set("cpus", Cpus::to_lua(lua, part.place)?)?;
        let here = lua.create_table()?;
        for index in part.members {
            let at = members.iter().position(|&member| member == index).expect("one of the members");
            here.raw_push(apps.raw_get::<Value>(at + 1)?)?;
        }
        table.raw_set("apps", here)?;
        list.raw_push(table)?;
    }
    Ok(list)
}
