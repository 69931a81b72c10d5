//! How to schedule: what the command line says, else the configuration file, else the defaults.

use node::home::LockError;
use node::join::JoinError;
use node::scheduler::{Options, StartError};
use protocol::ClientError;
use topology::CpuSet;

use crate::config::{Config, Placement, Turns, Unmanaged, parse_slice_ns};
use crate::exit::{BAD_INPUT, DOES_NOT_HOLD, Failure};
use crate::neighbours;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct Choices {
    /// The policy: letters or words from `coplace policy list`, or a Lua file [default: TA]
    #[arg(long, value_name = "POLICY", help_heading = "Scheduling", value_parser = crate::policy_name::policy_letters)]
    pub policy: Option<String>,
    /// A setting of the policy, in TOML, such as `allowed_widths=[2]`; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Scheduling")]
    pub set: Vec<String>,
    /// For TA and CO, what decides which programs share memory and caches: `twins`, `profile`,
    /// `load_rates`, or a file with a slowdown matrix (.csv) or profiles (.toml)
    #[arg(long, value_name = "twins|profile|load_rates|FILE", help_heading = "Scheduling")]
    pub neighbours: Option<String>,
    /// How long a turn lasts, from 1ms to 10s [default: 100ms]
    #[arg(long, value_name = "TIME", help_heading = "Scheduling", value_parser = parse_slice_ns)]
    pub slice: Option<u64>,
    /// How programs take turns [default: auto]
    #[arg(long, value_enum, help_heading = "Scheduling")]
    pub turns: Option<Turns>,
    /// How programs are kept on their CPUs [default: auto]
    #[arg(long, value_enum, help_heading = "Scheduling")]
    pub placement: Option<Placement>,
    /// Whether programs outside of coplace keep the CPUs that they use [default: leave]
    #[arg(long, value_enum, help_heading = "Scheduling")]
    pub unmanaged: Option<Unmanaged>,
    /// The CPUs to use, such as 0-3,8 [default: all that this user may use]
    #[arg(long, value_name = "LIST", help_heading = "Scheduling", value_parser = parse_cpus)]
    pub cpus: Option<CpuSet>,
}

fn parse_cpus(text: &str) -> Result<CpuSet, String> {
    let cpus: CpuSet = text.parse().map_err(|error| format!("{error}"))?;
    if cpus.is_empty() { Err("the list is empty".into()) } else { Ok(cpus) }
}

impl Choices {
    /// What a running scheduler decides and a newcomer cannot.
    pub fn is_empty(&self) -> bool {
        self.policy.is_none()
            && self.set.is_empty()
            && self.neighbours.is_none()
            && self.slice.is_none()
            && self.turns.is_none()
            && self.placement.is_none()
            && self.unmanaged.is_none()
            && self.cpus.is_none()
    }

    pub fn options(&self) -> Result<Options, Failure> {
        self.options_over(&Config::load().map_err(Failure::bad_input)?)
    }

    fn options_over(&self, config: &Config) -> Result<Options, Failure> {
        let settings = toml_settings(
            config.settings.clone().unwrap_or_default(),
            &self.set,
            self.neighbours.as_deref(),
        )?;
        let mut options = Options { settings, ..Options::default() };
        if let Some(slice_ns) = self.slice.or(config.slice_ns) {
            options.settings.slice_ns = slice_ns;
        }
        if let Some(policy) = self.policy.as_ref().or(config.policy.as_ref()) {
            options.policy = policy.clone();
        }
        options.placement = self.placement.unwrap_or(config.placement).into();
        options.turns = self.turns.unwrap_or(config.turns).into();
        options.leave_unmanaged = self.unmanaged.unwrap_or(config.unmanaged) == Unmanaged::Leave;
        options.adopt = config.adopt.clone();
        options.group = config.group;
        options.cpus = self.cpus.clone().or(config.cpus.clone());
        if let Some(cpus) = &options.cpus {
            check_cpus(cpus)?;
        }
        options.settings.script = crate::policy_name::script(&options.policy).map_err(Failure::bad_input)?;
        // Settings that the policy refuses are bad input now, before anything starts.
        policy::by_name(&options.policy, &options.settings).map_err(Failure::bad_input)?;
        options.settings.check_live_times().map_err(Failure::bad_input)?;
        Ok(options)
    }
}

fn check_cpus(cpus: &CpuSet) -> Result<(), Failure> {
    let times = linux::procfs::cpu_times(&linux::Root::live()).map_err(Failure::ours)?;
    let online: CpuSet = times.cpus.keys().copied().collect();
    match cpus.difference(&online) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Failure::bad_input(format!(
            "CPUs {missing} do not exist or are offline; online are {online}"
        ))),
    }
}

