//! What a script declares and returns.

use mlua::{Error, Lua, Table, Value};
use plan::{Plan, Promise, Remark, Report, ShareBound, WaitingBound};
use workload::AppId;

use super::cpus::AnyCpus;
use super::plain;
use super::trees;
use super::world::World;
use crate::sandbox::Sandbox;
use crate::{Decision, Memory, Places};

/// What a file says about its policy beside `decide`.
pub(super) struct Declared {
    pub words: Option<String>,
    pub promise: Promise,
}

pub(super) fn declared(vm: &Sandbox) -> mlua::Result<Declared> {
    super::world::decide(vm)?;
    let words = match vm.globals.raw_get::<Value>("words")? {
        Value::Nil => None,
        Value::String(words) => {
            // It stands in one line of a table.
            let words = words.to_string_lossy();
            Some(words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect())
        }
        other => return Err(Error::runtime(format!("words is to be text, not a {}", other.type_name()))),
    };
    let promise = match vm.globals.raw_get::<Value>("promise")? {
        Value::Nil => Promise::default(),
        Value::Table(table) => promise(&table)?,
        other => {
            return Err(Error::runtime(format!("promise is to be a table, not a {}", other.type_name())));
        }
    };
    Ok(Declared { words, promise })
}

fn promise(table: &Table) -> mlua::Result<Promise> {
    let mut promise = Promise::default();
    for pair in table.pairs::<String, Value>() {
        let (key, value) = pair?;
        let wrong = |wanted: &str| Error::runtime(format!("promise.{key} is to be {wanted}"));
        match key.as_str() {
            "equal_shapes" => {
                promise.equal_shapes = value.as_boolean().ok_or_else(|| wrong("true or false"))?
            }
            "keeps_cpus" => promise.keeps_cpus = value.as_boolean().ok_or_else(|| wrong("true or false"))?,
            "share_ratio" => {
                let ratio = value.as_number().or(value.as_integer().map(|ratio| ratio as f64));
                let ratio = ratio.filter(|ratio| *ratio >= 1.0).ok_or_else(|| wrong("a number from 1"))?;
                promise.share_bound = Some(ShareBound::Ratio(ratio));
            }
            "waiting" => {
                let word = value.as_string().map(|word| word.to_string_lossy());
                promise.waiting_bound = Some(match (word.as_deref(), value.as_integer()) {
                    (Some("nobody"), _) => WaitingBound::Terminations(0),
                    (Some("in order of arrival"), _) => WaitingBound::EarlierArrivals,
                    (_, Some(ends @ 0..=1_000_000)) => WaitingBound::Terminations(ends as u32),
                    _ => {
                        return Err(wrong(
                            "\"nobody\", \"in order of arrival\" or a number of programs that end before",
                        ));
                    }
                });
            }
            _ => {
                return Err(Error::runtime(format!(
                    "there is no promise '{key}'; there are equal_shapes, keeps_cpus, share_ratio, waiting"
                )));
            }
        }
    }
    Ok(promise)
}

/// What `decide` returned: a plan, or a table with a plan and what else there is to say.
pub(super) fn decision(lua: &Lua, world: &World, answer: Value, remembered: Value) -> mlua::Result<Decision> {
    let (mut plan, mut script, mut wake_at_ns) = (Plan::default(), remembered, None);
    let reported = std::mem::take(&mut *world.reported.borrow_mut());
    let mut report = Report { remarks: reported.remarks, moves: reported.moves };
    match &answer {
        Value::Nil => {
            return Err(Error::runtime("decide returned nothing; it returns a plan, or { plan = …, … }"));
        }
        Value::Table(fields) => {
            if fields.raw_len() > 0 {
                return Err(Error::runtime("decide returned a list; side_by_side { … } makes a plan of one"));
            }
            for pair in fields.pairs::<String, Value>() {
                let (key, value) = pair?;
                match key.as_str() {
                    "plan" => plan = whole(lua, &value)?,
                    "memory" => script = value,
                    "wake_at_ns" => {
                        let wrong =
                            || Error::runtime("wake_at_ns is to be a time in whole nanoseconds, from 0");
                        let at = value.as_integer().and_then(|at| u64::try_from(at).ok());
                        wake_at_ns = Some(at.ok_or_else(wrong)?);
                    }
                    "report" => report.remarks.extend(remarks(world, value)?),
                    "moves" => match value {
                        Value::Table(table) => report.moves.extend(trees::by_program(table)?),
                        _ => return Err(Error::runtime("moves is to be a table: { [name] = why }")),
                    },
                    _ => {
                        return Err(Error::runtime(format!(
                            "decide returned '{key}'; there are plan, memory, wake_at_ns, report, moves"
                        )));
                    }
                }
            }
            if !fields.contains_key("plan")? {
                return Err(Error::runtime("decide returned a table without a plan"));
            }
        }
        value => plan = whole(lua, value)?,
    }
    complete(world, &mut plan, &mut report);
    let places = places(world, &plan);
    let level = reported.level.unwrap_or_default();
    let mut account = world.account.clone();
    account.follow(&world.snapshot, &plan);
    let memory = Memory { level, places, account, script: plain::from_lua(&script)? };
    let wake_at_ns = wake_at_ns.into_iter().chain(reported.wake_at_ns).min();
    Ok(Decision { plan, memory, wake_at_ns, report })
}

