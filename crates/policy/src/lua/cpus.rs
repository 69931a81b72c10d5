//! CPU sets as values that scripts compute with.

use mlua::{AnyUserData, Error, FromLua, IntoLua, Lua, MetaMethod, Table, UserData, UserDataMethods, Value};
use topology::{CpuSet, MAX_CPUS};

use crate::common::place::part;
use crate::sandbox::budget;

/// A set of CPUs, by the kernel's numbers. Never changed: every operation makes a new one.
pub(super) struct Cpus(pub CpuSet);

impl Cpus {
    pub fn to_lua(lua: &Lua, cpus: CpuSet) -> mlua::Result<Value> {
        // The bits between the lowest and the highest, and the value around them; each takes time, too.
        let bytes = cpus.lowest().zip(cpus.highest()).map_or(0, |(from, to)| (to - from) as usize / 8);
        let budget = budget(lua);
        budget.spend(bytes as u64 / 8)?;
        budget.allocate(96 + bytes)?;
        lua.create_userdata(Cpus(cpus))?.into_lua(lua)
    }
}

/// A set where one is expected: a set, text like `0-3,8`, one number, or a list of numbers.
pub(super) struct AnyCpus(pub CpuSet);

impl FromLua for AnyCpus {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<AnyCpus> {
        let number = |number: i64| match u32::try_from(number) {
            Ok(cpu) if cpu < MAX_CPUS => Ok(cpu),
            _ => Err(Error::runtime(format!("{number} is no CPU"))),
        };
        Ok(AnyCpus(match &value {
            Value::UserData(data) => match data.borrow::<Cpus>() {
                Ok(cpus) => cpus.0.clone(),
                Err(_) => return Err(Error::runtime("a part of a plan stands where CPUs are expected")),
            },
            Value::Integer(cpu) => CpuSet::from_cpus(&[number(*cpu)?]),
            Value::String(text) => {
                let text = text.to_str()?;
                text.parse().map_err(Error::runtime)?
            }
            Value::Table(list) => {
                let cpus: Vec<i64> = list.sequence_values().collect::<mlua::Result<_>>()?;
                cpus.into_iter().map(number).collect::<mlua::Result<CpuSet>>()?
            }
            other => {
                return Err(Error::runtime(format!(
                    "a {} stands where CPUs are expected: a set, \"0-3\", a number or a list of numbers",
                    other.type_name()
                )));
            }
        }))
    }
}

impl UserData for Cpus {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        type Two = (AnyCpus, AnyCpus);
        methods.add_meta_function(MetaMethod::BAnd, |lua, (a, b): Two| {
            Cpus::to_lua(lua, a.0.intersection(&b.0))
        });
        methods.add_meta_function(MetaMethod::BOr, |lua, (a, b): Two| Cpus::to_lua(lua, a.0.union(&b.0)));
        methods
            .add_meta_function(MetaMethod::Sub, |lua, (a, b): Two| Cpus::to_lua(lua, a.0.difference(&b.0)));
        methods.add_meta_function(MetaMethod::Le, |_, (a, b): Two| Ok(a.0.is_subset(&b.0)));
        methods.add_meta_function(MetaMethod::Lt, |_, (a, b): Two| Ok(a.0 != b.0 && a.0.is_subset(&b.0)));
        methods.add_meta_function(MetaMethod::Eq, |_, (a, b): (AnyUserData, AnyUserData)| {
            Ok(match (a.borrow::<Cpus>(), b.borrow::<Cpus>()) {
                (Ok(a), Ok(b)) => a.0 == b.0,
                _ => false,
            })
        });
        methods.add_meta_method(MetaMethod::Len, |_, this, ()| Ok(this.0.len()));
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| Ok(this.0.to_string()));
        methods.add_method("list", |lua, this, ()| lua.create_sequence_from(this.0.iter()));
        methods.add_method("contains", |_, this, cpu: u32| Ok(this.0.contains(cpu)));
        methods.add_method("meets", |_, this, other: AnyCpus| Ok(this.0.intersects(&other.0)));
        methods.add_method("lowest", |_, this, ()| Ok(this.0.lowest()));
        methods.add_method("take", |lua, this, (count, first): (usize, Option<AnyCpus>)| {
            Cpus::to_lua(lua, part(&this.0, count, first.as_ref().map(|first| &first.0)))
        });
    }
}

pub(super) fn install(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    let make =
        |lua: &Lua, cpus: Option<AnyCpus>| Cpus::to_lua(lua, cpus.map_or_else(CpuSet::new, |cpus| cpus.0));
    globals.raw_set("cpus", lua.create_function(make)?)
}
