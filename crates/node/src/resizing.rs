//! Which programs may be resized: those of which it is known that their results do not depend on the size
//! of their teams. All others stand at full width and take turns, which costs a few percent and no result.
//!
//! The rule, for everything of which a process has mapped code: an object that starts parallel regions or asks
//! about teams must be
//!
//! 1. on the [list](listed) of those that were tried: the same work with all threads, with one and with a number
//!    that changes gave the same bytes; or
//! 2. named by the program's user (`--tolerant`, `COPLACE_TOLERANT`); or
//! 3. declared by its author (`coplace/resizable.h`); or
//! 4. found independent by an analysis of its code (crate `regions`).
//!
//! One object for which none of these holds makes the whole process rigid, since its regions and those of the
//! others share the CPUs. So do several OpenMP runtimes in one process, files that were changed or replaced
//! since they were mapped, and a process that keeps loading code. What was found holds for what is loaded: the
//! page of the process says when that changes ([`linux::page::Page::loads`]).
//!
//! Analyses take milliseconds, of large libraries seconds, so an [`Analyst`] makes them on a thread of its own,
//! and keeps what it found by the content of files.

mod analyst;
mod kept;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use analyst::{Analyst, Question};
use glob::Pattern;

/// Variable that names what its user vouches for.
pub const TOLERANT_VARIABLE: &str = "COPLACE_TOLERANT";

/// How often a process may load more code while it runs regions, before it counts as one that always will.
pub const MOST_LOADS: u32 = 16;

const TABLE: &str = include_str!("../../../preload/tolerant.def");

/// Objects that were tried, as patterns of their paths.
pub fn listed() -> Vec<Pattern> {
    let entries = TABLE.lines().filter_map(|line| line.strip_prefix("TOLERATES(\""));
    let patterns = entries.filter_map(|entry| entry.split('"').next());
    patterns.filter_map(|pattern| Pattern::new(pattern).ok()).collect()
}

/// What a program's user says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UserOverride {
    /// Nothing; what is known of its objects counts.
    #[default]
    None,
    /// All of it may be resized.
    Whole,
    /// These objects may.
    Named(Vec<Pattern>),
}

impl UserOverride {
    /// As in the variable: patterns of paths or their last parts between colons, or `1`.
    pub fn parse(text: &OsStr) -> UserOverride {
        let text = String::from_utf8_lossy(text.as_bytes());
        if text.trim() == "1" {
            return UserOverride::Whole;
        }
        let patterns: Vec<Pattern> = text
            .split(':')
            .filter(|each| !each.is_empty())
            .filter_map(|each| Pattern::new(each).ok())
            .collect();
        if patterns.is_empty() { UserOverride::None } else { UserOverride::Named(patterns) }
    }
}

/// Whether a pattern is of this path or of its last part.
fn fits(patterns: &[Pattern], path: &Path) -> bool {
    let last = path.file_name().map(Path::new).unwrap_or(path);
    patterns.iter().any(|pattern| pattern.matches_path(path) || pattern.matches_path(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_the_preload_library() {
        let listed = listed();
        assert!(fits(&listed, Path::new("/usr/lib/python3/lightgbm/lib/lib_lightgbm.so")));
        assert!(fits(&listed, Path::new("/opt/v/lib/sklearn/cluster/_k_means_lloyd.cpython-311.so")));
        assert!(!fits(&listed, Path::new("/opt/v/lib/xgboost/lib/libxgboost.so")));
        assert_eq!(listed.len(), TABLE.matches("\nTOLERATES(").count());
    }

    #[test]
    fn a_user_names_objects_or_the_whole_program() {
        assert_eq!(UserOverride::parse(OsStr::new(" 1 ")), UserOverride::Whole);
        assert_eq!(UserOverride::parse(OsStr::new("")), UserOverride::None);
        let UserOverride::Named(patterns) = UserOverride::parse(OsStr::new("liba.so:*/b*")) else {
            panic!("named")
        };
        assert!(fits(&patterns, Path::new("/opt/liba.so")) && fits(&patterns, Path::new("/opt/bc")));
        assert!(!fits(&patterns, Path::new("/opt/libc.so")));
    }
}