fn whole(lua: &Lua, value: &Value) -> mlua::Result<Plan> {
    trees::plan(value, lua).map_err(|error| match error {
        Error::RuntimeError(why) => Error::runtime(format!("the plan that decide returned: {why}")),
        other => other,
    })
}

/// Lines, and what the checker asks a policy to report.
fn remarks(world: &World, value: Value) -> mlua::Result<Vec<Remark>> {
    match value {
        Value::String(line) => Ok(vec![Remark::Script(line.to_string_lossy())]),
        Value::Table(lines) => lines.sequence_values().map(|line| remark(world, line?)).collect(),
        other => Err(Error::runtime(format!("report is to be a list of lines, not a {}", other.type_name()))),
    }
}

/// A line of a report: text, `{ left_over = CPUs, width = n }` or `{ standstill_ns = n }`.
fn remark(world: &World, line: Value) -> mlua::Result<Remark> {
    let table = match &line {
        Value::Table(table) => table,
        Value::String(text) => return Ok(Remark::Script(text.to_string_lossy())),
        Value::Integer(_) | Value::Number(_) => return Ok(Remark::Script(line.to_string()?)),
        other => {
            return Err(Error::runtime(format!(
                "a {} stands where a line of the report is expected",
                other.type_name()
            )));
        }
    };
    if let Some(cpus) = table.get::<Option<AnyCpus>>("left_over")? {
        let width = table.get::<Option<u32>>("width")?.unwrap_or(0);
        return Ok(Remark::LeftOver { cpus: cpus.0, width });
    }
    match table.get::<Option<u64>>("standstill_ns")? {
        Some(longest_ns) => Ok(Remark::Standstill {
            longest_ns,
            allowed_ns: world.settings.max_still_ns,
            shortest_slice_ns: world.settings.min_slice_ns,
        }),
        None => Err(Error::runtime(
            "a table in the report is { left_over = CPUs, width = n } or { standstill_ns = n }",
        )),
    }
}

/// Everybody whom the plan does not mention is suspended, if a user asked for that, or waits.
fn complete(world: &World, plan: &mut Plan, report: &mut Report) {
    let runs = plan.tree.as_ref().map(|tree| tree.apps()).unwrap_or_default();
    let (mut waiting, mut suspended): (Vec<AppId>, Vec<AppId>) = Default::default();
    for app in &world.snapshot.apps {
        let id = &app.id;
        if !runs.contains(id) && !plan.waiting.contains(id) && !plan.suspended.contains(id) {
            if app.suspended { suspended.push(id.clone()) } else { waiting.push(id.clone()) }
        }
    }
    if !waiting.is_empty() {
        report.remarks.push(Remark::Unplanned { apps: waiting.clone() });
    }
    plan.waiting.extend(waiting);
    plan.suspended.extend(suspended);
}

/// Where everybody stands now, or stood last.
fn places(world: &World, plan: &Plan) -> Places {
    let mut now = Places::default();
    plan.for_each_run(&mut |run| now.add(&run.app, &run.place));
    for app in &world.snapshot.apps {
        if let (Some(before), None) = (world.memory.places.get(&app.id), now.get(&app.id)) {
            now.insert(app.id.clone(), before.clone());
        }
    }
    now
}
