//! A program's tree as text: `app[left:core[a b] right[c*3]] t^9`.
//!
//! Names separated by blanks; a bubble's members stand in brackets behind it. A name takes, in any
//! order: `:core` or `:3` (bursts at a level, or with so many processors), `^9` (priority), `@1` (data
//! on this NUMA node), `/2-4` (fewest and most processors), and a thread `*3` (that many: a0 a1 a2).

use topology::Level;

use crate::hierarchy::{BurstAt, PRIORITIES, PRIORITY, Wishes};

/// A thread, or a bubble with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Unique in the program; `a*3` stands for `a0`, `a1` and `a2`.
    pub name: String,
    /// 0 to 15; 7 where the text says nothing.
    pub priority: u8,
    /// Those that stand behind the name; on a thread they have no effect.
    pub wishes: Wishes,
    /// `None` for a thread.
    pub members: Option<Vec<Item>>,
}

/// Where a program's text is wrong, and how.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("program, column {column}: {what} (write for example: app[left:core[a b] right[c*3]] t^9)")]
pub struct ProgramError {
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong there, in words.
    pub what: String,
}

/// Reads a program.
pub fn parse(text: &str) -> Result<Vec<Item>, ProgramError> {
    let mut reader = Reader { text: text.chars().collect(), at: 0, names: Vec::new() };
    let items = reader.items()?;
    match reader.peek() {
        None => Ok(items),
        Some(_) => Err(reader.error("this bracket closes nothing")),
    }
}

struct Reader {
    text: Vec<char>,
    at: usize,
    names: Vec<String>,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn error(&self, what: impl Into<String>) -> ProgramError {
        ProgramError { column: self.at + 1, what: what.into() }
    }

    fn word(&mut self) -> Result<String, ProgramError> {
        let from = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            self.at += 1;
        }
        if from == self.at {
            return Err(self.error("a name or a number is missing here"));
        }
        Ok(self.text[from..self.at].iter().collect())
    }

    fn number(&mut self) -> Result<usize, ProgramError> {
        let at = self.at;
        let token = self.word()?;
        token.parse().map_err(|_| ProgramError { column: at + 1, what: format!("'{token}' is no number") })
    }

    fn items(&mut self) -> Result<Vec<Item>, ProgramError> {
        let mut items = Vec::new();
        loop {
            while self.peek() == Some(' ') {
                self.at += 1;
            }
            match self.peek() {
                None | Some(']') => return Ok(items),
                Some(_) => items.extend(self.item()?),
            }
        }
    }

    fn item(&mut self) -> Result<Vec<Item>, ProgramError> {
        let name = self.word()?;
        let (mut priority, mut wishes, mut count) = (PRIORITY, Wishes::default(), None);
        while let Some(mark) = self.peek().filter(|c| ":^@/*".contains(*c)) {
            self.at += 1;
            match mark {
                ':' if self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                    wishes.burst = BurstAt::Processors(self.number()?);
                }
                ':' => wishes.burst = BurstAt::Level(self.level()?),
                '^' => {
                    let number = self.number()?;
                    if number >= PRIORITIES {
                        return Err(self.error(format!("priorities are 0 to {}", PRIORITIES - 1)));
                    }
                    priority = number as u8;
                }
                '@' => wishes.memory = Some(self.number()? as u32),
                '/' => {
                    wishes.fewest = self.number()?;
                    if self.peek() != Some('-') {
                        return Err(self.error("write the fewest and the most processors as 2-4"));
                    }
                    self.at += 1;
                    wishes.most = self.number()?;
                }
                _ => count = Some(self.number()?),
            }
        }
        let mut members = None;
        if self.peek() == Some('[') {
            self.at += 1;
            members = Some(self.items()?);
            if self.peek() != Some(']') {
                return Err(self.error(format!("the bracket of {name} is not closed")));
            }
            self.at += 1;
        }
        let names = match count {
            Some(_) if members.is_some() => return Err(self.error("only threads can be had several times")),
            Some(count) => (0..count).map(|number| format!("{name}{number}")).collect(),
            None => vec![name],
        };
        if let Some(twice) = names.iter().find(|name| self.names.contains(name)) {
            return Err(self.error(format!("there are two of the name {twice}")));
        }
        self.names.extend(names.iter().cloned());
        Ok(names.into_iter().map(|name| Item { name, priority, wishes, members: members.clone() }).collect())
    }

    fn level(&mut self) -> Result<Level, ProgramError> {
        let at = self.at;
        let token = self.word()?;
        Ok(match token.as_str() {
            "machine" => Level::Node,
            "box" => Level::Box,
            "package" => Level::Package,
            "numa" => Level::Numa,
            "llc" => Level::Llc,
            "group" => Level::Group,
            "core" => Level::Core,
            "pu" => Level::Pu,
            _ => {
                let what =
                    format!("'{token}' is no level: machine, box, package, numa, llc, group, core or pu");
                return Err(ProgramError { column: at + 1, what });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_with_all_that_a_name_can_take() {
        let items = parse("app:core^9[a*2 in/2-4@1[b]] t:3").expect("it is right");
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].priority, 9);
        assert_eq!(items[0].wishes.burst, BurstAt::Level(Level::Core));
        let members = items[0].members.as_ref().expect("a bubble");
        let names: Vec<&str> = members.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["a0", "a1", "in"]);
        assert_eq!((members[2].wishes.fewest, members[2].wishes.most), (2, 4));
        assert_eq!(members[2].wishes.memory, Some(1));
        assert_eq!(items[1].wishes.burst, BurstAt::Processors(3));
    }

    #[test]
    fn mistakes_are_reported_with_their_column() {
        let column = |text: &str| parse(text).expect_err("it is wrong").column;
        assert_eq!(column("a]"), 2);
        assert_eq!(column("a[b"), 4);
        assert_eq!(column("a^16"), 5);
        assert_eq!(column("a:floor"), 3);
        assert_eq!(column("a/2"), 4);
        assert_eq!(column("a a"), 4);
        assert_eq!(column("a[]*2"), 4);
    }
}
