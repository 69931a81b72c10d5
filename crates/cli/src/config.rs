//! The configuration file: which policy, which CPUs, which mechanisms.
//!
//! `$COPLACE_CONFIG` if set, else the first of `$XDG_CONFIG_HOME/coplace/config.toml` (by default
//! `~/.config/coplace/config.toml`) and `/etc/coplace/config.toml` that exists, else the defaults.
//! docs/formats/config.md describes every key.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use topology::CpuSet;

use crate::accounts::{Account, GROUPS};
use crate::adopt::Adopt;
use crate::position::line_and_column;
use crate::units;
use node::adopt::Rule;

/// What `coplace config --print-default` prints. Every key stands in it, commented out with its
/// default, so that it can be saved as it is and edited.
pub const DEFAULT: &str = include_str!("default-config.toml");

/// Shortest and longest slice that makes sense: below, switching costs more than it brings; above,
/// programs stand still longer than people bear (docs/formats/config.md).

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Where it was read; `None`: no file, all defaults.
    pub source: Option<PathBuf>,
    pub policy: Option<String>,
    pub settings: Option<toml::Table>,
    pub slice_ns: Option<u64>,
    pub cpus: Option<CpuSet>,
    pub placement: Placement,
    pub turns: Turns,
    pub unmanaged: Unmanaged,
    /// Whether a daemon probes idle CPUs.
    pub probe: bool,
    pub adopt: Vec<Rule>,
    /// Whose members alone may use root's daemon (a gid).
    pub group: Option<u32>,
}

/// How programs are kept on their CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Affinity, with which no program can fail
    #[default]
    Auto,
    /// cgroup cpusets: a program fails if it binds threads to CPUs outside its place
    Cpuset,
    /// sched_setaffinity for every thread
    Affinity,
}

/// How programs take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// The best that works on this machine
    #[default]
    Auto,
    /// The cgroup freezer: programs that are not in turn stand still
    Freeze,
    /// cpu.idle: programs that are not in turn use what the gang in turn leaves idle
    Idle,
    /// SIGSTOP and SIGCONT: needs no special rights; slices last at least 50 ms
    Stop,
}

/// What is done about programs that nobody put under coplace's care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Unmanaged {
    /// They keep the CPUs that they use
    #[default]
    Leave,
    /// Nothing is left to them: for machines that run only managed programs
    Ignore,
}

impl From<Placement> for node::mechanism::PlacementChoice {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Auto => Self::Auto,
            Placement::Cpuset => Self::Cpuset,
            Placement::Affinity => Self::Affinity,
        }
    }
}

