//! What was found about files, by their content: a file in the scheduler's home, so that the next scheduler need
//! not look again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use regions::Verdict;
use serde::{Deserialize, Serialize};

use crate::registry::{read_whole, write_whole};

/// Beyond these all are forgotten and found anew.
const MOST: usize = 2_000;

/// Raised with every change of the rule, so that nothing stands that an older one found.
const RULE: &str = concat!(env!("CARGO_PKG_VERSION"), "-2");

#[derive(Default, Serialize, Deserialize)]
struct Notes {
    rule: String,
    verdicts: BTreeMap<String, Verdict>,
}

pub struct Kept {
    /// `None`: nothing is kept beyond this process.
    path: Option<PathBuf>,
    notes: Notes,
}

impl Kept {
    pub fn at(path: Option<PathBuf>) -> Kept {
        let read: Option<Notes> = path.as_ref().and_then(|path| read_whole(path).ok());
        let notes = read.filter(|notes| notes.rule == RULE);
        Kept { path, notes: notes.unwrap_or_else(|| Notes { rule: RULE.into(), ..Notes::default() }) }
    }

    pub fn get(&self, key: &str) -> Option<&Verdict> {
        self.notes.verdicts.get(key)
    }

    pub fn insert(&mut self, key: String, verdict: Verdict) {
        if self.notes.verdicts.len() >= MOST {
            self.notes.verdicts.clear();
        }
        self.notes.verdicts.insert(key, verdict);
        if let Some(path) = &self.path {
            // What cannot be kept is found again.
            let _ = write_whole(path, &self.notes);
        }
    }
}

/// Files of the same content have the same key.
pub fn key_of(bytes: &[u8]) -> String {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, bytes).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:x}-{:016x}{:016x}", bytes.len(), half(0), half(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_kept_by_content_and_rule() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("regions.json");
        let key = key_of(b"content");
        Kept::at(Some(path.clone())).insert(key.clone(), Verdict::NoRegions);
        assert_eq!(Kept::at(Some(path.clone())).get(&key), Some(&Verdict::NoRegions));
        assert_eq!(Kept::at(Some(path.clone())).get(&key_of(b"other")), None);
        let older = std::fs::read_to_string(&path).unwrap().replace(RULE, "0");
        std::fs::write(&path, older).unwrap();
        assert_eq!(Kept::at(Some(path)).get(&key), None);
    }
}
