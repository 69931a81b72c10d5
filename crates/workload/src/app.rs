//! An application as the policies know it: a name and a demand.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of one running (or waiting) application, unique on its node: `cg`, `cg.2`.
///
/// A letter or `_`, then letters, digits, `_`, `.` and `-`: what the plan's text form can hold
/// without quotes. Cheap to clone, to look up and to tell from others.
#[derive(Clone)]
pub struct AppId {
    name: Arc<str>,
    /// Of the name: programs are looked up far more often than they are named.
    hash: u64,
    /// Its first bytes, by which most names are told apart in order without a look at them.
    first: u64,
}

/// Something for each of many names. Only for looking into: its order says nothing.
pub type ByApp<'a, T> = HashMap<&'a AppId, T, BuildHasherDefault<NameHasher>>;

/// Takes the hash that every name carries as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Eight bytes at a time, multiplied: quick for names as short as these, and the same on every run.
fn hash(name: &[u8]) -> u64 {
    let product = name.chunks(8).fold(0u64, |hash, chunk| {
        let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        // An odd number without a pattern: 2^64 over the golden ratio (Knuth, volume 3, 6.4).
        (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    // The product's upper half is the good one; tables look at both ends.
    product ^ (product >> 32)
}

/// The first eight bytes as a number that is in the order of the names. No name contains the zeros that fill up a
/// shorter one.
fn first(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(bytes.len());
    bytes[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(bytes)
}

impl PartialEq for AppId {
    #[inline]
    fn eq(&self, other: &AppId) -> bool {
        // Mostly it is a clone of the same.
        self.hash == other.hash && (Arc::ptr_eq(&self.name, &other.name) || self.name == other.name)
    }
}

impl Eq for AppId {}

impl PartialOrd for AppId {
    fn partial_cmp(&self, other: &AppId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AppId {
    fn cmp(&self, other: &AppId) -> Ordering {
        self.first.cmp(&other.first).then_with(|| match Arc::ptr_eq(&self.name, &other.name) {
            true => Ordering::Equal,
            false => self.name.cmp(&other.name),
        })
    }
}

impl Hash for AppId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A text that is no application's name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not an application name: a letter or _, then letters, digits, _ . - (at most 64)")]
pub struct ParseAppIdError(pub String);

impl AppId {
    /// Longest name, in bytes.
    pub const MAX_LENGTH: usize = 64;

    /// Checks a name: a letter or `_`, then letters, digits and `_.-`, [`AppId::MAX_LENGTH`] bytes at most.
    pub fn new(name: &str) -> Result<Self, ParseAppIdError> {
        let mut chars = name.chars();
        let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let rest = chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        if first && rest && name.len() <= Self::MAX_LENGTH {
            Ok(AppId::unchecked(name))
        } else {
            Err(ParseAppIdError(name.to_owned()))
        }
    }

    fn unchecked(name: &str) -> AppId {
        AppId { hash: hash(name.as_bytes()), first: first(name.as_bytes()), name: name.into() }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// `cg` and 2 give `cg.2`: how instances of one name are told apart. Shortens a name that
    /// would become too long.
    pub fn numbered(&self, number: u32) -> AppId {
        let suffix = format!(".{number}");
        // Names are ASCII, so that every byte is a character.
        let stem = &self.name[..self.name.len().min(Self::MAX_LENGTH - suffix.len())];
        let name = format!("{stem}{suffix}");
        AppId::unchecked(&name)
    }

    /// The name without the number by which instances are told apart: `cg` of `cg.2`.
    pub fn unnumbered(&self) -> &str {
        match self.name.rsplit_once('.') {
            Some((stem, number))
                if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) =>
            {
                stem
            }
            _ => &self.name,
        }
    }
}

impl FromStr for AppId {
    type Err = ParseAppIdError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        AppId::new(name)
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl fmt::Debug for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for AppId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for AppId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AppId::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// When a program can change its degree of parallelism (Feitelson and Rudolph 1996).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Malleability {
    /// Never: it runs with the threads that it has.
    Rigid,
    /// At its start only.
    Moldable,
    /// Whenever the scheduler wishes, within a region's length.
    Malleable,
    /// It changes by itself; the scheduler follows.
    Evolving,
}

/// What an application asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Whether it can be given another number of threads.
    pub malleability: Malleability,
    /// Fewest threads that it can run with, at least 1.
    pub min_threads: u32,
    /// Most threads that it can use; a rigid program's width. `None`: as many as there are CPUs.
    pub max_threads: Option<u32>,
    /// Share of the machine relative to the others, in thousandths (1000 = one equal share).
    pub weight_milli: u32,
    /// Whether its threads must run at the same time (they spin for one another).
    pub coschedule: bool,
}

impl Default for Demand {
    fn default() -> Self {
        Demand {
            malleability: Malleability::Malleable,
            min_threads: 1,
            max_threads: None,
            weight_milli: 1000,
            coschedule: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_one_name_are_numbered_and_stripped_again() {
        for (name, stem) in [("cg", "cg"), ("bt.A", "bt.A"), ("x.", "x."), ("lu.A.12", "lu.A")] {
            assert_eq!(AppId::new(name).unwrap().unnumbered(), stem);
        }
        let name = AppId::new("bt.A").unwrap();
        assert_eq!(name.numbered(2).unnumbered(), "bt.A");
    }
}
