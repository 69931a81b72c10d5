//! What experiments/overhead needs to know of each switch: when its first write began and when its
//! last one had ended. Kept in memory and written at the end, so that it disturbs nothing.

use std::io::Write;
use std::path::PathBuf;

/// Names the file that gets a line a switch: both times in CLOCK_MONOTONIC nanoseconds.
pub const SWITCH_LOG_VARIABLE: &str = "COPLACE_SWITCH_LOG";

#[derive(Default)]
pub struct SwitchLog {
    path: Option<PathBuf>,
    switches: Vec<(u64, u64)>,
}

impl SwitchLog {
    /// Notes nothing unless the environment asks for it.
    pub fn from_environment() -> SwitchLog {
        let path = std::env::var_os(SWITCH_LOG_VARIABLE).filter(|path| !path.is_empty());
        SwitchLog { path: path.map(PathBuf::from), switches: Vec::new() }
    }

    pub fn note(&mut self, first_write_ns: u64, last_written_ns: u64) {
        if self.path.is_some() {
            self.switches.push((first_write_ns, last_written_ns));
        }
    }

    fn write(&self, path: &PathBuf) -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        for (first, last) in &self.switches {
            writeln!(file, "{first} {last}")?;
        }
        file.flush()
    }
}

impl Drop for SwitchLog {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = self.write(path)
        {
            eprintln!("coplace: cannot write {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_written_at_the_end_and_only_if_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = SwitchLog { path: Some(path.clone()), switches: Vec::new() };
        log.note(1, 2);
        log.note(30, 45);
        drop(log);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "1 2\n30 45\n");
        let mut silent = SwitchLog::default();
        silent.note(1, 2);
        assert!(silent.switches.is_empty());
    }
}
