//! What the script of a policy decides from, and the state in which it does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Error, Function};
use plan::{MoveReason, Remark, Snapshot};
use workload::AppId;

use super::LIMITS;
use crate::sandbox::Sandbox;
use crate::{Account, LevelMemory, Memory, Settings};

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

/// A state for one decision in `world`; without one only to look at the file.
pub(super) fn state(world: &Option<Rc<World>>) -> mlua::Result<Sandbox> {
    let sandbox = Sandbox::new(LIMITS)?;
    super::cpus::install(&sandbox.lua, &sandbox.globals)?;
    super::trees::install(&sandbox.lua, &sandbox.globals, world)?;
    super::helpers::install(&sandbox.lua, &sandbox.globals, world)?;
    Ok(sandbox)
}

/// What every policy has.
pub(super) fn decide(sandbox: &Sandbox) -> mlua::Result<Function> {
    sandbox.function("decide")?.ok_or_else(|| {
        Error::runtime(
            "there is no function decide(snapshot, memory); `coplace policy new` writes a file to begin from",
        )
    })
}
