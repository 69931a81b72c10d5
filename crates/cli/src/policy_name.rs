//! Policies by their letters, words, or Lua file.

use std::path::Path;

use policy::{Policy, Settings, lua};

/// Largest Lua file that is taken: the text travels in messages and stands in every trace.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// The letters of a policy named by letters or words, in any case; of a Lua file its name.
pub fn policy_letters(name: &str) -> Result<String, String> {
    // The one that needs a plan gets it later, or tells then that it has none.
    let settings = Settings { plan: Some("idle".into()), ..Settings::default() };
    Ok(policy(name, &settings)?.letters().to_owned())
}

/// A policy as it was chosen, its file read, to be made as often as it is needed.
pub struct Chosen {
    name: String,
    settings: Settings,
}

impl Chosen {
    /// Refuses what cannot be made.
    pub fn new(name: &str, settings: &Settings) -> Result<Chosen, String> {
        let settings = Settings { script: script(name)?, ..settings.clone() };
        policy::by_name(name, &settings).map_err(|error| error.to_string())?;
        Ok(Chosen { name: name.to_owned(), settings })
    }

    pub fn build(&self) -> Box<dyn Policy> {
        policy::by_name(&self.name, &self.settings).expect("it was made before")
    }
}

/// The policy of that name.
pub fn policy(name: &str, settings: &Settings) -> Result<Box<dyn Policy>, String> {
    Ok(Chosen::new(name, settings)?.build())
}

/// The text of the Lua file that a policy's name names; `None` for all others.
pub fn script(name: &str) -> Result<Option<String>, String> {
    if !lua::is_script(name) {
        return Ok(None);
    }
    let cannot = |error: &dyn std::fmt::Display| {
        format!(
            "cannot read the policy {name}: {error}; `coplace policy new {name}` writes one to begin from"
        )
    };
    let size = std::fs::metadata(name).map_err(|error| cannot(&error))?.len();
    if size > MAX_SCRIPT_BYTES {
        return Err(format!("the policy {name} has {size} bytes; at most {MAX_SCRIPT_BYTES} are allowed"));
    }
    std::fs::read_to_string(name).map(Some).map_err(|error| cannot(&error))
}

/// A policy's name as it stands in a file: a Lua file is looked for beside that.
pub fn resolve(file: &Path, name: &str) -> String {
    match (lua::is_script(name), file.parent()) {
        (true, Some(directory)) => directory.join(name).to_string_lossy().into_owned(),
        _ => name.to_owned(),
    }
}