/// Settings of the policies: a table and, over it, pairs of `KEY=VALUE` and what `--neighbours` says.
pub fn toml_settings(
    mut table: toml::Table,
    pairs: &[String],
    neighbours: Option<&str>,
) -> Result<policy::Settings, Failure> {
    for pair in pairs {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            Failure::bad_input(format!("--set {pair}: KEY=VALUE is expected, for example allowed_widths=[2]"))
        })?;
        table.insert(key.trim().to_owned(), toml_value(value.trim()));
    }
    if let Some(neighbours) = neighbours {
        table.insert("neighbours".to_owned(), toml::Value::String(neighbours.to_owned()));
    }
    let path = neighbours::take_path(&mut table);
    let mut settings: policy::Settings = table
        .try_into()
        .map_err(|error: toml::de::Error| Failure::bad_input(format!("settings: {}", error.message())))?;
    if let Some(path) = path {
        settings.neighbours = Some(neighbours::predicted(&path)?);
    }
    Ok(settings)
}

/// A TOML value; what is none is a string, so that a plan needs no second pair of quotes.
fn toml_value(text: &str) -> toml::Value {
    let table: Option<toml::Table> = toml::from_str(&format!("value = {text}")).ok();
    table.and_then(|mut table| table.remove("value")).unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

/// What went wrong at a scheduler's start, with its exit status.
pub fn start_failure(error: StartError) -> Failure {
    let status = match &error {
        StartError::Policy(_) => BAD_INPUT,
        StartError::Mechanism(_) => DOES_NOT_HOLD,
        _ => return Failure::ours(error),
    };
    Failure::new(status, error)
}

/// Why a scheduler could not be joined or replaced, with its exit status.
pub fn join_failure(error: JoinError) -> Failure {
    match error {
        JoinError::Start(error) => start_failure(error),
        JoinError::Lock(LockError::Held { .. }) => {
            Failure::new(DOES_NOT_HOLD, format!("{error}; stop it first"))
        }
        JoinError::Client(ClientError::Refused(why)) => Failure::new(DOES_NOT_HOLD, why),
        other => Failure::ours(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_the_file_and_the_file_the_defaults() {
        let config = Config {
            policy: Some("BP".into()),
            slice_ns: Some(50_000_000),
            settings: Some(toml::from_str("max_still_ns = 100_000_000").unwrap()),
            cpus: Some("0".parse().unwrap()),
            ..Config::default()
        };
        let choices = Choices {
            policy: Some("CO".into()),
            set: vec!["allowed_widths=[2]".into()],
            ..Choices::default()
        };
        let options = choices.options_over(&config).unwrap();
        assert_eq!(options.policy, "CO");
        assert_eq!(options.settings.allowed_widths, Some(vec![2]));
        assert_eq!((options.settings.slice_ns, options.settings.max_still_ns), (50_000_000, 100_000_000));
        assert_eq!(options.cpus, Some("0".parse().unwrap()));
        assert_eq!(
            Choices::default().options_over(&Config::default()).unwrap().policy,
            Options::default().policy
        );
    }

    #[test]
    fn a_setting_that_no_policy_knows_is_refused_by_name() {
        for (set, wanted) in [
            ("colour=1", "unknown field `colour`"),
            ("slice_ns", "KEY=VALUE"),
            ("slice_ns=soon", "invalid type"),
        ] {
            let choices = Choices { set: vec![set.into()], ..Choices::default() };
            let message = choices.options_over(&Config::default()).unwrap_err().message;
            assert!(message.contains(wanted), "{set}: {message}");
        }
    }

    #[test]
    fn neighbours_go_by_a_keyword_or_a_file() {
        let of = |set: &[String], option| toml_settings(toml::Table::new(), set, option);
        let twins = Some(policy::Neighbours::Twins);
        assert_eq!(of(&[], Some("twins")).unwrap().neighbours, twins);
        assert_eq!(of(&["neighbours=twins".to_owned()], None).unwrap().neighbours, twins);
        let message = of(&[], Some("nowhere.csv")).unwrap_err().message;
        assert!(message.contains("cannot read nowhere.csv"), "{message}");
    }

    #[test]
    fn text_that_is_no_toml_is_a_string() {
        assert_eq!(toml_value("[1, 2]"), toml::Value::Array(vec![1.into(), 2.into()]));
        assert_eq!(toml_value("in_turn [a on 0-1]"), toml::Value::String("in_turn [a on 0-1]".into()));
        assert_eq!(toml_value("'quoted'"), toml::Value::String("quoted".into()));
    }
}
