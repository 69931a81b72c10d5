//! What a script remembers, to Lua and back.

use std::collections::BTreeMap;

use mlua::{Error, IntoLua, Lua, Table, Value};

use super::cpus::Cpus;
use crate::plain::Plain;

/// Deepest nesting; also ends tables that contain themselves.
const MAX_DEPTH: usize = 32;
/// Most values that a policy may remember: memory is copied at every decision.
const MAX_VALUES: usize = 100_000;

pub(super) fn to_lua(plain: &Plain, lua: &Lua) -> mlua::Result<Value> {
    match plain {
        Plain::Flag(flag) => flag.into_lua(lua),
        Plain::Whole(number) => number.into_lua(lua),
        Plain::Number(number) => number.into_lua(lua),
        Plain::Text(text) => text.as_str().into_lua(lua),
        Plain::Cpus(cpus) => Cpus::to_lua(lua, cpus.clone()),
        Plain::List(values) => {
            let values = values.iter().map(|value| to_lua(value, lua));
            lua.create_sequence_from(values.collect::<mlua::Result<Vec<_>>>()?)?.into_lua(lua)
        }
        Plain::Table(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (key, value) in fields {
                table.raw_set(key.as_str(), to_lua(value, lua)?)?;
            }
            table.into_lua(lua)
        }
    }
}

pub(super) fn from_lua(value: &Value) -> mlua::Result<Plain> {
    let mut left = MAX_VALUES;
    read(value, "memory", 0, &mut left)
}

fn read(value: &Value, path: &str, depth: usize, left: &mut usize) -> mlua::Result<Plain> {
    let wrong = |why: &str| Error::runtime(format!("{path} cannot be remembered: {why}"));
    *left = left.checked_sub(1).ok_or_else(|| wrong("there are more than 100000 values"))?;
    if depth > MAX_DEPTH {
        return Err(wrong("tables nest deeper than 32, or contain themselves"));
    }
    Ok(match value {
        Value::Boolean(flag) => Plain::Flag(*flag),
        Value::Integer(number) => Plain::Whole(*number),
        Value::Number(number) if number.is_finite() => Plain::Number(*number),
        Value::Number(_) => return Err(wrong("it is no finite number")),
        Value::String(text) => {
            Plain::Text(text.to_str().map_err(|_| wrong("it is text that is not UTF-8"))?.to_owned())
        }
        Value::UserData(data) => match data.borrow::<Cpus>() {
            Ok(cpus) => Plain::Cpus(cpus.0.clone()),
            Err(_) => return Err(wrong("it is a part of a plan; remember its text, tostring(plan)")),
        },
        Value::Table(table) => read_table(table, path, depth, left)?,
        other => return Err(wrong(&format!("it is a {}", other.type_name()))),
    })
}

fn read_table(table: &Table, path: &str, depth: usize, left: &mut usize) -> mlua::Result<Plain> {
    let length = table.raw_len();
    let (mut fields, mut numbered) = (BTreeMap::new(), 0);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        match &key {
            Value::Integer(at) if (1..=length as i64).contains(at) => numbered += 1,
            Value::String(name) => {
                let name = name.to_str()?.to_owned();
                let value = read(&value, &format!("{path}.{name}"), depth + 1, left)?;
                fields.insert(name, value);
            }
            other => {
                return Err(Error::runtime(format!(
                    "{path} cannot be remembered: it has a {} as a key; keys are text, or 1, 2, 3 … without gaps",
                    other.type_name()
                )));
            }
        }
    }
    if numbered == 0 {
        return Ok(Plain::Table(fields));
    }
    if !fields.is_empty() || numbered != length {
        return Err(Error::runtime(format!(
            "{path} cannot be remembered: its keys are to be all text, or 1, 2, 3 … without gaps"
        )));
    }
    let value = |at: usize| read(&table.raw_get(at)?, &format!("{path}[{at}]"), depth + 1, left);
    Ok(Plain::List((1..=length).map(value).collect::<mlua::Result<_>>()?))
}
