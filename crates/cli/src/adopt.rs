//! `[[adopt]]` in the configuration: which programs are taken in that start without `coplace run`.

use node::adopt::Rule;
use serde::Deserialize;
use workload::{AppId, Demand, Malleability};

use crate::accounts::{Account, USERS};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    path: Option<String>,
    user: Option<Account>,
    cgroup: Option<String>,
    name: Option<String>,
    #[serde(default)]
    rigid: bool,
    min_threads: Option<u32>,
    max_threads: Option<u32>,
    weight_milli: Option<u32>,
    coschedule: Option<bool>,
}

impl Adopt {
    pub fn rule(&self) -> Result<Rule, String> {
        if self.path.is_none() && self.user.is_none() && self.cgroup.is_none() {
            return Err("a rule needs a path, a user or a cgroup".into());
        }
        let pattern = |key: &str, text: &Option<String>| {
            let pattern = |text: &String| {
                if !text.starts_with('/') {
                    return Err(format!("{key} = '{text}' must begin with /"));
                }
                glob::Pattern::new(text).map_err(|error| format!("{key} = '{text}': {error}"))
            };
            text.as_ref().map(pattern).transpose()
        };
        let name = |text: &String| AppId::new(text).map_err(|error| format!("name: {error}"));
        for (key, threads) in [("min_threads", self.min_threads), ("max_threads", self.max_threads)] {
            if threads == Some(0) {
                return Err(format!("{key} must be at least 1"));
            }
        }
        if let Some((least, most)) =
            self.min_threads.zip(self.max_threads).filter(|(least, most)| least > most)
        {
            return Err(format!(
                "min_threads = {least} is more than max_threads = {most}; lower one or raise the other"
            ));
        }
        let default = Demand::default();
        Ok(Rule {
            path: pattern("path", &self.path)?,
            uid: self.user.as_ref().map(|user| USERS.number_of(user)).transpose()?,
            cgroup: pattern("cgroup", &self.cgroup)?,
            name: self.name.as_ref().map(name).transpose()?,
            demand: Demand {
                malleability: if self.rigid { Malleability::Rigid } else { default.malleability },
                min_threads: self.min_threads.unwrap_or(default.min_threads),
                max_threads: self.max_threads,
                weight_milli: self.weight_milli.unwrap_or(default.weight_milli).clamp(1, 1_000_000),
                coschedule: self.coschedule.unwrap_or(default.coschedule),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Rule, String> {
        toml::from_str::<Adopt>(text).map_err(|error| error.message().to_owned())?.rule()
    }

    #[test]
    fn an_adoption_rule_states_programs_and_their_treatment() {
        let rule =
            rule("path = '/opt/sim/**'\nuser = 'root'\nname = 'sim'\nrigid = true\nmin_threads = 2\nmax_threads = 4\ncoschedule = false").unwrap();
        assert_eq!(rule.uid, Some(0));
        assert!(rule.path.unwrap().matches("/opt/sim/bin/solver"));
        assert_eq!(rule.demand.malleability, Malleability::Rigid);
        assert_eq!((rule.demand.min_threads, rule.demand.max_threads), (2, Some(4)));
        assert!(!rule.demand.coschedule);
        assert_eq!(rule.name.unwrap().as_str(), "sim");
    }

    #[test]
    fn an_impossible_rule_is_refused_with_its_reason() {
        for (text, wanted) in [
            ("name = 'x'", "needs a path, a user or a cgroup"),
            ("path = 'solver'", "must begin with /"),
            ("path = '/a***'", "path = '/a***': "),
            ("user = 'nobody-of-that-name'", "there is no user 'nobody-of-that-name'"),
            ("user = 7\ncolour = 1", "unknown field `colour`"),
            ("user = 7\nmax_threads = 0", "max_threads must be at least 1"),
            ("user = 7\nmin_threads = 0", "min_threads must be at least 1"),
            ("user = 7\nmin_threads = 3\nmax_threads = 2", "more than max_threads = 2"),
            ("user = 7\ncoschedule = 1", "boolean"),
            ("user = 7\nname = '7'", "not an application name"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
