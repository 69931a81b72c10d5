//! Users and groups in the configuration, each by its name or its number.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// A user or a group, as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Account {
    Number(u32),
    Name(String),
}

/// Where accounts of a kind are listed.
pub struct Accounts {
    kind: &'static str,
    list: &'static str,
    /// The command that prints the number of one that is listed elsewhere.
    number: &'static str,
}

pub const USERS: Accounts = Accounts { kind: "user", list: "/etc/passwd", number: "id -u" };
pub const GROUPS: Accounts = Accounts { kind: "group", list: "/etc/group", number: "getent group" };

impl Accounts {
    /// Those of other sources (LDAP) are given by their number.
    pub fn number_of(&self, account: &Account) -> Result<u32, String> {
        let name = match account {
            Account::Number(number) => return Ok(*number),
            Account::Name(name) => name,
        };
        let Accounts { kind, list, number } = self;
        let text = fs::read_to_string(Path::new(list)).map_err(|error| format!("{list}: {error}"))?;
        number_in(&text, name).ok_or_else(|| {
            format!("there is no {kind} '{name}' in {list}; give the number ({number} {name})")
        })
    }

    /// Its name; its number where it has none in the list.
    pub fn name_of(&self, number: u32) -> String {
        let text = fs::read_to_string(Path::new(self.list)).unwrap_or_default();
        name_in(&text, number).map_or_else(|| number.to_string(), str::to_owned)
    }
}

/// Both lists have the name first and the number third.
fn entries(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

fn number_in(text: &str, name: &str) -> Option<u32> {
    entries(text).find(|(listed, _)| *listed == name).map(|(_, number)| number)
}

fn name_in(text: &str, number: u32) -> Option<&str> {
    entries(text).find(|(_, listed)| *listed == number).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_name_and_by_number() {
        let text = "root:x:0:\nbroken\nusers:x:100:ann,bob\nodd:x:many:\n";
        assert_eq!((number_in(text, "users"), name_in(text, 100)), (Some(100), Some("users")));
        assert_eq!((number_in(text, "odd"), name_in(text, 7)), (None, None));
    }

    #[test]
    fn an_unknown_group_is_named_with_what_to_do() {
        let error = GROUPS.number_of(&Account::Name("no-such-group".into())).unwrap_err();
        assert_eq!(
            error,
            "there is no group 'no-such-group' in /etc/group; give the number (getent group no-such-group)"
        );
    }
}
