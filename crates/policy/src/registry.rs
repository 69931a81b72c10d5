//! All policies by name: those that come with coplace, and files.

use crate::builtin::built_in;
use crate::{Policy, Settings, UnknownPolicy, lua};

/// A policy by its letters or words, in any case. `TA+` and `default` name the default. One that is
/// named like a Lua file is that file, whose text the settings hold.
pub fn by_name(name: &str, settings: &Settings) -> Result<Box<dyn Policy>, UnknownPolicy> {
    if !lua::is_script(name) {
        return built_in(name, settings);
    }
    let no_script = || UnknownPolicy::NoScript { file: name.to_owned() };
    let text = settings.script.as_deref().ok_or_else(no_script)?;
    let settings = Settings { script: None, ..settings.clone() };
    Ok(Box::new(lua::Script::new(name, text, settings)?))
}