impl From<Turns> for node::mechanism::TurnsChoice {
    fn from(turns: Turns) -> Self {
        match turns {
            Turns::Auto => Self::Auto,
            Turns::Freeze => Self::Freeze,
            Turns::Idle => Self::Idle,
            Turns::Stop => Self::Stop,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{path}:{line}:{column}: {message}")]
    At { path: PathBuf, line: usize, column: usize, message: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<Spanned<String>>,
    settings: Option<Spanned<toml::Table>>,
    slice: Option<Spanned<String>>,
    cpus: Option<Spanned<String>>,
    #[serde(default)]
    placement: Placement,
    #[serde(default)]
    turns: Turns,
    #[serde(default)]
    unmanaged: Unmanaged,
    #[serde(default)]
    probe: bool,
    #[serde(default)]
    adopt: Vec<Spanned<Adopt>>,
    group: Option<Spanned<Account>>,
}

impl Config {
    /// The configuration that applies to this user, or all defaults.
    pub fn load() -> Result<Config, ConfigError> {
        match Config::path() {
            Some(path) => Config::read(&path),
            None => Ok(Config::default()),
        }
    }

    /// The file that applies. One named by `COPLACE_CONFIG` must exist; the others may.
    pub fn path() -> Option<PathBuf> {
        if let Some(path) = std::env::var_os("COPLACE_CONFIG").filter(|path| !path.is_empty()) {
            return Some(path.into());
        }
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
        let user = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        [user.or_else(home), Some("/etc".into())]
            .into_iter()
            .flatten()
            .map(|directory| directory.join("coplace/config.toml"))
            .find(|path| path.exists())
    }

    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Config::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let at = |offset: usize, message: String| {
            let (line, column) = line_and_column(text, offset);
            ConfigError::At { path: path.to_owned(), line, column, message }
        };
        let file: File = toml::from_str(text)
            .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        let mut config = Config {
            source: Some(path.to_owned()),
            placement: file.placement,
            turns: file.turns,
            unmanaged: file.unmanaged,
            probe: file.probe,
            ..Config::default()
        };
        for rule in file.adopt {
            config.adopt.push(rule.get_ref().rule().map_err(|why| at(rule.span().start, why))?);
        }
        if let Some(group) = file.group {
            let number = GROUPS.number_of(group.get_ref()).map_err(|why| at(group.span().start, why))?;
            config.group = Some(number);
        }
        if let Some(name) = file.policy {
            let policy = crate::policy_name::resolve(path, name.get_ref());
            crate::policy_name::policy_letters(&policy).map_err(|why| at(name.span().start, why))?;
            config.policy = Some(policy);
        }
        if let Some(slice) = file.slice {
            let ns = parse_slice_ns(slice.get_ref()).map_err(|why| at(slice.span().start, why))?;
            config.slice_ns = Some(ns);
        }
        if let Some(cpus) = file.cpus {
            let set: CpuSet =
                cpus.get_ref().parse().map_err(|why| at(cpus.span().start, format!("{why}")))?;
            if set.is_empty() {
                let why = "cpus is empty; leave it out to allow every CPU".to_owned();
                return Err(at(cpus.span().start, why));
            }
            config.cpus = Some(set);
        }
        if let Some(settings) = file.settings {
            // Whether the values fit is known here, where the line is known, and not at the start.
            let mut plain = settings.get_ref().clone();
            crate::neighbours::take_path(&mut plain);
            plain
                .try_into::<policy::Settings>()
                .map_err(|error| at(settings.span().start, format!("settings: {}", error.message())))?;
            config.settings = Some(settings.into_inner());
        }
        Ok(config)
    }
}

/// A slice as given in the file or on the command line.
pub fn parse_slice_ns(text: &str) -> Result<u64, String> {
    let ns = units::parse_duration_ns(text)?;
    if policy::SLICE_RANGE_NS.contains(&ns) {
        Ok(ns)
    } else {
        let default = plan::display_ns(policy::Settings::default().slice_ns);
        Err(format!("a slice of {text} is outside 1ms to 10s; {default} is the default"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("c.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "policy = 'CO'\nslice = '50ms'\ncpus = '0-3,8'\nplacement = 'affinity'\nturns = 'stop'\n\
             unmanaged = 'ignore'\nprobe = true\ngroup = 'root'\n\
             [settings]\nallowed_widths = [2]\n",
        )
        .unwrap();
        assert_eq!(config.policy.as_deref(), Some("CO"));
        assert_eq!(config.slice_ns, Some(50_000_000));
        assert_eq!(config.cpus, Some("0-3,8".parse().unwrap()));
        assert_eq!((config.placement, config.turns), (Placement::Affinity, Turns::Stop));
        assert_eq!(config.unmanaged, Unmanaged::Ignore);
        assert!(config.probe);
        assert_eq!(config.group, Some(0));
        assert_eq!(config.settings, Some(toml::from_str("allowed_widths = [2]").unwrap()));
    }

    #[test]
    fn the_default_file_is_neutral_and_valid_uncommented() {
        assert_eq!(parse(DEFAULT).unwrap(), Config { source: Some("c.toml".into()), ..Config::default() });
        let uncommented: String = DEFAULT
            .lines()
            .filter_map(|line| line.strip_prefix("# ").or(line.strip_prefix('#')).or(Some(line)))
            .filter(|line| line.contains(" = ") && !line.contains(". "))
            .map(|line| format!("{line}\n"))
            .collect();
        let config = parse(&uncommented).expect(&uncommented);
        assert!(config.policy.is_some() && config.slice_ns.is_some() && config.cpus.is_some());
    }

    #[test]
    fn each_mistake_is_reported_with_its_line_and_column() {
        for (text, wanted) in [
            ("policy = 'TA'\ncolour = 1\n", "c.toml:2:1: unknown field `colour`"),
            ("policy = ", "c.toml:1:10: "),
            ("policy = 'BEST'\n", "c.toml:1:10: there is no policy 'BEST'"),
            ("\n\nslice = '20'\n", "c.toml:3:9: '20' has no unit"),
            ("slice = '20us'", "c.toml:1:9: a slice of 20us is outside"),
            ("cpus = '3-1'", "c.toml:1:8: '3-1' is not a CPU list: the range 3-1 runs backwards"),
            ("cpus = ''", "c.toml:1:8: cpus is empty"),
            ("turns = 'please'", "c.toml:1:9: unknown variant `please`"),
            ("slice = '20ms'\n[settings]\nsizes = [2]", "c.toml:2:1: settings: unknown field `sizes`"),
            ("slice = 20", "c.toml:1:9: invalid type"),
            ("group = 'nobodies'", "c.toml:1:9: there is no group 'nobodies' in /etc/group"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = Config::read(Path::new("/nonexistent/c.toml")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/c.toml: "), "{error}");
    }
}
